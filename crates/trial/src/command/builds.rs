//! Two builds of a program that replace each other under the clients of a trial, and are killed while they do.

use super::preflight::Refused;
use super::shell::{Ended, Output, Promise, Ran, TICK, WITHIN, ends};
use super::victim::{Victim, children};
use crate::{Random, Stopped};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open, set_child_subreaper, test_kill_process,
    wait,
};
use sockdrawer::upgrade::{Replace, Replaced, leaves_behind};
use sockdrawer::{Address, Error};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time that a build has until it serves.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// The time that the last build has to end in order.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// The time between two looks at what tells of no change.
const LOOK: Duration = Duration::from_millis(2);
/// The reason of a change after which the last build was started again.
const NONE_SERVES: &str = "no build served any more, and the last one was started again";
/// The time that an upgrade is taken to need until one has shown how long.
const AT_FIRST: Duration = Duration::from_millis(300);

/// Builds of a program, two of them, and how both are started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The programs: the trial begins with the first.
    pub builds: [PathBuf; 2],
    /// The arguments of both, without the program.
    pub arguments: Vec<OsString>,
    /// The path at which they meet, [`Upgrade::at`](sockdrawer::Upgrade::at). None: `--upgrade PATH` is added to the arguments.
    pub path: Option<PathBuf>,
    /// The names of pools that are not for clients.
    pub not_for_clients: Vec<String>,
    /// The number of upgrades that are left alone.
    pub upgrades: u64,
    /// The number of upgrades in which one of the two processes is killed, half of them the old one.
    pub kills: u64,
    /// The seed of their order and of the moments of kills.
    pub seed: u64,
}

/// A change of the build that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Upgrade,
    KillOld,
    KillNew,
}

/// The change in which the new build takes over from itself.
pub(crate) const NEW_AGAIN: &str = "new again";

/// A process has one set of children: tests that run at once take turns.
static TURN: Mutex<()> = Mutex::new(());

/// The processes of a program whose builds replace each other. All of them end with it. Another waits until this one is dropped.
pub struct Builds {
    _turn: MutexGuard<'static, ()>,
    programs: Programs,
    path: PathBuf,
    folder: PathBuf,
    output: Output,
    /// The length of the output that is in the report.
    told: u64,
    target: Address,
    steps: Vec<Step>,
    random: Random,
    /// The build that serves, and its process once it does.
    serving: (usize, Option<Pid>),
    /// All processes, with their builds: an older one may serve again after a kill.
    started: Vec<(Pid, usize)>,
    /// Processes that this trial has killed.
    killed: Vec<Pid>,
    /// Processes that died by a signal of their own, a line each.
    deaths: Vec<String>,
    /// Processes that have ended in this change, and how.
    ended: Vec<(Pid, WaitStatus)>,
    /// Upgrades to the new build that were left alone; None: it has taken over from itself once, as its next release will.
    to_new: Option<u64>,
    /// The time that the last upgrade took.
    took: Duration,
}

impl Builds {
    /// Starts the first build, and finds where it listens: at `target`, or at the only address that it has. This process becomes the
    /// parent of all processes of the program that lose theirs, and waits for all that are its children.
    ///
    /// # Errors
    /// When it does not start, or does not say where it listens.
    pub fn start(programs: Programs, target: Option<Address>, stop: Stopped<'_>) -> Result<Builds, Refused> {
        // Found by its path, the second one would be missed only once the clients are there.
        for build in programs.builds.iter().filter(|build| build.components().count() > 1) {
            let why = match access(build.as_path(), Access::EXEC_OK) {
                Ok(()) if build.is_file() => continue,
                Err(Errno::ACCESS) => "it may not be executed: chmod +x",
                _ => "no such program: name the two builds",
            };
            return Err(Refused::Server(format!("{}: {why}", build.display())));
        }
        let builds = Builds::begin(programs).and_then(|mut builds| builds.serve(stop).map(|()| builds));
        let mut builds = builds.map_err(|why| Refused::Server(format!("the first build does not serve: {why}")))?;
        builds.target = match target {
            Some(target) => target,
            None => builds.only_address().map_err(Refused::Server)?,
        };
        Ok(builds)
    }

