//! The check before a trial: the server is there, and speaks the protocol of the workload.

use super::web::Expected;
use crate::deliveries::CHECKS;
use crate::{Cause, Churn, Deliveries, Exchange, Failure, Group, PATIENCE, Phase, Plan, Seen, Tally};
use sockdrawer::{Behaviour, Config, Drain, Error, Pool, connecting::Connecting};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The number of answers on a connection that show that connections can be kept.
const ANSWERS: u64 = 2;

/// Reason why a trial does not begin.
#[derive(Debug)]
pub enum Refused {
    /// The server is not there, or does not answer as expected: a line that says what, why and what to do.
    Server(String),
    /// The clients cannot be started.
    Clients(Error),
}

/// Checks a connection that comes and goes, then one that stays.
pub(crate) fn look<E: Exchange>(plan: &Plan, churn: E, kept: E, expected: &Expected) -> Result<(), Refused> {
    let tally = Arc::new(Tally::new());
    let witness = tally.witness(Group::Churn);
    let visit = plan.secured(Churn::new(churn, witness.clone()), &witness);
    let seen = some(1, plan, visit, &tally, |seen| seen.connects + seen.not_begun > 0)?;
    if !seen.is_clean() || seen.connects == 0 {
        return Err(refused(plan, &tally));
    }
    if let Some(status) = expected.error() {
        let target = &plan.target;
        let line = format!(
            "{target} answers with status {status} before anything is changed: ask for a page that it has, by --path or a URL"
        );
        return Err(Refused::Server(line));
    }
    if plan.kept == 0 {
        return Ok(());
    }
    let tally = Arc::new(Tally::new());
    let deliveries = Arc::new(Deliveries::of_check());
    // A client that is to hear others hears nothing alone.
    let count = if plan.broadcast.is_some() { CHECKS } else { 1 };
    let plan = &Plan { kept: count, ..plan.clone() };
    let keep = plan.keep(kept, &tally.witness(Group::Kept), &deliveries);
    let is_over = |seen: &Seen| seen.kept_exchanges >= ANSWERS || seen.lost() + seen.kept_not_back + seen.not_begun > 0;
    let seen = some(count, plan, keep, &tally, is_over)?;
    if seen.kept_exchanges >= ANSWERS && seen.is_clean() {
        return Ok(());
    }
    Err(refused(plan, &tally))
}

fn some(count: usize, plan: &Plan, client: Behaviour, tally: &Tally, is_over: impl Fn(&Seen) -> bool) -> Result<Seen, Refused> {
    let connecting = Connecting::to([&plan.target]).keep(count).total(count as u64).timeout(PATIENCE);
    let pool = Pool::start(Config::connect(client, connecting).loops(1).workers(0).capacity(count))?;
    // The connect, the answer and the end each have their own timeout.
    pool.wait(4 * PATIENCE, |_| {
        let seen = tally.total();
        is_over(&seen) || seen.wrong_bytes > 0
    });
    let seen = tally.total();
    pool.shutdown(Drain::within(Duration::ZERO));
    Ok(seen)
}

fn refused(plan: &Plan, tally: &Tally) -> Refused {
    let target = &plan.target;
    // That a connection was open when the check ended says nothing of the server.
    let failure = tally.failures().into_iter().map(|(failure, _)| failure).find(|failure| failure.cause != Cause::Stayed);
    let seen = tally.total();
    if let Some(why) = plan.tls.as_ref().and_then(crate::Tls::refused) {
        let help =
            "trust its authority with --ca FILE, ask for its name with --sni NAME, or take any certificate with --insecure";
        return Refused::Server(format!("TLS with {target} fails: {why}; {help}"));
    }
    let line = match failure {
        Some(Failure { cause: Cause::Refused, .. }) => {
            let why = tally.unexpected().map_or_else(|| Cause::Refused.to_string(), |(odd, _)| odd);
            format!("{target} opens no WebSocket: {why}; check the path of the URL, and what the server asks for (-H)")
        }
        Some(Failure { phase: Phase::Connect, cause, .. }) => {
            format!("cannot connect to {target}: {cause}; start the server first, or check the address")
        }
        Some(Failure { group: Group::Kept, cause: Cause::Announced, .. }) => format!(
            "{target} ends each connection after its answer, so that none can be kept: let it keep connections, or say --kept 0"
        ),
        Some(Failure { group: Group::Kept, phase: Phase::Between, cause, .. }) if seen.kept_exchanges > 0 => format!(
            "{target} does not keep a connection between two requests ({cause}): let it keep connections, or say --kept 0"
        ),
        other => {
            let why = tally.unexpected().map(|(odd, _)| odd).or_else(|| other.map(|failure| failure.cause.to_string()));
            let hears = plan.broadcast.is_some() && other.is_none_or(|failure| failure.group == Group::Kept);
            let (nothing, check) = if hears {
                ("clients hear nothing of each other", "--subscribe, --publish and what they expect")
            } else {
                ("no answer, or wrong bytes", "--workload, or --send and --expect")
            };
            let why = why.unwrap_or_else(|| nothing.to_owned());
            format!("{target} does not answer as the workload expects: {why}; check {check}, and the address")
        }
    };
    Refused::Server(line)
}

pub(crate) fn too_few(plan: &Plan, standing: usize, tally: &Tally) -> Refused {
    let (target, kept) = (&plan.target, plan.kept);
    let why = tally.failures().first().map(|(failure, _)| format!(" (most: {})", failure.cause)).unwrap_or_default();
    Refused::Server(format!(
        "only {standing} of {kept} kept connections to {target} stand, and no further one does within {PATIENCE:?}{why}: raise the server's limit, or say \
         --kept {standing}"
    ))
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Server(line) => f.write_str(line),
            Refused::Clients(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}
