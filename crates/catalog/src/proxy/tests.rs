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

/// Returns the targets that the client connects to.
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

#[test]
fn a_client_that_waits_or_has_not_asked_moves_and_begins_again() {
    let proxy = |targets: &[&str]| {
        let targets = targets.iter().map(|target| target.parse().expect("a target")).collect();
        Proxy::new(ProxyOptions::to(targets), Known::default())
    };
    let open = |proxy: &Proxy| {
        Driver::open_with(proxy.clone(), peer(Side::Accepted, Duration::ZERO), sockdrawer::testing::Bounds::default())
    };
    let (before, after) = (proxy(&["10.0.0.1:1,limit=1"]), proxy(&["10.0.0.1:1,limit=1"]));
    let (mut first, mut second) = (open(&before), open(&before));
    assert_eq!((to(&mut first).len(), to(&mut second).len(), second.timer()), (1, 0, Some(Duration::from_secs(5))));
    second.advance(Duration::from_secs(2));
    let first = first.upgrade(after.clone()).expect_err("its connect is under way");
    assert_eq!(first.why, "it is joined with its target first");
    // It waits on, for the rest of its time.
    let taken = after.targets().take(None, &[], Instant::now()).expect("a place");
    let mut second = second.upgrade(after.clone()).map_err(|not| not.why).expect("it waits");
    let left = second.timer().expect("it waits");
    assert!(to(&mut second).is_empty() && left <= Duration::from_secs(3) && left > Duration::from_secs(2), "{left:?}");
    drop(taken);
    second.advance(Duration::ZERO);
    second.advance(left);
    assert_eq!(to(&mut second), ["10.0.0.1:1"], "its turn has come by then");
    // A client that has said a part of where it wants to go says the rest there, within the rest of its time.
    let bytes = hello(b"a.example", 32, 1 << 14);
    let mut asks = open(&proxy(&NAMED));
    asks.receive(&bytes[..20]);
    asks.advance(Duration::from_secs(4));
    let mut asks = asks.upgrade(proxy(&NAMED)).map_err(|not| not.why).expect("it has said nothing");
    assert_eq!(asks.timer(), Some(HELLO_WITHIN - Duration::from_secs(4)));
    asks.receive(&bytes[20..]);
    assert_eq!((to(&mut asks), asks.kept()), (vec!["10.0.0.1:1".to_owned()], &bytes[..]));
    // In a build whose targets have no names it need not say it.
    let mut asks = open(&proxy(&NAMED));
    asks.receive(&bytes[..20]);
    let mut asks = asks.upgrade(proxy(&["10.0.0.9:1"])).map_err(|not| not.why).expect("it has said nothing");
    assert_eq!((to(&mut asks), asks.timer(), asks.kept()), (vec!["10.0.0.9:1".to_owned()], None, &bytes[..20]));
}
