//! `sockdrawer load` on a terminal: what a person sees of it, at the sizes that terminals have, and that it leaves the terminal as it was.

#[path = "terminal/screen.rs"]
pub(crate) mod screen;

use rustix::process::Signal;
use rustix::termios::LocalModes;
use screen::Terminal;
use sockdrawer::{Config, Pool};
use std::time::Duration;

/// A run of so few operations that a busy machine keeps their rate: a rate that is not kept is a failed run.
const RUN: &str = "load ping -c 20 --connect-rate 10k --interval 500ms";

#[test]
fn a_run_has_a_panel_that_fits_and_gives_way_to_its_result() {
    for size in [(80, 24), (60, 20), (200, 50)] {
        let mut terminal = Terminal::start(size, &[], &format!("{RUN} -d 3"));
        let shown = terminal.until("a second of the run", |screen| {
            screen.contains("holding") && screen.contains("q stop") && screen.contains("max ")
        });
        for part in [" of 0:03", "20 of 20", "operations", "p50", "p99", "failed", "lost 0"] {
            assert!(shown.contains(part), "{part} is not shown at {size:?}:\n{shown}");
        }
        assert_eq!(terminal.end(), Some(0), "{}", terminal.screen());
        let screen = terminal.screen();
        assert!(screen.contains("\nverdict      ok, nothing failed") && !screen.contains("q stop"), "{screen}");
        terminal.is_as_before();
    }
}

#[test]
fn a_terminal_of_plain_signs_gets_no_others() {
    let more = [("LC_ALL", "C"), ("NO_COLOR", "1")];
    let mut terminal = Terminal::start((80, 24), &more, &format!("{RUN} -d 60"));
    terminal.until("the panel", |screen| screen.contains("####"));
    terminal.types("q");
    assert_eq!(terminal.end(), Some(0), "{}", terminal.screen());
    assert!(terminal.all.is_ascii() && !terminal.all.contains("\u{1b}[3"), "{}", terminal.all);
    let mut dumb = Terminal::start((80, 24), &[("TERM", "dumb")], &format!("{RUN} -d 1200ms"));
    assert_eq!(dumb.end(), Some(0), "{}", dumb.screen());
    assert!(dumb.screen().contains("1 s holding, 20 open, ") && !dumb.all.contains('\u{1b}'), "{}", dumb.all);
}

#[test]
fn a_small_terminal_gets_a_line_and_one_that_changes_the_panel_again() {
    let mut terminal = Terminal::start((70, 8), &[], &format!("{RUN} -d 60"));
    terminal.until("a line", |screen| screen.contains("s holding, 20 open"));
    terminal.resize((100, 30));
    terminal.until("the panel", |screen| screen.contains("q stop"));
    terminal.resize((60, 20));
    let shown = terminal.until("a smaller one", |screen| {
        let is_title = |line: &str| line.starts_with("load ping") && line.ends_with("holding") && line.len() < 60;
        screen.lines().any(is_title) && screen.contains("q stop")
    });
    assert_eq!(shown.matches("q stop").count(), 1, "nothing of the larger one is left:\n{shown}");
    terminal.types("q");
    assert_eq!(terminal.end(), Some(0), "{}", terminal.screen());
    terminal.is_as_before();
}

#[test]
fn every_way_out_leaves_the_terminal_as_it_was() {
    // A server that takes what comes and answers nothing: what is under way is awaited, so that a second signal finds the run.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = format!("load echo {} -c 2 --timeout 1h -d 1h", silent.local_addr().expect("it is bound"));
    let endless = format!("{RUN} -d 60");
    for (words, signals, code) in [
        (&endless, &[Signal::INT][..], 130),
        (&endless, &[Signal::TERM], 143),
        (&endless, &[Signal::HUP], 129),
        (&silent, &[Signal::INT, Signal::INT], 130),
    ] {
        let mut terminal = Terminal::start((80, 24), &[], words);
        terminal.until("the panel", |screen| screen.contains("q stop"));
        assert!(!terminal.modes().intersects(LocalModes::ICANON | LocalModes::ECHO), "keys count");
        for (number, signal) in signals.iter().enumerate() {
            terminal.signal(*signal);
            if number + 1 < signals.len() {
                terminal.until("the end of the run", |screen| screen.contains("ending"));
            }
        }
        assert_eq!(terminal.end(), Some(code), "{signals:?}: {}", terminal.screen());
        terminal.is_as_before();
    }
}

