//! What runs a pool: threads of this process, or other processes. The handle speaks to either in the same words.

use super::drain::{Drain, Drained};
use super::handle::Applied;
use crate::config::{Config, Part};
use crate::error::Error;
use crate::event_loop::door::Intake;
use crate::net::Address;
use crate::observe::Status;
use crate::operation::{Op, Outcome, Selector};
use crate::protocol::Local;
use std::sync::Arc;
use std::time::Duration;

/// A visitor of what services made for their loops.
pub(crate) type Visit = Arc<dyn Fn(&mut Local) + Send + Sync>;

/// The methods of [`Pool`](super::Pool), where they are described.
pub(crate) trait Manager: Send + Sync {
    fn config(&self) -> Config;
    fn addresses(&self) -> Vec<Address>;
    fn reconfigure(&self, wanted: Config) -> Result<Applied, Error>;
    fn set_intake(&self, intake: &Intake);
    fn set_listener_intake(&self, address: &Address, intake: &Intake) -> Result<(), Error>;
    /// Does this to the connections that are meant.
    ///
    /// # Errors
    /// [`Error::NotInModel`] for a note where only signals reach a connection.
    fn apply(&self, op: Op, selector: &Selector) -> Result<Outcome, Error>;
    fn drain(&self, selector: &Selector, how: Drain) -> Drained;
    fn purge(&self, selector: &Selector, within: Duration) -> Drained;
    /// Visits only what is in this process.
    fn visit_locals(&self, visit: Visit);
    fn status(&self) -> Status;
    fn wait(&self, within: Duration, condition: &mut dyn FnMut(&Status) -> bool) -> bool;
    fn shutdown(&self, how: Drain, reason: &str) -> Drained;
    fn join(&self) -> Result<(), Error>;
    /// Ends everything now.
    fn stop(&self, reason: &str);
    /// The code of the user's that this thread is in, if the pool may be waiting for it.
    fn waited_code(&self) -> Option<&'static str>;
    /// For tests: ends a part as a bug in it would. Of parts without numbers any one.
    fn crash(&self, part: Part, index: usize) -> bool;
}
