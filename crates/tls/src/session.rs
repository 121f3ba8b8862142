//! An established connection: records in, records out, and what TLS says between them. It needs nothing of the handshake, so that it can be
//! saved, and goes on in another process.

use crate::record::{Aead, BadRecord, Cipher, Content, Direction, Version};
use sockdrawer::layer::{Progress, Refused};
use sockdrawer::{CannotRestore, Input, Output, Saved, Saver};
use std::borrow::Cow;
use zeroize::Zeroize;

#[cfg(test)]
pub(crate) mod tests;

/// The most records in a row that bring no data: each costs, and nobody needs many.
const MAX_IDLE_RECORDS: u8 = 32;
/// The most bytes of a message of the handshake that comes later: a ticket of the longest that the format has.
pub(crate) const MAX_MESSAGE: usize = 4 + (1 << 16) + 512;

const KEY_UPDATE: u8 = 24;
const NEW_SESSION_TICKET: u8 = 4;
const WARNING: u8 = 1;
pub(crate) const FATAL: u8 = 2;
const CLOSE_NOTIFY: u8 = 0;
const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const ILLEGAL_PARAMETER: u8 = 47;
pub(crate) const DECODE_ERROR: u8 = 50;
const INTERNAL_ERROR: u8 = 80;
const USER_CANCELED: u8 = 90;
const NO_RENEGOTIATION: u8 = 100;

/// Side of the connection that this end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Server = 0,
    Client = 1,
}

/// Last word of this end: none yet, its goodbye, or that its keys were used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    No = 0,
    Goodbye = 1,
    /// The keys of this end were used up.
    UsedUp = 2,
}

/// End of an established connection, server or client. About 250 bytes, and no buffer.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) cipher: Cipher,
    pub(crate) end: End,
    pub(crate) sends: Direction,
    pub(crate) receives: Direction,
    /// Records in a row without data.
    idle_records: u8,
    said: Said,
    rare: Option<Box<Rare>>,
}

/// Taker of a client's tickets: rustls, which resumes by them.
pub(crate) trait TakesTickets: Send + std::fmt::Debug {
    fn take(&mut self, ticket: &[u8]) -> Result<(), Refused>;
}

/// State that few connections have.
#[derive(Default)]
struct Rare {
    /// The start of a message that comes in several records.
    message: Vec<u8>,
    /// Taker of the tickets of a client, until the first data.
    tickets: Option<Box<dyn TakesTickets>>,
}

/// Reason why a connection cannot go on, and the alert that tells its peer, if one does.
struct Fatal {
    alert: Option<u8>,
    refused: Refused,
}

impl From<BadRecord> for Fatal {
    fn from(bad: BadRecord) -> Fatal {
        let alert = match bad {
            BadRecord::Forged => BAD_RECORD_MAC,
            BadRecord::TooLong(_) => RECORD_OVERFLOW,
            BadRecord::Type(_) | BadRecord::OnlyPadding => UNEXPECTED_MESSAGE,
        };
        Fatal { alert: Some(alert), refused: Refused::because(bad.to_string()) }
    }
}

/// Makes the failure of a message whose length is not that of its kind: RFC 8446, section 6.2.
fn undecodable(why: impl Into<Cow<'static, str>>) -> Fatal {
    Fatal { alert: Some(DECODE_ERROR), refused: Refused::because(why) }
}

fn unexpected(why: impl Into<Cow<'static, str>>) -> Fatal {
    Fatal { alert: Some(UNEXPECTED_MESSAGE), refused: Refused::because(why) }
}

impl Session {
    pub(crate) fn new(
        cipher: Cipher,
        end: End,
        sends: Direction,
        receives: Direction,
        tickets: Option<Box<dyn TakesTickets>>,
    ) -> Session {
        let rare = tickets.map(|tickets| Box::new(Rare { message: Vec::new(), tickets: Some(tickets) }));
        Session { cipher, end, sends, receives, idle_records: 0, said: Said::No, rare }
    }

