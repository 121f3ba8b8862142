//! The verdict of a predecessor: which of the connections that it offered are the successor's.

/// Connections of which the predecessor has closed its copies.
#[derive(Clone, PartialEq, prost::Message, serde::Serialize, serde::Deserialize)]
pub(crate) struct Yours {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) ids: Vec<u64>,
    /// Which notes came for them meanwhile.
    #[prost(message, repeated, tag = "2")]
    pub(crate) noted: Vec<Noted>,
    /// All of them, in order: most are for many connections.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(crate) notes: Vec<Vec<u8>>,
    /// Another part follows, and decides with this one.
    #[prost(bool, tag = "4")]
    pub(crate) more: bool,
    /// Their pool: each part is of one. Empty: that of the last offer.
    #[prost(string, tag = "5")]
    pub(crate) pool: String,
}

impl Yours {
    /// Those of another loop, too.
    pub(crate) fn extend(&mut self, other: Yours) {
        let before = self.notes.len() as u32;
        self.ids.extend(other.ids);
        let moved_up = |noted: Noted| Noted { id: noted.id, notes: noted.notes.iter().map(|at| before + at).collect() };
        self.noted.extend(other.noted.into_iter().map(moved_up));
        self.notes.extend(other.notes);
    }
}

/// The notes that came for a connection while it was frozen.
#[derive(Clone, PartialEq, prost::Message, serde::Serialize, serde::Deserialize)]
pub(crate) struct Noted {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// By their places among all.
    #[prost(uint32, repeated, tag = "2")]
    pub(crate) notes: Vec<u32>,
}
