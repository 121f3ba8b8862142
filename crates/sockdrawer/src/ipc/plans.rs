//! Messages of a program that asks for a new build, and the answers: the plan of an upgrade, and its result.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ReplaceRequest {
    /// The program and its arguments; none: the predecessor's own.
    pub(crate) command: Vec<Vec<u8>>,
    /// Maximum time until the new build is ready, in milliseconds.
    pub(crate) within: u64,
    /// The successor is started and prepared, and then it is refused.
    pub(crate) rehearsal: bool,
    /// No successor is started: what would move to a build that reads the states of this one is said.
    pub(crate) look: bool,
    /// No successor is started either, and nothing is said but which build runs.
    pub(crate) build: bool,
}

/// Two builds, and what the newer one takes over.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Planned {
    pub(crate) from: BuildId,
    pub(crate) to: Option<BuildId>,
    pub(crate) pools: Vec<PoolPlanned>,
    /// The names of what the older build carries and the newer one does not.
    pub(crate) dropped: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct BuildId {
    pub(crate) version: String,
    pub(crate) pid: u32,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct PoolPlanned {
    pub(crate) name: String,
    pub(crate) connections: u64,
    pub(crate) move_on: u64,
    /// Reasons why the others stay, with the number for each.
    pub(crate) stay: BTreeMap<String, u64>,
    /// Addresses of both builds, of the older one only, and of the newer one only.
    pub(crate) taken_over: Vec<String>,
    pub(crate) given_up: Vec<String>,
    pub(crate) added: Vec<String>,
    /// The limits of both.
    pub(crate) limit_before: u64,
    pub(crate) limit: u64,
    /// The newer build does not have it.
    pub(crate) ends: bool,
}

/// Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ReplaceReport {
    /// Reason why it was not replaced; empty: it was.
    pub(crate) refused: String,
    pub(crate) pid: u32,
    /// Time until the successor was prepared.
    pub(crate) prepared: u64,
    /// Time in which neither process accepted.
    pub(crate) gap: u64,
    pub(crate) moved: u64,
    /// Time until all that could move had moved.
    pub(crate) moving: u64,
    /// Times in which a connection was in neither process: the median, the 99th of 100, and the longest.
    pub(crate) pauses: Vec<u64>,
    /// Number of connections that the predecessor has still, for builds that know no reasons.
    pub(crate) stay: u64,
    /// Numbers of these by pool and reason.
    pub(crate) staying: BTreeMap<String, BTreeMap<String, u64>>,
    /// Reasons why the successor did not restore some connections, each once.
    pub(crate) not_restored: Vec<String>,
}

impl ReplaceRequest {
    /// Returns true where nothing is to be replaced: the answer is all that is wanted.
    pub(crate) fn is_question(&self) -> bool {
        self.look || self.build
    }
}
