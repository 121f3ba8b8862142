//! A client on its way to its target, without sockets.

use super::hello::tests::hello;
use super::*;
use sockdrawer::Closed;
use sockdrawer::testing::{Driver, peer};

fn client(targets: &[&str]) -> Driver<Proxy> {
    let targets = targets.iter().map(|target| target.parse().expect("a target")).collect();
    Driver::open_with(
        Proxy::new(ProxyOptions::to(targets), Known::default()),
        peer(Side::Accepted, Duration::ZERO),
        sockdrawer::testing::Bounds::default(),
    )
}

/// The targets that it connects to.
fn to(client: &mut Driver<Proxy>) -> Vec<String> {
    client.connects().iter().map(|connect| connect.target.to_string()).collect()
}

const NAMED: [&str; 3] = ["10.0.0.1:1,sni=a.example", "10.0.0.2:1,sni=*.example", "10.0.0.3:1"];

#[test]
fn a_client_is_connected_once_it_has_asked_and_what_it_sent_stays_for_its_target() {
    let bytes = hello(b"a.example", 1216, 500);
    let mut asks = client(&NAMED);
    asks.receive_split(&bytes[..bytes.len() - 1]);
    assert!(to(&mut asks).is_empty() && asks.timer() == Some(HELLO_WITHIN));
    asks.receive(&bytes[bytes.len() - 1..]);
    assert_eq!((to(&mut asks), asks.timer(), asks.kept()), (vec!["10.0.0.1:1".to_owned()], None, &bytes[..]));
    // No other target fits as well: none of those of other names is tried.
    asks.connected(Err(ConnectFailure { target: None, errno: 111, after: Duration::ZERO, lag: Duration::ZERO }));
    assert_eq!((asks.closed(), to(&mut asks)), (Some(Closed::Aborted), vec![]));
    // A client that does not speak TLS goes to the target for all.
    let mut plain = client(&NAMED);
    plain.receive(b"*1\r\n");
    assert_eq!((to(&mut plain), plain.kept()), (vec!["10.0.0.3:1".to_owned()], &b"*1\r\n"[..]));
    // Where no target has a name, the client is connected before it says anything.
    assert_eq!(to(&mut client(&["10.0.0.1:1"])), ["10.0.0.1:1"]);
}

#[test]
fn a_client_that_does_not_say_where_it_wants_to_go_is_reset() {
    let bytes = hello(b"a.example", 32, 1 << 14);
    for sent in [0, 1, bytes.len() - 1] {
        let mut silent = client(&NAMED);
        silent.receive(&bytes[..sent]);
        silent.advance(HELLO_WITHIN);
        assert_eq!(silent.closed(), Some(Closed::Aborted));
        assert_eq!(silent.reports(), ["a client has not said in time by TLS where it wants to go"]);
        let mut gone = client(&NAMED);
        gone.receive(&bytes[..sent]);
        gone.finish();
        assert_eq!((gone.closed(), to(&mut gone)), (Some(Closed::Aborted), vec![]));
    }
}
