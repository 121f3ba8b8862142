//! The encoding of messages between processes: MessagePack, in which each field has its name. A field that a build does not know is skipped, and
//! one that did not come has its default, so that two builds of a program can read each other.

use crate::protocol::Wiped;
use crate::sys::{Errno, Result};
use rmp_serde::config::BytesMode;
use rmp_serde::{Deserializer, Serializer};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum depth of a message, of which a selector in a selector takes one: what is deeper is refused, because it is read by recursion.
const MAX_DEPTH: usize = 64;

/// Encodes a message. It may be secret, so its bytes are wiped after use.
///
/// # Errors
/// `EINVAL`: a value that cannot be written. No message has one.
pub(crate) fn encode<T: Serialize>(message: &T) -> Result<Wiped> {
    let mut bytes = Wiped::default();
    let mut serializer = Serializer::new(&mut bytes).with_struct_map().with_bytes(BytesMode::ForceAll);
    message.serialize(&mut serializer).map_err(|_| Errno::INVAL)?;
    Ok(bytes)
}

/// Decodes a message. What follows it is left.
///
/// # Errors
/// `EBADMSG`: it is no such message, or one of a kind that this build does not know.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let mut deserializer = Deserializer::from_read_ref(bytes);
    deserializer.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut deserializer).map_err(|_| Errno::BADMSG)
}
