//! Figures of an upgrade, told once all that could move has moved.

use crate::ipc::messages::ReplaceReport;
use std::collections::BTreeMap;
use std::time::Duration;

/// Figures of an upgrade.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) prepared: Duration,
    pub(super) gap: Duration,
    pub(super) moved: u64,
    /// Time that the connections of each slice were in neither process, and their number.
    pub(super) pauses: Vec<(Duration, usize)>,
    pub(super) not_restored: Vec<String>,
}

impl Figures {
    /// Returns the message to the program that asked: the successor's process, how long all moved, and which connections stay.
    pub(super) fn told(self, pid: u32, moving: Duration, staying: BTreeMap<String, BTreeMap<String, u64>>) -> ReplaceReport {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let Figures { prepared, gap, moved, pauses, not_restored } = self;
        ReplaceReport {
            refused: String::new(),
            pid,
            prepared: micros(prepared),
            gap: micros(gap),
            moved,
            moving: micros(moving),
            pauses: percentiles(pauses).into_iter().map(micros).collect(),
            stay: staying.values().flat_map(BTreeMap::values).sum(),
            staying,
            not_restored,
        }
    }
}

/// Returns the median of the times that connections waited, the 99th of 100, and the longest.
fn percentiles(mut pauses: Vec<(Duration, usize)>) -> Vec<Duration> {
    pauses.sort_unstable();
    let all: usize = pauses.iter().map(|(_, count)| count).sum();
    let at = |share: f64| {
        let mut left = (all as f64 * share) as usize;
        let found = pauses.iter().find(|(_, count)| {
            let is_here = left < *count;
            left = left.saturating_sub(*count);
            is_here
        });
        found.or(pauses.last()).map(|(pause, _)| *pause).unwrap_or_default()
    };
    vec![at(0.5), at(0.99), at(1.0)]
}
