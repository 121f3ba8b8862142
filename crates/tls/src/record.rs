//! The record layer of an established connection: a record is sealed and opened in place, by the AEAD of ring. Keys are expanded for each
//! call, which costs about 0.2 µs, because an expanded pair takes over a kilobyte for as long as the connection lasts.

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use sockdrawer::{CannotRestore, Output, Saved, Saver};
use std::ops::Range;
use zeroize::{Zeroize, Zeroizing};

#[cfg(any(test, fuzzing))]
mod forge;
// Fuzzed sessions have the keys of those before them.
#[cfg(all(debug_assertions, not(fuzzing)))]
mod once;
#[cfg(test)]
pub(crate) mod tests;

/// Bytes of a record's header: type, version, length.
pub(crate) const HEADER: usize = 5;
/// The most bytes of data in a record: RFC 8446, section 5.1.
pub(crate) const MAX_PLAIN: usize = 1 << 14;
/// Maximum number of bytes by which a record is longer than its data: RFC 8446, section 5.2, and RFC 5246, section 6.2.3.
const MAX_EXTRA_13: usize = 256;
const MAX_EXTRA_12: usize = 2048;
/// The most bytes of a record with its header.
pub(crate) const LONGEST: usize = HEADER + MAX_PLAIN + MAX_EXTRA_12;
const TAG: usize = 16;
/// The part of the nonce that a record of TLS 1.2 with AES-GCM carries.
const EXPLICIT: usize = 8;
/// The most records for one key of AES-GCM: RFC 8446, section 5.5 allows 2^24.5 of full size.
pub(crate) const MAX_RECORDS: u64 = 1 << 24;

/// The type of a record's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content(pub(crate) u8);

impl Content {
    pub(crate) const ALERT: Content = Content(21);
    pub(crate) const HANDSHAKE: Content = Content(22);
    pub(crate) const DATA: Content = Content(23);
}

/// Reason why a record was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRecord {
    #[error("a record of {0} bytes, more than TLS allows")]
    TooLong(usize),
    #[error("a record that was forged, damaged or sealed with another key")]
    Forged,
    #[error("a record of the unknown or unexpected type {0}")]
    Type(u8),
    #[error("a record with nothing but padding")]
    OnlyPadding,
}

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Tls12 = 2,
    Tls13 = 3,
}

/// The algorithm that seals records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aead {
    Aes128Gcm = 1,
    Aes256Gcm = 2,
    Chacha20Poly1305 = 3,
}

impl Aead {
    fn ring(self) -> &'static aead::Algorithm {
        match self {
            Aead::Aes128Gcm => &aead::AES_128_GCM,
            Aead::Aes256Gcm => &aead::AES_256_GCM,
            Aead::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    /// Returns the hash, which the algorithm determines in TLS 1.3.
    fn hash(self) -> hkdf::Algorithm {
        match self {
            Aead::Aes256Gcm => hkdf::HKDF_SHA384,
            Aead::Aes128Gcm | Aead::Chacha20Poly1305 => hkdf::HKDF_SHA256,
        }
    }

    /// Returns the number of bytes of a traffic secret of TLS 1.3.
    pub(crate) fn secret_length(self) -> usize {
        match self {
            Aead::Aes256Gcm => 48,
            Aead::Aes128Gcm | Aead::Chacha20Poly1305 => 32,
        }
    }

    fn most_records(self) -> u64 {
        match self {
            Aead::Chacha20Poly1305 => u64::MAX,
            Aead::Aes128Gcm | Aead::Aes256Gcm => MAX_RECORDS,
        }
    }
}

/// Way in which the records of a connection are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cipher {
    pub(crate) version: Version,
    pub(crate) aead: Aead,
}

/// The keys of one direction, and the number of the next record.
pub(crate) struct Direction {
    /// Boxed, so that a connection that is moved in memory leaves no copy of them behind.
    keys: Box<Keys>,
    sequence: u64,
}

/// Wiped when dropped.
struct Keys {
    key: [u8; 32],
    iv: [u8; 12],
    /// The traffic secret, from which TLS 1.3 makes the next keys.
    secret: [u8; 48],
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.key.zeroize();
        self.iv.zeroize();
        self.secret.zeroize();
    }
}

