//! Hostile input: what another process says is believed no more than it must be. Whatever the bytes are, no loop dies, and each permit goes back. For
//! the fuzz target `upgrade`, and for the tests below, which change and cut messages that are right.

use super::taking_over::sorted;
use crate::config::Config;
use crate::ipc::codec::{decode, encode};
use crate::ipc::messages::{Held, Offer, Said};
use crate::ipc::record::Record;
use crate::ipc::yours::Yours;
use crate::operation::{Op, Selector};
use crate::pool::moving::Movable;
use crate::pool::start;
use crate::protocol::{CannotRestore, CannotSave, Context, Input, Peer, Protocol, Saved, Saver, Service, State, Step};
use crate::sync::OnceLock;
use crate::sys::cookie;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections of one input.
const MOST: usize = 8;
/// All connections have ended by then, or their permits are lost.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Restores a number and the rest of its state as text.
struct Remembering;

struct Remembered(Vec<u8>);

impl Service for Remembering {
    type Protocol = Remembered;
    fn open(&self, _peer: &Peer) -> Remembered {
        Remembered(Vec::new())
    }
    fn state(&self) -> State {
        State::of("remembered", 2).reads(1..=2)
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Remembered, CannotRestore> {
        let _ = (from.version(), from.u64()?);
        Ok(Remembered(from.bytes()?.to_vec()))
    }
}

impl Protocol for Remembered {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(&self.0);
        input.take(input.bytes().len() / 2);
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(1);
        to.bytes(&self.0);
        Ok(())
    }
}

fn pool() -> &'static dyn Movable {
    static POOL: OnceLock<Arc<dyn Movable>> = OnceLock::new();
    let config = || Config::accept(Remembering).loops(1).limit(1000).listen("127.0.0.1:0");
    &**POOL.get_or_init(|| {
        crate::sys::raise_descriptor_limit().expect("the hard limit is allowed");
        start(config(), None).expect("it starts")
    })
}

/// Takes a message of another process as a successor does.
///
/// # Panics
/// When a loop died, or a permit was lost.
#[allow(unreachable_pub, reason = "the fuzz target reaches it by `testing`")]
pub fn check(input: &[u8]) {
    let Ok(said) = decode::<Said>(input) else { return };
    let again = encode(&said).and_then(|bytes| decode(&bytes));
    assert_eq!(again.as_ref(), Ok(&said), "what was read can be written");
    match said {
        Said::Offer(offer) => take(offer, None),
        Said::Yours(yours) => {
            let record = |id: &u64| record(|it| it.id = *id);
            let records = yours.ids.iter().take(MOST).map(record).collect();
            take(Offer { records, ..Offer::default() }, Some(yours));
        }
        Said::Go(mut go) => std::mem::take(&mut go.pools).into_iter().for_each(|held| hold(&held.believed())),
        Said::Left(held) => hold(&held.believed()),
        Said::Welcome(welcome) => {
            let sockets = (0..MOST / 2).flat_map(|_| pair());
            let _ = sorted(welcome, sockets.collect());
        }
        _ => {}
    }
    let ended = pool().wait_for_none(Some(Instant::now() + ENDS_WITHIN));
    assert!(ended && pool().status().restarts == 0, "{:#?}", pool().status());
}

fn pair() -> [OwnedFd; 2] {
    let (one, other) = UnixStream::pair().expect("a pair");
    // All sockets of a pool are non-blocking.
    one.set_nonblocking(true).expect("a socket");
    [one.into(), other.into()]
}

/// Returns a record that can be restored.
fn record(change: impl FnOnce(&mut Record)) -> Record {
    let mut saver = Saver::default();
    saver.u64(7);
    saver.bytes(b"a state");
    let mut record = Record::default();
    (record.state, record.versions) = (saver.bytes, vec![2]);
    change(&mut record);
    record
}

