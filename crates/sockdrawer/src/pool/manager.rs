//! A pool as its handle sees it, whatever the members are.

use super::control::Core;
use super::handle::{Applied, ended};
use super::members::Members;
use crate::clock::deadline;
use crate::config::{Config, Part};
use crate::error::Error;
use crate::listen::state::AcceptState;
use crate::net::Address;
use crate::observe::{Readiness, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::protocol::Local;
use crate::sync::{lock, wait};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A visitor of what services made for their loops.
pub(crate) type Visit = Arc<dyn Fn(&mut Local) + Send + Sync>;

/// The methods of [`Pool`](super::Pool), where they are described.
pub(crate) trait Manager: Send + Sync {
    fn config(&self) -> Config;
    fn addresses(&self) -> Vec<Address>;
    fn reconfigure(&self, wanted: Config) -> Result<Applied, Error>;
    fn set_accept_state(&self, accept_state: &AcceptState);
    fn set_listener_accept_state(&self, address: &Address, accept_state: &AcceptState) -> Result<(), Error>;
    /// Does this to the connections that are meant.
    ///
    /// # Errors
    /// [`Error::NotInModel`] for a note where only signals reach a connection.
    fn apply(&self, op: Op, selector: &Selector) -> Result<Outcome, Error>;
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

impl<M: Members> Manager for Core<M> {
    fn config(&self) -> Config {
        Core::config(self)
    }

    fn addresses(&self) -> Vec<Address> {
        lock(&self.control).listeners.addresses()
    }

    fn reconfigure(&self, wanted: Config) -> Result<Applied, Error> {
        let began = Instant::now();
        let (applied, _before, begun) = self.change(wanted).inspect_err(|_| self.retirements.carry_out_left())?;
        self.retirements.settle(&begun);
        Ok(Applied { took: began.elapsed(), ..applied })
    }

    fn set_accept_state(&self, accept_state: &AcceptState) {
        Core::set_accept_state(self, accept_state);
    }

    fn set_listener_accept_state(&self, address: &Address, accept_state: &AcceptState) -> Result<(), Error> {
        Core::set_listener_accept_state(self, address, accept_state)
    }

    fn apply(&self, op: Op, selector: &Selector) -> Result<Outcome, Error> {
        M::apply(self, op, selector)
    }

    fn visit_locals(&self, visit: Visit) {
        M::visit_locals(self, visit);
    }

    fn status(&self) -> Status {
        M::status(self)
    }

    fn wait(&self, within: Duration, condition: &mut dyn FnMut(&Status) -> bool) -> bool {
        self.own.notifier().wait(deadline(Instant::now(), within), || condition(&M::status(self)))
    }

    fn shutdown(&self, how: Drain, reason: &str) -> Drained {
        Core::shutdown(self, how, reason, |_| ())
    }

    fn join(&self) -> Result<(), Error> {
        let mut control = lock(&self.control);
        loop {
            match &control.readiness {
                Readiness::Stopped(reason) => return ended(reason),
                _ => control = wait(&self.stopped, control),
            }
        }
    }

    fn stop(&self, reason: &str) {
        Core::stop(self, reason);
    }

    fn waited_code(&self) -> Option<&'static str> {
        self.own.waited_code()
    }

    fn crash(&self, part: Part, index: usize) -> bool {
        M::crash(self, part, index)
    }
}
