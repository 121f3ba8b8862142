//! A new build of a program takes over from the one that runs: listening sockets and live connections, with what belongs to them.
//!
//! The two meet at a path. The new one, the successor, builds its pools on the listening sockets of the other, the predecessor, and
//! takes no connection yet. [`Upgrade::ready`] is the commit: the predecessor stops to accept, the successor accepts, and then the
//! connections follow, each with its state, untaken input, unsent output, timer and tag. What cannot move stays in the predecessor, which
//! serves it until it ends.

mod asked;
mod before;
mod figures;
mod given_up;
mod handing_over;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod meeting;
#[cfg(test)]
mod model;
mod offers;
mod pools;
mod replace;
mod taking_over;
mod talk;

pub use meeting::give_up;
pub use replace::{Build, PoolTakeover, Replace, Replaced, Takeover};

use crate::clock::deadline;
use crate::config::{Config, Listening};
use crate::error::Error;
use crate::listen::path_lock::PathLock;
use crate::listen::unix_path::OwnedPath;
use crate::net::Address;
use crate::operation::Drain;
use crate::pool::moving::{BUSY, EARLIER, Movable};
use crate::pool::{Pool, start};
use crate::protocol::State;
use crate::sync::{Mutex, lock, mpsc};
use crate::sys::{Errno, passing};
use before::Before;
use meeting::Meeting;
use pools::Pools;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taking_over::{Arrivals, Predecessor};

/// The variable that says which process this one may replace: its pid, or `any`.
const REPLACES: &str = "SOCKDRAWER_REPLACES";
/// The variable that says where that process is met, for a new build that fails before it knows.
const MEETS_AT: &str = "SOCKDRAWER_MEETS_AT";
/// Maximum time from the meeting to the commit, unless told otherwise.
const WITHIN: Duration = Duration::from_secs(30);
/// Time for which the predecessor stands by after the commit, unless told otherwise.
const STAND_BY: Duration = Duration::from_secs(3);
/// Maximum time that a loop may be busy when a successor comes, unless told otherwise.
const TURNS_WITHIN: Duration = Duration::from_secs(5);
/// Connections of a pool that the next build does not have may take so long to end, unless told otherwise.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// The pause before a predecessor is met again that has hung up.
const MEETS_AGAIN: Duration = Duration::from_millis(10);
/// The helpers of a process that has died have its listening sockets until the kernel has ended them, too.
const HELPERS_END_WITHIN: Duration = Duration::from_secs(1);
/// Reason why neither a successor nor a program that asks goes on to meet a process.
const HANGS_UP: &str = "the process that serves there hangs up each time: see what it is short of";
/// Reason why a successor is refused that was only to show that it could take over.
const REHEARSAL: &str = "it was a rehearsal";
/// Maximum number of processes before this one that may still have connections.
const MAX_BEHIND: u32 = 4;

/// A program that can be replaced by a new build of itself, and may be that new build.
///
/// What moves must be declared: see [`Service::state`](crate::Service::state). The models of both may differ; connections of `fork`, each of which
/// has a process to itself, stay until they end. Pools may accept or connect: connects that are under way stay, and follow once they stand.
///
/// ```no_run
/// # use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step, Upgrade};
/// # struct Chat;
/// # impl Service for Chat { type Protocol = Chat; fn open(&self, _: &Peer) -> Chat { Chat } }
/// # impl Protocol for Chat { fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step { Step::Close } }
/// # fn main() -> Result<(), sockdrawer::Error> {
/// let upgrade = Upgrade::at("/run/chat/upgrade.sock").version(env!("CARGO_PKG_VERSION")).begin()?;
/// let pool = upgrade.start("chat", Config::accept(Chat).listen("0.0.0.0:9000"))?;
/// upgrade.ready()?;
/// pool.join() // returns when a successor has taken over, too
/// # }
/// ```
#[derive(Debug)]
#[must_use = "no new build can take over once it is dropped: keep it as long as the pools"]
pub struct Upgrade {
    path: PathBuf,
    version: String,
    replaces: Option<String>,
    within: Duration,
    stand_by: Duration,
    stays: Option<(Duration, Drain)>,
    ends: Drain,
    turns_within: Duration,
    asked: Consent,
    begun: Option<Begun>,
}

