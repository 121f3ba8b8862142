//! Operations on connections, in any loop or process: a selector, what is done, and an outcome that can be summed. A new operation is a
//! variant of [`Op`], an arm of `apply` in `event_loop/connections/operations.rs`, and a method of [`Pool`](crate::Pool).

mod drain;
mod page;
mod selector;

pub use drain::{Drain, Drained};
pub(crate) use page::Page;
pub use selector::Selector;
pub(crate) use selector::Traits;
pub(crate) use selector::in_network;

use crate::net::SocketOptions;
use crate::observe::ConnectionStatus;
use crate::protocol::ConnectionId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An operation on each connection that matches a selector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Op {
    /// Counts the connections.
    Count,
    /// Lists a part of the connections.
    List(Page),
    /// Ends connections with a reset.
    Kill,
    /// Sets the tag; an empty text removes it.
    Tag(String),
    Notify(Arc<[u8]>),
    /// Sets socket options.
    SetOptions(SocketOptions),
    /// Reads the socket options.
    Options,
    /// Moves connections of older generations to the newest.
    Adopt,
    /// Asks connections to end. The control plane of their process keeps the deadline.
    Drain(Drain),
    /// Ends connections within this time.
    Purge(Duration),
}

/// The result of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Outcome {
    /// Connections to which the operation was applied.
    pub(crate) done: usize,
    /// All connections of the loops and processes that answered, whether they match or not.
    pub(crate) connections: usize,
    pub(crate) list: Vec<ConnectionStatus>,
    /// The lowest number of a connection that was not looked at for this part of a list.
    pub(crate) next: Option<u64>,
    pub(crate) options: Option<SocketOptions>,
    pub(crate) adopted: Adopted,
    pub(crate) drained: Drained,
    /// Loops and processes that did not answer in time, or whose inbox was full.
    pub(crate) silent: usize,
}

impl Outcome {
    /// Returns the outcome of a loop or process that does not answer.
    pub(crate) fn silent() -> Outcome {
        Outcome { silent: 1, ..Outcome::default() }
    }

    /// Returns the sum of the answers of `asked` loops or processes. For [`Selector::Id`], the first answer that has the connection is enough.
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
        self.next = self.next.into_iter().chain(other.next).min();
        self.options = self.options.take().or(other.options);
        self.adopted += other.adopted;
        self.drained = [self.drained, other.drained].into_iter().sum();
        self.silent += other.silent;
    }
}

/// The result of [`Pool::adopt`](crate::Pool::adopt).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Adopted {
    /// Connections that moved to the newest generation.
    pub moved: usize,
    /// Connections that stayed with their older generation.
    pub stayed: usize,
    /// Reasons why connections stayed: the text of [`CannotSave`](crate::CannotSave) or [`CannotRestore`](crate::CannotRestore), or another reason,
    /// with the connections that stayed for it.
    pub reasons: BTreeMap<String, Vec<ConnectionId>>,
    /// Connections that could not be asked, because user code keeps their loop busy. Some may belong to the newest generation already.
    pub unasked: usize,
}

impl Adopted {
    /// Adds a connection that moved, or stayed for this reason.
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
