//! The input of a callback.

/// Bytes received and not yet taken. Mutable, so that a layer can decrypt in place.
pub struct Input<'a> {
    bytes: &'a mut [u8],
    taken: usize,
}

impl<'a> Input<'a> {
    /// Input of all these bytes, none of them taken.
    pub fn new(bytes: &'a mut [u8]) -> Input<'a> {
        Input { bytes, taken: 0 }
    }

    /// The bytes that were received and not taken.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The bytes that were received and not taken, to change in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.taken..]
    }

    /// Takes the first `count` bytes.
    ///
    /// # Panics
    /// When there are fewer than `count`: a bug of the protocol, which ends its connection.
    #[inline]
    pub fn take(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.taken, "a protocol took more than there is");
        self.taken += count;
    }

    /// Takes all bytes.
    #[inline]
    pub fn take_all(&mut self) {
        self.taken = self.bytes.len();
    }

    /// The number of bytes taken.
    #[inline]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}
