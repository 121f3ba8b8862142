//! Clients on other machines: from the options of `load` and `find` to agents that run, and `sockdrawer agent`, which is one.

use crate::arguments::{AgentArguments, RunAgentArguments};
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use crate::values;
use sockdrawer::Address;
use sockdrawer_load::{AgentPort, Hosts, OnAgentLoss, Place, Ssh, agent_on_stdio, join_run};
use std::fs;
use std::path::Path;

/// A shorter secret can be guessed.
const LEAST_SECRET: usize = 16;

impl AgentArguments {
    /// Whether other machines run the clients.
    pub(crate) fn asked_for(&self) -> bool {
        self.agents.is_some() || self.join_at.is_some()
    }
}

/// Starts the agents that were asked for, or waits until they come.
///
/// # Errors
/// Each agent that did not start, in one line.
pub(crate) fn start(arguments: &AgentArguments, output: &Output) -> Result<Option<Hosts>, Failure> {
    let on_loss = arguments.on_agent_loss.map(Into::into).unwrap_or_default();
    let hosts = match (&arguments.agents, &arguments.join_at) {
        (Some(hosts), _) => start_by_ssh(hosts, arguments, on_loss)?,
        (None, Some(at)) => wait_for(at, arguments, on_loss, output)?,
        (None, None) if arguments.on_agent_loss.is_some() => {
            return Err(Failure::usage("--on-agent-loss: there are no agents: name them by --agents, or leave it out"));
        }
        (None, None) => return Ok(None),
    };
    output.tell_folded(format_args!("agents       {hosts}"))?;
    Ok(Some(hosts))
}

fn start_by_ssh(hosts: &values::Hosts, arguments: &AgentArguments, on_loss: OnAgentLoss) -> Result<Hosts, Failure> {
    let mut ssh = Ssh { push: arguments.push, ..Ssh::default() };
    if let Some(command) = &arguments.ssh {
        ssh.command = shlex::split(command)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| Failure::usage(format_args!("--ssh {command}: a quote is not closed, or there is no command")))?;
    }
    if let Some(program) = &arguments.agent_program {
        ssh.program.clone_from(program);
    }
    Hosts::start(&hosts.hosts, &ssh, on_loss).map_err(Failure::preflight)
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
