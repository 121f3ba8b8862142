//! The curve of percentiles of a whole run, as HdrHistogram draws it: each step to the right is a tenth of what is left.

use super::plot::{HEIGHT, Plot, WIDTH, Words};
use super::scale::Scale;
use super::unit::ChartUnit;
use crate::latency::Latency;
use crate::numbers::{float, thousands};
use std::fmt::Write;

/// Powers of ten of `1 / (1 - quantile)` that the axis has: up to 99.999 %.
const POWERS: f64 = 5.0;
/// Points of a line.
const POINTS: u32 = 200;
/// Percentiles that are written below the axis and in the table.
const WRITTEN: [(&str, f64); 7] =
    [("0", 0.0), ("50", 0.5), ("90", 0.9), ("99", 0.99), ("99.9", 0.999), ("99.99", 0.9999), ("99.999", 0.99999)];
const STYLES: [&str; 3] = ["c1", "c3", "c2"];

/// Returns the part of the axis at which a quantile is.
fn part(quantile: f64) -> f64 {
    (-(1.0 - quantile).log10() / POWERS).clamp(0.0, 1.0)
}

/// Returns the quantile at a part of the axis.
fn quantile(part: f64) -> f64 {
    1.0 - 10_f64.powf(-part * POWERS)
}

/// Returns the part of the axis at which one of them all is left: beyond it only the maximum is known.
fn last(times: &Latency) -> f64 {
    (float(times.count()).log10() / POWERS).clamp(0.0, 1.0)
}

/// Draws the chart as a part of a page, with this number; nothing where nothing was measured.
pub(super) fn draw(times: &[(&str, Latency)], number: usize) -> String {
    let measured: Vec<&(&str, Latency)> = times.iter().filter(|(_, times)| times.count() > 0).collect();
    if measured.is_empty() {
        return String::new();
    }
    let ends = measured.iter().flat_map(|(_, times)| [times.at(0.0), times.at(quantile(last(times)))]).flatten();
    let axis = Scale::logarithmic(ChartUnit::Time, ends.collect::<Vec<f64>>().into_iter());
    let (mut plot, mut legend) = (Plot::default(), String::new());
    plot.across(&axis, ChartUnit::Time);
    for (name, quantile) in WRITTEN {
        plot.below(part(quantile), name);
    }
    for ((name, times), style) in measured.iter().zip(STYLES) {
        let (path, count) = (line(times, &axis), thousands(times.count()));
        let _ = write!(plot.drawn, "<path class=\"line {style}\" d=\"{path}\"/>");
        let _ = write!(legend, "<span class=\"key {style}\"><i></i>{name}&nbsp;<b>{count}</b></span>");
    }
    let words = Words {
        title: "Percentiles of the whole run",
        note: "By percent: so many took no longer. Each line ends where one of them all is left. Both axes are logarithmic.",
        legend: &legend,
        describe: &describe(&measured),
        below: &format!("<details><summary>Numbers</summary><div class=\"wide\">{}</div></details>\n", table(&measured)),
        ..Words::default()
    };
    plot.framed(number, &words)
}

fn line(times: &Latency, axis: &Scale) -> String {
    let (mut line, end) = (String::new(), last(times));
    for point in 0..=POINTS {
        let x = end * f64::from(point) / f64::from(POINTS);
        let Some(time) = times.at(quantile(x)) else { continue };
        let command = if point == 0 { 'M' } else { 'L' };
        let _ = write!(line, "{command}{:.1} {:.1}", x * WIDTH, (1.0 - axis.place(time)) * HEIGHT);
    }
    // A single time is a dot.
    line + "h0"
}

/// Returns the times at the written percentiles, as far as there are any beyond them.
fn written(times: &Latency) -> impl Iterator<Item = Option<String>> {
    let end = last(times);
    WRITTEN.into_iter().map(move |(_, quantile)| {
        let time = times.at(quantile).filter(|_| part(quantile) <= end);
        time.map(|time| ChartUnit::Time.short(time))
    })
}

fn describe(measured: &[&(&str, Latency)]) -> String {
    let mut text = String::new();
    for (name, times) in measured {
        let known = written(times).zip(WRITTEN).filter_map(|(time, (percent, _))| Some(format!("{percent} %: {}", time?)));
        let _ = write!(text, "{name}: {}. ", known.collect::<Vec<_>>().join(", "));
    }
    text.truncate(text.trim_end().len());
    text
}

fn table(measured: &[&(&str, Latency)]) -> String {
    let mut table = "<table><thead><tr><th scope=\"col\"></th>".to_owned();
    WRITTEN.iter().for_each(|(percent, _)| _ = write!(table, "<th scope=\"col\">{percent} %</th>"));
    table += "<th scope=\"col\">max</th></tr></thead><tbody>";
    for (name, times) in measured {
        let _ = write!(table, "<tr><th scope=\"row\">{name}</th>");
        let max = times.at(1.0).map(|time| ChartUnit::Time.short(time));
        for time in written(times).chain([max]) {
            let _ = write!(table, "<td>{}</td>", time.as_deref().unwrap_or("–"));
        }
        table += "</tr>";
    }
    table + "</tbody></table>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_step_to_the_right_is_a_tenth_of_what_is_left() {
        let parts = [0.0, 0.9, 0.99, 0.999, 0.9999, 0.99999].map(part);
        for (step, part) in parts.into_iter().enumerate() {
            assert!((part - 0.2 * float(step as u64)).abs() < 1e-9, "{part}");
            assert!((super::part(quantile(part)) - part).abs() < 1e-9);
        }
    }

    #[test]
    fn a_line_ends_where_one_is_left_and_rises_by_the_times() {
        let mut times = Latency::new();
        times.record_many(Duration::from_millis(2), 990);
        times.record_many(Duration::from_millis(50), 10);
        let shown = draw(&[("operation", times), ("connect", Latency::new())], 1);
        let (_, path) = shown.split_once("<path class=\"line c1\" d=\"M0.0 254.8").expect("it begins at the least");
        let (path, _) = path.split_once('"').expect("its end");
        assert!(path.ends_with("L600.0 45.1h0"), "of 1,000 one is left at 99.9 %: {path}");
        assert_eq!(path.matches('L').count(), POINTS as usize);
        assert!(
            shown.contains("operation: 0 %: 2 ms, 50 %: 2 ms, 90 %: 2 ms, 99 %: 2 ms, 99.9 %: 50 ms.")
                && !shown.contains("connect"),
            "{shown}"
        );
        assert!(draw(&[("operation", Latency::new())], 1).is_empty());
    }
}
