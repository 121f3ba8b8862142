//! Records against the vectors of RFC 8448, their limits, and the numbers that seal them.

use super::*;
pub(crate) use once::forget as forget_nonces;

pub(crate) const CIPHERS: [Cipher; 6] = [
    Cipher { version: Version::Tls13, aead: Aead::Aes128Gcm },
    Cipher { version: Version::Tls13, aead: Aead::Aes256Gcm },
    Cipher { version: Version::Tls13, aead: Aead::Chacha20Poly1305 },
    Cipher { version: Version::Tls12, aead: Aead::Aes128Gcm },
    Cipher { version: Version::Tls12, aead: Aead::Aes256Gcm },
    Cipher { version: Version::Tls12, aead: Aead::Chacha20Poly1305 },
];

impl Direction {
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn secret_for_tests(&self) -> [u8; 48] {
        self.keys.secret
    }
}

fn hexadecimal(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal");
    digits.chunks(2).map(byte).collect()
}

const RFC_8448: Cipher = Cipher { version: Version::Tls13, aead: Aead::Aes128Gcm };

/// Derives the keys of application data of RFC 8448, section 3, from the traffic secret, and compares them with those printed there.
fn derived(secret: &str, key: &str, iv: &str) -> Direction {
    let mut direction = Direction::new(&[], &[0; 12], &hexadecimal(secret), 0);
    RFC_8448.derive(&mut direction);
    assert_eq!((&direction.keys.key[..16], &direction.keys.iv[..]), (&hexadecimal(key)[..], &hexadecimal(iv)[..]));
    direction
}

fn client() -> Direction {
    derived(
        "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
        "17422dda596ed5d9acd890e3c63f5051",
        "5b78923dee08579033e523d9",
    )
}

fn server() -> Direction {
    derived(
        "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
        "9f02283b6c9c07efc26bb9f2ac92e356",
        "cf782b88dd83549aadf1e984",
    )
}

/// Record of a trace: whether the client sends it, its content, what it says where that is printed, and its bytes.
type Traced = (bool, Content, Option<Vec<u8>>, Vec<u8>);

/// Returns the records of RFC 8448, section 3, in order.
fn trace() -> [Traced; 5] {
    let data = Some((0..50).collect::<Vec<u8>>());
    let goodbye = Some(vec![1, 0]);
    let ticket = "170303 00de 3a6b8f90414a97d6959c3487680de5134a2b240e6cffac116e95d41d6af8f6b580dcf3d11d63c758db289a015940252f55713e06
        1dc13e078891a38efbcf5753ad8ef170ad3c7353d16d9da773b9ca7f2b9fa1b6c0d4a3d03f75e09c30ba1e62972ac46f75f7b981be63439b2999ce13064615139891d5e4
        c5b406f16e3fc181a77ca475840025db2f0a77f81b5ab05b94c01346755f69232c86519d86cbeeac87aac347d143f9605d64f650db4d023e70e952ca49fe5137121c74bc
        2697687e248746d6df353005f3bce18696129c8153556b3b6c6779b37bf15985684f";
    let from_client =
        "170303 0043 a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a297
        7014bd1e3deae63aeebb21694915e4";
    let from_server =
        "170303 0043 2e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc49c4bf2e5f0a21c
        0047c2abf332540dd032e167c2955d";
    [
        (false, Content::HANDSHAKE, None, hexadecimal(ticket)),
        (true, Content::DATA, data.clone(), hexadecimal(from_client)),
        (false, Content::DATA, data, hexadecimal(from_server)),
        (true, Content::ALERT, goodbye.clone(), hexadecimal("170303 0013 c9872760655666b74d7ff1153efd6db6d0b0e3")),
        (false, Content::ALERT, goodbye, hexadecimal("170303 0013 b58fd67166ebf599d24720cfbe7efa7a8864a9")),
    ]
}

#[test]
fn records_are_those_of_rfc_8448() {
    let (mut opens_client, mut opens_server, mut client, mut server) = (client(), server(), client(), server());
    for (from_client, content, plain, record) in trace() {
        let (opens, seals) = if from_client { (&mut opens_client, &mut client) } else { (&mut opens_server, &mut server) };
        let mut wire = record.clone();
        assert_eq!(RFC_8448.record_length(&wire), Ok(Some(record.len())));
        let (found, at) = RFC_8448.open(opens, &mut wire).expect("it is the peer's");
        assert_eq!(found, content);
        if let Some(plain) = &plain {
            assert_eq!(&wire[at.clone()], plain);
        }
        let mut sealed = Output::default();
        RFC_8448.seal(seals, content, &wire[at], &mut sealed);
        assert_eq!(sealed.bytes(), record);
    }
}