    fn begin(mut programs: Programs) -> Result<Builds, String> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::env::temp_dir().join(format!("sockdrawer-builds-{}", std::process::id()));
        let failed = |error: io::Error| error.to_string();
        std::fs::create_dir(&folder).map_err(failed)?;
        let path = programs.path.clone().unwrap_or_else(|| {
            let path = folder.join("upgrade.sock");
            programs.arguments.extend(["--upgrade".into(), path.clone().into()]);
            path
        });
        let _ = set_child_subreaper(Some(getpid()));
        let mut random = Random::new(programs.seed);
        let kills = (0..programs.kills).map(|number| if number % 2 == 0 { Step::KillNew } else { Step::KillOld });
        let mut steps: Vec<Step> = (0..programs.upgrades).map(|_| Step::Upgrade).chain(kills).collect();
        random.shuffle(&mut steps);
        let output = Output::new().map_err(failed)?;
        let none = Address::Tcp(([127, 0, 0, 1], 0).into());
        Ok(Builds {
            _turn: turn,
            programs,
            path,
            folder,
            output,
            told: 0,
            target: none,
            steps,
            random,
            serving: (0, None),
            started: Vec::new(),
            killed: Vec::new(),
            deaths: Vec::new(),
            ended: Vec::new(),
            to_new: Some(0),
            took: AT_FIRST,
        })
    }

    /// Returns the address of the clients.
    pub fn target(&self) -> &Address {
        &self.target
    }

    /// Returns the command line by which the builds are started.
    pub fn line(&self) -> String {
        let [old, new] = self.programs.builds.each_ref().map(|build| build.display().to_string());
        let arguments: Vec<_> = self.programs.arguments.iter().map(|word| word.to_string_lossy()).collect();
        format!("{old} | {new} {}", arguments.join(" "))
    }

    /// Starts the build that serves next, where none does, and waits until it serves.
    fn serve(&mut self, stop: Stopped<'_>) -> Result<(), String> {
        let (out, err) = self.output.pair().map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.programs.builds[self.serving.0]);
        command.args(&self.programs.arguments).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let build = &self.programs.builds[self.serving.0];
        let mut child = command.spawn().map_err(|error| match error.kind() {
            // A folder of PATH that this user may not read says no more than that either.
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if build.components().count() == 1 => {
                format!("no program {0} that this user may run is in PATH: give its path, as in ./{0}", build.display())
            }
            _ => format!("{}: {error}", build.display()),
        })?;
        self.serving.1 = Some(Pid::from_child(&child));
        self.started.push((Pid::from_child(&child), self.serving.0));
        let until = Instant::now() + SERVES_WITHIN;
        while self.meets().is_none() {
            let over = match child.try_wait() {
                Ok(None) if Instant::now() < until && !stop(LOOK) => continue,
                Ok(None) => format!(
                    "within {SERVES_WITHIN:?} it is not met at {}: name the path that it gives to Upgrade::at (--socket)",
                    self.path.display()
                ),
                Ok(Some(status)) => format!("it ended ({status})"),
                Err(error) => error.to_string(),
            };
            let said = self.output.tail().unwrap_or_default();
            let said = said.lines().last().map_or_else(String::new, |line| format!("; it said: {line}"));
            // With nothing but what the trial itself has added.
            let is_bare = self.programs.path.is_none() && self.programs.arguments.len() == 2;
            let hint =
                if is_bare { "; it was started without arguments of yours: write them behind --, as in -- serve" } else { "" };
            return Err(format!("{over}{said}{hint}"));
        }
        Ok(())
    }

    /// Returns where the build that serves listens for clients.
    fn listeners(&self) -> Result<Vec<String>, String> {
        let running = Replace::at(&self.path).look().map_err(|error| error.to_string())?;
        let pools = running.pools.into_iter().filter(|pool| !self.programs.not_for_clients.contains(&pool.name));
        Ok(pools.flat_map(|pool| pool.taken_over).collect())
    }

    /// Returns the address of the only listener that is for clients.
    fn only_address(&self) -> Result<Address, String> {
        let all = self.listeners()?;
        let one = match &all[..] {
            [one] => one,
            [] => return Err("the first build listens nowhere: name the address of the clients, by --target".to_owned()),
            _ => return Err(format!("the first build listens at {}: name that of the clients, by --target", all.join(", "))),
        };
        let address: Address = one.parse().map_err(|error| format!("{one}: {error}"))?;
        Ok(match address {
            Address::Tcp(mut at) if at.ip().is_unspecified() => {
                at.set_ip(if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
                Address::Tcp(at)
            }
            other => other,
        })
    }

    /// Checks that a build listens at the port of the clients. A build that had to open a listening socket of its own may have another: with port 0 each has
    /// its own.
    fn same_address(&self) -> Result<(), Ended> {
        let all = self.listeners().map_err(Ended::Failed)?;
        let port = self.target.to_string().rsplit_once(':').map(|(_, port)| format!(":{port}"));
        if port.is_none_or(|port| all.iter().any(|address| address.ends_with(&port))) {
            return Ok(());
        }
        let all = all.join(", ");
        Err(failed(format!("after a kill the next build listens at {all}: have the builds listen at a port that stays")))
    }

    /// Returns the process that answers at the path.
    fn meets(&self) -> Option<Pid> {
        Pid::from_raw(Replace::at(&self.path).build().ok()?.pid.cast_signed())
    }

    /// Has the other build take over, or one of the two processes killed meanwhile. `tick` is called again and again.
    pub fn change(&mut self, stop: Stopped<'_>, mut tick: impl FnMut()) -> Ran {
        let began = Instant::now();
        let step = self.steps.pop().unwrap_or(Step::Upgrade);
        self.ended.clear();
        self.look_for_deaths();
        let (mut ended, promise) = match self.step(step, stop, &mut tick) {
            Ok(promise) => (Ended::Exited(0), promise),
            Err(ended) => (ended, Promise::default()),
        };
        let _ = self.is_any_left();
        self.tell_deaths(&mut ended);
        // With all that came since the change before.
        let mut said = self.output.since(self.told).unwrap_or_default();
        self.told = self.output.length();
        let _ = self.output.forget();
        if let Ended::Failed(why) = &ended {
            said = format!("{said}\n{why}").trim().to_owned();
        }
        Ran { ended, took: began.elapsed(), said, promise: Some(promise) }
    }

    /// Has a change that seemed to succeed fail if a process has died meanwhile.
    pub(crate) fn tell_late_deaths(&mut self, ended: &mut Ended) {
        self.look_for_deaths();
        self.tell_deaths(ended);
    }

    fn tell_deaths(&mut self, ended: &mut Ended) {
        let mut deaths = std::mem::take(&mut self.deaths);
        match ended {
            Ended::Exited(_) if !deaths.is_empty() => *ended = Ended::Failed(deaths.join("; ")),
            Ended::Failed(why) if !deaths.is_empty() => {
                deaths.push(std::mem::take(why));
                *why = deaths.join("; ");
            }
            _ => {}
        }
    }

    /// Looks which process serves: if it is another than the last that took over, that one has died. How it did is known where its parent is this process.
    fn look_for_deaths(&mut self) {
        let _ = self.is_any_left();
        let ((of, Some(dead)), serves) = (self.serving, self.meets()) else { return };
        let (build, how) = (self.programs.builds[of].display(), self.how_it_ended(dead));
        match serves {
            Some(pid) if pid != dead => {
                self.deaths.push(format!("the process of {build} that had taken over {how}, and an older one serves again"));
                self.serving = (self.build_of(pid), Some(pid));
            }
            None if test_kill_process(dead).is_err() && !self.killed.contains(&dead) => {
                self.deaths.push(format!("the process of {build} that served {how}, and none serves"));
            }
            _ => {}
        }
    }

    fn build_of(&self, pid: Pid) -> usize {
        self.started.iter().rev().find(|(started, _)| *started == pid).map_or(self.serving.0, |(_, build)| *build)
    }

    fn step(&mut self, step: Step, stop: Stopped<'_>, tick: &mut impl FnMut()) -> Result<Promise, Ended> {
        let began = Instant::now();
        let is_again = step == Step::Upgrade && self.serving.0 == 1 && self.to_new.take_if(|times| *times > 1).is_some();
        let to = if is_again { 1 } else { 1 - self.serving.0 };
        let asked = Asked::begin(self, to)?;
        if step == Step::Upgrade {
            let answer = asked.answer(stop, tick)?;
            self.started.extend(asked.pid().map(|pid| (pid, to)));
            let (replaced, left_behind, dropped) = match answer {
                Ok(answer) => answer,
                Err(error) => return Err(self.refused(&error, to, stop, tick)),
            };
            self.serving = (to, Pid::from_raw(replaced.pid.cast_signed()));
            self.took = began.elapsed();
            let change = match to {
                0 => "to old",
                _ if is_again => NEW_AGAIN,
                _ => "to new",
            };
            if let Some(times) = self.to_new.as_mut().filter(|_| to == 1) {
                *times += 1;
            }
            let (moved, stayed) = (replaced.moved, left_behind.values().sum());
            let left_behind = left_behind.into_keys().collect();
            return Ok(Promise { change, moved, stayed, left_behind, dropped, ..Promise::default() });
        }
        let (old, new) = (self.serving.1.ok_or_else(|| failed("no build serves"))?, asked.child(stop, tick)?);
        self.started.push((new, to));
        // Up to twice the time of an upgrade: the new build may also die once it has taken over.
        let micros = u64::try_from(2 * self.took.as_micros()).unwrap_or(u64::MAX).max(1);
        wait_until(began + Duration::from_micros(self.random.below(micros)), stop, tick);
        if test_kill_process(new).is_err()
            && let Err(error) = asked.answer(stop, tick)?
        {
            // It has ended by itself.
            return Err(self.refused(&error, to, stop, tick));
        }
        let (victim, survivor, change) = if step == Step::KillNew { (new, old, "kill next") } else { (old, new, "kill prior") };
        // The new one answers at the path once it has said that it stands: from then on it serves alone, whatever sockets both have still.
        let stands = step == Step::KillNew && self.meets() == Some(victim);
        let stopped = Victim::stop(victim, survivor);
        let (connections, may_refuse) = stopped.has(&self.target, survivor, step == Step::KillOld);
        self.killed.push(victim);
        stopped.kill();
        // The answer does not matter, but the process that serves now.
        let _ = asked.answer(stop, tick)?;
        let one_serves = self.serves(Some(victim), stop, tick)?;
        let was_alone = stands && self.ended.iter().any(|(pid, status)| *pid == survivor && status.exit_status() == Some(0));
        if !one_serves && !was_alone {
            return Err(failed(NONE_SERVES));
        }
        let may_refuse = may_refuse || !one_serves;
        if may_refuse {
            self.same_address()?;
        }
        Ok(Promise { change, killed: true, connections, may_refuse, ..Promise::default() })
    }

    /// Returns why the new build, which is the one of this number, has not taken over.
    fn refused(&mut self, error: &Error, to: usize, stop: Stopped<'_>, tick: &mut impl FnMut()) -> Ended {
        // A process that has ended is there until its parent, which this one is, has waited for it.
        let _ = self.is_any_left();
        // A shell starts it.
        let name = format!(": {} ", self.programs.builds[to].display());
        let mut why = self.served_until_then().unwrap_or_else(|| error.to_string().replacen(": sh ", &name, 1));
        if why.contains("the address is in use") {
            why += &format!("; in this trial that is the build before it: have the new one meet it at {}", self.path.display());
        }
        match self.serves(None, stop, tick) {
            Ok(true) => Ended::Failed(why),
            Ok(false) => failed(NONE_SERVES),
            Err(ended) => ended,
        }
    }

    /// Returns that the process which served has died, if so. How it did is known where its parent is this process.
    fn served_until_then(&self) -> Option<String> {
        let (build, pid) = (&self.programs.builds[self.serving.0], self.serving.1?);
        test_kill_process(pid)
            .is_err()
            .then(|| format!("the process of {} that was to be replaced {}", build.display(), self.how_it_ended(pid)))
    }

    /// Returns how a process ended that is gone, which is known where its parent is this one.
    fn how_it_ended(&self, pid: Pid) -> String {
        match self.ended.iter().find(|(ended, _)| *ended == pid) {
            Some((_, status)) if status.exited() => {
                format!("has ended by itself with exit status {}", status.exit_status().unwrap_or_default())
            }
            _ => "has died".to_owned(),
        }
    }

    /// Finds the process that serves, which is not one that is dead, and its build. Returns false where there is none, and the last build was started again.
    fn serves(&mut self, dead: Option<Pid>, stop: Stopped<'_>, tick: &mut impl FnMut()) -> Result<bool, Ended> {
        let until = Instant::now() + SERVES_WITHIN;
        while Instant::now() < until && self.is_any_left() {
            if let Some(pid) = self.meets().filter(|pid| Some(*pid) != dead) {
                self.serving = (self.build_of(pid), Some(pid));
                return Ok(true);
            }
            if stop(LOOK) {
                return Err(Ended::Stopped);
            }
            tick();
        }
        self.serve(stop).map(|()| false).map_err(Ended::Failed)
    }

    /// Forgets processes that have ended, and returns whether one is left.
    fn is_any_left(&mut self) -> bool {
        // A process that has lost its parent has this one, which has to wait for it.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let build = self.started.iter().find(|(started, _)| *started == pid).map(|(_, build)| *build);
            let signal = status.terminating_signal().filter(|_| !self.killed.contains(&pid));
            self.ended.push((pid, status));
            if let Some((build, signal)) = build.zip(signal) {
                let name = if signal == Signal::KILL.as_raw() { " (SIGKILL, which this trial did not send)" } else { "" };
                self.deaths.push(format!("a process of {} died by signal {signal}{name}", self.programs.builds[build].display()));
            }
        }
        self.started.retain(|(pid, _)| test_kill_process(*pid).is_ok());
        !self.started.is_empty()
    }
}