#[test]
fn a_run_whose_terminal_goes_keeps_its_result() {
    let path = std::env::temp_dir().join(format!("sockdrawer-gone-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    let mut terminal = Terminal::start((80, 24), &[], &format!("{RUN} -d 60 --out {}", path.display()));
    terminal.until("the panel", |screen| screen.contains("q stop"));
    assert_eq!(terminal.hang_up(), Some(129));
    let result = std::fs::read_to_string(path.join("result.json"));
    std::fs::remove_dir_all(&path).expect("it is there");
    assert!(result.is_ok_and(|result| result.contains("\"peak\": 20")));
}

#[test]
fn a_trial_and_a_search_whose_terminal_goes_keep_their_result() {
    let server =
        Pool::start(Config::accept(sockdrawer_catalog::echo::Echo).listen(std::net::SocketAddr::from(([127, 0, 0, 1], 0))))
            .expect("it starts");
    let trial = format!("trial {} -c 2 --kept 2 --change true --every 100ms --changes 100000", server.addresses()[0]);
    let path = std::env::temp_dir().join(format!("sockdrawer-hung-up-{}", std::process::id()));
    for (words, under_way) in
        [("trial -c 2 --kept 2 --changes 100000", "change"), (trial.as_str(), "change"), ("find ping -c 2", "tries left")]
    {
        let mut terminal = Terminal::start((80, 24), &[], &format!("{words} --json {}", path.display()));
        terminal.until("a line of its progress", |screen| screen.contains(under_way));
        assert_eq!(terminal.hang_up(), Some(129), "{words}: {}", terminal.screen());
        let result = std::fs::read_to_string(&path).expect("it is kept");
        assert!(result.starts_with('{') && result.ends_with("}\n"), "{words}: {result}");
        std::fs::remove_file(&path).expect("it is there");
    }
}

#[test]
fn a_terminal_that_takes_nothing_holds_no_signal_up() {
    let path = std::env::temp_dir().join(format!("sockdrawer-takes-nothing-{}", std::process::id()));
    let output = std::fs::File::create(&path).expect("a file");
    let mut terminal = Terminal::start_into((80, 24), &[], "trial -c 2 --kept 2 --changes 100000", Some(output.into()));
    terminal.until("its progress", |screen| screen.contains("change"));
    terminal.stops_output();
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.end(), Some(143), "{}", terminal.screen());
    let result = std::fs::read_to_string(&path).expect("text");
    assert!(result.contains("changes"), "{result}");
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn a_run_that_was_stopped_takes_keys_again_and_says_so() {
    let mut terminal = Terminal::start((80, 24), &[], &format!("{RUN} --timeout 300ms -d 60"));
    terminal.until("the panel", |screen| screen.contains("holding"));
    terminal.types("\u{1a}");
    terminal.until_stopped();
    terminal.is_as_before();
    // waits because: how long it is stopped is what is told.
    std::thread::sleep(Duration::from_millis(700));
    terminal.clear();
    terminal.signal(Signal::CONT);
    terminal.until("the panel again", |screen| screen.contains("holding"));
    assert!(!terminal.modes().intersects(LocalModes::ICANON | LocalModes::ECHO), "keys count again");
    terminal.types("q");
    assert_eq!(terminal.end(), Some(0), "nothing failed meanwhile: {}", terminal.screen());
    let screen = terminal.screen();
    assert!(screen.contains("stopped      "), "{screen}");
    terminal.is_as_before();
}

#[test]
fn a_signal_to_go_on_leaves_no_second_panel_nor_does_another_size() {
    let mut terminal = Terminal::start((80, 24), &[], &format!("{RUN} -d 60"));
    terminal.until("the panel", |screen| screen.contains("holding"));
    // As timeout(1) does, to what was never stopped.
    terminal.signal(Signal::CONT);
    let before = terminal.all.matches("q stop").count();
    while terminal.all.matches("q stop").count() < before + 2 {
        terminal.until("another draw", |screen| screen.contains("q stop"));
        terminal.reads();
    }
    assert_eq!(terminal.screen().matches("q stop").count(), 1, "{}", terminal.screen());
    terminal.shrink((60, 20));
    terminal.until("one panel", |screen| screen.contains("q stop") && screen.matches("load ping").count() == 1);
    // Both come of one key: the terminal sends one, and timeout(1) the other.
    terminal.signal(Signal::INT);
    terminal.signal(Signal::INT);
    assert_eq!(terminal.end(), Some(130), "{}", terminal.screen());
    let screen = terminal.screen();
    assert!(screen.contains("verdict      ok") && !screen.contains("q stop"), "{screen}");
    terminal.is_as_before();
}
