//! The end of a WebSocket: codes, reasons, and faults of the peer.

use crate::frame::MAX_CONTROL;
use std::borrow::Cow;

/// Codes of RFC 6455, 7.4.1, and of its registry. Codes from 3000 are registered by libraries, those from 4000 to 4999 are yours.
pub mod code {
    /// The purpose is fulfilled.
    pub const NORMAL: u16 = 1000;
    /// The endpoint goes away: a server that ends or drains, a browser that leaves the page.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer broke the protocol.
    pub const PROTOCOL: u16 = 1002;
    /// The peer sent a kind of message that is not taken.
    pub const UNSUPPORTED: u16 = 1003;
    /// Never sent: the peer's close frame had no code.
    pub const NONE: u16 = 1005;
    /// Never sent: the connection ended without a close frame.
    pub const ABNORMAL: u16 = 1006;
    /// Text is not UTF-8.
    pub const INVALID: u16 = 1007;
    /// A message breaks the service's rules.
    pub const POLICY: u16 = 1008;
    /// A message is too long.
    pub const TOO_LONG: u16 = 1009;
    /// The server failed.
    pub const INTERNAL: u16 = 1011;
    /// The server restarts: connect again.
    pub const RESTART: u16 = 1012;
    /// The server has too much to do: connect again later.
    pub const OVERLOAD: u16 = 1013;
}

/// The end of a connection, as far as the peer told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The peer's code: see [`code`]. [`code::ABNORMAL`] where the connection ended without the peer's close frame.
    pub code: u16,
    /// The peer's reason, mostly empty.
    pub reason: String,
    /// Both sides sent their close frame: nothing that was sent before is lost.
    pub is_clean: bool,
}

impl Close {
    /// Returns the end without the peer's close frame.
    pub(crate) fn abnormal() -> Close {
        Close { code: code::ABNORMAL, reason: String::new(), is_clean: false }
    }
}

/// The reason for which a connection is ended: a mistake of the peer, of which it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: u16,
    pub(crate) why: Cow<'static, str>,
}

impl Fault {
    pub(crate) fn protocol(why: &'static str) -> Fault {
        Fault { code: code::PROTOCOL, why: why.into() }
    }

    pub(crate) fn not_utf8() -> Fault {
        Fault { code: code::INVALID, why: "text is not UTF-8".into() }
    }

    pub(crate) fn not_deflated() -> Fault {
        Fault { code: code::INVALID, why: "a message is not compressed as it says".into() }
    }

    pub(crate) fn too_long(max: usize) -> Fault {
        Fault { code: code::TOO_LONG, why: format!("a message has more than {max} bytes").into() }
    }
}

/// Reads the payload of a close frame.
pub(crate) fn read(payload: &[u8]) -> Result<(u16, String), Fault> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return match payload {
            [] => Ok((code::NONE, String::new())),
            _ => Err(Fault::protocol("a close frame has one byte")),
        };
    };
    let code = u16::from_be_bytes(*code);
    if !is_sendable(code) {
        return Err(Fault::protocol("a close frame has a reserved code"));
    }
    let reason = std::str::from_utf8(reason).map_err(|_| Fault::not_utf8())?;
    Ok((code, reason.to_owned()))
}

/// Returns the payload of a close frame. A reason that is too long for a control frame is cut off.
pub(crate) fn payload(code: u16, reason: &str) -> Vec<u8> {
    if code == code::NONE {
        return Vec::new();
    }
    let most = (0..=MAX_CONTROL - 2).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
    [&code.to_be_bytes(), &reason.as_bytes()[..most]].concat()
}

/// Returns whether a code may stand in a close frame.
pub(crate) fn is_sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_close_frame_says_is_read_again() {
        for (code, reason) in [(1000, ""), (4999, "see you"), (code::NONE, "")] {
            assert_eq!(read(&payload(code, reason)), Ok((code, reason.to_owned())));
        }
        let long = "ü".repeat(100);
        assert_eq!(read(&payload(1000, &long)), Ok((1000, "ü".repeat(61))));
    }

    #[test]
    fn malformed_close_frames_are_faults() {
        assert_eq!(read(&[3]).map_err(|fault| fault.code), Err(code::PROTOCOL));
        for reserved in [0_u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
            assert_eq!(read(&reserved.to_be_bytes()).map_err(|fault| fault.code), Err(code::PROTOCOL), "{reserved}");
        }
        assert_eq!(read(b"\x03\xe8\xff").map_err(|fault| fault.code), Err(code::INVALID));
    }
}
