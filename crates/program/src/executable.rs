//! Looks for a program before it is needed, so that a misspelled one is told at once and not by every connection that ends.

use crate::outcome::Failure;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The folders in which execvp(3) of the GNU C library looks when there is no PATH.
const UNLESS_SET: &str = "/bin:/usr/bin";

/// Finds it as execvp(3) does: a name with a slash is a path, any other is looked for in PATH.
pub fn find(program: &OsStr) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| UNLESS_SET.into());
    find_in(program, &path)
}

fn find_in(program: &OsStr, path: &OsStr) -> Result<(), Failure> {
    let name = program.display();
    if program.as_encoded_bytes().contains(&b'/') {
        return check(Path::new(program))
            .map_err(|reason| Failure::usage(format_args!("cannot run `{name}`: {reason}; name a program that exists")));
    }
    // An empty name would find the folders themselves; an empty folder is the working directory.
    let places: Vec<PathBuf> = std::env::split_paths(path).map(|folder| Path::new(".").join(folder).join(program)).collect();
    if !program.is_empty() && places.iter().any(|place| check(place).is_ok()) {
        return Ok(());
    }
    Err(Failure::usage(format_args!("no program `{name}` in PATH: check its name, or give its path")))
}

/// Checks that it is a file that may be run, by some user at least: which ones may, the kernel decides.
fn check(place: &Path) -> Result<(), String> {
    let found = std::fs::metadata(place).map_err(|error| error.to_string())?;
    match found {
        found if !found.is_file() => Err("it is no file".to_owned()),
        found if found.permissions().mode() & 0o111 == 0 => Err("it is not executable".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(program: &str, path: &str) -> Result<(), String> {
        find_in(OsStr::new(program), OsStr::new(path)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_name_is_looked_for_in_path_and_a_path_is_not() {
        assert_eq!(found("sh", "/nowhere:/bin"), Ok(()));
        assert_eq!(found("/bin/sh", ""), Ok(()));
        for (program, path) in [("sh", "/nowhere"), ("", "/bin"), ("no-such-program", "/bin:/usr/bin")] {
            let why = found(program, path).expect_err(program);
            assert!(why.contains(&format!("no program `{program}` in PATH")), "{why}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_told_with_the_reason() {
        for (program, reason) in
            [("/no/such/program", "No such file"), ("/bin/", "it is no file"), ("/proc/self/status", "it is not executable")]
        {
            let why = found(program, "/bin").expect_err(program);
            assert!(why.contains(&format!("cannot run `{program}`: {reason}")), "{why}");
        }
    }
}
