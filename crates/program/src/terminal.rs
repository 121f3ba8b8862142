//! The terminal on standard error: how large it is, what it can show, and whether this program has it.

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use std::env;
use std::io::stderr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signs and colours that can be drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// Blocks of Unicode; else signs that every terminal has.
    pub has_blocks: bool,
    /// The eight colours that every terminal has, in the shades that fit its background; never for what the words do not say too.
    pub has_colours: bool,
}

impl Looks {
    /// Returns the looks that the environment says.
    pub fn of_environment() -> Looks {
        Looks::of(|name| env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Looks {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        // The first of them that is set decides, see locale(7).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
        // The console of Linux has no blocks of an eighth.
        let is_console = set("TERM").is_some_and(|terminal| terminal == "linux");
        Looks {
            has_blocks: !is_console && (locale.contains("utf-8") || locale.contains("utf8")),
            // https://no-color.org
            has_colours: set("NO_COLOR").is_none(),
        }
    }
}

/// Columns and rows; None where standard error is no terminal, or one that cannot be drawn on.
pub fn size() -> Option<(usize, usize)> {
    let is_dumb = env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
    size_of(&stderr()).filter(|_| !is_dumb)
}

/// Columns and rows of whatever is open there; None where that is no terminal.
pub fn size_of(terminal: &impl AsFd) -> Option<(usize, usize)> {
    let size = tcgetwinsize(terminal).ok()?;
    // A terminal that nobody told its size says 0.
    let or = |given: u16, unless: usize| if given == 0 { unless } else { usize::from(given) };
    Some((or(size.ws_col, 80), or(size.ws_row, 24)))
}

/// True where something else may have been written since the last draw.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Notes that this program was stopped, and another one wrote meanwhile.
pub fn leave() {
    LEFT.store(true, Ordering::Relaxed);
}

/// Returns whether [`leave`] was called since it was asked for last.
pub fn was_left() -> bool {
    LEFT.swap(false, Ordering::Relaxed)
}

/// Returns whether this program is in the foreground: what it writes from the background is between the lines of another one.
pub fn is_foreground() -> bool {
    tcgetpgrp(stderr()).is_ok_and(|group| group == getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_what_can_be_shown() {
        let looks = |set: &[(&str, &str)]| {
            let Looks { has_blocks, has_colours } =
                Looks::of(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()));
            (has_blocks, has_colours)
        };
        assert_eq!(looks(&[]), (false, true));
        assert_eq!(looks(&[("LANG", "en_GB.UTF-8")]), (true, true));
        assert_eq!(looks(&[("LANG", "en_GB.UTF-8"), ("LC_ALL", "C")]), (false, true));
        assert_eq!(looks(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("NO_COLOR", "1")]), (true, false));
        assert_eq!(looks(&[("LANG", "C.UTF-8"), ("TERM", "linux"), ("NO_COLOR", "")]), (false, true));
    }
}
