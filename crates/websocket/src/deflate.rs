//! permessage-deflate (RFC 7692), without context takeover at either end: each message is compressed by itself, so that an idle connection keeps nothing.

use crate::close::Fault;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;

const NAME: &str = "permessage-deflate";
/// The offer of a client.
pub(crate) const OFFER: &str =
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits";
/// The answer of a server to an offer that limits no window.
const ANSWER: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
/// Shorter messages are sent as they are.
const SHORTEST: usize = 64;
/// The largest window, in bits, which is that of each thread's compressor. With a smaller one messages are sent as they are: a
/// compressor that is made for each of them costs this side much, and the peer that asks for it nothing.
pub(crate) const LARGEST: Window = 15;
/// The end of a compressed message, which is not sent: RFC 7692, 7.2.1.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// The room that is made for more output at once.
const PIECE: usize = 16 * 1024;

thread_local! {
    /// Compressors and decompressors belong to the thread, not to the connection.
    static PACKS: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
    static UNPACKS: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// The agreement of both ends: the window of what this side sends, in bits.
pub(crate) type Window = u8;

/// Parameters of an offer, or of an answer; None: they are not those of RFC 7692.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters {
    server_keeps_none: bool,
    client_keeps_none: bool,
    server_window: Option<u8>,
    /// Without a value in an offer: the client can limit its window.
    client_window: Option<Option<u8>>,
}

impl Parameters {
    fn of(element: &str) -> Option<Parameters> {
        let mut parts = element.split(';').map(str::trim);
        if parts.next() != Some(NAME) {
            return None;
        }
        let (mut parameters, mut seen) = (Parameters::default(), Vec::new());
        for part in parts {
            let (name, value) = part.split_once('=').map_or((part, None), |(name, value)| (name.trim(), Some(value.trim())));
            let value = value.map(|value| value.trim_matches('"'));
            if seen.contains(&name) {
                return None;
            }
            seen.push(name);
            let bits =
                |value: &str| value.parse().ok().filter(|bits| (8..=LARGEST).contains(bits) && !value.starts_with(['0', '+']));
            match (name, value) {
                ("server_no_context_takeover", None) => parameters.server_keeps_none = true,
                ("client_no_context_takeover", None) => parameters.client_keeps_none = true,
                ("server_max_window_bits", Some(value)) => parameters.server_window = Some(bits(value)?),
                ("client_max_window_bits", None) => parameters.client_window = Some(None),
                ("client_max_window_bits", Some(value)) => parameters.client_window = Some(Some(bits(value)?)),
                _ => return None,
            }
        }
        Some(parameters)
    }
}

/// Takes the first of the extensions that a client offers which can be kept. Returns the answer, too.
pub(crate) fn accept<'a>(extensions: impl Iterator<Item = &'a str>) -> Option<(Window, String)> {
    let mut offers = extensions.filter_map(Parameters::of);
    offers.next().map(|offer| match offer.server_window {
        None => (LARGEST, ANSWER.to_owned()),
        Some(bits) => (bits, format!("{ANSWER}; server_max_window_bits={bits}")),
    })
}

/// Reads the extensions that a server chose of [`OFFER`]. None: nothing.
///
/// # Errors
/// When it was not offered.
pub(crate) fn chosen<'a>(mut extensions: impl Iterator<Item = &'a str>) -> Result<Option<Window>, String> {
    let Some(element) = extensions.next() else { return Ok(None) };
    let window = |of: Parameters| match of.client_window {
        _ if !of.server_keeps_none => None,
        None => Some(LARGEST),
        Some(bits) => bits,
    };
    match Parameters::of(element).and_then(window) {
        Some(window) if extensions.next().is_none() => Ok(Some(window)),
        _ => Err("the server chose an extension that was not offered".to_owned()),
    }
}

/// Compresses a message. None: as it is it is as short.
pub(crate) fn pack(message: &[u8], window: Window) -> Option<Vec<u8>> {
    if message.len() < SHORTEST || window < LARGEST {
        return None;
    }
    let packed = PACKS.with_borrow_mut(|packs| {
        packs.reset();
        pack_by(packs, message)
    });
    packed.filter(|packed| packed.len() < message.len())
}

fn pack_by(packs: &mut Compress, message: &[u8]) -> Option<Vec<u8>> {
    let mut packed = Vec::with_capacity(message.len() / 2 + 64);
    loop {
        let taken = usize::try_from(packs.total_in()).ok()?;
        packs.compress_vec(&message[taken..], &mut packed, FlushCompress::Sync).ok()?;
        // With room left, all that was flushed is there.
        if packed.len() < packed.capacity() {
            break;
        }
        packed.reserve(PIECE);
    }
    packed.truncate(packed.len() - TAIL.len());
    Some(packed)
}

