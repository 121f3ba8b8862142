//! The beginning of TLS, which is read and left as it is: where a client wants to go. No part of TLS but this is known here.

/// Longest ClientHello that is read, heads of records included. Large key shares for the time after quantum computers make one of 2 to 4 KiB, and
/// other proxies stop at this length, too.
pub(super) const LONGEST: usize = 16 << 10;

/// The alert by which a client is told that no target has the name that it asked for: fatal, `unrecognized_name`.
pub(super) const UNKNOWN_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: &[u8] = &[0, 0];
const ALPN: &[u8] = &[0, 16];

/// The wishes of a client, as its ClientHello has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The server's name (SNI), in lower case.
    pub name: Option<String>,
    /// The protocols that it offers (ALPN).
    pub protocols: Vec<Vec<u8>>,
}

/// The first bytes of a connection, judged.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun {
    /// The beginning of a ClientHello, or nothing.
    Partly,
    /// A whole ClientHello.
    Hello(ClientHello),
    /// No ClientHello, or one that is malformed or longer than 16 KiB.
    Other,
}

impl Begun {
    /// Reads the bytes that a client has sent so far. A ClientHello may come in several records, and those in any pieces.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Begun {
        let (mut message, mut rest) = (Vec::new(), Bytes(bytes));
        while let Some(kind) = rest.0.first() {
            if *kind != HANDSHAKE || rest.0.get(1).is_some_and(|major| *major != 3) {
                return Begun::Other;
            }
            let Some([_, _, _, high, low]) = rest.take(5) else { break };
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            message.extend_from_slice(rest.take(length.min(rest.0.len())).unwrap_or_default());
            match Begun::message(&message) {
                Begun::Partly => {}
                begun => return begun,
            }
        }
        if bytes.len() < LONGEST { Begun::Partly } else { Begun::Other }
    }

    fn message(message: &[u8]) -> Begun {
        let mut rest = Bytes(message);
        match rest.take(1) {
            None => Begun::Partly,
            Some([CLIENT_HELLO]) => match (rest.length(3), rest.vector(3)) {
                (Some(length), _) if length > LONGEST => Begun::Other,
                (_, Some(hello)) => ClientHello::read(hello).map_or(Begun::Other, Begun::Hello),
                _ => Begun::Partly,
            },
            Some(_) => Begun::Other,
        }
    }
}

