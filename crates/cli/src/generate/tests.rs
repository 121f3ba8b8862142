//! The table of settings is what help, the man page, the reference and the schema say.

use super::*;
use crate::arguments;
use crate::protocols;
use sockdrawer_operate::{Operated, Setting, pool_settings, program_settings};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const REFERENCE: &str = "docs/reference/configuration.md";

/// Returns all settings.
fn settings() -> Vec<Setting> {
    program_settings().chain(pool_settings()).copied().chain(protocols::settings()).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the reference of configuration files, as the table of settings says it.
fn configuration() -> String {
    let mut text = include_str!("configuration.txt").to_owned();
    let mut table = |title: &str, settings: Vec<Setting>| {
        let _ = write!(text, "\n## {title}\n\n| key | value | meaning | unless given |\n| --- | --- | --- | --- |\n");
        for Setting { name, help, default, .. } in &settings {
            let form = settings.iter().find(|setting| setting.name == *name).map_or_else(String::new, Setting::form);
            let row = [format!("`{name}`"), format!("`{form}`"), (*help).to_owned(), (*default).to_owned()];
            let _ = writeln!(text, "| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    };
    table("The whole program", program_settings().copied().collect());
    let mut groups: Vec<&str> = Vec::new();
    pool_settings().for_each(|setting| {
        if !groups.contains(&setting.group) {
            groups.push(setting.group)
        }
    });
    for group in groups {
        let is_short = !group.contains(char::is_lowercase);
        let words = if is_short { group.to_owned() } else { group.to_lowercase() };
        table(&format!("Pools: {words}"), pool_settings().filter(|setting| setting.group == group).copied().collect());
    }
    table("Protocols", protocols::settings().collect());
    text
}

#[test]
fn the_reference_of_configuration_files_is_that_of_the_table() {
    let (path, text) = (root().join(REFERENCE), configuration());
    if std::env::var_os("SOCKDRAWER_WRITE_SCHEMA").is_some() {
        fs::write(&path, &text).expect("the file can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "{REFERENCE} differs: SOCKDRAWER_WRITE_SCHEMA=1 cargo test -p sockdrawer-cli table");
}

#[test]
fn the_reference_of_the_command_line_is_that_of_the_definitions() {
    const REFERENCE: &str = "docs/reference/command-line.md";
    let (path, text) = (root().join(REFERENCE), reference::page());
    if std::env::var_os("SOCKDRAWER_WRITE_SCHEMA").is_some() {
        fs::write(&path, &text).expect("the file can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "{REFERENCE} differs: SOCKDRAWER_WRITE_SCHEMA=1 cargo test -p sockdrawer-cli reference");
}

#[test]
fn the_unit_that_is_packaged_is_the_one_that_is_printed() {
    const UNIT: &str = "packaging/sockdrawer.service";
    let (path, text) = (root().join(UNIT), arguments::program().unit());
    if std::env::var_os("SOCKDRAWER_WRITE_SCHEMA").is_some() {
        fs::write(&path, &text).expect("the file can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "{UNIT} differs: SOCKDRAWER_WRITE_SCHEMA=1 cargo test -p sockdrawer-cli packaged");
}

#[test]
fn help_the_man_page_and_the_schema_have_all_settings_of_the_table_and_no_other() {
    let names: BTreeSet<&str> = settings().iter().map(|setting| setting.name).collect();
    let command = arguments::command();
    let serve = command.find_subcommand("serve").expect("it is a command");
    let options: BTreeSet<&str> = serve.get_arguments().filter_map(clap::Arg::get_long).collect();
    let own = ["config", "help", "verbose"];
    let expected: BTreeSet<&str> = names.iter().copied().filter(|name| *name != "program").chain(own).collect();
    assert_eq!(options, expected);
    let man = arguments::program().manual(&command).replace("\\-", "-");
    let (_, file) = man.split_once(".SH \"CONFIGURATION FILE\"").expect("a section");
    let (file, rest) = file.split_once(".SH \"EXIT STATUS\"").expect("a section");
    for title in ["ENVIRONMENT", "FILES", "SIGNALS", "EXAMPLES"] {
        assert!(rest.contains(&format!(".SH {title}\n")), "no section {title}");
    }
    assert!(!man.contains("]("), "a link of the reference");
    let keys: BTreeSet<&str> = file.lines().filter_map(|line| line.strip_prefix("\\fB")?.split("\\fR").next()).collect();
    assert_eq!(keys, names);
    for option in &options {
        assert!(man.contains(&format!("--{option}")), "--{option}");
    }
    let schema = arguments::program().schema();
    let mut properties: BTreeSet<&str> =
        schema["properties"].as_object().expect("an object").keys().map(String::as_str).collect();
    assert!(properties.remove("pool"));
    for condition in schema["properties"]["pool"]["additionalProperties"]["allOf"].as_array().expect("a list") {
        properties.extend(condition["then"]["properties"].as_object().expect("an object").keys().map(String::as_str));
    }
    assert!(properties.remove("protocol"));
    assert_eq!(properties, names);
}

/// Checks a file with this text, as the server does.
fn checked(text: &str, name: &str) -> Result<(), Vec<String>> {
    let file = std::env::temp_dir().join(format!("sockdrawer-check-{}-{name}.toml", std::process::id()));
    fs::write(&file, text).expect("the folder takes it");
    let checked = protocols::protocols().into_iter().fold(Operated::new(&file), Operated::protocol).check();
    fs::remove_file(&file).expect("it is there");
    checked.map(drop)
}

/// Lines of a pool that are right.
const GOOD: &[&str] = &[
    "limit = 5",
    "limit = \"10k\"",
    "limit = \"1.5m\"",
    "idle = 0",
    "idle = 1.5",
    "idle = \"250us\"",
    "idle = \"1h\"",
    "model = \"threads\"",
    "nodelay = false",
    "nodelay = \"true\"",
    "accept-rate = 0.5",
    "accept-rate = \"10k/s\"",
    "send-buffer = 65536",
    "send-buffer = \"1m\"",
    "alarm = [\"9/8\", \"7/6\"]",
    "alarm = \"9/8\"",
    "max-per-peer = 5",
    "max-per-peer = \"50/24\"",
    "workers = 0",
    "drain = \"0s\"",
    "keepalive = 30\nkeepalive-probes = 3",
    "on-full = \"reject\"",
    "on-full = \"reject ERR full\"",
    "spin = \"50us\"",
    "restarts-within = \"1m\"",
    "[pool.x]\nprotocol = \"http\"\nlisten = [9000]\nslow-duration = 1",
    "[pool.x]\nprotocol = \"exec\"\nlisten = [9000]\nprogram = [\"cat\", \"-u\"]",
    "[pool.x]\nprotocol = \"acks\"\nlisten = [\"unix:@x\"]\nack = \"every=5\"",
];

/// Lines of a pool that are wrong.
const BAD: &[&str] = &[
    "limit = 0",
    "limit = -1",
    "limit = 1.5",
    "limit = true",
    "limit = [5]",
    "limit = \"10K\"",
    "limit = \"many\"",
    "limt = 5",
    "idle = -1",
    "idle = \"soon\"",
    "idle = \"5sec\"",
    "idle = true",
    "model = \"loop\"",
    "model = 5",
    "nodelay = 1",
    "nodelay = \"yes\"",
    "accept-rate = 0",
    "accept-rate = -5",
    "accept-rate = \"fast\"",
    "send-buffer = -1",
    "send-buffer = 5000000000",
    "send-buffer = \"4kb\"",
    "alarm = true",
    "alarm = [true]",
    "max-per-peer = []",
    "workers = -1",
    "keepalive = 0",
    "on-full = \"panic\"",
    "protocols = 1",
    "slow-duration = 1",
    "program = [\"cat\"]",
    "[pool.Web]\nprotocol = \"echo\"\nlisten = 1",
    "[pool.x]\nprotocol = \"ehco\"\nlisten = 1",
    "[pool.x]\nlisten = 1",
    "[pool.x]\nprotocol = \"echo\"",
    "[pool.x.y]\nprotocol = 1",
    "[pools.x]\nprotocol = \"echo\"",
];

#[test]
fn the_schema_takes_what_the_server_takes_and_refuses_what_has_a_wrong_form() {
    let schema = arguments::program().schema();
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let pool = |lines: &str| format!("[pool.web]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\n{lines}\n");
    let valid = |text: &str| schema.is_valid(&toml::from_str(text).expect(text));
    for (number, lines) in GOOD.iter().enumerate() {
        let text = pool(lines);
        assert_eq!(checked(&text, &format!("good-{number}")), Ok(()), "{lines}");
        assert!(valid(&text), "the schema refuses {lines}");
    }
    for (number, lines) in BAD.iter().enumerate() {
        let text = pool(lines);
        assert!(checked(&text, &format!("bad-{number}")).is_err(), "{lines}");
        assert!(!valid(&text), "the schema takes {lines}");
    }
    for text in ["", "pool = 5", "[pool]", "metric = 1"] {
        assert!(checked(text, "none").is_err() && !valid(text), "{text}");
    }
}

#[test]
fn completions_know_the_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let (mut command, mut text) = (arguments::command(), Vec::new());
        clap_complete::generate(shell.parse::<clap_complete::Shell>().expect(shell), &mut command, "sockdrawer", &mut text);
        let text = String::from_utf8(text).expect("text");
        for word in ["ctl", "check", "serve", "max-per-peer", "older-than"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
}
