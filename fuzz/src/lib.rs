//! The checks are the catalog's own tests; see there what an input says. Those of `tls` and `upgrade` are of their crates.

#[path = "../../crates/catalog/tests/fuzzed/mod.rs"]
mod fuzzed;

#[path = "../../crates/websocket/tests/fuzzed/mod.rs"]
mod websocket_fuzzed;

/// Checks the server of `acks`, with its frame parser.
pub fn acks(input: &[u8]) {
    fuzzed::acks::check(input);
}

/// Checks the client of `acks`, with its parser of acks.
pub fn client(input: &[u8]) {
    fuzzed::client::check(input);
}

/// Checks the first bytes of a client that a proxy sends on by its ClientHello.
pub fn hello(input: &[u8]) {
    fuzzed::hello::check(input);
}

/// Checks the request head of `http`.
pub fn http(input: &[u8]) {
    fuzzed::http::check(input);
}

/// Checks a header of the PROXY protocol.
pub fn proxy_header(input: &[u8]) {
    fuzzed::proxy_header::check(input);
}

/// Gives an end of TLS what a peer sends.
pub fn tls(input: &[u8]) {
    sockdrawer_tls::take_bytes(input);
}

/// Checks a client of a WebSocket after its handshake.
pub fn websocket(input: &[u8]) {
    websocket_fuzzed::check(input);
}

/// Takes what another process says in an upgrade: one message.
pub fn upgrade(input: &[u8]) {
    sockdrawer::testing::take_message(input);
}
