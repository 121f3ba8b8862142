//! `--junit` and the action for CI: the verdict for other programs.

use crate::program::Program;
use std::fs;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sockdrawer");

#[test]
fn the_action_puts_the_table_into_the_summary_and_ends_as_the_run_does() {
    let folder = std::env::temp_dir().join(format!("sockdrawer-action-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/github-action/run.sh");
    for (threshold, code) in [("failed==0", 0), ("failed>0", 99)] {
        let summary = folder.join("summary.md");
        let ended = Command::new(script)
            .env("SOCKDRAWER_PROGRAM", PROGRAM)
            .env("SOCKDRAWER_RUN", format!("load ping -c 1 -n 20 --interval 0 --threshold '{threshold}'"))
            .env("SOCKDRAWER_JUNIT", folder.join("junit.xml"))
            .env("GITHUB_STEP_SUMMARY", &summary)
            .output()
            .expect("bash is installed");
        assert_eq!(ended.status.code(), Some(code), "{}", String::from_utf8_lossy(&ended.stderr));
        let (summary, junit) =
            (fs::read_to_string(&summary).expect("it is written"), fs::read_to_string(folder.join("junit.xml")));
        assert!(summary.contains(threshold) && summary.contains("verdict"), "{summary}");
        let junit = junit.expect("it is written");
        assert!(junit.contains(&format!("failures=\"{}\"", u8::from(code != 0))), "{junit}");
        fs::remove_file(folder.join("summary.md")).expect("it is there");
    }
    fs::remove_dir_all(&folder).expect("it is there");
}

#[test]
fn a_trial_is_a_test_whose_failure_says_what_was_lost() {
    let path = std::env::temp_dir().join(format!("sockdrawer-junit-{}.xml", std::process::id()));
    let words = |more: &str| format!("trial --seconds 3 --seed 1 --kept 5 --connections 2 --junit {} {more}", path.display());
    for (more, code, count) in [("", 0, "failures=\"0\""), ("--sabotage close-kept", 1, "failures=\"1\"")] {
        let end = Program::of(&words(more)).end();
        // On a busy machine too little may have been tried, which is no good verdict either.
        let (code, count) = if end.code == Some(1) { (1, "failures=\"1\"") } else { (code, count) };
        assert_eq!(end.code, Some(code), "{end:?}");
        let xml = fs::read_to_string(&path).expect("it is written");
        assert!(xml.contains("name=\"nothing is lost\"") && xml.contains(count), "{xml}");
        assert_eq!(xml.contains("<failure message=\"bad: "), !more.is_empty(), "{xml}");
    }
    fs::remove_file(&path).expect("it is there");
}

#[test]
fn what_makes_several_runs_or_has_no_pauses_refuses_them() {
    for (words, why) in [
        ("load acks --ladder --junit a.xml", "--junit is for one run, --ladder makes several: leave one out"),
        (
            "find hello 127.0.0.1:1 --vary rate --junit a.xml",
            "--junit is for one run, and a search makes several: leave it out, --json has all of them",
        ),
        (
            "load ping --interval 0 --poisson",
            "--poisson: there is no time between operations: add --interval or --rate, of http with --keep-alive",
        ),
        (
            "load hello --poisson",
            "--poisson: there is no time between operations: add --interval or --rate, of http with --keep-alive",
        ),
        (
            "load ping --junit /no/such/folder/a.xml",
            "cannot write /no/such/folder/a.xml: No such file or directory (os error 2); name a file in a folder that you may write to, or - for standard output",
        ),
    ] {
        let end = Program::of(words).end();
        assert!(end.code == Some(2) || end.code == Some(1), "{words}: {end:?}");
        assert!(end.stderr.starts_with(&format!("error: {why}")), "{words}: {}", end.stderr);
    }
}
