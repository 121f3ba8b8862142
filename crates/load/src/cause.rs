//! Causes of errors, and what helps: a line for each kind.

use crate::report::{Connections, Report};
use crate::workload::Errors;
use std::fmt;

/// Remedy for a full accept queue.
pub(crate) const ACCEPT_FASTER: &str =
    "accept faster, raise the backlog of listen() and sysctl net.core.somaxconn, or connect slower: --connect-rate";

/// Meaning of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Reason why the error comes.
    pub why: &'static str,
    /// Remedy.
    pub remedy: &'static str,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.why, self.remedy)
    }
}

/// Returns the meaning of an error of this phase, by the names that reports have; `overflows` is how many connections found the server's accept queue
/// full meanwhile, where that is known. None: the names say it all.
///
/// ```
/// let cause = sockdrawer_load::cause("connect", "ECONNREFUSED", None).expect("it is known");
/// assert_eq!(cause.why, "nothing listens there");
/// ```
pub fn cause(phase: &str, errno: &str, overflows: Option<u64>) -> Option<Cause> {
    if overflows.is_some_and(|overflows| overflows > 0)
        && let Some(cause) = overflown(phase, errno)
    {
        return Some(cause);
    }
    let (why, remedy) = match phase {
        "connect" => connect(errno)?,
        "handshake" | "tls" => handshake(errno)?,
        "upgrade" => upgrade(errno)?,
        "send" | "answer" | "end" | "closed" | "unused" => exchange(phase, errno)?,
        "verify" => (
            "the answer has other bytes than it must have",
            "name the workload that the server speaks, or see what it answers and change --expect",
        ),
        "status" => match errno {
            "404" => ("the server has no such page", "ask for one that it has: --path"),
            _ => ("the server answered with another status than 2xx or 3xx", "look for the request in the server's log"),
        },
        "format" => {
            ("what came is no answer of HTTP/1", "check the port, and whether the server speaks TLS or another protocol there")
        }
        "cut" => ("the connection ended within an answer", "look in the server's log: it ended, or a proxy before it did"),
        "unfinished" => (
            "it was under way when the run ended",
            "of a run that was stopped this is no fault; else give the server longer: -d, --timeout",
        ),
        "client" => ("a client panicked", "report it: this is a mistake of this program"),
        _ => return None,
    };
    Some(Cause { why, remedy })
}

/// Number of connections, all that there were, that show that it is not about a single one.
const SEVERAL: u64 = 3;
/// Maximum time in seconds between ends of connections that have one cause.
const AT_ONCE: f64 = 0.5;

/// Returns the cause of a run whose connections were all ended by the peer at one moment.
pub(crate) fn all_at_once(report: &Report, error: &Errors) -> Option<Cause> {
    let is_end = |error: &&Errors| {
        matches!(error.phase.as_ref(), "send" | "answer" | "closed")
            && matches!(error.errno.as_str(), "EOF" | "ECONNRESET" | "EPIPE")
    };
    let Connections { established, closed, lost, .. } = report.connections;
    // A server that answered none of them turned them away.
    let answered = report.operations.ok >= established;
    if !is_end(&error) || !answered || lost < SEVERAL || lost < established.saturating_sub(closed) {
        return None;
    }
    let ends = || report.errors.iter().filter(is_end);
    if ends().map(|end| end.count).sum::<u64>() < lost {
        return None;
    }
    let first = ends().map(|end| end.first).collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)?;
    let last = ends().map(|end| end.last).collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)?;
    (last - first <= AT_ONCE).then_some(Cause {
        why: "the server ended all connections at one moment",
        remedy: "it ended, was killed or restarted: see its log; or its idle timeout is shorter than --interval",
    })
}

/// Returns the cause of connections that the server ended while it served others of the run: it speaks what they speak.
pub(crate) fn turned_away(report: &Report, error: &Errors) -> Option<Cause> {
    let (connections, why) = match (error.phase.as_ref(), error.errno.as_str()) {
        ("handshake", errno) if errno.contains("ended in the TLS handshake") => {
            (report.connections.established, "the server ended the connection in the TLS handshake, and served others")
        }
        ("answer" | "send", "EOF") => (report.operations.ok, "the server closed instead of answering, and answered others"),
        _ => return None,
    };
    (connections > 0).then_some(Cause {
        why,
        remedy: "it turned the connection away or ended: see its counts of rejected connections, its log, and its limits, in all and per client (more clients: --source)",
    })
}

