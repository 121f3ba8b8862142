//! A server is upgraded where only the system calls are allowed that Docker allows, by a user who may do nothing else.

use super::{Scene, free};
use crate::program::{Program, install};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOBODY: &str = "65534";

/// The program under a filter of system calls.
struct Confined {
    folder: PathBuf,
    is_root: bool,
}

impl Confined {
    /// Makes the confinement; the error is the reason why no filter can be had here.
    fn new() -> Result<Confined, String> {
        let folder = free("upgrade-confined");
        std::fs::create_dir_all(&folder).expect("a folder");
        let confined = Confined { folder, is_root: rustix::process::geteuid().is_root() };
        install(Path::new(env!("CARGO_BIN_EXE_sockdrawer")), &confined.path("sockdrawer"));
        std::fs::set_permissions(&confined.folder, PermissionsExt::from_mode(0o777)).expect("its own folder");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/upgrade/confined");
        let calls = std::fs::read_to_string(sources.join("calls")).expect("a list");
        let calls = calls.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
        let each = |call| format!("#ifdef __NR_{call}\nALLOW(__NR_{call})\n#endif\n");
        std::fs::write(confined.path("calls.h"), calls.map(each).collect::<String>()).expect("a file");
        let mut compiler = Command::new("cc");
        compiler.arg("-I").arg(&confined.folder).arg("-o").args([confined.path("confine"), sources.join("confine.c")]);
        let built = compiler.output().map_err(|error| format!("cc: {error}"))?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        // Root may do this, but not under the filter.
        let refused =
            Command::new(confined.path("confine")).args(["/usr/bin/unshare", "--uts", "true"]).output().expect("it was built");
        let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.contains("Operation not permitted"), "{refused}");
        Ok(confined)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the program's command line, as another user where this one may change it.
    fn command(&self) -> Command {
        let (confine, program) = (self.path("confine"), self.path("sockdrawer"));
        let mut command = Command::new(if self.is_root { Path::new("setpriv") } else { &confine });
        if self.is_root {
            command
                .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--bounding-set=-all", "--no-new-privs"])
                .arg(&confine);
        }
        command.arg(program);
        command
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns a line of a process's status.
fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("such a line")
        .split_whitespace()
        .next()
        .expect("a word")
        .to_owned()
}

#[test]
fn it_is_upgraded_under_dockers_list_of_system_calls() {
    let confined = match Confined::new() {
        Ok(confined) => confined,
        Err(why) => return println!("skipped, for want of a filter of system calls: {why}"),
    };
    if !confined.is_root {
        println!("skipped in part: only root becomes user {NOBODY}");
    }
    let mut scene = Scene::of(confined.command(), confined.path("upgrade.sock"), None);
    let upgrades = if std::env::var_os("SOCKDRAWER_LONG").is_some() { 50 } else { 5 };
    for _ in 0..upgrades {
        let mut command = confined.command();
        let told = Program::run({
            command.arg("upgrade").arg(&scene.path);
            command
        });
        let told = told.end();
        assert_eq!(told.code, Some(0), "{told:?}");
        let pid = scene.serves_alone(told.stdout.lines().last().expect("a last line"));
        scene.is_served();
        assert_eq!(status(pid, "Seccomp:"), "2", "a filter");
        assert_eq!(
            status(pid, "Uid:"),
            if confined.is_root { NOBODY.to_owned() } else { rustix::process::getuid().as_raw().to_string() }
        );
    }
    println!("{upgrades} upgrades under the filter: one connection, never lost");
}
