//! The reference of the command line has every option that the program has, and no other.

use std::collections::BTreeSet;
use std::process::Command;

const REFERENCE: &str = include_str!("../../../docs/reference/command-line.md");

#[test]
fn every_option_is_in_the_reference_and_the_reference_has_no_other() {
    for command in ["serve", "load", "doctor", "compare", "trial"] {
        let output = Command::new(env!("CARGO_BIN_EXE_sockdrawer")).args([command, "--help"]).output().expect("the program runs");
        let help = String::from_utf8(output.stdout).expect("help is text");
        let (_, section) = REFERENCE.split_once(&format!("\n## {command}\n")).expect("a section for each command");
        let section = section.split("\n## ").next().unwrap_or_default();
        let in_help = options(help.lines().filter(|line| line.trim_start().starts_with('-')));
        let in_reference =
            options(section.lines().filter(|line| line.starts_with("| `-")).filter_map(|line| line.split('|').nth(1)));
        assert!(in_help.len() >= 2, "{command}: {help}");
        assert_eq!(in_help, in_reference, "docs/reference/command-line.md differs from `sockdrawer {command} --help`");
    }
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
