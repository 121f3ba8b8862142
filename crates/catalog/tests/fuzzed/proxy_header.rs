//! The header of the PROXY protocol: what it says is decided by a byte, and neither what follows nor how it is split changes that.

use super::Script;
use sockdrawer::layer::Layer;
use sockdrawer::layer::proxy_header::{Accepts, Header, Version};
use sockdrawer::testing::{Bounds, Driver};
use sockdrawer::{Closed, Peer, Side};
use sockdrawer_catalog::echo::Echo;

pub(crate) fn check(input: &[u8]) {
    let Some(mut script) = Script::new(input) else { return };
    let stream = script.stream;
    let whole = Header::parse(stream);
    let decided = (0..=stream.len()).find(|end| Header::parse(&stream[..*end]) != Ok(None)).unwrap_or(stream.len());
    (decided..=stream.len()).for_each(|end| assert_eq!(Header::parse(&stream[..end]), whole, "{end} after {decided}"));
    if let Ok(Some((header, length))) = whole {
        assert!(length <= Header::MAX_V2 && decided <= length);
        for version in [Version::V1, Version::V2] {
            let bytes = header.bytes(version);
            let again = Header::parse(&bytes).expect("it is right").expect("it is whole");
            let ip = |header: Header| header.source().map(|source| (source.ip().to_canonical(), source.port()));
            assert_eq!((ip(again.0), again.1), (ip(header), bytes.len()));
        }
    }
    let proxy = Peer::new(Some(([10, 0, 0, 1], 1).into()), Side::Accepted);
    let layer = Layer::new(Accepts::from(["10.0.0.1".parse().expect("a source")]), Echo);
    let mut connection = Driver::open_with(layer, proxy, Bounds::default());
    for (_, much) in script.steps() {
        connection.receive(script.take(much));
    }
    connection.receive(script.stream);
    match whole {
        Ok(Some((_, length))) => {
            assert_eq!((connection.closed(), connection.sent()), (None, stream.get(length..).unwrap_or_default().to_vec()));
            assert_eq!(connection.timer().is_some(), stream.len() < length, "until it is whole");
        }
        Ok(None) => assert_eq!((connection.closed(), connection.kept()), (None, stream)),
        Err(refused) => {
            assert_eq!((connection.closed(), connection.sent()), (Some(Closed::Aborted), vec![]));
            assert_eq!(connection.reports(), [refused.to_string()]);
        }
    }
}
