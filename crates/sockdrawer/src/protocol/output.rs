//! The output of a callback.

use super::asks::{Asks, Said};

/// Bytes to send. The buffer belongs to the loop, not to the connection: bytes that the kernel does not take at once are copied by the loop.
#[derive(Default)]
pub struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Unsent bytes of this connection from before.
    pub(crate) backlog: usize,
    pub(crate) high_water: usize,
    /// What the callback asked for beside its step; nearly always nothing.
    pub(crate) asks: Asks,
    /// A tag or a report of the callback about its connection; rare.
    pub(crate) said: Option<Box<Said>>,
}

impl Output {
    /// An empty output with this high-water mark in bytes, for a layer's inner protocol.
    pub fn with_high_water(high_water: usize) -> Output {
        Output { high_water, ..Output::default() }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes appended since the callback began.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes appended since the callback began, to change in place: a prepared block is appended at once and its numbers written into it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The box for what is said beside a step.
    pub(crate) fn say(&mut self) -> &mut Said {
        self.asks.add(Asks::SAID);
        self.said.get_or_insert_default()
    }

    /// Discards what was appended and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Bytes left below the high-water mark, unsent bytes counted. Advice: more is kept too, but `received` then waits until the
    /// peer has read, unless the service is [`Receiving::Always`]; [`Protocol::writable`] tells when it has.
    pub fn room(&self) -> usize {
        self.high_water.saturating_sub(self.backlog + self.bytes.len())
    }
}