/// Returns the cause of an error by a full accept queue. The client takes a connection for complete that the server's kernel has no place for: what
/// it sends is dropped, until the kernel gives up and resets. New handshakes are not answered.
pub(crate) fn overflown(phase: &str, errno: &str) -> Option<Cause> {
    let why = match (phase, errno) {
        ("connect", "ETIMEDOUT") => "the server's accept queue was full and its kernel dropped the handshake",
        ("send" | "answer" | "closed" | "unused" | "end", "ETIMEDOUT" | "ECONNRESET" | "EPIPE") => {
            "connected, but the server's accept queue was full and its kernel dropped the connection"
        }
        _ => return None,
    };
    Some(Cause { why, remedy: ACCEPT_FASTER })
}

fn upgrade(reason: &str) -> Option<(&'static str, &'static str)> {
    Some(match reason.rsplit_once("with status ")?.1 {
        "400" | "426" => (
            "the server found fault with the request",
            "see its answer, as by curl -i; a proxy before it must pass Upgrade and Connection on",
        ),
        "401" | "403" => (
            "the server wants to know more of the client",
            "add what it asks for, such as -H 'Origin: ...', -H 'Authorization: ...' or a Cookie",
        ),
        "404" => ("the server has no WebSocket at this path", "check the path of the URL"),
        "200" => (
            "the server answered with a page",
            "check the path of the URL; a proxy before it must pass Upgrade and Connection on",
        ),
        "429" | "502" | "503" | "504" => ("the server, or a proxy before it, turned the client away", "look in its log"),
        _ => return None,
    })
}

fn connect(errno: &str) -> Option<(&'static str, &'static str)> {
    Some(match errno {
        "ECONNREFUSED" => ("nothing listens there", "start the server, or check the address and port"),
        "ETIMEDOUT" => (
            "no answer to the handshake in time",
            "check that the host is up and no firewall drops it; a full accept queue or a stopped server looks the same; or raise --timeout",
        ),
        "EADDRNOTAVAIL" => (
            "no port is left for this source and target, or the source is no address of this machine",
            "add sources such as --source 127.0.0.2,127.0.0.3, add targets, or widen sysctl net.ipv4.ip_local_port_range",
        ),
        "EADDRINUSE" => ("the port is taken", "add sources with --source, or leave ports to the kernel"),
        "ECONNRESET" => (
            "the server reset the connection before it stood",
            "look for its limit of connections, or for tcp_abort_on_overflow with a full accept queue",
        ),
        "EMFILE" => (
            "this process has no descriptor left",
            "raise the hard limit (ulimit -Hn) or spread over processes: --processes auto",
        ),
        "ENFILE" => ("this machine has no descriptor left", "raise sysctl fs.file-max"),
        "ENOBUFS" | "ENOMEM" => {
            ("the kernel has no memory left for sockets", "use fewer connections, or raise sysctl net.ipv4.tcp_mem")
        }
        "EHOSTUNREACH" | "EHOSTDOWN" => ("the host does not answer", "check the address and that the host is up"),
        "ENETUNREACH" | "ENETDOWN" => ("no route leads there", "check the address, the routes (ip route) and the --source"),
        "EACCES" | "EPERM" => {
            ("a rule of this machine forbids it", "check its firewall (nft list ruleset), or the rights on the socket's path")
        }
        "EINVAL" => ("this source cannot reach this target", "use a --source of the target's network"),
        "EAGAIN" => (
            "the queue of the Unix socket is full",
            "accept faster, raise the server's backlog, or connect slower: --connect-rate",
        ),
        "ENOENT" => ("there is no such socket", "start the server, or check the path"),
        "ECONNABORTED" => ("the connection was aborted before it stood", "look for a proxy or a firewall in between"),
        _ => return None,
    })
}

