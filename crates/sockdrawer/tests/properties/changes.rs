//! Random changes from several threads at once.

use crate::common::{PATIENCE, Random};
use crate::crowd::{FORBIDDEN, KEPT, Scene, VICTIMS, note};
use crate::policies::By;
use crate::seeds;
use crate::service::{ANSWER, Origin, answer, behaviour, handle};
use sockdrawer::testing::crash_loop;
use sockdrawer::{
    Address, Config, Drain, Endpoint, Error, Model, Pool, Selector,
    admission::{OnFull, Reject},
    listening::Listening,
};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Connections that stay; a limit is never below.
pub(crate) const STAYING: usize = 3;
/// Addresses that come and go.
const PASSING: u8 = 2;

/// Thread that changes the pool.
pub(crate) struct Changer<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) scene: &'a Scene,
    pub(crate) versions: &'a AtomicU32,
    pub(crate) random: Random,
}

fn passing(lane: u8, number: u8) -> Address {
    Address::Tcp((seeds::address(lane, 1 + number), 0).into())
}

fn victims() -> Selector {
    Selector::Peers(VICTIMS.into(), 32)
}

impl Changer<'_> {
    pub(crate) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0..=2 => self.next_version(),
            3 => self.change(|config, random| config.settings.max_partial = 1000 + random.below(1000) as usize),
            4 => self.refused(),
            5 => self.loops(),
            6..=8 => self.address(),
            9 => self.change(|config, random| {
                config.limit = [Some(STAYING + 1), Some(STAYING + 2), Some(STAYING + 5), None][random.below(4) as usize];
            }),
            10 | 19 => self.policy(),
            11 if self.scene.rejects && self.random.below(2) == 0 => self.pool.refuse(Reject::Fin),
            11 => self.pool.suspend(),
            12 | 13 => self.pool.resume(),
            20 | 21 => self.renew(),
            22 => self.intake_at(),
            23 => self.limit_at(),
            14 => _ = self.pool.adopt(&Selector::All),
            15 => _ = self.pool.drain(&victims(), Drain::within(PATIENCE)),
            16 => _ = self.pool.purge(&victims(), PATIENCE),
            17 => self.kill(),
            18 => self.speak(),
            _ => self.crash_or_notify(),
        }
    }

    /// Changes the pool. Another's change may come in between: then this one is made again, on top of it.
    fn change(&mut self, edit: impl Fn(&mut Config, &mut Random)) {
        let random = &mut self.random;
        let applied = self.pool.update(|mut wanted| {
            edit(&mut wanted, random);
            wanted
        });
        self.scene.floor.fetch_max(applied.expect("it can be changed").generation, SeqCst);
    }

    fn next_version(&mut self) {
        let version = self.versions.fetch_add(1, SeqCst) + 1;
        self.change(|config, _| config.behaviour = behaviour(version));
    }

    fn loops(&mut self) {
        self.change(|config, random| match config.model {
            Model::Threads => {}
            Model::Prefork => config.processes = 1 + random.below(3) as usize,
            _ => config.loops = 1 + random.below(3) as usize,
        });
    }

    fn policy(&mut self) {
        let rejects = self.scene.rejects;
        let of_peer = Arc::default();
        self.change(|config, random| {
            let by = match config.model {
                Model::Prefork => [By::Limits, By::Rate][random.below(2) as usize],
                _ => [By::Limits, By::PerPeer, By::Rate, By::Own][random.below(4) as usize],
            };
            let on_full = match random.below(3) {
                0 if rejects => OnFull::Reject(Reject::Fin),
                1 if rejects => OnFull::Reject(Reject::Bytes([].into())),
                _ => OnFull::Backpressure,
            };
            *config = by.admit(config.clone(), on_full, &of_peer);
        });
    }

    /// Takes new sockets at an address, also at the one that stays.
    fn renew(&mut self) {
        self.change(|config, random| {
            let options = &mut some_listener(config, random).options;
            options.freebind = !options.freebind;
        });
    }

    /// Limits an address: as many clients as stay have room, and others to come and go.
    fn limit_at(&mut self) {
        self.change(|config, random| {
            some_listener(config, random).limit = [Some(STAYING + 1), Some(STAYING + 3), None][random.below(3) as usize];
        });
    }

    /// Changes the intake of an address. Another may have removed it meanwhile. Nobody is turned away where all must be served.
    fn intake_at(&mut self) {
        let addresses = self.pool.addresses();
        let address = &addresses[self.random.below(addresses.len() as u64) as usize];
        let done = match self.random.below(4) {
            0 if self.scene.rejects => self.pool.refuse_listener(address, Reject::Fin),
            0 | 1 => self.pool.suspend_listener(address),
            _ => self.pool.resume_listener(address),
        };
        assert!(matches!(done, Ok(()) | Err(Error::NoSuchListener { .. })), "{done:?}");
    }

    /// Adds or removes an address.
    fn address(&mut self) {
        let lane = self.scene.lane;
        self.change(|config, random| {
            let address = passing(lane, random.below(PASSING.into()) as u8);
            let Endpoint::Accept { listeners, .. } = &mut config.endpoint else { unreachable!("it accepts") };
            let before = listeners.len();
            listeners.retain(|listening| listening.address != address);
            if listeners.len() == before {
                *config = config.clone().listen(address);
            }
        });
        let addresses = self.pool.addresses().into_iter().map(|address| match address {
            Address::Tcp(address) => address,
            other => panic!("{other} is no TCP address"),
        });
        let addresses: Vec<SocketAddr> = addresses.collect();
        let mut ports = self.scene.ports.lock().expect("no panic");
        let home = ports[0];
        *ports = std::iter::once(home).chain(addresses.into_iter().filter(|address| *address != home)).collect();
    }

    /// Asks for a change that cannot be made: it leaves nothing behind, whatever else it asked for.
    fn refused(&self) {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let in_use = Address::Tcp(taken.local_addr().expect("bound"));
        let wanted = self.pool.config().behaviour(behaviour(FORBIDDEN)).listen(in_use);
        let error = self.pool.reconfigure(wanted).expect_err("the address is in use");
        assert!(matches!(error, Error::AddressInUse(_)) || is_conflict(&error), "{error}");
    }

    fn kill(&self) {
        self.pool.kill(&victims());
    }

    /// Speaks to connections that are gone: nobody may hear it.
    fn speak(&self) {
        for key in self.scene.gone.lock().expect("no panic").iter() {
            if let Some(gone) = handle(*key) {
                gone.notify(Arc::<[u8]>::from(answer(b'g', Origin::default(), *key))).expect("few notes");
            }
        }
    }

    fn crash_or_notify(&mut self) {
        if self.scene.crashes && self.random.below(2) == 0 {
            crash_loop(self.pool, self.random.below(3) as usize);
            return;
        }
        let bytes: [u8; ANSWER] = note();
        self.pool.notify(&Selector::Peers(KEPT.into(), 32), bytes).expect("few notes");
        self.scene.notes.fetch_add(1, SeqCst);
    }
}

/// Returns true where another's change came first.
fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. })
}

fn some_listener<'a>(config: &'a mut Config, random: &mut Random) -> &'a mut Listening {
    let Endpoint::Accept { listeners, .. } = &mut config.endpoint else { unreachable!("it accepts") };
    let count = listeners.len() as u64;
    &mut listeners[random.below(count) as usize]
}
