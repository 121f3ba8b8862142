//! The CPUs that a process may use: loops and processes are as many, unless they are given.

use crate::program::Program;
use rustix::process::Signal;
use serde_json::Value;
use sockdrawer_operate::client::Client;
use std::path::PathBuf;
use std::process::Command;

/// Make the files that a machine with cgroups has, in a namespace of mounts, and what the kernel says of this process.
const OF_V2: &str = "mount -t tmpfs none /run; mount -t tmpfs none /sys/fs/cgroup; cd /sys/fs/cgroup; mkdir -p a/b/c; \
    touch cgroup.controllers a/cgroup.controllers a/b/cgroup.controllers a/b/c/cgroup.controllers; \
    echo 0::/a/b/c >/run/group; mount --bind /run/group /proc/$$/cgroup";
const OF_V1: &str = "mount -t tmpfs none /run; mount -t tmpfs none /sys/fs/cgroup; mkdir -p /sys/fs/cgroup/cpu/a/b/c; \
    cd /sys/fs/cgroup/cpu; echo 4:cpu:/a/b/c >/run/group; mount --bind /run/group /proc/$$/cgroup";

/// Starts a server as this script of a shell, and returns the numbers of its loops and processes.
fn started(name: &str, script: &str, model: &str) -> [usize; 2] {
    let folder = std::env::temp_dir().join(format!("sockdrawer-quota-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let control: PathBuf = folder.join("c");
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-ec",
        &format!("{script}\nexec \"$0\" \"$@\""),
        env!("CARGO_BIN_EXE_sockdrawer"),
        "serve",
        "ping",
    ]);
    command.args(["-l", "127.0.0.1:0", "--model", model, "--control"]).arg(&control);
    let mut server = Program::run(command);
    let line = server.line();
    assert!(line.starts_with("listening on "), "{name}: {line:?} {:?}", server.end());
    let status = Client::at(&control).send("GET", "/status", &[], b"").expect("an answer").text().expect("text");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let pool = &status["pools"]["serve"];
    let count = |of: &str| pool[of].as_array().map_or(0, Vec::len);
    let counted = [count("loops"), count("processes")];
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0), "{name}");
    std::fs::remove_dir_all(folder).expect("it is there");
    counted
}

fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/sys/fs/cgroup"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}

#[test]
fn loops_and_processes_are_as_many_as_the_nearest_quota_allows() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 || !may_mount() {
        eprintln!("skipped: one CPU, or this user may not make a namespace of mounts");
        return;
    }
    let v1 = |at: &str, cpus: &str| format!("echo {cpus} >{at}cpu.cfs_quota_us; echo 100000 >{at}cpu.cfs_period_us");
    for (name, script, expected) in [
        ("none", String::new(), cpus),
        ("affinity", "taskset -p -c \"$(taskset -p -c $$ | sed 's/.*: //; s/[-,].*//')\" $$ >/dev/null".to_owned(), 1),
        ("v2-unlimited", format!("{OF_V2}\necho max 100000 >a/b/c/cpu.max"), cpus),
        ("v2-own", format!("{OF_V2}\necho 100000 100000 >a/b/c/cpu.max"), 1),
        ("v2-above", format!("{OF_V2}\necho 100000 100000 >a/cpu.max\necho max 100000 >a/b/c/cpu.max"), 1),
        ("v2-half", format!("{OF_V2}\necho 50000 100000 >a/b/cpu.max"), 1),
        ("v1-unlimited", format!("{OF_V1}\n{}", v1("a/b/c/", "-1")), cpus),
        ("v1-own", format!("{OF_V1}\n{}", v1("a/b/c/", "100000")), 1),
        ("v1-above", format!("{OF_V1}\n{}\n{}", v1("a/", "100000"), v1("a/b/c/", "-1")), 1),
    ] {
        assert_eq!(started(name, &script, "loops")[0], expected, "{name}: loops");
        assert_eq!(started(name, &script, "prefork")[1], expected, "{name}: processes");
    }
}