/// Parts of an upgrade that has begun.
#[derive(Debug)]
struct Begun {
    place: Arc<MeetingPlace>,
    path: Mutex<Option<OwnedPath>>,
    predecessor: Mutex<Option<Predecessor>>,
    before: Arc<Before>,
    pools: Arc<Pools>,
    carries: Mutex<Vec<Carry>>,
    /// Time at which the process died that served there when this one came.
    died: Option<Instant>,
}

/// The kernel gives a port to two processes only where both asked for it before the first one bound it.
const MOVES_FIRST: &str =
    "the build that is replaced listens at another address of this port: have it listen there first (reload), then upgrade";

/// Code of the program that may refuse a successor, with its reason, and code that hears that one has failed.
#[derive(Clone)]
struct Consent {
    asked: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    taken_back: Arc<dyn Fn() + Send + Sync>,
}

impl Default for Consent {
    fn default() -> Consent {
        Consent { asked: Arc::new(|| Ok(())), taken_back: Arc::new(|| ()) }
    }
}

impl Consent {
    fn ask(&self) -> Result<(), String> {
        let asked = catch_unwind(AssertUnwindSafe(|| (self.asked)()));
        asked.unwrap_or_else(|_| Err("the code that it asks panicked".to_owned()))
    }

    fn take_back(&self) {
        // A panic of it is told by the hook of panics, and has nothing to end here.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.taken_back)()));
    }
}

impl std::fmt::Debug for Consent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Consent")
    }
}

/// State that a service shares among its connections, by its name.
struct Carry {
    name: String,
    write: Box<dyn Fn() -> Vec<u8> + Send>,
    read: Option<ReadCarried>,
}

type ReadCarried = Box<dyn FnOnce(&[u8]) + Send>;

impl std::fmt::Debug for Carry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns whether connections that stay for this reason are left behind by the upgrade that says so. Those are not whose end is under way, and those
/// that an upgrade before left in an earlier process, which said so.
pub fn leaves_behind(reason: &str) -> bool {
    ![crate::event_loop::phase::ENDING, EARLIER].contains(&reason)
}

/// A pool, by the name that both builds know.
#[derive(Clone)]
struct NamedPool {
    name: String,
    pool: Arc<dyn Movable>,
    /// Addresses that the predecessor has and this build does not want.
    given_up: Vec<Address>,
}

impl NamedPool {
    /// Returns how many connections of a pool can move to a build that reads these states, and how many others are here, by reason.
    fn plan(&self, reads: &State, within: Option<Duration>) -> (u64, BTreeMap<String, u64>) {
        let (moving, mut stay) = self.pool.plan_to_move(reads, within);
        if stay.contains_key(BUSY) {
            // All that is not among the answers.
            let known = moving + stay.values().sum::<u64>();
            stay.insert(BUSY.to_owned(), self.pool.held().saturating_sub(known));
        }
        stay.retain(|_, count| *count > 0);
        (moving, stay)
    }
}

/// The socket at which the next successor is met, until another process meets it.
#[derive(Debug)]
struct MeetingPlace(Mutex<Option<Arc<OwnedFd>>>);

impl MeetingPlace {
    fn socket(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.0).clone()
    }

    fn leave(&self) {
        *lock(&self.0) = None;
    }
}

impl std::fmt::Debug for NamedPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Upgrade {
    /// Returns an upgrade whose two processes meet at this path: a Unix socket that only this user may use.
    pub fn at(path: impl Into<PathBuf>) -> Upgrade {
        let replaces = std::env::var(REPLACES).ok();
        Upgrade {
            path: path.into(),
            version: String::new(),
            replaces,
            within: WITHIN,
            stand_by: STAND_BY,
            stays: None,
            ends: Drain::within(ENDS_WITHIN),
            turns_within: TURNS_WITHIN,
            asked: Consent::default(),
            begun: None,
        }
    }

    /// Sets the version of this build, for people to read. Default: empty.
    pub fn version(mut self, version: impl Into<String>) -> Upgrade {
        self.version = version.into();
        self
    }