impl Drop for Builds {
    fn drop(&mut self) {
        let serving = self.serving.1.and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)));
        if let Some((pid, end)) = serving
            && kill_process(pid, Signal::TERM).is_ok()
        {
            let _ = ends(&end, ENDS_WITHIN);
        }
        loop {
            children(getpid()).into_iter().for_each(|pid| _ = kill_process(pid, Signal::KILL));
            // Without a child left it fails.
            if wait(WaitOptions::empty()).is_err() {
                break;
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn failed(error: impl ToString) -> Ended {
    Ended::Failed(error.to_string())
}

fn wait_until(moment: Instant, stop: Stopped<'_>, tick: &mut impl FnMut()) {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() || stop(left.min(TICK)) {
            return;
        }
        tick();
    }
}

/// The outcome of an upgrade: the connections that stayed where they were, by reason, and state that the next build does not take.
type Outcome = (Replaced, BTreeMap<String, u64>, Vec<String>);

/// An upgrade that was asked for.
struct Asked {
    answer: Receiver<Result<Outcome, Error>>,
    /// The file in which the new build's process has its number.
    child: PathBuf,
}

impl Asked {
    fn begin(builds: &Builds, to: usize) -> Result<Asked, Ended> {
        let child = builds.folder.join("next");
        let _ = std::fs::remove_file(&child);
        // The number is there before the program runs, so that it can be killed at any time.
        let shell = ["sh", "-c", "echo $$ > \"$0\" && exec \"$@\""].map(OsString::from);
        let words = [child.clone().into_os_string(), builds.programs.builds[to].clone().into_os_string()];
        let command = shell.into_iter().chain(words).chain(builds.programs.arguments.iter().cloned());
        let ask = Replace::at(&builds.path).command(command);
        let (says, answer) = mpsc::channel();
        let not_for_clients = builds.programs.not_for_clients.clone();
        let upgrade = move || drop(says.send(replace(&ask, &not_for_clients)));
        let spawned = thread::Builder::new().name("upgrade".to_owned()).spawn(upgrade);
        spawned.map_err(failed)?;
        Ok(Asked { answer, child })
    }

