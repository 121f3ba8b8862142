//! Builds that take over from each other at a place, and what holds of two of them.

use super::sums::{Sums, add};
use crate::common::{PATIENCE, address, connect};
use sockdrawer::{Config, Pool, Selector, Upgrade};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A meeting place of this test.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("sockdrawer-upgrade-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Place(path)
    }

    pub(crate) fn upgrade(&self) -> Upgrade {
        Upgrade::at(&self.0).version("a test").replaces("any").stand_by(Duration::ZERO)
    }

    /// Starts a build that serves there.
    pub(crate) fn serve(&self, config: Config) -> (Pool, SocketAddr) {
        // On a machine with other work a loop that has much to do gets few turns, and does not hang.
        let upgrade = self.upgrade().turns_within(PATIENCE).begin().expect("it begins");
        let pool = upgrade.start("sums", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        let at = address(&pool);
        (pool, at)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn config(service: Sums) -> Config {
    Config::accept(service).loops(2)
}

/// Waits until the connections are there, and the pool before is over.
pub(crate) fn moved(old: &Pool, new: &Pool, count: usize) {
    assert!(old.join().is_ok(), "another took over");
    let counts = old.status().counts;
    assert_eq!(counts.moved_out, counts.moved_in + count as u64);
    // The books of all processes so far are those of the last.
    let open = count as u64;
    let told =
        new.wait(PATIENCE, |status| status.counts.moved_out == counts.moved_out && status.counts.moved_in == counts.moved_out);
    let counts = new.status().counts;
    assert!(told && new.status().connections == count, "{:#?}", new.status());
    assert_eq!(counts.accepted + counts.connected + counts.moved_in, counts.closed + counts.rejected + counts.moved_out + open);
}

pub(crate) fn id_of(pool: &Pool, client: &std::net::TcpStream) -> sockdrawer::ConnectionId {
    let peer = client.local_addr().ok();
    pool.connections(&Selector::All).into_iter().find(|one| one.peer == peer).expect("listed").id
}

pub(crate) fn many_sums(at: SocketAddr, count: usize) -> Vec<std::net::TcpStream> {
    let mut clients: Vec<_> = (0..count).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(add(client, 1).1, 1));
    clients
}
