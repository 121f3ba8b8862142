//! `sockdrawer doctor`: what so many connections need beside what there is, and what mends it.

use crate::agents;
use crate::arguments::DoctorArguments;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use crate::values::Target;
use serde_json::{Value, json};
use sockdrawer::Address;
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
    let target = arguments.target.as_ref().map(one).transpose()?;
    let ask = Ask { target, connections: arguments.connections, process: arguments.pid };
    let findings = examine(&ask);
    output.tell(&findings)?;
    output.report(&findings)?;
    Ok(if findings.ok { Exit::Ok } else { Exit::Preflight })
}

/// Returns the address of a target, which is also written as a URL.
fn one(target: &Target) -> Result<Address, Failure> {
    match target.addresses.as_slice() {
        [address] => Ok(address.clone()),
        addresses => {
            let count = addresses.len();
            Err(Failure::usage_of(
                "sockdrawer doctor",
                format_args!("TARGET names {count} addresses: name one of them, doctor connects once"),
            ))
        }
    }
}

/// Tells what each agent finds of its machine, for its part of the connections.
fn of_agents(arguments: &DoctorArguments, output: &mut Output) -> Result<Exit, Failure> {
    if arguments.many.server_agent.is_some() {
        return Err(Failure::usage("--server-agent is for a run: leave it out, or run doctor there"));
    }
    let Some(mut hosts) = agents::start(&arguments.many, output)?.hosts else { return Ok(Exit::Ok) };
    let target = arguments.target.as_ref().map(one).transpose()?;
    let (mut ok, mut all) = (true, Vec::new());
    for (name, found) in hosts.examine(target.as_ref(), arguments.connections) {
        let found = found.map_err(|why| Failure::preflight(format_args!("agent {name}: {why}")))?;
        output.tell(format_args!("agent {name}\n{}", found.text))?;
        ok &= found.ok;
        let findings: Value = serde_json::from_str(&found.json).map_err(Failure::not_json)?;
        all.push(json!({ "agent": name, "findings": findings }));
    }
    output.report(&all)?;
    Ok(if ok { Exit::Ok } else { Exit::Preflight })
}
