//! Input of a hostile peer, with the keys of the connection and without: no end panics, what it holds is bounded, what it sends its peer can open,
//! and one that failed stays failed. For the fuzz target `tls`, and for the tests below, which change and cut seeds.
//!
//! An input is a byte that chooses the end, the number of steps (at most 15), a byte for each, and the stream that the steps take bytes of. A
//! step's upper three bits say what happens, its lower five how much of it.

use crate::filter::TlsFilter;
use crate::record::{Aead, Cipher, Content, Direction, MAX_PLAIN, MAX_RECORDS, Version};
use crate::session::{End, MAX_MESSAGE, Session};
use crate::{Client, Identity, Server, Trust};
use sockdrawer::layer::{Filter, Filtering, Progress};
use sockdrawer::{Input, Output, Saved, Saver, Side};
use std::sync::OnceLock;
use std::time::Duration;

/// Maximum number of bytes that an event loop keeps because they are not taken.
const MAX_WIRE: usize = 64 * 1024;

/// End that is under test, and all that its peer knows.
struct Victim {
    filter: TlsFilter,
    wire: Vec<u8>,
    /// Opens what the end sends; None before the handshake is complete.
    opens: Option<(Cipher, Direction)>,
    failed: bool,
}

/// Takes bytes of `stream`.
fn take<'s>(stream: &mut &'s [u8], count: usize) -> &'s [u8] {
    let (taken, rest) = stream.split_at(count.min(stream.len()));
    *stream = rest;
    taken
}

/// Takes the steps of an input, whatever its bytes say.
pub(crate) fn check(input: &[u8]) {
    let [choices, count, rest @ ..] = input else { return };
    let (steps, mut stream) = rest.split_at(usize::from(count % 16).min(rest.len()));
    let mut victim = Victim::new(*choices);
    for step in steps {
        victim.step(step >> 5, usize::from(step & 31), &mut stream);
        if victim.failed {
            return;
        }
    }
    victim.receive(stream);
}

impl Victim {
    fn new(choices: u8) -> Victim {
        let peer = |side| sockdrawer::testing::peer(side, Duration::ZERO);
        let fresh = |filter| Victim { filter, wire: Vec::new(), opens: None, failed: false };
        let mut victim = match choices & 3 {
            2 => fresh(server().filter(&peer(Side::Accepted))),
            3 => fresh(client().filter(&peer(Side::Connected))),
            _ => return Victim::established(choices),
        };
        // A client speaks first.
        victim.receive(&[]);
        victim
    }

    fn established(choices: u8) -> Victim {
        let version = if choices & 4 == 0 { Version::Tls13 } else { Version::Tls12 };
        let aead = [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::Chacha20Poly1305][usize::from(choices >> 3) % 3];
        let end = if choices & 1 == 0 { End::Server } else { End::Client };
        let cipher = Cipher { version, aead };
        let (sends, receives) = (cipher.some_direction(1), cipher.some_direction(2));
        let opens = Some((cipher, sends.view()));
        let session = Session::new(cipher, end, sends, receives, None);
        Victim { filter: TlsFilter::established(session), wire: Vec::new(), opens, failed: false }
    }

    fn step(&mut self, what: u8, count: usize, stream: &mut &[u8]) {
        match what {
            0 => self.receive(take(stream, count)),
            1 => self.receive(take(stream, 16 * count)),
            2 => self.receive_record(Content::DATA, take(stream, count), 0),
            3 => self.receive_record(Content::HANDSHAKE, take(stream, count), 0),
            4 => self.receive_record(Content::ALERT, take(stream, count % 4), 0),
            5 => {
                let content = Content(take(stream, 1).first().copied().unwrap_or_default());
                self.receive_record(content, &vec![1; 531 * count], 17 * count * (count % 2));
            }
            6 => self.move_elsewhere(),
            _ => self.speak(count),
        }
    }

