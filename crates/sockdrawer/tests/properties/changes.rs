//! Random changes from several threads at once.

use crate::common::{PATIENCE, Random};
use crate::crowd::{FORBIDDEN, KEPT, Scene, VICTIMS, note};
use crate::service::{ANSWER, Origin, answer, behaviour, handle};
use sockdrawer::testing::crash_loop;
use sockdrawer::{Address, Config, Drain, Endpoint, Error, Model, OnFull, Pool, Reject, Selector};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Connections that stay; a limit is never below.
pub(crate) const STAYING: usize = 3;
/// Addresses that come and go.
const PASSING: u8 = 2;

/// Who changes the pool.
pub(crate) struct Changer<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) scene: &'a Scene,
    pub(crate) versions: &'a AtomicU32,
    pub(crate) random: Random,
}

fn passing(number: u8) -> Address {
    Address::Tcp((Ipv4Addr::new(127, 0, 8, 1 + number), 0).into())
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
        match self.random.below(20) {
            0..=2 => self.next_version(),
            3 => self.change(|config, random| config.settings.max_partial = 1000 + random.below(1000) as usize),
            4 => self.refused(),
            5 => self.loops(),
            6..=8 => self.address(),
            9 => self.change(|config, random| {
                config.limit = [Some(STAYING + 1), Some(STAYING + 2), Some(STAYING + 5), None][random.below(4) as usize];
            }),
            10 => self.policy(),
            11 => self.pool.suspend(),
            12 | 13 => self.pool.resume(),
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
        let mut wanted = self.pool.config();
        edit(&mut wanted, &mut self.random);
        match self.pool.reconfigure(wanted) {
            Ok(applied) => _ = self.scene.floor.fetch_max(applied.generation, SeqCst),
            Err(error) if is_conflict(&error) => {}
            Err(error) => panic!("{error}"),
        }
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
        self.change(|config, random| {
            let on_full = match random.below(3) {
                0 if rejects => OnFull::Reject(Reject::Fin),
                1 if rejects => OnFull::Reject(Reject::Bytes([].into())),
                _ => OnFull::Backpressure,
            };
            *config = config.clone().on_full(on_full);
        });
    }

    /// One comes or goes.
    fn address(&mut self) {
        self.change(|config, random| {
            let address = passing(random.below(PASSING.into()) as u8);
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

    /// A change that cannot be made leaves nothing behind, whatever else it asked for.
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

    /// Nobody may hear what is said to those that are gone.
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

/// Whether another's change came first.
fn is_conflict(error: &Error) -> bool {
    error.to_string().contains("changed meanwhile")
}
