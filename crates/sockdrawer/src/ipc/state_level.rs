//! The name and the versions of a state, on their way to another process.

use crate::protocol::{Level, State};

/// The state of a protocol, or of one filter around it.
#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct StateLevel {
    name: String,
    version: u32,
    oldest: u32,
    /// Number of the set of layers that it belongs to: the pool's own have 0, other listeners have theirs.
    set: u32,
    /// The newest version that is read; 0: `version`.
    newest: u32,
}

impl StateLevel {
    fn of(set: usize, level: &Level) -> StateLevel {
        let Level { name, version, oldest, newest } = level;
        StateLevel { name: name.to_string(), version: *version, oldest: *oldest, newest: *newest, set: set as u32 }
    }

    fn level(&self) -> Level {
        let StateLevel { name, version, oldest, newest, .. } = self;
        Level { name: name.clone().into(), version: *version, oldest: *oldest, newest: *newest.max(version) }
    }
}

/// Returns a state that was sent.
fn state(levels: &[StateLevel]) -> State {
    let of_set = |set: u32| State::of_levels(levels.iter().filter(|level| level.set == set).map(StateLevel::level));
    let most = levels.iter().map(|level| level.set).max().unwrap_or(0).min(levels.len() as u32);
    (1..=most).fold(of_set(0), |state, set| state.or(of_set(set)))
}

/// Returns the levels of a state, to be sent.
fn levels(state: &State) -> Vec<StateLevel> {
    state.sets().enumerate().flat_map(|(set, levels)| levels.iter().map(move |level| StateLevel::of(set, level))).collect()
}

pub(crate) fn serialize<S: serde::Serializer>(state: &State, to: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&levels(state), to)
}

pub(crate) fn deserialize<'a, D: serde::Deserializer<'a>>(from: D) -> Result<State, D::Error> {
    <Vec<StateLevel> as serde::Deserialize>::deserialize(from).map(|levels| state(&levels))
}
