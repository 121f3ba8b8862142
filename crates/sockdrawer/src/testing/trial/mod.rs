//! Proves that a service survives changes: two sets of clients exchange with it while changes are applied to its pool, and
//! everything is counted that a client could lose.
//!
//! ```
//! use sockdrawer::testing::{trial, trial::Change};
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
//! The parts are public, so that a trial of something else can be made of them: [`Clients`] are the two sets, [`Exchange`] is what
//! they say, [`Tally`] counts.

mod clients;
mod exchange;
mod random;
mod report;
mod run;
mod scene;
mod tally;
#[cfg(test)]
mod tests;

pub use clients::{Cause, Churn, Keep, Kept, PATIENCE, Phase, Visit, Witness};
pub use exchange::{Dialogue, Echo, Echoed, Exchange, Judgement, Paired, Pairs};
pub use random::{Random, mix};
pub use report::{ChangeReport, Report};
pub use run::{Change, Trial, trial};
pub use scene::{Clients, Plan, Probe};
pub use tally::{Counter, Failure, Group, Seen, Tally};
