//! Socket activation, and what a service manager is told, by the protocols of systemd and by its own programs.

mod activated;
mod manager;
mod packaged;
mod users;

use std::process::{Command, Stdio};

/// Returns whether a program of systemd is there: `ci/long systemd` requires it.
fn is_there(program: &str) -> bool {
    let runs = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = runs.is_ok_and(|status| status.success());
    assert!(is_there || std::env::var_os("SOCKDRAWER_LONG").is_none(), "{program} is missing: apt-get install systemd");
    if !is_there {
        println!("skipped: {program} is missing: apt-get install systemd");
    }
    is_there
}
