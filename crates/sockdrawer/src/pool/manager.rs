//! A pool as its handle sees it, whatever the members are.

use super::behind::Behind;
use super::control::{Control, Core, is_running};
use super::drain::share;
use super::members::{Members, Visit};
use super::plan::Applied;
use crate::admission::AcceptState;
use crate::clock::deadline;
use crate::config::{Config, Listening, Model, Part};
use crate::error::Error;
use crate::net::Address;
use crate::observe::{Event, Readiness, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::protocol::{Connect, Told};
use crate::sync::{lock, try_lock, wait};
use std::time::{Duration, Instant};

/// Maximum time that a member that hangs is waited for when it is told whether to take connections.
pub(super) const PASSES_WITHIN: Duration = Duration::from_secs(5);

/// Reason of a pool's end: another process took it over.
pub(super) const HANDED_OVER: &str = "another process took over";

/// Reason of a pool's end: its user ended it.
pub(super) const SHUT_DOWN: &str = "it was shut down";

/// The methods of [`Pool`](super::Pool), where they are described.
pub(crate) trait Manager: Send + Sync {
    fn config(&self) -> Config;
    /// Returns the model and the addresses, to print them. None while a change, or another question, has the pool locked: code of the user's may be
    /// called then that prints the pool.
    fn unlocked(&self) -> Option<(Model, Vec<Address>)>;
    fn addresses(&self) -> Vec<Address>;
    fn reconfigure(&self, wanted: Config) -> Result<Applied, Error>;
    fn pass_on(&self, address: &Address) -> Result<Listening, Error>;
    fn set_accept_state(&self, accept_state: &AcceptState);
    fn set_listener_accept_state(&self, address: &Address, accept_state: &AcceptState) -> Result<(), Error>;
    /// Does this to the connections that are meant.
    ///
    /// # Errors
    /// [`Error::NotInModel`] for a note where only signals reach a connection.
    fn apply(&self, op: Op, selector: &Selector) -> Result<Outcome, Error>;
    /// Visits only what is in this process.
    fn visit_locals(&self, visit: Visit);
    /// Begins a connect. `told` is dropped where the pool has ended.
    fn connect(&self, connect: Connect, told: Told);
    fn status(&self) -> Status;
    fn wait(&self, within: Duration, condition: &mut dyn FnMut(&Status) -> bool) -> bool;
    fn shutdown(&self, how: Drain, reason: &str) -> Drained;
    fn join(&self) -> Result<(), Error>;
    /// Ends everything now.
    fn stop(&self, reason: &str);
    /// Returns the code of the user's that this thread is in, if the pool may be waiting for it.
    fn waited_code(&self) -> Option<&'static str>;
    /// Ends a part as a bug in it would, for tests. Of parts without numbers any one.
    fn crash(&self, part: Part, index: usize) -> bool;
}

impl<M: Members> Manager for Core<M> {
    fn config(&self) -> Config {
        let control = lock(&self.control);
        Config { based_on: Some(control.revision.stamp()), ..control.config.clone() }
    }

    fn unlocked(&self) -> Option<(Model, Vec<Address>)> {
        let control = try_lock(&self.control)?;
        Some((control.config.model, control.listeners.addresses()))
    }

    fn addresses(&self) -> Vec<Address> {
        lock(&self.control).listeners.addresses()
    }

    fn reconfigure(&self, wanted: Config) -> Result<Applied, Error> {
        let began = Instant::now();
        if let Some(code) = self.waited_code()
            && let Some(setting) = M::awaited(&lock(&self.control).config, &wanted)
        {
            let reason =
                format!("its change waits for the loop that {code} of this pool holds up: call it from a job or another thread");
            return Err(Error::Invalid { setting, reason });
        }
        let (applied, _before, begun) = self.change(wanted).inspect_err(|_| self.retirements.carry_out_left())?;
        self.retirements.settle(&begun);
        Ok(Applied { took: began.elapsed(), ..applied })
    }

    fn pass_on(&self, address: &Address) -> Result<Listening, Error> {
        Core::pass_on(self, address)
    }

    fn set_accept_state(&self, accept_state: &AcceptState) {
        let mut control = lock(&self.control);
        if control.handing_over {
            // Another process accepts.
            control.accepts_then = Some(accept_state.clone());
            return;
        }
        self.put_accept_state(&mut control, accept_state, PASSES_WITHIN);
    }

    fn set_listener_accept_state(&self, address: &Address, accept_state: &AcceptState) -> Result<(), Error> {
        let control = lock(&self.control);
        let entry = control.listeners.find(address)?;
        entry.state.set_accept_state(accept_state);
        M::pass_listener_accept_states(self, &control, &[entry], PASSES_WITHIN);
        Ok(())
    }

    fn apply(&self, op: Op, selector: &Selector) -> Result<Outcome, Error> {
        let behind = lock(&self.control).behind.clone();
        match behind {
            // Connections that stayed in the process before this one move when they can.
            Some(behind) if !matches!(op, Op::Adopt) => self.apply_to_all(&*behind, op, selector),
            _ => M::apply(self, op, selector),
        }
    }

    fn visit_locals(&self, visit: Visit) {
        M::visit_locals(self, visit);
    }

    fn connect(&self, connect: Connect, told: Told) {
        M::connect(self, connect, told);
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

/// Returns the result of [`Pool::join`] for a pool that ended for this reason.
pub(super) fn ended(reason: &str) -> Result<(), Error> {
    if [SHUT_DOWN, HANDED_OVER].contains(&reason) { Ok(()) } else { Err(Error::Stopped { reason: reason.to_owned() }) }
}

impl<M: Members> Core<M> {
    /// Does an operation also to the connections that stayed in the process before this one. Each of the two does its share of a drain.
    fn apply_to_all(&self, behind: &dyn Behind, op: Op, selector: &Selector) -> Result<Outcome, Error> {
        if let Op::Notify(_) = op {
            return behind.note(&op, selector, &mut |selector| M::apply(self, op.clone(), selector));
        }
        let (mut here, mut there) = (op.clone(), Some(op));
        if let Op::Drain(how) = here
            && (how.rate.is_some() || how.max_connections.is_some())
        {
            let stayed = behind.ask(&Op::Count, selector).map_or(0, |answer| answer().done);
            let shares = share(how, &[M::apply(self, Op::Count, selector)?.done, stayed]);
            (here, there) = if stayed == 0 { (here, None) } else { (Op::Drain(shares[0]), Some(Op::Drain(shares[1]))) };
        }
        let answer = there.and_then(|there| behind.ask(&there, selector));
        let mut outcome = M::apply(self, here, selector)?;
        let is_found = matches!(selector, Selector::Id(_)) && outcome.done + outcome.drained.asked > 0;
        if let Some(answer) = answer.filter(|_| !is_found) {
            outcome += answer();
        }
        Ok(outcome)
    }

    /// Has every member take connections, or not. A member that hangs is waited for at most this long.
    pub(super) fn put_accept_state(&self, control: &mut Control<M>, accept_state: &AcceptState, within: Duration) {
        if is_running(&control.readiness).is_err() || control.accept_state == *accept_state {
            return;
        }
        let until = deadline(Instant::now(), within);
        let (before, now) = (control.readiness.clone(), readiness(accept_state));
        control.accept_state = accept_state.clone();
        // The pool must not be seen ready when a listener stops, nor before one goes on.
        if *accept_state != AcceptState::Open {
            control.readiness = now.clone();
            self.tell(&Event::ReadinessChanged(now));
            return M::pass_accept_state(self, control, until);
        }
        M::pass_accept_state(self, control, until);
        control.readiness = now.clone();
        if before != now {
            self.tell(&Event::ReadinessChanged(now));
        }
    }
}

/// Returns the readiness of a pool in this accept state.
fn readiness(accept_state: &AcceptState) -> Readiness {
    match accept_state {
        AcceptState::Open => Readiness::Serving,
        AcceptState::Suspended => Readiness::Suspended,
        AcceptState::Refusing(_) => Readiness::Refusing,
    }
}
