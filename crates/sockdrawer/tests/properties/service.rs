//! Service that the pools under test run: it says which version of it answers, so that a client sees which generation it has.

use sockdrawer::{
    Behaviour, Build, CannotRestore, CannotSave, Context, Handle, Input, Note, Peer, Protocol, Recipe, Saved, Saver, Service,
    State, Step,
};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Bytes of a request: a letter and a number.
pub(crate) const REQUEST: usize = 9;
/// Bytes of an answer: a letter, the version and the generation that answer, and a number.
pub(crate) const ANSWER: usize = 17;

/// Recipes of all services, as other processes build them.
pub(crate) const RECIPES: [(&str, Build); 2] = [("even", built), ("odd", built)];

fn built(options: &[u8]) -> Result<Behaviour, Box<dyn std::error::Error + Send + Sync>> {
    Ok(behaviour(u32::from_le_bytes(options.try_into()?)))
}

/// Returns the service of this version. Versions take turns between two types, so that the type changes with each.
pub(crate) fn behaviour(version: u32) -> Behaviour {
    if version.is_multiple_of(2) { Speaker::<false>(version).into() } else { Speaker::<true>(version).into() }
}

/// Handles of all connections that ever said hello, in this process.
static HANDLES: LazyLock<Mutex<HashMap<u64, Handle>>> = LazyLock::new(Mutex::default);

/// Returns the handle of the connection that said hello with this number, if it did so in this process.
pub(crate) fn handle(name: u64) -> Option<Handle> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
}

/// Forgets it.
pub(crate) fn forget(name: u64) {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
}

pub(crate) fn request(letter: u8, number: u64) -> [u8; REQUEST] {
    let mut bytes = [letter; REQUEST];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Origin of an answer: a version of the service, under a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) version: u32,
    pub(crate) generation: u32,
}

pub(crate) fn answer(letter: u8, origin: Origin, number: u64) -> [u8; ANSWER] {
    let mut bytes = [letter; ANSWER];
    bytes[1..5].copy_from_slice(&origin.version.to_le_bytes());
    bytes[5..9].copy_from_slice(&origin.generation.to_le_bytes());
    bytes[9..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Returns the letter, the origin and the number of an answer.
pub(crate) fn parts(bytes: [u8; ANSWER]) -> (u8, Origin, u64) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let number = u64::from_le_bytes(bytes[9..].try_into().expect("eight bytes"));
    (bytes[0], Origin { version: word(1), generation: word(5) }, number)
}

/// Returns the byte at this place of a flood.
pub(crate) fn pattern(place: usize) -> u8 {
    (place % 251) as u8
}

/// Service that answers requests:
///
/// - `h` keeps a handle to the connection under the number, and answers with it.
/// - `a` adds the number to what it keeps and answers with the sum.
/// - `w` answers with the number, and so many bytes of the pattern.
///
/// Notes are sent as they are. A connection that is to end says `d` with the sum and does so.
struct Speaker<const ODD: bool>(u32);

struct Speaking<const ODD: bool> {
    version: u32,
    sum: u64,
    /// Key by which its handle is kept, once it said hello.
    key: Option<u64>,
}

impl<const ODD: bool> Service for Speaker<ODD> {
    type Protocol = Speaking<ODD>;

    fn open(&self, _peer: &Peer) -> Speaking<ODD> {
        Speaking { version: self.0, sum: 0, key: None }
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Speaking<ODD>, CannotRestore> {
        let (sum, key) = (from.u64()?, from.u64()?);
        Ok(Speaking { version: self.0, sum, key: Some(key).filter(|key| *key > 0) })
    }

    fn state(&self) -> State {
        State::of("speaking", 1)
    }

    fn recipe(&self) -> Option<Recipe> {
        let name = if ODD { "odd" } else { "even" };
        Some(Recipe { name: name.to_owned(), options: self.0.to_le_bytes().to_vec() })
    }
}

impl<const ODD: bool> Speaking<ODD> {
    fn origin(&self, cx: &Context<'_>) -> Origin {
        Origin { version: self.version, generation: cx.generation() }
    }

    fn keep_handle(&self, cx: &mut Context<'_>) {
        if let Some(key) = self.key {
            HANDLES.lock().unwrap_or_else(PoisonError::into_inner).insert(key, cx.handle());
        }
    }

    fn obey(&mut self, letter: u8, number: u64, cx: &mut Context<'_>) -> Step {
        let origin = self.origin(cx);
        match letter {
            b'h' => {
                self.key = Some(number);
                self.keep_handle(cx);
                cx.send(&answer(letter, origin, number));
            }
            b'a' => {
                self.sum += number;
                cx.send(&answer(letter, origin, self.sum));
            }
            b'w' => {
                let bytes: Vec<u8> = (0..number as usize).map(pattern).collect();
                cx.send(&answer(letter, origin, number));
                cx.send(&bytes);
            }
            _ => return Step::Abort,
        }
        Step::Continue
    }
}

impl<const ODD: bool> Protocol for Speaking<ODD> {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some((request, _)) = input.bytes().split_first_chunk::<REQUEST>() {
            let (letter, number) = (request[0], u64::from_le_bytes(request[1..].try_into().expect("eight bytes")));
            input.take(REQUEST);
            let step = self.obey(letter, number, cx);
            if !matches!(step, Step::Continue) {
                return step;
            }
        }
        Step::Continue
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().expect("these notes are bytes"));
        Step::Continue
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        let origin = self.origin(cx);
        cx.send(&answer(b'd', origin, self.sum));
        Step::Close
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.sum);
        to.u64(self.key.unwrap_or(0));
        Ok(())
    }

    /// Keeps its handle again: the handle of before is stale where another pool has taken over.
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        self.keep_handle(cx);
        Step::Continue
    }
}
