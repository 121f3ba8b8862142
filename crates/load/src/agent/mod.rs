//! Agents, which run clients: this process, other processes when its descriptors are too few, or other machines. An agent is told how many
//! connections there are to be, and asked for the results.

mod clock;
mod frames;
mod here;
mod hosts;
mod join;
mod link;
mod program;
mod remote;
mod serving;
mod ssh;
mod watching;

pub use frames::Examined;
pub(crate) use frames::{Account, Aim, Clients, State, Word};
pub(crate) use here::Here;
pub use hosts::{AgentLost, Hosts, OnAgentLoss};
pub use join::{AgentPort, Place, join_run};
pub(crate) use remote::Remote;
pub use serving::{agent, agent_on_stdio};
pub use ssh::{Host, Ssh};
pub use watching::ServerAgent;

use crate::plan::Plan;
use crate::proc;
use crate::stop::Stop;
use sockdrawer::{Address, Error};
use std::time::{Duration, Instant};

/// Factor of the time that clients may take to end: a process that needs longer is stuck.
const PATIENCE: u32 = 6;
/// Time that closing a connection may take that keeps both ends busy, on few CPUs for many processes.
const CLOSING: Duration = Duration::from_micros(200);
/// Time that is added to a timeout.
const SECOND: Duration = Duration::from_secs(1);

/// Agents that run the clients of a run.
pub(crate) enum Agents<'a> {
    Here(Here),
    /// Other processes of this machine, at least 1.
    Processes(Vec<Remote>),
    Hosts(&'a mut Hosts),
}

impl Agents<'_> {
    /// Begins what `plan` asks for, at the moment that `ready` says once all is prepared.
    pub(crate) fn start(
        plan: &Plan,
        targets: &[Address],
        aim: Aim,
        clients: Clients,
        ready: impl FnOnce() -> Result<Instant, Error>,
    ) -> Result<Agents<'static>, Error> {
        let (processes, sharing) = match clients {
            Clients::Here(sharing) => (0, sharing),
            Clients::Processes { .. } => (plan.processes(proc::descriptors()), 1),
        };
        if processes == 0 {
            let at = ready()?;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            return Here::start(plan, targets.to_vec(), aim, sharing).map(Agents::Here);
        }
        let started: Result<Vec<Remote>, Error> = (0..processes).map(Remote::process).collect();
        let mut started = started?;
        Remote::begin_all(&mut started, (plan, targets, aim), Clients::Here(processes), |_| ready())?;
        match started.iter().find_map(Remote::lost) {
            None => Ok(Agents::Processes(started)),
            Some(reason) => Err(Error::Stopped { reason: format!("a process of clients did not begin: {reason}") }),
        }
    }

    fn remotes(&mut self) -> &mut [Remote] {
        match self {
            Agents::Here(_) => &mut [],
            Agents::Processes(remotes) => remotes,
            Agents::Hosts(hosts) => hosts.remotes(),
        }
    }

    /// Processes that run clients, or agents of other machines.
    pub(crate) fn count(&mut self) -> u32 {
        u32::try_from(self.remotes().len()).unwrap_or(u32::MAX).max(1)
    }

    pub(crate) fn aim(&mut self, aim: Aim) -> Result<(), Error> {
        if let Agents::Here(here) = self {
            return here.aim(aim);
        }
        Remote::aim_all(self.remotes(), aim);
        Ok(())
    }

    pub(crate) fn tell(&mut self, word: Word) {
        if let Agents::Here(here) = self {
            here.tell(word);
        }
        self.remotes().iter_mut().for_each(|remote| remote.tell(word));
    }

    pub(crate) fn state(&mut self) -> State {
        if let Agents::Here(here) = self {
            return here.state();
        }
        let mut sum = State { made: true, spent: true, ..State::default() };
        self.remotes().iter_mut().for_each(|remote| sum.add(remote.state()));
        sum
    }

    /// Returns the results of all since the last time; at the last time, of all that there was.
    pub(crate) fn take(&mut self, last: bool) -> Account {
        match self {
            Agents::Here(here) => here.take(),
            _ => Remote::take_all(self.remotes(), last),
        }
    }

    /// Halts all: no more connects.
    pub(crate) fn halt(&mut self) -> Result<(), Error> {
        if let Agents::Here(here) = self {
            return here.halt();
        }
        self.remotes().iter_mut().for_each(Remote::halt);
        Ok(())
    }

    /// Waits, once halted, for the end of all that is under way. Returns the CPU time of a thread that was needed for it and has ended.
    pub(crate) fn settle(&mut self, plan: &Plan, stop: &Stop) -> Result<Duration, Error> {
        if let Agents::Here(here) = self {
            return here.settle(stop);
        }
        let closing = CLOSING * u32::try_from(plan.connections).unwrap_or(u32::MAX);
        Remote::settle_all(self.remotes(), stop, PATIENCE * (plan.timeout + SECOND) + closing);
        Ok(Duration::ZERO)
    }

    /// Releases the agents: the run is over, and those of other machines may begin another.
    pub(crate) fn release(&mut self) {
        match self {
            Agents::Here(here) => here.shut_down(),
            Agents::Processes(_) => {}
            Agents::Hosts(hosts) => hosts.remotes().iter_mut().for_each(Remote::release),
        }
    }

    /// Returns the number of agents that died before their time.
    pub(crate) fn lost(&mut self) -> u32 {
        u32::try_from(self.remotes().iter().filter(|remote| remote.lost().is_some()).count()).unwrap_or(u32::MAX)
    }
}