    /// Gives the end a record with the right keys, as where an attacker is the peer.
    fn receive_record(&mut self, content: Content, plain: &[u8], padding: usize) {
        let record = match self.filter.session() {
            Some(session) => session.cipher.record(&mut session.receives.view(), content, plain, padding),
            None => plain.to_vec(),
        };
        self.receive(&record);
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.wire.extend_from_slice(bytes);
        let mut back = Output::default();
        loop {
            let (mut input, mut plain) = (Input::new(&mut self.wire), Vec::new());
            let progress = self.filter.decode(&mut input, &mut plain, &mut back);
            let taken = input.taken();
            self.wire.drain(..taken);
            assert!(plain.len() <= MAX_PLAIN && back.bytes().len() <= MAX_WIRE);
            match progress {
                Ok(Progress::Plain) => assert!(!plain.is_empty()),
                Ok(Progress::NeedMore) => break,
                Ok(Progress::PeerEnded) => self.wire.clear(),
                Ok(_) => panic!("a handshake of bytes that are nobody's"),
                Err(_) => self.failed = true,
            }
            if self.failed {
                return self.stays_failed();
            }
        }
        let held = self.filter.session().map_or(0, |session| session.held());
        assert!(held < MAX_MESSAGE);
        if self.wire.len() > MAX_WIRE {
            self.failed = true;
        }
        self.hear(back.bytes());
    }

    fn stays_failed(&mut self) {
        let (mut plain, mut back) = (Vec::new(), Output::default());
        let mut wire = [23, 3, 3, 0, 17].to_vec();
        wire.resize(22, 0);
        let mut input = Input::new(&mut wire);
        assert!(self.filter.decode(&mut input, &mut plain, &mut back).is_err() && input.taken() == 0);
        self.filter.encode(b"text", &mut back);
        self.filter.goodbye(&mut back);
        assert!(plain.is_empty() && back.bytes().is_empty());
        assert!(self.filter.save(&mut Saver::default()).is_err());
    }

    /// Checks that what an established end sends is in order and of its keys.
    fn hear(&mut self, said: &[u8]) {
        let Some((cipher, opens)) = &mut self.opens else { return };
        let mut said = said.to_vec();
        let mut left = &mut said[..];
        while !left.is_empty() {
            let length = cipher.record_length(left).expect("no longer than allowed").expect("whole");
            let (record, rest) = left.split_at_mut(length);
            let (content, at) = cipher.open(opens, record).expect("it is of the keys");
            if content == Content::HANDSHAKE {
                assert!(matches!(record[at], [24, 0, 0, 1, 0 | 1]));
                cipher.update(opens);
            }
            left = rest;
        }
    }

    fn move_elsewhere(&mut self) {
        let mut saver = Saver::default();
        if self.filter.save(&mut saver).is_ok() {
            self.filter = TlsFilter::restore(&mut Saved::new(saver.written())).expect("it was saved");
        }
    }

    /// Lets this end say something.
    fn speak(&mut self, count: usize) {
        let Some(session) = self.filter.session() else { return };
        let mut said = Output::default();
        match count % 4 {
            0 => self.filter.encode(&vec![7; 1 + 1500 * count], &mut said),
            1 if session.cipher.version == Version::Tls13 => session.update(true, &mut said),
            2 => self.filter.goodbye(&mut said),
            _ => {
                let at = MAX_RECORDS - count as u64 / 4;
                session.sends = session.sends.view().at(at);
                self.opens = self.opens.take().map(|(cipher, opens)| (cipher, opens.at(at)));
            }
        }
        self.hear(said.bytes());
    }
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let identity = Identity::from_pem(include_bytes!("hostile/chain.pem"), include_bytes!("hostile/key.pem"));
        Server::new([identity.expect("they go together")]).build().expect("a server")
    })
}

fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| Client::new(Trust::Anybody).name("localhost").build().expect("a client"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn whatever_a_peer_sends_an_end_fails_or_goes_on() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/tls");
        let seeds: Vec<_> = std::fs::read_dir(&folder).expect("the seeds are beside the targets").collect();
        assert!(seeds.len() >= 6, "{}", folder.display());
        for seed in seeds {
            let mut seed = std::fs::read(seed.expect("it can be listed").path()).expect("a seed is a file");
            (0..=seed.len()).for_each(|end| check_anew(&seed[..end]));
            for at in 0..seed.len() {
                for change in [1, 4, 16, 64, 255] {
                    seed[at] ^= change;
                    check_anew(&seed);
                    seed[at] ^= change;
                }
            }
        }
    }

    /// Checks an input anew: the nonces of the victim before it, whose keys this one has, are forgotten.
    fn check_anew(input: &[u8]) {
        crate::record::tests::forget_nonces();
        check(input);
    }
}
