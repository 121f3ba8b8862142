//! `sockdrawer doctor`: what so many connections need beside what there is, and what mends it.

use crate::arguments::DoctorArguments;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use sockdrawer_load::doctor::{Ask, examine};

/// Looks, and says what it found.
pub(crate) fn run(arguments: DoctorArguments) -> Result<Exit, Failure> {
    let mut output = Output::open(arguments.json)?;
    if let Some(process) = arguments.pid.filter(|process| !std::path::Path::new(&format!("/proc/{process}")).exists()) {
        return Err(Failure::usage(format_args!("--pid {process}: there is no such process; look for it with ss -lntp")));
    }
    let ask = Ask { target: arguments.target, connections: arguments.connections, process: arguments.pid };
    let findings = examine(&ask);
    output.tell(&findings)?;
    output.report(&findings)?;
    Ok(if findings.ok { Exit::Ok } else { Exit::Preflight })
}
