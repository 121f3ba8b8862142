//! Measurements of a loop's clients of `http` besides those of every client.

use crate::latency::Latency;
use serde::{Deserialize, Serialize};
use sockdrawer_catalog::http::Visited;
use std::time::Instant;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Moment at which the first connect was due.
    #[serde(with = "crate::moment")]
    pub(crate) first_due: Option<Instant>,
    /// Times from when a connect was due until it began.
    pub(crate) lag: Latency,
    /// Times from the request to the first byte of the answer.
    pub(crate) first_byte: Latency,
    /// Times from the request to the end.
    pub(crate) processing: Latency,
    /// Times from when the connect began, whenever it was due, to the end.
    pub(crate) total: Latency,
    pub(crate) bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) redirected: u64,
    /// Answers with bodies of another length than the first one of their page.
    pub(crate) other_lengths: u64,
    pub(crate) announced: u64,
    pub(crate) unannounced: u64,
    /// Figures of the pages, by their numbers; as many as there was something of.
    pub(crate) pages: Vec<PageFigures>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PageFigures {
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) first_byte: Latency,
    pub(crate) operation: Latency,
}

impl Figures {
    pub(crate) fn add(&mut self, other: &Figures) {
        self.first_due = self.first_due.into_iter().chain(other.first_due).min();
        self.lag.add(&other.lag);
        self.first_byte.add(&other.first_byte);
        self.processing.add(&other.processing);
        self.total.add(&other.total);
        self.bytes += other.bytes;
        self.body_bytes += other.body_bytes;
        self.redirected += other.redirected;
        self.other_lengths += other.other_lengths;
        self.announced += other.announced;
        self.unannounced += other.unannounced;
        for (number, page) in other.pages.iter().enumerate() {
            let sum = self.page(number);
            sum.ok += page.ok;
            sum.failed += page.failed;
            sum.first_byte.add(&page.first_byte);
            sum.operation.add(&page.operation);
        }
    }

    pub(super) fn page(&mut self, number: usize) -> &mut PageFigures {
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, PageFigures::default);
        }
        &mut self.pages[number]
    }

    pub(super) fn visited(&mut self, visited: &Visited) {
        let first_byte = visited.first_byte.saturating_duration_since(visited.sent);
        self.first_byte.record(first_byte);
        self.processing.record(visited.ended.saturating_duration_since(visited.sent));
        self.total.record(visited.ended.saturating_duration_since(visited.began));
        self.bytes += visited.bytes;
        self.body_bytes += visited.body;
        self.redirected += u64::from((300..400).contains(&visited.status));
        self.other_lengths += u64::from(!visited.as_first);
        let page = self.page(visited.page);
        page.ok += 1;
        page.first_byte.record(first_byte);
        page.operation.record(visited.ended.saturating_duration_since(visited.scheduled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Recorder, Shared};
    use sockdrawer_catalog::http::VisitMeter;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn what_loops_recorded_adds_up() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let visited = |page| Visited {
            page,
            scheduled: at(0),
            began: at(100),
            connect: None,
            sent: at(110),
            first_byte: at(130),
            ended: at(200),
            bytes: 60,
            body: 3,
            status: if page == 2 { 304 } else { 200 },
            as_first: page == 2,
        };
        let mut loops = [(); 2].map(|()| Recorder::new(Arc::new(Shared::new(None, Duration::ZERO))));
        let [one, other] = &mut loops;
        one.begun(at(5), Duration::from_millis(100));
        other.begun(at(3), Duration::from_millis(1));
        one.visited(&visited(2));
        one.missed(0);
        other.visited(&visited(0));
        other.visited(&visited(2));
        other.renewed(true);
        other.renewed(false);
        let mut sum = one.tally.clone();
        sum.add(&other.tally);
        let figures = sum.http();
        assert_eq!(figures.first_due, Some(at(3)));
        assert_eq!((figures.bytes, figures.body_bytes, figures.announced, figures.unannounced), (180, 9, 1, 1));
        assert_eq!((figures.redirected, figures.other_lengths), (2, 1));
        let counts: Vec<(u64, u64)> = figures.pages.iter().map(|page| (page.ok, page.failed)).collect();
        assert_eq!(counts, [(1, 1), (0, 0), (2, 0)]);
        let near = |latency: &Latency, ms: f64| (latency.percentiles().max.unwrap_or(0.0) / ms / 1000.0 - 1.0).abs() < 0.002;
        assert!(near(&figures.lag, 100.0) && near(&figures.first_byte, 20.0), "{figures:?}");
        assert!(near(&figures.processing, 90.0) && near(&figures.total, 100.0), "{figures:?}");
        assert!(near(&figures.pages[2].operation, 200.0), "the wait for its turn counts");
        assert_eq!(sum.numbers.operations_ok, 3);
    }
}
