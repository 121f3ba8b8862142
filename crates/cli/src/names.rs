//! Names that the command line knows, and the closest one to a name that it does not know.

use crate::values::BadValue;
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
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 5] = [Protocol::Echo, Protocol::Hello, Protocol::Ping, Protocol::Http, Protocol::Acks];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Echo => "echo",
            Protocol::Hello => "hello",
            Protocol::Ping => "ping",
            Protocol::Http => "http",
            Protocol::Acks => "acks",
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

/// Who runs the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Model {
    /// N threads, each with many connections.
    #[default]
    Loops,
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("loops")
    }
}

impl FromStr for Model {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Model, BadValue> {
        match text {
            "loops" => Ok(Model::Loops),
            "single" => {
                Err(BadValue("model `single` is not in this build: use `loops`, with `--loops 1` for one thread".to_owned()))
            }
            "threads" | "fork" | "prefork" | "tasks" => {
                Err(BadValue(format!("model `{text}` is not in this build: use `loops`")))
            }
            _ => Err(unknown("model", text, &["loops", "single", "threads", "fork", "prefork", "tasks"])),
        }
    }
}

/// "unknown KIND `TEXT`", with the known name closest to it, where one is close, and all known ones.
pub(crate) fn unknown(kind: &str, text: &str, known: &[&str]) -> BadValue {
    let all = known.join(", ");
    BadValue(match closest(text, known) {
        Some(name) => format!("unknown {kind} `{text}`: did you mean `{name}`? There are {all}"),
        None => format!("unknown {kind} `{text}`: there are {all}"),
    })
}

/// The name that differs least from `text`, when not more than half of it differs.
pub(crate) fn closest<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    let text = text.to_lowercase();
    let distance = |name: &&str| strsim::damerau_levenshtein(&text, name);
    let name = known.iter().copied().min_by_key(distance)?;
    (distance(&name) * 2 <= name.chars().count()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().parse(), Ok(protocol));
        }
        assert_eq!("loops".parse(), Ok(Model::Loops));
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
    fn a_known_model_that_is_missing_is_told_from_an_unknown_one() {
        for text in ["single", "threads", "fork", "prefork", "tasks"] {
            let BadValue(line) = text.parse::<Model>().expect_err(text);
            assert!(line.contains("not in this build"), "{line}");
        }
        let BadValue(line) = "loop".parse::<Model>().expect_err("there is no such model");
        assert!(line.contains("did you mean `loops`?"), "{line}");
    }
}
