//! The page by which a connection's own process tells its parent what it counts, and its last report or panic. It is the child's to write, whatever
//! it writes; the parent takes it for no more than one connection can have done.

use crate::observe::counters::Counters;
use crate::observe::{Counts, Event};
use crate::protocol::ConnectionId;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sys::shared::Words;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a message, from the front.
const MAX_TEXT: usize = 1024;

/// Index of the verdict, behind all counters.
const VERDICT: usize = 63;

/// A child has the page, and how its connection ends is open; then the child, its helper or the pool decides, the first of them.
const OPEN: u64 = 1;
const IN_ORDER: u64 = 2;
const CUT: u64 = 3;

/// Index of the peer's address, if a layer learned one: its port and a mark, then the address as IPv6.
const PEER: usize = 60;
const KNOWN: u64 = 1 << 16;
const _: () = assert!(Counters::WORDS <= PEER, "the peer would lie on a counter");

/// Index of the message's kind and length; the message follows.
const TEXT: usize = 64;

/// Kinds of a message: the event that it is of.
const CONNECTION: u64 = 1;
const JOB: u64 = 2;
const SERVICE: u64 = 3;
const REPORT: u64 = 4;

/// A number that is more than anything that one connection counts: sums of many such numbers are still numbers.
const MOST: u64 = 1 << 50;

/// A child's page.
#[derive(Clone)]
pub(crate) struct ChildPage {
    words: Words,
    first: usize,
}

impl ChildPage {
    pub(crate) fn at(words: Words, first: usize) -> ChildPage {
        ChildPage { words, first }
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters::at(self.words.clone(), self.first)
    }

    /// Returns the counts of the child: of one accepted connection, which ends once.
    pub(crate) fn counts(&self) -> Counts {
        let mut said = Counts::default();
        self.counters().add_to(&mut said);
        let Counts { closed, errors, too_long, aborted, crashed, overflow, purged, cut, idle, .. } = said.at_most(1);
        let end = Counts { closed, errors, too_long, aborted, crashed, overflow, purged, cut, idle, ..said.at_most(MOST) };
        // The helper counts these itself.
        let [accepted, rejected, accept_failed, accept_starved, accept_empty, admission_panics, killed] = [0; 7];
        let [rejected_pool_full, rejected_listener_full, rejected_too_fast] = [0; 3];
        let [rejected_per_peer, rejected_by_policy, rejected_refusing] = [0; 3];
        let end = Counts { rejected_pool_full, rejected_listener_full, rejected_too_fast, ..end };
        let end = Counts { rejected_per_peer, rejected_by_policy, rejected_refusing, ..end };
        let [connected, connect_failed, connects, adopted] = [0; 4];
        let end = Counts { accepted, rejected, accept_failed, accept_starved, accept_empty, admission_panics, killed, ..end };
        let end = Counts { connected, connect_failed, connects, adopted, ..end };
        // A child that its parent kills has no time to count its end.
        if self.words[self.first + VERDICT].load(SeqCst) == CUT { Counts { closed: 1, purged: 0, cut: 1, ..end } } else { end }
    }

    /// Gives the child's verdict: from now on its connection ends in order, whatever becomes of the process. Returns false if it was cut before that.
    pub(crate) fn end_in_order(&self) -> bool {
        self.decide(IN_ORDER)
    }

    /// Makes the page a new child's.
    pub(crate) fn open(&self) {
        self.words[self.first + VERDICT].store(OPEN, SeqCst);
    }

    /// Gives the verdict of the helper or the pool: the connection is cut. Returns false if it ended in order before that, or there is none.
    pub(crate) fn cut(&self) -> bool {
        self.decide(CUT)
    }

    pub(crate) fn has_ended_in_order(&self) -> bool {
        self.words[self.first + VERDICT].load(SeqCst) == IN_ORDER
    }

    fn decide(&self, verdict: u64) -> bool {
        let decided = self.words[self.first + VERDICT].compare_exchange(OPEN, verdict, SeqCst, SeqCst);
        decided.is_ok() || decided == Err(verdict)
    }

