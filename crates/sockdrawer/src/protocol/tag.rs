//! Tags: short texts that a protocol, or the program around a pool, gives to connections.

use std::sync::Arc;

/// The maximum length of a tag in bytes.
const MAX: usize = 64;

/// The tag of a connection; an empty text means none.
pub(crate) type Tag = Arc<str>;

/// Makes a tag of this text, cut to [`MAX`] bytes at the boundary of a character.
pub(crate) fn tag(text: &str) -> Tag {
    let end = (0..=MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(&*tag("tenant-7"), "tenant-7");
        assert_eq!(tag(&"x".repeat(100)).len(), MAX);
        let umlauts = tag(&format!("x{}", "ä".repeat(100)));
        assert_eq!((umlauts.len(), umlauts.chars().count()), (63, 32));
    }
}
