//! Values that are parts of a request of HTTP. Each has a text that is read again as the same.

use super::BadValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::str::FromStr;

/// Prefix of a body that is no text, and is in base64 behind.
const IN_BASE64: &str = "base64:";

/// Path that is asked for, as it stands in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) String);

impl FromStr for Path {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Path, BadValue> {
        // More would end the request's line, or break it.
        let fits = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        match fits {
            true => Ok(Path(text.to_owned())),
            false => {
                Err(BadValue("not a path: write one that begins with a slash and has no spaces, such as /index.html".to_owned()))
            }
        }
    }
}

/// Method of a request, such as `POST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Method(pub(crate) String);

impl FromStr for Method {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Method, BadValue> {
        match text {
            "CONNECT" => Err(BadValue("CONNECT makes a tunnel, which is not spoken here: write such as GET or POST".to_owned())),
            _ if is_token(text) && text.bytes().all(|byte| !byte.is_ascii_lowercase()) => Ok(Method(text.to_owned())),
            _ => Err(BadValue("not a method: write one in capitals, such as GET or POST".to_owned())),
        }
    }
}

/// A line of a head: `Name: value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field(pub(crate) String);

impl FromStr for Field {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Field, BadValue> {
        let wrong = || BadValue("not a header: write a name, a colon and a value, such as 'Accept: text/html'".to_owned());
        let (name, value) = text.split_once(':').ok_or_else(wrong)?;
        let is_text = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        if !is_token(name) || !value.bytes().all(is_text) {
            return Err(wrong());
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(BadValue("bodies are sent with their length and in one piece: leave Transfer-Encoding out".to_owned()));
        }
        Ok(Field(format!("{name}: {}", value.trim())))
    }
}

impl Field {
    /// Returns the value, if the field has this name.
    pub(crate) fn value_of(&self, name: &str) -> Option<&str> {
        let (own, value) = self.0.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim())
    }
}

/// Bytes that follow the head: a text, or the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl FromStr for Body {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Body, BadValue> {
        if let Some(path) = text.strip_prefix('@') {
            let read = std::fs::read(path);
            return read
                .map(Body)
                .map_err(|error| BadValue(format!("cannot read the file {path}: {error}; name one that is there")));
        }
        match text.strip_prefix(IN_BASE64) {
            Some(code) => STANDARD.decode(code).map(Body).map_err(|error| BadValue(format!("not base64: {error}"))),
            None => Ok(Body(text.as_bytes().to_owned())),
        }
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.starts_with('@') && !text.starts_with(IN_BASE64) => f.write_str(text),
            _ => write!(f, "{IN_BASE64}{}", STANDARD.encode(&self.0)),
        }
    }
}

/// Returns whether a text is a name as HTTP has them.
fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_that_begins_with_a_slash() {
        for text in ["", "index.html", "/a b", "/a\r\nHost: x", "http://x/", "/\u{e9}"] {
            assert!(text.parse::<Path>().is_err(), "{text}");
        }
        assert_eq!("/%20?x=1".parse(), Ok(Path("/%20?x=1".to_owned())));
    }

    #[test]
    fn a_method_is_in_capitals_and_makes_no_tunnel() {
        assert_eq!("M-SEARCH".parse(), Ok(Method("M-SEARCH".to_owned())));
        for text in ["", "post", "GET /", "CONNECT", "G\r\n"] {
            assert!(text.parse::<Method>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_header_is_one_line() {
        for (text, line) in
            [("A:b", "A: b"), ("x-y:  z ", "x-y: z"), ("Empty:", "Empty: "), ("Cookie: a=\u{e9}:b", "Cookie: a=\u{e9}:b")]
        {
            assert_eq!(text.parse(), Ok(Field(line.to_owned())));
        }
        for text in ["", "A", ": b", "A b: c", "A: b\r\nC: d", "transfer-encoding: chunked"] {
            assert!(text.parse::<Field>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_body_is_a_text_a_file_or_base64() {
        let file = std::env::temp_dir().join(format!("sockdrawer-body-{}", std::process::id()));
        std::fs::write(&file, b"@\xff").expect("the folder can be written");
        let read: Body = format!("@{}", file.display()).parse().expect("the file is there");
        std::fs::remove_file(&file).expect("it was written");
        assert_eq!((&read.0[..], read.to_string().as_str()), (&b"@\xff"[..], "base64:QP8="));
        for body in [read.0, b"{\"a\": \"\\n\"}".to_vec(), b"@a".to_vec(), b"base64:x".to_vec(), Vec::new()] {
            assert_eq!(Body(body.clone()).to_string().parse(), Ok(Body(body)));
        }
        let BadValue(line) = "@/no/such/file".parse::<Body>().expect_err("no file");
        assert!(line.contains("/no/such/file"), "{line}");
    }
}
