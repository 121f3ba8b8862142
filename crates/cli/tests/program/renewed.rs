//! Certificates that are renewed under clients, by their files: no handshake fails, no connection is lost.

use crate::verified::{Client, PATIENCE, Secured};
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

/// How many changes, in full by `ci/long certificates`.
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
    changed.recv().expect("it hears");
    changed
}

#[test]
fn a_certificate_is_renewed_by_its_files_under_clients() {
    let secured = Secured::start("renewed", "");
    let (changed, stop) = (told(&secured), AtomicBool::new(false));
    let mut kept: Vec<Client> = (0..KEPT).map(|number| secured.client(number)).collect();
    let visit = |number: u64| {
        let mut client = secured.client(number);
        client.exchanges(1 + number * 71 % 20_000);
        let shown = client.shown().cloned();
        client.ends();
        shown
    };
    let visits = scope(|scope| {
        let _stops = crate::verified::Stops(&stop);
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
            assert_eq!(visit(0).as_ref(), Some(&secured.certificates[next].der), "after change {change}");
            kept.iter_mut().for_each(|client| client.exchanges(100));
        }
        stop.store(true, Ordering::SeqCst);
        visitors.into_iter().map(|visitor| visitor.join().expect("each is served")).sum::<u64>()
    });
    kept.into_iter().for_each(Client::ends);
    let all = visits + changes() as u64 + KEPT;
    let status = secured.status();
    println!("{} renewals by files, {all} clients served, 0 lost; the server: {}", changes(), status["tls"]["handshakes"]);
    assert_eq!(status["tls"]["handshakes"], json!({ "full": all, "resumed": 0, "failed": 0 }), "{status}");
    let counts = ["accepted", "closed", "errors"].map(|name| status["counts"][name].as_u64());
    assert_eq!(counts, [Some(all), Some(all), Some(0)], "{status}");
    assert!(visits > changes() as u64, "there was load: {visits}");
}
