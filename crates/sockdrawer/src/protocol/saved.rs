//! A connection's state as bytes, on its way to another service.

use super::wiped::Wiped;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::type_name;
use std::borrow::Cow;
use std::time::Instant;

#[cfg(test)]
mod tests;

/// State as plain bytes, little-endian. A layer writes after its inner protocol. It may hold secrets, such as the keys of a TLS connection: all
/// its copies on the way to another service or process are wiped after use, and none is printed.
///
/// A state that is one value with serde's traits is saved and restored in a line each:
///
/// ```
/// use sockdrawer::{CannotRestore, CannotSave, Saved, Saver};
///
/// #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// struct Session {
///     user: String,
///     topics: Vec<String>,
///     messages: u64,
/// }
///
/// let session = Session { user: "ada".to_owned(), topics: vec!["engines".to_owned()], messages: 7 };
/// // In Protocol::save:
/// let mut to = Saver::default();
/// to.value(&session).expect("the state can be saved");
/// // In Service::restore:
/// let mut from = Saved::new(to.written());
/// assert_eq!(from.value::<Session>(), Ok(session));
/// ```
///
/// # Another build of the type
///
/// The form is that of postcard: the values one after another, without names, types and padding. So a build that changed the type reads
/// the other build's state only as long as these stay: the order and the number of fields, and of the variants of an enum.
///
/// | change of the type | does an older state restore |
/// | --- | --- |
/// | fields, variants or the type get other names | yes |
/// | a variant is added at the end of an enum | yes; a state that has it does not restore in the older build |
/// | `u16` becomes `u32`, `u64`, `usize`; likewise from `i16` | yes; back too, while the numbers are small enough |
/// | `String` becomes `Cow<str>`, `Vec` becomes `VecDeque`, `T` becomes `Box<T>` | yes |
/// | a field is added, removed, reordered, or gets another type, or becomes optional | **no**: an error, or another value |
/// | `u8` or `i8` becomes wider | **no** |
///
/// `#[serde(default)]`, `skip_serializing_if`, `flatten` and untagged enums need names, and do not work in this form.
///
/// For the changes that do not restore, raise the version that [`Service::state`](crate::Service::state) declares, keep the older type, and
/// ask for the version:
///
/// ```
/// # use sockdrawer::{CannotRestore, Saved, Saver};
/// # use serde::{Deserialize, Serialize};
/// /// Version 1, without the time zone.
/// #[derive(Serialize, Deserialize)]
/// struct SessionV1 {
///     user: String,
/// }
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Session {
///     user: String,
///     zone: String,
/// }
///
/// // In a service that declares State::of("session", 2).reads(1..=2):
/// fn restore(from: &mut Saved<'_>) -> Result<Session, CannotRestore> {
///     Ok(match from.version() {
///         1 => Session { user: from.value::<SessionV1>()?.user, zone: "UTC".to_owned() },
///         _ => from.value()?,
///     })
/// }
/// # let mut old = Saver::default();
/// # old.value(&SessionV1 { user: "ada".to_owned() }).expect("it can be saved");
/// # let session = restore(&mut Saved::versioned(old.written(), &[1])).expect("it is known");
/// # assert_eq!(session, Session { user: "ada".to_owned(), zone: "UTC".to_owned() });
/// # assert!(restore(&mut Saved::versioned(old.written(), &[2])).is_err());
/// ```
#[derive(Debug, Default)]
pub struct Saver {
    pub(crate) bytes: Wiped,
    /// The time of a test.
    pub(crate) now: Option<Instant>,
}

impl Saver {
    /// Appends a number, as 8 bytes, the lowest first.
    pub fn u64(&mut self, value: u64) {
        self.bytes.push(&value.to_le_bytes());
    }

    /// Appends the number of bytes, as [`Saver::u64`] does, then the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.bytes.push(bytes);
    }

    /// Appends a value with its length, so that what follows it is found. See above for which changes of its type are compatible.
    ///
    /// # Errors
    /// When its [`Serialize`] fails, or it holds a sequence or a map whose length is not known before. Nothing is appended.
    pub fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CannotSave> {
        let because = |error| CannotSave::because(format!("its state, a {}, cannot be saved: {error}", type_name::<T>()));
        let bytes = postcard::to_allocvec(value).map_err(because)?;
        self.bytes(&bytes);
        Ok(())
    }

    /// Appends what `save` writes, as a part that ends where it says.
    pub(crate) fn part(&mut self, save: impl FnOnce(&mut Saver) -> Result<(), CannotSave>) -> Result<(), CannotSave> {
        let begin = self.bytes.len();
        self.u64(0);
        save(self)?;
        let length = (self.bytes.len() - begin - 8) as u64;
        self.bytes.put(begin, &length.to_le_bytes());
        Ok(())
    }

    /// Returns the time at which the state is saved, from which durations that are left are counted: points in time mean nothing in another
    /// process. Under [`testing::Driver`](crate::testing::Driver) it is the time of the test.
    pub fn now(&self) -> Instant {
        self.now.unwrap_or_else(Instant::now)
    }

    /// Returns all bytes written so far.
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }
}

