//! `sockdrawer doctor`: what so many connections need beside what there is, and what mends it.

use crate::agents;
use crate::arguments::DoctorArguments;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use serde_json::{Value, json};
use sockdrawer_load::doctor::{Ask, examine};

/// Looks, and says what it found.
pub(crate) fn run(mut arguments: DoctorArguments) -> Result<Exit, Failure> {
    let mut output = Output::open(arguments.json.take())?;
    if let Some(process) = arguments.pid.filter(|process| !std::path::Path::new(&format!("/proc/{process}")).exists()) {
        return Err(Failure::usage(format_args!("--pid {process}: there is no such process; look for it with ss -lntp")));
    }
    if arguments.many.asked_for() {
        return of_agents(&arguments, &mut output);
    }
    let ask = Ask { target: arguments.target, connections: arguments.connections, process: arguments.pid };
    let findings = examine(&ask);
    output.tell(&findings)?;
    output.report(&findings)?;
    Ok(if findings.ok { Exit::Ok } else { Exit::Preflight })
}

/// What each agent finds of its machine, for its part of the connections.
fn of_agents(arguments: &DoctorArguments, output: &mut Output) -> Result<Exit, Failure> {
    if arguments.many.server_agent.is_some() {
        return Err(Failure::usage("--server-agent is for a run: leave it out, or run doctor there"));
    }
    let Some(mut hosts) = agents::start(&arguments.many, output)?.hosts else { return Ok(Exit::Ok) };
    let (mut ok, mut all) = (true, Vec::new());
    for (name, found) in hosts.examine(arguments.target.as_ref(), arguments.connections) {
        let found = found.map_err(|why| Failure::preflight(format_args!("agent {name}: {why}")))?;
        output.tell(format_args!("agent {name}\n{}", found.text))?;
        ok &= found.ok;
        let findings: Value = serde_json::from_str(&found.json).map_err(Failure::not_json)?;
        all.push(json!({ "agent": name, "findings": findings }));
    }
    output.report(&all)?;
    Ok(if ok { Exit::Ok } else { Exit::Preflight })
}
