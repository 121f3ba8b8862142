//! Sessions whose keys are given, so that a test can send what no honest peer sends.

use super::*;
use crate::record::tests::{CIPHERS, forget_nonces};
use crate::record::{HEADER, MAX_PLAIN, MAX_RECORDS};

const ASKING: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 1];
const TELLING: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];

/// Makes a client and a server, with the keys of every other pair: a pair ends the one before it.
fn pair(cipher: Cipher) -> [Session; 2] {
    forget_nonces();
    let (client, server) = (cipher.some_direction(1), cipher.some_direction(2));
    [
        Session::new(cipher, End::Client, client.view(), server.view(), None),
        Session::new(cipher, End::Server, server, client, None),
    ]
}

fn ciphers(version: Version) -> impl Iterator<Item = Cipher> {
    CIPHERS.into_iter().filter(move |cipher| cipher.version == version)
}

/// Output of a session for bytes that it was given.
#[derive(Debug, Default, PartialEq)]
struct Made {
    plain: Vec<u8>,
    back: Vec<u8>,
    ended: bool,
    /// Bytes that it left.
    left: usize,
}

impl Session {
    fn feed(&mut self, wire: &[u8]) -> Result<Made, String> {
        let (mut wire, mut made, mut back) = (wire.to_vec(), Made::default(), Output::default());
        let mut input = Input::new(&mut wire);
        loop {
            let progress = self.decode(&mut input, &mut made.plain, &mut back).map_err(|refused| refused.to_string())?;
            made.ended |= matches!(progress, Progress::PeerEnded);
            if !matches!(progress, Progress::Plain) {
                return Ok(Made { back: back.bytes().to_vec(), left: input.bytes().len(), ..made });
            }
        }
    }

    /// Makes a record of this end, whatever it may say.
    fn record(&mut self, content: Content, plain: &[u8]) -> Vec<u8> {
        self.cipher.record(&mut self.sends, content, plain, 0)
    }

    fn key_update(&mut self, ask: bool) -> Vec<u8> {
        let mut wire = Output::default();
        self.update(ask, &mut wire);
        wire.bytes().to_vec()
    }

    fn data(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut wire = Output::default();
        self.encode(plain, &mut wire);
        wire.bytes().to_vec()
    }

    fn says_goodbye(&mut self) -> Vec<u8> {
        let mut wire = Output::default();
        self.goodbye(&mut wire);
        wire.bytes().to_vec()
    }

    fn moved(self) -> Session {
        let mut saver = Saver::default();
        self.save(&mut saver);
        let mut again = Saver::default();
        let restored = Session::restore(&mut Saved::new(saver.written())).expect("it was saved");
        restored.save(&mut again);
        assert_eq!(saver.written(), again.written());
        restored
    }
}

/// Checks that data reaches each end from the other.
fn exchange(ends: &mut [Session; 2]) {
    for from in 0..2 {
        let wire = ends[from].data(b"text");
        let made = ends[1 - from].feed(&wire).expect("it is the peer's");
        assert_eq!((&made.plain[..], made.left), (&b"text"[..], 0));
    }
}

#[test]
fn a_stream_is_read_alike_wherever_it_is_split() {
    for cipher in CIPHERS {
        let [mut client, _] = pair(cipher);
        let mut wire = [client.data(b"one"), client.record(Content::DATA, b""), client.data(b"two")].concat();
        if cipher.version == Version::Tls13 {
            wire.extend(client.key_update(true));
            wire.extend(client.cipher.record(&mut client.sends, Content::DATA, b"three", 20));
        }
        wire.extend(client.says_goodbye());
        let plain = if cipher.version == Version::Tls13 { &b"onetwothree"[..] } else { b"onetwo" };
        let answers = usize::from(cipher.version == Version::Tls13) * (HEADER + 5 + 1 + 16);
        for split in 0..=wire.len() {
            let [_, mut server] = pair(cipher);
            let first = server.feed(&wire[..split]).expect("its start");
            let then = server.feed(&wire[split - first.left..]).expect("its end");
            assert_eq!([first.plain, then.plain].concat(), plain, "{cipher:?}: {split}");
            assert_eq!((first.back.len() + then.back.len(), first.ended || then.ended, then.left), (answers, true, 0));
        }
    }
}

