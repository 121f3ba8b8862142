//! Connections under TLS 1.3 through upgrades: each goes on in its session, no byte of it is wrong, and keys are renewed afterwards.

use crate::verified::{Client, PATIENCE, Secured, Stops, trusting, under};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Instant;

impl Secured {
    /// Upgrades it: how many moved, and how many stay beside the one that asks for it.
    fn upgrade(&self) -> (u64, u64) {
        came(&self.server.says("upgrade --json"))
    }

    /// Upgrades it while certificates change and clients come and go. A change between the meeting of both processes and the commit costs the
    /// upgrade and not the server, and so does the fifth process in a row that a handshake has stayed in.
    fn upgrade_at_any_rate(&self) {
        let until = Instant::now() + PATIENCE;
        let refusals =
            ["the pool echo was changed meanwhile: start the new build again", "processes before it still have connections"];
        loop {
            let end = self.server.ctl("upgrade --json");
            if end.code == Some(0) {
                _ = came(&end.stdout);
                return;
            }
            assert!(Instant::now() < until && refusals.iter().any(|why| end.stderr.contains(why)), "{end:?}");
        }
    }
}

/// Returns how many moved, and how many stay beside the one that asked.
pub(crate) fn came(report: &str) -> (u64, u64) {
    let report: Value = serde_json::from_str(report).expect("JSON");
    let count = |name: &str| report["result"][name].as_u64().unwrap_or_else(|| panic!("{report}"));
    assert_eq!(report["result"]["not_restored"], Value::Array(Vec::new()), "{report}");
    (count("moved"), count("staying") - 1)
}

#[test]
fn connections_under_tls_go_on_through_upgrades() {
    let is_long = std::env::var_os("SOCKDRAWER_LONG").is_some();
    let (count, upgrades) = if is_long { (1_000, 10) } else { (48, 3) };
    sockdrawer::raise_descriptor_limit().expect("the limit rises");
    let secured = Secured::start("upgrade-tls", "limit = 2000");
    let mut clients = secured.clients(count);
    let handshakes = secured.status()["tls"]["handshakes"].clone();
    assert_eq!((&handshakes["full"], &handshakes["failed"]), (&count.into(), &0.into()), "{handshakes}");
    for round in 1..=upgrades {
        under(&mut clients, || {
            // Connections that have not moved by the time of its answer follow.
            _ = secured.upgrade();
            secured.counts("moved_in", count * round)
        });
        for _ in 0..2 {
            clients.iter_mut().for_each(Client::updates);
            clients.iter_mut().for_each(|client| client.exchanges(1_000));
        }
        let status = secured.status();
        // No client had to shake hands again.
        assert_eq!(status["tls"]["handshakes"], handshakes, "{status}");
        assert_eq!((&status["connections"], &status["counts"]["accepted"]), (&count.into(), &count.into()), "{status}");
    }
    let heard: u64 = clients.iter().map(Client::heard).sum();
    clients.into_iter().for_each(Client::ends);
    let counts = secured.counts("closed", count);
    let of = |names: &[&str]| names.iter().map(|name| format!("{} {name}", counts[*name])).collect::<Vec<_>>().join(", ");
    println!("{count} connections moved {upgrades} times, {heard} bytes came back, 0 of them wrong");
    println!("the server: {}", of(&["accepted", "moved_in", "moved_out", "closed", "errors", "aborted"]));
    assert_eq!(counts["errors"], 0);
}

#[test]
fn a_session_is_resumed_after_an_upgrade() {
    for model in ["loops", "threads", "prefork", "fork"] {
        let secured = Secured::start(&format!("upgrade-resumed-{model}"), &format!("model = \"{model}\""));
        let config = trusting(&secured.certificates, true);
        let visit = |number: u64| {
            let mut client = Client::connect(&config, &secured.at, number);
            client.exchanges(100);
            let was_resumed = client.was_resumed();
            client.ends();
            was_resumed
        };
        assert!(!visit(0) && visit(1), "{model}");
        for number in 2..5 {
            // A connection that lingers may stay.
            _ = secured.upgrade();
            assert!(visit(number), "{model}: its ticket is of the process before");
            assert!(visit(number), "{model}: its ticket is of this process");
            // The counts have also those of the processes before.
            let wanted = serde_json::json!({ "full": 1, "resumed": 2 * number - 1, "failed": 0 });
            assert_eq!(secured.status()["tls"]["handshakes"], wanted, "{model}");
        }
    }
}

/// It ends well in the process that began it, and then its connection follows.
#[test]
fn a_handshake_is_under_way_during_an_upgrade() {
    let secured = Secured::start("upgrade-greeting", "");
    let [mut half, mut nearly, mut stands] = [0, 1, 2].map(|number| secured.client(number));
    stands.exchanges(100);
    half.greets_half();
    nearly.greets();
    assert_eq!(secured.upgrade(), (1, 2));
    for client in [&mut half, &mut nearly] {
        client.says_the_rest();
        client.exchanges(40_000);
    }
    // They follow.
    secured.counts("moved_in", 3);
    assert_eq!(secured.upgrade(), (3, 0));
    for mut client in [half, nearly, stands] {
        client.updates();
        client.exchanges(1_000);
        client.ends();
    }
    secured.counts("closed", 3);
}

#[test]
fn a_certificate_is_replaced_during_an_upgrade() {
    let secured = Secured::start("upgrade-certificate", "");
    let (mut kept, stop) = (secured.clients(1).remove(0), AtomicBool::new(false));
    scope(|scope| {
        let _stops = Stops(&stop);
        // Each handshake shows one of both certificates, and is done.
        let visitors = [1, 2].map(|number| {
            let (secured, stop) = (&secured, &stop);
            scope.spawn(move || {
                let mut visits = 0_u64;
                while !stop.load(Ordering::SeqCst) {
                    let mut client = secured.client(number);
                    client.exchanges(100);
                    client.ends();
                    visits += 1;
                }
                visits
            })
        });
        for round in 1..=6 {
            let (next, until) = (round % 2, Instant::now() + PATIENCE);
            kept.says_half(1_000);
            let upgrading = scope.spawn(|| secured.upgrade_at_any_rate());
            secured.choose(next);
            upgrading.join().expect("it is upgraded");
            kept.says_the_rest();
            kept.hears();
            kept.updates();
            while {
                let mut client = secured.client(3);
                client.exchanges(1);
                let is_next = client.shown() == Some(&secured.certificates[next].der());
                client.ends();
                assert!(Instant::now() < until, "certificate {next} is not seen");
                !is_next
            } {}
        }
        stop.store(true, Ordering::SeqCst);
        let visits: u64 = visitors.into_iter().map(|visitor| visitor.join().expect("each is served")).sum();
        assert!(visits > 0);
    });
    kept.exchanges(100);
    kept.ends();
    assert_eq!(secured.status()["tls"]["handshakes"]["failed"], 0);
}
