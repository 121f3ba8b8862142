//! Who runs clients: this process, or others when its descriptors are too few. An agent is told how many connections there are to be,
//! and asked what came of them.

mod child;
mod frames;
mod here;
mod remote;

pub use child::agent;
pub(crate) use here::Here;
pub(crate) use remote::Remote;

use crate::numbers::float;
use crate::plan::Plan;
use crate::share::part;
use crate::tally::Tally;
use serde::{Deserialize, Serialize};
use sockdrawer::{Address, Error};
use std::time::Duration;

/// How many connections there are to be, and how fast they are made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Aim {
    pub(crate) connections: usize,
    /// Connects, or ends where there are too many, per second; None: as fast as it goes.
    pub(crate) rate: Option<f64>,
}

impl Aim {
    /// The part of one of so many agents.
    fn part(&self, number: usize, of: usize) -> Aim {
        Aim { connections: part(self.connections, number, of), rate: self.rate.map(|rate| rate / float(of as u64)) }
    }
}

/// What an agent is told besides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// From one operation of a connection to the next.
    Interval(Duration),
    /// Nothing begins.
    Suspend,
    /// It does again.
    Resume,
}

/// Where an agent is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Connects begun.
    pub(crate) connects: u64,
    /// Of these, those whose end is known.
    pub(crate) settled: u64,
    /// Whether all connects were begun that will be made.
    pub(crate) made: bool,
    /// Connections, those that linger and those under way too.
    pub(crate) connections: u64,
    /// Connections that stand.
    pub(crate) standing: u64,
    /// The most that stood at once; of several agents the sum of what was the most in each.
    pub(crate) peak: u64,
    /// Whether all operations that were asked for ended.
    pub(crate) spent: bool,
    /// How many aims it has heard of since the first.
    pub(crate) aims: u32,
    /// Why it cannot go on.
    pub(crate) stopped: Option<String>,
}

impl State {
    /// Whether every connect that will be made has succeeded or failed.
    pub(crate) fn is_connected(&self) -> bool {
        self.made && self.settled >= self.connects
    }

    fn add(&mut self, other: &State) {
        self.connects += other.connects;
        self.settled += other.settled;
        self.made &= other.made;
        self.connections += other.connections;
        self.standing += other.standing;
        self.peak += other.peak;
        self.spent &= other.spent;
        if self.stopped.is_none() {
            self.stopped.clone_from(&other.stopped);
        }
    }
}

/// What came of clients since it was asked before, and what they cost so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) tally: Tally,
    /// CPU time of processes other than this one.
    pub(crate) cpu: Duration,
    /// Memory of processes other than this one.
    pub(crate) rss_bytes: u64,
    /// Memory that clients have made since they began, of this process too.
    pub(crate) grown_bytes: u64,
}

/// All who run clients of a run.
pub(crate) enum Agents {
    Here(Here),
    /// At least one.
    There(Vec<Remote>),
}

impl Agents {
    /// Begins what `plan` asks for.
    pub(crate) fn start(plan: &Plan, targets: Vec<Address>, aim: Aim, processes: usize) -> Result<Agents, Error> {
        if processes == 0 {
            return Here::start(plan, targets, aim, 1).map(Agents::Here);
        }
        let start = |number| Remote::start(&plan.part(number, processes), &targets, aim.part(number, processes), processes);
        let started: Result<Vec<Remote>, Error> = (0..processes).map(start).collect();
        let mut started = started?;
        started.iter_mut().try_for_each(Remote::begun)?;
        Ok(Agents::There(started))
    }

    /// Processes that run clients.
    pub(crate) fn processes(&self) -> u32 {
        match self {
            Agents::Here(_) => 1,
            Agents::There(remotes) => u32::try_from(remotes.len()).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn aim(&mut self, aim: Aim) -> Result<(), Error> {
        match self {
            Agents::Here(here) => here.aim(aim),
            Agents::There(remotes) => {
                let of = remotes.len();
                remotes.iter_mut().enumerate().for_each(|(number, remote)| remote.aim(aim.part(number, of)));
                Ok(())
            }
        }
    }

    pub(crate) fn tell(&mut self, word: Word) {
        match self {
            Agents::Here(here) => here.tell(word),
            Agents::There(remotes) => remotes.iter_mut().for_each(|remote| remote.tell(word)),
        }
    }

    pub(crate) fn state(&mut self) -> State {
        match self {
            Agents::Here(here) => here.state(),
            Agents::There(remotes) => {
                let mut sum = State { made: true, spent: true, ..State::default() };
                remotes.iter_mut().for_each(|remote| sum.add(remote.state()));
                sum
            }
        }
    }

    /// What came of all since the last time; at the last time, of all that there was.
    pub(crate) fn take(&mut self, last: bool) -> Account {
        match self {
            Agents::Here(here) => here.take(),
            Agents::There(remotes) => Remote::take_all(remotes, last),
        }
    }

    /// No more connects.
    pub(crate) fn halt(&mut self) -> Result<(), Error> {
        match self {
            Agents::Here(here) => here.halt(),
            Agents::There(remotes) => {
                remotes.iter_mut().for_each(Remote::halt);
                Ok(())
            }
        }
    }

    /// Agents that died before their time.
    pub(crate) fn lost(&self) -> u32 {
        match self {
            Agents::Here(_) => 0,
            Agents::There(remotes) => u32::try_from(remotes.iter().filter(|remote| remote.is_lost()).count()).unwrap_or(u32::MAX),
        }
    }
}