#[test]
fn a_byte_that_changes_ends_the_session() {
    for cipher in [CIPHERS[0], CIPHERS[4]] {
        let wire = pair(cipher)[0].data(b"text");
        for at in 0..wire.len() {
            let mut wrong = wire.clone();
            wrong[at] ^= 4;
            let [_, mut server] = pair(cipher);
            match server.feed(&wrong) {
                Err(_) => {}
                // The length says that more is to come: then it is as wrong.
                Ok(made) => assert_eq!((made.plain.len(), made.left, at == 3 || at == 4), (0, wrong.len(), true)),
            }
        }
    }
}

#[test]
fn records_without_data_are_bounded_in_a_row() {
    let flood = |cipher: Cipher, content: Content, body: &[u8]| {
        let mut ends = pair(cipher);
        for round in 0..2 {
            for _ in 0..MAX_IDLE_RECORDS {
                let wire = ends[0].record(content, body);
                if body == ASKING || body == TELLING {
                    cipher.update(&mut ends[0].sends);
                }
                let made = ends[1].feed(&wire).expect("it is one of few");
                assert!(made.back.len() < 64);
                // The other end hears the answers, which bring no data either: it counts them too.
                if round == 0 || !made.back.is_empty() {
                    ends[0].idle_records = 0;
                    ends[0].feed(&made.back).expect("an answer");
                }
            }
            if round == 0 {
                let data = ends[0].data(b"data");
                assert_eq!(ends[1].feed(&data).expect("data").plain, b"data");
            }
        }
        let wire = ends[0].record(content, body);
        assert_eq!(ends[1].feed(&wire), Err("more than 32 TLS records in a row without data".to_owned()), "{cipher:?}");
    };
    for cipher in CIPHERS {
        flood(cipher, Content::DATA, b"");
        flood(cipher, Content::ALERT, &[WARNING, USER_CANCELED]);
        match cipher.version {
            Version::Tls13 => {
                flood(cipher, Content::HANDSHAKE, &ASKING);
                flood(cipher, Content::HANDSHAKE, &TELLING);
            }
            Version::Tls12 => {
                flood(cipher, Content::ALERT, &[WARNING, NO_RENEGOTIATION]);
                // A ClientHello.
                flood(cipher, Content::HANDSHAKE, &[1, 0, 0, 0]);
            }
        }
    }
}

#[test]
fn keys_are_updated_by_either_end_and_by_both_at_once() {
    for cipher in ciphers(Version::Tls13) {
        let mut ends = pair(cipher);
        for (at, ask) in [(0, false), (1, true), (0, true), (1, false)] {
            let before = [&ends[0].sends, &ends[1].sends].map(|direction| direction.secret_for_tests());
            let wire = ends[at].key_update(ask);
            let made = ends[1 - at].feed(&wire).expect("a key update");
            assert_eq!(made.back.is_empty(), !ask);
            let made = ends[at].feed(&made.back).expect("the answer");
            assert_eq!(made.back, b"", "an answer is not answered");
            let after = [&ends[0].sends, &ends[1].sends].map(|direction| direction.secret_for_tests());
            assert!(before[at] != after[at] && (before[1 - at] != after[1 - at]) == ask);
            exchange(&mut ends);
        }
        // Both ask at once, and each answers the other: two new keys for each direction.
        let asked = [ends[0].key_update(true), ends[1].key_update(true)];
        let answers = [ends[0].feed(&asked[1]).expect("asked"), ends[1].feed(&asked[0]).expect("asked")];
        for at in 0..2 {
            ends[at].feed(&answers[1 - at].back).expect("an answer");
        }
        exchange(&mut ends);
    }
}

#[test]
fn a_message_may_come_in_several_records_and_nothing_between_them() {
    for cipher in ciphers(Version::Tls13) {
        for cut in 1..ASKING.len() {
            let mut ends = pair(cipher);
            let wire = [&ASKING[..cut], &ASKING[cut..]].map(|part| ends[0].record(Content::HANDSHAKE, part));
            cipher.update(&mut ends[0].sends);
            assert_eq!(ends[1].feed(&wire[0]).expect("a part").back, b"");
            let [client, server] = ends;
            ends = [client, server.moved()];
            let answer = ends[1].feed(&wire[1]).expect("the rest").back;
            ends[0].feed(&answer).expect("the answer");
            exchange(&mut ends);
            for (content, body) in
                [(Content::DATA, &b"data"[..]), (Content::DATA, b""), (Content::ALERT, &[WARNING, CLOSE_NOTIFY])]
            {
                let mut ends = pair(cipher);
                let wire = [ends[0].record(Content::HANDSHAKE, &ASKING[..cut]), ends[0].record(content, body)].concat();
                let why = "another TLS record within a message of the handshake";
                assert_eq!(ends[1].feed(&wire), Err(why.to_owned()));
            }
        }
    }
}