/// Prints no secrets.
impl std::fmt::Debug for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direction").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Direction {
    pub(crate) fn new(key: &[u8], iv: &[u8; 12], secret: &[u8], sequence: u64) -> Direction {
        let mut keys = Box::new(Keys { key: [0; 32], iv: *iv, secret: [0; 48] });
        keys.key[..key.len()].copy_from_slice(key);
        keys.secret[..secret.len()].copy_from_slice(secret);
        Direction { keys, sequence }
    }

    /// Takes the number of the next record, which no other record gets: a nonce that is used twice betrays the key.
    fn next(&mut self) -> u64 {
        let number = self.sequence;
        self.sequence = number.checked_add(1).expect("a key is not used for 2^64 records");
        number
    }

    /// Returns the nonce of a record: its number over the IV.
    fn nonce(&self, number: u64) -> [u8; 12] {
        let mut nonce = self.keys.iv;
        nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(nonce, number)| *nonce ^= number);
        nonce
    }

    pub(crate) fn save(&self, to: &mut Saver) {
        to.u64(self.sequence);
        to.bytes(&self.keys.key);
        to.bytes(&self.keys.iv);
        to.bytes(&self.keys.secret);
    }

    pub(crate) fn restore(from: &mut Saved<'_>) -> Result<Direction, CannotRestore> {
        fn exactly<'s, const N: usize>(from: &mut Saved<'s>) -> Result<&'s [u8; N], CannotRestore> {
            let another = |_| CannotRestore::because("the saved TLS state is of another version");
            from.bytes()?.try_into().map_err(another)
        }
        let (sequence, key, iv, secret) = (from.u64()?, exactly::<32>(from)?, exactly(from)?, exactly::<48>(from)?);
        Ok(Direction::new(key, iv, secret, sequence))
    }
}

