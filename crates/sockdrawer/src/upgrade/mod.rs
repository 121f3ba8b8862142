//! A new build of a program takes over from the one that runs: listening sockets and live connections, with what belongs to them.
//!
//! The two meet at a path. The new one, the successor, builds its pools on the listening sockets of the other, the predecessor, and
//! takes no connection yet. [`Upgrade::ready`] is the commit: the predecessor stops to accept, the successor accepts, and then the
//! connections follow, each with its state, untaken input, unsent output, timer and tag. What cannot move stays in the predecessor, which
//! serves it until it ends.

mod predecessor;
mod successor;
mod talk;

use crate::config::{Config, Model};
use crate::error::Error;
use crate::pool::loops::Loops;
use crate::pool::{Core, Pool};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, passing};
use predecessor::Predecessor;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The variable that says which process this one may replace: its pid, or `any`.
const REPLACES: &str = "SOCKDRAWER_REPLACES";
/// Between the two processes nothing takes longer, until the connections follow.
const WITHIN: Duration = Duration::from_secs(30);

/// A program that can be replaced by a new build of itself, and may be that new build.
///
/// What moves must be declared: see [`Service::state`](crate::Service::state). The model must be `loops` or `tasks`, in both.
///
/// ```no_run
/// # use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step, Upgrade};
/// # struct Chat;
/// # impl Service for Chat { type Protocol = Chat; fn open(&self, _: &Peer) -> Chat { Chat } }
/// # impl Protocol for Chat { fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step { Step::Close } }
/// # fn main() -> Result<(), sockdrawer::Error> {
/// let upgrade = Upgrade::at("/run/chat/upgrade.sock").version(env!("CARGO_PKG_VERSION")).begin()?;
/// let pool = upgrade.start("chat", Config::accept(Chat).listen("0.0.0.0:9000".parse().expect("an address")))?;
/// upgrade.ready()?;
/// pool.join() // returns when a successor has taken over, too
/// # }
/// ```
#[derive(Debug)]
pub struct Upgrade {
    path: PathBuf,
    version: String,
    replaces: Option<String>,
    begun: Option<Begun>,
}

/// What an upgrade has once it has begun.
#[derive(Debug)]
struct Begun {
    /// At the path.
    meeting_place: Arc<OwnedFd>,
    predecessor: Mutex<Option<Predecessor>>,
    pools: Mutex<Vec<Named>>,
}

/// A pool, by the name that both builds know.
#[derive(Clone)]
struct Named {
    name: String,
    pool: Arc<Core<Loops>>,
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Upgrade {
    /// An upgrade whose two processes meet at this path: a Unix socket that only this user may use.
    pub fn at(path: impl Into<PathBuf>) -> Upgrade {
        Upgrade { path: path.into(), version: String::new(), replaces: std::env::var(REPLACES).ok(), begun: None }
    }

    /// The version of this build, for people to read.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Upgrade {
        self.version = version.into();
        self
    }

    /// Which process this one may replace, in the place of what the environment's `SOCKDRAWER_REPLACES` says: a pid, or `any`.
    #[must_use]
    pub fn replaces(mut self, whom: impl Into<String>) -> Upgrade {
        self.replaces = Some(whom.into());
        self
    }

    /// Meets the predecessor, if there is one.
    ///
    /// # Errors
    /// [`Error::Upgrade`] when a process serves at the path that this one is not to replace, or that does not let itself be replaced; when
    /// the path cannot be used.
    pub fn begin(mut self) -> Result<Upgrade, Error> {
        let (predecessor, meeting_place) = match passing::packet_connect(&self.path) {
            Ok(socket) => {
                let (predecessor, place) =
                    Predecessor::meet(socket, &self.version, self.replaces.as_deref()).map_err(|reason| self.error(reason))?;
                (Some(predecessor), place)
            }
            Err(Errno::NOENT) => (None, self.open()?),
            Err(Errno::CONNREFUSED) => {
                self.remove_stale()?;
                (None, self.open()?)
            }
            Err(Errno::PROTOTYPE) => return Err(self.error("another program's socket is there: choose another path".to_owned())),
            Err(errno) => return Err(self.error(std::io::Error::from(errno).to_string())),
        };
        let (predecessor, pools) = (Mutex::new(predecessor), Mutex::default());
        self.begun = Some(Begun { meeting_place: Arc::new(meeting_place), predecessor, pools });
        Ok(self)
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
        passing::packet_listener(&self.path).map_err(|errno| self.error(std::io::Error::from(errno).to_string()))
    }

    fn error(&self, reason: String) -> Error {
        Error::Upgrade { path: self.path.clone(), reason }
    }

    fn begun(&self) -> Result<&Begun, Error> {
        self.begun.as_ref().ok_or_else(|| self.error("it has not begun: call begin() first".to_owned()))
    }

    /// Starts a pool, as [`Pool::start`] does, at the listening sockets that the predecessor's pool of this name has at the same
    /// addresses. It takes no connection before [`Upgrade::ready`].
    ///
    /// # Errors
    /// As [`Pool::start`]; [`Error::NotInModel`] for a model whose connections cannot move.
    pub fn start(&self, name: &str, config: Config) -> Result<Pool, Error> {
        let begun = self.begun()?;
        let model = config.model;
        if !matches!(model, Model::Loops | Model::Tasks) {
            let (what, remedy) =
                ("hand its connections to another process", "use loops or tasks, or start the pool without an upgrade");
            return Err(Error::NotInModel { model, what, remedy });
        }
        let inherited = lock(&begun.predecessor).as_mut().map(|predecessor| predecessor.take_sockets(name)).unwrap_or_default();
        let pool = Core::<Loops>::start_with(config, Some(inherited))?;
        lock(&begun.pools).push(Named { name: name.to_owned(), pool: pool.clone() });
        Ok(Pool::of(pool))
    }

    /// The commit: this process accepts from now on. Where there is a predecessor, its connections follow in the background. From the
    /// time when it is gone, this process can be replaced in turn.
    ///
    /// # Errors
    /// [`Error::Upgrade`] when the predecessor refuses or is gone: it goes on as it was, and this process accepts nothing.
    pub fn ready(&self) -> Result<(), Error> {
        let begun = self.begun()?;
        let (pools, predecessor) = (std::mem::take(&mut *lock(&begun.pools)), lock(&begun.predecessor).take());
        let (version, place) = (self.version.clone(), begun.meeting_place.clone());
        let known: Vec<_> = pools.iter().map(|named| (named.name.clone(), Arc::downgrade(&named.pool))).collect();
        let moving = match predecessor {
            Some(predecessor) => Some(predecessor.take_over(&pools).map_err(|reason| self.error(reason))?),
            None => {
                pools.iter().for_each(|named| named.pool.accept(true));
                None
            }
        };
        drop(pools);
        let run = move || {
            if let Some(moving) = moving {
                moving.receive();
            }
            successor::serve(&place, &version, &known);
        };
        let thread = std::thread::Builder::new().name("sockdrawer-upgrade".to_owned()).spawn(run);
        thread.map(|_| ()).map_err(|source| Error::System { what: "start the upgrade's thread", source })
    }

    /// Where the two processes meet.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
