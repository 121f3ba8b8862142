//! Records as a peer could send them, who has the keys and keeps to no rule: for tests.

use super::*;

impl Cipher {
    /// Keys that are right for the cipher, and differ by `seed`.
    pub(crate) fn some_direction(self, seed: u8) -> Direction {
        let seed = seed + 16 * (self.version as u8 * 4 + self.aead as u8);
        let secret: Vec<u8> = (0..48).map(|at| seed.wrapping_mul(31) ^ at).collect();
        let mut direction = Direction::new(&secret[..self.aead.ring().key_len()], &[seed; 12], &[], 0);
        if self.version == Version::Tls13 {
            direction = Direction::new(&[], &[0; 12], &secret[..self.aead.secret_length()], 0);
            self.derive(&mut direction);
        }
        direction
    }

    /// Makes a record of any type and length, with `padding` zeros in TLS 1.3.
    pub(crate) fn record(self, direction: &mut Direction, content: Content, plain: &[u8], padding: usize) -> Vec<u8> {
        let number = direction.next();
        let nonce = direction.nonce(number);
        let is_13 = self.version == Version::Tls13;
        let mut body = plain.to_vec();
        if is_13 {
            body.push(content.0);
            body.resize(body.len() + padding, 0);
        }
        let explicit = &nonce[12 - self.explicit()..];
        let [high, low] = u16::try_from(explicit.len() + body.len() + TAG).expect("a record is short").to_be_bytes();
        let header = [if is_13 { Content::DATA.0 } else { content.0 }, 3, 3, high, low];
        let additional = Self::additional_12(number, &header, body.len());
        let additional = Aad::from(if is_13 { &header[..] } else { &additional[..] });
        let key = self.key(direction);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), additional, &mut body).expect("it is not too long");
        [&header[..], explicit, &body].concat()
    }
}

impl Direction {
    pub(crate) fn at(mut self, sequence: u64) -> Direction {
        self.sequence = sequence;
        self
    }

    /// Returns the other end's view of it. Only one of both may seal for an honest peer.
    pub(crate) fn view(&self) -> Direction {
        Direction::new(&self.keys.key, &self.keys.iv, &self.keys.secret, self.sequence)
    }
}
