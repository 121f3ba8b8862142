//! The checks are the catalog's own tests; see there what an input says.

#[path = "../../crates/catalog/tests/fuzzed/mod.rs"]
mod fuzzed;

/// The server of `acks`, with its frame parser.
pub fn acks(input: &[u8]) {
    fuzzed::acks::check(input);
}

/// The client of `acks`, with its parser of acks.
pub fn client(input: &[u8]) {
    fuzzed::client::check(input);
}

/// The request head of `http`.
pub fn http(input: &[u8]) {
    fuzzed::http::check(input);
}
