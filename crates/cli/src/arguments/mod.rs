//! The command line as it is written: one definition for parsing, help and suggestions. Nothing here decides; `load` and `trial` turn these low
//! arguments into what is done. The commands of all programs that serve are those of `sockdrawer_program`.

mod agents;
mod find;
mod help;
mod load;
mod results;
mod script;
mod tls;
mod trial;
mod websocket;

pub(crate) use agents::{AgentArguments, Generated, KubernetesArguments, Policy, RunAgentArguments};
pub(crate) use find::{FindArguments, Vary};
pub(crate) use help::{command, program};
pub(crate) use load::LoadArguments;
pub(crate) use results::{CompareArguments, ReportArguments};
pub(crate) use script::ScriptArguments;
pub(crate) use tls::TlsArguments;
pub(crate) use trial::{Allowed, BuildsArguments, ClientArguments, Sabotage, TrialArguments, Tried, Workload};
pub(crate) use websocket::WebSocketArguments;

use crate::values::{Destination, Target, positive, process};
use clap::{Args, Subcommand};

/// The commands of this program alone.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put load on a server and report the result.
    Load(Box<LoadArguments>),
    /// Check whether this machine, and a server on it, have the resources for a number of connections.
    Doctor(Box<DoctorArguments>),
    /// Search for the maximum of connections, operations or connects per second, and report what limits it.
    Find(Box<FindArguments>),
    /// Make the page of a run again, and print its result.
    Report(ReportArguments),
    /// Print the JSON schema of a result: of load --json, and of result.json.
    Schema,
    /// Compare two runs, or two sets of runs.
    Compare(CompareArguments),
    /// Run clients for a load on another machine, which starts this command by ssh.
    Agent(RunAgentArguments),
    /// Print files for other programs.
    #[command(subcommand)]
    Generate(Generated),
    /// Prove that live changes lose nothing, with a server inside this program, with TARGET while COMMAND changes it, or with two builds of a
    /// program.
    Trial(Box<TrialArguments>),
}

/// `sockdrawer doctor`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct DoctorArguments {
    /// The server, such as 127.0.0.1:9000 or https://127.0.0.1:8443/ [default: none, this machine as a client].
    pub(crate) target: Option<Target>,
    /// Connections at once.
    #[arg(short, long, value_name = "N", value_parser = positive::<usize>, default_value = "10k")]
    pub(crate) connections: usize,
    /// The server's process [default: the one that listens at TARGET, on this machine].
    #[arg(long, value_name = "PID", value_parser = process, conflicts_with_all = ["agents", "join_at"])]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) many: AgentArguments,
    /// Write the findings as JSON to a file, or to standard output with -.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
}
