//! The control socket is for the user of the program, and root.

use super::activated::folder;
use crate::program::Program;
use rustix::process::Signal;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;

/// Its file keeps others out, and the program too, where the file does not.
#[test]
fn another_user_is_refused_by_the_file_and_by_name() {
    let has_curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !rustix::process::geteuid().is_root() || !has_curl {
        println!("skipped: needs root, to be another user, and curl");
        return;
    }
    let folder = folder("users");
    set_permissions(&folder, Permissions::from_mode(0o755)).expect("it is the test's");
    let path = folder.join("control");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command.args(["serve", "ping", "-l", "127.0.0.1:0", "--control"]).arg(&path);
    let mut server = Program::run(command);
    server.line();
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let ask = |uid: u32| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--unix-socket"]).arg(&path).args([
            "--write-out",
            "%{http_code}",
            "http://s/healthz",
        ]);
        let output = curl.uid(uid).gid(uid).current_dir("/").output().expect("it starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(ask(0), "ok\n200");
    assert!(!ask(NOBODY).contains("may not use"), "it is not connected");
    set_permissions(&path, Permissions::from_mode(0o666)).expect("it is the test's");
    let told = ask(NOBODY);
    assert!(told.contains("nobody (uid 65534) may not use this control socket") && told.ends_with("403"), "{told}");
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
    std::fs::remove_dir_all(folder).expect("it is the test's");
}
