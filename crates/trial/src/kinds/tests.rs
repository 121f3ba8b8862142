//! The trial's clients against its servers, without sockets.

use super::kept::{Keep, keep};
use super::kind::Kind;
use super::ledger::Ledger;
use super::requests::{Requests, SIZE};
use super::served::{Leak, MARKER, Plain, Props, RECIPES, Served, Worked};
use crate::Group;
use crate::PATIENCE;
use crate::tally::Ending;
use crate::{Cause, Counter, Echo, Phase, Tally};
use sockdrawer::testing::{Bounds, Driver, peer};
use sockdrawer::{Closed, Peer, Service, Side};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const ECONNRESET: i32 = 104;

fn client<S: Service>(service: S) -> Driver<S> {
    Driver::open_with(service, peer(Side::Connected, Duration::from_micros(30)), Bounds::default())
}

fn server<F: super::served::Flavour>(group: Group, leak: Option<&Arc<Leak>>) -> Driver<Served<F>> {
    let from = Peer::new(Some(SocketAddr::new(group.source(1), 40_000)), Side::Accepted);
    Driver::open_with(Served::<F>::new(&Props { leak: leak.cloned(), ..props() }), from, Bounds::default())
}

fn props() -> Props {
    Props::new(false).expect("a file in memory")
}

fn churn(tally: &Arc<Tally>) -> Driver<crate::Churn<Echo, Counter>> {
    client(crate::Churn::new(Echo::new(1, 16, 16).ending_at_once(), tally.witness(Group::Churn)))
}

fn kept(tally: &Arc<Tally>, group: Group) -> Driver<Keep> {
    client(keep(tally, group, 1))
}

/// Returns the only failure of a tally.
fn failure(tally: &Tally) -> (Group, Phase, Cause) {
    match tally.failures().as_slice() {
        [(failure, 1)] => (failure.group, failure.phase, failure.cause),
        others => panic!("not one failure: {others:?}"),
    }
}

#[test]
fn a_visit_is_sixteen_bytes_there_and_back() {
    let tally = Arc::new(Tally::new());
    let (mut client, mut server) = (churn(&tally), server::<Plain>(Group::Churn, None));
    let sent = client.sent();
    assert_eq!(sent.len(), 16);
    assert!(client.finished_sending());
    server.receive(&sent);
    server.finish();
    assert_eq!(server.closed(), Some(Closed::Orderly));
    client.receive_split(&server.sent());
    client.finish();
    assert_eq!(client.closed(), Some(Closed::Orderly));
    let seen = tally.total();
    assert_eq!((seen.connects, seen.failed(), seen.wrong_bytes), (1, 0, 0));
    assert_eq!(tally.stood(Group::Churn), 1);
}

#[test]
fn a_visit_fails_by_its_phase_and_cause() {
    type Spoil = fn(&mut Driver<crate::Churn<Echo, Counter>>);
    let ways: [(Spoil, Phase, Cause); 6] = [
        (|client| client.advance(PATIENCE), Phase::Exchange, Cause::Late),
        (|client| client.end(Closed::Error(ECONNRESET)), Phase::Exchange, Cause::Errno(ECONNRESET)),
        (|client| client.finish(), Phase::Exchange, Cause::Early),
        (|client| client.receive(&[0; 16]), Phase::Exchange, Cause::Wrong),
        (
            |client| {
                let sent = client.sent();
                client.receive(&sent);
                client.advance(PATIENCE);
            },
            Phase::End,
            Cause::Late,
        ),
        (
            |client| {
                let mut sent = client.sent();
                sent.push(0);
                client.receive(&sent);
            },
            Phase::End,
            Cause::Wrong,
        ),
    ];
    for (spoil, phase, cause) in ways {
        let tally = Arc::new(Tally::new());
        let mut client = churn(&tally);
        spoil(&mut client);
        assert!(client.closed().is_some(), "{phase:?} {cause:?}");
        assert_eq!(failure(&tally), (Group::Churn, phase, cause));
        assert_eq!((tally.total().connects, tally.total().failed()), (1, 1));
    }
}

/// Exchanges blocks until this number of round trips was made.
fn converse<F: super::served::Flavour>(client: &mut Driver<Keep>, server: &mut Driver<Served<F>>, tally: &Tally, rounds: u64) {
    for _ in 0..rounds {
        server.receive(&client.sent());
        while server.has_job() {
            server.run_job();
        }
        client.receive_split(&server.sent());
        if client.closed().is_some() {
            return;
        }
        client.advance(client.timer().expect("it pauses"));
    }
    assert_eq!((tally.exchanges(Group::Kept) + tally.exchanges(Group::Second)), rounds);
}

