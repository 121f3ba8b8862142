//! The place where a process that may be replaced is met: by successors, and by programs that ask for one.

use super::before::Before;
use super::handing_over::{Conversation, Replacing};
use super::pools::Pools;
use super::talk::Talk;
use super::{Carry, Consent, MEETS_AT, MeetingPlace, NamedPool, REPLACES};
use crate::clock::deadline;
use crate::ipc::messages::{BuildId, Go, Hello, Planned, PoolPlanned, RefusedSuccessor, ReplaceReport, ReplaceRequest, Said};
use crate::operation::Drain;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::{Errno, Result, descendants, passing, signals};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A process that connects says at once what it wants.
pub(super) const GREETS_WITHIN: Duration = Duration::from_secs(1);

/// A successor may be started by a program that ends at once: it has begun within this time.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);

/// The pause before what this process was short of is asked for again.
pub(super) const SHORT_OF: Duration = Duration::from_millis(100);

/// Reason of a failed upgrade: the successor ended the conversation.
pub(super) const GONE: &str = "it is gone";
/// Reason of a failed upgrade: the successor ended the conversation once it had been told to take over.
pub(super) const DIED: &str = "it died, and this process goes on";

/// The place where successors are met, and what is needed there.
pub(super) struct Meeting {
    pub(super) path: PathBuf,
    pub(super) place: Arc<MeetingPlace>,
    pub(super) version: String,
    pub(super) pools: Arc<Pools>,
    pub(super) before: Arc<Before>,
    pub(super) carries: Vec<Carry>,
    /// Maximum time that connections may stay here after this process was replaced, and the way they end.
    pub(super) stays: Option<(Duration, Drain)>,
    /// The way pools end that the next build does not have.
    pub(super) ends: Drain,
    /// Maximum time that a loop may be busy that holds an upgrade up.
    pub(super) turns_within: Duration,
    pub(super) asked: Consent,
}

impl Meeting {
    /// Meets one after the other, until a successor has taken over.
    pub(super) fn serve(self) {
        while let Some(place) = self.place.socket() {
            match accept(&place).and_then(Met::greet) {
                Ok(Some(Met { talk, pid, said: Said::Hello(hello) })) => {
                    // The conversation has the place from here on, and lets go of it in time.
                    self.conversation(talk, pid, place, None).hold(&hello);
                }
                Ok(Some(Met { talk, said: Said::Replace(replace), .. })) => self.replace(talk, replace, place),
                _ => {}
            }
        }
    }

