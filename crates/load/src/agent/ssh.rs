//! Agents that the system's ssh starts: its configuration, keys and jump hosts apply, and what it checks of hosts it checks.

use super::link::{Link, LinkEnded};
use super::program::{self, FILE};
use super::remote::Remote;
use std::fmt::Write;
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Starts at once: an ssh server turns away what comes in greater numbers before it has authenticated.
const AT_ONCE: usize = 8;
/// Option for the time that ssh has to connect; what it does after that is bounded by [`STARTS_WITHIN`].
const CONNECTS_WITHIN: &str = "ConnectTimeout=10";
const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// ssh says by this exit code that it failed itself, by those of shells a program is not there, or not executable.
const SSH_FAILED: i32 = 255;
const NO_PROGRAM: [i32; 2] = [126, 127];
/// Pauses before another try.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(1_500)];
/// Errors that no other try mends.
const FINAL: [&str; 4] = ["Permission denied", "Host key verification failed", "Could not resolve", "Bad configuration"];

/// A machine that ssh reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name in results.
    pub name: String,
    /// Where, as ssh knows it: `user@host`, or a name of its configuration.
    pub destination: String,
}

/// Settings with which agents are started by ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// The program and its options, as a command line has them.
    pub command: Vec<String>,
    /// The path or name of sockdrawer on the hosts.
    pub program: String,
    /// Copies this program to hosts that do not have it yet, to .cache/sockdrawer in the home directory, and starts that.
    pub push: bool,
}

impl Default for Ssh {
    fn default() -> Ssh {
        Ssh { command: vec!["ssh".to_owned()], program: "sockdrawer".to_owned(), push: false }
    }
}

/// Starts an agent on each host; for each, the agent or why there is none.
pub(super) fn start_all(hosts: &[Host], ssh: &Ssh) -> Vec<Result<Remote, String>> {
    let next = Mutex::new(hosts.iter().enumerate());
    let started = Mutex::new(hosts.iter().map(|_| None).collect::<Vec<_>>());
    let take = || next.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(hosts.len()) {
            // Others start what one that cannot be had would have started.
            let _ = thread::Builder::new().spawn_scoped(scope, || {
                while let Some((number, host)) = take() {
                    let agent = start(host, ssh);
                    if let Ok(mut started) = started.lock() {
                        started[number] = Some(agent);
                    }
                }
            });
        }
    });
    let started = started.into_inner().unwrap_or_default().into_iter();
    started.map(|agent| agent.unwrap_or_else(|| Err("no thread could be started for it".to_owned()))).collect()
}

pub(super) fn start(host: &Host, ssh: &Ssh) -> Result<Remote, String> {
    let program = if ssh.push { push(host, ssh)? } else { ssh.program.clone() };
    // The shell becomes the agent, so that the ssh server is the agent's parent, and nothing stays of it.
    let command = format!("exec {} agent --stdio", quoted(&program));
    let mut pauses = AGAIN.iter();
    loop {
        let link = Link::start(ssh_command(host, ssh, &command), true).map_err(|error| no_ssh(ssh, &error))?;
        let mut remote = Remote::new(host.name.clone(), link);
        if let Some(hello) = remote.hello(STARTS_WITHIN) {
            return program::refuses(&hello).map_or(Ok(remote), Err);
        }
        match pauses.next() {
            Some(pause) if may_pass(remote.ended()) => thread::sleep(*pause),
            _ => return Err(words(remote.ended(), &program)),
        }
    }
}

fn may_pass(ended: &LinkEnded) -> bool {
    let line = ended.line.as_deref().unwrap_or_default();
    ended.code == Some(SSH_FAILED) && !FINAL.iter().any(|what| line.contains(what))
}

