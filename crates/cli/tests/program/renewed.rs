//! Certificates that are renewed under clients, by their files: no handshake fails, no connection is lost.

use crate::verified::{Client, PATIENCE, Secured, Stops, under};
use serde_json::json;
use sockdrawer_operate::client::Client as Control;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{scope, spawn};

/// Connections that stay.
const KEPT: u64 = 8;
/// Threads of clients that come and go.
const VISITORS: u64 = 2;

/// Returns the number of changes, in full by `ci/long certificates`.
fn changes() -> usize {
    std::env::var("SOCKDRAWER_TIMES").map_or(4, |times| times.parse().expect("a number"))
}

/// Hears of each change that the server has made.
fn told(secured: &Secured) -> mpsc::Receiver<()> {
    let ((told, changed), path) = (mpsc::channel(), secured.server.path("c.sock"));
    spawn(move || {
        let mut control = Control::at(path);
        let events = control.send("GET", "/events", &[], b"").expect("an answer").without_timeout().expect("a socket");
        // From here on.
        let _ = told.send(());
        let heard = events.lines(|line| match line.contains("Changed") && told.send(()).is_err() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        // The server is killed at the end.
        drop(heard);
    });
    changed.recv_timeout(PATIENCE).expect("it hears");
    changed
}

#[test]
fn a_certificate_is_renewed_by_its_files_under_clients() {
    let secured = Secured::start("renewed", "");
    let (changed, stop) = (told(&secured), AtomicBool::new(false));
    let mut kept = secured.clients(KEPT);
    let visit = |number: u64| {
        let mut client = secured.client(number);
        client.exchanges(1 + number * 71 % 20_000);
        let shown = client.shown().cloned();
        client.ends();
        shown
    };
    let visits = scope(|scope| {
        let _stops = Stops(&stop);
        let visitors: Vec<_> = (0..VISITORS)
            .map(|visitor| {
                let (visit, stop) = (&visit, &stop);
                scope.spawn(move || {
                    let mut visits = 0;
                    while !stop.load(Ordering::SeqCst) {
                        visit(visits * VISITORS + visitor);
                        visits += 1;
                    }
                    visits
                })
            })
            .collect();
        for change in 1..=changes() {
            let next = change % 2;
            secured.choose(next);
            changed.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("change {change}: {error}"));
            assert_eq!(visit(0).as_ref(), Some(&secured.certificates[next].der()), "after change {change}");
            kept.iter_mut().for_each(|client| client.exchanges(100));
        }
        stop.store(true, Ordering::SeqCst);
        visitors.into_iter().map(|visitor| visitor.join().expect("each is served")).sum::<u64>()
    });
    kept.into_iter().for_each(Client::ends);
    let all = visits + changes() as u64 + KEPT;
    secured.counts("closed", all);
    let status = secured.status();
    println!("{} renewals by files, {all} clients served, 0 lost; the server: {}", changes(), status["tls"]["handshakes"]);
    assert_eq!(status["tls"]["handshakes"], json!({ "full": all, "resumed": 0, "failed": 0 }), "{status}");
    assert_eq!((&status["counts"]["accepted"], &status["counts"]["errors"]), (&all.into(), &0.into()), "{status}");
    assert!(visits > changes() as u64, "there was load: {visits}");
}

/// Connections move to the generation of the next certificate in their sessions, whatever they have under way.
#[test]
fn connections_are_adopted_across_a_change_of_certificates() {
    const COUNT: u64 = 48;
    let secured = Secured::start("renewed-adopted", "");
    let mut clients = secured.clients(COUNT);
    for change in 1..=4 {
        let adopted = under(&mut clients, || {
            secured.choose(change % 2);
            // It looks at the files at once, or has done so already.
            secured.server.says("reload");
            secured.server.says("adopt --all")
        });
        assert!(adopted.starts_with(&format!("{COUNT} moved to the newest generation, 0 stay")), "{adopted}");
        for _ in 0..2 {
            clients.iter_mut().for_each(Client::updates);
            clients.iter_mut().for_each(|client| client.exchanges(1_000));
        }
        let status = secured.status();
        assert_eq!(status["tls"]["handshakes"], json!({ "full": COUNT, "resumed": 0, "failed": 0 }), "{status}");
        let adopted = status["counts"]["adopted"].as_u64();
        assert_eq!(adopted, Some(COUNT * change as u64), "{status}");
    }
    clients.into_iter().for_each(Client::ends);
    assert_eq!(secured.counts("closed", COUNT)["errors"], 0);
}
