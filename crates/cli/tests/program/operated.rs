//! A server with a configuration file and a control socket, in a folder of its own.

use crate::parent::serving;
use crate::program::{End, Program};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use sockdrawer_operate::client::{Answer, Client};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A server that is operated. One with an upgrade has it at `upgrade` in the folder.
pub(crate) struct Operated {
    pub(crate) folder: PathBuf,
    server: Option<Program>,
    /// Addresses where its pools listen, in the order in which it told.
    pub(crate) addresses: Vec<String>,
}

/// Two pools at free ports.
pub(crate) const TWO_POOLS: &str = "[pool.echo]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\nlimit = 1000\ndrain = \"5s\"\n\n\
    [pool.ping]\nprotocol = \"ping\"\nlisten = \"127.0.0.1:0\"\n";

impl Operated {
    /// Starts it with this file, to which the path of the control socket is added.
    pub(crate) fn start(name: &str, file: &str) -> Operated {
        Operated::logging(name, file, "none", |_| {})
    }

    /// Starts the server as [`Operated::start`] does, with a log in JSON, and with what is put into its folder first.
    pub(crate) fn told(name: &str, file: &str, first: impl FnOnce(&Operated)) -> Operated {
        Operated::logging(name, file, "json", first)
    }

    fn logging(name: &str, file: &str, log: &str, first: impl FnOnce(&Operated)) -> Operated {
        let folder = std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder of temporary files takes it");
        let mut operated = Operated { folder, server: None, addresses: Vec::new() };
        operated.write(file);
        first(&operated);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
        // Names of files in its configuration are those of its folder.
        command.args(["serve", "--log", log, "--config", "a.toml"]).current_dir(&operated.folder);
        command.env("SOCKDRAWER_SEALED", operated.path("sealed"));
        let mut server = Program::run(command);
        let pools = file.matches("[pool.").count();
        operated.addresses = (0..pools).map(|_| server.line().strip_prefix("listening on ").expect("where").to_owned()).collect();
        operated.server = Some(server);
        operated
    }

    /// Returns where it listens besides, as it tells next: a pool at several addresses tells of each.
    pub(crate) fn next_address(&mut self) -> String {
        let server = self.server.as_mut().expect("it runs");
        server.line().strip_prefix("listening on ").expect("where").to_owned()
    }

    /// Returns the next of these events in its log.
    pub(crate) fn event(&mut self, kinds: &[&str]) -> Value {
        let server = self.server.as_mut().expect("it runs");
        loop {
            let line = server.error_line();
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            if event["event"].as_str().is_some_and(|kind| kinds.contains(&kind)) {
                return event;
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("text").to_owned()
    }

    /// Writes its configuration file.
    pub(crate) fn write(&self, file: &str) {
        fs::write(self.path("a.toml"), format!("control = \"{}\"\n{file}", self.path("c.sock"))).expect("the folder takes it");
    }

    /// Returns the command `sockdrawer ctl` with these words.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
        command
            .arg("ctl")
            .args(words.split_whitespace())
            .env("SOCKDRAWER_CONTROL", self.path("c.sock"))
            .current_dir(&self.folder);
        command
    }

    /// Runs `sockdrawer ctl` with these words until its end.
    pub(crate) fn ctl(&self, words: &str) -> End {
        let output = self.command(words).stdin(Stdio::null()).output().expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("it prints text");
        End { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Returns what `ctl` prints where all is well.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> String {
        let end = self.ctl(words);
        assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{words}: {}", end.stdout);
        end.stdout
    }

    /// Returns what the server shows to Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let mut client = Client::at(self.path("c.sock"));
        client.send("GET", "/metrics", &[], b"").and_then(Answer::text).expect("an answer")
    }

    /// Returns the server's end after SIGTERM.
    pub(crate) fn end(mut self) -> End {
        let server = self.server.take().expect("it runs");
        server.signal(Signal::TERM);
        server.end()
    }

    /// Returns the process that was started first.
    pub(crate) fn pid(&self) -> u32 {
        self.server.as_ref().expect("it runs").child.id()
    }

    /// Checks that no key of TLS sealed two records of one number, in any of its processes: each entry is a key's hash and a number. The file is
    /// there in debug builds.
    fn sealed_once(&self) {
        let Ok(entries) = fs::read(self.path("sealed")) else { return };
        let mut all = std::collections::HashSet::new();
        let twice: Vec<_> = entries.chunks(24).filter(|entry| !all.insert(*entry)).collect();
        assert!(twice.is_empty(), "{} of {} records were sealed again with their key and number", twice.len(), all.len());
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.server.as_ref().expect("it runs").signal(signal);
    }

    /// Waits for the end of the process alone: a new build has its output.
    pub(crate) fn was_replaced(mut self) {
        let (mut server, until) = (self.server.take().expect("it runs"), Instant::now() + Duration::from_secs(20));
        while server.child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < until, "the process that was replaced goes on");
            std::thread::yield_now();
        }
    }

    /// Waits for its end, which was asked for.
    pub(crate) fn has_ended(mut self) -> End {
        self.server.take().expect("it runs").end()
    }
}

impl Drop for Operated {
    fn drop(&mut self) {
        drop(self.server.take());
        // A process that has taken over is no child. Killed, it would be replaced by one before it.
        let upgrade = self.folder.join("upgrade");
        if upgrade.exists() {
            serving(&upgrade).into_iter().for_each(|pid| _ = kill_process(pid, Signal::TERM));
        }
        if !std::thread::panicking() {
            self.sealed_once();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
