//! Options of clients on other machines.

use crate::values::Hosts;
use clap::{Args, ValueEnum};
use sockdrawer_load::OnAgentLoss;

/// Agents of a run.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentArguments {
    /// Machines that run the clients, each a part of them, started by ssh: user@h1,name=user@h2, or @FILE with one a line.
    #[arg(help_heading = "Many machines", long, value_name = "LIST|@FILE")]
    pub(crate) agents: Option<Hosts>,
    /// Copy this program to the agents' machines, to ~/.cache/sockdrawer, unless it is there.
    #[arg(help_heading = "Many machines", long, conflicts_with = "agent_program")]
    pub(crate) push: bool,
    /// The path of sockdrawer on the agents' machines [default: sockdrawer].
    #[arg(help_heading = "Many machines", long, value_name = "PATH")]
    pub(crate) agent_program: Option<String>,
    /// What a run does when an agent is lost: fail ends it, with exit code 4; continue goes on without it [default: fail].
    #[arg(help_heading = "Many machines", long, value_name = "POLICY")]
    pub(crate) on_agent_loss: Option<Policy>,
    /// The ssh to start agents with, and options for it [default: ssh].
    #[arg(help_heading = "Many machines", long, value_name = "COMMAND")]
    pub(crate) ssh: Option<String>,
}

/// `sockdrawer agent`.
#[derive(Debug, Args)]
pub(crate) struct RunAgentArguments {
    /// Speak to the run by standard input and output.
    #[arg(long, required = true)]
    pub(crate) stdio: bool,
}

/// What a run does when an agent is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    Fail,
    Continue,
}

impl From<Policy> for OnAgentLoss {
    fn from(policy: Policy) -> OnAgentLoss {
        match policy {
            Policy::Fail => OnAgentLoss::Fail,
            Policy::Continue => OnAgentLoss::Continue,
        }
    }
}
