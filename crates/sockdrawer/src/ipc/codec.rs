//! The encoding of messages between processes: CBOR, in which each field has its name. A field that a build does not know is skipped, and
//! one that did not come has its default, so that two builds of a program can read each other.
//!
//! The reader has a function for each kind of value, and a type's reader calls those that it needs. One that takes any kind anywhere, as for MessagePack
//! by serde, is compiled whole for each type: it was half of the library's code.

use crate::protocol::Wiped;
use crate::sys::{Errno, Result};
use minicbor::data::Type;
use minicbor::decode::Decoder;
use minicbor::encode::write::Writer;
use minicbor_serde::{Deserializer, Serializer};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum depth of a message, of which a selector in a selector takes two at most: what is deeper is refused, because it is read by recursion.
const MAX_DEPTH: usize = 128;

/// Encodes a message. It may be secret, so its bytes are wiped after use.
///
/// # Errors
/// `EINVAL`: a value that cannot be written. No message has one.
pub(crate) fn encode<T: Serialize>(message: &T) -> Result<Wiped> {
    let mut bytes = Wiped::default();
    message.serialize(&mut Serializer::new(Writer::new(&mut bytes))).map_err(|_| Errno::INVAL)?;
    Ok(bytes)
}

/// Decodes a message. What follows it is left.
///
/// # Errors
/// `EBADMSG`: it is no such message, or one of a kind that this build does not know.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    if !is_shallow(bytes) {
        return Err(Errno::BADMSG);
    }
    T::deserialize(&mut Deserializer::new(bytes)).map_err(|_| Errno::BADMSG)
}

/// Returns true for an item of CBOR in which nothing is nested deeper than [`MAX_DEPTH`].
fn is_shallow(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(bytes);
    // The items that are still to come of each array and map that is open.
    let mut open = vec![1_u64];
    while let Some(left) = open.last_mut() {
        let Some(less) = left.checked_sub(1) else {
            open.pop();
            continue;
        };
        *left = less;
        let items = match decoder.datatype() {
            Ok(Type::Array) => decoder.array(),
            Ok(Type::Map) => decoder.map().map(|pairs| pairs.map(|pairs| pairs.saturating_mul(2))),
            // No message has one, and to pass over it would be to pass over what is nested in it.
            Ok(Type::ArrayIndef | Type::MapIndef | Type::Tag) => return false,
            _ => decoder.skip().map(|()| Some(0)),
        };
        match items {
            Ok(Some(0)) => {}
            Ok(Some(items)) if open.len() <= MAX_DEPTH => open.push(items),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Selector;
    use ciborium::Value;

    fn nested(depth: usize) -> Selector {
        (0..depth).fold(Selector::All, |inner, _| Selector::Not(Box::new(inner)))
    }

    #[test]
    fn a_deep_message_is_refused_and_not_followed() {
        let shallow = nested(MAX_DEPTH);
        let bytes = encode(&shallow).expect("a value");
        assert_eq!(decode::<Selector>(&bytes), Ok(shallow));
        let bytes = encode(&nested(MAX_DEPTH + 1)).expect("a value");
        assert_eq!(decode::<Selector>(&bytes), Err(Errno::BADMSG));
        // Fields that a build does not know are no way around it, nor are lists and maps that say no length, tags, or what ends too early.
        for (unit, end) in [
            (&b"\x81"[..], &b"\x00"[..]),
            (b"\xa1\x61n", b"\x00"),
            (b"\x9f", b"\x00"),
            (b"\xc1", b"\x00"),
            (b"\x82", b""),
            (b"\xa1\x65Every\x9f", b"\x63All"),
            (b"\xbf\x63Not", b"\x63All"),
            (b"\xa1\x63Not\xc1", b"\x63All"),
        ] {
            for depth in [1_usize << 8, 1 << 20] {
                let closed = [&unit.repeat(depth), end, &b"\xff".repeat(depth)[..]].concat();
                assert_eq!(decode::<Selector>(&closed), Err(Errno::BADMSG), "{unit:?}");
            }
        }
        assert_eq!(
            decode::<Vec<u64>>(&[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]),
            Err(Errno::BADMSG),
            "a length"
        );
    }

    #[test]
    fn another_reader_of_the_format_finds_names_and_values() {
        let bytes = encode(&crate::ipc::plans::BuildId { version: "chat 2".to_owned(), pid: 7 }).expect("a value");
        let value: Value = ciborium::from_reader(&bytes[..]).expect("it is CBOR");
        let fields = [("version", Value::from("chat 2")), ("pid", Value::from(7))];
        assert_eq!(value, Value::Map(fields.map(|(name, value)| (name.into(), value)).into()));
    }
}
