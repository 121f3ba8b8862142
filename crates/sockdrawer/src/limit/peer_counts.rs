//! Counts of the connections of each peer, kept only while a policy asks for them.

use crate::admission::Prefixes;
use crate::sync::{Mutex, MutexGuard, lock};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

/// Peers that are counted under one lock are a part of all.
const PARTS: usize = 16;

/// The counts of a pool, or of one of its processes. They belong to the pool: a policy that asks for the same prefixes finds them as
/// the one before left them.
pub(crate) struct PeerCounts {
    pub(crate) prefixes: Prefixes,
    parts: [Mutex<HashMap<u128, Count>>; PARTS],
    hasher: RandomState,
}

/// The connections of one peer.
#[derive(Clone, Copy, Default)]
struct Count {
    all: usize,
    /// Connections of the peer that are in a process which this one replaces.
    elsewhere: usize,
}

/// A counted connection: it is counted until this is dropped, whatever has become of the peer by then. Boxed, because hardly any pool has them and
/// every permit has room for one.
pub(crate) struct PeerCount {
    peer_counts: Arc<PeerCounts>,
    peer: u128,
}

impl PeerCounts {
    pub(crate) fn new(prefixes: Prefixes) -> Arc<PeerCounts> {
        Arc::new(PeerCounts { prefixes, parts: Default::default(), hasher: RandomState::new() })
    }

    fn part(&self, peer: u128) -> MutexGuard<'_, HashMap<u128, Count>> {
        lock(&self.parts[self.hasher.hash_one(peer) as usize % PARTS])
    }

    /// Counts one more, unless the peer has as many as it may. Else how many it has.
    pub(crate) fn enter(self: &Arc<PeerCounts>, peer: IpAddr, most: usize) -> Result<(Box<PeerCount>, usize), usize> {
        let peer = self.prefixes.of(peer);
        let mut part = self.part(peer);
        let before = part.get(&peer).copied().unwrap_or_default();
        if before.all >= most {
            return Err(before.all);
        }
        part.insert(peer, Count { all: before.all + 1, ..before });
        Ok((Box::new(PeerCount { peer_counts: self.clone(), peer }), before.all))
    }

    /// Counts one that comes from the process before this one, where it may be counted already.
    pub(crate) fn enter_from_elsewhere(self: &Arc<PeerCounts>, peer: IpAddr) -> Box<PeerCount> {
        let peer = self.prefixes.of(peer);
        let mut part = self.part(peer);
        let count = part.entry(peer).or_default();
        match count.elsewhere {
            0 => count.all += 1,
            _ => count.elsewhere -= 1,
        }
        Box::new(PeerCount { peer_counts: self.clone(), peer })
    }

    /// Returns the counts of connections by peer.
    pub(crate) fn all(&self) -> HashMap<u128, usize> {
        let counts =
            |part: &Mutex<HashMap<u128, Count>>| lock(part).iter().map(|(peer, count)| (*peer, count.all)).collect::<Vec<_>>();
        self.parts.iter().flat_map(counts).collect()
    }

    /// Lowers the counts of connections in the process before this one to these. Other peers have none there any more.
    pub(crate) fn count_elsewhere(&self, of_peers: &HashMap<u128, usize>) {
        for part in &self.parts {
            lock(part).retain(|peer, count| {
                let left = of_peers.get(peer).copied().unwrap_or(0).min(count.elsewhere);
                count.all -= count.elsewhere - left;
                count.elsewhere = left;
                count.all > 0
            });
        }
    }

    /// Adds connections in the process before this one that had not been counted.
    pub(crate) fn begin_elsewhere(&self, of_peers: &HashMap<u128, usize>) {
        for (peer, connections) in of_peers {
            let mut part = self.part(*peer);
            let count = part.entry(*peer).or_default();
            count.all += connections;
            count.elsewhere += connections;
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self, peer: IpAddr) -> usize {
        let peer = self.prefixes.of(peer);
        self.part(peer).get(&peer).copied().unwrap_or_default().all
    }
}

impl PeerCount {
    pub(crate) fn is_of(&self, peer_counts: &Arc<PeerCounts>) -> bool {
        Arc::ptr_eq(&self.peer_counts, peer_counts)
    }
}

impl Drop for PeerCount {
    fn drop(&mut self) {
        let mut part = self.peer_counts.part(self.peer);
        match part.get_mut(&self.peer) {
            Some(count) if count.all > 1 => count.all -= 1,
            // A peer without connections is forgotten: peers are many.
            _ => _ = part.remove(&self.peer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_until_its_ticket_is_gone() {
        let peer_counts = PeerCounts::new(Prefixes { v4: 24, v6: 64 });
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (first, before) = peer_counts.enter(ip("10.0.0.1"), 2).unwrap_or_else(|count| panic!("{count} already"));
        assert_eq!(before, 0);
        let (second, before) = peer_counts.enter(ip("10.0.0.2"), 2).unwrap_or_else(|count| panic!("{count} already"));
        assert_eq!((before, peer_counts.enter(ip("10.0.0.3"), 2).err()), (1, Some(2)));
        assert!(peer_counts.enter(ip("10.0.1.3"), 2).is_ok());
        drop(first);
        assert_eq!(peer_counts.count(ip("10.0.0.77")), 1);
        drop(second);
        assert!(peer_counts.parts.iter().all(|part| lock(part).is_empty()));
    }

    #[test]
    fn a_connection_that_comes_from_elsewhere_was_counted() {
        let peer_counts = PeerCounts::new(Prefixes::ADDRESS);
        let peer = IpAddr::from([127, 0, 0, 1]);
        let key = Prefixes::ADDRESS.of(peer);
        peer_counts.begin_elsewhere(&HashMap::from([(key, 3)]));
        assert_eq!(peer_counts.enter(peer, 3).err(), Some(3));
        let moved = [(); 2].map(|()| peer_counts.enter_from_elsewhere(peer));
        assert_eq!((peer_counts.count(peer), peer_counts.all()), (3, HashMap::from([(key, 3)])));
        peer_counts.count_elsewhere(&HashMap::from([(key, 7)]));
        assert_eq!(peer_counts.count(peer), 3, "no more than there were");
        peer_counts.count_elsewhere(&HashMap::new());
        let more = peer_counts.enter_from_elsewhere(peer);
        assert_eq!(peer_counts.count(peer), 3, "one has ended there, one is new");
        drop((moved, more));
        assert!(peer_counts.all().is_empty());
    }

    #[test]
    fn threads_never_have_more_than_they_may() {
        let peer_counts = PeerCounts::new(Prefixes::ADDRESS);
        let peer = IpAddr::from([127, 0, 0, 1]);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        if let Ok((peer_count, before)) = peer_counts.enter(peer, 3) {
                            assert!(before < 3 && peer_counts.count(peer) <= 3);
                            drop(peer_count);
                        }
                    }
                });
            }
        });
        assert_eq!(peer_counts.count(peer), 0);
    }
}