/// RFC 8448 has no key update: the next secrets of its keys, by the HMAC of Python's library.
#[test]
fn keys_are_updated_as_rfc_8446_says() {
    let cases = [(client(), NEXT_CLIENT), (server(), NEXT_SERVER)];
    for (mut direction, [secret, key, iv]) in cases {
        direction.sequence = 5;
        RFC_8448.update(&mut direction);
        assert_eq!(direction.keys.secret[..32], hexadecimal(secret));
        assert_eq!((&direction.keys.key[..16], &direction.keys.iv[..]), (&hexadecimal(key)[..], &hexadecimal(iv)[..]));
        assert_eq!(direction.sequence, 0);
    }
}

const NEXT_CLIENT: [&str; 3] = [
    "fcdfcc72725aaee48bf64e4fd8b749cdbdbab39d90da0b26e2245ca6ea167207",
    "3879d82f5f14056e623f2ce5bfc66fce",
    "5dfb2c5938c3379b6cc5d1f2",
];
const NEXT_SERVER: [&str; 3] = [
    "51921b8aa3001976eb401d0a4319a8516416a6c56001a357e5d162031e84f916",
    "2e63be99d67b39097feb9786cf7a15a0",
    "628a0a8298ac953baef4255a",
];

#[test]
fn what_is_sealed_is_opened_in_order_and_once() {
    for cipher in CIPHERS {
        let (mut seals, mut opens) = (cipher.some_direction(1), cipher.some_direction(1));
        let lengths = [0, 1, 15, 16, 17, 1000, MAX_PLAIN - 1, MAX_PLAIN];
        let records: Vec<_> = lengths.map(|length| cipher.record(&mut seals, Content::DATA, &vec![7; length], 0)).into();
        for (record, length) in records.iter().zip(lengths) {
            let mut again = record.clone();
            let mut wire = record.clone();
            assert_eq!(cipher.record_length(&wire), Ok(Some(wire.len())));
            let (content, at) = cipher.open(&mut opens, &mut wire).expect("it is the peer's");
            assert_eq!((content, &wire[at]), (Content::DATA, &vec![7; length][..]));
            let mut replayed = opens.view();
            assert_eq!(cipher.open(&mut replayed, &mut again), Err(BadRecord::Forged), "{cipher:?}: a replay");
        }
        let mut early = cipher.some_direction(1);
        assert_eq!(cipher.open(&mut early, &mut records[1].clone()), Err(BadRecord::Forged), "{cipher:?}: not in order");
    }
}

#[test]
fn a_byte_that_changes_on_the_way_is_noticed() {
    for cipher in CIPHERS {
        let record = cipher.record(&mut cipher.some_direction(2), Content::DATA, b"some text", 0);
        for at in 0..record.len() {
            for change in [1, 128] {
                let mut wire = record.clone();
                wire[at] ^= change;
                let opened = cipher.open(&mut cipher.some_direction(2), &mut wire);
                if cipher.version == Version::Tls12 && (3..HEADER).contains(&at) {
                    // It says where the record ends, and is not looked at again.
                    continue;
                }
                let is_type = at == 0 && cipher.version == Version::Tls13;
                let expected = if is_type { BadRecord::Type(23 ^ change) } else { BadRecord::Forged };
                assert_eq!(opened, Err(expected), "{cipher:?}: byte {at}");
            }
        }
        for cut in HEADER..record.len() {
            let opened = cipher.open(&mut cipher.some_direction(2), &mut record[..cut].to_vec());
            assert_eq!(opened, Err(BadRecord::Forged), "{cipher:?}: {cut} bytes");
        }
    }
}

