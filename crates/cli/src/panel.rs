//! The picture of a run that goes on: a panel of as many lines as the terminal has room for, made anew at each draw.

pub(crate) use sockdrawer_program::line::{Line, Style, per_second};

use crate::terminal::Looks;
use sockdrawer_load::{Errors, Phase, Progress, Sample, cause, thousands, time};
use sockdrawer_program::line::levels;
use std::collections::VecDeque;
use std::time::Duration;

/// Seconds that a chart shows, where the run is so long and the terminal wide enough.
const LONG: u64 = 60;
/// Seconds that are remembered: what a terminal of many columns has room for.
const SECONDS: usize = 180;
/// Columns of a second, at most.
const WIDEST: usize = 8;
/// Columns of the names before the values.
const NAMES: usize = 13;
/// Minimum size of a terminal that has place for a panel, in columns and in rows.
const LEAST_COLUMNS: usize = 40;
const LEAST_ROWS: usize = 12;

/// A second of the run.
#[derive(Clone, Copy, Default)]
struct Second {
    operations: f64,
    p50: Option<f64>,
    p99: Option<f64>,
}

/// Panel that shows a run.
pub(crate) struct Panel {
    title: String,
    /// Number of operations after which the run ends.
    operations: Option<u64>,
    /// The keys that change it, where there are any.
    pub(crate) keys: Option<&'static str>,
    seconds: VecDeque<Second>,
    errors: Vec<Errors>,
    /// Columns of the values: they never become fewer, so that nothing jumps.
    values: usize,
}

/// Number of lines of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    of_a_chart: usize,
    errors: usize,
    has_axis: bool,
}

impl Rows {
    /// Returns the rows for a terminal. Half of a small terminal stays for what was there before, most of a large one is used.
    fn of(rows: usize) -> Rows {
        let (errors, has_axis) = match rows {
            ..16 => (1, false),
            16..24 => (3, false),
            24..40 => (3, true),
            _ => (6, true),
        };
        let others = 5 + errors + usize::from(has_axis);
        Rows { of_a_chart: (rows.saturating_sub(others + 5) / 3).clamp(1, 7), errors, has_axis }
    }
}

impl Panel {
    pub(crate) fn new(title: String, operations: Option<u64>) -> Panel {
        Panel { title, operations, keys: None, seconds: VecDeque::new(), errors: Vec::new(), values: 12 }
    }

    /// Takes a second more.
    pub(crate) fn see(&mut self, sample: &Sample) {
        let operation = &sample.latency_us.operation;
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(Second { operations: sample.per_second.operations, p50: operation.p50, p99: operation.p99 });
        self.errors.clone_from(&sample.errors);
        self.errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    }

    /// Draws all lines; `rate` is that of operations now. None: there is no room.
    pub(crate) fn draw(
        &mut self,
        progress: &Progress,
        rate: f64,
        (columns, rows): (usize, usize),
        looks: Looks,
    ) -> Option<Vec<Line>> {
        if columns < LEAST_COLUMNS || rows < LEAST_ROWS {
            return None;
        }
        let rows = Rows::of(rows);
        let now = self.now(progress, rate);
        self.values = now.iter().map(|value| value.chars().count()).fold(self.values, usize::max);
        let mut canvas = Canvas { looks, columns, values: self.values, second: 1 };
        // A run that is short has room for wide seconds.
        let seconds = progress.ends.map_or(LONG, |ends| ends.as_secs().clamp(1, LONG));
        canvas.second = (canvas.room() / usize::try_from(seconds).unwrap_or(1)).clamp(1, WIDEST);
        let [clock, open, operations, p50, p99] = now;
        let mut lines = vec![
            self.title(progress, canvas),
            canvas.bar("time", &clock, self.part(progress)),
            canvas.bar("open", &open, Some(part(progress.standing, progress.target))),
        ];
        let times = &progress.operation;
        let charts: [(&str, String, Option<f64>, Reading, Written); 3] = [
            ("operations", operations, Some(rate), |second| Some(second.operations), per_second),
            ("p50", p50, times.p50, |second| second.p50, time),
            ("p99", p99, times.p99, |second| second.p99, time),
        ];
        for (name, value, now, reading, written) in charts {
            let newest = self.seconds.iter().rev().take(canvas.seconds()).map(reading).collect::<Vec<_>>();
            let most = newest.iter().copied().chain([now]).flatten().fold(0.0, f64::max);
            lines.extend(canvas.chart((name, &value), (&newest, most), rows.of_a_chart, written));
        }
        if rows.has_axis {
            lines.push(canvas.axis(self.seconds.len().min(canvas.seconds())));
        }
        lines.push(canvas.failed(progress));
        lines.extend((0..rows.errors).map(|row| canvas.error(self.errors.get(row))));
        lines.extend(self.keys.map(|keys| canvas.line().add(Style::Dim, keys)));
        Some(lines)
    }

