//! The program's own file in its memory: code and constants.
#![allow(unsafe_code)]

use rustix::mm::{Advice, madvise};
use std::ffi::{c_int, c_void};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;

/// Lets go of its pages. What runs next comes back from the file, most of what ran at the start does not. Nothing happens where the
/// system does not tell of them.
pub(crate) fn release() {
    // Of all that is mapped from files this alone stays where it is whatever other threads do meanwhile.
    let own = constant_segments();
    let Ok(maps) = std::fs::File::open("/proc/self/smaps") else { return };
    for part in unchanged(BufReader::new(maps), &own) {
        // SAFETY: a segment of the program that cannot be written and of which no page is another than in the file: what is let go of
        // is read again from there as soon as somebody wants it. What is locked in memory stays.
        let _ = unsafe { madvise(with_exposed_provenance_mut(part.start), part.len(), Advice::LinuxDontNeed) };
    }
}

/// Where the parts of the program are that it cannot write.
fn constant_segments() -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    // SAFETY: the function is called before this returns, with the address of the list.
    unsafe { libc::dl_iterate_phdr(Some(of_program), (&raw mut found).cast()) };
    found
}

/// Called by dl_iterate_phdr(3) for the first that is loaded.
///
/// # Safety
/// `object` describes it, and `found` is the address of a list that nobody else uses meanwhile.
unsafe extern "C" fn of_program(object: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    let (object, found) = unsafe { (&*object, &mut *found.cast::<Vec<Range<usize>>>()) };
    if object.dlpi_phdr.is_null() {
        return 1;
    }
    // SAFETY: they are a part of what is loaded.
    let segments = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    for segment in segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W == 0) {
        let start = object.dlpi_addr.wrapping_add(segment.p_vaddr) as usize;
        found.push(start..start + segment.p_memsz as usize);
    }
    // The program comes first, and no library is wanted.
    1
}

/// The mappings of smaps, see proc(5), that have some of `own` and are still as the file is. Pages differ that were relocated before
/// they became constant, and those in which a debugger or a probe has put something.
fn unchanged(maps: impl BufRead, own: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut found, mut mapping) = (Vec::new(), None);
    for line in maps.split(b'\n').map_while(std::io::Result::ok) {
        // A path may have any bytes.
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(range), Some("r--p" | "r-xp")) => mapping = parse(range),
            (Some("Anonymous:" | "Swap:"), Some(size)) if size != "0" => mapping = None,
            // Huge pages that somebody reserved are changed without being anonymous.
            (Some("VmFlags:"), first) => {
                let reserved = first.into_iter().chain(words).any(|flag| flag == "ht");
                found.extend(mapping.take().filter(|_| !reserved));
            }
            _ => {}
        }
    }
    found.retain(|mapping| own.iter().any(|own| own.start < mapping.end && mapping.start < own.end));
    found
}

fn parse(range: &str) -> Option<Range<usize>> {
    let (start, end) = range.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_or_can_be_is_kept() {
        let mapping = |range: &str, rights: &str, anonymous: u32, swap: u32| {
            let flags = if range.starts_with("a000") { "rd ht" } else { "rd mr" };
            format!(
                "{range} {rights} 00000000 fe:00 7 /a program\nRss: 8 kB\nAnonymous: {anonymous} kB\nSwap: {swap} kB\nVmFlags: {flags}\n"
            )
        };
        let maps = [
            mapping("1000-3000", "r--p", 0, 0),
            mapping("3000-5000", "r-xp", 0, 0),
            mapping("5000-6000", "r--p", 4, 0),
            mapping("6000-7000", "r-xp", 0, 4),
            mapping("7000-8000", "rw-p", 0, 0),
            mapping("8000-9000", "r--s", 0, 0),
            mapping("9000-a000", "r--p", 0, 0),
            mapping("a000-b000", "r-xp", 0, 0),
        ];
        assert_eq!(
            unchanged(maps.concat().as_bytes(), &[0x1040..0x3000, 0x3040..0x8ff0, 0xa000..0xb000]),
            [0x1000..0x3000, 0x3000..0x5000]
        );
        assert_eq!(unchanged("what is this".as_bytes(), &[0x1000..0x9000, 0x9000..0xa000]), []);
    }

    #[test]
    fn a_program_runs_on_without_its_pages() {
        let own = constant_segments();
        let here = (release as *const ()).addr();
        assert!(own.iter().any(|own| own.contains(&here)), "{own:x?}");
        for _ in 0..10 {
            release();
        }
    }
}
