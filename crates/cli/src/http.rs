//! Whether this machine has the ports for `sockdrawer load http`.

use crate::outcome::Failure;
use crate::words::{duration, number};
use sockdrawer_catalog::http::Close;
use sockdrawer_load::Plan;
use sockdrawer_load::http::{Pairs, Ports, Room, Shortage};

/// Keeps `plan` within the ports of this machine, and says in words for the line it starts with how many there are.
///
/// # Errors
/// When it does not fit.
pub(crate) fn keep_within(plan: &mut Plan, ports: Option<Ports>) -> Result<String, Failure> {
    let Some(room) = ports.and_then(|ports| ports.room(plan)) else { return Ok(String::new()) };
    let bound = room.fit(plan).map_err(|shortage| too_few(plan, &room, shortage))?;
    if plan.http().and_then(|wanted| wanted.close) != Some(Close::Fin) {
        return Ok(String::new());
    }
    let (pairs, rest) = (room.pairs.count(), duration(room.rest));
    let words = format!("; each connection keeps its ports for {rest} of TIME_WAIT, {pairs} can at a time");
    if bound.is_some() {
        plan.connect_rate = bound;
        return Ok(format!(
            "{words}: so it goes no faster (--close server or rst, --source: faster, --force: until they run out)"
        ));
    }
    Ok(words)
}

fn too_few(plan: &Plan, room: &Room, shortage: Shortage) -> Failure {
    let Pairs { ports, targets, sources } = room.pairs;
    let there_are = format!("{ports} ports, {targets} target(s), {sources} source(s)");
    match shortage {
        Shortage::AtOnce => Failure::preflight(format_args!(
            "--connections {}: this machine has {there_are}: use fewer, connect from more addresses with --source, or --force it",
            plan.connections
        )),
        Shortage::Resting { connects, room: free } => {
            let (rest, rate) = (duration(room.rest), number(room.for_ever(plan.connections)));
            Failure::preflight(format_args!(
                "--close fin: {connects} connects within {rest} of TIME_WAIT, but this machine has room for {free} ({there_are}, \
                 {} in use): use --close server or rst, at most {rate} connects/s, more addresses with --source, or --force it",
                plan.connections
            ))
        }
    }
}
