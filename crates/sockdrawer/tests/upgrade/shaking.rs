//! Connections whose handshake of a layer is under way while a set moves: their protocol is opened in the next build.

use crate::common::{PATIENCE, any_port, connect, read};
use crate::place::Place;
use sockdrawer::layer::{Filter, Filtering, Layer, Progress, Refused};
use sockdrawer::{
    Address, CannotRestore, CannotSave, Config, Context, Input, Output, Peer, Protocol, Saved, Saver, Service, State, Step,
};
use std::io::Write;

/// A layer whose handshake is `hi` each way, and that changes nothing after it.
struct Hi;

struct Shaking {
    is_open: bool,
}

impl Filtering for Hi {
    type Filter = Shaking;
    fn filter(&self, _peer: &Peer) -> Shaking {
        Shaking { is_open: false }
    }
    fn restore(&self, _from: &mut Saved<'_>) -> Result<Shaking, CannotRestore> {
        Ok(Shaking { is_open: true })
    }
    fn state(&self) -> State {
        State::of("hi", 1)
    }
}

impl Filter for Shaking {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        if !self.is_open {
            if wire.exactly(2).is_none() {
                return Ok(Progress::NeedMore);
            }
            self.is_open = true;
            back.push(b"hi");
            return Ok(Progress::Established(None));
        }
        plain.extend_from_slice(wire.take_all());
        Ok(if plain.is_empty() { Progress::NeedMore } else { Progress::Plain })
    }
    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        wire.push(plain);
    }
    fn goodbye(&mut self, _wire: &mut Output) {}
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        if self.is_open { Ok(()) } else { Err(CannotSave::because("it shakes hands")) }
    }
}

/// Service that says which build has opened it, then sends back what comes, by which build it is now.
struct Guest {
    build: u8,
    together: bool,
}

impl Service for Guest {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo(self.build)
    }
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Echo, CannotRestore> {
        Ok(Echo(self.build))
    }
    fn state(&self) -> State {
        if self.together { State::of("guest", 1).together() } else { State::of("guest", 1) }
    }
}

struct Echo(u8);

impl Protocol for Echo {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(&[b'o', self.0]);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(&[input.take_all(), &[self.0]].concat());
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

#[test]
fn a_member_of_a_set_that_shakes_hands_meanwhile_is_opened_in_the_next_build() {
    for together in [true, false] {
        let place = Place::new("shaking");
        let config = |build| Config::accept(Layer::new(Hi, Guest { build, together })).loops(1);
        let (old, at) = place.serve(config(b'1').listen(any_port()));
        let (mut whole, mut half) = (connect(at), connect(at));
        whole.write_all(b"hi").expect("it stands");
        assert_eq!(read(&mut whole, 4).as_deref(), Some(&b"hio1"[..]));
        half.write_all(b"h").expect("it stands");
        assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 3), "{:?}", old.status());
        let (new, _) = place.serve(config(b'2').listen(Address::Tcp(at)));
        assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 1), "{:?}", new.status());
        whole.write_all(b"a").expect("it stands");
        assert_eq!(read(&mut whole, 2).as_deref(), Some(&b"a2"[..]));
        // Bytes behind the handshake wait for the protocol.
        half.write_all(b"ib").expect("it stands");
        let opened = if together { &b"hio2b2"[..] } else { b"hio1b1" };
        assert_eq!(read(&mut half, 6).as_deref(), Some(opened));
        assert!(old.join().is_ok(), "both have moved");
        assert!(new.wait(PATIENCE, |status| status.connections == 2), "{:?}", new.status());
        half.write_all(b"c").expect("it stands");
        assert_eq!(read(&mut half, 2).as_deref(), Some(&b"c2"[..]));
    }
}