    /// Stores the peer's address that a layer learned.
    pub(crate) fn set_peer(&self, peer: SocketAddr) {
        let ip = match peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let words = &self.words[self.first + PEER..];
        words[1].store((ip.to_bits() >> 64) as u64, Relaxed);
        words[2].store(ip.to_bits() as u64, Relaxed);
        words[0].store(KNOWN | u64::from(peer.port()), SeqCst);
    }

    /// Returns the peer's address, as the child says: for lists, and nothing is decided by it.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        let words = &self.words[self.first + PEER..];
        let known = words[0].load(SeqCst);
        let bits = u128::from(words[1].load(Relaxed)) << 64 | u128::from(words[2].load(Relaxed));
        (known & KNOWN != 0).then(|| SocketAddr::new(Ipv6Addr::from_bits(bits).to_canonical(), known as u16))
    }

    /// Begins again.
    pub(crate) fn clear(&self) {
        self.counters().clear();
        self.words[self.first + PEER].store(0, SeqCst);
        self.words[self.first + VERDICT].store(0, SeqCst);
        self.words[self.first + TEXT].store(0, Relaxed);
    }

    /// Leaves word of a panic or a report. Other events are told by the parent, which sees for itself.
    pub(crate) fn tell(&self, event: &Event) {
        let (kind, message) = match event {
            Event::ConnectionPanicked { message, .. } => (CONNECTION, message),
            Event::JobPanicked { message } => (JOB, message),
            Event::ServicePanicked { message } => (SERVICE, message),
            Event::Reported { report, .. } => (REPORT, &report.message),
            _ => return,
        };
        let bytes = &message.as_bytes()[..message.len().min(MAX_TEXT)];
        let words = &self.words[self.first + TEXT..];
        for (word, part) in words[1..].iter().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..part.len()].copy_from_slice(part);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        words[0].store(kind << 32 | bytes.len() as u64, Relaxed);
    }

    /// Returns the last panic or report of the child of this connection, if it left word of one.
    pub(crate) fn told(&self, id: ConnectionId, peer: Option<SocketAddr>) -> Option<Event> {
        let words = &self.words[self.first + TEXT..];
        let head = words[0].load(Relaxed);
        let length = (head as u32 as usize).min(MAX_TEXT);
        let mut bytes: Vec<u8> =
            words[1..].iter().take(length.div_ceil(8)).flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        bytes.truncate(length);
        let message = String::from_utf8_lossy(&bytes).into_owned();
        match head >> 32 {
            CONNECTION => Some(Event::ConnectionPanicked { id, peer, message }),
            JOB => Some(Event::JobPanicked { message }),
            SERVICE => Some(Event::ServicePanicked { message }),
            REPORT => Some(Event::Reported { id, peer, report: message.into() }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_writes_is_taken_for_no_more_than_one_connection() {
        let page = ChildPage::at(Words::private(512), 0);
        page.words.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        let counts = page.counts();
        assert_eq!((counts.accepted, counts.closed, counts.cut, counts.bytes_in), (0, 1, 1, MOST));
        assert!(page.told(ConnectionId(7), None).is_none());
        page.clear();
        let told = Event::ConnectionPanicked { id: ConnectionId(7), peer: None, message: "na\u{ef}ve".repeat(1000) };
        page.tell(&told);
        let Some(Event::ConnectionPanicked { id: ConnectionId(7), message, .. }) = page.told(ConnectionId(7), None) else {
            panic!("{:?}", page.told(ConnectionId(7), None));
        };
        assert!(message.starts_with("na\u{ef}vena") && message.len() <= MAX_TEXT + 2);
        assert_eq!((page.counts(), page.told(ConnectionId(8), None).is_some()), (Counts::default(), true));
        let peer: SocketAddr = "[2001:db8::7]:443".parse().expect("an address");
        page.set_peer(peer);
        assert_eq!(page.peer(), Some(peer));
        page.set_peer(([192, 0, 2, 7], 9).into());
        assert_eq!((page.peer(), page.counts()), (Some(([192, 0, 2, 7], 9).into()), Counts::default()));
        page.clear();
        assert!(page.told(ConnectionId(7), None).is_none() && page.peer().is_none());
    }
}
