//! The tests of the example `shop`: its service without sockets, and two builds of its program under clients. In a project of its own the program is
//! `env!("CARGO_BIN_EXE_shop")`, and the last release's is where you keep it.

use sockdrawer::testing::{Driver, restore, save};
use sockdrawer::{Service, State};
use sockdrawer_trial::command::upgrades;
use sockdrawer_trial::{Change, Script, trial};

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

/// The states that releases wrote: the first did not count lines, of which this client of the second has said three.
const OF_RELEASE_1: &[u8] = b"";
const OF_RELEASE_2: &[u8] = b"\x03\0\0\0\0\0\0\0";

#[test]
fn states_of_all_releases_are_read() {
    for (state, version, lines) in [(OF_RELEASE_1, 1, "1 lines\n"), (OF_RELEASE_2, 2, "4 lines\n")] {
        Shop::default().state().can_read(&State::of("shop", version)).expect("its connections move");
        let mut connection = restore(Shop::default(), state, &[version]).expect("it is read");
        connection.receive(b"COUNT\n");
        assert_eq!(String::from_utf8(connection.sent()), Ok(lines.to_owned()));
    }
    // The next release has to read this.
    let mut connection = Driver::open(Shop::default());
    connection.receive(b"COUNT\nCOUNT\nCOUNT\n");
    assert_eq!(save(&mut connection).expect("it can be saved"), OF_RELEASE_2);
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
