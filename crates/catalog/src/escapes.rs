//! Bytes as people write them on a command line: text, and `\r`, `\n`, `\t`, `\0`, `\\` and `\xNN` for what is none.

use std::fmt::Write;

/// Error: the text has a backslash that begins no escape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(r"`{0}` begins no escape: there are \r, \n, \t, \0, \\ and \xNN (hexadecimal)")]
pub struct WrongEscape(String);

/// Reads `PING\r\n`.
///
/// # Errors
/// When a backslash begins no escape.
///
/// ```
/// use sockdrawer_catalog::escapes;
///
/// assert_eq!(escapes::parse(r"PING\r\n")?, b"PING\r\n");
/// # Ok::<(), escapes::WrongEscape>(())
/// ```
pub fn parse(text: &str) -> Result<Vec<u8>, WrongEscape> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let wrong = || WrongEscape(format!("\\{}", after.chars().take(3).collect::<String>()));
        let (byte, length) = match after.as_bytes() {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'0', ..] => (0, 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                (digit(high).ok_or_else(wrong)? * 16 + digit(low).ok_or_else(wrong)?, 3)
            }
            _ => return Err(wrong()),
        };
        bytes.push(byte);
        rest = &after[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// Writes bytes so that [`parse`] reads them back: a line without control characters.
pub fn format(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let hex = |text: &mut String, byte: u8| write!(text, r"\x{byte:02x}").expect("a String takes what is written to it");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\r' => text.push_str(r"\r"),
                '\n' => text.push_str(r"\n"),
                '\t' => text.push_str(r"\t"),
                '\0' => text.push_str(r"\0"),
                '\\' => text.push_str(r"\\"),
                _ if character.is_control() => {
                    character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| hex(&mut text, byte));
                }
                _ => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| hex(&mut text, *byte));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escape_is_read_and_all_else_stays() {
        assert_eq!(parse(r"a\r\n\t\0\\\x00\xfF\x5cé ").as_deref(), Ok(&b"a\r\n\t\0\\\0\xff\\\xc3\xa9 "[..]));
        assert_eq!(parse(r"\01").as_deref(), Ok(&b"\x001"[..]), "no octal number");
        assert_eq!(parse("").as_deref(), Ok(&b""[..]));
    }

    #[test]
    fn what_is_no_escape_is_named() {
        for (text, named) in
            [(r"a\qbcd", r"`\qbc`"), (r"\", r"`\`"), (r"\x1", r"`\x1`"), (r"\x-1", r"`\x-1`"), (r"\xé1", r"`\xé1`")]
        {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().starts_with(named), "{error}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut all: Vec<u8> = (0..=u8::MAX).collect();
        all.extend_from_slice("é\u{85}\u{7f}".as_bytes());
        let text = format(&all);
        assert_eq!(parse(&text).as_ref(), Ok(&all), "{text}");
        assert!(!text.chars().any(char::is_control), "{text}");
        assert_eq!(format(b"PING\r\n"), r"PING\r\n");
    }
}
