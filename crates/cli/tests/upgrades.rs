//! A program's own test of its upgrades, in a test program of its own because it waits for all children of the process.

use sockdrawer::{Address, Config, Upgrade};
use sockdrawer_catalog::echo::Echo;
use sockdrawer_trial::Pairs;
use sockdrawer_trial::command::upgrades;
use std::path::PathBuf;
use std::time::Duration;

/// The end of the names by which this program is started as a build.
const STANDS_AT_ONCE: &str = "-stands-at-once";

#[test]
fn two_builds_of_a_program_take_turns_in_a_test() {
    let (program, path) =
        (env!("CARGO_BIN_EXE_sockdrawer"), std::env::temp_dir().join(format!("sockdrawer-own-{}", std::process::id())));
    let listen = format!("unix:{}", path.display());
    let trial = upgrades([program, program], ["serve", "echo", "--listen", &listen]).changes(2).kills(2);
    let report = trial.every(Duration::from_secs(1)).clients(2, 8).run().expect("it serves");
    report.assert_nothing_lost();
    assert_eq!((report.changes.len(), report.standing), (4, 8), "{report:?}");
    let _ = std::fs::remove_file(path);
}

#[test]
fn a_build_that_does_not_serve_is_told() {
    let refused = upgrades(["/bin/false", "/bin/false"], ["serve"]).run().expect_err("it ends at once").to_string();
    assert!(refused.contains("the first build does not serve: it ended"), "{refused}");
}

#[test]
fn exchanges_of_ones_own_and_connections_that_all_move() {
    let program = env!("CARGO_BIN_EXE_sockdrawer");
    let listen = format!("unix:{}/sockdrawer-upgrades-own-{}.sock", std::env::temp_dir().display(), std::process::id());
    // The answer to a question is the question, whose number is the connection's own.
    let pairs = || Pairs::new(|number| (format!("{number};").into_bytes(), format!("{number};").into_bytes()));
    let trial = upgrades([program, program], ["serve", "echo", "--listen", &listen]).changes(3).kills(0).require_all();
    let report = trial.exchanges(pairs(), pairs()).run().expect("it begins");
    report.assert_nothing_lost();
    assert_eq!(report.reasons(), [""; 0]);
    let moved: u64 = report.changes.iter().filter_map(|change| change.ran.promise.as_ref()).map(|promise| promise.moved).sum();
    assert!(moved >= 3 * 16, "{moved} moved");
}

/// A build where its name says so: the process before it ends as soon as its connections have moved.
#[test]
fn a_build_that_stands_at_once() {
    let program = std::env::args().next().expect("a name");
    let Some(place) = program.strip_suffix(STANDS_AT_ONCE).map(PathBuf::from) else { return };
    let upgrade = Upgrade::at(place.with_extension("meet")).replaces("any").stand_by(Duration::ZERO).begin().expect("it begins");
    let config = Config::accept(Echo).listen(Address::Unix(place.with_extension("sock")));
    let pool = upgrade.start("echo", config).expect("it starts");
    upgrade.ready().expect("it takes over");
    pool.join().expect("it ends in order");
}

#[test]
fn a_new_build_that_is_killed_once_the_old_one_has_ended_was_all_there_was() {
    let place = std::env::temp_dir().join(format!("sockdrawer-alone-{}", std::process::id()));
    let program = PathBuf::from(format!("{}{STANDS_AT_ONCE}", place.display()));
    std::os::unix::fs::symlink(std::env::current_exe().expect("a program"), &program).expect("a free name");
    // The seed kills late, long after the new build has taken over.
    let trial = upgrades([&program, &program], ["--exact", "a_build_that_stands_at_once"]).changes(0).kills(1);
    let report = trial.socket(place.with_extension("meet")).seed(249).clients(2, 8).run().expect("it serves");
    let promise = report.changes[0].ran.promise.as_ref().expect("a promise");
    report.assert_nothing_lost();
    assert!(promise.may_refuse && promise.connections >= 8, "{promise:?}");
    [program, place.with_extension("meet"), place.with_extension("sock")].iter().for_each(|path| _ = std::fs::remove_file(path));
}