    /// Waits for what came of it.
    fn answer(&self, stop: Stopped<'_>, tick: &mut impl FnMut()) -> Result<Result<Outcome, Error>, Ended> {
        let until = Instant::now() + WITHIN;
        loop {
            match self.answer.recv_timeout(TICK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(failed("the upgrade has no answer")),
                Err(RecvTimeoutError::Timeout) if stop(Duration::ZERO) => return Err(Ended::Stopped),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return Err(Ended::TimedOut),
                Err(RecvTimeoutError::Timeout) => tick(),
            }
        }
    }

    /// Returns the new build's process, once it has been started.
    fn pid(&self) -> Option<Pid> {
        let said = std::fs::read_to_string(&self.child).ok()?;
        Pid::from_raw(said.strip_suffix('\n')?.parse().ok()?)
    }

    /// Waits for the new build's process.
    fn child(&self, stop: Stopped<'_>, tick: &mut impl FnMut()) -> Result<Pid, Ended> {
        loop {
            if let Some(pid) = self.pid() {
                return Ok(pid);
            }
            match self.answer.try_recv() {
                Ok(Err(error)) => return Err(failed(error)),
                Ok(Ok(_)) | Err(TryRecvError::Disconnected) => return Err(failed("the new build's process is not known")),
                Err(TryRecvError::Empty) if stop(LOOK) => return Err(Ended::Stopped),
                Err(TryRecvError::Empty) => tick(),
            }
        }
    }
}

/// Has the build that serves replaced.
fn replace(ask: &Replace, not_for_clients: &[String]) -> Result<Outcome, Error> {
    let mut dropped = Vec::new();
    let replaced = ask.run(|plan| {
        let lost = |name: &String| format!("what is carried as `{name}` is lost: the new build carries nothing of this name");
        dropped.extend(plan.dropped.iter().map(lost));
    })?;
    let mut left = BTreeMap::<String, u64>::new();
    let pools = replaced.staying.iter().filter(|(name, _)| !not_for_clients.contains(name));
    let reasons = pools.flat_map(|(_, reasons)| reasons).filter(|(why, _)| leaves_behind(why));
    reasons.for_each(|(why, count)| *left.entry(why.clone()).or_default() += count);
    replaced.not_restored.iter().for_each(|why| _ = left.entry(why.clone()).or_default());
    Ok((replaced, left, dropped))
}
