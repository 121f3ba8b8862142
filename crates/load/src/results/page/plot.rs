//! The frame of a chart: a picture with lines at round numbers, what is written beside it, and its words.

use super::scale::Scale;
use super::unit::ChartUnit;
use std::fmt::Write;

/// The picture's own units. It is stretched to the place that the page has; strokes and text are not.
pub(super) const WIDTH: f64 = 1000.0;
pub(super) const HEIGHT: f64 = 300.0;

/// Content of a picture, and what lies over it.
#[derive(Default)]
pub(super) struct Plot {
    pub(super) drawn: String,
    pub(super) over: String,
}

/// Words around a picture, as HTML.
#[derive(Default)]
pub(super) struct Words<'a> {
    pub(super) title: &'a str,
    pub(super) note: &'a str,
    pub(super) legend: &'a str,
    /// Description for readers that do not see it.
    pub(super) describe: &'a str,
    /// Classes and attributes of the whole.
    pub(super) class: &'a str,
    pub(super) attributes: &'a str,
    /// Part below the picture.
    pub(super) below: &'a str,
}

impl Plot {
    /// Draws lines across at the round numbers of the vertical axis.
    pub(super) fn across(&mut self, axis: &Scale, unit: ChartUnit) {
        for tick in axis.ticks() {
            let place = axis.place(tick);
            let _ = write!(self.drawn, "<path class=\"grid\" d=\"M0 {:.1}H{WIDTH}\"/>", (1.0 - place) * HEIGHT);
            let _ = write!(self.over, "<span class=\"y\" style=\"bottom:{:.2}%\">{}</span>", place * 100.0, unit.short(tick));
        }
    }

    /// Writes a number below the horizontal axis, at this part of its length.
    pub(super) fn below(&mut self, part: f64, number: &str) {
        let _ = write!(self.over, "<span class=\"x\" style=\"left:{:.2}%\">{number}</span>", part * 100.0);
    }

    /// Returns the chart as a part of a page, with this number.
    pub(super) fn framed(&self, number: usize, words: &Words<'_>) -> String {
        let Plot { drawn, over } = self;
        let Words { title, note, legend, describe, class, attributes, below } = words;
        format!(
            "<figure class=\"chart{class}\"{attributes} aria-labelledby=\"title{number} text{number}\">\n\
             <figcaption><h3>{title}</h3><p class=\"note\">{note}</p><p class=\"legend\">{legend}</p></figcaption>\n\
             <div class=\"plot\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-labelledby=\"title{number} text{number}\"><title id=\"title{number}\">{title}</title>\
             <desc id=\"text{number}\">{describe}</desc>{drawn}</svg>{over}</div>\n{below}</figure>\n"
        )
    }
}
