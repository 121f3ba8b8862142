//! The tests of the example `shop`: its service without sockets, and two builds of its program under clients. In a project of its own the program is
//! `env!("CARGO_BIN_EXE_shop")`, and the last release's is where you keep it.

use sockdrawer::testing::{Driver, peer};
use sockdrawer::{Saved, Service, Side, State};
use sockdrawer_trial::command::upgrades;
use sockdrawer_trial::{Change, Script, trial};
use std::time::Duration;

#[path = "../examples/shop.rs"]
#[allow(dead_code, reason = "main runs in the program")]
mod program;
use program::Shop;

#[test]
fn a_connection_moves_to_the_next_build_in_the_middle_of_a_line() {
    let shop = Shop::default();
    let mut connection = Driver::open(shop.clone());
    connection.receive_split(b"SET a 1\nGET");
    assert_eq!(connection.sent(), b"OK\n");
    let mut connection = connection.upgrade(shop).expect("it moves");
    connection.receive(b" a\nCOUNT\n");
    assert_eq!(connection.sent(), b"= 1\n3 lines\n");
}

/// The state that release 1 wrote: nothing, for it did not count.
const OF_RELEASE_1: &[u8] = b"";

#[test]
fn the_state_of_the_last_release_is_read() {
    Shop::default().state().can_read(&State::of("shop", 1)).expect("its connections move");
    let peer = peer(Side::Accepted, Duration::ZERO);
    Shop::default().restore(&peer, &mut Saved::versioned(OF_RELEASE_1, &[1])).expect("it is read");
}

fn keys_and_lines() -> Script {
    let script = r"
        >> SET key{c} {c}\n
        << OK\n
        > GET key{c}\n
        < = {c}\n
        > COUNT\n
        < /[0-9]+ lines\n/
    ";
    script.parse().expect("a script")
}

#[test]
fn its_pool_changes_under_clients_and_no_key_is_lost() {
    let shop = Shop::default();
    let next = shop.clone();
    let changes = vec![
        Change::new("service", move |pool| pool.reconfigure(pool.config().behaviour(next.clone()))),
        Change::new("loops", |pool| pool.reconfigure(pool.config().loops(3 - pool.config().loops))),
    ];
    trial(shop, changes).script(keys_and_lines()).run().expect("it starts").assert_nothing_lost();
}

#[test]
fn two_builds_take_over_from_each_other_and_no_key_is_lost() {
    // Cargo puts examples beside the folder of this test.
    let program = std::env::current_exe().expect("it runs").parent().expect("a folder").with_file_name("examples/shop");
    let trial = upgrades([program.clone(), program], ["serve", "--listen", "127.0.0.1:0"]);
    let report = trial.script(keys_and_lines()).require_all().changes(4).kills(0).run().expect("it serves");
    report.assert_nothing_lost();
}