    fn conversation(&self, talk: Talk, pid: u32, place: Arc<OwnedFd>, replacing: Option<Replacing>) -> Conversation<'_> {
        Conversation::new(talk, pid, self, self.pools.offered(), place, replacing)
    }

    /// Returns the commit with what services share among their connections, as they write it now, and no pools yet.
    pub(super) fn carried(&self) -> std::result::Result<Go, String> {
        let mut go = Go::default();
        for Carry { name, write, .. } in &self.carries {
            let bytes = catch_unwind(AssertUnwindSafe(write));
            let bytes = bytes.map_err(|_| format!("what is carried as {name} could not be written: a panic"))?;
            go.carried.insert(name.clone(), bytes.into());
        }
        Ok(go)
    }

    pub(super) fn build(&self) -> BuildId {
        BuildId { version: self.version.clone(), pid: std::process::id() }
    }

    /// Starts a successor, meets it, and tells the asking program what comes of it.
    fn replace(&self, asking: Talk, replace: ReplaceRequest, place: Arc<OwnedFd>) {
        if replace.is_question() {
            return asking.end(Said::Planned(self.look(&replace)));
        }
        let (since, rehearsal) = (Instant::now(), replace.rehearsal);
        let until = deadline(since, Duration::from_millis(replace.within));
        let refuse = |reason: String| {
            asking.clone().end(Said::Replaced(ReplaceReport { refused: reason, ..ReplaceReport::default() }));
        };
        let asked = if rehearsal { Ok(()) } else { self.asked.ask() };
        let mut successor = match asked.and_then(|()| start(replace.command, &self.path)) {
            Ok(successor) => successor,
            Err(reason) => return refuse(reason),
        };
        let starts = successor.child.id();
        match successor.come(&place, until, |asking, asks| self.answer_beside(starts, asking, asks)) {
            Ok((talk, pid, hello)) => {
                let replacing = Replacing { asking: asking.clone(), rehearsal, since };
                if let Some(reason) = self.conversation(talk, pid, place, Some(replacing)).hold(&hello) {
                    let place = self.place.socket();
                    refuse(successor.why(reason, place.as_deref()));
                }
            }
            Err(reason) => {
                // The successor, or a process that it has started, may come later, and would take over then.
                if !successor.has_ended() {
                    descendants::kill_with_descendants(successor.child.id());
                }
                refuse(reason);
            }
        }
        successor.leave();
    }

    /// Answers another program that asks while a successor starts.
    fn answer_beside(&self, successor: u32, asking: Talk, asks: &ReplaceRequest) {
        let refused = format!("a new build is being started already, as pid {successor}: wait for it, or end that process");
        let busy = || Said::Replaced(ReplaceReport { refused, ..ReplaceReport::default() });
        asking.end(if asks.is_question() { Said::Planned(self.look(asks)) } else { busy() });
    }

    /// Returns what a build would take over that reads what this one writes; or only which build runs: pools may take long to say what they have.
    pub(super) fn look(&self, asks: &ReplaceRequest) -> Planned {
        let pool = |named: NamedPool| {
            let (move_on, stay) = named.plan(&named.pool.state(), None);
            let NamedPool { name, pool, .. } = named;
            let limit = pool.limit();
            let listening = pool.listening_sockets().into_iter().map(|one| one.address.to_string()).collect();
            PoolPlanned {
                name,
                connections: pool.held(),
                move_on,
                stay,
                taken_over: listening,
                limit_before: limit,
                limit,
                ..PoolPlanned::default()
            }
        };
        let pools = if asks.build { Vec::new() } else { self.pools.offered().into_iter().map(pool).collect() };
        Planned { from: self.build(), to: None, pools, dropped: Vec::new() }
    }
}

/// Accepts the next process that connects.
///
/// # Errors
/// Where this process is short of something, such as descriptors: after a pause, for the process still waits to be accepted.
pub(super) fn accept(place: &OwnedFd) -> Result<OwnedFd> {
    passing::packet_accept(place.as_fd()).inspect_err(|_| std::thread::sleep(SHORT_OF))
}

/// A process that has connected and said what it wants.
struct Met {
    talk: Talk,
    pid: u32,
    said: Said,
}

impl Met {
    /// Greets a process. None: it was refused, or means another process.
    fn greet(socket: OwnedFd) -> Result<Option<Met>> {
        let (pid, trusted) = passing::peer_process(socket.as_fd())?;
        let talk = Talk::new(socket)?;
        let said = talk.answer(Some(GREETS_WITHIN))?;
        if !trusted {
            talk.end(Said::Refused(RefusedSuccessor::because("another user may not replace it".to_owned())));
            return Ok(None);
        }
        // A build whose own predecessor has died comes too late, maybe while the successor of this process is awaited.
        let own = std::process::id();
        if let Said::Hello(Hello { replaces: Some(whom), .. }) = &said
            && !is_meant(whom, own)
        {
            talk.end(Said::Refused(RefusedSuccessor::because(serves(own))));
            return Ok(None);
        }
        // The meeting place stays where it is: this may be the last word to a process that met builds there before.
        if matches!(&said, Said::Refused(RefusedSuccessor { to: Some(whom), .. }) if !is_meant(whom, own)) {
            return Ok(None);
        }
        Ok(Some(Met { talk, pid, said }))
    }
}

/// Returns whether a build that may replace this one may replace that process.
pub(super) fn is_meant(whom: &str, pid: u32) -> bool {
    whom == "any" || whom == pid.to_string()
}

/// Returns the reason for which a build does not replace a process that it was not started to replace.
pub(super) fn serves(pid: u32) -> String {
    format!("pid {pid} serves here; start it with {REPLACES}={pid} to replace it")
}