    /// Sets the process that this one may replace, in the place of what the environment's `SOCKDRAWER_REPLACES` says: a pid, or `any`. Default: the
    /// environment.
    pub fn replaces(mut self, whom: impl Into<String>) -> Upgrade {
        self.replaces = Some(whom.into());
        self
    }

    /// Sets the maximum time from [`Upgrade::begin`] to [`Upgrade::ready`]. After that the predecessor goes on alone. Default: 30 s.
    pub fn within(mut self, time: Duration) -> Upgrade {
        self.within = time;
        self
    }

    /// Sets the time for which the predecessor stands by after the commit, to take the listeners back should this process die; no longer than until
    /// this process is replaced in turn. Until then it finds all that both have as it left it: options, backlogs, modes and addresses of this build
    /// come after that. Default: 3 s.
    pub fn stand_by(mut self, time: Duration) -> Upgrade {
        self.stand_by = time;
        self
    }

    /// Sets the maximum time that connections that cannot move may stay in this process once it is replaced, and the way they are ended then.
    /// Default: none, for ever: no change ends a connection unasked.
    pub fn stays(mut self, time: Duration, then: Drain) -> Upgrade {
        self.stays = Some((time, then));
        self
    }

    /// Sets the way connections of a pool end that the next build does not have. That pool goes on here until the next build stands, and is drained
    /// then; what waits at its addresses is accepted before those are closed. An address at which another pool of the next build listens is that
    /// one's from the commit on, with what waits there. Connections that stay here end so, too, where the next build dies that counts them, once
    /// another has replaced it: that one knows nothing of them. [`Upgrade::stays`] says until when they may stay even so. Default: 30 s, all at once.
    pub fn ends(mut self, how: Drain) -> Upgrade {
        self.ends = how;
        self
    }

    /// Sets the maximum time that a loop of this process may be busy with its code when a new build comes, which is refused then. The other loops
    /// accept meanwhile. Default: 5 s.
    pub fn turns_within(mut self, time: Duration) -> Upgrade {
        self.turns_within = time;
        self
    }

