//! The page of a search: how long operations took with each number that was tried, and what stopped more.

use super::document;
use super::plot::{HEIGHT, Plot, WIDTH, Words};
use super::scale::Scale;
use super::tables::{origin, table};
use super::unit::{ChartUnit, escape};
use crate::found::{Found, Try};
use crate::numbers::{float, thousands};
use crate::wall::Wall;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Beyond this ratio of the largest number to the least, the axis has powers of ten.
const WIDE: f64 = 20.0;

/// The whole page.
pub(in crate::results) fn page(found: &Found) -> String {
    let title = title(found);
    let first = found.runs.iter().find_map(|tried| tried.report.as_deref());
    let mut head = format!("<header>\n<p class=\"brand\">sockdrawer find</p>\n<h1>{title}</h1>\n");
    if let Some(first) = first {
        head += &origin(first, &format!("{} tries", found.runs.len()));
    }
    let (answer, class) = (escape(&found.to_string()), if found.complete { "wall well" } else { "early" });
    let _ = writeln!(head, "<p class=\"{class}\">{answer}</p>\n</header>");
    let mut body = String::new();
    if found.runs.iter().any(|tried| p99(tried).is_some()) {
        let _ = write!(body, "<section class=\"charts one\" aria-label=\"Charts\">\n{}</section>\n", curve(found));
    }
    let _ = write!(body, "<section class=\"details one\" aria-label=\"Details\">\n{}</section>\n", tries(found));
    document(&title, &(head + "<main>\n" + &body + "</main>\n"), "")
}

fn title(found: &Found) -> String {
    let of = found.runs.iter().find_map(|tried| tried.report.as_deref()).map_or_else(String::new, |report| {
        format!("{} to {}: ", report.workload, report.target.as_deref().unwrap_or("a server in this program"))
    });
    let amount = found.found.map_or_else(|| "nothing found".to_owned(), |amount| format!("{} {}", thousands(amount), found.unit));
    escape(&(of + &amount))
}

fn p99(tried: &Try) -> Option<f64> {
    tried.report.as_ref()?.latency_us.operation.p99
}

/// Dots for tries, a line through the medians of those that held, an upright for each wall at its least number.
fn curve(found: &Found) -> String {
    let amounts = || found.runs.iter().map(|tried| float(tried.amount));
    let (least, most) = (amounts().fold(f64::INFINITY, f64::min), amounts().fold(0.0, f64::max));
    let x = if most > WIDE * least {
        Scale::logarithmic(ChartUnit::Count, amounts())
    } else {
        Scale::linear(ChartUnit::Count, amounts())
    };
    let y = Scale::logarithmic(ChartUnit::Time, found.runs.iter().filter_map(p99));
    let left = |amount: u64| x.place(float(amount)) * 100.0;
    let mut plot = Plot::default();
    plot.across(&y, ChartUnit::Time);
    x.ticks().into_iter().for_each(|tick| plot.below(x.place(tick), &ChartUnit::Count.short(tick)));
    for (number, (amount, name)) in walls(found).iter().enumerate() {
        let (at, top) = (left(*amount), number * 14);
        let _ = write!(plot.drawn, "<path class=\"limit\" d=\"M{:.1} 0V{HEIGHT}\"/>", at / 100.0 * WIDTH);
        // Beyond the middle it is written on the left of its line.
        let side = if at > 50.0 { format!("right:{:.2}%", 100.0 - at) } else { format!("left:{at:.2}%") };
        let _ = write!(plot.over, "<span class=\"limit\" style=\"{side};top:{top}px\">{}</span>", escape(name));
    }
    let _ = write!(plot.drawn, "<path class=\"line c1\" d=\"{}\"/>", line(found, &x, &y));
    for tried in &found.runs {
        let Some(p99) = p99(tried) else { continue };
        let (class, word) = if tried.held { ("held", "holds") } else { ("failed", "does not hold") };
        let title = format!("{} {}: p99 {}, {word}", thousands(tried.amount), found.unit, ChartUnit::Time.short(p99));
        let (left, bottom) = (left(tried.amount), y.place(p99) * 100.0);
        let _ =
            write!(plot.over, "<i class=\"try {class}\" style=\"left:{left:.2}%;bottom:{bottom:.2}%\" title=\"{title}\"></i>");
    }
    let words = Words {
        title: &format!("p99 of operations by {}", escape(found.unit)),
        note: "Each dot is a try; the line goes through those that hold. Logarithmic axis.",
        legend: "<span class=\"key\"><i class=\"try held\"></i>holds</span>\
                 <span class=\"key\"><i class=\"try failed\"></i>does not hold</span>",
        describe: &escape(&found.to_string()),
        ..Words::default()
    };
    plot.framed(1, &words)
}

/// Returns the least number at which each wall was met, or what else was missed.
fn walls(found: &Found) -> Vec<(u64, String)> {
    let failed = found.runs.iter().filter(|tried| !tried.held);
    let mut failed: Vec<(u64, String)> = failed.map(|tried| (tried.amount, reason(tried))).collect();
    failed.sort();
    let mut names = BTreeSet::new();
    failed.retain(|(_, name)| names.insert(name.clone()));
    failed
}

/// Returns why a try does not hold, in few words.
fn reason(tried: &Try) -> String {
    if let Some(Wall { name, .. }) = &tried.wall {
        return name.clone();
    }
    match tried.thresholds.iter().find(|judgement| !judgement.ok) {
        Some(judgement) => format!("not {}", judgement.expr),
        None => "something failed or was lost".to_owned(),
    }
}

fn line(found: &Found, x: &Scale, y: &Scale) -> String {
    let held = || found.runs.iter().filter(|tried| tried.held);
    let amounts: BTreeSet<u64> = held().map(|tried| tried.amount).collect();
    let mut line = String::new();
    for amount in amounts {
        let times = held().filter(|tried| tried.amount == amount).filter_map(p99).collect();
        let Some(time) = crate::numbers::median(times) else { continue };
        let command = if line.is_empty() { 'M' } else { 'L' };
        let _ = write!(line, "{command}{:.1} {:.1}", x.place(float(amount)) * WIDTH, (1.0 - y.place(time)) * HEIGHT);
    }
    line
}

fn tries(found: &Found) -> String {
    let unknown = || "–".to_owned();
    let row = |tried: &Try| {
        let report = tried.report.as_deref();
        let time = |value: Option<f64>| value.map_or_else(unknown, |value| ChartUnit::Time.short(value));
        let count = |of: fn(&crate::report::Report) -> u64| report.map_or_else(unknown, |report| thousands(of(report)));
        vec![
            thousands(tried.amount),
            if tried.held { "yes" } else { "no" }.to_owned(),
            time(report.and_then(|report| report.latency_us.operation.p50)),
            time(report.and_then(|report| report.latency_us.operation.p99)),
            report.map_or_else(unknown, |report| ChartUnit::Rate.short(report.operations.per_second)),
            count(|report| report.connections.failed + report.operations.failed),
            count(|report| report.connections.lost),
            if tried.held { String::new() } else { reason(tried) },
        ]
    };
    let rows: Vec<_> = found.runs.iter().map(row).collect();
    table("Tries", "", &[found.unit, "holds", "p50", "p99", "operations", "failed", "lost", "limited by"], &rows)
}
