//! The reference of the command line has every option that the program has, and no other.

use std::collections::BTreeSet;
use std::process::Command;

const REFERENCE: &str = include_str!("../../../../docs/reference/command-line.md");
const CONFIGURATION: &str = include_str!("../../../../docs/reference/configuration.md");
const COMING_FROM: &str = include_str!("../../../../docs/guide/coming-from.md");

#[test]
fn every_option_is_in_the_reference_and_the_reference_has_no_other() {
    let of_load = help("load");
    let of_load = options_of_help(&of_load);
    for command in ["serve", "load", "doctor", "find", "compare", "trial"] {
        let help = help(command);
        let (_, section) = REFERENCE.split_once(&format!("\n## {command}\n")).expect("a section for each command");
        let section = section.split("\n## ").next().unwrap_or_default();
        let mut in_help = options_of_help(&help);
        let settings: Vec<String> = keys(CONFIGURATION).map(|key| format!("--{key}")).collect();
        let mut in_reference =
            options(section.lines().filter(|line| line.starts_with("| `-")).filter_map(|line| line.split('|').nth(1)));
        if command == "serve" {
            // Its own page has the settings of configuration files, which are options too; what exec runs stands behind --.
            in_reference.extend(settings.iter().map(String::as_str).filter(|option| *option != "--program"));
        }
        assert!(command != "find" || in_help.is_superset(&of_load), "it has those of load, and its own");
        if command == "find" || command == "doctor" {
            // What load has too, is told there.
            in_help.retain(|option| in_reference.contains(option) || !of_load.contains(option));
        }
        assert!(in_help.len() >= 2, "{command}: {help}");
        assert_eq!(in_help, in_reference, "docs/reference/command-line.md differs from `sockdrawer {command} --help`");
    }
}

/// The keys in the first column of tables.
fn keys(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next())
}

fn help(command: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sockdrawer")).args([command, "--help"]).output().expect("the program runs");
    String::from_utf8(output.stdout).expect("help is text")
}

fn options_of_help(help: &str) -> BTreeSet<&str> {
    options(help.lines().filter(|line| line.trim_start().starts_with('-')))
}

/// The first long option of each line, but `--help`.
fn options<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let first = |line: &'a str| {
        let option = &line[line.find("--")?..];
        let end = option.find(|c: char| c != '-' && !c.is_ascii_lowercase()).unwrap_or(option.len());
        Some(&option[..end])
    };
    lines.filter_map(first).filter(|option| *option != "--help").collect()
}

/// What `docs/guide/coming-from.md` says options are called here is what they are called.
#[test]
fn every_option_of_the_guide_for_users_of_other_tools_exists() {
    let mut known = BTreeSet::from(["--help".to_owned(), "--version".to_owned()]);
    for command in ["serve", "load", "find", "doctor", "report", "compare", "trial"] {
        let output = Command::new(env!("CARGO_BIN_EXE_sockdrawer")).args([command, "--help"]).output().expect("the program runs");
        let help = String::from_utf8(output.stdout).expect("help is text");
        known.extend(words_with_dashes(&help));
    }
    let mut named = 0;
    for (tool, section) in COMING_FROM.split("\n## ").filter_map(|section| section.split_once('\n')) {
        // What stands in the column "here", and what it is compared with in the column behind it.
        let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
        for row in rows.skip(1) {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert_eq!(cells.len(), 3, "{tool}: {row}");
            assert!(!cells[1].trim().is_empty(), "{tool}: what is it here? {row}");
            for option in words_with_dashes(&cells[1..].concat()) {
                assert!(known.contains(&option), "{tool}: there is no {option}: {row}");
                named += 1;
            }
        }
    }
    assert!(named > 100, "{named}");
}

/// All long options in a text.
fn words_with_dashes(text: &str) -> Vec<String> {
    let end = |text: &str| text.find(|c: char| c != '-' && !c.is_ascii_lowercase()).unwrap_or(text.len());
    let options = text.match_indices("--").filter(|(at, _)| !text[..*at].ends_with('-'));
    options.map(|(at, _)| text[at..at + end(&text[at..])].to_owned()).filter(|option| option.len() > 2).collect()
}
