//! Orders for a run that goes on: from people at its keys or its control socket, or from a search for the maximum that holds.

use crate::numbers::float;
use crate::plan::Plan;
use crate::proc;
use crate::series::Progress;
use sockdrawer_catalog::{count, time};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A change of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Number of connections to have in addition.
    More(usize),
    /// Number of connections to have no more: they end at rest, chosen at random.
    Fewer(usize),
    /// Number of connections to have, whatever there are.
    Connections(usize),
    /// Time from one operation of a connection to the next.
    Interval(Duration),
    /// No connect and no operation begins.
    Suspend,
    /// Connects and operations begin again.
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

/// Word with which an action begins that tells how long the whole run was stopped.
pub(crate) const STOPPED: &str = "stopped";

/// All orders that can be written, for people that ask.
pub(crate) const ORDERS: &str =
    "+N, -N, =N (connections), interval T, suspend, resume, next (stage), stop; agent NAME before one: for that agent alone";

/// An order, and the agent that it is for; None: all of them.
pub(crate) type Given = (Option<String>, Order);

/// Error: the text is no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoOrder(String);

impl fmt::Display for NoOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no command; commands are {ORDERS}", self.0)
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

/// Orders that wait until the run takes them, 20 times a second, and the progress that it shows, twice a second.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    kept: Arc<Mutex<Kept>>,
    /// Maximum of connections, and why there may be no more. None: as many as are asked for.
    most: Option<(usize, &'static str)>,
    /// Maximum of operations per second.
    most_per_second: Option<f64>,
}

#[derive(Debug)]
struct Kept {
    given: Vec<Given>,
    /// Agents that an order may be for.
    agents: Vec<String>,
    progress: Progress,
    /// Number of connections of the run when it has taken all that was given.
    target: usize,
    /// Interval of the operations; None: they have none.
    interval: Option<Duration>,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { given: Vec::new(), agents: Vec::new(), progress: Progress::default(), target: 0, interval: Some(Duration::ZERO) }
    }
}