#[test]
fn padding_is_taken_off_and_counts_for_the_longest_record() {
    let forged = |record: Vec<u8>, cipher: Cipher| cipher.open(&mut cipher.some_direction(3), &mut record.clone());
    for cipher in &CIPHERS[..3] {
        let one = |plain: &[u8], padding| {
            let record = cipher.record(&mut cipher.some_direction(3), Content::HANDSHAKE, plain, padding);
            assert_eq!(cipher.record_length(&record), Ok(Some(record.len())));
            let mut wire = record.clone();
            let opened = cipher.open(&mut cipher.some_direction(3), &mut wire)?;
            Ok((opened.0, wire[opened.1].to_vec()))
        };
        for (length, padding) in [(0, 1), (0, MAX_PLAIN), (5, 1), (5, 255), (5, MAX_PLAIN - 5), (MAX_PLAIN, 0)] {
            forget_nonces();
            assert_eq!(one(&vec![9; length], padding), Ok((Content::HANDSHAKE, vec![9; length])), "{length} and {padding}");
        }
        for (length, padding) in [(MAX_PLAIN, 1), (1, MAX_PLAIN), (0, MAX_PLAIN + 1), (MAX_PLAIN + 1, 0), (MAX_PLAIN, 239)] {
            forget_nonces();
            assert_eq!(one(&vec![9; length], padding), Err(BadRecord::TooLong(length + 1 + padding)), "{length} and {padding}");
        }
        let zeros = cipher.record(&mut cipher.some_direction(4).at(9), Content(0), &[], 3);
        let opened = cipher.open(&mut cipher.some_direction(4).at(9), &mut zeros.clone());
        assert_eq!(opened, Err(BadRecord::OnlyPadding));
    }
    for cipher in &CIPHERS[3..] {
        forget_nonces();
        let record = cipher.record(&mut cipher.some_direction(3), Content::DATA, &vec![9; MAX_PLAIN + 1], 0);
        assert_eq!(forged(record, *cipher), Err(BadRecord::TooLong(MAX_PLAIN + 1)));
    }
}

#[test]
fn the_longest_record_on_the_wire_is_that_of_its_version() {
    for cipher in CIPHERS {
        let most = MAX_PLAIN + if cipher.version == Version::Tls13 { 256 } else { 2048 };
        for length in [0, 1, most] {
            let [high, low] = (length as u16).to_be_bytes();
            assert_eq!(cipher.record_length(&[23, 3, 3, high, low]), Ok(Some(HEADER + length)));
        }
        for length in [most + 1, usize::from(u16::MAX)] {
            let [high, low] = (length as u16).to_be_bytes();
            assert_eq!(cipher.record_length(&[23, 3, 3, high, low]), Err(BadRecord::TooLong(length)));
        }
        for header in 0..HEADER {
            assert_eq!(cipher.record_length(&[23, 3, 3, 255][..header.min(4)]), Ok(None));
        }
        // Nothing but a header, or less than a tag.
        for length in 0..40 {
            let mut record = vec![23, 3, 3, 0, length];
            record.resize(HEADER + usize::from(length), 0);
            assert_eq!(cipher.open(&mut cipher.some_direction(5), &mut record), Err(BadRecord::Forged));
        }
    }
}

#[test]
fn a_record_of_tls_12_carries_its_part_of_the_nonce() {
    let cipher = CIPHERS[3];
    let mut seals = cipher.some_direction(6).at(3);
    let iv = seals.keys.iv[0];
    let record = cipher.record(&mut seals, Content::DATA, b"12", 0);
    // RFC 5288: 4 bytes of salt are kept, 8 are sent; RFC 7905 sends none.
    assert_eq!(record[HEADER..HEADER + 8], [iv, iv, iv, iv, iv, iv, iv, iv ^ 3]);
    assert_eq!(record.len(), HEADER + 8 + 2 + TAG);
    let chacha = CIPHERS[5].record(&mut CIPHERS[5].some_direction(6), Content::DATA, b"12", 0);
    assert_eq!(chacha.len(), HEADER + 2 + TAG);
    // A peer may choose any nonces: RFC 5288, section 3.
    let mut odd = cipher.some_direction(7).at(u64::MAX - 1);
    let mut wire = cipher.record(&mut odd, Content::DATA, b"odd", 0);
    assert_eq!(cipher.open(&mut cipher.some_direction(7).at(u64::MAX - 1), &mut wire).map(|(_, at)| at.len()), Ok(3));
}

#[test]
#[should_panic = "a key is not used for 2^64 records"]
fn a_number_is_not_used_again_after_the_last() {
    let cipher = CIPHERS[2];
    let mut seals = cipher.some_direction(8).at(u64::MAX);
    cipher.record(&mut seals, Content::DATA, b"", 0);
}

#[test]
#[should_panic = "a TLS key seals record 0 twice"]
fn a_nonce_that_comes_again_is_noticed_by_these_tests() {
    let cipher = CIPHERS[0];
    let seals = cipher.some_direction(9);
    for plain in [b"one", b"two"] {
        cipher.seal(&mut seals.view(), Content::DATA, plain, &mut Output::default());
    }
}

#[test]
fn keys_are_not_printed() {
    let direction = CIPHERS[0].some_direction(10);
    assert_eq!(format!("{direction:?}"), "Direction { sequence: 0, .. }");
}
