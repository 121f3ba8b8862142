//! What a run that goes on can be told: by people at its keys or its control socket, or by a search for the most that holds.

use crate::series::Progress;
use sockdrawer_catalog::{count, time};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// The whole process was stopped, as by Ctrl-Z, and goes on. The run finds out for how long.
    Continued,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::More(count) => write!(f, "connections +{count}"),
            Order::Fewer(count) => write!(f, "connections -{count}"),
            Order::Connections(count) => write!(f, "connections ={count}"),
            Order::Interval(interval) => write!(f, "interval {}", time::format(*interval)),
            Order::Suspend => f.write_str("suspend"),
            Order::Resume => f.write_str("resume"),
            Order::NextStage => f.write_str("next stage"),
            Order::Stop => f.write_str("stop"),
            Order::Continued => f.write_str(STOPPED),
        }
    }
}

/// How the time begins in which a run was stopped as a whole, among its actions.
pub(crate) const STOPPED: &str = "stopped";

/// All that can be written, for those who ask.
pub(crate) const ORDERS: &str = "+N, -N, =N (connections), interval T, suspend, resume, next (stage), stop";

/// What was written is no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoOrder(String);

impl fmt::Display for NoOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no order; there are {ORDERS}", self.0)
    }
}

impl std::error::Error for NoOrder {}

impl FromStr for Order {
    type Err = NoOrder;

    fn from_str(text: &str) -> Result<Order, NoOrder> {
        let wrong = || NoOrder(text.to_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["suspend"] => Ok(Order::Suspend),
            ["resume"] => Ok(Order::Resume),
            ["next"] => Ok(Order::NextStage),
            ["stop"] => Ok(Order::Stop),
            ["interval", time] => time::parse(time).map(Order::Interval).map_err(|_| wrong()),
            [number] | ["connections", number] => {
                let (sign, count) = number.split_at_checked(1).ok_or_else(wrong)?;
                let count = count::parse(count).ok().and_then(|count| usize::try_from(count).ok()).ok_or_else(wrong)?;
                match sign {
                    "+" => Ok(Order::More(count)),
                    "-" => Ok(Order::Fewer(count)),
                    "=" => Ok(Order::Connections(count)),
                    _ => Err(wrong()),
                }
            }
            _ => Err(wrong()),
        }
    }
}

/// Where orders wait until the run takes them, 20 times a second, and where it shows how it is going, twice a second.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    given: Arc<Mutex<Vec<Order>>>,
    /// None: as many connections as are asked for.
    most: Option<usize>,
    progress: Arc<Mutex<Progress>>,
}

impl Orders {
    /// None yet.
    pub fn new() -> Orders {
        Orders::default()
    }

    /// No more than so many connections, whatever is asked for.
    #[must_use]
    pub fn up_to(mut self, most: usize) -> Orders {
        self.most = Some(most);
        self
    }

    pub(crate) fn most(&self) -> usize {
        self.most.unwrap_or(usize::MAX)
    }

    /// One more, after those that wait.
    pub fn give(&self, order: Order) {
        lock(&self.given).push(order);
    }

    pub(crate) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut lock(&self.given))
    }

    pub(crate) fn show(&self, progress: Progress) {
        *lock(&self.progress) = progress;
    }

    /// Where the run is.
    pub fn progress(&self) -> Progress {
        *lock(&self.progress)
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_short_words() {
        let orders = [
            ("+5", Order::More(5)),
            ("-2k", Order::Fewer(2_000)),
            ("+1.5k", Order::More(1_500)),
            ("connections =1m", Order::Connections(1_000_000)),
            ("interval 1500ms", Order::Interval(Duration::from_millis(1_500))),
            ("interval 250us", Order::Interval(Duration::from_micros(250))),
            (" suspend ", Order::Suspend),
            ("resume", Order::Resume),
            ("next", Order::NextStage),
            ("stop", Order::Stop),
        ];
        for (text, order) in orders {
            assert_eq!(text.parse(), Ok(order), "{text}");
        }
        for wrong in ["", "+", "5", "+-5", "+5x", "interval", "interval soon", "stop it", "=99999999999999999999m"] {
            assert!(wrong.parse::<Order>().is_err(), "{wrong}");
        }
    }
}
