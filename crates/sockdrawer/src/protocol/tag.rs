//! Tags: what a protocol, or the program around a pool, calls a connection.

use std::sync::Arc;

/// Bytes of a tag.
const MOST: usize = 64;

/// A short text. An empty one stands for none.
pub(crate) type Tag = Arc<str>;

/// This text as a tag: as much of it as fits.
pub(crate) fn tag(text: &str) -> Tag {
    text[..text.floor_char_boundary(MOST)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(&*tag("tenant-7"), "tenant-7");
        assert_eq!(tag(&"x".repeat(100)).len(), MOST);
        let umlauts = tag(&format!("x{}", "ä".repeat(100)));
        assert_eq!((umlauts.len(), umlauts.chars().count()), (63, 32));
    }
}
