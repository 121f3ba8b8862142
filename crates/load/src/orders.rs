//! What a run that goes on can be told: by people at its keys or its control socket, or by a search for the most that holds.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A change of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// So many connections more.
    More(usize),
    /// So many fewer: they end at rest, chosen at random.
    Fewer(usize),
    /// So many connections, whatever there are.
    Connections(usize),
    /// From one operation of a connection to the next.
    Interval(Duration),
    /// No connect and no operation begins.
    Suspend,
    /// They do again.
    Resume,
    /// The stage that is under way is over, and the next one begins.
    NextStage,
    /// The run is over.
    Stop,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::More(count) => write!(f, "connections +{count}"),
            Order::Fewer(count) => write!(f, "connections -{count}"),
            Order::Connections(count) => write!(f, "connections ={count}"),
            Order::Interval(interval) => write!(f, "interval {interval:?}"),
            Order::Suspend => f.write_str("suspend"),
            Order::Resume => f.write_str("resume"),
            Order::NextStage => f.write_str("next stage"),
            Order::Stop => f.write_str("stop"),
        }
    }
}

/// Where orders wait until the run takes them, 20 times a second.
#[derive(Clone, Debug, Default)]
pub struct Orders(Arc<Mutex<Vec<Order>>>);

impl Orders {
    /// None yet.
    pub fn new() -> Orders {
        Orders::default()
    }

    /// One more, after those that wait.
    pub fn give(&self, order: Order) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(order);
    }

    pub(crate) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
