//! The verdict of a predecessor: which of the connections that it offered are the successor's.

use serde_bytes::ByteBuf;

/// Connections of which the predecessor has closed its copies.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Yours {
    pub(crate) ids: Vec<u64>,
    /// Notes that came for them meanwhile.
    pub(crate) noted: Vec<Noted>,
    /// All of them, in order: most are for many connections.
    pub(crate) notes: Vec<ByteBuf>,
    /// Another part follows, and decides with this one.
    pub(crate) more: bool,
    /// Their pool: each part is of one. Empty: that of the last offer.
    pub(crate) pool: String,
}

impl Yours {
    /// Returns about how many bytes it takes in a message.
    pub(crate) fn size(&self) -> usize {
        let noted = self.noted.iter().map(|noted| 32 + 5 * noted.notes.len());
        9 * self.ids.len() + noted.chain(self.notes.iter().map(|note| 5 + note.len())).sum::<usize>()
    }

    /// Adds the connections and notes of another loop.
    pub(crate) fn extend(&mut self, other: Yours) {
        let before = self.notes.len() as u32;
        self.ids.extend(other.ids);
        let moved_up = |noted: Noted| Noted { id: noted.id, notes: noted.notes.iter().map(|at| before + at).collect() };
        self.noted.extend(other.noted.into_iter().map(moved_up));
        self.notes.extend(other.notes);
    }
}

/// The notes that came for a connection while it was frozen.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Noted {
    pub(crate) id: u64,
    /// Places of the notes among all.
    pub(crate) notes: Vec<u32>,
}
