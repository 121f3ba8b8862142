//! The beginning of TLS: what it is, is decided by a byte, and what follows does not change that.

use super::Script;
use sockdrawer_catalog::proxy::Begun;

pub(crate) fn check(input: &[u8]) {
    let Some(script) = Script::new(input) else { return };
    let stream = script.stream;
    let whole = Begun::read(stream);
    let decided = (0..=stream.len()).find(|end| Begun::read(&stream[..*end]) != Begun::Partly).unwrap_or(stream.len());
    (decided..=stream.len()).for_each(|end| assert_eq!(Begun::read(&stream[..end]), whole, "{end} after {decided}"));
    assert!(stream.len() < 16 << 10 || whole != Begun::Partly, "16 KiB decide");
    if let Begun::Hello(hello) = whole {
        let asked = hello.name.iter().map(String::len).chain(hello.protocols.iter().map(Vec::len)).sum::<usize>();
        assert!(asked < decided && stream[0] == 22, "{asked} of {decided}");
    }
}