/// Restores connections, and goes on with them.
fn take(Offer { mut records, .. }: Offer, yours: Option<Yours>) {
    records.truncate(MOST);
    let (mut sockets, mut others) = (Vec::new(), Vec::new());
    for record in &mut records {
        let [socket, other] = pair();
        // Where a record says that its socket is another, it is.
        if record.cookie != u64::MAX {
            record.cookie = cookie(socket.as_fd()).expect("a socket");
        }
        sockets.push(socket);
        others.push(other);
    }
    let holder = pool().takers().pop().expect("a loop");
    let restored = holder.restore(records, sockets).expect("it lives");
    pool().go_on(&Held { connections: restored.ids.len() as u64, ..Held::default() });
    let together = yours.is_some();
    let yours = Yours { ids: restored.ids.clone(), ..yours.unwrap_or_default() };
    let seated = holder.seat(yours, &pool().listener_states(), together).expect("it lives");
    pool().release((restored.ids.len() - seated.len()) as u64);
    holder.release();
    drop(others);
    pool().apply(Op::Kill, &Selector::All).expect("it can be done");
}

/// Goes on where a process stopped that had all of this, and has nothing of it any more.
fn hold(held: &Held) {
    let held = Held { connections: held.connections.min(1000), ..held.clone() };
    pool().go_on(&held);
    pool().release(held.connections);
    let of_addresses = pool().occupied(&held);
    of_addresses.iter().for_each(|(state, count)| (0..*count).for_each(|_| state.limiter.put_back()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::messages::{Go, Listened, Occupied, Pooled, Welcome};
    use crate::ipc::record::Marks;
    use crate::ipc::yours::Noted;

    /// Returns one of each message that brings something into a process.
    fn messages() -> Vec<Said> {
        let marks = Marks { waiting: true, peer_ended: true, full: true, ..Marks::default() };
        let full = record(|it| {
            (it.id, it.age, it.timer, it.marks) = (7, 1, Some(1), marks);
            (it.kept, it.unsent) = (b"kept".to_vec(), b"unsent".to_vec());
            (it.tag, it.listener) = (Some("a tag".to_owned()), Some("127.0.0.1:1".to_owned()));
        });
        let records = vec![full.clone(), full, record(|it| it.cookie = u64::MAX)];
        let listeners = vec![Occupied { address: "127.0.0.1:1".to_owned(), connections: 3, ..Occupied::default() }];
        let counts = [("accepted".to_owned(), u64::MAX), ("closed".to_owned(), 3)].into();
        let held =
            Held { connections: 3, next_id: u64::MAX, listeners, counts, begun: u64::MAX, pace: u64::MAX, ..Held::default() };
        let noted = vec![Noted { id: 1, notes: vec![0, 1, 9] }, Noted { id: 99, notes: vec![0] }];
        let notes = vec![b"one".to_vec().into(), b"two".to_vec().into()];
        let yours = Yours { ids: vec![1, 2, 2, 3], noted, notes, ..Yours::default() };
        let listened = Listened { address: "127.0.0.1:1".to_owned(), sockets: 3, is_shared: true, name: None };
        let pools = vec![Pooled { name: "a pool".to_owned(), listeners: vec![listened] }];
        vec![
            Said::Offer(Offer { pool: "a pool".to_owned(), records, together: true }),
            Said::Yours(yours),
            Said::Go(Go { pools: vec![held.clone()], carried: Default::default() }),
            Said::Left(held),
            Said::Welcome(Welcome { pools, ..Welcome::default() }),
        ]
    }

    #[test]
    fn whatever_another_process_says_no_loop_dies_and_no_permit_is_lost() {
        for said in messages() {
            let bytes = encode(&said).expect("it is written");
            check(&bytes);
            for at in 0..bytes.len() {
                check(&bytes[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 8, bytes[at].wrapping_add(1)] {
                    let mut changed = bytes.to_vec();
                    changed[at] = value;
                    check(&changed);
                }
            }
        }
    }
}