#[test]
fn a_kept_connection_compares_until_it_is_asked_to_end() {
    let tally = Arc::new(Tally::new());
    let (mut client, mut server) = (kept(&tally, Group::Kept), server::<Plain>(Group::Kept, None));
    converse(&mut client, &mut server, &tally, 20);
    client.drain();
    assert!(!client.finished_sending(), "a block is under way");
    server.receive(&client.sent());
    client.receive(&server.sent());
    assert!(client.finished_sending());
    client.finish();
    assert_eq!(client.closed(), Some(Closed::Orderly));
    let rounds = tally.total().kept_exchanges;
    assert_eq!(tally.total(), crate::Seen { kept_exchanges: rounds, ..crate::Seen::default() });
}

#[test]
fn echoes_take_over_each_others_connections() {
    let tally = Arc::new(Tally::new());
    let (mut client, mut plain) = (kept(&tally, Group::Second), server::<Plain>(Group::Second, None));
    plain.receive(&client.sent());
    client.receive(&plain.sent());
    client.advance(client.timer().expect("it pauses"));
    let Ok(mut worked) = plain.save_and_restore(Served::<Worked>::new(&props())) else { panic!("its state can be saved") };
    worked.receive(&client.sent());
    while worked.has_job() {
        worked.run_job();
    }
    client.receive(&worked.sent());
    assert_eq!(((tally.exchanges(Group::Kept) + tally.exchanges(Group::Second)), tally.total().wrong_bytes), (2, 0));
}

#[test]
fn a_dropped_byte_is_seen_as_wrong_bytes_and_not_as_a_loss() {
    let tally = Arc::new(Tally::new());
    let leak = Arc::default();
    let (mut client, mut server) = (kept(&tally, Group::Kept), server::<Plain>(Group::Kept, Some(&leak)));
    converse(&mut client, &mut server, &tally, 1_000);
    assert_eq!(client.closed(), Some(Closed::Aborted));
    assert!(tally.total().wrong_bytes > 0);
    assert_eq!(tally.total().lost(), 0);
}

#[test]
fn only_kept_connections_lose_bytes() {
    let leak: Arc<Leak> = Arc::default();
    let mut server = server::<Plain>(Group::Churn, Some(&leak));
    for _ in 0..1_000 {
        server.receive(b"ab");
    }
    assert_eq!(server.sent().len(), 2_000);
}

#[test]
fn an_end_nobody_asked_for_is_a_loss() {
    type End = fn(&mut Driver<Keep>);
    let ways: [(End, Cause); 3] = [
        (|client| client.finish(), Cause::Early),
        (|client| client.end(Closed::Error(ECONNRESET)), Cause::Errno(ECONNRESET)),
        (|client| client.advance(PATIENCE), Cause::Late),
    ];
    for (end, cause) in ways {
        let tally = Arc::new(Tally::new());
        let mut client = kept(&tally, Group::Kept);
        end(&mut client);
        assert_eq!(failure(&tally), (Group::Kept, Phase::Exchange, cause));
        assert_eq!(tally.total().lost(), 1);
    }
}

#[test]
fn the_second_set_ends_well_only_as_asked() {
    let ended = |kind: Kind, end: fn(&mut Driver<Keep>)| {
        let tally = Arc::new(Tally::new());
        tally.begin(kind.index());
        let mut client = kept(&tally, Group::Second);
        end(&mut client);
        let (orderly, reset) = (tally.endings(Group::Second, Ending::Orderly), tally.endings(Group::Second, Ending::Reset));
        (tally.total().ended_well, tally.total().ended_badly, orderly, reset)
    };
    let orderly: fn(&mut Driver<Keep>) = |client| client.finish();
    let reset: fn(&mut Driver<Keep>) = |client| client.end(Closed::Error(ECONNRESET));
    assert_eq!(ended(Kind::Drain, orderly), (1, 0, 1, 0));
    assert_eq!(ended(Kind::Purge, orderly), (1, 0, 1, 0));
    assert_eq!(ended(Kind::Kill, reset), (1, 0, 0, 1));
    assert_eq!(ended(Kind::Drain, reset), (0, 1, 0, 0));
    assert_eq!(ended(Kind::Kill, orderly), (0, 1, 0, 0));
    assert_eq!(ended(Kind::Loops, orderly), (0, 1, 0, 0));
}

#[test]
fn only_the_marker_makes_the_crashing_service_panic() {
    let mut server = server::<super::served::Crashing>(Group::Probe, None);
    server.receive(b"is it in force?");
    assert_eq!(server.sent(), b"is it in force?");
    server.receive(MARKER);
    assert_eq!(server.closed(), Some(Closed::Panicked));
}