    /// Has this process ask `whether` a new build may replace it, each time that one comes, but for rehearsals. Its error is the reason that the new
    /// build, and the program that started it, are told. It is called on a thread of the upgrade; the new build waits meanwhile, no longer than its
    /// [`Upgrade::within`]. Default: any may.
    pub fn asks(mut self, whether: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Upgrade {
        self.asked.asked = Arc::new(whether);
        self
    }

    /// Has this process call `then` where a new build has been given what is [carried](Upgrade::carry), and has not taken over all the same, or died
    /// soon after: what was written is this process's again. It is called on a thread of the upgrade, when connections go on here. Default: nothing.
    pub fn taken_back(mut self, then: impl Fn() + Send + Sync + 'static) -> Upgrade {
        self.asked.taken_back = Arc::new(then);
        self
    }

    /// Returns the times, the version and what stays, for a test of the documentation.
    #[cfg(test)]
    pub(crate) fn defaults(&self) -> ([Duration; 4], &str, Option<(Duration, Drain)>) {
        ([self.within, self.stand_by, self.turns_within, self.ends.deadline], &self.version, self.stays)
    }

    /// Meets the predecessor, if there is one.
    ///
    /// # Errors
    /// [`Error::Upgrade`] when a process serves at the path that this one is not to replace, or that does not let itself be replaced; when
    /// the path cannot be used.
    pub fn begin(mut self) -> Result<Upgrade, Error> {
        let (predecessor, socket, died) = self.meet()?;
        let (predecessor, pools) = (Mutex::new(predecessor), Arc::default());
        let place = Arc::new(MeetingPlace(Mutex::new(Some(Arc::new(socket)))));
        let path = Mutex::new(OwnedPath::new(&Address::Unix(self.path.clone())));
        self.begun = Some(Begun { place, path, predecessor, before: Arc::default(), pools, carries: Mutex::default(), died });
        Ok(self)
    }

    /// Meets the predecessor. Returns it, and the socket of the meeting place; without one, when it died that was met.
    fn meet(&self) -> Result<(Option<Predecessor>, OwnedFd, Option<Instant>), Error> {
        let (until, mut died) = (deadline(Instant::now(), self.within), None);
        loop {
            // If two start at once, the second must not take what the first has just made for stale.
            let lock = PathLock::of(Some(&self.path));
            match passing::packet_connect(&self.path) {
                Ok(socket) => {
                    drop(lock);
                    let met = Predecessor::meet(socket, &self.version, self.replaces.as_deref(), until);
                    if let Some((predecessor, place)) = met.map_err(|reason| self.error(reason))? {
                        return Ok((Some(predecessor), place, None));
                    }
                    died = Some(Instant::now());
                    // The process there may have died a moment ago: then there is none. Or it is short of something, and hangs up.
                    if Instant::now() >= until {
                        return Err(self.error(HANGS_UP.to_owned()));
                    }
                    std::thread::sleep(MEETS_AGAIN);
                }
                Err(Errno::NOENT) => return Ok((None, self.open()?, died)),
                Err(Errno::CONNREFUSED) if !lock.is_held() => {
                    return Err(self.error("another program starts there, or its lock file belongs to another user: try again, or choose another path".to_owned()));
                }
                Err(Errno::CONNREFUSED) => {
                    self.remove_stale()?;
                    return Ok((None, self.open()?, died));
                }
                Err(Errno::PROTOTYPE) => {
                    return Err(self.error("another program's socket is there: choose another path".to_owned()));
                }
                Err(errno) => return Err(self.error(std::io::Error::from(errno).to_string())),
            }
        }
    }

    /// Removes a socket without a process behind it.
    fn remove_stale(&self) -> Result<(), Error> {
        let failed = |error: std::io::Error| self.error(error.to_string());
        if !std::fs::symlink_metadata(&self.path).map_err(failed)?.file_type().is_socket() {
            return Err(self.error("what is there is no socket: choose another path".to_owned()));
        }
        std::fs::remove_file(&self.path).map_err(failed)
    }

    fn open(&self) -> Result<OwnedFd, Error> {
        passing::packet_listener(&self.path).map_err(|errno| {
            let remedy = match errno {
                Errno::NOENT => ": make its folder, or choose another path",
                Errno::ACCESS | Errno::PERM | Errno::ROFS => ": choose a path where this user may make a socket",
                _ => "",
            };
            self.error(format!("{}{remedy}", std::io::Error::from(errno)))
        })
    }

    fn error(&self, reason: String) -> Error {
        let path = self.path.clone();
        if reason == REHEARSAL { Error::Rehearsed { path } } else { Error::Upgrade { path, reason } }
    }

    fn begun(&self) -> Result<&Begun, Error> {
        self.begun.as_ref().ok_or_else(|| self.error("it has not begun: call begin() first".to_owned()))
    }

    /// Returns the build that is replaced: between [`Upgrade::begin`] and [`Upgrade::ready`], where there is one.
    pub fn predecessor(&self) -> Option<Build> {
        lock(&self.begun.as_ref()?.predecessor).as_ref().map(|predecessor| predecessor.build.clone())
    }

    /// Returns the addresses at which the predecessor's pool of this name listens, with real ports, but for addresses that a pool
    /// [started](Upgrade::start) here has. Empty without a predecessor, or such a pool of it.
    ///
    /// A pool that listens there goes on with the predecessor's sockets, which may be a service manager's:
    ///
    /// ```no_run
    /// # use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step, Upgrade, listening::Listening};
    /// # struct Chat;
    /// # impl Service for Chat { type Protocol = Chat; fn open(&self, _: &Peer) -> Chat { Chat } }
    /// # impl Protocol for Chat { fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step { Step::Close } }
    /// # fn passed_by_systemd() -> Vec<Listening> { Vec::new() }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let upgrade = Upgrade::at("/run/chat/upgrade.sock").begin()?;
    /// let config = Config::accept(Chat);
    /// // systemd passes its sockets to the first process only.
    /// let config = match upgrade.predecessor() {
    ///     Some(_) => upgrade.addresses("chat").into_iter().fold(config, Config::listen),
    ///     None => passed_by_systemd().into_iter().fold(config, Config::listening),
    /// };
    /// let chat = upgrade.start("chat", config)?;
    /// upgrade.ready()?;
    /// // Later, told by an operator: it accepts at once, and the next build takes it over, too.
    /// let more = upgrade.start("more", Config::accept(Chat).listen("127.0.0.1:9001"))?;
    /// # let _ = (chat, more);
    /// # Ok(())
    /// # }
    /// ```
    pub fn addresses(&self, name: &str) -> Vec<Address> {
        let Some(begun) = &self.begun else { return Vec::new() };
        lock(&begun.predecessor).iter().flat_map(|predecessor| predecessor.addresses(name)).collect()
    }

    /// Returns the addresses at which the predecessor listens with sockets that a service manager passed it, with their
    /// [names](crate::listening::Listening::name); until pools that listen there are [started](Upgrade::start) here. Those go on with them: the
    /// manager passes its sockets to the first process only ([`passed_sockets`](crate::listening::passed_sockets)).
    pub fn named(&self) -> Vec<Listening> {
        let Some(begun) = &self.begun else { return Vec::new() };
        lock(&begun.predecessor).iter().flat_map(Predecessor::named).collect()
    }

    /// Starts a pool, as [`Pool::start`] does, at the listening sockets that the predecessor has at the same addresses, in whatever pool. It takes no
    /// connection before [`Upgrade::ready`]. An address at which only the predecessor's pool of this name listens is given up once
    /// the predecessor stands by no more: until then this pool listens there too. A pool of the predecessor's that is not started here ends there, as
    /// [`Upgrade::ends`] says.
    ///
    /// Started after [`Upgrade::ready`], it accepts at once. A successor takes over the pools that run when it begins, and is refused where
    /// one was started since. A pool that is shut down is not the successor's: what it has left ends here.
    ///
    /// # Errors
    /// As [`Pool::start`]; [`Error::Invalid`] where a pool of this name runs; [`Error::HandingOver`] while this process takes over, and once
    /// it is replaced.
    pub fn start(&self, name: &str, config: Config) -> Result<Pool, Error> {
        let begun = self.begun()?;
        begun.pools.may_start(name)?;
        let wanted = config.listened();
        let inherited = lock(&begun.predecessor).as_mut().map(|predecessor| predecessor.take_sockets(name, wanted));
        let mut inherited = Some(inherited.unwrap_or_default());
        let helpers_may_live = || begun.died.is_some_and(|at| at.elapsed() < HELPERS_END_WITHIN);
        let movable = loop {
            match start(config.clone(), Some(inherited.take().unwrap_or_default())) {
                Err(Error::AddressInUse(address)) if lock(&begun.predecessor).iter().any(|other| other.overlaps(&address)) => {
                    return Err(Error::Listen { address, source: Errno::ADDRINUSE.into(), remedy: MOVES_FIRST });
                }
                Err(Error::AddressInUse(_)) if helpers_may_live() => std::thread::sleep(MEETS_AGAIN),
                started => break started?,
            }
        };
        let pool = Pool::of(movable.clone());
        begun.pools.add(NamedPool { name: name.to_owned(), pool: movable, given_up: Vec::new() })?;
        Ok(pool)
    }

    /// Takes along what a service shares among its connections, such as a table of topics: `write` in the predecessor, after the last
    /// connection was accepted there, and `read` in its successor, in [`Upgrade::ready`], before the first is accepted. Both builds know it by
    /// this name; where the predecessor does not, `read` is not called. Connections that stay in the predecessor, and in a pool whose
    /// connections do not move [together](crate::State::together) all of them for a moment, go on with what is there. The bytes are the
    /// service's own: give them a version. They may be secret: copies that this library makes are wiped after use, and none is printed.
    /// A pool of processes then asks its service for its [`Recipe`](crate::Recipe) once more; another one is built before the first connection.
    ///
    /// Connections that change what is carried are to move [together](crate::State::together): whatever another one changes between `write` and its
    /// own move is lost. All that is carried may have 64 MiB, and no connection is answered while it is written and read. [`Saver`](crate::Saver) and
    /// [`Saved`](crate::Saved) do for these bytes, too. Call it before [`Upgrade::ready`]: later it does nothing.
    ///
    /// A panic of `write`, or too many bytes, end the upgrade; the predecessor goes on as it was. A panic of `read` comes out of
    /// [`Upgrade::ready`]; the predecessor goes on once this process has ended.
    ///
    /// # Errors
    /// [`Error::Upgrade`] before [`Upgrade::begin`].
    pub fn carry(
        &self,
        name: &str,
        write: impl Fn() -> Vec<u8> + Send + 'static,
        read: impl FnOnce(&[u8]) + Send + 'static,
    ) -> Result<(), Error> {
        lock(&self.begun()?.carries).push(Carry { name: name.to_owned(), write: Box::new(write), read: Some(Box::new(read)) });
        Ok(())
    }

    /// Commits: this process accepts from now on, and can be replaced in turn. Where there is a predecessor, its connections follow in the
    /// background.
    ///
    /// # Errors
    /// [`Error::Rehearsed`] at the end of a rehearsal: end this process in order. [`Error::Upgrade`] when the predecessor refuses or is gone: it goes
    /// on as it was, and this process accepts nothing; when it was called before.
    pub fn ready(&self) -> Result<(), Error> {
        let begun = self.begun()?;
        let mut pools =
            begun.pools.take_waiting().ok_or_else(|| self.error("ready() was called before: call it once".to_owned()))?;
        let (predecessor, before) = (lock(&begun.predecessor).take(), begun.before.clone());
        let mut carries = std::mem::take(&mut *lock(&begun.carries));
        // Before the commit, after which nothing may fail: the end of the conversation would say that this process is dead.
        let receive = spawn("sockdrawer-arrivals", |(arrivals, settles): (Arrivals, Instant)| arrivals.receive(settles))?;
        let meet = spawn("sockdrawer-upgrade", Meeting::serve)?;
        match predecessor {
            Some(mut predecessor) => {
                for named in &mut pools {
                    // Connections that wait at these sockets are served. The sockets end in order, once the predecessor has let go of them.
                    let left = predecessor.take_left(&named.name);
                    named.given_up = left.iter().map(|one| one.address.clone()).collect();
                    named.pool.listen_too(left)?;
                }
                let taken_over = predecessor.take_over(&pools, &mut carries, before.clone());
                let arrivals = taken_over.map_err(|reason| self.error(reason))?;
                // It waits for them.
                let _ = receive.send((arrivals, Instant::now() + self.stand_by));
            }
            None => pools.iter().for_each(|named| named.pool.open()),
        }
        begun.pools.serve(&pools);
        let (version, place, pools) = (self.version.clone(), begun.place.clone(), begun.pools.clone());
        let (path, stays, ends, turns_within) = (self.path.clone(), self.stays, self.ends, self.turns_within);
        let asked = self.asked.clone();
        let _ = meet.send(Meeting { path, place, version, pools, before, carries, stays, ends, turns_within, asked });
        Ok(())
    }

    /// Has this process replace itself, as [`Replace::run`] does from another.
    ///
    /// # Errors
    /// As there.
    pub fn spawn(&self) -> Result<Replaced, Error> {
        Replace::at(&self.path).within(self.within).run(|_| ())
    }

    /// Removes the path, where all pools have ended and no other process meets successors there. The end of this value does it, too; a program
    /// that ends by `std::process::exit`, or that keeps this value for ever, calls it.
    pub fn leave(&self) {
        let Some(begun) = &self.begun else { return };
        let Some(path) = lock(&begun.path).take() else { return };
        // A predecessor that stands by meets the next one there, should this process end.
        let is_last = lock(&begun.predecessor).is_none() && begun.before.is_settled();
        let is_alone = is_last && begun.place.socket().is_some();
        if is_alone && begun.pools.have_ended() { drop(path) } else { path.leave() }
    }

    /// Returns the path where the two processes meet.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Upgrade {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Starts a thread that does something with what it is sent; nothing where nothing comes.
fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce(T) + Send + 'static) -> Result<mpsc::Sender<T>, Error> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || _ = receiver.recv().map(run));
    thread.map(|_| sender).map_err(|source| Error::System { what: "start the upgrade's thread", source })
}
