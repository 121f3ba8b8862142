//! Each default that the documentation names is the one in force: "Default: 65,536." is read from the sources, and compared with the value.

use crate::admission::Limits;
use crate::behaviour::Behaviour;
use crate::blocking::Connection;
use crate::config::{Config, Connecting, Endpoint, Listening, Restarts, Settings};
use crate::net::{ListenOptions, SocketOptions};
use crate::operation::Drain;
use crate::upgrade::Upgrade;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

/// The value that is in force where a program says nothing.
enum Value {
    /// The program has to say it.
    Given,
    None,
    Number(u64),
    Time(Duration),
    /// As the documentation writes it.
    Words(String),
}

fn number(value: impl TryInto<u64>) -> Value {
    value.try_into().map_or(Value::Given, Value::Number)
}

fn optional<T>(value: &Option<T>) -> Value {
    if value.is_none() { Value::None } else { Value::Words("a value".to_owned()) }
}

/// Makes a value that is documented as `[`Name::default`]`, or by a variant.
fn named<T: Debug>(value: &T, expected: &T, name: &str) -> Value {
    let is_expected = format!("{value:?}") == format!("{expected:?}");
    Value::Words(if is_expected { format!("[`{name}`]") } else { format!("{value:?}") })
}

fn of_cpus(value: usize) -> Value {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if value == cpus { Value::Words("the number of CPUs".to_owned()) } else { number(value) }
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Value {
    /// Returns the ways to write the value.
    fn texts(&self) -> Vec<String> {
        match self {
            Value::Given => Vec::new(),
            Value::None => vec!["none".to_owned()],
            Value::Number(number) if number % 1024 == 0 => {
                vec![with_commas(*number), format!("{} KiB", with_commas(number / 1024)), format!("{} MiB", number >> 20)]
            }
            Value::Number(number) => vec![with_commas(*number)],
            Value::Time(time) => vec![format!("{} s", time.as_secs_f64()), format!("{} ms", time.as_millis())],
            Value::Words(words) => vec![words.clone()],
        }
    }
}

/// Returns the documentation of each item that begins with one of these words and stands in this block, by the name of the item.
fn documented(source: &str, block: &str, begin: &str) -> BTreeMap<String, String> {
    let mut lines = source.lines().skip_while(|line| line.trim() != block);
    let head = lines.next().unwrap_or_else(|| panic!("there is no block {block:?}"));
    let indent = head.len() - head.trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let (mut found, mut docs) = (BTreeMap::new(), String::new());
    for line in lines.take_while(|line| line.trim_end_matches(',') != end) {
        // Only what stands in the block itself, not deeper.
        let Some(line) = line.strip_prefix(&" ".repeat(indent + 4)) else { continue };
        if let Some(doc) = line.strip_prefix("///") {
            docs += doc;
        } else if let Some(item) = line.strip_prefix(begin).filter(|item| item.starts_with(char::is_alphabetic)) {
            let name = item.split(|c: char| !c.is_alphanumeric() && c != '_').next().expect("a name");
            found.insert(name.to_owned(), std::mem::take(&mut docs));
        } else if !line.starts_with('#') {
            docs.clear();
        }
    }
    found
}

/// Returns the mistake in the documentation of one item; None: it is right.
fn wrong(docs: &str, value: &Value) -> Option<String> {
    let said = docs.split_once("Default: ").map(|(_, said)| said);
    match (said, value) {
        (None, Value::Given) => None,
        (None, _) => Some(format!("has no default, it is {:?}", value.texts())),
        (Some(said), _) => {
            let ends = |rest: &str| rest == "." || rest.starts_with(". ") || rest.starts_with(", ");
            let is_it = value.texts().iter().any(|text| said.strip_prefix(text).is_some_and(ends));
            (!is_it).then(|| format!("says {said:?}, it is {:?}", value.texts()))
        }
    }
}

/// Compares all items of a block with the values in force.
fn compare(block: &str, docs: &BTreeMap<String, String>, values: Vec<(&str, Value)>) {
    let mut left = docs.clone();
    let mut found: Vec<String> = Vec::new();
    for (name, value) in values {
        match left.remove(name) {
            Some(docs) => found.extend(wrong(&docs, &value).map(|what| format!("{name} {what}"))),
            None => found.push(format!("{name} is not there")),
        }
    }
    found.extend(left.into_keys().map(|name| format!("{name} is compared with no value")));
    assert!(found.is_empty(), "{block}\n{}", found.join("\n"));
}

fn fields(source: &str, name: &str, values: Vec<(&str, Value)>) {
    let block = format!("pub struct {name} {{");
    compare(&block, &documented(source, &block, "pub "), values);
}

const CONFIG: &str = include_str!("config.rs");

#[test]
fn of_a_configuration() {
    let config = Config::accept(Behaviour::blocking(|_: &mut Connection| Ok(())));
    let limits = config.admission.limits().expect("the default policy");
    let is_alarmed = config.alarms.first();
    let values = vec![
        ("behaviour", Value::Given),
        ("endpoint", Value::Given),
        ("model", Value::Words(format!("[`Model::{:?}`]", config.model))),
        ("settings", named(&config.settings, &Settings::default(), "Settings::default")),
        ("loops", of_cpus(config.loops)),
        ("processes", of_cpus(config.processes)),
        ("workers", of_cpus(config.workers)),
        ("stack", number(config.stack)),
        ("worker_queue", number(config.worker_queue)),
        ("delegates", number(config.delegates)),
        ("capacity", number(config.capacity)),
        ("spin", Value::Time(config.spin)),
        ("spare", number(config.spare)),
        ("limit", optional(&config.limit)),
        ("admission", named(limits, &Limits::default(), "Limits::default")),
        ("alarms", optional(&is_alarmed)),
        ("max_generations", optional(&config.max_generations)),
        ("inbox", number(config.inbox)),
        ("restarts", named(&config.restarts, &Restarts::default(), "Restarts::default")),
        ("stuck_after", Value::Time(config.stuck_after)),
        ("observer", Value::Words("none".to_owned())),
    ];
    fields(CONFIG, "Config", values);
    let Endpoint::Accept { backlog, .. } = config.endpoint else { panic!("it accepts") };
    let docs = documented(include_str!("config/endpoint.rs"), "Accept {", "");
    compare("Accept", &docs, vec![("listeners", Value::Given), ("backlog", number(backlog))]);
    // "Default: none, 65,000."
    let most = docs_of_config("max_generations");
    assert!(most.contains(&format!("none, {}.", with_commas(crate::event_loop::generation::MAX_GENERATIONS as u64))), "{most}");
}

fn docs_of_config(field: &str) -> String {
    documented(CONFIG, "pub struct Config {", "pub ")[field].clone()
}

#[test]
fn of_the_settings_of_connections() {
    let settings = Settings::default();
    let values = vec![
        ("options", named(&settings.options, &SocketOptions::default(), "SocketOptions::default")),
        ("high_water", number(settings.high_water)),
        ("low_water", number(settings.low_water)),
        ("max_partial", number(settings.max_partial)),
        ("max_unsent", number(settings.max_unsent.expect("a maximum") as u64)),
        ("idle", optional(&settings.idle)),
        ("linger", Value::Time(settings.linger)),
        ("flush", Value::Time(settings.flush)),
    ];
    fields(CONFIG, "Settings", values);
    let options = settings.options;
    let values = vec![
        ("nodelay", Value::Words(if options.nodelay { "on" } else { "off" }.to_owned())),
        ("keepalive", optional(&options.keepalive)),
        ("user_timeout", optional(&options.user_timeout)),
        ("receive_buffer", optional(&options.receive_buffer)),
        ("send_buffer", optional(&options.send_buffer)),
    ];
    fields(include_str!("net/options.rs"), "SocketOptions", values);
}

#[test]
fn of_listening_and_connecting() {
    let listening = Listening::new("127.0.0.1:9000");
    let values = vec![
        ("address", Value::Given),
        ("inherited", optional(&listening.inherited)),
        ("name", optional(&listening.name)),
        ("layers", Value::Words(if listening.layers.is_empty() { "none" } else { "some" }.to_owned())),
        ("options", named(&listening.options, &ListenOptions::default(), "ListenOptions::default")),
        ("limit", optional(&listening.limit)),
    ];
    fields(include_str!("config/endpoint.rs"), "Listening", values);
    let connecting = Connecting::to(["127.0.0.1:9000"]);
    let values = vec![
        ("targets", Value::Given),
        ("keep", Value::Given),
        ("sources", optional(&connecting.sources.first())),
        ("local_ports", optional(&connecting.local_ports)),
        ("total", optional(&connecting.total)),
        ("rate", optional(&connecting.rate)),
        ("late", Value::Words(format!("[`Late::{:?}`]", connecting.late))),
        ("timeout", Value::Time(connecting.timeout)),
    ];
    fields(include_str!("config/connecting.rs"), "Connecting", values);
}

#[test]
fn of_policies_and_drains() {
    let limits = Limits::default();
    let values = vec![
        ("on_full", Value::Words(format!("[`OnFull::{:?}`]", limits.on_full))),
        ("per_peer", optional(&limits.per_peer)),
        ("rate", optional(&limits.rate)),
    ];
    fields(include_str!("admission/limits.rs"), "Limits", values);
    let restarts = Restarts::default();
    let (within, pause) = (Value::Time(restarts.within), Value::Time(restarts.pause));
    let values = vec![("max", number(restarts.max)), ("within", within), ("pause", pause)];
    fields(include_str!("config/restarts.rs"), "Restarts", values);
    let drain = Drain::within(Duration::from_secs(1));
    let values = vec![
        ("deadline", Value::Given),
        ("rate", optional(&drain.rate)),
        ("max_connections", optional(&drain.max_connections)),
        ("notice", Value::Time(drain.notice)),
    ];
    fields(include_str!("operation/drain.rs"), "Drain", values);
}

#[test]
fn of_an_upgrade() {
    let upgrade = Upgrade::at("/run/name");
    let docs = documented(include_str!("upgrade/mod.rs"), "impl Upgrade {", "pub fn ");
    let ([within, stand_by, turns_within, ends], version, stays) = upgrade.defaults();
    let values = vec![
        ("version", Value::Words(if version.is_empty() { "empty" } else { version }.to_owned())),
        ("replaces", Value::Words("the environment".to_owned())),
        ("within", Value::Time(within)),
        ("stand_by", Value::Time(stand_by)),
        ("stays", optional(&stays)),
        ("ends", Value::Time(ends)),
        ("turns_within", Value::Time(turns_within)),
    ];
    let setters: BTreeMap<String, String> =
        docs.into_iter().filter(|(name, _)| values.iter().any(|(value, _)| value == name)).collect();
    compare("Upgrade", &setters, values);
}

#[test]
fn a_default_that_is_not_the_documented_one_is_found() {
    for (docs, value) in [
        ("A number. Default: 65,536.", Value::Number(65_535)),
        ("A number. Default: 65,536.", Value::Number(65)),
        ("Bytes. Default: 64 KiB.", Value::Number(64)),
        ("A time. Default: 5 s.", Value::Time(Duration::from_secs(6))),
        ("A limit. Default: none.", Value::Number(7)),
        ("A limit.", Value::None),
        ("It is to be said. Default: 1.", Value::Given),
    ] {
        assert!(wrong(docs, &value).is_some(), "{docs}");
    }
    for (docs, value) in [
        ("A number. Default: 65,536.", Value::Number(65_536)),
        ("Bytes. Default: 64 KiB.", Value::Number(65_536)),
        ("A time. Default: 5 s, or so.", Value::Time(Duration::from_secs(5))),
        ("A time. Default: 250 ms. Not more.", Value::Time(Duration::from_millis(250))),
    ] {
        assert_eq!(wrong(docs, &value), None, "{docs}");
    }
}
