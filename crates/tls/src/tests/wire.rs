//! Bytes on their way between both ends: split, merged, cut off, and followed by others.

use super::*;
use sockdrawer::Closed;

/// Numbers that look random, and are those of the seed.
struct Numbers(u64);

impl Numbers {
    /// Returns a number below `limit`. xorshift64.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

/// Bytes that one end sent and the other has not got.
#[derive(Default)]
struct Road(Vec<u8>);

impl Road {
    /// Returns the next bytes to arrive: a record's header, a byte, or much at once.
    fn next(&mut self, numbers: &mut Numbers) -> Vec<u8> {
        let most = [1, 5, 7, 100, 20_000, 200_000][numbers.below(6)];
        let count = (1 + numbers.below(most)).min(self.0.len());
        self.0.drain(..count).collect()
    }
}

#[test]
fn records_are_split_and_merged_at_random() {
    let certificate = certificate(&["localhost"]);
    for seed in 1..=24_u64 {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let version = [crate::Protocol::Tls12, crate::Protocol::Tls13][numbers.below(2)];
        let on_workers = numbers.below(2) == 0;
        let says: Vec<u8> = (0..numbers.below(200_000)).map(|at| at as u8).collect();
        let server = Server::new([certificate.identity.clone()]).on_workers(on_workers).build().expect("a server");
        let client = trusting(&certificate).versions(version..=version).name("localhost").build().expect("a client");
        let (mut server, mut client) = join(&server, &client, &says);
        let mut roads = [Road::default(), Road::default()];
        loop {
            roads[0].0.extend(client.sent());
            roads[1].0.extend(server.sent());
            if server.has_job() && numbers.below(2) == 0 {
                server.run_job();
            } else if roads.iter().all(|road| road.0.is_empty()) {
                if !server.has_job() {
                    break;
                }
            } else if numbers.below(2) == 0 {
                let bytes = roads[0].next(&mut numbers);
                server.receive(&bytes);
            } else {
                let bytes = roads[1].next(&mut numbers);
                client.receive(&bytes);
            }
        }
        assert_eq!((server.reports(), client.reports()), (&[][..], &[][..]), "seed {seed}");
        assert!(heard(&mut client) == says, "seed {seed}: {} of {} bytes", heard(&mut client).len(), says.len());
    }
}

fn established() -> (ServerEnd, ClientEnd) {
    let certificate = certificate(&["localhost"]);
    let server = Server::new([certificate.identity.clone()]).build().expect("a server");
    let client = trusting(&certificate).name("localhost").build().expect("a client");
    let (mut server, mut client) = join(&server, &client, b"hello");
    run(&mut server, &mut client);
    assert_eq!(heard(&mut client), b"hello");
    (server, client)
}

#[test]
fn a_stream_that_is_cut_off_is_no_end() {
    let (mut server, mut client) = established();
    server.finish();
    client.finish();
    let line = "the peer ended the connection without TLS's close_notify: bytes may be missing";
    assert_eq!((server.reports(), client.reports()), (&[line.to_owned()][..], &[line.to_owned()][..]));
    assert_eq!((server.closed(), client.closed()), (Some(Closed::Aborted), Some(Closed::Aborted)));
}

/// The peer is told by an alert: RFC 8446, section 6.2.
#[test]
fn garbage_after_the_handshake_ends_the_connection() {
    // `GET /` is taken for the header of a record of 8,239 bytes.
    let http = [b"GET /", &[b'x'; 8239][..]].concat();
    for (garbage, line, alert) in [
        (&[23, 3, 3, 0xff, 0xff][..], "a record of 65535 bytes, more than TLS allows", "RecordOverflow"),
        (&[22, 3, 3, 0, 1, 0], "a record of the unknown or unexpected type 22", "UnexpectedMessage"),
        (&[23, 3, 3, 0, 0], "a record that was forged, damaged or sealed with another key", "BadRecordMac"),
        (&[23, 3, 3, 0, 2, 1, 2], "a record that was forged, damaged or sealed with another key", "BadRecordMac"),
        (&http, "a record of the unknown or unexpected type 71", "UnexpectedMessage"),
    ] {
        for to_server in [true, false] {
            let (mut server, mut client) = established();
            if to_server {
                server.receive(garbage)
            } else {
                client.receive(garbage)
            }
            run(&mut server, &mut client);
            let (server, client) = ((server.reports(), server.closed()), (client.reports(), client.closed()));
            let (refuses, hears) = if to_server { (server, client) } else { (client, server) };
            assert_eq!(refuses, (&[line.to_owned()][..], Some(Closed::Orderly)));
            assert_eq!(hears, (&[format!("the peer sent the TLS alert {alert}")][..], Some(Closed::Aborted)));
        }
    }
}

/// A handshake message in the smallest records costs no more than its bytes: a thousand of them within what a pool keeps.
#[test]
fn a_hello_in_the_smallest_records_is_a_hello() {
    let certificate = certificate(&["localhost"]);
    for on_workers in [false, true] {
        let server = Server::new([certificate.identity.clone()]).on_workers(on_workers).build().expect("a server");
        let client = trusting(&certificate).name("localhost").build().expect("a client");
        let (mut server, mut client) = join(&server, &client, b"hello");
        let hello = client.sent();
        let records: Vec<u8> = hello[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
        server.receive(&records);
        while server.has_job() {
            server.run_job();
        }
        run(&mut server, &mut client);
        assert_eq!((server.reports(), client.reports()), (&[][..], &[][..]));
        assert_eq!(heard(&mut client), b"hello");
    }
}

#[test]
fn a_message_that_has_no_end_is_bounded_on_workers_too() {
    let certificate = certificate(&["localhost"]);
    for on_workers in [false, true] {
        let server = Server::new([certificate.identity.clone()]).on_workers(on_workers).build().expect("a server");
        let mut server = Driver::open(Layer::new(server, Echo));
        // The start of a hello of 65,531 bytes, in records of 100.
        server.receive(&[22, 3, 1, 0, 4, 1, 0, 0xff, 0xfb]);
        let record = [&[22, 3, 1, 0, 100][..], &[3; 100]].concat();
        let mut sent = 0;
        while server.closed().is_none() && sent < 650 {
            while server.has_job() {
                server.run_job();
            }
            server.receive(&record);
            sent += 1;
        }
        let closed = if on_workers { Closed::Aborted } else { Closed::TooLong };
        assert_eq!((server.closed(), sent), (Some(closed), 625), "{:?}", server.reports());
    }
}