impl ClientHello {
    fn read(hello: &[u8]) -> Option<ClientHello> {
        let mut hello = Bytes(hello);
        // Version and random bytes, session, cipher suites, compression.
        hello.take(2 + 32)?;
        hello.vector(1)?;
        hello.vector(2)?;
        hello.vector(1)?;
        let mut read = ClientHello::default();
        if hello.0.is_empty() {
            return Some(read);
        }
        let mut extensions = Bytes(hello.vector(2)?);
        while !extensions.0.is_empty() {
            let (kind, mut extension) = (extensions.take(2)?, Bytes(extensions.vector(2)?));
            match kind {
                SERVER_NAME => {
                    let mut names = Bytes(extension.vector(2)?);
                    // The list has a name of type 0, the only type that there is.
                    let name = names.take(1).filter(|kind| *kind == [0]).and_then(|_| names.vector(2))?;
                    read.name = String::from_utf8(name.to_ascii_lowercase()).ok();
                }
                ALPN => {
                    let mut offered = Bytes(extension.vector(2)?);
                    while !offered.0.is_empty() {
                        read.protocols.push(offered.vector(1)?.to_vec());
                    }
                }
                _ => {}
            }
        }
        Some(read)
    }
}

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Returns the number that the first `width` bytes are.
    fn length(&self, width: usize) -> Option<usize> {
        let number = self.0.get(..width)?;
        Some(number.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Takes bytes that stand behind their length, which has `width` bytes. None: they are not all there, and none is taken.
    fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let taken = self.0.get(width..)?.get(..self.length(width)?)?;
        self.take(width + taken.len())?;
        Some(taken)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn vector(width: usize, bytes: &[u8]) -> Vec<u8> {
        let length = bytes.len().to_be_bytes();
        [&length[length.len() - width..], bytes].concat()
    }

    /// Returns a ClientHello for a name, with a key share of `share` bytes before it, in records of at most `record` bytes.
    pub(crate) fn hello(name: &[u8], share: usize, record: usize) -> Vec<u8> {
        let name = vector(2, &[&[0][..], &vector(2, name)].concat());
        let offers = vector(2, &[vector(1, b"h2"), vector(1, b"http/1.1")].concat());
        let extensions = [
            &[0x0a, 0x0a][..], // GREASE
            &vector(2, &[]),
            &[0, 51],
            &vector(2, &vec![7; share]),
            SERVER_NAME,
            &vector(2, &name),
            ALPN,
            &vector(2, &offers),
        ]
        .concat();
        let body = [&[3, 3][..], &[9; 32], &vector(1, &[5; 32]), &vector(2, &[0x13, 1]), &vector(1, &[0])].concat();
        let message = [&[CLIENT_HELLO][..], &vector(3, &[body, vector(2, &extensions)].concat())].concat();
        message.chunks(record).flat_map(|part| [&[HANDSHAKE, 3, 1][..], &vector(2, part)].concat()).collect()
    }

    #[test]
    fn a_hello_is_read_in_any_pieces_and_not_before_it_is_whole() {
        let wishes = ClientHello { name: Some("db.example".to_owned()), protocols: vec![b"h2".to_vec(), b"http/1.1".to_vec()] };
        for (share, record) in [(32, 1 << 14), (1216, 1 << 14), (1216, 100), (1216, 1), (9000, 1 << 14), (9000, 4000)] {
            let bytes = hello(b"DB.Example", share, record);
            for end in 0..bytes.len() {
                assert_eq!(Begun::read(&bytes[..end]), Begun::Partly, "{end} of {}", bytes.len());
            }
            // Bytes behind it do not matter.
            for more in [&[][..], &[20, 3, 3, 0, 1, 1], b"anything"] {
                assert_eq!(Begun::read(&[&bytes, more].concat()), Begun::Hello(wishes.clone()), "{share} {record}");
            }
        }
    }

    #[test]
    fn what_is_no_hello_is_told_from_one_at_its_first_byte_that_differs() {
        for (bytes, longest) in [
            (&b"GET / HTTP/1.1\r\n"[..], 1),
            (b"\x16\x03\x01\x00\x05\x02\0\0\0\0", 6),           // no ClientHello
            (b"\x16\x02\x01", 2),                               // no version of TLS
            (b"\x80\x2e\x01\x03\x01", 1),                       // SSL 2
            (b"\x16\x03\x01\x40\0\x01\xff\xff\xff\x03\x03", 9), // 16 MiB
        ] {
            for end in 0..=bytes.len() {
                let expected = if end < longest { Begun::Partly } else { Begun::Other };
                assert_eq!(Begun::read(&bytes[..end]), expected, "{end} of {bytes:?}");
            }
        }
        assert_eq!(Begun::read(&hello(b"a", 20_000, 1 << 14)), Begun::Other, "it is too long");
        let endless = [22, 3, 1, 0, 0].repeat(LONGEST / 5);
        assert_eq!(Begun::read(&endless), Begun::Partly);
        assert_eq!(Begun::read(&[&endless[..], &[22, 3, 1, 0, 0]].concat()), Begun::Other, "records without a byte");
    }

    #[test]
    fn names_that_are_none_are_left_out_and_wrong_lengths_refused() {
        let name = |name: &[u8]| match Begun::read(&hello(name, 32, 1 << 14)) {
            Begun::Hello(hello) => hello.name,
            other => panic!("{other:?}"),
        };
        assert_eq!(name(&[b'a'; 255]), Some("a".repeat(255)));
        assert_eq!(name(&[0xff, 0xfe]), None);
        let whole = hello(b"a.example", 32, 1 << 14);
        let (mut refused, mut read) = (0, 0);
        for at in 9..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                match Begun::read(&bytes) {
                    Begun::Other => refused += 1,
                    Begun::Hello(_) => read += 1,
                    Begun::Partly => panic!("its length is right: {at} {value}"),
                }
            }
        }
        assert!(refused > 30 && read > 30, "{refused} {read}");
    }
}
