//! How a run is going, on standard error: a line that is rewritten on a terminal, now and then a line elsewhere.

use crate::print;
use sockdrawer_load::{Numbers, Phase, Progress, time};
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// Between two lines where they stay: in a log, two a second would be noise.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// What is shown.
pub(crate) struct Live {
    on_terminal: bool,
    shown: Option<Duration>,
    before: (Duration, Numbers),
}

impl Live {
    pub(crate) fn new() -> Live {
        Live { on_terminal: stderr().is_terminal(), shown: None, before: Default::default() }
    }

    /// Shows where the run is; the engine calls it twice a second.
    pub(crate) fn show(&mut self, progress: &Progress) {
        if !self.on_terminal && progress.elapsed < self.shown.unwrap_or_default() + BETWEEN_LINES {
            return;
        }
        self.shown = Some(progress.elapsed);
        let line = self.line(progress);
        match self.on_terminal {
            true => print::rewrite(line),
            false => print::tell(line),
        }
    }

    /// No more: what follows begins on a line of its own.
    pub(crate) fn end(self) {
        if self.on_terminal && self.shown.is_some() {
            print::tell("");
        }
    }

    /// The rates are those since the last line.
    fn line(&mut self, progress: &Progress) -> String {
        let numbers = &progress.numbers;
        let before = std::mem::replace(&mut self.before, (progress.elapsed, *numbers));
        let since = progress.elapsed.saturating_sub(before.0).as_secs_f64();
        let rate = |now: u64, before: u64| if since > 0.0 { float(now.saturating_sub(before)) / since } else { 0.0 };
        let phase = match progress.phase {
            _ if progress.suspended => "suspended",
            Phase::Connecting => "connecting",
            Phase::Ramping => "ramping",
            Phase::Holding => "holding",
            Phase::Ending => "ending",
        };
        let connections = match (progress.standing, progress.target) {
            (standing, target) if standing == target => format!("{standing} connections"),
            (standing, target) => format!("{standing} of {target} connections"),
        };
        let connects = match rate(numbers.established, before.1.established) {
            0.0 => String::new(),
            connects => format!(" (+{connects:.0}/s)"),
        };
        let operations = rate(numbers.operations_ok, before.1.operations_ok);
        let times = match (progress.operation.p50, progress.operation.p99) {
            (Some(p50), Some(p99)) => format!(", p50 {} p99 {}", time(p50), time(p99)),
            _ => String::new(),
        };
        let (elapsed, failed, lost) = (progress.elapsed.as_secs_f64(), numbers.failed + numbers.operations_failed, numbers.lost);
        format!(
            "{elapsed:.1} s: {phase}, {connections}{connects}, {operations:.1} operations/s{times}, {failed} failed, {lost} lost"
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "operations between two lines are far fewer than 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_load::Percentiles;

    #[test]
    fn the_rate_is_that_since_the_last_line() {
        let mut live = Live { on_terminal: true, shown: None, before: Default::default() };
        let at = |milliseconds, operations_ok, established| Progress {
            elapsed: Duration::from_millis(milliseconds),
            target: 4,
            standing: established - 1,
            numbers: Numbers { operations_ok, lost: 1, failed: 2, operations_failed: 2, established, closed: 0 },
            ..Progress::default()
        };
        live.line(&at(500, 100, 4));
        let line = live.line(&at(1000, 400, 4));
        assert_eq!(line, "1.0 s: connecting, 3 of 4 connections, 600.0 operations/s, 4 failed, 1 lost");
        let operation = Percentiles { p50: Some(80.0), p99: Some(1500.0), ..Percentiles::default() };
        let line = live.line(&Progress { phase: Phase::Holding, operation, ..at(1500, 500, 5) });
        assert_eq!(line, "1.5 s: holding, 4 connections (+2/s), 200.0 operations/s, p50 80.0 us p99 1.50 ms, 4 failed, 1 lost");
    }
}