/// Returns the meaning and the remedy for errors of TLS, which are reasons in words.
fn handshake(reason: &str) -> Option<(&'static str, &'static str)> {
    let has = |words: &str| reason.contains(words);
    Some(match () {
        () if has("no trusted authority") || has("not of the trusted authority") || has("is an authority's") => {
            ("its authority is not known here", "name it: --ca FILE, or accept any certificate: --insecure")
        }
        () if has("is for another name") || has("is for ") && has(", not for ") => {
            ("another name was asked for", "ask for one that it has: --sni NAME, or write the target by it")
        }
        () if has("names no host") => {
            ("names are in its subjectAltName alone", "make it with the name, or accept any certificate: --insecure")
        }
        () if has("has expired") || has("not valid yet") => {
            ("its time is over, or has not come", "renew it, or accept any certificate: --insecure")
        }
        () if has("does not speak TLS") => ("the port is one without TLS", "check the port, or leave --tls out"),
        () if has("NoApplicationProtocol") => {
            ("the server speaks another protocol than HTTP/1.1 there, such as HTTP/2 alone", "have it offer http/1.1 by ALPN")
        }
        () if has("CertificateRequired") || has("requires a client certificate") => {
            ("the server asks clients for a certificate", "show one: --cert FILE --key FILE")
        }
        () if has("did not end in time") => {
            ("the server is busy or does not speak TLS", "use fewer connections or --connect-rate, or raise --timeout")
        }
        () if has("ended in the TLS handshake") => {
            ("the server ended the connection without a word of TLS", "check that it speaks TLS at this port, and see its log")
        }
        () if has("under way when the run ended") => ("it had no time left", "give the server longer: -d, --timeout"),
        () => return None,
    })
}

