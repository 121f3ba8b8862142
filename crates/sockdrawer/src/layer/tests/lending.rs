//! Connections under layers that are delegated.

use super::*;
use crate::blocking::Connection;
use crate::protocol::{After, Delegate};
use std::io::{Read, Write};

/// `give` lends the connection to code that answers each `ask ` by `told`, up to the end, `back`, or `fins`, which finishes. The other commands
/// are echoed.
#[derive(Default)]
struct Lender {
    finished: bool,
}

impl Service for Lender {
    type Protocol = Lender;
    fn open(&self, _peer: &Peer) -> Lender {
        Lender::default()
    }
}
impl Protocol for Lender {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(command) = input.exactly(4) {
            match command {
                b"give" => return Step::Delegate(Delegate::new(lessee)),
                command => cx.send(&[b"<", command, b">"].concat()),
            }
        }
        Step::Continue
    }
    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        if !self.finished {
            cx.send(b"<end>");
        }
        Step::Close
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().expect("bytes"));
        self.finished = note.bytes() == Some(b"");
        Step::Continue
    }
}

fn lessee(connection: &mut Connection) -> After {
    let mut command = [0; 4];
    while connection.read_exact(&mut command).is_ok() {
        match &command {
            b"back" => return After::Return(Note::from(&b"<back>"[..])),
            b"fins" => {
                connection.finish().expect("it stands");
                return After::Return(Note::from(&b""[..]));
            }
            _ => connection.write_all(b"told").expect("it stands"),
        }
    }
    After::End
}

/// Returns what the peer of the lease received, up to the end of the lease's socket.
fn lend<F: Filtering, S: Service>(connection: &mut Driver<Layer<F, S>>, sends: &[u8], ends: bool) -> Vec<u8> {
    let (told, tells) = std::sync::mpsc::channel();
    connection.run_delegate(move |mut peer| {
        peer.write_all(sends).expect("there is room");
        if ends {
            peer.shutdown(std::net::Shutdown::Write).expect("it stands");
        }
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an end");
        told.send(all).expect("the test waits");
    });
    tells.recv_timeout(Duration::from_secs(30)).expect("the peer told")
}

fn lender(strict: bool) -> Driver<Layer<Xor, Lender>> {
    let mut connection = Driver::open(Layer::new(Xor { strict }, Lender::default()));
    connection.receive(b"HI");
    assert_eq!(connection.sent(), b"OK");
    connection
}

#[test]
fn a_lessee_sees_plain_bytes_and_the_filter_comes_back_with_what_is_left() {
    let mut connection = lender(false);
    // A command and a half are decoded when the connection is lent, or wait on the wire.
    connection.receive(&xor(b"onlygiveask as"));
    assert_eq!(connection.sent(), xor(b"<only>"));
    let told = lend(&mut connection, &xor(b"k backtwo thr"), false);
    assert_eq!(told, xor(b"toldtold"));
    connection.receive(&xor(b"e"));
    assert_eq!(xor(&connection.sent()), b"<back><two ><thre>");
    connection.receive(&xor(b"give"));
    assert_eq!(lend(&mut connection, &xor(b"ask back"), false), xor(b"told"));
    connection.receive(&[xor(b"four"), vec![GOODBYE]].concat());
    assert_eq!(connection.sent(), [xor(b"<back><four><end>"), vec![GOODBYE]].concat());
}

#[test]
fn goodbyes_are_said_once_and_the_end_is_told_once() {
    // The lessee reads the peer's goodbye, and ends.
    let mut connection = lender(true);
    connection.receive(&xor(b"give"));
    let told = lend(&mut connection, &[xor(b"ask "), vec![GOODBYE]].concat(), true);
    assert_eq!([told, connection.sent()].concat(), [xor(b"told"), vec![GOODBYE]].concat());
    assert_eq!(connection.closed(), Some(Closed::Orderly));
    // It finishes first: no second goodbye. The protocol hears of the peer's.
    let mut connection = lender(true);
    connection.receive(&xor(b"give"));
    let told = lend(&mut connection, &[xor(b"fins"), vec![GOODBYE]].concat(), true);
    assert_eq!(told, [GOODBYE]);
    assert!(connection.finished_sending());
    assert_eq!((connection.sent(), connection.closed()), (vec![], Some(Closed::Orderly)));
}

#[test]
fn a_lease_whose_peer_is_refused_ends_with_what_the_filter_says() {
    let mut connection = lender(false);
    connection.receive(&xor(b"give"));
    let told = lend(&mut connection, &[FORGED], false);
    assert_eq!([told, connection.sent()].concat(), b"NO");
    assert_eq!(connection.closed(), Some(Closed::Orderly));
}

/// Lends the connection when it opens, and at each input, to code that tells its peer.
struct Telling;

impl Service for Telling {
    type Protocol = Telling;
    fn open(&self, _peer: &Peer) -> Telling {
        Telling
    }
}
impl Protocol for Telling {
    fn opened(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Delegate(Delegate::new(|connection| {
            let peer = connection.peer();
            let told = format!("{:?} {:?} {:?}", peer.remote(), peer.fact::<&str>(), peer.handshake_time());
            connection.write_all(told.as_bytes()).expect("it stands");
            After::Return(Note::from(&b""[..]))
        }))
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        self.opened(cx)
    }
    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
}

#[test]
fn a_lessee_from_the_start_has_what_the_layers_know() {
    let mut connection = Driver::open(Layer::new(Xor { strict: false }, Telling));
    connection.advance(Duration::from_millis(20));
    connection.receive(b"HI");
    assert_eq!(xor(&lend(&mut connection, b"", false)), b"Some(198.51.100.7:4321) Some(\"said HI\") 20ms");
    // A later one has the address alone.
    connection.receive(&xor(b"again"));
    assert_eq!(xor(&lend(&mut connection, b"", false)), b"Some(198.51.100.7:4321) None 0ns");
}
