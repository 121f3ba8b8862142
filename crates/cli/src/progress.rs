//! How a run is going, on standard error: a line that is rewritten on a terminal, now and then a line elsewhere.

use crate::print;
use sockdrawer_load::Progress;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// Between two lines where they stay: in a log, two a second would be noise.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// What is shown.
pub(crate) struct Live {
    on_terminal: bool,
    shown: Option<Duration>,
    before: (Duration, u64),
}

impl Live {
    pub(crate) fn new() -> Live {
        Live { on_terminal: stderr().is_terminal(), shown: None, before: (Duration::ZERO, 0) }
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

    /// The rate is that since the last line.
    #[expect(clippy::cast_precision_loss, reason = "operations between two lines are far fewer than 2^53")]
    fn line(&mut self, progress: &Progress) -> String {
        let numbers = &progress.numbers;
        let (at, done) = std::mem::replace(&mut self.before, (progress.elapsed, numbers.operations_ok));
        let since = progress.elapsed.saturating_sub(at).as_secs_f64();
        let rate = if since > 0.0 { numbers.operations_ok.saturating_sub(done) as f64 / since } else { 0.0 };
        let failed = numbers.failed + numbers.operations_failed;
        let (elapsed, standing) = (progress.elapsed.as_secs_f64(), progress.standing);
        let (operations, lost) = (numbers.operations_ok, numbers.lost);
        format!("{elapsed:.1} s: {standing} connections, {operations} operations, {rate:.1}/s, {failed} failed, {lost} lost")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_load::Numbers;

    #[test]
    fn the_rate_is_that_since_the_last_line() {
        let mut live = Live { on_terminal: true, shown: None, before: (Duration::ZERO, 0) };
        let at = |milliseconds, operations_ok| Progress {
            elapsed: Duration::from_millis(milliseconds),
            standing: 3,
            numbers: Numbers { operations_ok, lost: 1, failed: 2, operations_failed: 2, established: 4, closed: 1 },
        };
        live.line(&at(500, 100));
        assert_eq!(live.line(&at(1000, 400)), "1.0 s: 3 connections, 400 operations, 600.0/s, 4 failed, 1 lost");
    }
}