/// The number of bytes that ring's key derivation is asked for.
struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl Cipher {
    fn key(self, direction: &Direction) -> LessSafeKey {
        let aead = self.aead.ring();
        LessSafeKey::new(UnboundKey::new(aead, &direction.keys.key[..aead.key_len()]).expect("a key of the algorithm's length"))
    }

    /// Expands by HKDF-Expand-Label of RFC 8446, section 7.1, with an empty context.
    fn expand(self, secret: &[u8], label: &[u8], into: &mut [u8]) {
        let length = u16::try_from(into.len()).expect("a key is short").to_be_bytes();
        let label_length = [u8::try_from(6 + label.len()).expect("a label is short")];
        let info: [&[u8]; 5] = [&length, &label_length, b"tls13 ", label, &[0]];
        let key = hkdf::Prk::new_less_safe(self.aead.hash(), secret);
        let key = key.expand(&info, Bytes(into.len())).expect("not longer than 255 hashes");
        key.fill(into).expect("of the length that was asked for");
    }

    /// Derives the next keys of a direction: RFC 8446, section 7.2.
    pub(crate) fn update(self, direction: &mut Direction) {
        let length = self.aead.secret_length();
        let mut next = Zeroizing::new([0; 48]);
        self.expand(&direction.keys.secret[..length], b"traffic upd", &mut next[..length]);
        direction.keys.secret = *next;
        self.derive(direction);
    }

    /// Derives key and IV of a traffic secret, from which records are counted anew: RFC 8446, section 7.3.
    fn derive(self, direction: &mut Direction) {
        let Keys { key, iv, secret } = &mut *direction.keys;
        let secret = &secret[..self.aead.secret_length()];
        self.expand(secret, b"key", &mut key[..self.aead.ring().key_len()]);
        self.expand(secret, b"iv", iv);
        direction.sequence = 0;
    }

    /// Returns how many more records the keys of a direction are good for.
    pub(crate) fn records_left(self, direction: &Direction) -> u64 {
        self.aead.most_records().saturating_sub(direction.sequence)
    }

    /// Returns the number of bytes of nonce that each record carries.
    fn explicit(self) -> usize {
        match (self.version, self.aead) {
            (Version::Tls13, _) | (_, Aead::Chacha20Poly1305) => 0,
            (Version::Tls12, _) => EXPLICIT,
        }
    }

    /// Returns the additional data of TLS 1.2: RFC 5246, section 6.2.3.3.
    fn additional_12(number: u64, header: &[u8], length: usize) -> [u8; 13] {
        let mut additional = [0; 13];
        additional[..8].copy_from_slice(&number.to_be_bytes());
        additional[8..11].copy_from_slice(&header[..3]);
        additional[11..].copy_from_slice(&u16::try_from(length).expect("a record is short").to_be_bytes());
        additional
    }

    /// Appends the records that carry `plain`: one that is empty, or as few as are needed.
    pub(crate) fn seal(self, direction: &mut Direction, content: Content, plain: &[u8], to: &mut Output) {
        let key = self.key(direction);
        let mut left = plain;
        loop {
            let (now, later) = left.split_at(left.len().min(MAX_PLAIN));
            self.seal_one(&key, direction, content, now, to);
            left = later;
            if left.is_empty() {
                return;
            }
        }
    }

    fn seal_one(self, key: &LessSafeKey, direction: &mut Direction, content: Content, plain: &[u8], to: &mut Output) {
        let number = direction.next();
        let nonce = direction.nonce(number);
        #[cfg(all(debug_assertions, not(fuzzing)))]
        once::seals(&direction.keys.key, &direction.keys.iv, number);
        let is_13 = self.version == Version::Tls13;
        let length = self.explicit() + plain.len() + usize::from(is_13) + TAG;
        let outer = if is_13 { Content::DATA } else { content };
        let [high, low] = u16::try_from(length).expect("a record is short").to_be_bytes();
        let header = [outer.0, 3, 3, high, low];
        to.push(&header);
        to.push(&nonce[nonce.len() - self.explicit()..]);
        let start = to.bytes().len();
        to.push(plain);
        if is_13 {
            to.push(&[content.0]);
        }
        let additional = Self::additional_12(number, &header, plain.len());
        let additional = Aad::from(if is_13 { &header[..] } else { &additional[..] });
        let body = &mut to.bytes_mut()[start..];
        let tag = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), additional, body);
        to.push(tag.expect("a record is not longer than the algorithm allows").as_ref());
    }

    /// Opens a whole record in place. Returns the type of its content, and where that is.
    pub(crate) fn open(self, direction: &mut Direction, record: &mut [u8]) -> Result<(Content, Range<usize>), BadRecord> {
        let (header, body) = record.split_at_mut(HEADER);
        let outer = Content(header[0]);
        let is_13 = self.version == Version::Tls13;
        if is_13 && outer != Content::DATA {
            return Err(BadRecord::Type(outer.0));
        }
        let explicit = self.explicit();
        let least = explicit + TAG + usize::from(is_13);
        let Some(length) = body.len().checked_sub(least).map(|more| more + usize::from(is_13)) else {
            return Err(BadRecord::Forged);
        };
        let number = direction.next();
        let mut nonce = direction.nonce(number);
        let (carried, sealed) = body.split_at_mut(explicit);
        nonce[12 - explicit..].copy_from_slice(carried);
        let additional = Self::additional_12(number, header, length.min(usize::from(u16::MAX)));
        let additional = Aad::from(if is_13 { &header[..] } else { &additional[..] });
        let opened = self.key(direction).open_in_place(Nonce::assume_unique_for_key(nonce), additional, sealed);
        let opened = opened.map_err(|_| BadRecord::Forged)?;
        let start = HEADER + explicit;
        if !is_13 {
            return if opened.len() > MAX_PLAIN {
                Err(BadRecord::TooLong(opened.len()))
            } else {
                Ok((outer, start..start + length))
            };
        }
        // Content, its type, and zeros: RFC 8446, section 5.4 limits them together.
        if opened.len() > MAX_PLAIN + 1 {
            return Err(BadRecord::TooLong(opened.len()));
        }
        let end = opened.iter().rposition(|byte| *byte != 0).ok_or(BadRecord::OnlyPadding)?;
        Ok((Content(opened[end]), start..start + end))
    }

    /// Returns the length of the first record with its header; None while the header is not whole.
    pub(crate) fn record_length(self, wire: &[u8]) -> Result<Option<usize>, BadRecord> {
        let Some([_, _, _, high, low]) = wire.first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let extra = if self.version == Version::Tls13 { MAX_EXTRA_13 } else { MAX_EXTRA_12 };
        if length > MAX_PLAIN + extra { Err(BadRecord::TooLong(length)) } else { Ok(Some(HEADER + length)) }
    }
}