/// Returns why there is no agent, and what to do.
fn words(ended: &LinkEnded, program: &str) -> String {
    let line = ended.line.as_deref().unwrap_or_default();
    let remedy = match ended.code {
        Some(code) if NO_PROGRAM.contains(&code) => {
            format!("there is no {program} there that can be run: install it, or --push copies this one")
        }
        Some(SSH_FAILED) if line.contains("Permission denied") => {
            "ssh may not log in without a password: give it a key (ssh-copy-id), or unlock it (ssh-add)".to_owned()
        }
        Some(SSH_FAILED) if line.contains("Host key verification failed") => {
            "ssh does not know the host, or it has another key than before: log in by hand once, and look which".to_owned()
        }
        Some(SSH_FAILED) => "try ssh by hand".to_owned(),
        Some(_) if line.contains("unknown command") => "it is another version of sockdrawer: --push copies this one".to_owned(),
        Some(_) => "no agent began".to_owned(),
        None => format!("no agent answered within {} s", STARTS_WITHIN.as_secs()),
    };
    format!("{ended}: {remedy}")
}

fn ssh_command(host: &Host, ssh: &Ssh, remote: &str) -> Command {
    let mut words = ssh.command.iter();
    let mut command = Command::new(words.next().map_or("ssh", String::as_str));
    command.args(words).args(["-T", "-o", "BatchMode=yes", "-o", CONNECTS_WITHIN, "--", &host.destination, remote]);
    command
}

fn no_ssh(ssh: &Ssh, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}", ssh.command.first().map_or("ssh", String::as_str))
}

/// Copies this program to a host, unless it is there; returns its path. The name has its hash, which an agent tells when it starts.
fn push(host: &Host, ssh: &Ssh) -> Result<String, String> {
    let hash = program::hash();
    let path = format!(".cache/sockdrawer/{hash}");
    let file = || File::open(FILE).map_err(|error| format!("cannot read this program: {error}"));
    let length = file()?.metadata().map_err(|error| format!("cannot read this program: {error}"))?.len();
    let run = |script: &str, input: Stdio| {
        let output = ssh_command(host, ssh, script).stdin(input).output().map_err(|error| no_ssh(ssh, &error))?;
        let line = String::from_utf8_lossy(&output.stderr).trim().lines().last().map(str::to_owned);
        Ok::<_, String>(LinkEnded { code: output.status.code(), signal: None, line })
    };
    let found = run(&format!("test -x {path}"), Stdio::null())?;
    match found.code {
        Some(0) => return Ok(path),
        Some(SSH_FAILED) => return Err(words(&found, &path)),
        _ => {}
    }
    let mut script = String::new();
    // A name of its own for each copy: two programs may copy at once, and each renames a whole one.
    let _ = write!(script, "umask 077; mkdir -p .cache/sockdrawer && t={path}.$$ && cat > $t");
    let _ = write!(script, " && test $(wc -c < $t) -eq {length} && chmod 700 $t && mv $t {path}");
    let copied = run(&script, Stdio::from(file()?))?;
    if copied.code == Some(0) { Ok(path) } else { Err(format!("cannot copy this program there: {copied}")) }
}

/// Quotes the program for a shell. A path that begins with `~/` is of the home directory there.
fn quoted(program: &str) -> String {
    let (home, rest) = program.strip_prefix("~/").map_or(("", program), |rest| ("~/", rest));
    format!("{home}'{}'", rest.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_read_is_quoted() {
        assert_eq!(quoted("sockdrawer"), "'sockdrawer'");
        assert_eq!(quoted("~/bin/it's"), r"~/'bin/it'\''s'");
    }

    #[test]
    fn what_may_pass_is_tried_again_and_the_rest_has_a_remedy() {
        let failure = |code, line: &str| LinkEnded { code: Some(code), signal: None, line: Some(line.to_owned()) };
        let refused = failure(255, "ssh: connect to host x port 22: Connection refused");
        let (denied, unknown) =
            (failure(255, "root@x: Permission denied (publickey)."), failure(255, "Host key verification failed."));
        let missing = failure(127, "bash: line 1: exec: sockdrawer: not found");
        assert_eq!([&refused, &denied, &unknown, &missing].map(may_pass), [true, false, false, false]);
        assert!(words(&denied, "sockdrawer").contains("ssh-copy-id"));
        assert!(words(&unknown, "sockdrawer").contains("log in by hand"));
        assert!(
            words(&missing, "sockdrawer")
                .ends_with("there is no sockdrawer there that can be run: install it, or --push copies this one")
        );
    }
}