/// Reason why an order is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Orders {
    /// Creates orders: none yet, and no bounds.
    pub fn new() -> Orders {
        Orders::default()
    }

    /// Creates orders for a run of this plan: no more connections than its processes have descriptors for.
    pub fn of(plan: &Plan) -> Orders {
        let fits = plan.fits(proc::descriptors()).max(plan.connections);
        let orders = Orders { most: Some((fits, "as many as descriptors allow")), ..Orders::default() };
        {
            let mut kept = lock(&orders.kept);
            kept.target = if plan.stages.is_empty() { plan.connections } else { 0 };
            kept.interval = plan.has_interval().then(|| plan.workload.properties().interval);
        }
        orders
    }

    /// Makes them orders for a run of agents on other machines: each knows itself what it has descriptors for.
    #[must_use]
    pub fn for_agents(mut self, names: Vec<String>) -> Orders {
        self.most = None;
        lock(&self.kept).agents = names;
        self
    }

    /// Asks as [`Orders::ask`], for one agent of other machines. It ends its connections at [`Order::Stop`].
    ///
    /// # Errors
    /// When there is no such agent, or the order is none for one of them.
    pub fn ask_agent(&self, name: &str, order: Order) -> Result<String, Refused> {
        let names = lock(&self.kept).agents.clone();
        if !names.iter().any(|known| known == name) {
            let known =
                if names.is_empty() { "there are no agents".to_owned() } else { format!("there are {}", names.join(", ")) };
            return Err(Refused(format!("no agent is called {name}: {known}")));
        }
        if let Order::Connections(_) | Order::NextStage | Order::Continued = order {
            return Err(Refused(format!("`{order}` is for all agents: use +N or -N for one")));
        }
        self.ask_for(Some(name), order)
    }

    /// Sets the maximum of connections, and of operations per second, whatever is asked for; `why` is told.
    #[must_use]
    pub fn up_to(mut self, connections: usize, per_second: f64, why: &'static str) -> Orders {
        if self.most.is_none_or(|(most, _)| most > connections) {
            self.most = Some((connections, why));
        }
        self.most_per_second = Some(per_second);
        self
    }

    /// Adds an order after those that wait. It is carried out as far as the bounds allow.
    pub fn give(&self, order: Order) {
        drop(self.ask(order));
    }

    /// Adds an order after those that wait. Returns what will be done: `ok`, and where a bound is in the way how many connections there will be.
    ///
    /// # Errors
    /// When it cannot be carried out, not even in part.
    pub fn ask(&self, order: Order) -> Result<String, Refused> {
        self.ask_for(None, order)
    }

    fn ask_for(&self, agent: Option<&str>, order: Order) -> Result<String, Refused> {
        let mut kept = lock(&self.kept);
        let mut answer = "ok".to_owned();
        let wanted = match order {
            Order::More(count) => Some(kept.target.saturating_add(count)),
            Order::Fewer(count) => Some(kept.target.saturating_sub(count)),
            Order::Connections(count) => Some(count),
            _ => None,
        };
        let mut done = order;
        let before = kept.target;
        if let Some(wanted) = wanted {
            kept.target = wanted;
            if let Some((most, why)) = self.most_at(kept.interval).filter(|(most, _)| wanted > *most) {
                answer = format!("ok, {most} connections: {why}");
                done = if agent.is_some() { Order::More(most.saturating_sub(before)) } else { Order::Connections(most) };
                kept.target = most;
            }
        }
        if let Order::Interval(interval) = order {
            if kept.interval.is_none() {
                return Err(Refused("the operations of this workload have no interval".to_owned()));
            }
            let rate = if interval.is_zero() { f64::INFINITY } else { float(kept.target as u64) / interval.as_secs_f64() };
            if let Some(most) = self.most_per_second.filter(|most| rate > *most) {
                let connections = kept.target;
                let interval = time::format(interval);
                return Err(Refused(format!(
                    "interval {interval}: {connections} connections would make more than {most} operations/s, the limit for a public address"
                )));
            }
            kept.interval = Some(interval);
        }
        kept.given.push((agent.map(str::to_owned), done));
        Ok(answer)
    }

    /// Returns the maximum of connections that may ask so often, and the reason.
    fn most_at(&self, interval: Option<Duration>) -> Option<(usize, &'static str)> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is above 0, and more than 2^64 is all"
        )]
        let by_rate = self.most_per_second.zip(interval).map(|(rate, interval)| (rate * interval.as_secs_f64()) as usize);
        let by_rate = by_rate.map(|most| (most, "more would make too many operations per second for a public address"));
        self.most.into_iter().chain(by_rate).min_by_key(|(most, _)| *most)
    }

    pub(crate) fn take(&self) -> Vec<Given> {
        std::mem::take(&mut lock(&self.kept).given)
    }

    pub(crate) fn show(&self, progress: Progress) {
        let mut kept = lock(&self.kept);
        if kept.given.is_empty() {
            kept.target = usize::try_from(progress.target).unwrap_or(usize::MAX);
        }
        kept.progress = progress;
    }

    /// Returns where the run is.
    pub fn progress(&self) -> Progress {
        lock(&self.kept).progress
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Hello, Workload};

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

    #[test]
    fn an_order_may_be_for_one_agent() {
        let plan = Plan { connections: 64, ..Plan::new(Workload::ping(Duration::from_secs(1))) };
        let orders = Orders::of(&plan).for_agents(vec!["a".to_owned(), "b".to_owned()]).up_to(100, 1e6, "the limit of this test");
        assert_eq!(orders.ask_agent("b", Order::More(30)), Ok("ok".to_owned()));
        assert!(orders.ask_agent("b", Order::More(30)).is_ok_and(|answer| answer.starts_with("ok, 100 connections")));
        assert_eq!(orders.ask_agent("a", Order::Suspend), Ok("ok".to_owned()));
        let to = |name: &str, order| (Some(name.to_owned()), order);
        assert_eq!(orders.take(), [to("b", Order::More(30)), to("b", Order::More(6)), to("a", Order::Suspend)]);
        for (name, order, why) in [("c", Order::Stop, "there are a, b"), ("a", Order::Connections(5), "use +N or -N for one")] {
            let refused = orders.ask_agent(name, order).expect_err("it is none").to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn what_is_asked_for_beyond_a_bound_is_done_up_to_it_and_the_answer_says_so() {
        let plan = Plan { connections: 64, ..Plan::new(Workload::ping(Duration::from_secs(1))) };
        let orders = Orders::of(&plan).up_to(500, 1_000.0, "the limit of this test");
        let ask = |text: &str| orders.ask(text.parse().expect(text)).map_err(|refused| refused.to_string());
        assert_eq!(ask("+36"), Ok("ok".to_owned()));
        assert_eq!(ask("+1m"), Ok("ok, 500 connections: the limit of this test".to_owned()));
        let refused = ask("interval 499ms").expect_err("500 connections are 1,002 operations/s");
        assert!(refused.contains("500 connections would make more than 1000 operations/s"), "{refused}");
        assert!(ask("interval 0").is_err());
        assert_eq!((ask("=100"), ask("interval 200ms")), (Ok("ok".to_owned()), Ok("ok".to_owned())));
        assert!(ask("=201").is_ok_and(|answer| answer.starts_with("ok, 200 connections: more would make too many")));
        let interval = Order::Interval(Duration::from_millis(200));
        let done = [Order::More(36), Order::Connections(500), Order::Connections(100), interval, Order::Connections(200)];
        assert_eq!(orders.take(), done.map(|order| (None, order)));
        let orders = Orders::of(&Plan::new(Workload::Hello(Hello)));
        assert!(orders.ask(interval).is_err(), "each connection has one operation");
        assert!(orders.ask(Order::More(usize::MAX)).is_ok_and(|answer| answer.ends_with("as many as descriptors allow")));
    }
}
