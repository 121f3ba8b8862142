//! Why an error comes and what helps: a line for each kind.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What helps against a full accept queue.
pub(crate) const ACCEPT_FASTER: &str =
    "accept faster, raise the backlog of listen() and sysctl net.core.somaxconn, or connect slower: --connect-rate";

/// What an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Why it comes.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.why, self.remedy)
    }
}

/// The limit that a run came up against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Wall {
    /// Which.
    pub name: String,
    /// What shows it.
    pub why: String,
    /// What moves it.
    pub remedy: String,
}

/// What an error of this phase means, by the names that reports have; `overflows` is how many connections found the server's accept
/// queue full meanwhile, where that is known. None: the names say it all.
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
        "send" | "answer" | "end" | "closed" => exchange(phase, errno)?,
        "verify" => ("the answer has other bytes than it must have", "name the workload that the server speaks"),
        "status" => match errno {
            "404" => ("the server has no such page", "ask for one that it has: --path"),
            _ => ("the server answered with another status than 2xx or 3xx", "look for the request in the server's log"),
        },
        "length" => ("the body was not as long as the first one", "ask for a page that stays the same"),
        "unfinished" => ("it was under way when the run ended", "give the server longer: -d, --timeout"),
        "client" => ("a client panicked", "report it: this is a mistake of this program"),
        _ => return None,
    };
    Some(Cause { why, remedy })
}

/// The client takes a connection for complete that the server's kernel has no place for: what it sends is dropped, until the kernel
/// gives up and resets. New handshakes are not answered.
fn overflown(phase: &str, errno: &str) -> Option<Cause> {
    let why = match (phase, errno) {
        ("connect", "ETIMEDOUT") => "the server's accept queue was full and its kernel dropped the handshake",
        ("send" | "answer" | "closed" | "end", "ETIMEDOUT" | "ECONNRESET" | "EPIPE") => {
            "connected, but the server's accept queue was full and its kernel dropped the connection"
        }
        _ => return None,
    };
    Some(Cause { why, remedy: ACCEPT_FASTER })
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

/// After the connection stood.
fn exchange(phase: &str, errno: &str) -> Option<(&'static str, &'static str)> {
    Some(match (phase, errno) {
        ("answer", "ETIMEDOUT") => (
            "no answer within --timeout",
            "the server is too slow, stopped, or waits for something else: name its workload, use fewer connections, or raise --timeout",
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
        (_, "EPIPE") => {
            ("the server had closed when it was written to", "see the server's log, its idle time-out and its limits")
        }
        ("answer" | "send", "EOF") => (
            "the server closed instead of answering",
            "see its log: it ended, turned the connection away, or did not understand the workload",
        ),
        ("closed", "EOF") => ("the server closed a connection at rest", "see its idle time-out; ask more often: --interval"),
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
            ("closed", "EOF", "at rest"),
            ("closed", "ECONNRESET", "the server reset"),
            ("end", "ETIMEDOUT", "did not close"),
            ("verify", "WRONG_BYTES", "other bytes"),
            ("status", "503", "another status"),
            ("unfinished", "CUT_OFF", "under way"),
        ] {
            assert!(why(phase, errno, Some(0)).contains(expected), "{phase} {errno}: {}", why(phase, errno, Some(0)));
        }
        assert_eq!(cause("connect", "errno 9999", None), None);
        let port = cause("connect", "EADDRNOTAVAIL", None).expect("it has one");
        assert!(port.to_string().contains("--source 127.0.0.2"), "{port}");
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
