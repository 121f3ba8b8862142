//! The pages of code and constants that this process has mapped.
#![allow(unsafe_code)]

use rustix::mm::{Advice, madvise};
use std::fs::File;
use std::io::{BufRead, BufReader, Result};
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;

/// Lets go of them. What is needed comes back from the file.
pub(crate) fn forget() -> Result<()> {
    for range in unchanged(BufReader::new(File::open("/proc/self/smaps")?))? {
        // SAFETY: a private mapping of a file that cannot be written and has no page of its own holds what the file holds, and is
        // filled with the same again. Refused for memory that is locked, which then stays as it is.
        let _ = unsafe { madvise(with_exposed_provenance_mut(range.start), range.len(), Advice::LinuxDontNeed) };
    }
    Ok(())
}

/// The mappings that hold what their file holds, of smaps(5): private, not writable, and without a page of this process's own, which
/// relocations and a debugger's breakpoints are.
fn unchanged(smaps: impl BufRead) -> Result<Vec<Range<usize>>> {
    let (mut ranges, mut at, mut resident) = (Vec::new(), None, false);
    for line in smaps.lines() {
        let line = line?;
        let mut fields = line.split_ascii_whitespace();
        match (fields.next(), fields.next()) {
            (Some("Rss:"), kib) => resident = kib != Some("0"),
            (Some("Anonymous:"), Some("0")) if resident => ranges.extend(at.take()),
            (Some(name), Some(_)) if name.ends_with(':') => {}
            (Some(range), Some("r--p" | "r-xp")) if fields.nth(2) != Some("0") => at = addresses(range),
            _ => at = None,
        }
    }
    Ok(ranges)
}

fn addresses(range: &str) -> Option<Range<usize>> {
    let (start, end) = range.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(head: &str, rss: u32, anonymous: u32) -> String {
        format!("{head}\nSize: 8 kB\nRss: {rss} kB\nPss: {rss} kB\nAnonymous: {anonymous} kB\nVmFlags: rd ex mr mw me\n")
    }

    #[test]
    fn only_what_the_file_holds_is_let_go() {
        let smaps = [
            mapping("1000-2000 r--p 00000000 fe:00 77    /program", 4, 0),
            mapping("2000-4000 r-xp 00001000 fe:00 77    /program", 8, 0),
            mapping("4000-5000 r--p 00003000 fe:00 77    /program", 4, 4),
            mapping("5000-6000 rw-p 00004000 fe:00 77    /program", 4, 0),
            mapping("6000-7000 r--s 00004000 fe:00 78    /shared", 4, 0),
            mapping("7000-8000 r-xp 00000000 fe:00 79    /never touched", 0, 0),
            mapping("8000-9000 r-xp 00000000 00:00 0     [vdso]", 4, 0),
            mapping("9000-a000 r--p 00000000 00:00 0", 4, 0),
        ];
        assert_eq!(unchanged(smaps.concat().as_bytes()).expect("smaps"), [0x1000..0x2000, 0x2000..0x4000]);
    }

    #[test]
    fn code_comes_back() {
        let resident = || -> usize {
            let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).expect("RssFile");
            line.trim_end_matches("kB").trim().parse().expect("a number")
        };
        let before = resident();
        forget().expect("/proc");
        let after = resident();
        assert!(after < before, "{before} KiB of files were resident, then {after}");
    }
}