    /// Takes records until one brought data, which is appended to `plain`. After an error, `back` has the alert.
    pub(crate) fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        if self.said == Said::UsedUp {
            return Err(Refused::because("the keys of a TLS 1.2 connection are used up after 2^24 records: TLS 1.3 renews them"));
        }
        self.decode_record(wire, plain, back).map_err(|Fatal { alert, refused }| {
            // RFC 8446, section 6.2.
            if let Some(alert) = alert.filter(|_| self.said == Said::No) {
                self.cipher.seal(&mut self.sends, Content::ALERT, &[FATAL, alert], back);
                self.said = Said::Goodbye;
            }
            refused
        })
    }

    fn decode_record(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Fatal> {
        loop {
            let Some(length) = self.cipher.record_length(wire.bytes())? else { return Ok(Progress::NeedMore) };
            if wire.bytes().len() < length {
                return Ok(Progress::NeedMore);
            }
            let record = &mut wire.bytes_mut()[..length];
            let (content, at) = self.cipher.open(&mut self.receives, record)?;
            let found = wire.take(length);
            let found = &found[at];
            if content != Content::HANDSHAKE && self.rare.as_ref().is_some_and(|rare| !rare.message.is_empty()) {
                // RFC 8446, section 5.1.
                return Err(unexpected("another TLS record within a message of the handshake"));
            }
            if content == Content::DATA && !found.is_empty() {
                plain.extend_from_slice(found);
                self.idle_records = 0;
                self.begins_data();
                return Ok(Progress::Plain);
            }
            self.idle_records += 1;
            if self.idle_records > MAX_IDLE_RECORDS {
                return Err(unexpected("more than 32 TLS records in a row without data"));
            }
            match content {
                Content::DATA => {}
                Content::ALERT if self.is_goodbye(found)? => return Ok(Progress::PeerEnded),
                Content::ALERT => {}
                Content::HANDSHAKE => self.handshake(found, back)?,
                Content(other) => return Err(BadRecord::Type(other).into()),
            }
        }
    }

    /// Tickets come before data; a connection that lasts does not keep what takes them.
    fn begins_data(&mut self) {
        self.rare = None;
    }

    /// Returns whether an alert says goodbye.
    fn is_goodbye(&self, alert: &[u8]) -> Result<bool, Fatal> {
        match *alert {
            [_, CLOSE_NOTIFY] => Ok(true),
            // A goodbye follows.
            [_, USER_CANCELED] => Ok(false),
            [WARNING, _] if self.cipher.version == Version::Tls12 => Ok(false),
            [_, other] => {
                let refused = Refused::because(format!("the peer sent the TLS alert {}", crate::alert::words(other)));
                Err(Fatal { alert: None, refused })
            }
            // RFC 8446, section 5.4.
            [] => Err(unexpected("an empty TLS alert")),
            _ => Err(undecodable("a TLS alert that is not 2 bytes long")),
        }
    }

    fn handshake(&mut self, found: &[u8], back: &mut Output) -> Result<(), Fatal> {
        if found.is_empty() {
            return Err(unexpected("an empty TLS handshake record"));
        }
        if self.cipher.version == Version::Tls12 {
            // The peer asks to renegotiate, which it may not: RFC 5746, section 4.5.
            if self.said == Said::No && self.cipher.records_left(&self.sends) > 2 {
                self.cipher.seal(&mut self.sends, Content::ALERT, &[WARNING, NO_RENEGOTIATION], back);
            }
            return Ok(());
        }
        let mut message = self.rare.as_mut().map(|rare| std::mem::take(&mut rare.message)).unwrap_or_default();
        message.extend_from_slice(found);
        let mut left = &message[..];
        while let Some([kind, length @ ..]) = left.first_chunk::<4>() {
            let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
            if length > 1 && (*kind, self.end) != (NEW_SESSION_TICKET, End::Client) {
                // It is refused, and not waited for.
                return self.message(*kind, &[], false, back);
            }
            if 4 + length > MAX_MESSAGE {
                return Err(undecodable(format!("a TLS handshake message of {length} bytes")));
            }
            let Some((body, rest)) = left[4..].split_at_checked(length) else { break };
            self.message(*kind, body, rest.is_empty(), back)?;
            left = rest;
        }
        if !left.is_empty() {
            self.rare.get_or_insert_default().message = left.to_vec();
        }
        Ok(())
    }

    /// Takes a message of the handshake that came after it. `is_last`: nothing follows in the record.
    fn message(&mut self, kind: u8, body: &[u8], is_last: bool, back: &mut Output) -> Result<(), Fatal> {
        match (kind, body, self.end) {
            (KEY_UPDATE, [asks @ (0 | 1)], _) if is_last => {
                self.cipher.update(&mut self.receives);
                // Nothing follows a goodbye: RFC 8446, section 6.1.
                if *asks == 1 && self.said == Said::No {
                    self.update(false, back);
                }
                Ok(())
            }
            // RFC 8446, section 4.6.3.
            (KEY_UPDATE, [_], _) if is_last => {
                let refused = Refused::because("a TLS key update that asks for something unknown");
                Err(Fatal { alert: Some(ILLEGAL_PARAMETER), refused })
            }
            (KEY_UPDATE, [_], _) => Err(unexpected("a TLS key update that is not the end of its record")),
            (KEY_UPDATE, _, _) => Err(undecodable("a TLS key update that is not 1 byte long")),
            (NEW_SESSION_TICKET, ticket, End::Client) => {
                let tickets = self.rare.as_mut().and_then(|rare| rare.tickets.as_mut());
                let taken = tickets.map_or(Ok(()), |tickets| tickets.take(ticket));
                taken.map_err(|refused| Fatal { alert: Some(DECODE_ERROR), refused })
            }
            (other, _, _) => Err(unexpected(format!("an unexpected TLS handshake message of type {other}"))),
        }
    }

    /// Goes on with the next keys, and tells the peer.
    pub(crate) fn update(&mut self, ask: bool, back: &mut Output) {
        self.cipher.seal(&mut self.sends, Content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, ask.into()], back);
        self.cipher.update(&mut self.sends);
    }

    pub(crate) fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        if self.said == Said::UsedUp {
            return;
        }
        let records = plain.len().div_ceil(crate::record::MAX_PLAIN) as u64;
        // Two records are kept: one for the key update, one for the goodbye.
        if self.cipher.records_left(&self.sends) < records + 2 {
            if self.cipher.version == Version::Tls12 {
                // Not a goodbye: bytes are missing.
                self.cipher.seal(&mut self.sends, Content::ALERT, &[FATAL, INTERNAL_ERROR], wire);
                self.said = Said::UsedUp;
                return;
            }
            self.update(false, wire);
        }
        self.cipher.seal(&mut self.sends, Content::DATA, plain, wire);
    }

    pub(crate) fn goodbye(&mut self, wire: &mut Output) {
        if self.said == Said::No {
            self.cipher.seal(&mut self.sends, Content::ALERT, &[WARNING, CLOSE_NOTIFY], wire);
            self.said = Said::Goodbye;
        }
    }

    /// Returns the number of bytes that it holds of a message.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.message.len())
    }

    pub(crate) fn save(&self, to: &mut Saver) {
        to.u64(self.cipher.version as u64);
        to.u64(self.cipher.aead as u64);
        to.u64(self.end as u64);
        to.u64(self.idle_records.into());
        to.u64(self.said as u64);
        self.sends.save(to);
        self.receives.save(to);
        to.bytes(self.rare.as_ref().map_or(&[], |rare| &rare.message));
    }

    pub(crate) fn restore(from: &mut Saved<'_>) -> Result<Session, CannotRestore> {
        let another = || CannotRestore::because("the saved TLS state is of another version");
        let versions = [Version::Tls12, Version::Tls13];
        let aeads = [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::Chacha20Poly1305];
        let (version, aead, end, idle, said) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?);
        let version = versions.into_iter().find(|of| *of as u64 == version).ok_or_else(another)?;
        let aead = aeads.into_iter().find(|of| *of as u64 == aead).ok_or_else(another)?;
        let end = [End::Server, End::Client].into_iter().find(|of| *of as u64 == end).ok_or_else(another)?;
        let said = [Said::No, Said::Goodbye, Said::UsedUp].into_iter().find(|of| *of as u64 == said).ok_or_else(another)?;
        let (sends, receives) = (Direction::restore(from)?, Direction::restore(from)?);
        let message = from.bytes()?.to_vec();
        let rare = (!message.is_empty()).then(|| Box::new(Rare { message, tickets: None }));
        let idle_records = u8::try_from(idle).map_err(|_| another())?;
        Ok(Session { cipher: Cipher { version, aead }, end, sends, receives, idle_records, said, rare })
    }
}

/// A part of a ticket is not printed.
impl std::fmt::Debug for Rare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rare").field("message", &self.message.len()).field("tickets", &self.tickets).finish()
    }
}

impl Drop for Rare {
    fn drop(&mut self) {
        self.message.zeroize();
    }
}