    fn title(&self, progress: &Progress, canvas: Canvas) -> Line {
        let (word, style) = phase(progress);
        let place = (canvas.columns - 1).saturating_sub(word.len());
        let title: String = self.title.chars().take(place.saturating_sub(2)).collect();
        canvas.line().add(Style::Bold, &title).blank_to(place).add(style, word)
    }

    /// Returns the values of the rows.
    fn now(&self, progress: &Progress, rate: f64) -> [String; 5] {
        let operation = &progress.operation;
        let known = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), time);
        let elapsed = clock(progress.elapsed);
        let done = match (progress.ends, self.part(progress)) {
            (Some(ends), _) => format!("{elapsed} of {}", clock(ends)),
            (None, Some(part)) => format!("{elapsed}, {:.0} %", 100.0 * part),
            (None, None) => elapsed,
        };
        [
            done,
            format!("{} of {}", thousands(progress.standing), thousands(progress.target)),
            per_second(rate),
            known(operation.p50),
            known(operation.p99),
        ]
    }

    /// Returns how far the run is: by its time or its operations, whichever is further. None: it has no end.
    fn part(&self, progress: &Progress) -> Option<f64> {
        let of_time = progress.ends.map(|ends| progress.elapsed.as_secs_f64() / ends.as_secs_f64().max(1e-9));
        let done = progress.numbers.operations_ok + progress.numbers.operations_failed;
        let of_operations = self.operations.map(|all| part(done, all));
        of_time.into_iter().chain(of_operations).reduce(f64::max)
    }
}

type Reading = fn(&Second) -> Option<f64>;
type Written = fn(f64) -> String;

/// Returns the phase of a run, in a word.
pub(crate) fn phase(progress: &Progress) -> (&'static str, Style) {
    match progress.phase {
        Phase::Ending => ("ending", Style::Yellow),
        _ if progress.suspended => ("suspended", Style::Yellow),
        Phase::Connecting => ("connecting", Style::Cyan),
        Phase::Ramping => ("ramping", Style::Cyan),
        Phase::Holding => ("holding", Style::Green),
    }
}

/// Place where lines are drawn: names, values, and the room to their right.
#[derive(Clone, Copy)]
struct Canvas {
    looks: Looks,
    columns: usize,
    values: usize,
    /// Columns of a second in the charts.
    second: usize,
}

impl Canvas {
    fn line(self) -> Line {
        Line::new(self.looks, self.columns)
    }

    /// Returns the number of columns for bars and charts.
    fn room(self) -> usize {
        (self.columns - 1).saturating_sub(self.left())
    }

    /// Returns the number of seconds that fit into a chart.
    fn seconds(self) -> usize {
        self.room() / self.second
    }

    fn left(self) -> usize {
        NAMES + self.values + 2
    }

    fn named(self, (name, of_name): (&str, Style), (value, of_value): (&str, Style)) -> Line {
        let line = self.line().add(of_name, name);
        line.blank_to((NAMES + self.values).saturating_sub(value.chars().count())).add(of_value, value).blank_to(self.left())
    }

    fn bar(self, name: &str, value: &str, part: Option<f64>) -> Line {
        let line = self.named((name, Style::Plain), (value, Style::Bold));
        let Some(part) = part else { return line };
        let (full, free) = self.looks.bar();
        let filled = levels(part, 1.0, self.room());
        line.add(Style::Cyan, &full.repeat(filled)).add(Style::Dim, &free.repeat(self.room() - filled))
    }

