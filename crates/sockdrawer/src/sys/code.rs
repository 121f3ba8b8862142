//! The pages of code and constants that this program has mapped.
#![allow(unsafe_code)]

use super::Result;
use rustix::mm::{Advice, madvise};
use std::ptr::with_exposed_provenance_mut;

/// Lets go of them. What is needed comes back from the file.
pub(crate) fn forget() -> Result<()> {
    for (start, length) in unwritable() {
        // SAFETY: the segments of the program itself that are not writable stay mapped, from its file, as long as it runs; nothing is
        // relocated in them, which is what the writable ones are for. So a page that is let go of is filled with the same again.
        unsafe { madvise(with_exposed_provenance_mut(start), length, Advice::LinuxDontNeed) }?;
    }
    Ok(())
}

/// Where the segments of this program lie that the file has as they are: whole pages. None for one that is not mapped from a file with
/// program headers.
fn unwritable() -> Vec<(usize, usize)> {
    // SAFETY: they read the auxiliary vector, which the kernel filled in.
    let (at, count, page) =
        unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM), libc::getauxval(libc::AT_PAGESZ)) };
    if at == 0 || page == 0 {
        return Vec::new();
    }
    let (at, page) = (at as usize, page as usize);
    // SAFETY: the kernel says that so many headers lie there; they are part of the program's first segment.
    let headers =
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(at), count as usize) };
    let Some(base) = headers.iter().find(|header| header.p_type == libc::PT_PHDR).map(|own| at - own.p_vaddr as usize) else {
        return Vec::new();
    };
    let unwritable = headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0);
    let pages = unwritable.map(|header| {
        let start = (base + header.p_vaddr as usize) & !(page - 1);
        (start, base + (header.p_vaddr + header.p_filesz) as usize - start)
    });
    pages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comes_back() {
        let resident = || -> usize {
            let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).expect("RssFile");
            line.trim_end_matches("kB").trim().parse().expect("a number")
        };
        let before = resident();
        forget().expect("the pages are the program's");
        let after = resident();
        assert!(after < before, "{before} KiB of files were resident, then {after}");
    }

    #[test]
    fn only_what_the_file_holds_is_let_go_of() {
        static mut WRITTEN: u8 = 1;
        let own = unwritable();
        let lies_in = |at: usize| own.iter().any(|(start, length)| (*start..start + length).contains(&at));
        assert!(lies_in(unwritable as *const () as usize) && !lies_in(&raw const WRITTEN as usize), "{own:x?}");
    }
}