/// A client of requests, its server, and what both tell.
struct Asked {
    tally: Arc<Tally>,
    props: Props,
    client: Driver<Requests>,
    server: Driver<Served<Plain>>,
}

fn asked() -> Asked {
    let (tally, props) = (Arc::new(Tally::new()), props());
    tally.begin(Kind::Drain.index());
    let client = client(Requests::new(tally.clone(), props.ledger.clone(), 3));
    let from = Peer::new(Some(SocketAddr::new(Group::Requests.source(1), 40_000)), Side::Accepted);
    let server = Driver::open_with(Served::new(&props), from, Bounds::default());
    Asked { tally, props, client, server }
}

impl Asked {
    /// Answers all requests of a message, one after the other. Returns their number.
    fn answer(&mut self) -> usize {
        let request = self.client.sent();
        self.server.receive_split(&request);
        while self.server.has_job() {
            self.server.run_job();
        }
        self.client.receive_split(&self.server.sent());
        request.len() / SIZE
    }
}

#[test]
fn requests_are_answered_one_by_one_and_end_as_asked() {
    let mut asked = asked();
    let mut answered = 0;
    for _ in 0..20 {
        answered += asked.answer();
        asked.client.advance(asked.client.timer().expect("it pauses"));
    }
    assert!(answered > 20, "some messages have two requests");
    assert_eq!((asked.tally.exchanges(Group::Requests), asked.props.ledger.under_way()), (answered as u64, 0));
    asked.answer();
    asked.server.drain();
    assert_eq!(asked.server.closed(), Some(Closed::Orderly));
    asked.client.finish();
    assert_eq!((asked.tally.endings(Group::Requests, Ending::Orderly), asked.tally.total().lost()), (1, 0));
}

#[test]
fn a_request_that_the_server_has_seen_is_owed_an_answer() {
    // Action on the request before the server's end comes, and the number of losses by it.
    type Deal = fn(&mut Asked);
    let deals: [(Deal, u64); 4] = [
        (|_| {}, 0),
        (
            |asked| {
                let request = asked.client.sent();
                asked.server.receive(&request);
                assert!(asked.props.ledger.under_way() > 0);
            },
            1,
        ),
        (
            |asked| {
                let request = asked.client.sent();
                asked.server.receive(&request);
                while asked.server.has_job() {
                    asked.server.run_job();
                }
                let answer = asked.server.sent();
                asked.client.receive(&answer[..answer.len() - 1]);
            },
            1,
        ),
        (|asked| _ = asked.answer(), 0),
    ];
    for (number, (deal, lost)) in deals.into_iter().enumerate() {
        let mut asked = asked();
        deal(&mut asked);
        asked.client.finish();
        let ended = asked.tally.endings(Group::Requests, Ending::Orderly);
        assert_eq!((asked.tally.total().lost(), ended), (lost, 1 - lost), "{number}");
        if lost > 0 {
            assert_eq!(failure(&asked.tally), (Group::Requests, Phase::Exchange, Cause::Early));
        }
    }
}

#[test]
fn a_service_is_built_elsewhere_with_the_same_ledger() {
    let props = props();
    let recipe = Served::<Worked>::new(&props).recipe().expect("it has one");
    let (_, build) = RECIPES.into_iter().find(|(name, _)| *name == recipe.name).expect("it is listed");
    build(&recipe.options).expect("the ledger is there");
    props.ledger.begin(3, 1);
    let there = Props::from_options(&recipe.options).expect("the same again");
    assert_eq!((there.ledger.begun(3), there.leak.is_some()), (1, false));
    let leaking = Props { leak: Some(Arc::default()), ..props };
    assert!(Props::from_options(&leaking.options()).expect("it is there still").leak.is_some());
    build(b"").expect_err("no options are wrong ones");
}

#[test]
fn a_ledger_counts_each_request_once() {
    let ledger = Ledger::new().expect("a file");
    ledger.begin(7, 2);
    ledger.begin(7, 2);
    ledger.begin(8, 1);
    ledger.done(7);
    assert_eq!((ledger.begun(7), ledger.begun(8), ledger.begun(9), ledger.under_way()), (2, 1, 0, 2));
    let elsewhere = Ledger::at(&ledger.path()).expect("this process has it");
    elsewhere.begin(8, 3);
    assert_eq!((ledger.begun(8), ledger.under_way()), (3, 4), "other processes write to the same");
    ledger.open(7 + 256);
    assert_eq!(ledger.begun(7 + 256), 0, "a slot is used again");
}