    /// Draws the last seconds, the newest first, and the most of them and of now.
    fn chart(
        self,
        (name, value): (&str, &str),
        (newest, most): (&[Option<f64>], f64),
        rows: usize,
        written: Written,
    ) -> Vec<Line> {
        let cells = self.looks.cells();
        let each = cells.len() - 1;
        // Something stays free, so that a chart does not touch the one above it.
        let level = |second: &Option<f64>| second.map_or(0, |second| levels(second, most, (each * rows).saturating_sub(1)));
        let levels: Vec<usize> =
            newest.iter().rev().map(level).flat_map(|level| std::iter::repeat_n(level, self.second)).collect();
        let row = |row: usize| {
            let line = match row {
                0 => self.named((name, Style::Plain), (value, Style::Bold)),
                1 if most > 0.0 => self.named(("", Style::Plain), (&format!("max {}", written(most)), Style::Dim)),
                _ => self.line().blank_to(self.left()),
            };
            let below = each * (rows - 1 - row);
            let drawn: String = levels.iter().map(|level| cells[level.saturating_sub(below).min(each)]).collect();
            line.add(Style::Cyan, drawn.trim_end())
        };
        (0..rows).map(row).collect()
    }

    /// Returns the line that says what the columns of the charts are.
    fn axis(self, seconds: usize) -> Line {
        let line = self.line().blank_to(self.left());
        if seconds == 0 {
            return line;
        }
        let last = "now";
        let line = line.add(Style::Dim, &format!("{seconds} s ago "));
        line.blank_to((self.left() + seconds * self.second).saturating_sub(last.len())).add(Style::Dim, last)
    }

    fn failed(self, progress: &Progress) -> Line {
        let numbers = &progress.numbers;
        let bad = |count: u64| if count > 0 { Style::Red } else { Style::Bold };
        let failed = numbers.failed + numbers.operations_failed;
        let line = self.named(("failed", Style::Plain), (&thousands(failed), bad(failed)));
        let line = line.add(Style::Plain, "lost ").add(bad(numbers.lost), &thousands(numbers.lost));
        match progress.reconnected {
            0 => line,
            count => line.add(Style::Plain, "  reconnected ").add(Style::Bold, &thousands(count)),
        }
    }

    fn error(self, error: Option<&Errors>) -> Line {
        let Some(Errors { phase, errno, count, .. }) = error else { return self.line() };
        let line = self.line().add(Style::Red, &format!("{:>11}", thousands(*count)));
        let line = line.blank_to(NAMES).add(Style::Plain, &format!("{phase} {errno}"));
        let why = cause(phase, errno, None).map_or_else(String::new, |cause| format!("  {}", cause.why));
        let room = line.left();
        line.add(Style::Dim, &whole_words(&why, room))
    }
}

/// Returns as many words as fit, with dots where some are missing.
fn whole_words(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let fits: String = text.chars().take(columns.saturating_sub(3)).collect();
    fits.rsplit_once(' ').map_or_else(String::new, |(words, _)| format!("{words} .."))
}

fn part(count: u64, of: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a part is shown in a hundred columns")]
    let [count, of] = [count, of.max(1)].map(|count| count as f64);
    (count / of).min(1.0)
}