#[test]
fn messages_that_are_wrong_end_the_session() {
    let (wrong, early) = ("a TLS key update that is not 1 byte long", "a TLS key update that is not the end of its record");
    let cases: [(&[u8], &str); 12] = [
        (b"", "an empty TLS handshake record"),
        (&[KEY_UPDATE, 0, 0, 1, 2], "a TLS key update that asks for something unknown"),
        (&[KEY_UPDATE, 0, 0, 0], wrong),
        (&[KEY_UPDATE, 0, 0, 2, 0, 0], wrong),
        // RFC 8446, section 5.1: keys change at the end of a record.
        (&[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE], early),
        (&[KEY_UPDATE, 0, 0, 1, 1, KEY_UPDATE, 0, 0, 1, 0], early),
        (&[1, 0, 0, 0], "an unexpected TLS handshake message of type 1"),
        (&[20, 0, 0, 1, 0], "an unexpected TLS handshake message of type 20"),
        (&[13, 0, 0, 0], "an unexpected TLS handshake message of type 13"),
        (&[NEW_SESSION_TICKET, 0, 0, 1, 0], "an unexpected TLS handshake message of type 4"),
        // Refused before it is there.
        (&[NEW_SESSION_TICKET, 0, 1, 0], "an unexpected TLS handshake message of type 4"),
        (&[KEY_UPDATE, 255, 255, 255], wrong),
    ];
    for cipher in ciphers(Version::Tls13) {
        for (body, why) in cases {
            let mut ends = pair(cipher);
            let wire = ends[0].record(Content::HANDSHAKE, body);
            assert_eq!(ends[1].feed(&wire), Err(why.to_owned()), "{body:?}");
        }
        let mut ends = pair(cipher);
        let wire = ends[1].record(Content::HANDSHAKE, &[NEW_SESSION_TICKET, 1, 2, 1]);
        assert_eq!(ends[0].feed(&wire), Err("a TLS handshake message of 66049 bytes".to_owned()));
        // A client takes tickets, and nothing else that a server does not.
        let mut ends = pair(cipher);
        for ticket in [&[NEW_SESSION_TICKET, 0, 0, 1, 0, NEW_SESSION_TICKET, 0, 0, 0][..], &[NEW_SESSION_TICKET, 1]] {
            let wire = ends[1].record(Content::HANDSHAKE, ticket);
            assert_eq!(ends[0].feed(&wire).expect("tickets").back, b"");
        }
        assert_eq!(ends[0].rare.as_ref().map(|rare| rare.message.len()), Some(2));
        assert!(format!("{:?}", ends[0]).contains("message: 2"));
    }
}

#[test]
fn types_that_no_record_has_end_the_session() {
    for cipher in CIPHERS {
        for kind in (0..=255).filter(|kind| ![21, 22, 23].contains(kind)) {
            let [mut client, mut server] = pair(cipher);
            let wire = client.record(Content(kind), b"text");
            let why = match (kind, cipher.version) {
                // It is padding, of the text.
                (0, Version::Tls13) => "a record of the unknown or unexpected type 116".to_owned(),
                _ => format!("a record of the unknown or unexpected type {kind}"),
            };
            assert_eq!(server.feed(&wire), Err(why), "{cipher:?}");
        }
    }
    // In the clear, as before the handshake.
    for cipher in ciphers(Version::Tls13) {
        for kind in [20, 21, 22] {
            let why = format!("a record of the unknown or unexpected type {kind}");
            assert_eq!(pair(cipher)[1].feed(&[kind, 3, 3, 0, 1, 1]), Err(why));
        }
    }
}

