//! Both ends of `acks` over sockets: every message is acknowledged exactly once, whatever lies between, and however connections
//! are ended.

#[path = "acks/proxy.rs"]
mod proxy;
#[path = "acks/scene.rs"]
mod scene;

use proxy::Proxy;
use scene::{Case, PATIENCE, PATTERNS, Scene, is_long};
use sockdrawer::{Behaviour, Drain, Model, Selector};
use sockdrawer_catalog::Budget;
use sockdrawer_catalog::acks::{AckPattern, two_reads};
use sockdrawer_catalog::meter::{End, Phase};
use std::time::Duration;

const CONNECTIONS: [usize; 3] = [1, 8, 100];
/// Bytes of payloads, and how many such messages all connections of a case send.
const SIZES: [(u32, u64); 3] = [(5, 10_000), (1_000, 2_000), (100_000, 100)];

/// Returns each pattern, number of connections and size, with batches and windows of several kinds.
fn cases(model: Model, connections: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for pattern in PATTERNS {
        for connections in connections {
            for (size, messages) in SIZES {
                let more = if is_long() { 50 } else { 1 };
                let each = (more * messages).div_ceil(*connections as u64);
                let (batch, window) = [(1, 700), (100, 1_000), (7, 5_000)][cases.len() % 3];
                // Not more than a few MB on the way, or the end of each case takes longer than all before it.
                let window = window.min(10_000_000 / u64::from(size) / *connections as u64).max(1);
                let pattern = pattern.parse().expect("a pattern");
                cases.push(Case { model, pattern, connections: *connections, size, each, batch, window });
            }
        }
    }
    cases
}

/// Checks that all that the clients sent was acknowledged, and that nothing failed.
fn exactly_once(case: &Case, scene: &Scene) {
    let told = scene.clients();
    let all = case.each * case.connections as u64;
    assert_eq!((told.written, told.acknowledged, told.unacknowledged), (all, all, 0), "{case:?}");
    assert_eq!((&told.failures[..], told.ends), (&[][..], vec![End::Complete; case.connections]), "{case:?}");
}

fn directly(case: &Case) {
    let scene = Scene::start(case);
    scene.connect(case, scene.at(), Budget::Each(case.each), Some(case.connections)).wait_for_ends(case.connections);
    exactly_once(case, &scene);
    scene.assert_received(case);
}

#[test]
fn every_message_is_acknowledged_exactly_once() {
    cases(Model::Loops, &CONNECTIONS).iter().for_each(directly);
}

#[test]
fn in_other_models_too() {
    cases(Model::Threads, &[8]).iter().for_each(directly);
    cases(Model::Tasks, &[8]).iter().for_each(directly);
    cases(Model::Single, &[1]).iter().for_each(directly);
}

#[test]
fn what_splits_and_merges_segments_changes_nothing() {
    for (seed, case) in (1..).zip(cases(Model::Loops, &CONNECTIONS)) {
        let case = Case { each: case.each.div_ceil(4), ..case };
        let scene = Scene::start(&case);
        let proxy = Proxy::start(scene.at(), case.connections, seed);
        scene.connect(&case, proxy.at(), Budget::Each(case.each), Some(case.connections)).wait_for_ends(case.connections);
        exactly_once(&case, &scene);
        scene.assert_received(&case);
        proxy.join();
    }
}

/// Returns true for a failure that a client may report whose server ends a connection in order, or is not there for a moment.
fn is_orderly(failure: &(Phase, Option<i32>)) -> bool {
    matches!(failure, (Phase::Answer | Phase::Closed, None) | (Phase::Connect, Some(_)))
}

/// Ends connections by `end` again and again while their clients send; a client whose connection is ended connects again.
fn ended_while_they_send(case: &Case, end: fn(&mut Scene)) {
    let mut scene = Scene::start(case);
    let clients = scene.connect(case, scene.at(), Budget::Unlimited, None);
    for _ in 0..if is_long() { 20 } else { 2 } {
        scene.wait_for_messages(case.connections as u64 + 20);
        end(&mut scene);
    }
    scene.wait_for_messages(1);
    clients.drain();
    let told = scene.clients();
    assert!(told.failures.iter().all(is_orderly), "{case:?} {:?}", told.failures);
    assert_eq!(told.written, told.acknowledged + told.unacknowledged, "{case:?}");
    assert!(told.ends.iter().filter(|end| **end == End::Lost).count() >= 2, "{case:?}");
    assert_eq!(told.acknowledged, scene.received(), "what was received was acknowledged, and nothing else: {case:?}");
}

#[test]
fn a_drain_acknowledges_what_was_received() {
    for case in cases(Model::Loops, &CONNECTIONS) {
        ended_while_they_send(&case, |scene| {
            scene.server().drain(&Selector::All, Drain::within(PATIENCE));
        });
    }
}

#[test]
fn a_purge_acknowledges_what_was_received() {
    for case in cases(Model::Loops, &CONNECTIONS) {
        ended_while_they_send(&case, |scene| {
            scene.server().purge(&Selector::All, PATIENCE);
        });
    }
}

#[test]
fn a_restart_acknowledges_what_was_received() {
    for case in cases(Model::Loops, &[8]) {
        ended_while_they_send(&case, Scene::restart);
    }
}

#[test]
fn two_reads_for_each_message_say_the_same() {
    let after = Duration::from_millis(5);
    let pattern = AckPattern::Timer(after);
    for case in cases(Model::Threads, &[1, 8]).into_iter().filter(|case| case.pattern == pattern) {
        let scene = Scene::start_with(two_reads(after), &case);
        let proxy = Proxy::start(scene.at(), case.connections, 42);
        for at in [scene.at(), proxy.at()] {
            scene.connect(&case, at, Budget::Each(case.each / 2), Some(case.connections)).wait_for_ends(case.connections);
        }
        proxy.join();
        let told = scene.clients();
        let all = case.each / 2 * 2 * case.connections as u64;
        assert_eq!((told.written, told.acknowledged, &told.failures[..]), (all, all, &[][..]), "{case:?}");
        // Asked to end, it ends between two messages.
        let clients = scene.connect(&case, scene.at(), Budget::Unlimited, Some(case.connections));
        scene.wait_for_acks(2 * case.connections as u64);
        scene.server().drain(&Selector::All, Drain::within(PATIENCE));
        clients.wait_for_ends(case.connections);
        let told = scene.clients();
        assert!(told.failures.iter().all(is_orderly), "{case:?} {:?}", told.failures);
        assert_eq!(scene.server().status().counts.errors, 0);
    }
}

#[test]
fn two_reads_close_what_is_too_large() {
    let case = Case::small(Model::Threads, AckPattern::Timer(Duration::from_secs(3600)));
    let scene = Scene::start_with(two_reads(Duration::from_secs(3600)), &case);
    let mut message = [0; 12 + 12];
    message[12..20].copy_from_slice(&1_u64.to_le_bytes());
    message[20..].copy_from_slice(&1_000_001_u32.to_le_bytes());
    assert_eq!(scene.say(&message), [0; 12], "the message before is acknowledged");
    let _: Behaviour = two_reads(Duration::ZERO);
}
