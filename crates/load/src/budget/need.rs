//! Need of a run, beside what there is of it.

use crate::numbers::{bytes, float, thousands};
use crate::wall::Wall;
use serde::Serialize;
use std::fmt;

/// Needed against had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Whose: `client`, `server`, or `both` where they share it.
    pub end: &'static str,
    /// What.
    pub what: &'static str,
    /// Amount that is needed.
    pub needed: u64,
    /// Amount that there is; None where it cannot be known.
    pub had: Option<u64>,
    /// Unit of the amounts: `bytes`, else they are counted.
    pub unit: Unit,
    /// Explanation of the two amounts.
    pub how: String,
    /// Verdict on the two amounts.
    pub fit: Fit,
    /// Remedy where it is not enough: a command, or an option of this program.
    pub remedy: Option<String>,
}

/// Unit of the amounts of a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Presence: it is there, or not.
    Presence,
}

/// Verdict on the amounts of a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fit {
    /// There is enough, or it cannot be known.
    Enough,
    /// There may be enough: that depends on how fast the server is, or on estimates.
    Doubtful,
    /// There is too little: the run cannot work.
    Lacking,
}

impl Need {
    /// Returns the need as the wall of a run that was not begun because of it.
    pub fn wall(&self) -> Wall {
        let had = self.had.map_or_else(|| "?".to_owned(), |had| self.amount(had));
        let why = format!("{} {} are needed, there are {had} ({})", self.amount(self.needed), self.what, self.how);
        let name = match (self.end, self.what) {
            (_, "memory") => "memory".to_owned(),
            ("both", _) => format!("client {}", self.what),
            (end, "free ports") => format!("{end} ports"),
            (end, what) => format!("{end} {what}"),
        };
        Wall { name, why, remedy: self.remedy.clone().unwrap_or_else(|| "use fewer connections".to_owned()) }
    }

    /// Creates a need of which there is enough; [`Need::or`] finds out where there is not.
    pub(crate) fn new(end: &'static str, what: &'static str, (needed, had): (u64, Option<u64>), how: String) -> Need {
        Need { end, what, needed, had, unit: Unit::Count, how, fit: Fit::Enough, remedy: None }
    }

    /// Makes it one of what must be there at all.
    pub(crate) fn must_be_there(self) -> Need {
        Need { unit: Unit::Presence, ..self }
    }

    /// Counts the need in bytes, not things.
    pub(crate) fn in_bytes(self) -> Need {
        Need { unit: Unit::Bytes, ..self }
    }

    /// Sets the verdict and the remedy for the case that there is less than is needed.
    pub(crate) fn or(self, fit: Fit, remedy: impl FnOnce(&Need) -> String) -> Need {
        if self.had.is_none_or(|had| had >= self.needed) {
            return self;
        }
        let remedy = Some(remedy(&self));
        Need { fit, remedy, ..self }
    }

    /// Returns an amount as people read it.
    pub fn amount(&self, value: u64) -> String {
        match self.unit {
            Unit::Count | Unit::Presence => thousands(value),
            Unit::Bytes => bytes(float(value)),
        }
    }
}

/// Line of a table of them: whose, what, needed, had, how, and what to do.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let had = self.had.map_or_else(|| "?".to_owned(), |had| self.amount(had));
        let name = format!("{} {}", self.end, self.what);
        if self.unit == Unit::Presence {
            let is_there = if self.had.is_some_and(|had| had < self.needed) { "missing" } else { "there" };
            let remedy = self.remedy.as_ref().map_or_else(String::new, |remedy| format!("; {remedy}"));
            return write!(f, "{name:<22} {is_there:<29} {}{remedy}", self.how);
        }
        write!(f, "{name:<22} {:>12} of {had:<13} {}", self.amount(self.needed), self.how)?;
        match (&self.remedy, self.fit) {
            (Some(remedy), Fit::Lacking) => write!(f, "; TOO FEW: {remedy}"),
            (Some(remedy), _) => write!(f, "; {remedy}"),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_for_what_is_not_enough() {
        let need =
            |had| Need::new("client", "ports", (30_000, had), "1 source".to_owned()).or(Fit::Lacking, |_| "add some".to_owned());
        assert_eq!((need(Some(30_000)).fit, need(None).fit, need(Some(29_999)).fit), (Fit::Enough, Fit::Enough, Fit::Lacking));
        assert_eq!(need(None).to_string(), "client ports                 30,000 of ?             1 source");
        assert_eq!(need(Some(5)).to_string(), "client ports                 30,000 of 5             1 source; TOO FEW: add some");
    }

    #[test]
    fn what_must_be_there_is_not_counted() {
        let listener = |had| {
            let need = Need::new("server", "listener", (1, Some(had)), "connect to 127.0.0.1:1".to_owned()).must_be_there();
            need.or(Fit::Lacking, |_| "start the server".to_owned()).to_string()
        };
        assert_eq!(listener(0), "server listener        missing                       connect to 127.0.0.1:1; start the server");
        assert_eq!(listener(1), "server listener        there                         connect to 127.0.0.1:1");
    }

    #[test]
    fn what_the_budget_lacks_is_a_wall_too() {
        let need = |end, what| Need::new(end, what, (9, Some(5)), "somehow".to_owned());
        let names =
            [("client", "ports"), ("client", "descriptors"), ("both", "memory"), ("both", "files"), ("client", "free ports")];
        let names = names.map(|(end, what)| need(end, what).wall().name);
        assert_eq!(names, ["client ports", "client descriptors", "memory", "client files", "client ports"]);
        assert_eq!(need("client", "ports").wall().why, "9 ports are needed, there are 5 (somehow)");
    }
}
