//! Who runs clients: this process, or others when its descriptors are too few. An agent is told how many connections there are to be,
//! and asked what came of them.

mod child;
mod frames;
mod here;
mod remote;

pub use child::agent;
pub(crate) use frames::{Account, Aim, State, Word};
pub(crate) use here::Here;
pub(crate) use remote::Remote;

use crate::plan::Plan;
use sockdrawer::{Address, Error};

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