#[test]
fn alerts_say_goodbye_or_why() {
    for cipher in CIPHERS {
        let is_13 = cipher.version == Version::Tls13;
        let hear = |alert: &[u8]| {
            let [mut client, mut server] = pair(cipher);
            let wire = client.record(Content::ALERT, alert);
            server.feed(&wire).map(|made| made.ended)
        };
        assert_eq!([hear(&[WARNING, CLOSE_NOTIFY]), hear(&[FATAL, CLOSE_NOTIFY])], [Ok(true), Ok(true)]);
        assert_eq!(hear(&[WARNING, USER_CANCELED]), Ok(false));
        let why = "the peer sent the TLS alert BadCertificate: it does not accept this end's certificate";
        assert_eq!(hear(&[FATAL, 42]), Err(why.to_owned()));
        // RFC 8446, section 6: the level says nothing.
        assert_eq!(hear(&[WARNING, 42]), if is_13 { Err(why.to_owned()) } else { Ok(false) });
        assert_eq!(hear(&[FATAL, 200]), Err("the peer sent the TLS alert AlertDescription(0xc8)".to_owned()));
        assert_eq!(hear(&[]), Err("an empty TLS alert".to_owned()));
        for length in [1, 3, 4] {
            assert_eq!(hear(&vec![1; length]), Err("a TLS alert that is not 2 bytes long".to_owned()));
        }
    }
}

/// The alerts are those that RFC 8446 and rustls have for them.
#[test]
fn what_is_wrong_is_answered_by_its_own_alert() {
    let cases: [(Content, &[u8], u8); 10] = [
        (Content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 0], DECODE_ERROR),
        (Content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 2, 0, 0], DECODE_ERROR),
        (Content::HANDSHAKE, &[KEY_UPDATE, 0, 1, 0], DECODE_ERROR),
        (Content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, 0, 0, 1, 0], UNEXPECTED_MESSAGE),
        (Content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2], ILLEGAL_PARAMETER),
        (Content::HANDSHAKE, &[1, 0, 0, 0], UNEXPECTED_MESSAGE),
        (Content::HANDSHAKE, &[], UNEXPECTED_MESSAGE),
        (Content::ALERT, &[], UNEXPECTED_MESSAGE),
        (Content::ALERT, &[WARNING], DECODE_ERROR),
        (Content::ALERT, &[WARNING, CLOSE_NOTIFY, 0], DECODE_ERROR),
    ];
    for cipher in ciphers(Version::Tls13) {
        for (content, body, alert) in cases {
            let [mut client, mut server] = pair(cipher);
            let (mut wire, mut plain, mut back) = (client.record(content, body), Vec::new(), Output::default());
            server.decode(&mut Input::new(&mut wire), &mut plain, &mut back).expect_err("it is wrong");
            let mut answer = back.bytes().to_vec();
            let (kind, at) = cipher.open(&mut client.receives, &mut answer).expect("a record");
            assert_eq!((kind, &answer[at]), (Content::ALERT, &[FATAL, alert][..]), "{content:?} {body:?}");
        }
    }
}

#[test]
fn nothing_follows_a_goodbye() {
    for cipher in CIPHERS {
        let mut ends = pair(cipher);
        let goodbye = ends[1].says_goodbye();
        assert_eq!(ends[1].says_goodbye(), b"", "it is said once");
        assert!(ends[0].feed(&goodbye).expect("a goodbye").ended);
        let [client, server] = ends;
        let mut ends = [client, server.moved()];
        // The peer may go on, with new keys too.
        let wire = match cipher.version {
            Version::Tls13 => ends[0].key_update(true),
            Version::Tls12 => ends[0].record(Content::HANDSHAKE, &[1, 0, 0, 0]),
        };
        assert_eq!(ends[1].feed(&wire).expect("it is the peer's"), Made::default());
        let wire = ends[0].data(b"more");
        assert_eq!(ends[1].feed(&wire).expect("it is the peer's").plain, b"more");
    }
}

