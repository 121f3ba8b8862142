//! What a program says that asks for a new build, and what it is told: the plan of an upgrade, and its result.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Replace {
    /// The program and its arguments; none: the predecessor's own.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(crate) command: Vec<Vec<u8>>,
    /// In milliseconds.
    #[prost(uint64, tag = "2")]
    pub(crate) within: u64,
    /// The successor is started and prepared, and then it is refused.
    #[prost(bool, tag = "3")]
    pub(crate) rehearsal: bool,
    /// No successor is started: what would move to a build that reads the states of this one is said.
    #[prost(bool, tag = "4")]
    pub(crate) look: bool,
    /// No successor is started either, and nothing is said but which build runs.
    #[prost(bool, tag = "5")]
    pub(crate) build: bool,
}

/// Two builds, and what the newer one takes over.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Planned {
    #[prost(message, required, tag = "1")]
    pub(crate) from: Build,
    #[prost(message, optional, tag = "2")]
    pub(crate) to: Option<Build>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) pools: Vec<PoolPlanned>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Build {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(uint32, tag = "2")]
    pub(crate) pid: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PoolPlanned {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) connections: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) move_on: u64,
    /// Why the others stay, and how many for each reason.
    #[prost(btree_map = "string, uint64", tag = "4")]
    pub(crate) stay: BTreeMap<String, u64>,
    /// Addresses of both builds, of the older one only, and of the newer one only.
    #[prost(string, repeated, tag = "5")]
    pub(crate) taken_over: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) given_up: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    pub(crate) added: Vec<String>,
    /// The limits of both.
    #[prost(uint64, tag = "8")]
    pub(crate) limit_before: u64,
    #[prost(uint64, tag = "9")]
    pub(crate) limit: u64,
    /// The newer build does not have it.
    #[prost(bool, tag = "10")]
    pub(crate) ends: bool,
}

/// Times are in microseconds.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Replaced {
    /// Why it was not; empty: it was.
    #[prost(string, tag = "1")]
    pub(crate) refused: String,
    #[prost(uint32, tag = "2")]
    pub(crate) pid: u32,
    /// Until the successor was prepared.
    #[prost(uint64, tag = "3")]
    pub(crate) prepared: u64,
    /// In which neither process accepted.
    #[prost(uint64, tag = "4")]
    pub(crate) gap: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) moved: u64,
    /// Until all that could move had moved.
    #[prost(uint64, tag = "6")]
    pub(crate) moving: u64,
    /// In which a connection was in neither process: the median, the 99th of 100, and the longest.
    #[prost(uint64, repeated, tag = "7")]
    pub(crate) pauses: Vec<u64>,
    #[prost(uint64, tag = "8")]
    pub(crate) stay: u64,
    /// Why the successor did not restore some; each reason once.
    #[prost(string, repeated, tag = "9")]
    pub(crate) not_restored: Vec<String>,
}

impl Replace {
    /// Nothing is replaced: the answer is all that is wanted.
    pub(crate) fn is_question(&self) -> bool {
        self.look || self.build
    }
}
