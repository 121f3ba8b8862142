//! Messages over pipes: a length, then what was said, in postcard's form.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};

/// More is no message of ours. The histograms of a run of `http` with many pages are the largest.
const LONGEST: u32 = 256 * 1024 * 1024;

pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let frame = [&length.to_le_bytes()[..], &bytes].concat();
    to.write_all(&frame)?;
    to.flush()
}

/// The next message; None at the end.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map(Some).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_one_after_the_other_and_half_a_one_is_an_error() {
        let mut pipe = Vec::new();
        write(&mut pipe, &"one".to_owned()).expect("memory takes it");
        write(&mut pipe, &"another".to_owned()).expect("memory takes it");
        let mut from = pipe.as_slice();
        assert_eq!(read(&mut from).expect("whole"), Some("one".to_owned()));
        assert_eq!(read(&mut from).expect("whole"), Some("another".to_owned()));
        assert_eq!(read::<String>(&mut from).expect("the end"), None);
        assert!(read::<String>(&mut &pipe[..5]).is_err());
        assert!(read::<String>(&mut &[255; 8][..]).is_err());
    }
}
