//! `serve --proxy-protocol`: clients behind a proxy are known by their own addresses, and `load --proxy-protocol` is such a proxy.

use super::{connect, end_cleanly, exchange, serve};
use crate::program::load;
use crate::report::{number, report};
use rustix::process::Signal;
use std::io::Read;
use std::net::SocketAddr;

/// Returns what the server answers to a client behind the proxy, nothing where it is turned away; and the client's connection.
fn answered(address: SocketAddr, client: &str, request: &[u8]) -> (Vec<u8>, std::net::TcpStream) {
    let mut stream = connect(address);
    let header = format!("PROXY TCP4 {client} 198.51.100.1 4321 443\r\n").into_bytes();
    std::io::Write::write_all(&mut stream, &[&header[..], request].concat()).expect("the server reads");
    let mut answer = vec![0; request.len()];
    let count = stream.read(&mut answer).expect("an answer, or the end");
    answer.truncate(count);
    (answer, stream)
}

#[test]
fn clients_behind_a_proxy_are_limited_by_their_own_addresses() {
    let (server, address) = serve("echo --proxy-protocol from=127.0.0.1,unix --max-per-peer 1");
    let (first, _stays) = answered(address, "192.0.2.1", b"hello");
    let (second, _turned_away) = answered(address, "192.0.2.1", b"hello");
    let (third, _stays_too) = answered(address, "192.0.2.2", b"hello");
    assert_eq!((&first[..], &second[..], &third[..]), (&b"hello"[..], &b""[..], &b"hello"[..]));
    drop((_stays, _turned_away, _stays_too));
    end_cleanly(server, Signal::TERM);
}

#[test]
fn every_model_reads_headers_and_load_sends_them() {
    for server in ["ping", "ping --model threads", "ping --model prefork --processes 1", "ping --model fork"] {
        let (server, address) = serve(&format!("{server} --proxy-protocol from=127.0.0.1"));
        assert_eq!(answered(address, "192.0.2.1", b"Ping").0, b"Pong");
        for header in ["v1", "v2", "v1,source=192.0.2.7:4321", "v2,source=[2001:db8::7]:4321"] {
            let end = load(&format!("ping {address} -c 3 -n 30 --interval 0 --proxy-protocol {header} --json -"));
            assert_eq!(end.code, Some(0), "{header}: {end:?}");
            assert_eq!(number(&report(&end), "/operations/ok"), 30, "{header}");
        }
        let end = load(&format!("ping {address} -c 1 -n 1 --json -"));
        assert_eq!(end.code, Some(1), "a header is missing: {end:?}");
        end_cleanly(server, Signal::TERM);
    }
    // Without the setting a header is input.
    let (server, address) = serve("echo");
    assert_eq!(exchange(connect(address), b"PROXY UNKNOWN\r\n", 15), b"PROXY UNKNOWN\r\n");
    end_cleanly(server, Signal::TERM);
}
