//! The steps that end connections, or a part of the pool.

use crate::client::Client;
use crate::common::PATIENCE;
use crate::pool::Tested;
use crate::reference::{Reference, Whom};
use crate::service::answer;
use sockdrawer::testing::crash_loop;
use sockdrawer::{Drain, Drained, Model};
use std::thread;

impl Tested {
    /// Takes the connections that are meant, with what is known of them; they are served no more.
    fn take_meant(&mut self, whom: Whom) -> Vec<(Client, crate::reference::Served)> {
        let meant = self.before.meant(whom).into_iter().map(|place| self.before.served[place].clone());
        meant.collect::<Vec<_>>().into_iter().map(|served| (self.take_named(served.name), served)).collect()
    }

    pub(super) fn purge(&mut self, whom: Whom) {
        let (pool, selector) = (self.pool().clone(), self.selector(whom));
        let meant = self.take_meant(whom);
        let count = meant.len();
        thread::scope(|scope| {
            for (mut client, served) in meant {
                scope.spawn(move || {
                    client.read_flood(served.owed);
                    assert_eq!(client.rest(), answer(b'd', served.origin, served.sum));
                });
            }
            assert_eq!(pool.purge(&selector, PATIENCE).asked, count, "{selector:?} of {:#?}", pool.status());
        });
    }

    pub(super) fn drain(&mut self, whom: Whom) {
        let (pool, selector) = (self.pool().clone(), self.selector(whom));
        let meant = self.take_meant(whom);
        let count = meant.len();
        thread::scope(|scope| {
            for (client, served) in meant {
                scope.spawn(move || client.drained(&served));
            }
            let drained = pool.drain(&selector, Drain::within(PATIENCE));
            let all = Drained { asked: count, ended: count, cut: 0, silent: 0 };
            assert_eq!(drained, all, "{selector:?} of {:#?}", pool.status());
        });
    }

    /// Stops the pool: all connections are drained, and clients that wait are served before.
    pub(super) fn stop(&mut self) {
        let pool = self.pool.take().expect("it runs");
        let meant: Vec<_> = {
            let names: Vec<_> = self.before.served.clone();
            names.into_iter().map(|served| (self.take_named(served.name), served)).collect()
        };
        let origin = self.before.origin();
        let waiting = std::mem::take(&mut self.waiting);
        self.gone.extend(waiting.iter().map(|client| client.key));
        thread::scope(|scope| {
            scope.spawn(|| pool.shutdown(Drain::within(PATIENCE)));
            for (client, served) in meant {
                scope.spawn(move || client.drained(&served));
            }
            for mut client in waiting {
                scope.spawn(move || {
                    assert_eq!(client.answer(), answer(b'h', origin, client.key));
                    assert_eq!(client.rest(), answer(b'd', origin, 0));
                });
            }
        });
        pool.join().expect("it was shut down");
        let status = pool.status();
        assert_eq!((status.connections, status.counts.panics), (0, 0), "{status:#?}");
        let counts = status.counts;
        assert_eq!(counts.accepted + counts.moved_in, counts.closed + counts.rejected + counts.moved_out, "{status:#?}");
    }

    /// Crashes a part: some connections die and some live, by the part they are in. A connection that lives answers, and ends
    /// then.
    pub(super) fn crash(&mut self, number: usize, after: &Reference) {
        // Loops and processes say what they have a moment after the permits are counted.
        let (all, model) = (self.before.served.len(), self.before.model);
        self.wait("every part says what it has", |status| match model {
            Model::Threads => true,
            Model::Prefork => status.processes.iter().map(|one| one.connections).sum::<usize>() == all,
            _ => status.loops.iter().map(|one| one.connections).sum::<usize>() == all,
        });
        let status = self.pool().status();
        let part = number % self.before.loops;
        let deaths = match self.before.model {
            Model::Prefork => status.processes[part].connections,
            // Each connection has a thread of its own; the one that accepts has none.
            Model::Threads => 0,
            _ => status.loops[part].connections,
        };
        assert!(crash_loop(self.pool(), part));
        self.wait("a dead part is replaced", |status| status.restarts == after.restarts);
        let served = self.before.served.clone();
        let mut died = 0;
        for one in served {
            let mut client = self.take_named(one.name);
            match client.lives(&one) {
                true => client.end(),
                false => died += 1,
            }
        }
        assert_eq!(died, deaths, "who was not in the part that died lives");
    }
}
