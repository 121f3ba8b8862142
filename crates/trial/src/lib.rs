//! Proves that a server survives changes: clients exchange messages with it while it is changed again and again, and every loss that a
//! client could see is counted. The changes come from one of three sources: closures over a pool of your own, as below; the kinds of change
//! that a pool has, each in turn ([`kinds`]); or a command that changes any server ([`command`]).
//!
//! ```
//! use sockdrawer_trial::{Change, trial};
//! use sockdrawer::{Context, Input, Peer, Protocol, Service, Step};
//!
//! struct Echo;
//! impl Service for Echo {
//!     type Protocol = Echo;
//!     fn open(&self, _peer: &Peer) -> Echo {
//!         Echo
//!     }
//! }
//! impl Protocol for Echo {
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
//!         cx.send(input.bytes());
//!         input.take_all();
//!         Step::Continue
//!     }
//! }
//!
//! let changes = vec![
//!     Change::new("service", |pool| pool.reconfigure(pool.config().behaviour(Echo))),
//!     Change::new("loops", |pool| pool.reconfigure(pool.config().loops(3 - pool.config().loops))),
//! ];
//! let report = trial(Echo, changes).rounds(3).configure(|config| config.loops(1)).run()?;
//! report.assert_nothing_lost();
//! assert_eq!(report.changes[0].times, 3);
//! # Ok::<(), sockdrawer::Error>(())
//! ```
//!
//! The parts are public, to build other trials from them: [`Clients`] are the two sets of clients, [`Exchange`] makes their requests and
//! checks the answers, [`Tally`] counts.

mod clients;
mod closures;
pub mod command;
mod deliveries;
mod exchange;
mod group;
pub mod kinds;
mod random;
mod script;
mod sets;
mod subscribers;
mod table;
mod talk;
mod tally;
mod tls;
mod verdict;
mod websocket;

pub use clients::{Cause, Churn, Keep, Kept, PATIENCE, Phase, Visit, Witness};
pub use closures::{Change, ChangeReport, Report, Trial, trial};
pub use deliveries::{Delivered, Deliveries, Losses};
pub use exchange::{Dialogue, Echo, Echoed, Exchange, Judgement, Paired, Pairs};
pub use random::{Random, mix};
pub use script::{Broadcast, Script, Scripted, Speaker, WrongScript};
pub use sets::{Clients, Plan, Probe};
pub use subscribers::{Subscriber, Subscribers};
pub use tally::{Counter, Failure, Group, Seen, Tally};
pub use tls::Tls;
pub use verdict::{Bill, Judged, Verdict};

use std::time::Duration;

/// The progress of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The time since the first change.
    pub elapsed: Duration,
    /// Changes applied, or commands that ended.
    pub changes: u64,
    /// Counts of the clients so far.
    pub seen: Seen,
}

/// End of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this number of changes.
    Changes(u64),
    /// After this time.
    Passed(Duration),
}

/// Waits for at most this time until a trial is to end early, and returns whether it is. For a trial that never ends early: `&|_| false`.
pub type Stopped<'a> = &'a dyn Fn(Duration) -> bool;