#[test]
fn keys_that_are_nearly_used_up_are_renewed() {
    for cipher in ciphers(Version::Tls13) {
        let renews = cipher.aead != Aead::Chacha20Poly1305;
        for before in 0..6 {
            for plain in [&b"text"[..], &[1; 3 * MAX_PLAIN + 1]] {
                let [mut client, mut server] = pair(cipher);
                let start = MAX_RECORDS - before;
                client.sends = client.sends.view().at(start);
                server.receives = server.receives.view().at(start);
                let records = plain.len().div_ceil(MAX_PLAIN) as u64;
                for _ in 0..3 {
                    let wire = client.data(plain);
                    assert!(server.feed(&wire).expect("it is the peer's").plain == plain);
                    assert!(!renews || client.sends.sequence() <= MAX_RECORDS - 2, "two are left: an update and a goodbye");
                }
                assert_eq!(client.sends.sequence() < start, renews && before < 3 * records + 2, "{cipher:?}: {before}");
                assert!(server.feed(&client.says_goodbye()).expect("a goodbye").ended);
            }
        }
    }
}

#[test]
fn keys_of_tls_12_that_are_used_up_end_the_session() {
    for cipher in ciphers(Version::Tls12) {
        let [mut client, mut server] = pair(cipher);
        let start = MAX_RECORDS - 3;
        client.sends = client.sends.view().at(start);
        server.receives = server.receives.view().at(start);
        let wire = client.data(b"the last");
        assert_eq!(server.feed(&wire).expect("data").plain, b"the last");
        let wire = client.data(b"one too many");
        if cipher.aead == Aead::Chacha20Poly1305 {
            assert_eq!(server.feed(&wire).expect("data").plain, b"one too many");
            continue;
        }
        assert_eq!(server.feed(&wire), Err("the peer sent the TLS alert InternalError".to_owned()));
        let mut client = client.moved();
        assert_eq!((client.data(b"more"), client.says_goodbye()), (vec![], vec![]));
        let why = "the keys of a TLS 1.2 connection are used up after 2^24 records: TLS 1.3 renews them";
        assert_eq!(client.feed(&server.data(b"more")), Err(why.to_owned()));
    }
}

#[test]
fn a_peer_that_renegotiates_is_told_no() {
    for cipher in ciphers(Version::Tls12) {
        let mut ends = pair(cipher);
        // A HelloRequest, and a ClientHello in two parts.
        for (from, message) in [(1, &[0, 0, 0, 0][..]), (0, &[1, 0, 0, 2, 3]), (0, &[3])] {
            let wire = ends[from].record(Content::HANDSHAKE, message);
            let answer = ends[1 - from].feed(&wire).expect("it is told no").back;
            let mut opened = answer.clone();
            let (content, at) = cipher.open(&mut ends[from].receives, &mut opened).expect("an answer");
            assert_eq!((content, &opened[at]), (Content::ALERT, &[WARNING, NO_RENEGOTIATION][..]));
        }
        exchange(&mut ends);
    }
}

#[test]
fn a_session_goes_on_wherever_it_was_saved() {
    for cipher in CIPHERS {
        let mut ends = pair(cipher);
        for round in 0..40_usize {
            let [client, server] = ends;
            ends = [client.moved(), server.moved()];
            let from = round % 2;
            let wire = match round % 5 {
                0 | 1 => ends[from].data(&vec![round as u8; round * 1000]),
                2 if cipher.version == Version::Tls13 => ends[from].key_update(round % 3 == 0),
                _ => ends[from].record(Content::DATA, b""),
            };
            let [client, server] = ends;
            ends = [client.moved(), server.moved()];
            let made = ends[1 - from].feed(&wire).expect("it is the peer's");
            assert_eq!((made.plain.len(), made.left), (if round % 5 < 2 { round * 1000 } else { 0 }, 0));
            ends[from].feed(&made.back).expect("an answer");
        }
        exchange(&mut ends);
    }
}

#[test]
fn what_is_no_saved_session_is_not_restored() {
    let mut saver = Saver::default();
    pair(CIPHERS[0])[0].save(&mut saver);
    let saved = saver.written();
    for cut in 0..saved.len() {
        assert!(Session::restore(&mut Saved::new(&saved[..cut])).is_err(), "{cut} bytes");
    }
    for number in 0..5 {
        let mut wrong = saved.to_vec();
        wrong[8 * number + 1] = 9;
        let why = Session::restore(&mut Saved::new(&wrong)).expect_err("another version").to_string();
        assert!(why.contains("the saved TLS state is of another version"), "{why}");
    }
}

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<Session>() <= 256, "{}", size_of::<Session>());
}