/// The reason was told to the program that asked: the other process has refused this one, or was told that this one does not take over.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Returns the reason, which need not be told to the other process again: by then it may take that for the last word of a later build.
pub(super) fn refused(RefusedSuccessor { reason, .. }: RefusedSuccessor) -> String {
    IS_REFUSED.store(true, Ordering::Relaxed);
    reason
}

/// Tells the process that has started this one as its next build why this one does not take over, which is the answer to the program that asked for
/// it. Elsewhere it does nothing. Call it before a program ends with an error that the new build's operator is to read.
pub fn give_up(reason: &str) {
    if IS_REFUSED.swap(true, Ordering::Relaxed) {
        return;
    }
    let variable = |name| std::env::var_os(name);
    let (Some(replaces), Some(path)) = (variable(REPLACES), variable(MEETS_AT)) else { return };
    let Ok(socket) = passing::packet_connect(Path::new(&path)) else { return };
    // Another process that meets there by now, as this one itself may, is not meant.
    let refused = RefusedSuccessor { reason: reason.to_owned(), to: Some(replaces.to_string_lossy().into_owned()) };
    // The other process goes on, whether it hears this or not.
    let _ = Talk::new(socket).and_then(|talk| talk.say(Said::Refused(refused), &[]));
}

/// A successor that this process has started.
struct StartedBuild {
    child: Child,
    /// The descriptor that is readable when the process has ended.
    itself: Option<OwnedFd>,
    name: String,
}

/// Starts a program that may replace this process; no command: this program, by the name and the arguments with which it was started.
fn start(command: Vec<Vec<u8>>, path: &Path) -> std::result::Result<StartedBuild, String> {
    let command: Vec<OsString> = match command.is_empty() {
        true => std::env::args_os().collect(),
        false => command.into_iter().map(OsString::from_vec).collect(),
    };
    let [program, arguments @ ..] = &command[..] else { return Err("this program was started without a name".to_owned()) };
    let name = program.to_string_lossy().into_owned();
    signals::expect_children();
    let mut starts = Command::new(program);
    let child = starts.args(arguments).env(REPLACES, std::process::id().to_string()).env(MEETS_AT, path).spawn();
    let child = child.map_err(|error| format!("cannot start {name}: {error}"))?;
    Ok(StartedBuild { itself: passing::itself(&child), child, name })
}

impl StartedBuild {
    /// Waits until a successor connects, for one that was started may start another; or until this one has failed.
    fn come(
        &mut self,
        place: &OwnedFd,
        until: Instant,
        beside: impl Fn(Talk, &ReplaceRequest),
    ) -> std::result::Result<(Talk, u32, Hello), String> {
        let mut until = until;
        loop {
            // Without a descriptor for it, its end is not noticed before time is up.
            let itself = self.itself.as_ref().map_or(place.as_fd(), AsFd::as_fd);
            match passing::wait_for_either(place.as_fd(), itself, until) {
                Ok([true, _]) => match accept(place).and_then(Met::greet) {
                    Ok(Some(Met { talk, pid, said: Said::Hello(hello) })) => return Ok((talk, pid, hello)),
                    Ok(Some(Met { talk, said: Said::Replace(replace), .. })) => beside(talk, &replace),
                    Ok(Some(Met { said: Said::Refused(gives_up), .. })) => return Err(self.gave_up(&gives_up)),
                    _ => {}
                },
                Ok(_) => match self.child.wait() {
                    Ok(status) if status.success() => {
                        self.itself = None;
                        until = until.min(Instant::now() + BEGINS_WITHIN);
                    }
                    _ => return Err(self.why(GONE.to_owned(), Some(place))),
                },
                Err(Errno::AGAIN) if self.has_ended() => {
                    return Err(format!(
                        "{} ended with exit status 0, and no new build has begun: start one that meets this process",
                        self.name
                    ));
                }
                Err(Errno::AGAIN) => return Err(format!("{} was not ready in time and was killed", self.name)),
                Err(errno) => return Err(std::io::Error::from(errno).to_string()),
            }
        }
    }

