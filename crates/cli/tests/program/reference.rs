//! Guides name options that the program has.

use std::collections::BTreeSet;
use std::process::Command;

const COMING_FROM: &str = include_str!("../../../../docs/guide/coming-from.md");

/// Checks that options have the names here that `docs/guide/coming-from.md` says.
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
        // A row has what stands in the column "here", and what it is compared with in the column behind it.
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

/// Returns all long options in a text.
fn words_with_dashes(text: &str) -> Vec<String> {
    let end = |text: &str| text.find(|c: char| c != '-' && !c.is_ascii_lowercase()).unwrap_or(text.len());
    let options = text.match_indices("--").filter(|(at, _)| !text[..*at].ends_with('-'));
    options.map(|(at, _)| text[at..at + end(&text[at..])].to_owned()).filter(|option| option.len() > 2).collect()
}
