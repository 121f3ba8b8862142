//! `http`: the requests, the side that ends connections, and the figures that people compare.

pub(super) mod figures;
mod report;

pub use report::{Failures, Http, PageReport, Renewed, Schedule, Spread, Times, Transfer, Within};

use super::kind::{Kind, Life, Properties, each};
use super::recorder::Recorder;
use super::shared::Shared;
use sockdrawer::{Behaviour, Model};
use sockdrawer_catalog::http::{self, Close, Manner, Page, Request, VisitMeter, Visited, Visits};
use sockdrawer_catalog::meter::Meter;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests of a run of `http`: what it asks for, and how.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Wanted {
    /// Pages, at least 1, with a weight above 0; each request takes one.
    pub pages: Vec<Page>,
    /// Parts that all requests have besides their paths.
    pub request: Request,
    /// Side that ends a connection, which has one request; None: connections are kept and have one request after the other.
    pub close: Option<Close>,
    /// Connections begun in a second, on schedule whatever the server does, and not with connections that are kept; None: another
    /// begins when one has ended.
    pub rate: Option<f64>,
    /// Time from one request of a kept connection to the next, on schedule whatever the server does; zero is back to back.
    pub interval: Duration,
}

impl Wanted {
    /// The path of the fast answer of this project's own server, and of the slow one.
    pub const OWN: [&str; 2] = ["/test/fast", "/test/slow"];

    /// Returns the page for an answer of the own server, which must be right to the byte.
    pub fn own(path: &str, weight: u32) -> Page {
        Page { path: path.to_owned(), weight, exact: true }
    }

    /// Returns true where the own server needs workers for it.
    fn has_slow(&self) -> bool {
        self.pages.iter().any(|page| page.path == Wanted::OWN[1])
    }
}

impl Default for Wanted {
    /// Returns the fast answer, one request on each connection, which the server ends.
    fn default() -> Wanted {
        Wanted {
            pages: vec![Wanted::own(Wanted::OWN[0], 1)],
            request: Request::default(),
            close: Some(Close::Server),
            rate: None,
            interval: Duration::ZERO,
        }
    }
}

impl Kind for Wanted {
    fn properties(&self) -> Properties {
        let life = if self.close.is_some() { Life::Short } else { Life::Kept };
        Properties {
            ends_first: self.close == Some(Close::Fin),
            has_slow_answers: self.has_slow(),
            schedule: self.rate,
            interval: self.interval,
            ..Properties::new("http", life)
        }
    }

    fn client(&self, shared: &Arc<Shared>) -> Behaviour {
        let visits = Visits {
            pages: self.pages.clone(),
            request: self.request.clone(),
            manner: match self.close {
                Some(close) => Manner::Once(close),
                None => Manner::KeepAlive { budget: shared.budget(), interval: shared.interval() },
            },
            timeout: shared.timeout,
            seed: shared.seed,
        };
        http::Client::new(visits, Recorder::each(shared)).into()
    }

    fn server(&self) -> (Behaviour, Model) {
        (http::Http { in_worker: self.has_slow(), ..http::Http::default() }.into(), Model::Loops)
    }

    fn set_rate(&mut self, per_second: f64, connections: usize) -> bool {
        match self.close {
            Some(_) => self.rate = Some(per_second),
            None => self.interval = each(per_second, connections),
        }
        true
    }
}

impl VisitMeter for Recorder {
    fn begun(&mut self, due: Instant, lag: Duration) {
        let figures = self.tally.http();
        figures.first_due = figures.first_due.into_iter().chain([due]).min();
        figures.lag.record(lag);
    }

    fn visited(&mut self, visited: &Visited) {
        self.operation(visited.scheduled, visited.sent, visited.ended);
        self.tally.http().visited(visited);
    }

    fn missed(&mut self, page: usize) {
        self.tally.http().page(page).failed += 1;
    }

    fn renewed(&mut self, announced: bool) {
        let figures = self.tally.http();
        if announced { figures.announced += 1 } else { figures.unannounced += 1 }
    }
}