/// State that was saved, read in the order of writing.
pub struct Saved<'a> {
    bytes: &'a [u8],
    /// Versions of the state of the protocol, then of each filter around it.
    versions: &'a [u32],
    /// The time of a test.
    pub(crate) now: Option<Instant>,
}

/// Prints only the number of bytes.
impl std::fmt::Debug for Saved<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saved").field("bytes", &self.bytes.len()).field("versions", &self.versions).finish()
    }
}

impl<'a> Saved<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Saved<'a> {
        Saved::versioned(bytes, &[])
    }

    /// Reads a state of these versions: that of the service, then those of the filters around it. For tests of what another build saved;
    /// [`Saved::new`] is of version 0.
    pub fn versioned(bytes: &'a [u8], versions: &'a [u32]) -> Saved<'a> {
        Saved { bytes, versions, now: None }
    }

    /// Returns the version that the service that saved this state declared: see [`Service::state`](crate::Service::state). 0 where it declared none.
    pub fn version(&self) -> u32 {
        self.versions.first().copied().unwrap_or_default()
    }

    /// Returns the time at which the state is restored, from which durations are counted: as [`Saver::now`].
    pub fn now(&self) -> Instant {
        self.now.unwrap_or_else(Instant::now)
    }

    /// Returns the versions of what is within a layer, and that of its own filter, which comes last.
    pub(crate) fn levels(&self) -> (&'a [u32], &'a [u32]) {
        self.versions.split_at(self.versions.len().saturating_sub(1))
    }

    /// Reads the next part, whose state is of these versions, by `restore`, which is to read all of it.
    pub(crate) fn part<T>(
        &mut self,
        versions: &[u32],
        restore: impl FnOnce(&mut Saved<'_>) -> Result<T, CannotRestore>,
    ) -> Result<T, CannotRestore> {
        Saved { bytes: self.bytes()?, versions, now: self.now }.whole(restore)
    }

    /// Reads all of it by `restore`.
    pub(crate) fn whole<T>(
        &mut self,
        restore: impl FnOnce(&mut Saved<'_>) -> Result<T, CannotRestore>,
    ) -> Result<T, CannotRestore> {
        let length = self.bytes.len();
        let restored = restore(self)?;
        match self.bytes.len() {
            0 => Ok(restored),
            left => Err(CannotRestore::because(format!(
                "{left} of {length} bytes of the saved state were not read: read them, or take them by Saved::rest where they may be ignored"
            ))),
        }
    }

    /// Takes all that was not read yet. A [`restore`](crate::Service::restore) that leaves something unread is refused, because it may have
    /// taken another state for its own; one that knows the beginning only, and ignores what newer builds append, says so by this.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn too_short(&self) -> CannotRestore {
        CannotRestore::because(format!("the saved state, of version {}, is shorter than the service expects", self.version()))
    }

    /// Returns the next number.
    ///
    /// # Errors
    /// When the state ends before a whole number.
    pub fn u64(&mut self) -> Result<u64, CannotRestore> {
        let (value, rest) = self.bytes.split_first_chunk().ok_or_else(|| self.too_short())?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*value))
    }

    /// Returns the next byte string.
    ///
    /// # Errors
    /// When there are fewer than were written.
    pub fn bytes(&mut self) -> Result<&'a [u8], CannotRestore> {
        let count = usize::try_from(self.u64()?).map_err(|_| self.too_short())?;
        let (bytes, rest) = self.bytes.split_at_checked(count).ok_or_else(|| self.too_short())?;
        self.bytes = rest;
        Ok(bytes)
    }

    /// Returns the next value, written by [`Saver::value`], whose documentation says from which older types it can be read.
    ///
    /// # Errors
    /// When the bytes are no `T`, or more than one.
    pub fn value<T: DeserializeOwned>(&mut self) -> Result<T, CannotRestore> {
        let because =
            |why: &dyn std::fmt::Display| CannotRestore::because(format!("the saved state is no {}: {why}", type_name::<T>()));
        match postcard::take_from_bytes(self.bytes()?) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(because(&format_args!("{} bytes are left over", rest.len()))),
            Err(error) => Err(because(&error)),
        }
    }
}

/// Reason why a state cannot be saved, now or ever; the connection stays with its service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotSave(Cow<'static, str>);

impl CannotSave {
    /// Returns an error with this reason, which operators read in [`Adopted::reasons`](crate::Adopted::reasons).
    pub fn because(reason: impl Into<Cow<'static, str>>) -> CannotSave {
        CannotSave(reason.into())
    }
}

/// Reason why these bytes are not a state that this service knows; the connection stays with its old service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotRestore(Cow<'static, str>);

impl CannotRestore {
    /// Returns an error with this reason, which operators read in [`Adopted::reasons`](crate::Adopted::reasons).
    pub fn because(reason: impl Into<Cow<'static, str>>) -> CannotRestore {
        CannotRestore(reason.into())
    }
}
