//! What can be asked of connections, wherever they run: which ones, what is to be done, and an answer that can be summed. A new operation
//! is a variant of [`Op`], an arm of `EventLoop::apply`, and a method of [`Pool`](crate::Pool).

mod drain;
mod selector;

pub use drain::{Drain, Drained};
pub use selector::Selector;
pub(crate) use selector::Traits;

use crate::net::SocketOptions;
use crate::observe::ConnectionStatus;
use crate::protocol::ConnectionId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What is done to each connection that is meant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Op {
    /// It is counted.
    Count,
    List,
    /// It ends with a reset.
    Kill,
    /// It is called so; not at all by an empty text.
    Tag(String),
    Notify(Arc<[u8]>),
    /// It gets these socket options.
    SetOptions(SocketOptions),
    /// Its socket options are read.
    Options,
    /// It moves to the newest generation, if it is of an older one.
    Adopt,
    /// It is asked to end. The deadline is kept by the control plane of its process.
    Drain(Drain),
    /// It ends within this time.
    Purge(Duration),
    /// Nothing: whatever runs it answers. The time at which it is asked, in ns of the clock that all processes share.
    Ping(u64),
}

/// What came of an operation.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Connections that it was done to.
    pub(crate) done: usize,
    /// All that those have who answered, meant or not.
    pub(crate) connections: usize,
    pub(crate) list: Vec<ConnectionStatus>,
    pub(crate) options: Option<SocketOptions>,
    pub(crate) adopted: Adopted,
    pub(crate) drained: Drained,
    /// The longest time from asking until a loop or process looked at the question.
    pub(crate) slowest: Duration,
    /// Loops and processes that did not answer in time, or had no room for the question.
    pub(crate) silent: usize,
}

impl Outcome {
    /// Of so many loops or processes, from the answers that come. Where one connection is meant, the first that has it is enough.
    pub(crate) fn gathered(asked: usize, answers: impl Iterator<Item = Outcome>, selector: &Selector) -> Outcome {
        let (mut sum, mut heard) = (Outcome::default(), 0);
        for answer in answers {
            heard += 1;
            sum += answer;
            if sum.done > 0 && matches!(selector, Selector::Id(_)) {
                return sum;
            }
        }
        sum.silent += asked - heard;
        sum
    }
}

impl From<Drained> for Outcome {
    fn from(drained: Drained) -> Outcome {
        Outcome { drained, ..Outcome::default() }
    }
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Outcome) {
        self.done += other.done;
        self.connections += other.connections;
        self.list.extend(other.list);
        self.options = self.options.take().or(other.options);
        self.adopted += other.adopted;
        self.drained = [self.drained, other.drained].into_iter().sum();
        self.slowest = self.slowest.max(other.slowest);
        self.silent += other.silent;
    }
}

/// How an adoption went.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Adopted {
    /// Connections that have the newest generation now.
    pub moved: usize,
    /// Connections of older ones that stayed.
    pub stayed: usize,
    /// Why, for each that stayed: the text of [`CannotSave`](crate::CannotSave) or [`CannotRestore`](crate::CannotRestore), or what
    /// else kept it.
    pub reasons: BTreeMap<String, Vec<ConnectionId>>,
    /// Connections that could not be asked, because user code keeps their loop from answering. Some may be of the newest generation.
    pub unasked: usize,
}

impl Adopted {
    /// One connection has moved, or stayed for this reason.
    pub(crate) fn add(&mut self, id: ConnectionId, moved: Result<(), String>) {
        match moved {
            Ok(()) => self.moved += 1,
            Err(reason) => {
                self.stayed += 1;
                self.reasons.entry(reason).or_default().push(id);
            }
        }
    }
}

impl std::ops::AddAssign for Adopted {
    fn add_assign(&mut self, other: Adopted) {
        self.moved += other.moved;
        self.stayed += other.stayed;
        self.unasked += other.unasked;
        other.reasons.into_iter().for_each(|(reason, ids)| self.reasons.entry(reason).or_default().extend(ids));
    }
}
