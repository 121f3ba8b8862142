//! Lines on the terminal on standard error that are drawn again and again, in place of each other.

use crate::line::Line;
use crate::{keys, print, terminal};

/// The lines that were drawn last.
#[derive(Debug, Default)]
pub struct Screen {
    /// The columns of each line.
    drawn: Vec<usize>,
    /// The size of the terminal then.
    size: Option<(usize, usize)>,
}

impl Screen {
    /// Makes the terminal ready for the next draw. False: another program has it, and what that shows is not drawn over.
    pub fn is_ours(&mut self, size: (usize, usize), was_stopped: bool) -> bool {
        if !terminal::is_foreground() {
            self.drawn.clear();
            return false;
        }
        // The lines of another program stay: the lines begin below it.
        if terminal::was_left() || was_stopped {
            self.drawn.clear();
        }
        // Lines that were drawn in another size are broken in another way by each terminal.
        if self.size.replace(size).is_some_and(|before| before != size) && !self.drawn.is_empty() {
            self.drawn.clear();
            print::clear(size.1);
        }
        keys::renew();
        true
    }

    /// Draws these lines in place of those before. A terminal that takes nothing now keeps what it shows.
    pub fn draw(&mut self, lines: &[Line]) {
        let text: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        let columns = self.size.map_or(usize::MAX, |(columns, _)| columns);
        if print::draw(self.height(columns), &text) {
            self.drawn = lines.iter().map(|line| line.columns).collect();
        }
    }

    /// Erases the lines: what is written next takes their place.
    pub fn erase(&mut self) {
        if let Some((columns, _)) = terminal::size().filter(|_| !self.drawn.is_empty() && terminal::is_foreground()) {
            print::draw(self.height(columns), &[]);
        }
        self.drawn.clear();
    }

    /// Rows of what was drawn: most terminals break lines again that have become too long.
    fn height(&self, columns: usize) -> usize {
        self.drawn.iter().map(|line| line.div_ceil(columns).max(1)).sum()
    }
}
