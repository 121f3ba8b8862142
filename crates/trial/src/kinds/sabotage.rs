//! Faults injected on purpose, to test that the trial detects them.

use super::change::{Changer, Unseen};
use super::kind::Kind;
use super::options::Sabotage;
use crate::Group;
use sockdrawer::{Address, Config, Endpoint, Selector, testing};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// The number of changes between two faults.
pub(crate) const EVERY: u64 = 8;
/// The address of the server while its own address is removed.
const STAND_IN: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 2);
/// The time in which a client must have missed the address: one that connected while it was being removed tries again after a second.
const MISSED_WITHIN: Duration = Duration::from_secs(3);
/// The time in which the queue must fill.
const FILLS_WITHIN: Duration = Duration::from_millis(50);

impl Changer<'_> {
    /// Injects the fault once.
    pub(crate) fn sabotage(&mut self, sabotage: Sabotage) -> Result<(), Unseen> {
        let begun = Instant::now();
        match sabotage {
            Sabotage::Reopen => self.reopen()?,
            Sabotage::DropQueue => self.drop_queue()?,
            Sabotage::CloseKept => self.close_kept(),
            // The served echo injects this fault all the time.
            Sabotage::LoseByte => return Ok(()),
        }
        self.took[Kind::Sabotage.index()].push(begun.elapsed());
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Unseen> {
        self.begin(Kind::Sabotage);
        let own = Address::Tcp(self.scene.address.into());
        let stand_in = Address::Tcp(SocketAddrV4::new(STAND_IN, self.scene.address.port()).into());
        let failed = self.scene.tally.total().failed();
        self.reconfigure(Kind::Sabotage, |config| move_first(config, stand_in))?;
        // A moment without the address costs no client anything.
        self.scene.churn.wait(MISSED_WITHIN, |_| self.scene.tally.total().failed() > failed);
        self.reconfigure(Kind::Sabotage, |config| move_first(config, own))?;
        Ok(())
    }

    fn close_kept(&mut self) {
        self.begin(Kind::Sabotage);
        let server = &self.scene.server();
        if let Some(connection) = server.connections(&Group::Kept.selector()).first() {
            server.kill(&Selector::Id(connection.id));
        }
    }

    fn drop_queue(&mut self) -> Result<(), Unseen> {
        self.begin(Kind::Sabotage);
        let socket = self.scene.shared.as_ref().expect("this sabotage shares its listening socket");
        let server = &self.scene.server();
        server.suspend();
        server.wait(FILLS_WITHIN, |status| status.listeners.iter().any(|listener| listener.queued > 0));
        let reset = testing::reset_queue(socket);
        server.resume();
        reset.map_err(|error| format!("the queue could not be reset: {error}"))
    }
}

/// Replaces the first listen address by `address`. A second one stays.
fn move_first(config: &mut Config, address: Address) {
    if let Endpoint::Accept { listeners, .. } = &mut config.endpoint {
        listeners[0].address = address;
    }
}
