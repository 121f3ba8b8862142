//! Answers of `Pool::adopt` about the connections that it does not move.

use crate::common::{PATIENCE, connect, echoes, read, start};
use sockdrawer::{CannotRestore, CannotSave, Config, Context, Input, Peer, Protocol, Saved, Saver, Selector, Service, Step};
use std::io::Write;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

/// Says that it hangs, and hears that it may go on.
type Hangs = Arc<Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>>;

/// Service that sends back what it gets. `s` is a state that cannot be saved, `p` one whose saving panics, `r` one that no other restores.
#[derive(Clone, Default)]
struct Stubborn {
    state: u8,
    /// `h` says so here, and hangs until it is let go of.
    hangs: Option<Hangs>,
}

impl Service for Stubborn {
    type Protocol = Stubborn;
    fn open(&self, _peer: &Peer) -> Stubborn {
        self.clone()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Stubborn, CannotRestore> {
        match from.u64()? as u8 {
            b'r' => Err(CannotRestore::because("it is of another kind")),
            state => Ok(Stubborn { state, ..self.clone() }),
        }
    }
}

impl Protocol for Stubborn {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.state = input.bytes()[0];
        cx.send(input.bytes());
        input.take_all();
        if let (b'h', Some(hangs)) = (self.state, &self.hangs) {
            let (tells, lets_go) = &*hangs.lock().expect("no panic");
            tells.send(()).expect("the test listens");
            let _ = lets_go.recv_timeout(PATIENCE);
        }
        Step::Continue
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"here");
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        match self.state {
            b's' => return Err(CannotSave::because("it has a file open")),
            b'p' => panic!("broken"),
            state => to.u64(state.into()),
        }
        Ok(())
    }
}

#[test]
fn each_connection_that_stays_has_a_reason() {
    let (pool, at) = start(Config::accept(Stubborn::default()).loops(2));
    let mut clients: Vec<_> = (0..5).map(|_| connect(at)).collect();
    for (client, state) in clients.iter_mut().zip([b"s", b"p", b"r", b"s", b"x"]) {
        assert!(echoes(client, state));
    }
    let of = |ports: &[usize]| {
        let meant = ports.iter().map(|index| clients[*index].local_addr().expect("it stands"));
        let mut ids: Vec<_> = meant
            .map(|peer| pool.connections(&Selector::All).into_iter().find(|one| one.peer == Some(peer)).expect("listed").id)
            .collect();
        ids.sort();
        ids
    };
    let wanted = [("it has a file open", of(&[0, 3])), ("it is of another kind", of(&[2])), ("save panicked: broken", of(&[1]))];
    pool.update(|config| config.behaviour(Stubborn::default())).expect("another generation");
    let mut adopted = pool.adopt(&Selector::All);
    assert_eq!((adopted.moved, adopted.stayed, adopted.unasked), (1, 4, 0));
    assert_eq!(pool.status().counts.panics, 1);
    adopted.reasons.values_mut().for_each(|ids| ids.sort());
    // The place of a panic is told after its text.
    let reasons = adopted.reasons.into_iter().map(|(why, ids)| (why.split(", at ").next().unwrap_or_default().to_owned(), ids));
    assert_eq!(reasons.collect::<Vec<_>>(), wanted.map(|(why, ids)| (why.to_owned(), ids)));
    assert_eq!(read(&mut clients[4], 4).as_deref(), Some(&b"here"[..]), "it is told where it goes on, and may speak");
    assert!(clients.iter_mut().all(|client| echoes(client, b"x")));
}

#[test]
fn connections_of_a_loop_that_does_not_answer_are_counted() {
    let ((lets_go, may_go), (tells, hangs)) = (mpsc::channel(), mpsc::channel());
    let service = Stubborn { hangs: Some(Arc::new(Mutex::new((tells, may_go)))), ..Stubborn::default() };
    let (pool, at) = start(Config::accept(service).loops(1));
    let mut clients: Vec<_> = (0..3).map(|_| connect(at)).collect();
    assert!(clients.iter_mut().all(|client| echoes(client, b"x")));
    pool.update(|config| config.behaviour(Stubborn::default())).expect("another generation");
    clients[0].write_all(b"h").expect("it stands");
    hangs.recv_timeout(PATIENCE).expect("it hangs");
    let adopted = pool.adopt(&Selector::All);
    lets_go.send(()).expect("it hangs");
    assert_eq!((adopted.moved, adopted.stayed, adopted.unasked), (0, 0, 3));
}
