//! A connection's state as bytes, on its way to another service.

use std::borrow::Cow;

/// State as plain bytes, little-endian. A layer writes after its inner protocol.
#[derive(Debug, Default)]
pub struct Saver {
    pub(crate) bytes: Vec<u8>,
}

impl Saver {
    /// Appends a number.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// Appends the number of bytes, then the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    /// All bytes written so far.
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }
}

/// State that was saved, read in the order of writing.
#[derive(Debug)]
pub struct Saved<'a> {
    bytes: &'a [u8],
    /// Of this level and of those around it.
    versions: &'a [u32],
}

impl<'a> Saved<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Saved<'a> {
        Saved { bytes, versions: &[] }
    }

    /// Reads a state of these versions: that of the service, then those of the filters around it. For tests of what another build saved;
    /// [`Saved::new`] is of version 0.
    pub fn versioned(bytes: &'a [u8], versions: &'a [u32]) -> Saved<'a> {
        Saved { bytes, versions }
    }

    /// The version that the service that saved this state declared: see [`Service::state`](crate::Service::state). 0 where it declared none.
    pub fn version(&self) -> u32 {
        self.versions.first().copied().unwrap_or_default()
    }

    /// What follows is the state of the filter around this one.
    pub(crate) fn next_level(&mut self) {
        self.versions = self.versions.get(1..).unwrap_or_default();
    }

    /// The next number.
    ///
    /// # Errors
    /// When the state ends before a whole number.
    pub fn u64(&mut self) -> Result<u64, CannotRestore> {
        let (value, rest) = self.bytes.split_first_chunk().ok_or_else(CannotRestore::too_short)?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*value))
    }

    /// The next byte string.
    ///
    /// # Errors
    /// When there are fewer than were written.
    pub fn bytes(&mut self) -> Result<&'a [u8], CannotRestore> {
        let count = usize::try_from(self.u64()?).map_err(|_| CannotRestore::too_short())?;
        let (bytes, rest) = self.bytes.split_at_checked(count).ok_or_else(CannotRestore::too_short)?;
        self.bytes = rest;
        Ok(bytes)
    }
}

/// Why a state cannot be saved, now or ever; the connection stays with its service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotSave(Cow<'static, str>);

impl CannotSave {
    /// An error with this reason, which operators read in [`Adopted::reasons`](crate::Adopted::reasons).
    pub fn because(reason: impl Into<Cow<'static, str>>) -> CannotSave {
        CannotSave(reason.into())
    }
}

/// Why these bytes are not a state that this service knows; the connection stays with its old service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotRestore(Cow<'static, str>);

impl CannotRestore {
    /// An error with this reason, which operators read in [`Adopted::reasons`](crate::Adopted::reasons).
    pub fn because(reason: impl Into<Cow<'static, str>>) -> CannotRestore {
        CannotRestore(reason.into())
    }

    fn too_short() -> CannotRestore {
        CannotRestore::because("the saved state is shorter than the service expects")
    }
}
