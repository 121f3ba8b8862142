//! A service whose state moves: each connection has a sum.

use crate::common::read;
use sockdrawer::{CannotRestore, CannotSave, Context, Input, Note, Peer, Protocol, Recipe, Saved, Saver, Service, State, Step};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

/// A sum at which `restore` panics, and one at which `save` does.
pub(crate) const CANNOT_BE_RESTORED: u32 = 0xf000_0000;
pub(crate) const CANNOT_BE_SAVED: u32 = 0xf000_0001;

/// Adds numbers. Messages are a letter and a number of 4 bytes: `a` adds it and tells the sum, `t` sets a timer in so many milliseconds, `b`
/// sends so many bytes of the sum, `w` waits, `h` keeps its thread busy for so many milliseconds, `n` is named by the number, `s` cannot be saved from now on.
pub(crate) struct Sum {
    build: u8,
    sum: u32,
    stays: bool,
}

/// The service of a build, which writes its states as this version.
pub(crate) struct Sums {
    build: u8,
    pub(crate) state: State,
    /// Called before the first connection is restored.
    pub(crate) on_restore: Mutex<Option<OnRestore>>,
}

pub(crate) type OnRestore = Box<dyn FnOnce() + Send>;

pub(crate) fn build(build: u8) -> Sums {
    Sums { build, state: State::of("sum", build.into()).reads(1..=build.into()), on_restore: Mutex::default() }
}

impl Service for Sums {
    type Protocol = Sum;
    fn open(&self, _peer: &Peer) -> Sum {
        Sum { build: self.build, sum: 0, stays: false }
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Sum, CannotRestore> {
        assert!((1..=u32::from(self.build)).contains(&from.version()), "{}", from.version());
        if let Some(on_restore) = self.on_restore.lock().expect("no panic").take() {
            on_restore();
        }
        match from.u64()? as u32 {
            13 => Err(CannotRestore::because("the sum is unlucky")),
            CANNOT_BE_RESTORED => panic!("a mistake of restore"),
            sum => Ok(Sum { build: self.build, sum, stays: false }),
        }
    }
    fn state(&self) -> State {
        self.state.clone()
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "sums".to_owned(), options: vec![self.build] })
    }
}

impl Protocol for Sum {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some([letter, number @ ..]) = input.bytes().first_chunk::<5>().copied() {
            input.take(5);
            let number = u32::from_le_bytes(number);
            match letter {
                b'a' => {
                    self.sum += number;
                    cx.send(&self.told(b'a'));
                }
                b't' => cx.set_timer(Duration::from_millis(number.into())),
                b'b' => cx.send(&vec![self.sum as u8; number as usize]),
                b'n' => cx.tag(&number.to_string()),
                b's' => self.stays = true,
                b'w' => {
                    cx.pause();
                    return Step::Continue;
                }
                // waits because: a callback that takes long is what is tried.
                b'h' => std::thread::sleep(Duration::from_millis(number.into())),
                _ => return Step::Close,
            }
        }
        Step::Continue
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.resume();
        cx.send(&self.told(b't'));
        Step::Continue
    }
    fn notified(&mut self, _note: Note, cx: &mut Context<'_>) -> Step {
        cx.resume();
        cx.send(&self.told(b'n'));
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        assert!(self.sum != CANNOT_BE_SAVED, "a mistake of save");
        if self.stays {
            return Err(CannotSave::because("it has a file open"));
        }
        to.u64(self.sum.into());
        Ok(())
    }
}

impl Sum {
    /// Returns the message of this kind, with the build and the sum.
    fn told(&self, what: u8) -> [u8; 6] {
        let [a, b, c, d] = self.sum.to_le_bytes();
        [what, self.build, a, b, c, d]
    }
}

pub(crate) fn message(letter: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_le_bytes();
    [letter, a, b, c, d]
}

/// Adds, and returns which build did it and the sum.
pub(crate) fn add(client: &mut TcpStream, number: u32) -> (u8, u32) {
    client.write_all(&message(b'a', number)).expect("it stands");
    answer(client, b'a')
}

pub(crate) fn answer(client: &mut TcpStream, what: u8) -> (u8, u32) {
    let told = read(client, 6).expect("an answer");
    assert_eq!(told[0], what);
    (told[1], u32::from_le_bytes(told[2..].try_into().expect("4 bytes")))
}

/// Adds a number and returns the build and the sum; `None` where the connection is lost.
pub(crate) fn try_add(client: &mut TcpStream, number: u32) -> Option<(u8, u32)> {
    client.write_all(&message(b'a', number)).ok()?;
    let told = read(client, 6)?;
    Some((told[1], u32::from_le_bytes(told[2..].try_into().expect("4 bytes"))))
}
