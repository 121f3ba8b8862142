//! Plans of changes of the configuration, step by step, and what came of them.

use serde::{Deserialize, Serialize};
use sockdrawer::changing::How;
use sockdrawer_catalog::time;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Name of the pool. None: the whole program.
    pub(crate) pool: Option<String>,
    pub(crate) setting: String,
    pub(crate) how: Cow<'static, str>,
    pub(crate) detail: String,
}

impl Step {
    pub(crate) fn new(pool: &str, setting: &str, how: &'static str, detail: impl Into<String>) -> Step {
        Step { pool: Some(pool.to_owned()), setting: setting.to_owned(), how: how.into(), detail: detail.into() }
    }

    pub(crate) fn how(how: How) -> &'static str {
        match how {
            How::InPlace => "in place",
            How::NewGeneration => "new generation",
            How::NewSocket => "new socket",
            How::Refused => REFUSED,
        }
    }
}

/// Word for a change that is not carried out.
pub(crate) const REFUSED: &str = "refused";

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { pool, setting, how, detail } = self;
        if let Some(pool) = pool {
            write!(f, "{pool}: ")?;
        }
        write!(f, "{setting}: {how} ({detail})")
    }
}

/// Plan and outcome of a change that was carried out, or could be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Changed {
    /// The revision in force.
    pub(crate) revision: u64,
    /// True where the change was carried out.
    pub(crate) committed: bool,
    pub(crate) plan: Vec<Step>,
    #[serde(rename = "took_us", serialize_with = "micros")]
    pub(crate) took: Duration,
}

fn micros<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Changed { revision, plan, took, committed } = self;
        if plan.is_empty() {
            return write!(f, "nothing to change: revision {revision}");
        }
        let steps: Vec<String> = plan.iter().map(Step::to_string).collect();
        let took = time::format(Duration::from_micros(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)));
        match committed {
            true => write!(f, "revision {revision} in {took}: {}", steps.join("; ")),
            false => write!(f, "would change: {}", steps.join("; ")),
        }
    }
}

/// Reason why nothing was changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unchanged {
    /// The configuration is wrong: each mistake in a line.
    #[error("{}", lines(.0))]
    Wrong(Vec<String>),
    /// The change asks for something that cannot be had while the program runs, or the system refuses it.
    #[error("{0}")]
    Refused(String),
    /// Another change was faster.
    #[error(
        "the configuration changed meanwhile: the change is based on revision {based_on}, revision {current} is in force; get it again and apply the change to that"
    )]
    Conflict { based_on: String, current: u64 },
}

fn lines(mistakes: &[String]) -> String {
    match mistakes {
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
        [] => "the configuration is wrong".to_owned(),
    }
}
