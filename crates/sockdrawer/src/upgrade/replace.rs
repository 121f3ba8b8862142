//! Asking a program that runs to replace itself by a new build, and the answer.

use super::meeting::GREETS_WITHIN;
use super::talk::{Room, Talk};
use super::{HANGS_UP, MEETS_AGAIN, REHEARSAL, WITHIN};
use crate::clock::deadline;
use crate::error::Error;
use crate::ipc::messages::{self, Said};
use crate::sys::{Errno, passing};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The answer may come that much later than the successor.
const ANSWERS_AFTER: Duration = Duration::from_secs(60);

/// Has a program that runs replace itself: it starts a successor, which takes over from it.
///
/// ```no_run
/// # fn main() -> Result<(), sockdrawer::Error> {
/// let replaced = sockdrawer::upgrade::Replace::at("/run/chat/upgrade.sock").run(|plan| println!("to {}", plan.to.version))?;
/// println!("{} connections moved in {:?}", replaced.moved, replaced.moving);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Replace {
    path: PathBuf,
    command: Vec<OsString>,
    within: Duration,
}

/// A build of a program that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// The version that it says it is.
    pub version: String,
    /// Process id of the build.
    pub pid: u32,
}

/// The takeover by a new build, as it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Takeover {
    /// The build that is replaced.
    pub from: Build,
    /// The build that replaces it.
    pub to: Build,
    /// The pools, with what becomes of each.
    pub pools: Vec<PoolTakeover>,
    /// State that the old build [carries](crate::Upgrade::carry) and the new one does not, by its names: it is lost.
    pub dropped: Vec<String>,
}

/// The part of one pool in a takeover.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolTakeover {
    /// The name that both builds know.
    pub name: String,
    /// Connections that count for the limit.
    pub connections: u64,
    /// Connections that can move now.
    pub moving: u64,
    /// Numbers of the other connections, which stay for now or until they end, by the reason.
    pub staying: BTreeMap<String, u64>,
    /// Addresses whose listening sockets are taken over.
    pub taken_over: Vec<String>,
    /// Addresses at which the new build does not listen.
    pub given_up: Vec<String>,
    /// Addresses at which only the new build listens.
    pub added: Vec<String>,
    /// The limits of both builds.
    pub limits: (u64, u64),
    /// The new build has no such pool: once it stands, the old one drains this one, as [`Upgrade::ends`](crate::Upgrade::ends) says.
    pub ends: bool,
}

/// The result of a replacement, once all that could move had moved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// The process of the new build.
    pub pid: u32,
    /// Time from the start of the new build until it could take over.
    pub prepared: Duration,
    /// Time in which neither process accepted: connections waited in the kernel.
    pub gap: Duration,
    /// Connections that moved.
    pub moved: u64,
    /// Time in which the connections moved.
    pub moving: Duration,
    /// Times in which a connection was in neither process: the median, the 99th of 100, and the longest.
    pub pauses: [Duration; 3],
    /// Numbers of connections that were still in the old process then, by the name of the pool and by the reason.
    pub staying: BTreeMap<String, BTreeMap<String, u64>>,
    /// Reasons why the new build did not restore some of them, each once.
    pub not_restored: Vec<String>,
}

impl Replace {
    /// Returns the program that has called [`Upgrade::at`](crate::Upgrade::at) with this path.
    pub fn at(path: impl Into<PathBuf>) -> Replace {
        Replace { path: path.into(), command: Vec::new(), within: WITHIN }
    }

