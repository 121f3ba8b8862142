//! Faults committed on purpose, to see that the trial notices.

use super::change::{Changer, Unseen};
use super::kind::Kind;
use super::options::Sabotage;
use crate::Group;
use sockdrawer::{Address, Config, Endpoint, Selector, testing};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// One fault after so many changes.
pub(crate) const EVERY: u64 = 8;
/// Where the server listens while its own address is away.
const STAND_IN: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 2);
/// How long it may take until somebody has missed it: who came while it was going asks again after a second.
const MISSED_WITHIN: Duration = Duration::from_secs(3);
/// How long the queue may take to fill.
const FILLS_WITHIN: Duration = Duration::from_millis(50);

impl Changer<'_> {
    /// Commits the fault once.
    pub(crate) fn sabotage(&mut self, sabotage: Sabotage) -> Result<(), Unseen> {
        let begun = Instant::now();
        match sabotage {
            Sabotage::Reopen => self.reopen()?,
            Sabotage::DropQueue => self.drop_queue()?,
            Sabotage::CloseKept => self.close_kept(),
            // Committed by the served echo, all the time.
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
        // To be away for a moment costs nobody anything.
        self.scene.churn.wait(MISSED_WITHIN, |_| self.scene.tally.total().failed() > failed);
        self.reconfigure(Kind::Sabotage, |config| move_first(config, own))?;
        Ok(())
    }

    fn close_kept(&mut self) {
        self.begin(Kind::Sabotage);
        let server = &self.scene.server;
        if let Some(connection) = server.connections(&Group::Kept.selector()).first() {
            server.kill(&Selector::Id(connection.id));
        }
    }

    fn drop_queue(&mut self) -> Result<(), Unseen> {
        self.begin(Kind::Sabotage);
        let socket = self.scene.shared.as_ref().expect("this sabotage shares its listening socket");
        let server = &self.scene.server;
        server.suspend();
        server.wait(FILLS_WITHIN, |status| status.listeners.iter().any(|listener| listener.queued > 0));
        let reset = testing::reset_queue(socket);
        server.resume();
        reset.map_err(|error| format!("the queue could not be reset: {error}"))
    }
}

/// Listens at `address` instead of the address that was first. The second one, when there is one, stays.
fn move_first(config: &mut Config, address: Address) {
    if let Endpoint::Accept { listeners, .. } = &mut config.endpoint {
        listeners[0].address = address;
    }
}
