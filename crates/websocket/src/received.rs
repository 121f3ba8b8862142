//! The input of a WebSocket, message by message.

use crate::close::{self, Fault};
use crate::frame::{Header, Message, Opcode};
use crate::mask;
use crate::partial::Partial;
use sockdrawer::{Input, Side};

/// A piece of the input, in order.
pub(crate) enum Received<'a> {
    Data(Message<'a>),
    /// The message of which a part has come has one to give away: a part, or all of it. With the bytes that were decompressed for it.
    Part(usize),
    Ping(&'a [u8]),
    Pong,
    Close(u16, String),
    /// Nothing is whole.
    Nothing,
}

impl Received<'_> {
    /// Returns the number of bytes that were decompressed for it.
    pub(crate) fn unpacked(&self) -> usize {
        if let Received::Part(unpacked) = self { *unpacked } else { 0 }
    }
}

/// Takes what comes next, on this side of the connection, compressed perhaps where that was agreed on. Of a message of which a part has come, `partial` has that.
///
/// # Errors
/// When the peer broke the protocol, or a message that is joined, as all are but those whose parts are given away, has more than `max` bytes.
pub(crate) fn next<'a>(
    input: &mut Input<'a>,
    partial: &mut Option<Partial>,
    (side, deflates): (Side, bool),
    (max, parts): (usize, bool),
) -> Result<Received<'a>, Fault> {
    loop {
        if let Some(there) = partial {
            there.take(input)?;
            if there.is_whole() {
                return Ok(Received::Part(there.decompress(max)?));
            }
            if parts && there.has_part() {
                return Ok(Received::Part(0));
            }
            if there.is_within_frame() {
                return Ok(Received::Nothing);
            }
        }
        let Some(header) = Header::read(input.bytes(), side, deflates)? else { return Ok(Received::Nothing) };
        let whole = usize::try_from(header.payload).ok().filter(|payload| input.bytes().len() - header.length >= *payload);
        if header.opcode.is_control() {
            let Some(payload) = whole else { return Ok(Received::Nothing) };
            return control(header.opcode, unmasked(&header, payload, input));
        }
        let before = partial.as_ref().map_or(0, Partial::length);
        let compressed = header.compressed || partial.as_ref().is_some_and(Partial::is_compressed);
        // Bytes that do not compress become a little longer; what they are once they are decompressed is counted then.
        let most = if compressed { max.saturating_add(max / 8 + 64) } else { max };
        if (compressed || !parts) && before.saturating_add(header.payload) > most as u64 {
            return Err(Fault::too_long(max));
        }
        match (&mut *partial, header.opcode, whole) {
            (None, Opcode::Continuation, _) => return Err(Fault::protocol("a message is continued that never began")),
            (Some(_), Opcode::Text | Opcode::Binary, _) => {
                return Err(Fault::protocol("a message begins before the last one ended"));
            }
            (None, opcode, Some(payload)) if header.fin && !header.compressed => {
                let bytes = unmasked(&header, payload, input);
                return Ok(Received::Data(match opcode {
                    Opcode::Text => Message::Text(std::str::from_utf8(bytes).map_err(|_| Fault::not_utf8())?),
                    _ => Message::Binary(bytes),
                }));
            }
            (None, ..) => *partial = Some(Partial::begun_by(&header)),
            (Some(there), ..) => there.next_frame(&header),
        }
        input.take(header.length);
    }
}

/// Takes a whole frame and returns its payload.
fn unmasked<'a>(header: &Header, payload: usize, input: &mut Input<'a>) -> &'a [u8] {
    input.take(header.length);
    if let Some(key) = header.mask {
        mask::apply(&mut input.bytes_mut()[..payload], key, 0);
    }
    input.take(payload)
}

fn control(opcode: Opcode, payload: &[u8]) -> Result<Received<'_>, Fault> {
    Ok(match opcode {
        Opcode::Ping => Received::Ping(payload),
        Opcode::Pong => Received::Pong,
        _ => {
            let (code, reason) = close::read(payload)?;
            Received::Close(code, reason)
        }
    })
}
