//! Tables for people: columns that are aligned, and that fit a terminal.

use sockdrawer_catalog::count::thousands;
use std::time::Duration;

/// Number of columns between two columns of a table.
const GAP: usize = 2;
/// No column of text is cut to less.
const LEAST: usize = 8;

/// A table that may be written in parts: columns only grow.
pub(crate) struct Table {
    columns: Vec<String>,
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
    /// The head is written before the first rows.
    begun: bool,
}

impl Table {
    /// Makes a table of these columns. Numbers stand at the right of a column whose name begins with `>`.
    pub(crate) fn new<S: AsRef<str>>(columns: &[S]) -> Table {
        let columns: Vec<String> = columns.iter().map(|name| plain(name.as_ref())).collect();
        let widths = columns.iter().map(|name| title(name).chars().count()).collect();
        Table { columns, widths, rows: Vec::new(), begun: false }
    }

    /// Adds a row. What a terminal would obey is shown as `?`: peers choose tags.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| plain(&cell)).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Rows that are not written yet.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the lines of the rows since the last call, in so many columns if they are too wide; the head is above the first ones.
    pub(crate) fn lines(&mut self, room: Option<usize>) -> Vec<String> {
        let widths = self.fitting(room.unwrap_or(usize::MAX));
        let head =
            (!std::mem::replace(&mut self.begun, true)).then(|| self.columns.iter().map(|name| title(name).to_owned()).collect());
        head.into_iter().chain(self.rows.drain(..)).map(|row: Vec<String>| line(&self.columns, &widths, &row)).collect()
    }

    /// Makes the widest columns of text narrower, as far as it is needed.
    fn fitting(&self, room: usize) -> Vec<usize> {
        let mut widths = self.widths.clone();
        while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > room {
            let of_text = (0..widths.len()).filter(|&index| is_text(&self.columns[index]) && widths[index] > LEAST);
            let Some(widest) = of_text.max_by_key(|&index| widths[index]) else { break };
            widths[widest] -= 1;
        }
        widths
    }
}

fn title(name: &str) -> &str {
    name.strip_prefix('>').unwrap_or(name)
}

fn is_text(name: &str) -> bool {
    !name.starts_with('>')
}

fn line(columns: &[String], widths: &[usize], row: &[String]) -> String {
    let mut line = String::new();
    for ((name, &width), cell) in columns.iter().zip(widths).zip(row) {
        let fits = cell.chars().count() <= width;
        let cell = if fits { cell.clone() } else { cell.chars().take(width.saturating_sub(2)).chain("..".chars()).collect() };
        line += &if is_text(name) { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        line += &" ".repeat(GAP);
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns text that came from elsewhere as a terminal may have it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { '?' } else { sign }).collect()
}

/// Returns a number of things, with commas.
pub(crate) fn count(value: u64) -> String {
    thousands(value)
}

/// Returns bytes in the unit in which people read them: k is 1,024.
pub(crate) fn bytes(bytes: f64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("k", 10)];
    match units.into_iter().find(|(_, bits)| bytes >= f64::from(*bits).exp2()) {
        Some((unit, bits)) => format!("{:.1} {unit}B", bytes / f64::from(bits).exp2()),
        None => format!("{bytes:.0} B"),
    }
}

/// Returns an age in its two largest units.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_grow_but_never_shrink() {
        let mut table = Table::new(&["NAME", ">COUNT", "WHY"]);
        table.row(["a".to_owned(), "1,000".to_owned(), "x".to_owned()]);
        assert_eq!(table.lines(None), ["NAME  COUNT  WHY", "a     1,000  x"]);
        table.row(["longer".to_owned(), "7".to_owned(), "\u{1b}[31mred\n".to_owned()]);
        assert_eq!(table.lines(None), ["longer      7  ?[31mred?"], "the head is written once");
    }

    #[test]
    fn text_is_cut_where_a_terminal_is_narrow_and_numbers_are_not() {
        let mut table = Table::new(&["ADDRESS", ">BYTES", "STATE"]);
        table.row(["unix:/run/a-long-name/of.sock".to_owned(), "1,234,567,890".to_owned(), "suspended".to_owned()]);
        let lines = table.lines(Some(40));
        assert_eq!(lines[1], "unix:/run/a-..  1,234,567,890  suspended");
        table.row(["x".repeat(50), "1,234,567,890".to_owned(), "suspended".to_owned()]);
        assert!(table.lines(Some(10))[0].contains("1,234,567,890"), "it is as narrow as it can be");
    }

    #[test]
    fn ages_and_bytes_have_units() {
        let ages = [5, 65, 3_700, 90_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["5s", "1m 5s", "1h 1m", "1d 1h"]);
        assert_eq!([0.0, 1_023.0, 1_024.0, 5e6, 3e12].map(bytes), ["0 B", "1023 B", "1.0 kB", "4.8 MB", "2.7 TB"]);
    }
}
