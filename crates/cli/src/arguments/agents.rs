//! Options of clients on other machines.

use crate::values::{Hosts, count, host, object_name, positive};
use clap::{Args, Subcommand, ValueEnum};
use sockdrawer::Address;
use sockdrawer_load::{Host, OnAgentLoss};
use std::path::PathBuf;

/// Agents of a run.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentArguments {
    /// Machines that run the clients, each a part of them, started by ssh: user@h1,name=user@h2, or @FILE with one a line.
    #[arg(help_heading = "Many machines", long, value_name = "LIST|@FILE")]
    pub(crate) agents: Option<Hosts>,
    /// Where agents join that a scheduler starts: sockdrawer agent --join ADDR. Not encrypted.
    #[arg(help_heading = "Many machines", long, value_name = "ADDR", conflicts_with = "agents", requires_all = ["of", "token_file"])]
    pub(crate) join_at: Option<Address>,
    /// The number of agents to wait for.
    #[arg(help_heading = "Many machines", long, value_name = "N", value_parser = positive::<u32>, requires = "join_at")]
    pub(crate) of: Option<u32>,
    /// A file with a secret that agents must have too.
    #[arg(help_heading = "Many machines", long, value_name = "FILE", requires = "join_at")]
    pub(crate) token_file: Option<PathBuf>,
    /// A machine of the server, where an agent measures it: its CPU, memory and queues.
    #[arg(help_heading = "Many machines", long, value_name = "user@HOST", value_parser = host)]
    pub(crate) server_agent: Option<Host>,
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
    /// Speak to the run by standard input and output, as ssh connects them.
    #[arg(long, required_unless_present = "join", conflicts_with = "join")]
    pub(crate) stdio: bool,
    /// Where the run waits for agents: its --join-at. Tried for 5 minutes.
    #[arg(long, value_name = "HOST:PORT", requires_all = ["token_file", "index", "of"])]
    pub(crate) join: Option<String>,
    /// A file with the secret of the run.
    #[arg(long, value_name = "FILE", requires = "join")]
    pub(crate) token_file: Option<PathBuf>,
    /// The number of this agent, from 0 on.
    #[arg(long, value_name = "I", value_parser = count::<u32>, requires = "join")]
    pub(crate) index: Option<u32>,
    /// The number of agents of the run.
    #[arg(long, value_name = "N", value_parser = positive::<u32>, requires = "join")]
    pub(crate) of: Option<u32>,
}

/// Files that only this program prints.
#[derive(Debug, Subcommand)]
pub(crate) enum Generated {
    /// Print manifests for Kubernetes: a Job of the run, an Indexed Job of its agents, a Service, and a ConfigMap of the plan.
    ///
    /// See [a run with agents](../guide/many-machines.md).
    K8s(KubernetesArguments),
    /// Print the reference of the command line, in Markdown.
    ///
    /// It is this page.
    Reference,
}

/// `sockdrawer generate k8s`.
#[derive(Debug, Args)]
pub(crate) struct KubernetesArguments {
    /// The plan of the run: what load --out and load --dry-run write.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: PathBuf,
    /// The number of agents.
    #[arg(short = 'n', long, value_name = "N", value_parser = positive::<u32>)]
    pub(crate) agents: u32,
    /// What the manifests' objects are called.
    #[arg(long, value_name = "NAME", value_parser = object_name, default_value = "load")]
    pub(crate) name: String,
    /// The image that has sockdrawer as its entry point.
    #[arg(long, default_value = "sockdrawer:latest")]
    pub(crate) image: String,
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
