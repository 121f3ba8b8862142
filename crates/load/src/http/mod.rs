//! Runs of `http`: what is asked for, who ends connections, and the figures that people compare.

mod figures;
mod report;

pub(crate) use figures::Figures;
pub(crate) use report::Begun;
pub use report::{Failures, Http, PageReport, Renewed, Schedule, Spread, Times, Transfer, Within};

use crate::plan::Plan;
use crate::shared::Shared;
use sockdrawer::{Connecting, Late};
use sockdrawer_catalog::http::{Close, Manner, Page, Visits};

/// What a run of `http` asks for, and how.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Wanted {
    /// At least one, with a weight above 0; each request takes one.
    pub pages: Vec<Page>,
    /// Who ends a connection, which has one request; None: connections are kept and have one request after the other.
    pub close: Option<Close>,
    /// Connections begun in a second, on schedule whatever the server does, and not with connections that are kept; None: another
    /// begins when one has ended.
    pub rate: Option<f64>,
}

impl Wanted {
    /// The path of the fast answer of this project's own server, and of the slow one.
    pub const OWN: [&str; 2] = ["/test/fast", "/test/slow"];

    /// One of the own server's answers, which must be right to the byte.
    pub fn own(path: &str, weight: u32) -> Page {
        Page { path: path.to_owned(), weight, exact: true }
    }

    /// Whether the own server needs workers for it.
    pub(crate) fn has_slow(&self) -> bool {
        self.pages.iter().any(|page| page.path == Wanted::OWN[1])
    }
}

impl Default for Wanted {
    /// The fast answer, one request on each connection, which the server ends.
    fn default() -> Wanted {
        Wanted { pages: vec![Wanted::own(Wanted::OWN[0], 1)], close: Some(Close::Server), rate: None }
    }
}

/// What the clients of a run ask for.
pub(crate) fn visits(plan: &Plan, wanted: &Wanted, shared: &Shared) -> Visits {
    Visits {
        pages: wanted.pages.clone(),
        manner: wanted.close.map_or_else(|| Manner::KeepAlive(shared.budget()), Manner::Once),
        timeout: plan.timeout,
        seed: plan.seed,
    }
}

/// How a pool connects for it. Returns the rate of its schedule, where there is one.
pub(crate) fn pace(plan: &Plan, connecting: &mut Connecting) -> Option<f64> {
    let rate = plan.http().and_then(|wanted| wanted.rate)?;
    connecting.rate = Some(rate);
    connecting.late = Late::MakeUp;
    Some(rate)
}