/// Returns the meaning and the remedy for errors after the connection stood.
fn exchange(phase: &str, errno: &str) -> Option<(&'static str, &'static str)> {
    Some(match (phase, errno) {
        ("answer", "ETIMEDOUT") => (
            "no answer within --timeout",
            "the server is too slow, stopped, or waits for something else: name its workload or what it is asked (--send, --expect), add --tls if it speaks that, use fewer connections, or raise --timeout",
        ),
        ("end", "ETIMEDOUT") => ("the server answered and did not close within --timeout", "use --close fin, or --keep-alive"),
        ("send", "ETIMEDOUT") => {
            ("the server takes no more bytes", "it is stopped or does not read: raise --timeout or use fewer connections")
        }
        (_, "ETIMEDOUT") => ("the peer acknowledges no more", "check the host and the network in between"),
        (_, "ECONNRESET") => (
            "the server reset the connection",
            "it crashed, was killed, closed with input unread, or turned the connection away: see its log and its limits",
        ),
        (_, "EPROTO") => (
            "TLS ended the connection",
            "see the error tls, which has the reason; without one it was cut off: the server, or something in between, said no close_notify",
        ),
        (_, "EPIPE") => ("the server had closed when it was written to", "see the server's log, its idle timeout and its limits"),
        ("answer" | "send", "EOF") => (
            "the server closed instead of answering",
            "see its log: it ended, turned the connection away, or did not understand the workload",
        ),
        ("unused", "EOF") => (
            "the server closed a new connection before a question was sent",
            "it turned the connection away or ended: see its log, and its limits of connections, in all and per client",
        ),
        ("closed", "EOF") => ("the server closed an idle connection", "see its idle timeout; ask more often: --interval"),
        (_, "EHOSTUNREACH" | "ENETUNREACH" | "ENETDOWN") => ("the route went away", "check the network in between"),
        (_, "ENOBUFS" | "ENOMEM") => {
            ("the kernel has no memory left for sockets", "use fewer connections, or raise sysctl net.ipv4.tcp_mem")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(phase: &str, errno: &str, overflows: Option<u64>) -> &'static str {
        cause(phase, errno, overflows).unwrap_or_else(|| panic!("{phase} {errno} has a cause")).why
    }

    fn end(phase: &'static str, errno: &str, first: f64, last: f64) -> Errors {
        Errors { phase: phase.into(), errno: errno.to_owned(), count: 5, first: Some(first), last: Some(last) }
    }

    #[test]
    fn each_error_has_its_cause() {
        for (phase, errno, expected) in [
            ("connect", "ECONNREFUSED", "nothing listens there"),
            ("connect", "ETIMEDOUT", "no answer to the handshake"),
            ("connect", "EADDRNOTAVAIL", "no port is left"),
            ("connect", "EMFILE", "this process has no descriptor"),
            ("answer", "ETIMEDOUT", "no answer within --timeout"),
            ("answer", "ECONNRESET", "the server reset"),
            ("answer", "EOF", "closed instead of answering"),
            ("send", "EPIPE", "had closed"),
            ("closed", "EOF", "idle connection"),
            ("unused", "EOF", "before a question"),
            ("unused", "ECONNRESET", "the server reset"),
            ("closed", "ECONNRESET", "the server reset"),
            ("end", "ETIMEDOUT", "did not close"),
            ("verify", "WRONG_BYTES", "other bytes"),
            ("status", "503", "another status"),
            ("unfinished", "CUT_OFF", "under way"),
            ("handshake", "the peer's certificate is signed by no trusted authority: it", "authority is not known"),
            ("handshake", "the peer's certificate names no host (subjectAltName; a CN is not looked at)", "subjectAltName alone"),
            ("handshake", "the peer's certificate is an authority's, as `openssl req -x509` makes it", "authority is not known"),
            ("tls", "the peer sent the TLS alert CertificateRequired", "asks clients"),
        ] {
            assert!(why(phase, errno, Some(0)).contains(expected), "{phase} {errno}: {}", why(phase, errno, Some(0)));
        }
        assert_eq!(cause("connect", "errno 9999", None), None);
        let port = cause("connect", "EADDRNOTAVAIL", None).expect("it has one");
        assert!(port.to_string().contains("--source 127.0.0.2"), "{port}");
    }

    #[test]
    fn the_end_of_all_connections_at_one_moment_is_that_of_the_server() {
        let mut report = crate::report::tests::report();
        report.connections = Connections { attempted: 9, established: 9, lost: 9, peak: 9, ..Connections::default() };
        report.errors = vec![end("closed", "EOF", 2.0, 2.1), end("answer", "ECONNRESET", 2.2, 2.4)];
        let why = |report: &Report| report.cause(&report.errors[0]).map(|cause| cause.why);
        assert_eq!(why(&report), Some("the server ended all connections at one moment"));
        let idle = Some("the server closed an idle connection");
        report.connections.lost = 8;
        assert_eq!(why(&report), idle, "one stayed");
        report.connections.lost = 9;
        report.errors[1].last = Some(2.6);
        assert_eq!(why(&report), idle, "one after the other");
    }

    #[test]
    fn a_server_that_served_others_turned_the_connection_away() {
        let mut report = crate::report::tests::report();
        for (error, alone) in [
            (end("handshake", "the connection ended in the TLS handshake", 2.0, 2.1), "without a word of TLS"),
            (end("answer", "EOF", 2.0, 2.1), "closed instead of answering"),
        ] {
            (report.connections.established, report.operations.ok) = (50, 50);
            let cause = report.cause(&error).expect("it is known");
            assert!(cause.why.contains("others") && cause.remedy.contains("per client"), "{cause}");
            (report.connections.established, report.operations.ok) = (0, 0);
            assert!(report.cause(&error).expect("it is known").why.ends_with(alone), "{error:?}");
        }
    }

    #[test]
    fn a_full_accept_queue_is_told_from_a_silent_server_by_the_kernels_counter() {
        for (phase, errno) in
            [("connect", "ETIMEDOUT"), ("answer", "ETIMEDOUT"), ("answer", "ECONNRESET"), ("closed", "ECONNRESET")]
        {
            assert!(why(phase, errno, Some(3)).contains("accept queue was full"), "{phase} {errno}");
            assert!(!why(phase, errno, Some(0)).contains("accept queue was full"), "{phase} {errno}");
        }
        assert_eq!(why("connect", "ECONNREFUSED", Some(3)), "nothing listens there", "a full queue refuses nobody");
        assert_eq!(why("answer", "EOF", Some(3)), why("answer", "EOF", None), "nor does it end a stream in order");
    }
}
