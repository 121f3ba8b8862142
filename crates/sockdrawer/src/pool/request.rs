//! Requests to members of a pool, and their answers: a loop answers for its connections, a helper process for those of all its loops.

use crate::event_loop::connections::moving::ListenerStates;
use crate::ipc::record::{Record, Restored};
use crate::ipc::state_level;
use crate::ipc::yours::Yours;
use crate::observe::{Counts, GenerationStatus, LoopStatus};
use crate::operation::Outcome;
use crate::protocol::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The part of a member in an upgrade.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Finish a turn, within this time.
    Turn(Duration),
    /// Count the connections that can move to a build that reads these states, and the others by why they cannot.
    Plan(#[serde(with = "state_level")] State),
    /// Freeze connections that can move to a build that reads these states: all, which hear notes until the last look, or those of which it is
    /// still to be learned who their peers are.
    Freeze {
        #[serde(with = "state_level")]
        reads: State,
        together: bool,
    },
    /// Count the notes that frozen connections heard since the last look; after the `last` one they hear no more of them.
    Heard {
        last: bool,
    },
    /// Have all frozen connections go on here: for good, or until the next offer.
    Thaw {
        stays: bool,
    },
    /// Let go of those of the frozen connections that were restored elsewhere; the others go on.
    LetGo(Vec<u64>),
    /// Restore connections of another process. Their sockets come along.
    Restore(Vec<Record>),
    /// Go on with those of what was restored that are this process's now, and forget the others. Those that move `together` wait until they are
    /// released.
    Seat {
        yours: Yours,
        listeners: ListenerStates,
        together: bool,
    },
    Release,
}

/// The answer of a member; a helper's to whatever its pool asks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    /// The request cannot be done, for this reason; everything is as it was.
    Refused(Refusal),
    Outcome(Box<Outcome>),
    Status(Box<PartStatus>),
    Plan(u64, BTreeMap<String, u64>),
    Heard(u64),
    /// Frozen connections. Their sockets come along.
    Offered {
        records: Vec<Record>,
        next: Option<u64>,
        #[serde(skip)]
        sockets: Vec<OwnedFd>,
    },
    LetGo(Yours),
    Restored(Restored),
    /// The address at which each came in.
    Seated(Vec<Option<String>>),
}

/// Reason why a helper refuses.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// User code panicked while a service was built.
    Panicked(String),
    /// Anything else, as an error's line.
    Other(String),
}

/// The state of one helper. Counters are in the shared numbers, but for those of a helper whose children count, too.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PartStatus {
    pub(crate) counts: Option<Box<Counts>>,
    pub(crate) generations: Vec<GenerationStatus>,
    pub(crate) loops: Vec<LoopStatus>,
    pub(crate) workers: usize,
    pub(crate) jobs_waiting: usize,
    pub(crate) delegates: usize,
    pub(crate) delegates_waiting: usize,
    pub(crate) restarts: usize,
}
