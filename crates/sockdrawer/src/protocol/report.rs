//! Reports of protocols about their connections.

use std::borrow::Cow;
use std::fmt;

/// A protocol's word about its connection: see [`Context::report`](crate::Context::report). A text alone is one of no kind.
///
/// ```
/// use sockdrawer::Report;
///
/// let report = Report::new("3 wrong passwords").kind("LoginFailed").field("attempts", 3);
/// # assert_eq!(report.to_string(), "3 wrong passwords");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The text for people.
    pub message: String,
    /// The kind, written like the name of an event; empty where it is of none.
    pub kind: Cow<'static, str>,
    /// Parts of the text for programs, by their names.
    pub fields: Vec<(Cow<'static, str>, Field)>,
    /// The report is told because a setting asks for each of its kind.
    pub is_record: bool,
}

/// A part of a [`Report`] for programs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Field {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl From<u64> for Field {
    fn from(number: u64) -> Field {
        Field::Number(number)
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Field {
        Field::Text(text.to_owned())
    }
}

impl From<String> for Field {
    fn from(text: String) -> Field {
        Field::Text(text)
    }
}

impl Report {
    /// Returns a report of no kind.
    pub fn new(message: impl Into<String>) -> Report {
        Report { message: message.into(), ..Report::default() }
    }

    /// Makes it one of this kind, such as `LoginFailed`. Of each kind, and of none, a loop passes on at most ten reports per second.
    #[must_use]
    pub fn kind(self, kind: &'static str) -> Report {
        Report { kind: kind.into(), ..self }
    }

    /// Makes it a record of something usual, such as the end of a connection, that is told because a setting asks for it: a loop passes on at most
    /// 1,000 of a kind per second.
    #[must_use]
    pub fn record(self) -> Report {
        Report { is_record: true, ..self }
    }

    /// Adds a part of the text for programs.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: impl Into<Field>) -> Report {
        self.fields.push((name.into(), value.into()));
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<T: Into<String>> From<T> for Report {
    fn from(message: T) -> Report {
        Report::new(message)
    }
}
