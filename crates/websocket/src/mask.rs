//! The masks of clients, RFC 6455, 5.3.

use std::cell::RefCell;

/// Keys that are fetched at once.
const KEYS: usize = 256;

/// Random bytes of the kernel, and how many of them were used.
struct Random {
    bytes: [u8; 4 * KEYS],
    used: usize,
}

thread_local!(static RANDOM: RefCell<Random> = const { RefCell::new(Random { bytes: [0; 4 * KEYS], used: 4 * KEYS }) });

/// Returns a key that a server cannot foretell: it cannot choose the bytes that its client sends through proxies in between.
pub(crate) fn key() -> [u8; 4] {
    RANDOM.with_borrow_mut(|random| {
        if random.used == random.bytes.len() {
            fill(&mut random.bytes);
            random.used = 0;
        }
        let key = random.bytes[random.used..].first_chunk().copied().unwrap_or_default();
        random.used += key.len();
        key
    })
}

/// Fills bytes with random ones.
///
/// # Panics
/// Where the kernel has no random bytes, as before 3.17.
pub(crate) fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => bytes = &mut bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gives no random bytes: {error}"),
        }
    }
}

/// Masks bytes, or takes the mask off. The first byte is at this place of its frame.
pub(crate) fn apply(bytes: &mut [u8], mut key: [u8; 4], place: usize) {
    key.rotate_left(place % 4);
    let twice = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let (eights, rest) = bytes.as_chunks_mut::<8>();
    for eight in eights {
        *eight = (u64::from_ne_bytes(*eight) ^ twice).to_ne_bytes();
    }
    rest.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_applied_in_pieces_as_at_once() {
        let plain: Vec<u8> = (0..100).collect();
        let key = [1, 20, 77, 255];
        let expected: Vec<u8> = plain.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        for cut in 0..=plain.len() {
            let mut bytes = plain.clone();
            let (first, second) = bytes.split_at_mut(cut);
            apply(first, key, 0);
            apply(second, key, cut);
            assert_eq!(bytes, expected, "cut at {cut}");
        }
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::HashSet<_> = (0..3 * KEYS).map(|_| key()).collect();
        assert!(keys.len() > 3 * KEYS - 3, "{} different keys", keys.len());
    }
}
