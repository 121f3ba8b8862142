//! Agents of other machines, which stay for one run after the other.

use super::frames::{Aim, Clients, Examined, Word};
use super::join::AgentPort;
use super::link::Link;
use super::program;
use super::remote::Remote;
use super::ssh::{self, Host, Ssh};
use crate::cgroup::Throttling;
use crate::orders::Order;
use crate::part::AgentPart;
use crate::plan::Plan;
use sockdrawer::{Address, Error};
use std::fmt;
use std::time::{Duration, Instant};

/// Maximum time until an agent that came says what it is.
const SAYS_WITHIN: Duration = Duration::from_secs(3);
/// Time beyond the longest way to an agent by which a run begins later than it was asked for: a busy agent is to hear of it in time.
const LEAD: Duration = Duration::from_millis(50);

/// Reaction of a run to the loss of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAgentLoss {
    /// It ends.
    #[default]
    Fail,
    /// It goes on without the share of that agent.
    Continue,
}

/// Agents that were not there, or were lost before a run began, each with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLost(pub Vec<(String, String)>);

impl fmt::Display for AgentLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(|(name, why)| format!("agent {name}: {why}")).collect();
        f.write_str(&lines.join("; "))
    }
}

impl std::error::Error for AgentLost {}

/// Agents of other machines. They end when this is dropped, and their connections with them.
pub struct Hosts {
    remotes: Vec<Remote>,
    on_loss: OnAgentLoss,
    /// Agents that did not start: the others do their part.
    missing: AgentLost,
    /// Results of lost agents whose place another took.
    replaced: Vec<AgentPart>,
    /// Port where others may still come.
    port: Option<AgentPort>,
}

impl AgentPort {
    /// Waits until all agents of the run have come; tells how many are there each time that one came, and why one is of no use.
    pub fn wait(self, on_loss: OnAgentLoss, mut told: impl FnMut(usize, Option<String>)) -> Hosts {
        let mut remotes: Vec<Option<Remote>> = (0..self.of()).map(|_| None).collect();
        while remotes.iter().any(Option::is_none) {
            let Ok((index, link)) = self.newcomers.recv() else { break };
            let refused = match arrived(index, link) {
                Ok(remote) => {
                    remotes[index as usize] = Some(remote);
                    None
                }
                Err(why) => Some(format!("agent {index}: {why}")),
            };
            told(remotes.iter().flatten().count(), refused);
        }
        Hosts { port: Some(self), ..Hosts::of(remotes.into_iter().flatten().collect(), on_loss) }
    }
}

/// Returns an agent that came, once it has said what it is.
fn arrived(index: u32, link: Link) -> Result<Remote, String> {
    let mut remote = Remote::new(index.to_string(), link);
    match remote.hello(SAYS_WITHIN) {
        Some(hello) => program::refuses(&hello).map_or(Ok(remote), Err),
        None => Err("it said nothing, or ended".to_owned()),
    }
}

impl Hosts {
    fn of(remotes: Vec<Remote>, on_loss: OnAgentLoss) -> Hosts {
        Hosts { remotes, on_loss, missing: AgentLost(Vec::new()), replaced: Vec::new(), port: None }
    }

    /// Starts an agent on each host by ssh.
    ///
    /// # Errors
    /// Those that could not be started; where the loss of an agent is no failure, when none could.
    pub fn start(hosts: &[Host], ssh: &Ssh, on_loss: OnAgentLoss) -> Result<Hosts, AgentLost> {
        let (mut remotes, mut failed) = (Vec::new(), Vec::new());
        for (host, started) in hosts.iter().zip(ssh::start_all(hosts, ssh)) {
            match started {
                Ok(remote) => remotes.push(remote),
                Err(why) => failed.push((host.name.clone(), why)),
            }
        }
        if failed.is_empty() || (on_loss == OnAgentLoss::Continue && !remotes.is_empty()) {
            Ok(Hosts { missing: AgentLost(failed), ..Hosts::of(remotes, on_loss) })
        } else {
            Err(AgentLost(failed))
        }
    }

    pub(super) fn remotes(&mut self) -> &mut [Remote] {
        &mut self.remotes
    }

