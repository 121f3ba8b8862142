//! The page of a trial by a command: for how long no connect led to an answer, over the time of the trial, and what each change lost.

use super::document;
use super::plot::{HEIGHT, Plot, WIDTH, Words};
use super::scale::{Scale, moments};
use super::tables::table;
use super::unit::{ChartUnit, clock, escape, moment};
use crate::numbers::thousands;
use std::fmt::Write;

/// Rows of the table, at most: those of the longest gaps, and of all losses.
const ROWS: usize = 200;

/// Content of the page.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// Title of the page: what was tried.
    pub title: String,
    /// The command that made the changes.
    pub command: String,
    /// The last line of the trial.
    pub verdict: String,
    /// Nothing was lost.
    pub is_good: bool,
    /// Length of the trial, in seconds.
    pub seconds: f64,
    /// Changes, in the order in which they were made.
    pub changes: Vec<Gap>,
}

/// Change of a trial.
#[derive(Clone, Debug)]
pub struct Gap {
    /// Moment at which it began, in seconds.
    pub at: f64,
    /// The longest time until the next change in which no connect led to an answer, in microseconds.
    pub us: f64,
    /// Time that its command took, in microseconds.
    pub took_us: f64,
    /// End of its command, in words.
    pub exit: String,
    /// Connects that ended before the next change.
    pub connects: u64,
    /// Connects that failed.
    pub failed: u64,
    /// Connections that stay, and were lost.
    pub lost: u64,
    /// Connections that stay, and were closed while idle, as the server may.
    pub closed: u64,
}

/// The whole page.
pub(in crate::results) fn page(gaps: &Gaps) -> String {
    let title = escape(&gaps.title);
    let class = if gaps.is_good { "wall well" } else { "early" };
    let head = format!(
        "<header>\n<p class=\"brand\">sockdrawer trial</p>\n<h1>{title}</h1>\n<p class=\"of\"><span>{} changes in {}</span></p>\n\
         <pre class=\"command\">{}</pre>\n<p class=\"{class}\">{}</p>\n</header>",
        thousands(gaps.changes.len() as u64),
        clock(gaps.seconds),
        escape(&gaps.command),
        escape(&gaps.verdict),
    );
    let chart = format!("<section class=\"charts one\" aria-label=\"Charts\">\n{}</section>\n", chart(gaps));
    let changes = format!("<section class=\"details one\" aria-label=\"Details\">\n{}</section>\n", changes(gaps));
    document(&title, &format!("{head}<main>\n{chart}{changes}</main>\n"), "")
}

/// Draws a line from the axis up to the gap of each change; a dot on it where something failed or was lost.
fn chart(gaps: &Gaps) -> String {
    let y = Scale::logarithmic(ChartUnit::Time, gaps.changes.iter().map(|change| change.us));
    let end = gaps.seconds.max(gaps.changes.last().map_or(0.0, |change| change.at)).max(1e-3);
    let mut plot = Plot::default();
    plot.across(&y, ChartUnit::Time);
    moments(end).into_iter().for_each(|tick| plot.below(tick / end, &moment(tick)));
    let mut line = String::new();
    for (number, change) in (1_u64..).zip(&gaps.changes) {
        let (x, place) = (change.at / end, y.place(change.us));
        let _ = write!(line, "M{:.1} {HEIGHT}V{:.1}", x * WIDTH, (1.0 - place) * HEIGHT);
        if change.failed + change.lost > 0 {
            let (failed, lost, gap) = (change.failed, change.lost, ChartUnit::Time.short(change.us));
            let title = format!("change {number}: gap {gap}, {failed} failed, {lost} lost");
            let (left, bottom) = (x * 100.0, place * 100.0);
            let _ =
                write!(plot.over, "<i class=\"try failed\" style=\"left:{left:.2}%;bottom:{bottom:.2}%\" title=\"{title}\"></i>");
        }
    }
    let most = gaps.changes.iter().map(|change| change.us).fold(0.0, f64::max);
    let _ = write!(plot.drawn, "<path class=\"line c1\" d=\"{line}\"/>");
    let words = Words {
        title: "Gaps",
        note: "Of each change, the longest time until the next in which no connect led to an answer. Logarithmic axis.",
        legend: "<span class=\"key\"><i class=\"try failed\"></i>something failed or was lost</span>",
        describe: &format!("The longest gap was {}.", ChartUnit::Time.short(most)),
        ..Words::default()
    };
    plot.framed(1, &words)
}

fn changes(gaps: &Gaps) -> String {
    let mut shown: Vec<(u64, &Gap)> = (1..).zip(&gaps.changes).collect();
    shown.sort_by(|(_, one), (_, other)| {
        (other.failed + other.lost, other.us).partial_cmp(&(one.failed + one.lost, one.us)).expect("numbers")
    });
    shown.truncate(ROWS);
    shown.sort_by_key(|(number, _)| *number);
    let row = |(number, change): &(u64, &Gap)| {
        vec![
            thousands(*number),
            moment(change.at),
            change.exit.clone(),
            ChartUnit::Time.short(change.took_us),
            ChartUnit::Time.short(change.us),
            thousands(change.connects),
            thousands(change.failed),
            thousands(change.lost),
            thousands(change.closed),
        ]
    };
    let rows: Vec<_> = shown.iter().map(row).collect();
    let title = if gaps.changes.len() > ROWS { "The worst changes" } else { "Changes" };
    table(title, "", &["change", "at", "exit", "took", "gap", "connects", "failed", "lost", "closed idle"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_gap_of_each_change_and_marks_what_was_lost() {
        let gap = |at: f64, us: f64, lost| Gap {
            at,
            us,
            took_us: 5_000.0,
            exit: "0".to_owned(),
            connects: 100,
            failed: 0,
            lost,
            closed: 7,
        };
        let gaps = Gaps {
            title: "http to <here>".to_owned(),
            command: "reload && true".to_owned(),
            verdict: "verdict: bad".to_owned(),
            is_good: false,
            seconds: 8.0,
            changes: vec![gap(0.0, 1_500.0, 0), gap(2.0, 250_000.0, 3), gap(4.0, 900.0, 0)],
        };
        let page = page(&gaps);
        assert!(page.contains("http to &lt;here&gt;") && page.contains("reload &amp;&amp; true"), "{page}");
        assert_eq!(page.matches("class=\"try failed\" style").count(), 1, "{page}");
        assert!(
            page.contains("change 2: gap 250 ms, 0 failed, 3 lost") && page.contains("The longest gap was 250 ms."),
            "{page}"
        );
        assert_eq!(page.matches(&format!(" {HEIGHT}V")).count(), 3, "a line for each change");
        let many = Gaps { changes: (0..1_000).map(|number| gap(f64::from(number), 10.0, 0)).collect(), ..gaps };
        assert!(super::page(&many).contains("The worst changes"));
    }
}