    /// Returns its last word, once it has ended: it may have more to say elsewhere.
    fn gave_up(&self, RefusedSuccessor { reason, .. }: &RefusedSuccessor) -> String {
        if let Some(itself) = &self.itself {
            let _ = passing::wait_for_either(itself.as_fd(), itself.as_fd(), Instant::now() + GREETS_WITHIN);
        }
        format!("{} gave up: {reason}", self.name)
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Returns the reason, or how it ended if it did so by itself: a process that was refused ends, too, and that is not the reason.
    fn why(&mut self, reason: String, place: Option<&OwnedFd>) -> String {
        if reason != GONE && reason != DIED {
            return reason;
        }
        let until = Instant::now() + GREETS_WITHIN;
        // Its last word, or its end, is seen a moment after the end of the conversation, or it lives.
        while let (Some(itself), true) = (&self.itself, reason == GONE) {
            let place = place.map_or(itself.as_fd(), AsFd::as_fd);
            match passing::wait_for_either(place, itself.as_fd(), until) {
                // Another program that comes meanwhile asks again.
                Ok([true, _]) => {
                    let met = passing::packet_accept(place).and_then(Met::greet);
                    if let Ok(Some(Met { said: Said::Refused(gives_up), .. })) = met {
                        return self.gave_up(&gives_up);
                    }
                    if self.has_ended() {
                        break;
                    }
                }
                _ => break,
            }
        }
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => format!("{} ended before it was ready: {status}", self.name),
            _ => reason,
        }
    }

    /// Has its end noticed, or it would stay in the table of processes.
    fn leave(mut self) {
        let reap = move || _ = self.child.wait();
        // Where there is no thread for it, it is noticed when this process ends.
        let _ = std::thread::Builder::new().name("sockdrawer-reaper".to_owned()).spawn(reap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_at_once_and_starts_no_successor_is_told_as_that() {
        let path = std::env::temp_dir().join(format!("sockdrawer-meeting-{}", std::process::id()));
        let place = passing::packet_listener(&path).expect("a free path");
        let mut ended = start(vec![b"true".to_vec()], &path).expect("it starts");
        let came = ended.come(&place, Instant::now() + Duration::from_secs(3600), |_, _| ());
        std::fs::remove_file(&path).expect("it is there");
        let why = came.err().expect("nothing comes");
        assert!(why.starts_with("true ended with exit status 0, and no new build has begun"), "{why}");
    }

    #[test]
    fn a_build_that_comes_for_another_process_is_not_taken_for_the_successor() {
        let path = std::env::temp_dir().join(format!("sockdrawer-meeting-late-{}", std::process::id()));
        let place = passing::packet_listener(&path).expect("a free path");
        let mut waiting = start(vec![b"sleep".to_vec(), b"100".to_vec()], &path).expect("it starts");
        let comes = |whom: String| {
            let talk = Talk::new(passing::packet_connect(&path).expect("it listens")).expect("a socket");
            talk.say(Said::Hello(Hello { replaces: Some(whom.clone()), version: whom, ..Hello::default() }), &[])
                .expect("it is read");
            talk
        };
        let own = std::process::id().to_string();
        let (late, meant) = (comes("1".to_owned()), comes(own.clone()));
        let until = Instant::now() + Duration::from_secs(3600);
        let (_, _, hello) = waiting.come(&place, until, |_, _| ()).expect("the second one comes");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(hello.version, own);
        let Ok(Said::Refused(RefusedSuccessor { reason, .. })) = late.answer(None) else { panic!("the first one is refused") };
        assert!(reason.starts_with(&format!("pid {own} serves here; start it with")), "{reason}");
        waiting.child.kill().and_then(|()| waiting.child.wait()).expect("a child");
        drop(meant);
    }

    #[test]
    fn a_successor_that_was_refused_and_has_ended_is_told_as_refused() {
        let mut refused = start(vec![b"false".to_vec()], Path::new("/none")).expect("it starts");
        refused.child.wait().expect("a child");
        assert_eq!(refused.why("a pool was changed".to_owned(), None), "a pool was changed");
        for ended in [GONE, DIED] {
            assert_eq!(refused.why(ended.to_owned(), None), "false ended before it was ready: exit status: 1");
        }
    }
}
