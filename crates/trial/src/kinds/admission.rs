//! Changes of the admission policy. Its limits are far above use, so that no client may notice the change.

use super::change::{Changer, Unseen};
use super::kind::Kind;
use super::schedule::another;
use sockdrawer::{
    Config, Model,
    admission::{AcceptRate, Admission, Limits, PerPeer},
};
use std::time::Duration;

/// Connections per second, far more than a trial makes.
const RATE: f64 = 10_000_000.0;

/// A policy other than the default one, which accepts all connections.
struct Open;

impl Admission for Open {}

/// The policy that replaces the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Default,
    Rate,
    PerPeer,
    Own,
}

impl Policy {
    /// Returns the policies that a model supports.
    fn of(model: Model) -> &'static [Policy] {
        match model {
            Model::Prefork => &[Policy::Default, Policy::Rate],
            Model::Fork => &[Policy::Default, Policy::Rate, Policy::PerPeer],
            _ => &[Policy::Default, Policy::Rate, Policy::PerPeer, Policy::Own],
        }
    }

    fn running(config: &Config) -> Policy {
        match config.limits() {
            None => Policy::Own,
            Some(limits) if limits.per_peer.is_some() => Policy::PerPeer,
            Some(limits) if limits.rate.is_some() => Policy::Rate,
            Some(_) => Policy::Default,
        }
    }

    fn set(self, config: &mut Config, ample: usize) {
        let wanted = config.clone();
        *config = match self {
            Policy::Default => wanted.admission(Limits::default()),
            Policy::Rate => wanted.admission(Limits::default().rate(AcceptRate::new(RATE, u32::MAX))),
            Policy::PerPeer => wanted.admission(Limits::default().per_peer(PerPeer::address(ample))),
            Policy::Own => wanted.admission(Open),
        };
    }
}

impl Changer<'_> {
    pub(crate) fn admission(&mut self, value: u64) -> Result<Duration, Unseen> {
        let (server, ample) = (self.scene.server(), self.scene.ample);
        let config = server.config();
        let policy = another(Policy::of(config.model), Policy::running(&config), value);
        let before = server.status();
        let took = self.reconfigure(Kind::Admission, |config| policy.set(config, ample))?;
        if Policy::running(&server.config()) != policy {
            return Err(format!("the policy in force is not {policy:?}"));
        }
        self.newest()?;
        let after = server.status();
        if after.generation != before.generation {
            return Err("a change that is made in place was made by a new generation".to_owned());
        }
        let turned_away = after.counts.rejected - before.counts.rejected;
        let panics = after.counts.admission_panics - before.counts.admission_panics;
        match turned_away + panics {
            0 => Ok(took),
            _ => Err(format!("{turned_away} connections were turned away under {policy:?}, which panicked {panics} times")),
        }
    }
}
