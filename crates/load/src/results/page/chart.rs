//! Chart: lines over the time of a run, as a picture that needs no script, and as a table.

use super::plot::{HEIGHT, Plot, WIDTH, Words};
use super::scale::{self, Scale};
use super::unit::{ChartUnit, clock, escape, moment};
use crate::series::{Phase, Sample};
use std::fmt::Write;
use std::ops::Range;

/// Points of a line, at most: about one for each pixel. More are drawn as what they reached, so that no peak is lost.
const POINTS: usize = 480;
/// Rows of a table, at most.
const ROWS: usize = 24;
/// The time that all charts of a page share.
pub(super) struct ChartTimes {
    /// Samples that are one point.
    points: Vec<Range<usize>>,
    /// Moment at which each point ended.
    pub(super) at: Vec<f64>,
    /// The end of the axis.
    pub(super) end: f64,
    /// Stretches in which a run was not about holding its connections: from, to and why.
    phases: Vec<(f64, f64, &'static str)>,
    /// Moments at which it was told something.
    actions: Vec<f64>,
}

impl ChartTimes {
    pub(super) fn of(samples: &[Sample], actions: Vec<f64>) -> ChartTimes {
        let each = samples.len().div_ceil(POINTS).max(1);
        let points: Vec<_> = (0..samples.len()).step_by(each).map(|from| from..(from + each).min(samples.len())).collect();
        let at: Vec<f64> = points.iter().map(|point| samples[point.end - 1].at).collect();
        let end = at.last().copied().unwrap_or(0.0).max(1e-3);
        ChartTimes { points, at, end, phases: phases(samples), actions }
    }