/// Decompresses a message of at most `max` bytes.
///
/// # Errors
/// When it is none, or longer.
pub(crate) fn unpack(packed: &[u8], max: usize) -> Result<Vec<u8>, Fault> {
    UNPACKS.with_borrow_mut(|unpacks| {
        unpacks.reset(false);
        let mut message = Vec::new();
        unpack_by(unpacks, packed, &mut message, max)?;
        unpack_by(unpacks, &TAIL, &mut message, max)?;
        Ok(message)
    })
}

fn unpack_by(unpacks: &mut Decompress, mut packed: &[u8], message: &mut Vec<u8>, max: usize) -> Result<(), Fault> {
    loop {
        if message.len() == message.capacity() {
            message.reserve(PIECE);
        }
        let (taken, length) = (unpacks.total_in(), message.len());
        let status = unpacks.decompress_vec(packed, message, FlushDecompress::Sync).map_err(|_| Fault::not_deflated())?;
        let taken = usize::try_from(unpacks.total_in() - taken).unwrap_or(packed.len());
        packed = &packed[taken..];
        if message.len() > max {
            return Err(Fault::too_long(max));
        }
        let is_full = message.len() == message.capacity();
        match status {
            // A last block, behind which others may follow: RFC 7692, 7.2.3.5.
            Status::StreamEnd => unpacks.reset(false),
            _ if taken == 0 && message.len() == length && !packed.is_empty() => return Err(Fault::not_deflated()),
            _ => {}
        }
        if packed.is_empty() && !is_full {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in() {
        let noise: Vec<u8> = (0..100_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let text = "all of this is said again and again, ".repeat(3_000);
        for message in [text.as_bytes(), &text.as_bytes()[..SHORTEST], &noise] {
            let Some(packed) = pack(message, LARGEST) else {
                assert!(message == noise, "noise alone is not shorter");
                continue;
            };
            assert!(packed.len() < message.len());
            assert!(unpack(&packed, message.len()).expect("it is right") == message);
            assert_eq!(unpack(&packed, message.len() - 1).expect_err("it is longer").code, 1009);
        }
        assert_eq!((pack(b"short", LARGEST), pack(text.as_bytes(), LARGEST - 1)), (None, None));
    }

    /// RFC 7692, 7.2.3: one block, two blocks, a stored block, a last block, and an empty message.
    #[test]
    fn the_examples_of_the_standard_are_read() {
        for packed in [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        ] {
            assert_eq!(unpack(packed, 100).expect("it is right"), b"Hello", "{packed:x?}");
        }
        assert_eq!(unpack(&[0x00], 100).expect("it is right"), b"");
    }

    #[test]
    fn a_bomb_is_bounded_and_rubbish_is_refused() {
        let bomb = pack(&vec![0; 50_000_000], LARGEST).expect("it is shorter");
        assert!(bomb.len() < 500_000, "{}", bomb.len());
        assert_eq!(unpack(&bomb, 1 << 20).expect_err("it is longer").code, 1009);
        for rubbish in [&b"\xff\xff\xff\xff"[..], b"\x06", b"hello"] {
            assert_eq!(unpack(rubbish, 100).expect_err("it is none").code, 1007, "{rubbish:x?}");
        }
    }

    #[test]
    fn the_first_offer_that_can_be_kept_is_taken() {
        let taken = |field: &str| accept(field.split(',').map(str::trim)).map(|(window, _)| window);
        for (offered, window) in [
            ("permessage-deflate", Some(15)),
            ("permessage-deflate; client_max_window_bits", Some(15)),
            ("x-other, permessage-deflate;server_max_window_bits=10", Some(10)),
            ("permessage-deflate; server_max_window_bits=7, permessage-deflate", Some(15)),
            ("x-other, permessage-deflate; server_no_context_takeover; client_max_window_bits=\"9\"", Some(15)),
            ("permessage-deflate; server_max_window_bits=8", Some(8)),
            ("permessage-deflate; server_max_window_bits", None),
            ("permessage-deflate; server_max_window_bits=16", None),
            ("permessage-deflate; unknown", None),
            ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
            ("x-webkit-deflate-frame", None),
            ("", None),
        ] {
            assert_eq!(taken(offered), window, "{offered:?}");
        }
    }

    #[test]
    fn a_server_chooses_what_was_offered() {
        assert_eq!(chosen(std::iter::empty()), Ok(None));
        assert_eq!(chosen([ANSWER].into_iter()), Ok(Some(15)));
        assert_eq!(chosen([&*format!("{ANSWER}; client_max_window_bits=9")].into_iter()), Ok(Some(9)));
        for wrong in ["permessage-deflate", "other", OFFER] {
            assert!(chosen([wrong].into_iter()).is_err(), "{wrong}");
        }
    }
}
