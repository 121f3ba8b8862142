//! Clients on other machines: from the options of `load` and `find` to agents that run, and `sockdrawer agent`, which is one.

use crate::arguments::{AgentArguments, RunAgentArguments};
use crate::outcome::{Exit, Failure};
use sockdrawer_load::{AgentLost, Hosts, Ssh};

/// Starts the agents that were asked for.
///
/// # Errors
/// Each agent that did not start, in one line.
pub(crate) fn start(arguments: &AgentArguments) -> Result<Option<Hosts>, Failure> {
    let Some(hosts) = &arguments.agents else {
        let given = [
            ("--push", arguments.push),
            ("--agent-program", arguments.agent_program.is_some()),
            ("--on-agent-loss", arguments.on_agent_loss.is_some()),
            ("--ssh", arguments.ssh.is_some()),
        ];
        return match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                Err(Failure::usage(format_args!("{option} is for agents: name them by --agents, or leave it out")))
            }
            None => Ok(None),
        };
    };
    let mut ssh = Ssh { push: arguments.push, ..Ssh::default() };
    if let Some(command) = &arguments.ssh {
        ssh.command = shlex::split(command)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| Failure::usage(format_args!("--ssh {command}: a quote is not closed, or there is no command")))?;
    }
    if let Some(program) = &arguments.agent_program {
        ssh.program.clone_from(program);
    }
    let on_loss = arguments.on_agent_loss.map(Into::into).unwrap_or_default();
    Hosts::start(&hosts.hosts, &ssh, on_loss).map(Some).map_err(|lost| refused(&lost))
}

fn refused(lost: &AgentLost) -> Failure {
    Failure::preflight(lost)
}

/// Runs clients for a run of another machine.
pub(crate) fn run(arguments: &RunAgentArguments) -> Result<Exit, Failure> {
    debug_assert!(arguments.stdio, "the command line requires it");
    sockdrawer_load::agent_on_stdio().map_err(|error| Failure::run(format_args!("cannot speak to the run: {error}")))?;
    Ok(Exit::Ok)
}
