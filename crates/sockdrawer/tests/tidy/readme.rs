//! Documents show the code as it is.

const README: &str = include_str!("../../../../README.md");
const EVENTS_AND_COUNTERS: &str = include_str!("../../../../docs/reference/events-and-counters.md");

#[test]
fn the_readme_shows_the_server_as_it_is_compiled() {
    let server = include_str!("../../examples/echo.rs");
    assert!(README.contains(&format!("```rust\n{server}```\n")), "copy crates/sockdrawer/examples/echo.rs into README.md");
}

#[test]
fn every_counter_and_event_is_in_the_reference() {
    let counters = include_str!("../../src/observe/counters.rs");
    let (_, counters) = counters.split_once("\ncounters! {\n").expect("the list of counters");
    let counters = counters.lines().take_while(|line| *line != "}").map(str::trim);
    let counters: Vec<&str> = counters.filter(|line| !line.starts_with("///")).map(|line| line.trim_end_matches(',')).collect();
    let events = include_str!("../../src/observe/events.rs");
    let (_, events) = events.split_once("pub enum Event {\n").expect("the list of events");
    let events = events.lines().take_while(|line| *line != "}").filter_map(|line| line.strip_prefix("    "));
    let events = events.filter(|line| line.starts_with(char::is_uppercase));
    let events: Vec<&str> = events.filter_map(|line| line.split(|c: char| !c.is_alphanumeric()).next()).collect();
    assert!(counters.len() > 10 && events.len() > 10, "{counters:?} {events:?}");
    for name in counters.into_iter().chain(events) {
        assert!(EVENTS_AND_COUNTERS.contains(&format!("| `{name}` |")), "docs/reference/events-and-counters.md lacks {name}");
    }
}
