//! Clients on other machines: from the options of `load` and `find` to agents that run, and `sockdrawer agent`, which is one.

use crate::arguments::{AgentArguments, RunAgentArguments};
use crate::load;
use crate::outcome::{Exit, Failure};
use crate::print::{self, Output};
use crate::workload::first_given;
use sockdrawer::{Address, Error};
use sockdrawer_load::{AgentLost, AgentPort, Hosts, OnAgentLoss, Place, Plan, Run, ServerAgent, Ssh, agent_on_stdio, join_run};
use std::fs;
use std::path::Path;

/// A shorter secret can be guessed.
const LEAST_SECRET: usize = 16;

impl AgentArguments {
    /// Returns whether other machines run the clients.
    pub(crate) fn asked_for(&self) -> bool {
        self.agents.is_some() || self.join_at.is_some()
    }
}

/// Agents that work on other machines for a run.
#[derive(Default)]
pub(crate) struct Machines {
    /// The clients; None: they run here.
    pub(crate) hosts: Option<Hosts>,
    /// Agent that looks at the server where it is.
    pub(crate) server: Option<ServerAgent>,
}

impl Machines {
    /// Begins a run, here or on other machines.
    pub(crate) fn start<'a>(&'a mut self, plan: &'a Plan, force: bool) -> Result<Run<'a>, Failure> {
        let run = match &mut self.hosts {
            None => Run::start(plan).map_err(load::failure),
            Some(hosts) => Run::start_on(plan, hosts, force).map_err(|error| match error {
                Error::Stopped { reason } => Failure::preflight(reason),
                error => load::failure(error),
            }),
        }?;
        Ok(match &mut self.server {
            None => run,
            Some(agent) => run.watching(agent),
        })
    }
}

/// Starts the agents that were asked for, or waits until they come.
///
/// # Errors
/// Each agent that did not start, in one line.
pub(crate) fn start(arguments: &AgentArguments, output: &Output) -> Result<Machines, Failure> {
    let on_loss = arguments.on_agent_loss.map(Into::into).unwrap_or_default();
    let ssh = ssh(arguments)?;
    let hosts = match (&arguments.agents, &arguments.join_at) {
        (Some(hosts), _) => Some(Hosts::start(&hosts.hosts, &ssh, on_loss).map_err(|lost| refused(&lost))?),
        (None, Some(at)) => Some(wait_for(at, arguments, on_loss, output)?),
        (None, None) if arguments.on_agent_loss.is_some() => {
            return Err(Failure::usage("--on-agent-loss: there are no agents: name them by --agents, or leave it out"));
        }
        (None, None) => None,
    };
    if let Some(hosts) = &hosts {
        output.tell_folded(format_args!("agents       {hosts}"))?;
    }
    let server = arguments.server_agent.as_ref().map(|host| ServerAgent::start(host, &ssh).map_err(Failure::preflight));
    Ok(Machines { hosts, server: server.transpose()? })
}

/// Tells a line for each that did not start, and returns one that ends the program.
fn refused(lost: &AgentLost) -> Failure {
    let [rest @ .., (name, why)] = lost.0.as_slice() else { return Failure::preflight(lost) };
    for (name, why) in rest {
        print::tell(format_args!("error: agent {name}: {why}"));
    }
    Failure::preflight(format_args!("agent {name}: {why}"))
}

/// Returns the ssh that starts agents, by its options.
fn ssh(arguments: &AgentArguments) -> Result<Ssh, Failure> {
    let given =
        [("--push", arguments.push), ("--agent-program", arguments.agent_program.is_some()), ("--ssh", arguments.ssh.is_some())];
    let is_used = arguments.agents.is_some() || arguments.server_agent.is_some();
    if let Some(option) = first_given(given).filter(|_| !is_used) {
        return Err(Failure::usage(format_args!("{option}: ssh starts no agent: name one by --agents, or leave it out")));
    }
    let mut ssh = Ssh { push: arguments.push, ..Ssh::default() };
    if let Some(command) = &arguments.ssh {
        ssh.command = shlex::split(command)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| Failure::usage(format_args!("--ssh {command}: a quote is not closed, or there is no command")))?;
    }
    if let Some(program) = &arguments.agent_program {
        ssh.program.clone_from(program);
    }
    Ok(ssh)
}

fn wait_for(at: &Address, arguments: &AgentArguments, on_loss: OnAgentLoss, output: &Output) -> Result<Hosts, Failure> {
    let of = arguments.of.unwrap_or(1);
    let port = AgentPort::open(at.clone(), of, secret(arguments.token_file.as_deref())?)?;
    for at in port.addresses() {
        output.tell(format_args!("agents       waiting for {of} at {at}, authenticated by the token, not encrypted"))?;
    }
    let mut told = Ok(());
    let hosts = port.wait(on_loss, |count, refused| {
        let line = refused.unwrap_or_else(|| format!("{count} of {of} are here"));
        told = output.tell(format_args!("agents       {line}"));
    });
    told.map(|()| hosts)
}

fn secret(path: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let Some(path) = path else { return Err(Failure::usage("--token-file is missing: add it")) };
    let name = path.display();
    let bytes = fs::read(path).map_err(|error| Failure::usage(format_args!("cannot read --token-file {name}: {error}")))?;
    let secret = bytes.trim_ascii();
    if secret.len() < LEAST_SECRET {
        return Err(Failure::usage(format_args!(
            "--token-file {name}: {} bytes are too few for a secret: make one by head -c 32 /dev/urandom | base64 > {name}",
            secret.len()
        )));
    }
    Ok(secret.to_vec())
}

/// Runs clients for a run of another machine.
pub(crate) fn run(arguments: &RunAgentArguments) -> Result<Exit, Failure> {
    match &arguments.join {
        None => agent_on_stdio().map_err(|error| Failure::run(format_args!("cannot speak to the run: {error}")))?,
        Some(at) => {
            let secret = secret(arguments.token_file.as_deref())?;
            let place = Place { index: arguments.index.unwrap_or(0), of: arguments.of.unwrap_or(1) };
            join_run(at, &secret, place).map_err(|error| Failure::run(format_args!("cannot join the run at {at}: {error}")))?;
        }
    }
    Ok(Exit::Ok)
}