    /// Begins a run in all of them at one moment, which it returns.
    pub(crate) fn begin(&mut self, plan: &Plan, targets: &[Address], aim: Aim, force: bool) -> Result<Instant, Error> {
        let lead = |remotes: &[Remote]| {
            let longest = remotes.iter().filter_map(Remote::clock).map(|clock| clock.round_trip).max();
            Ok(Instant::now() + longest.unwrap_or_default() + LEAD)
        };
        let at = Remote::begin_all(&mut self.remotes, (plan, targets, aim), Clients::Processes { force }, lead)?;
        if !self.is_broken() {
            return Ok(at);
        }
        let lost = AgentLost(self.lost());
        self.remotes.iter_mut().for_each(Remote::release);
        Err(Error::Stopped { reason: lost.to_string() })
    }

    /// Gives the place of a lost agent to one that came since. Returns the names of those.
    pub(crate) fn admit(&mut self, plan: &Plan, targets: &[Address], aim: Aim, seconds: f64) -> Vec<String> {
        let (of, mut names) = (self.remotes.len(), Vec::new());
        while let Some((index, link)) = self.port.as_ref().and_then(|port| port.newcomers.try_recv().ok()) {
            let number = index as usize;
            let is_free = self.remotes.get(number).is_some_and(|remote| remote.lost().is_some());
            let Some(mut remote) = arrived(index, link).ok().filter(|_| is_free) else { continue };
            remote.prepare((plan, targets, aim), (number, of), Clients::Processes { force: false });
            remote.answers_ready();
            remote.go(Instant::now());
            remote.answers_begun();
            if remote.lost().is_none() {
                names.push(remote.name().to_owned());
                remote.replaces(&self.remotes[number]);
                self.replaced.push(self.remotes[number].part(seconds));
                self.remotes[number] = remote;
            }
        }
        names
    }

    /// Returns what each agent finds of its machine, for its part of the connections, or why it did not say.
    pub fn examine(&mut self, target: Option<&Address>, connections: usize) -> Vec<(String, Result<Examined, String>)> {
        Remote::examine(&mut self.remotes, target, connections)
    }

    /// Returns the names of the agents.
    pub fn names(&self) -> Vec<String> {
        self.remotes.iter().map(|remote| remote.name().to_owned()).collect()
    }

    pub(crate) fn tell(&mut self, name: &str, word: Word) {
        self.remotes.iter_mut().filter(|remote| remote.name() == name).for_each(|remote| remote.tell(word));
    }

    /// Changes the connections of one of them, where all have `all`. Returns how many all are to have.
    pub(crate) fn change(&mut self, name: &str, order: Order, all: usize) -> usize {
        let parts = Remote::parts(&self.remotes, all);
        let one = self.remotes.iter_mut().zip(parts).find(|(remote, _)| remote.name() == name);
        one.map_or(all, |(remote, has)| all.saturating_add_signed(remote.change(order, has)))
    }

    /// Returns the agent that used the largest part of its machine's CPUs since the sample before, `seconds` ago, and that part.
    pub(crate) fn busiest(&mut self, seconds: f64) -> Option<(String, f64)> {
        let parts = self.remotes.iter_mut().map(|remote| (remote.name().to_owned(), remote.busy(seconds)));
        parts.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Returns the agent that its quota stopped in the largest part of its periods, and how often.
    pub(crate) fn throttled(&self) -> Option<(String, Throttling)> {
        let all = self.remotes.iter().filter_map(|remote| Some((remote.name().to_owned(), remote.throttled()?.clone())));
        all.max_by(|one, other| one.1.share().total_cmp(&other.1.share()))
    }

    /// Returns true where a run cannot go on, because agents were lost.
    pub(crate) fn is_broken(&self) -> bool {
        let lost = self.remotes.iter().filter(|remote| remote.lost().is_some()).count();
        lost > if self.on_loss == OnAgentLoss::Fail { 0 } else { self.remotes.len() - 1 }
    }

    fn lost(&self) -> Vec<(String, String)> {
        self.remotes.iter().filter_map(|remote| Some((remote.name().to_owned(), remote.lost()?.to_owned()))).collect()
    }

    /// Returns what each agent did in a run that took this time.
    pub(crate) fn parts(&self, seconds: f64) -> Vec<AgentPart> {
        let now = self.remotes.iter().map(|remote| remote.part(seconds));
        self.replaced.iter().cloned().chain(now).collect()
    }
}

/// Their names, with what is known of their machines.
impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.remotes.iter().map(Remote::words).collect();
        f.write_str(&all.join(", "))?;
        if self.missing.0.is_empty() { Ok(()) } else { write!(f, "; without {}", self.missing) }
    }
}
