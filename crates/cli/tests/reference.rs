//! The reference of the command line has every option that the program has, and no other.

use std::collections::BTreeSet;
use std::process::Command;

const REFERENCE: &str = include_str!("../../../docs/reference/command-line.md");

#[test]
fn every_option_is_in_the_reference_and_the_reference_has_no_other() {
    let of_load = help("load");
    let of_load = options_of_help(&of_load);
    for command in ["serve", "load", "doctor", "find", "trial"] {
        let help = help(command);
        let (_, section) = REFERENCE.split_once(&format!("\n## {command}\n")).expect("a section for each command");
        let section = section.split("\n## ").next().unwrap_or_default();
        let mut in_help = options_of_help(&help);
        if command == "find" {
            assert!(in_help.is_superset(&of_load), "it has those of load, and its own");
            in_help.retain(|option| !of_load.contains(option));
        }
        let in_reference =
            options(section.lines().filter(|line| line.starts_with("| `-")).filter_map(|line| line.split('|').nth(1)));
        assert!(in_help.len() >= 2, "{command}: {help}");
        assert_eq!(in_help, in_reference, "docs/reference/command-line.md differs from `sockdrawer {command} --help`");
    }
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
