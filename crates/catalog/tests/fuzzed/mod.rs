//! Checks that must hold for any bytes, however they are split and whatever happens between two reads. The fuzz targets in `fuzz/` call them with
//! inputs that they search for, the tests in `seeds.rs` with their seeds and mutations of them.
//!
//! An input is one byte of choices, the number of steps (at most 15), one byte for each step, and the stream. A step's upper three bits say what
//! happens, its lower five how much of it. What the steps leave of the stream comes in one read.

pub(crate) mod acks;
pub(crate) mod client;
pub(crate) mod hello;
pub(crate) mod http;
pub(crate) mod proxy_header;

/// Steps that an input stands for.
struct Script<'a> {
    choices: u8,
    steps: &'a [u8],
    stream: &'a [u8],
}

impl<'a> Script<'a> {
    /// Reads an input. None for less than two bytes.
    fn new(input: &'a [u8]) -> Option<Script<'a>> {
        let [choices, count, rest @ ..] = input else { return None };
        let (steps, stream) = rest.split_at(usize::from(count % 16).min(rest.len()));
        Some(Script { choices: *choices, steps, stream })
    }

    /// Returns each step as what happens, 0 to 7, and how much, 0 to 31.
    fn steps(&self) -> impl Iterator<Item = (u8, usize)> + use<'a> {
        self.steps.iter().map(|step| (step >> 5, usize::from(step & 31)))
    }

    /// Takes the next `count` bytes of the stream, or what is left of it.
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.stream.split_at(count.min(self.stream.len()));
        self.stream = rest;
        taken
    }
}