    /// Sets the command that is started, in the program's own folder and environment. Default: the command line with which it was started itself, so
    /// that a file, or a link, that was changed since is the new build.
    #[must_use]
    pub fn command(mut self, command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Replace {
        self.command = command.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// Sets the maximum time until the new build is ready: 30 s unless told otherwise. Then it is killed.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Replace {
        self.within = time;
        self
    }

    /// Replaces it, and tells the plan before.
    ///
    /// # Errors
    /// [`Error::Upgrade`] when it is not replaced: it goes on as it was.
    pub fn run(&self, plan: impl FnMut(Takeover)) -> Result<Replaced, Error> {
        let replaced = self.ask(false, plan)?;
        let micros = Duration::from_micros;
        let pause = |at: usize| replaced.pauses.get(at).copied().map(micros).unwrap_or_default();
        match replaced.refused.is_empty() {
            false => Err(self.error(replaced.refused)),
            true => Ok(Replaced {
                pid: replaced.pid,
                prepared: micros(replaced.prepared),
                gap: micros(replaced.gap),
                moved: replaced.moved,
                moving: micros(replaced.moving),
                pauses: [pause(0), pause(1), pause(2)],
                staying: staying(replaced.stay, replaced.staying),
                not_restored: replaced.not_restored,
            }),
        }
    }

    /// Has it start a new build, which prepares itself, and is refused then: nothing is replaced.
    ///
    /// # Errors
    /// [`Error::Upgrade`] when it would not be replaced.
    pub fn rehearse(&self) -> Result<Takeover, Error> {
        let mut plan = None;
        let replaced = self.ask(true, |takeover| plan = Some(takeover))?;
        match (plan, replaced.refused == REHEARSAL) {
            (Some(plan), true) => Ok(plan),
            _ => Err(self.error(replaced.refused)),
        }
    }

    /// Returns what a build would take over that is like the one that runs. `to` is that one.
    ///
    /// # Errors
    /// [`Error::Upgrade`] when no such program runs.
    pub fn look(&self) -> Result<Takeover, Error> {
        self.see(messages::ReplaceRequest { look: true, ..messages::ReplaceRequest::default() })
    }

    /// Returns the build that runs. Answered at once, however long its pools would take to say what they have.
    ///
    /// # Errors
    /// [`Error::Upgrade`] when no such program runs.
    pub fn build(&self) -> Result<Build, Error> {
        Ok(self.see(messages::ReplaceRequest { build: true, ..messages::ReplaceRequest::default() })?.from)
    }

    fn see(&self, asks: messages::ReplaceRequest) -> Result<Takeover, Error> {
        let until = deadline(Instant::now(), self.within);
        loop {
            match self.connect(&asks)?.answer(Some(ANSWERS_AFTER)) {
                Ok(Said::Planned(planned)) => return Ok(takeover(planned)),
                // A question may be asked twice.
                Err(Errno::PIPE) if Instant::now() < until => std::thread::sleep(MEETS_AGAIN),
                answer => return Err(self.not_understood(answer)),
            }
        }
    }

    fn ask(&self, rehearsal: bool, mut plan: impl FnMut(Takeover)) -> Result<messages::ReplaceReport, Error> {
        let command = self.command.iter().map(|word| word.clone().into_vec()).collect();
        let within = u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX);
        let talk = self.connect(&messages::ReplaceRequest { command, within, rehearsal, look: false, build: false })?;
        let until = deadline(Instant::now(), self.within.saturating_add(ANSWERS_AFTER));
        loop {
            match talk.answer(Some(until.saturating_duration_since(Instant::now()))) {
                Ok(Said::Planned(planned)) => plan(takeover(planned)),
                Ok(Said::Replaced(replaced)) => return Ok(replaced),
                answer => return Err(self.not_understood(answer)),
            }
        }
    }

    fn connect(&self, asks: &messages::ReplaceRequest) -> Result<Talk, Error> {
        self.connect_by(asks, || passing::packet_connect(&self.path).and_then(Talk::new))
    }

    /// Connects until what is asked for is taken. A process hangs up that has waited for this one's word in vain, as on a machine that gives this one
    /// no turn for that long, or that is short of something: nothing has begun then.
    fn connect_by(
        &self,
        asks: &messages::ReplaceRequest,
        connects: impl Fn() -> crate::sys::Result<Talk>,
    ) -> Result<Talk, Error> {
        let until = deadline(Instant::now(), self.within);
        loop {
            let talk = connects().map_err(|errno| match errno {
                Errno::NOENT | Errno::CONNREFUSED => self.error("no program that can be replaced runs there".to_owned()),
                Errno::PROTOTYPE => self.error("another program's socket is there".to_owned()),
                errno => self.error(std::io::Error::from(errno).to_string()),
            })?;
            match talk.say_until(&Said::Replace(asks.clone()), &[], Room::Soon, Some(talk.now() + GREETS_WITHIN)) {
                Ok(()) => return Ok(talk),
                Err(Errno::PIPE) if Instant::now() < until => std::thread::sleep(MEETS_AGAIN),
                Err(Errno::PIPE) => return Err(self.error(HANGS_UP.to_owned())),
                Err(errno) => return Err(self.error(std::io::Error::from(errno).to_string())),
            }
        }
    }

