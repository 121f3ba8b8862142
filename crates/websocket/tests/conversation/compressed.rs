//! Compression that a peer means to cost more than it should.

use super::{REQUEST, Recorder};
use sockdrawer::testing::Driver;
use sockdrawer_websocket::{Frame, WebSocket};

/// Returns a connection whose client takes messages that are made with a window of 9 bits.
fn of_a_small_window(service: WebSocket<Recorder>) -> Driver<WebSocket<Recorder>> {
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9\r\nHost";
    let mut server = Driver::open(service);
    server.receive(String::from_utf8_lossy(REQUEST).replace("Host", offer).as_bytes());
    let answer = String::from_utf8(server.sent()).expect("text");
    assert!(answer.contains("; server_max_window_bits=9\r\n"), "{answer}");
    server
}

#[test]
fn no_compressor_is_made_for_a_peer_with_a_small_window() {
    let mut server = of_a_small_window(WebSocket::new(Recorder::default()).deflate(true));
    server.notify(Frame::text(&"x".repeat(100)));
    assert_eq!(server.sent()[..2], [0x81, 100], "it is sent as it is");
}
