//! A pool's events as lines for people.

use sockdrawer::observe::{Counts, Event, Readiness};
use std::io;
use std::net::SocketAddr;

/// Returns the line about an event.
pub(crate) fn words(event: &Event) -> String {
    match event {
        Event::Listening(address) => format!("accepting on {address}"),
        Event::ListenerRemoved(address) => format!("no longer accepting on {address}"),
        Event::ListenerReplaced(address) => format!("new sockets accept on {address}, those before them are closed"),
        Event::ListenerGone(address) => format!("the socket of {address} no longer listens: another process shut it down"),
        Event::AcceptStarved { errno } => {
            format!("accepting pauses: {}; waiting connections are kept", io::Error::from_raw_os_error(*errno))
        }
        Event::AcceptResumed => "accepting goes on".to_owned(),
        Event::ReadinessChanged(readiness) => format!("the pool is {}", format!("{readiness:?}").to_lowercase()),
        Event::HandedOver { pid } => format!("pid {pid} has taken over"),
        Event::ServesAlone => "the process before this one has no connections any more".to_owned(),
        Event::TakenBack => "the process that had taken over died: accepting goes on here".to_owned(),
        Event::AlarmRaised { alarm, connections } => format!("alarm: {connections} connections, threshold {}", alarm.at),
        Event::AlarmCleared { alarm, connections } => {
            format!("alarm over: {connections} connections, threshold {}", alarm.clear_at)
        }
        Event::AdmissionPanicked { message } => format!("the admission policy panicked: {message}"),
        Event::GenerationStarted(generation) => format!("generation {generation} is in force"),
        Event::GenerationEnded(generation) => format!("generation {generation} has no connections left"),
        Event::ConnectionPanicked { id, peer, message } => format!("connection {id}{} panicked: {message}", of(peer)),
        // The end of a pair names the peer itself: it may be gone by then.
        Event::Reported { id, report, .. } if report.fields.iter().any(|(name, _)| name == "client") => {
            format!("connection {id}: {report}")
        }
        Event::Reported { id, peer, report } => format!("connection {id}{}: {report}", of(peer)),
        Event::JobPanicked { message } => format!("a job panicked: {message}"),
        Event::ServicePanicked { message } => format!("the service panicked: {message}"),
        Event::ConnectionKilled { id, peer } => format!("connection {id}{} was killed as asked", of(peer)),
        Event::LoopNotStarted { reason } => format!("a loop could not be started: {reason}"),
        Event::LoopReplaced { index, reason } => {
            format!("loop {index} died and was replaced, its connections are gone: {reason}")
        }
        Event::LoopStuck { index, since } => format!("loop {index} is stuck for {since:?}, its listeners moved"),
        Event::LoopRecovered { index } => format!("loop {index} turns again"),
        Event::ProcessReplaced { index, reason } => {
            format!("process {index} died and was replaced, its connections are gone: {reason}")
        }
        Event::ProcessNotStarted { reason } => format!("a process could not be started: {reason}"),
        Event::ChildKilled { id, peer, signal } => {
            format!("connection {id}{}: its process was ended by signal {signal}", of(peer))
        }
        Event::ThreadDied { reason } => format!("a thread died, and its connection with it: {reason}"),
        Event::WorkerReplaced { reason } => format!("a worker died and was replaced: {reason}"),
        Event::GaveUp { reason } => format!("too many restarts, stopping: {reason}"),
        event => format!("{event:?}"),
    }
}

/// Returns the peer of a connection, where it is known.
fn of(peer: &Option<SocketAddr>) -> String {
    peer.map_or(String::new(), |peer| format!(" of {peer}"))
}

/// Returns how much an entry of the log matters, by its event: `error` where something is lost or was not done, `warning` where an operator has to look. A report is a warning where
/// the name of its kind ends with `Failed`.
pub(crate) fn level(event: &str) -> &'static str {
    match event {
        "AdmissionPanicked" | "ConnectionPanicked" | "JobPanicked" | "ServicePanicked" | "LoopReplaced" | "LoopStuck"
        | "LoopNotStarted" | "ProcessReplaced" | "ProcessNotStarted" | "ThreadDied" | "WorkerReplaced" | "GaveUp"
        | "TakenBack" | "ListenerGone" | "ChangeFailed" | "UpgradeFailed" | "Failed" | "EndedNow" | "HookFailed"
        | "HooksLeft" | "NotTold" => "error",
        "AcceptStarved" | "AlarmRaised" | "Checked" | "ChildKilled" | "CertificateExpires" | "SocketUnused" | "Exposed"
        | "Suppressed" | "LinesDropped" => "warning",
        kind if kind.ends_with("Failed") => "warning",
        _ => "info",
    }
}

/// Returns in a word whether a pool takes connections.
pub(crate) fn readiness(readiness: &Readiness) -> String {
    match readiness {
        Readiness::Serving => "serving".to_owned(),
        Readiness::Suspended => "suspended".to_owned(),
        Readiness::Refusing => "refusing".to_owned(),
        Readiness::Draining => "draining".to_owned(),
        Readiness::Stopped(why) => format!("stopped: {why}"),
    }
}

/// Returns the line about what a server did, at its end.
pub(crate) fn in_all(counts: &Counts) -> String {
    let Counts { accepted, rejected, closed, errors, panics, jobs, .. } = counts;
    format!(
        "in all: {accepted} accepted, {rejected} turned away, {closed} closed, {errors} by an error; {jobs} jobs, {panics} panics"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_connections_name_the_peer() {
        let (id, peer) = (sockdrawer::ConnectionId(65), "127.0.0.1:41234".parse().ok());
        let report = Event::Reported { id, peer, report: "it sent no PROXY header".into() };
        assert_eq!(words(&report), "connection 65 of 127.0.0.1:41234: it sent no PROXY header");
        assert_eq!(words(&Event::ConnectionKilled { id, peer: None }), "connection 65 was killed as asked");
    }

    #[test]
    fn an_errno_is_told_in_words() {
        let line = words(&Event::AcceptStarved { errno: 24 });
        assert!(line.contains("Too many open files") && !line.contains('\n'), "{line}");
    }
}