    fn not_understood(&self, answer: crate::sys::Result<Said>) -> Error {
        self.error(match answer {
            Ok(Said::Refused(refused)) => refused.reason,
            Ok(_) => "what it says is not understood".to_owned(),
            Err(Errno::AGAIN) => "it does not answer".to_owned(),
            Err(_) => "it is gone".to_owned(),
        })
    }

    fn error(&self, reason: String) -> Error {
        Error::Upgrade { path: self.path.clone(), reason }
    }
}

/// Returns what stays by pool and reason; an older build says the number alone.
fn staying(all: u64, by_pool: BTreeMap<String, BTreeMap<String, u64>>) -> BTreeMap<String, BTreeMap<String, u64>> {
    let is_known = all == 0 || !by_pool.is_empty();
    if is_known {
        by_pool
    } else {
        [("all pools".to_owned(), [("the old build does not say why".to_owned(), all)].into())].into()
    }
}

fn takeover(planned: messages::Planned) -> Takeover {
    let build = |build: messages::BuildId| Build { version: build.version, pid: build.pid };
    let pool = |pool: messages::PoolPlanned| PoolTakeover {
        name: pool.name,
        connections: pool.connections,
        moving: pool.move_on,
        staying: pool.stay,
        taken_over: pool.taken_over,
        given_up: pool.given_up,
        added: pool.added,
        limits: (pool.limit_before, pool.limit),
        ends: pool.ends,
    };
    let to = planned.to.unwrap_or_else(|| planned.from.clone());
    let pools = planned.pools.into_iter().map(pool).collect();
    Takeover { from: build(planned.from), to: build(to), pools, dropped: planned.dropped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::fd::AsFd;

    const LONG: Duration = Duration::from_secs(3600);

    fn pair() -> (Talk, Talk) {
        let (one, two) = passing::packet_pair(LONG).expect("a pair");
        (Talk::new(one).expect("a socket"), Talk::new(two).expect("a socket"))
    }

    #[test]
    fn a_word_that_a_process_did_not_wait_for_is_said_again() {
        let (gone, heard) = (pair(), pair());
        drop(gone.1);
        let lines = RefCell::new(vec![heard.0, gone.0]);
        let asks = messages::ReplaceRequest { look: true, ..messages::ReplaceRequest::default() };
        let replace = Replace::at("/none").within(LONG);
        replace.connect_by(&asks, || Ok(lines.borrow_mut().pop().expect("two are enough"))).expect("the second one hears it");
        assert_eq!(heard.1.answer(None), Ok(Said::Replace(asks)));
    }

    #[test]
    fn a_process_that_always_hangs_up_is_told_as_that_in_time() {
        let replace = Replace::at("/none").within(Duration::from_millis(50));
        let refused = replace.connect_by(&messages::ReplaceRequest::default(), || Ok(pair().0)).err().expect("none hears it");
        assert!(refused.to_string().contains(HANGS_UP), "{refused}");
    }

    #[test]
    fn a_question_that_got_no_answer_is_asked_again() {
        let path = std::env::temp_dir().join(format!("sockdrawer-replace-{}", std::process::id()));
        let place = passing::packet_listener(&path).expect("a free path");
        let runs = std::thread::spawn(move || {
            let comes = || Talk::new(passing::packet_accept(place.as_fd()).expect("it comes")).expect("a socket");
            let asked = comes().answer(None).expect("a question");
            assert!(matches!(&asked, Said::Replace(asks) if asks.build), "{asked:?}");
            let from = messages::BuildId { version: "chat 2".to_owned(), pid: 7 };
            let again = comes();
            assert_eq!(again.answer(None), Ok(asked));
            again.end(Said::Planned(messages::Planned { from, ..messages::Planned::default() }));
        });
        let build = Replace::at(&path).within(LONG).build().expect("the second question is answered");
        assert_eq!((build.version.as_str(), build.pid), ("chat 2", 7));
        std::fs::remove_file(&path).expect("it is there");
        runs.join().expect("both were questions");
    }
}
