//! Names that the command line knows: protocols and models.

use crate::values::BadValue;
use sockdrawer::Model;
pub(crate) use sockdrawer_program::names::unknown;
use std::fmt;
use std::str::FromStr;

/// A protocol that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Every byte comes back.
    Echo,
    /// A greeting for each connection.
    Hello,
    /// Four bytes each way.
    Ping,
    /// The fast and the slow answer.
    Http,
    /// Messages and their acknowledgements.
    Acks,
    /// Messages of WebSockets.
    Ws,
    /// A connection to another server for each client.
    Proxy,
    /// Another program for each connection.
    Exec,
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 8] = [
        Protocol::Echo,
        Protocol::Hello,
        Protocol::Ping,
        Protocol::Http,
        Protocol::Acks,
        Protocol::Ws,
        Protocol::Proxy,
        Protocol::Exec,
    ];

    /// Protocols that load can be put on: nothing is known of what the programs of `exec` answer, or the targets of `proxy`.
    pub(crate) const WORKLOADS: [Protocol; 5] = [Protocol::Ping, Protocol::Echo, Protocol::Hello, Protocol::Http, Protocol::Acks];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Echo => "echo",
            Protocol::Hello => "hello",
            Protocol::Ping => "ping",
            Protocol::Http => "http",
            Protocol::Acks => "acks",
            Protocol::Ws => "ws",
            Protocol::Proxy => "proxy",
            Protocol::Exec => "exec",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Protocol {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Protocol, BadValue> {
        let known = Protocol::ALL.map(Protocol::name);
        match Protocol::ALL.into_iter().find(|protocol| protocol.name() == text) {
            Some(protocol) => Ok(protocol),
            None => Err(unknown("protocol", text, &known)),
        }
    }
}

/// Reads the name of the model that runs the connections. The pool says whether this build has it.
pub(crate) fn model(text: &str) -> Result<Model, BadValue> {
    let known = Model::ALL.map(Model::name);
    Model::ALL.into_iter().find(|model| model.name() == text).ok_or_else(|| unknown("model", text, &known))
}

/// Says "unknown KIND `TEXT`" of names that are too many for a line: tells the three that are closest to `text`.
pub(crate) fn unknown_of_many(kind: &str, text: &str, mut known: Vec<&str>) -> BadValue {
    known.sort_by_cached_key(|name| strsim::damerau_levenshtein(&text.to_lowercase(), name));
    known.truncate(3);
    BadValue(format!("unknown {kind} `{text}`: the closest are {}; the help ends with all of them", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_operate::written::closest;

    #[test]
    fn every_name_is_understood() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().parse(), Ok(protocol));
        }
        for known in Model::ALL {
            assert_eq!(model(known.name()), Ok(known));
        }
    }

    #[test]
    fn a_misspelled_name_gets_the_closest_one() {
        let known = Protocol::ALL.map(Protocol::name);
        for (text, name) in
            [("ehco", "echo"), ("pong", "ping"), ("HTTP", "http"), ("https", "http"), ("ack", "acks"), ("helo", "hello")]
        {
            assert_eq!(closest(text, &known), Some(name), "{text}");
        }
        for text in ["", "redis", "x"] {
            assert_eq!(closest(text, &known), None, "{text}");
        }
    }

    #[test]
    fn a_misspelled_model_gets_the_closest_one() {
        for (text, name) in [("loop", "loops"), ("thread", "threads"), ("pre-fork", "prefork"), ("forks", "fork")] {
            let BadValue(line) = model(text).expect_err(text);
            assert!(line.contains(&format!("did you mean `{name}`?")), "{line}");
            assert!(line.contains("single, threads, fork, prefork, loops, tasks"), "{line}");
        }
    }
}