/// Minutes and seconds, and hours where there are any.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_load::Numbers;

    const LOOKS: Looks = Looks { has_blocks: true, has_colours: true };

    fn panel() -> Panel {
        let mut panel = Panel::new("load ping unix:/tmp/\u{1b}[31m漢\n.sock".to_owned() + &"x".repeat(300), None);
        panel.keys = Some("q stop");
        let error = |phase: &'static str, errno: &str, count| Errors {
            phase: phase.into(),
            errno: errno.to_owned(),
            count,
            first: None,
            last: None,
        };
        for second in 1..=200_u32 {
            let mut sample = Sample::default();
            sample.per_second.operations = f64::from(second);
            sample.latency_us.operation.p99 = (second % 7 != 0).then(|| f64::from(second % 50) * 1e6);
            sample.errors = vec![error("answer", "EOF", 1), error("connect", "ETIMEDOUT", 1_234_567)];
            panel.see(&sample);
        }
        panel
    }

    fn progress() -> Progress {
        Progress {
            elapsed: Duration::from_secs(3_725),
            ends: Some(Duration::from_secs(7_200)),
            phase: Phase::Ramping,
            target: 1_000_000,
            standing: 999_999,
            numbers: Numbers { failed: 1_234_568, lost: 5, ..Numbers::default() },
            ..Progress::default()
        }
    }

    fn draw(size: (usize, usize), looks: Looks) -> Vec<Line> {
        panel().draw(&progress(), 19_575.4, size, looks).unwrap_or_else(|| panic!("{size:?} has room"))
    }

    #[test]
    fn it_fits_into_every_terminal_that_has_room() {
        for columns in [40, 60, 79, 80, 81, 120, 200, 400] {
            for rows in [12, 15, 16, 20, 23, 24, 25, 39, 40, 50, 100] {
                let lines = draw((columns, rows), LOOKS);
                // Two more are the cursor's, and that of what was asked for.
                assert!(lines.len() + 2 <= rows, "{} lines in {columns}x{rows}", lines.len());
                let widest = lines.iter().map(|line| line.columns).max();
                assert!(widest < Some(columns), "{widest:?} columns in {columns}x{rows}");
            }
        }
        assert!(
            panel().draw(&progress(), 0.0, (39, 24), LOOKS).is_none()
                && panel().draw(&progress(), 0.0, (80, 11), LOOKS).is_none()
        );
    }

    #[test]
    fn all_of_it_is_there() {
        let lines: Vec<String> =
            draw((80, 24), Looks { has_colours: false, ..LOOKS }).into_iter().map(|line| line.text).collect();
        let text = lines.join("\n");
        for part in
            ["ramping", "1:02:05 of 2:00:00", "999,999 of 1,000,000", "19,575/s", "1,234,568", "connect ETIMEDOUT", "q stop"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let place = |part: &str| lines.iter().position(|line| line.contains(part));
        assert!(place("connect ETIMEDOUT") < place("answer EOF"), "the most frequent comes first:\n{text}");
        assert!(!text.contains("\u{1b}[3") && text.contains('━') && text.contains('▇'), "{text}");
    }

    #[test]
    fn what_is_now_is_no_more_than_the_most() {
        let looks = Looks { has_colours: false, ..LOOKS };
        let operation = sockdrawer_load::Percentiles { p99: Some(9e7), ..Default::default() };
        let progress = Progress { operation, reconnected: 7_000, ..progress() };
        let lines = panel().draw(&progress, 300.0, (80, 40), looks).expect("there is room");
        let text = lines.into_iter().map(|line| line.text).collect::<Vec<_>>().join("\n");
        for part in ["max 300/s", "max 90.00 s", "reconnected", "7,000"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_plain_terminal_gets_plain_signs_and_nothing_that_moves_the_cursor() {
        let lines = draw((80, 24), Looks { has_blocks: false, has_colours: false });
        for line in lines {
            let plain = line.text.replace("\u{1b}[1m", "").replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
            assert!(plain.chars().all(|sign| sign == ' ' || sign.is_ascii_graphic()), "{plain:?}");
            assert_eq!(plain.len(), line.columns);
        }
    }

    #[test]
    fn a_cause_that_is_too_long_ends_with_a_word() {
        assert_eq!(whole_words("  no such page", 14), "  no such page");
        assert_eq!([whole_words("  no such page", 13), whole_words("  no such page", 9)], ["  no such ..", "  no .."]);
        assert_eq!(whole_words("  page", 3), "");
    }

    #[test]
    fn no_value_is_above_its_maximum() {
        let mut progress = progress();
        progress.operation.p99 = Some(77e6);
        let lines = panel().draw(&progress, 20_000.0, (80, 24), Looks { has_colours: false, ..LOOKS }).expect("it has room");
        let text = lines.into_iter().map(|line| line.text + "\n").collect::<String>();
        assert!(text.contains("max 20,000/s") && text.contains("max 77.00 s"), "{text}");
    }

    #[test]
    fn a_chart_is_as_high_as_its_largest_value() {
        let canvas = Canvas { looks: LOOKS, columns: 80, values: 12, second: 2 };
        let rows = canvas.chart(("p50", "1"), (&[None, Some(0.001), Some(10.0)], 10.0), 2, time);
        let drawn: Vec<String> = rows.iter().map(|line| line.text.replace("\u{1b}[36m", "").replace("\u{1b}[0m", "")).collect();
        assert!(drawn[0].ends_with("  ▇▇") && drawn[1].ends_with("██▁▁"), "{drawn:?}");
        assert_eq!([levels(0.0, 9.0, 8), levels(1e-9, 9.0, 8), levels(9.0, 9.0, 8), levels(5.0, 0.0, 8)], [0, 1, 8, 0]);
    }
}
