//! Messages that come in several reads, or in several frames.

use crate::close::Fault;
use crate::deflate;
use crate::frame::{Header, Message, Opcode, Part};
use crate::mask;
use serde::{Deserialize, Serialize};
use sockdrawer::Input;

/// A data message of which a part has come. Only a connection with such a message has this memory.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Partial {
    is_text: bool,
    bytes: Vec<u8>,
    /// Bytes, from the first, that are known to be whole characters.
    checked: usize,
    /// The frame of which a part has come is the last of its message.
    fin: bool,
    /// Bytes of that frame which have not come.
    left: u64,
    mask: [u8; 4],
    /// Bytes of that frame which have come: the place in the mask.
    place: u8,
    compressed: bool,
    /// A part of it was given away.
    is_begun: bool,
}

impl Partial {
    /// Begins a message with this frame.
    pub(crate) fn begun_by(header: &Header) -> Partial {
        let (is_text, compressed) = (header.opcode == Opcode::Text, header.compressed);
        let (bytes, checked, fin, left, mask, place) = (Vec::new(), 0, false, 0, [0; 4], 0);
        let mut partial = Partial { is_text, bytes, checked, fin, left, mask, place, compressed, is_begun: false };
        partial.next_frame(header);
        partial
    }

    /// Takes the header of another frame, whose bytes follow.
    pub(crate) fn next_frame(&mut self, header: &Header) {
        self.fin = header.fin;
        self.left = header.payload;
        self.mask = header.mask.unwrap_or_default();
        self.place = 0;
    }

    /// Bytes that the message has at least.
    pub(crate) fn length(&self) -> u64 {
        self.left.saturating_add(self.bytes.len() as u64)
    }

    /// Returns whether it is joined, because it is decompressed as a whole.
    pub(crate) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Returns whether a part of it was given away.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Returns whether the bytes that come next belong to a frame that began.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.left > 0
    }

    /// Returns whether the last byte of the last frame was taken.
    pub(crate) fn is_whole(&self) -> bool {
        self.fin && self.left == 0
    }

    /// Takes what has come of the frame.
    ///
    /// # Errors
    /// When the text cannot become UTF-8, whatever follows.
    pub(crate) fn take(&mut self, input: &mut Input<'_>) -> Result<(), Fault> {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.bytes().len());
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(input.take(count));
        mask::apply(&mut self.bytes[begin..], self.mask, self.place.into());
        self.left -= count as u64;
        self.place = self.place.wrapping_add(u8::try_from(count % 4).unwrap_or_default());
        self.check()
    }

    /// Looks at characters that became whole.
    fn check(&mut self) -> Result<(), Fault> {
        if !self.is_text || self.compressed {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[self.checked..]) {
            Ok(_) => self.checked = self.bytes.len(),
            Err(error) if error.error_len().is_none() && !self.is_whole() => self.checked += error.valid_up_to(),
            Err(_) => return Err(Fault::not_utf8()),
        }
        Ok(())
    }

    /// Returns whether a part is there, of a message that is not whole.
    pub(crate) fn has_part(&self) -> bool {
        let is_there = if self.is_text { self.checked > 0 } else { !self.bytes.is_empty() };
        is_there && !self.compressed
    }

    /// Returns the bytes that have come and were not given away, but for those of a character that has not come whole.
    pub(crate) fn part(&self) -> Part<'_> {
        let text = std::str::from_utf8(&self.bytes[..self.checked]).unwrap_or_default();
        let message = if self.is_text { Message::Text(text) } else { Message::Binary(&self.bytes) };
        Part { message, is_first: !self.is_begun, is_last: self.is_whole() }
    }

    /// Forgets the part that was given away.
    pub(crate) fn forget_part(&mut self) {
        let count = if self.is_text { self.checked } else { self.bytes.len() };
        self.bytes.drain(..count);
        (self.checked, self.is_begun) = (0, true);
    }

    /// Decompresses the whole message, which may have so many bytes. Returns the number of bytes that this made.
    ///
    /// # Errors
    /// When it has more, or is not compressed.
    pub(crate) fn decompress(&mut self, max: usize) -> Result<usize, Fault> {
        if !std::mem::take(&mut self.compressed) {
            return Ok(0);
        }
        self.bytes = deflate::unpack(&self.bytes, max)?;
        self.check()?;
        Ok(self.bytes.len())
    }
}
