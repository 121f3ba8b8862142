//! Lines of a screen: as wide as the terminal, in its colours, with the signs that it can show.

use crate::terminal::Looks;
use sockdrawer_catalog::count::thousands;

/// The style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text as the terminal shows it.
    Plain,
    /// Bold.
    Bold,
    /// Text that is less visible than the rest.
    Dim,
    /// Bold, and red where there are colours.
    Red,
    /// Bold, and green where there are colours.
    Green,
    /// Bold, and yellow where there are colours.
    Yellow,
    /// Cyan, or bold where there are no colours.
    Cyan,
}

impl Style {
    /// Returns the code of a style. Bold, dim and colours are set in one go; None: as it comes.
    fn code(self, looks: Looks) -> Option<&'static str> {
        match self {
            Style::Plain => None,
            Style::Dim => Some("2"),
            Style::Bold => Some("1"),
            _ if !looks.has_colours => Some("1"),
            Style::Red => Some("1;31"),
            Style::Green => Some("1;32"),
            Style::Yellow => Some("1;33"),
            Style::Cyan => Some("36"),
        }
    }
}

/// A line that ends where the terminal does.
#[derive(Debug)]
pub struct Line {
    looks: Looks,
    room: usize,
    /// Text with escape sequences.
    pub text: String,
    /// Columns that it takes.
    pub columns: usize,
}

impl Line {
    /// Makes a line that has nothing yet, for a terminal of so many columns: the last one stays free, because what a terminal does there differs.
    pub fn new(looks: Looks, columns: usize) -> Line {
        Line { looks, room: columns.saturating_sub(1), text: String::new(), columns: 0 }
    }

    /// Makes a line of plain text.
    pub fn of(looks: Looks, columns: usize, text: &str) -> Line {
        Line::new(looks, columns).add(Style::Plain, text)
    }

    /// Adds text, as far as there is room for it.
    pub fn add(mut self, style: Style, text: &str) -> Line {
        let left = self.room - self.columns;
        let shown: String = text.chars().take(left).map(|sign| self.looks.shown(sign)).collect();
        self.columns += shown.chars().count();
        match style.code(self.looks) {
            Some(code) if !shown.is_empty() => self.text += &format!("\x1b[{code}m{shown}\x1b[0m"),
            _ => self.text += &shown,
        }
        self
    }

    /// Adds blanks up to this column.
    pub fn blank_to(self, column: usize) -> Line {
        let blanks = column.saturating_sub(self.columns);
        self.add(Style::Plain, &" ".repeat(blanks))
    }

    /// Columns that are left.
    pub fn left(&self) -> usize {
        self.room.saturating_sub(self.columns)
    }
}

impl Looks {
    /// Replaces a sign that takes no column, two of them, or cannot be shown: it would move what follows it.
    fn shown(self, sign: char) -> char {
        let is_wide = sign >= '\u{1100}' && !('\u{2000}'..'\u{2700}').contains(&sign);
        if sign.is_control() || is_wide || (!sign.is_ascii() && !self.has_blocks) { '?' } else { sign }
    }

    /// Returns the signs from nothing to a full cell.
    pub fn cells(self) -> &'static [char] {
        if self.has_blocks { &[' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] } else { &[' ', '.', '-', '=', '#'] }
    }

    /// Returns the signs of a bar: full and free.
    pub fn bar(self) -> (&'static str, &'static str) {
        if self.has_blocks { ("━", "─") } else { ("#", "-") }
    }
}

/// Returns the level of `of` levels that a value reaches; at least 1 if it is not nothing.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a terminal is small")]
pub fn levels(value: f64, most: f64, of: usize) -> usize {
    if value <= 0.0 || most <= 0.0 {
        return 0;
    }
    ((value / most * of as f64).round() as usize).clamp(1, of)
}

/// Returns a rate as it fits into a column.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is not negative, and far below 2^53")]
pub fn per_second(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{}/s", thousands(rate.round() as u64)) }
}
