//! Progress of a run, on standard error: a panel that is drawn again and again on a terminal, a line each second elsewhere.

use crate::panel::{Line, Panel, per_second, phase};
use crate::screen::Screen;
use crate::terminal::{self, Looks};
use crate::{keys, print};
use sockdrawer_load::{Progress, Sample, thousands, time};
use std::collections::VecDeque;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Maximum time between two draws. After a longer one this program was stopped, and another one wrote meanwhile.
const LONG: Duration = Duration::from_secs(3);

/// Display of the progress of a run.
pub(crate) struct Live {
    panel: Panel,
    looks: Looks,
    screen: Screen,
    /// The second of the last line.
    shown: u64,
    /// Times at which so many operations had ended well, of the last second and the reading before it.
    readings: VecDeque<(Duration, u64)>,
}

impl Live {
    /// Makes the display of a run with this title, which ends after so many operations.
    pub(crate) fn new(title: String, operations: Option<u64>, has_keys: bool) -> Live {
        let mut panel = Panel::new(title, operations);
        panel.keys = has_keys.then_some(keys::HELP);
        let looks = Looks::of_environment();
        Live { panel, looks, screen: Screen::default(), shown: 0, readings: [Default::default()].into() }
    }

    /// Shows where the run is; the engine calls it twice a second.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let Some(size) = terminal::size() else {
            let second = progress.elapsed.as_secs();
            if second > std::mem::replace(&mut self.shown, second) {
                let rate = self.rate(progress);
                print::tell_within(Duration::ZERO, line(progress, rate));
            }
            return;
        };
        // A signal to go on is no sign: timeout(1) sends it to what was never stopped.
        let before = self.readings.back().map_or(Duration::ZERO, |(at, _)| *at);
        if !self.screen.is_ours(size, progress.elapsed.saturating_sub(before) > LONG) {
            return;
        }
        let rate = self.rate(progress);
        let lines = self.panel.draw(progress, rate, size, self.looks);
        let lines = lines.unwrap_or_else(|| vec![Line::of(self.looks, size.0, &line(progress, rate))]);
        self.screen.draw(&lines);
    }

    /// Notes that a second is over.
    pub(crate) fn sample(&mut self, sample: &Sample) {
        self.panel.see(sample);
    }

    /// Writes a line that stays, above the panel.
    pub(crate) fn note(&mut self, text: impl std::fmt::Display) {
        self.screen.erase();
        print::tell_within(Duration::ZERO, text);
    }

    /// Erases the panel: what follows takes its place.
    pub(crate) fn end(mut self) {
        self.screen.erase();
    }

    /// Operations per second, of the last second at least: a reading of a busy machine is a moment late, which in less time would be seen.
    fn rate(&mut self, progress: &Progress) -> f64 {
        let (now, operations) = (progress.elapsed, progress.numbers.operations_ok);
        self.readings.push_back((now, operations));
        while self.readings.get(1).is_some_and(|next| next.0 + SECOND <= now) {
            self.readings.pop_front();
        }
        let (since, before) = self.readings[0];
        let stretch = now.saturating_sub(since).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "operations between two lines are far fewer than 2^53")]
        let operations = (operations - before) as f64;
        if stretch > 0.0 { operations / stretch } else { 0.0 }
    }
}

/// Returns all of the progress in one line.
fn line(progress: &Progress, rate: f64) -> String {
    let numbers = &progress.numbers;
    let connections = match (progress.standing, progress.target) {
        (standing, target) if standing == target => thousands(standing),
        (standing, target) => format!("{} of {}", thousands(standing), thousands(target)),
    };
    let mut line = format!("{} s {}, {connections} open, {}", progress.elapsed.as_secs(), phase(progress).0, per_second(rate));
    if let (Some(p50), Some(p99)) = (progress.operation.p50, progress.operation.p99) {
        line += &format!(", p50 {}, p99 {}", time(p50), time(p99));
    }
    let failed = numbers.failed + numbers.operations_failed;
    for (count, what) in [(failed, "failed"), (numbers.lost, "lost"), (progress.reconnected, "reconnected")] {
        if count > 0 {
            line += &format!(", {} {what}", thousands(count));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_load::{Numbers, Percentiles, Phase};

    #[test]
    fn the_rate_is_that_of_the_last_second_at_least() {
        let mut live = Live::new(String::new(), None, false);
        let at = |milliseconds, operations_ok, established| Progress {
            elapsed: Duration::from_millis(milliseconds),
            target: 4,
            standing: established - 1,
            numbers: Numbers { operations_ok, lost: 1, failed: 2, operations_failed: 2, established, closed: 0 },
            ..Progress::default()
        };
        live.rate(&at(500, 100, 4));
        let next = at(1000, 400, 4);
        let rate = live.rate(&next);
        assert_eq!(line(&next, rate), "1 s connecting, 3 of 4 open, 400/s, 4 failed, 1 lost");
        let operation = Percentiles { p50: Some(80.0), p99: Some(1500.0), ..Percentiles::default() };
        let next = Progress { phase: Phase::Holding, operation, reconnected: 1_234, ..at(3500, 405, 5) };
        let rate = live.rate(&next);
        assert_eq!(
            line(&next, rate),
            "3 s holding, 4 open, 2.0/s, p50 80.0 us, p99 1.50 ms, 4 failed, 1 lost, 1,234 reconnected"
        );
    }
}
