//! An agent beside the server: what it sees there is told on the run's time axis.

use super::frames::{Look, Request, ServerSeen};
use super::hosts::AgentLost;
use super::remote::Remote;
use super::ssh::{self, Host, Ssh};
use crate::server::{Server, ServerSample};
use crate::workload::Numbers;
use sockdrawer::Address;

/// An agent of the server's machine. It looks, and runs no clients.
pub struct ServerAgent {
    remote: Remote,
}

impl ServerAgent {
    /// Starts it by ssh.
    ///
    /// # Errors
    /// When it could not be started.
    pub fn start(host: &Host, ssh: &Ssh) -> Result<ServerAgent, AgentLost> {
        let failed = |why: String| AgentLost(vec![(host.name.clone(), why)]);
        ssh::start(host, ssh).map(|remote| ServerAgent { remote }).map_err(failed)
    }

    /// Looks from now on at the processes that listen at `targets`, or at these.
    pub(crate) fn begin(&mut self, targets: &[Address], processes: &[u32]) {
        let request = Request::Watch { targets: targets.to_vec(), processes: processes.to_vec() };
        self.remote.look(request);
    }

    pub(crate) fn sample(&mut self, standing: u64, done: Numbers) -> Option<ServerSample> {
        match self.remote.look(Request::Look(Look::Sample { standing, done })) {
            Some(ServerSeen::Sample(sample)) => sample,
            _ => None,
        }
    }

    pub(crate) fn weigh(&mut self, standing: u64) {
        self.remote.look(Request::Look(Look::Weigh { standing }));
    }

    /// Ends the look at the server and returns what came of it; nothing where the agent was lost.
    pub(crate) fn end(&mut self, operations: u64) -> Server {
        match self.remote.look(Request::Look(Look::End { operations })) {
            Some(ServerSeen::End(server)) => server,
            _ => Server::default(),
        }
    }

    pub(crate) fn cpus(&self) -> usize {
        self.remote.cpus()
    }

    /// Returns why the agent was lost.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.remote.lost()
    }
}
