//! Bytes that may be secret, such as the keys of a TLS connection that is saved: their memory is wiped when it is given back.

use zeroize::Zeroize;

/// A buffer that leaves no copy of its bytes behind, also where it grows.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Wiped(Vec<u8>);

impl Wiped {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Writes over bytes that are there.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn reserve(&mut self, more: usize) {
        let needed = self.0.len() + more;
        if needed > self.0.capacity() {
            let mut larger = Vec::with_capacity(needed.max(2 * self.0.capacity()).max(256));
            larger.extend_from_slice(&self.0);
            self.0.zeroize();
            self.0 = larger;
        }
    }

    /// Takes the bytes, whose new owner wipes them.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl From<Vec<u8>> for Wiped {
    fn from(bytes: Vec<u8>) -> Wiped {
        Wiped(bytes)
    }
}

impl std::ops::Deref for Wiped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Lets an encoder write here.
impl std::io::Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl serde::Serialize for Wiped {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'d> serde::Deserialize<'d> for Wiped {
    fn deserialize<D: serde::Deserializer<'d>>(from: D) -> Result<Wiped, D::Error> {
        serde_bytes::deserialize(from).map(Wiped)
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Prints only the number of bytes.
impl std::fmt::Debug for Wiped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_takes_and_prints_no_byte() {
        let mut wiped = Wiped::default();
        let bytes: Vec<u8> = (0..2000_u32).map(|at| at as u8).collect();
        bytes.chunks(7).for_each(|chunk| wiped.push(chunk));
        wiped.push(&[1, 2]);
        assert_eq!((&wiped[..2000], &wiped[2000..]), (&bytes[..], &[1, 2][..]));
        assert_eq!(format!("{wiped:?}"), "2002 bytes");
        assert_eq!((wiped.take().len(), wiped.len()), (2002, 0));
    }
}