    fn x(&self, at: f64) -> f64 {
        (at / self.end).clamp(0.0, 1.0) * WIDTH
    }
}

fn phases(samples: &[Sample]) -> Vec<(f64, f64, &'static str)> {
    let mut phases: Vec<(f64, f64, &'static str)> = Vec::new();
    let mut from = 0.0;
    for sample in samples {
        let name = match sample.phase {
            Phase::Connecting => "connecting",
            Phase::Ramping => "ramping",
            Phase::Holding => "",
            Phase::Ending => "ending",
        };
        match phases.last_mut() {
            Some((_, to, last)) if *last == name => *to = sample.at,
            _ => phases.push((from, sample.at, name)),
        }
        from = sample.at;
    }
    phases.retain(|(.., name)| !name.is_empty());
    phases
}

/// A line of a chart.
pub(super) struct Line {
    name: String,
    /// Look of the line: the class of its stroke.
    style: String,
    /// The least and the most of each point; None where nothing was measured.
    values: Vec<Option<(f64, f64)>>,
}

impl Line {
    /// Returns the line of what `value` finds in the samples.
    pub(super) fn of(
        times: &ChartTimes,
        samples: &[Sample],
        (name, style): (&str, &str),
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Line {
        let reached = |point: &Range<usize>| {
            let values = samples[point.clone()].iter().filter_map(&value).filter(|value| value.is_finite());
            values.map(|value| (value, value)).reduce(|(low, high), (value, _)| (low.min(value), high.max(value)))
        };
        let values = times.points.iter().map(reached).collect();
        Line { name: name.to_owned(), style: style.to_owned(), values }
    }

    fn most(&self) -> Option<f64> {
        self.values.iter().flatten().map(|(_, high)| *high).reduce(f64::max)
    }
}

/// A chart.
pub(super) struct Chart {
    title: &'static str,
    /// Words that are needed to read the chart.
    note: &'static str,
    unit: ChartUnit,
    is_logarithmic: bool,
    lines: Vec<Line>,
}

impl Chart {
    pub(super) fn linear(title: &'static str, note: &'static str, unit: ChartUnit, lines: Vec<Line>) -> Chart {
        Chart { title, note, unit, is_logarithmic: false, lines }
    }

    pub(super) fn logarithmic(title: &'static str, note: &'static str, unit: ChartUnit, lines: Vec<Line>) -> Chart {
        Chart { is_logarithmic: true, ..Chart::linear(title, note, unit, lines) }
    }

    /// Removes the lines of what was never measured; None where nothing was.
    pub(super) fn measured(mut self) -> Option<Chart> {
        self.lines.retain(|line| line.most().is_some());
        (!self.lines.is_empty()).then_some(self)
    }

    /// Draws the chart as a part of a page, with this number.
    pub(super) fn draw(&self, times: &ChartTimes, number: usize) -> String {
        let values = self.lines.iter().flat_map(|line| line.values.iter().flatten()).flat_map(|(low, high)| [*low, *high]);
        let scale = if self.is_logarithmic { Scale::logarithmic(self.unit, values) } else { Scale::linear(self.unit, values) };
        let axis = if scale.is_logarithmic() { " Logarithmic axis." } else { "" };
        let mut plot = Plot::default();
        grid(&mut plot, times, &scale, self.unit);
        plot.drawn += &self.paths(times, &scale);
        plot.over += "<div class=\"cursor\" hidden></div>";
        let words = Words {
            title: self.title,
            note: &format!("{}{axis}", self.note),
            legend: &self.legend(),
            describe: &self.describe(times),
            class: if times.actions.is_empty() { "" } else { " told" },
            attributes: &format!(" data-unit=\"{}\" tabindex=\"0\"", self.unit.name()),
            below: &format!("<details><summary>Numbers</summary><div class=\"wide\">{}</div></details>\n", self.table(times)),
        };
        plot.framed(number, &words)
    }

    /// Returns the names of the lines, each with the most that it reached: what is shown unless a moment is pointed at.
    fn legend(&self) -> String {
        let mut legend = "<span class=\"when\">peak</span>".to_owned();
        for line in &self.lines {
            let most = line.most().map_or_else(String::new, |most| self.unit.short(most));
            let (name, style) = (escape(&line.name), &line.style);
            let _ = write!(legend, "<span class=\"key {style}\"><i></i>{name}&nbsp;<b>{most}</b></span>");
        }
        legend
    }

    fn paths(&self, times: &ChartTimes, scale: &Scale) -> String {
        let mut paths = String::new();
        for line in &self.lines {
            let path = path(times, scale, line);
            if line.style.contains("area") && !path.is_empty() {
                let (first, last) = (times.x(times.at[0]), WIDTH);
                let _ = write!(paths, "<path class=\"fill {}\" d=\"{path}L{last} {HEIGHT}L{first:.1} {HEIGHT}Z\"/>", line.style);
            }
            let _ = write!(paths, "<path class=\"line {}\" d=\"{path}\"/>", line.style);
        }
        paths
    }

    /// Describes the chart in words, for readers that do not see it.
    fn describe(&self, times: &ChartTimes) -> String {
        let mut text = format!("{} over {}.", self.title, moment(times.end));
        for line in &self.lines {
            let short = |value| self.unit.short(value);
            let last = line.values.iter().rev().flatten().next().map(|(_, high)| short(*high));
            if let (Some(most), Some(last)) = (line.most().map(short), last) {
                let _ = write!(text, " {}: peak {most}, {last} at the end.", escape(&line.name));
            }
        }
        text
    }

    fn table(&self, times: &ChartTimes) -> String {
        let mut table = "<table><thead><tr><th scope=\"col\">time</th>".to_owned();
        for line in &self.lines {
            let _ = write!(table, "<th scope=\"col\">{}</th>", escape(&line.name));
        }
        table += "</tr></thead><tbody>";
        let each = times.at.len().div_ceil(ROWS).max(1);
        // Counted from the end: the last row is the last point.
        for point in (0..times.at.len()).filter(|point| (times.at.len() - 1 - point).is_multiple_of(each)) {
            let _ = write!(table, "<tr><th scope=\"row\">{}</th>", moment(times.at[point]));
            for line in &self.lines {
                let cell = line.values[point].map_or_else(|| "–".to_owned(), |(low, high)| range(self.unit, low, high));
                let _ = write!(table, "<td>{cell}</td>");
            }
            table += "</tr>";
        }
        table + "</tbody></table>"
    }

    /// Returns the numbers that the script of the page reads: the least and, where it is another, the most of each point of each line.
    pub(super) fn numbers(&self) -> serde_json::Value {
        let number = |value: f64| serde_json::Number::from_f64(shortened(value)).into();
        let point = |point: &Option<(f64, f64)>| match point {
            None => serde_json::Value::Null,
            Some((low, high)) if low == high => number(*low),
            Some((low, high)) => serde_json::Value::Array(vec![number(*low), number(*high)]),
        };
        self.lines.iter().map(|line| line.values.iter().map(point).collect::<Vec<_>>()).collect()
    }
}

fn range(unit: ChartUnit, low: f64, high: f64) -> String {
    let (low, high) = (unit.short(low), unit.short(high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// Shortens a value to digits enough that rounding them to three again hardly ever differs from rounding the value, and short in the page.
fn shortened(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

/// Draws a line through all points; up and down where a point has a least and a most. A point without neighbours is a dot.
fn path(times: &ChartTimes, scale: &Scale, line: &Line) -> String {
    let mut path = String::new();
    let mut is_open = false;
    let y = |value| (1.0 - scale.place(value)) * HEIGHT;
    for (at, value) in times.at.iter().zip(&line.values) {
        let Some((low, high)) = value else {
            is_open = false;
            continue;
        };
        let (x, command) = (times.x(*at), if is_open { 'L' } else { 'M' });
        let _ = write!(path, "{command}{x:.1} {:.1}", y(*low));
        match low == high {
            true if !is_open => path += "h0",
            true => {}
            false => drop(write!(path, "V{:.1}", y(*high))),
        }
        is_open = true;
    }
    path
}

/// Draws round numbers, the phases of the run, and its actions: the number of an action is above its line, and the table of actions says what it was.
fn grid(plot: &mut Plot, times: &ChartTimes, scale: &Scale, unit: ChartUnit) {
    for (from, to, name) in &times.phases {
        let (left, right) = (times.x(*from), times.x(*to));
        let width = right - left;
        let _ = write!(plot.drawn, "<rect class=\"phase\" x=\"{left:.1}\" y=\"0\" width=\"{width:.1}\" height=\"{HEIGHT}\"/>");
        if to - from >= times.end * 0.12 {
            let middle = left.midpoint(right) / WIDTH * 100.0;
            let _ = write!(plot.over, "<span class=\"why\" style=\"left:{middle:.2}%\">{name}</span>");
        }
    }
    plot.across(scale, unit);
    let written = if times.end < 100.0 { moment } else { clock };
    for at in [0.0].into_iter().chain(scale::moments(times.end)) {
        plot.below(times.x(at) / WIDTH, &written(at));
    }
    for (number, at) in (1_u32..).zip(&times.actions) {
        let x = times.x(*at);
        let _ = write!(plot.drawn, "<path class=\"action\" d=\"M{x:.1} 0V{HEIGHT}\"/>");
        let _ = write!(plot.over, "<span class=\"flag\" style=\"left:{:.2}%\">{number}</span>", x / WIDTH * 100.0);
    }
}
