//! The page of a run, to be looked at: one file that needs nothing else, no network and no script. A script adds what is read at the
//! pointer.

mod chart;
mod charts;
mod curve;
mod gaps;
mod percentiles;
mod plot;
mod scale;
mod tables;
mod unit;

pub(super) use curve::page as search;
pub(super) use gaps::page as trial;
pub use gaps::{Gap, Gaps};

use super::recorded::Recorded;
use chart::ChartTimes;
use serde_json::json;

/// Policy of the page: nothing is loaded, and no address is known where anything could be.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Returns the whole page.
pub(super) fn page(run: &Recorded) -> String {
    let actions = run.report.as_ref().map(|report| report.actions.iter().map(|action| action.at).collect()).unwrap_or_default();
    let times = ChartTimes::of(&run.samples, actions);
    let charts = charts::charts(&times, &run.samples);
    let title = tables::title(run);
    let mut drawn = percentiles::draw(&run.times, 0);
    for (number, chart) in (1..).zip(&charts) {
        drawn += &chart.draw(&times, number);
    }
    if charts.is_empty() {
        drawn += "<p>The run was over before its first second was: there is nothing to draw.</p>";
    }
    let numbers =
        json!({"at": times.at, "end": times.end, "charts": charts.iter().map(chart::Chart::numbers).collect::<Vec<_>>()});
    // In a script, only this could be taken for its end.
    let numbers = numbers.to_string().replace('<', "\\u003c");
    let (summary, details) = (tables::summary(run), tables::details(run));
    let body =
        format!("{summary}<main>\n<section class=\"charts\" aria-label=\"Charts\">\n{drawn}</section>\n{details}</main>\n");
    let script = format!("<script type=\"application/json\" id=\"numbers\">{numbers}</script>\n<script>\n{SCRIPT}</script>\n");
    document(&title, &body, &script)
}

/// Returns a page that loads nothing.
fn document(title: &str, body: &str, script: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}{script}</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests;
