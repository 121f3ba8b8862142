//! Runs that are kept: `load --out`, `report` and `compare`.

use crate::program::{End, Program};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A folder of its own, away when the test leaves it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sockdrawer-runs-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("it is text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn sockdrawer(words: &str) -> End {
    Program::of(words).end()
}

fn read(directory: &str, name: &str) -> String {
    let path = Path::new(directory).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Makes the run that the others of these tests are about, in this directory.
fn run(directory: &str, more: &str) -> End {
    sockdrawer(&format!("load ping -c 4 -d 1200ms --interval 100ms --out {directory} {more}"))
}

#[test]
fn a_run_leaves_all_that_it_measured() {
    let folder = Folder::new("all");
    let directory = folder.path("a/b");
    let end = run(&directory, "--threshold p99<1m --json -");
    assert_eq!(end.code, Some(0), "{end:?}");
    let printed: Value = serde_json::from_str(&end.stdout).expect("one object");
    let kept: Value = serde_json::from_str(&read(&directory, "result.json")).expect("one object");
    assert_eq!(kept, printed, "what is kept is what --json prints");
    assert_eq!(kept["thresholds"][0]["expr"], "p99<1m");
    let samples: Vec<Value> =
        read(&directory, "series.ndjson").lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let last = samples.last().expect("a sample at the end of the run");
    for count in ["/operations/ok", "/operations/failed", "/connections/established", "/connections/failed", "/connections/lost"]
    {
        assert_eq!(last.pointer(count), kept.pointer(count), "{count}: the last sample has all of it");
    }
    for log in ["connect.hlog", "operation.hlog"] {
        let text = read(&directory, log);
        assert_eq!(text.matches(",HISTFAAAA").count(), samples.len(), "{text}");
    }
    assert!(!Path::new(&directory).join("handshake.hlog").exists(), "there was no TLS");
    assert!(read(&directory, "report.html").contains("<h3>Operations</h3>"));
    let plan = read(&directory, "plan.toml");
    assert!(plan.contains("interval = \"100ms\"") && plan.contains("threshold = [\"p99<1m\"]"), "{plan}");
    let again = sockdrawer(&format!("load --plan {directory}/plan.toml --dry-run"));
    assert_eq!(again.code, Some(0), "the plan is one for --plan: {again:?}");
}

#[test]
fn handshakes_have_a_log_of_their_own() {
    let folder = Folder::new("handshakes");
    let directory = folder.path("tls");
    let end = sockdrawer(&format!("load hello --tls -c 2 -n 20 --out {directory}"));
    assert_eq!(end.code, Some(0), "{end:?}");
    let [connects, handshakes] = ["connect.hlog", "handshake.hlog"].map(|log| read(&directory, log));
    let histograms = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.split_once(",HISTFAAAA")?.1.to_owned())).collect()
    };
    assert_eq!(histograms(&handshakes).len(), read(&directory, "series.ndjson").lines().count(), "{handshakes}");
    assert_ne!(histograms(&handshakes), histograms(&connects), "times of one kind are not those of the other");
}

#[test]
fn the_end_of_a_run_is_no_peak_of_its_series() {
    let folder = Folder::new("end");
    let samples = |directory: &str| -> Vec<Value> {
        read(directory, "series.ndjson").lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    };
    let directory = folder.path("timed");
    let end = sockdrawer(&format!("load ping -c 100 --interval 500ms --connect-rate 10k -d 2 --out {directory}"));
    assert_eq!(end.code, Some(0), "{end:?}");
    let timed = samples(&directory);
    assert_eq!(timed.len(), 2, "the end belongs to the last second: {timed:?}");
    assert_eq!(timed[1]["phase"], "holding", "{timed:?}");
    assert!(timed[1]["at"].as_f64().is_some_and(|at| at >= 2.0), "{timed:?}");
    // A signal may come just after a sample; what is left then is told without rates of its own.
    let directory = folder.path("stopped");
    let program = Program::of(&format!("load ping -c 100 --interval 500ms --connect-rate 10k -d 60 --out {directory}"));
    let until = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(format!("{directory}/series.ndjson")).map_or(0, |text| text.lines().count()) < 2 {
        assert!(Instant::now() < until, "two seconds never pass");
        thread::yield_now();
    }
    program.signal(Signal::INT);
    assert_eq!(program.end().code, Some(130));
    let stopped = samples(&directory);
    let [.., before, last] = stopped.as_slice() else { panic!("{stopped:?}") };
    let at = |sample: &Value| sample["at"].as_f64().expect("seconds");
    let rate = |sample: &Value| sample["per_second"]["operations"].as_f64().expect("a rate");
    if at(last) - at(before) < 0.25 {
        assert_eq!(last["server"]["packets_in"], Value::Null, "{stopped:?}");
        assert!(rate(last) < 1.5 * rate(before), "{stopped:?}");
    }
}

#[test]
fn a_directory_that_has_a_run_is_left_alone() {
    let folder = Folder::new("taken");
    let directory = folder.path("run");
    assert_eq!(run(&directory, "").code, Some(0));
    let before = read(&directory, "result.json");
    let end = run(&directory, "");
    assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""), "{end:?}");
    assert_eq!(end.stderr, format!("error: {directory} has a run already: name another directory, or remove this one\n"));
    assert_eq!(read(&directory, "result.json"), before);
}

#[test]
fn what_cannot_be_written_is_told_before_the_run() {
    let folder = Folder::new("unwritable");
    fs::write(folder.0.join("file"), "").expect("it can be written");
    let end = run(&folder.path("file/run"), "");
    assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""), "{end:?}");
    assert!(end.stderr.starts_with("error: cannot write ") && end.stderr.contains("Not a directory"), "{end:?}");
    // No file may have more than 0 bytes: as on a disk that is full, all can be made and nothing written.
    let end = limited(0, &folder.path("full"));
    assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""), "{end:?}");
    assert!(end.stderr.contains("File too large"), "{end:?}");
}

#[test]
fn a_disk_that_fills_up_is_told_once_and_ends_no_run() {
    let folder = Folder::new("full");
    let directory = folder.path("run");
    // Two blocks of 512 bytes are enough for the plan, not for a sample.
    let end = limited(2, &directory);
    assert_eq!(end.code, Some(1), "the result is not there: {end:?}");
    assert!(end.stdout.contains("operations   ") && end.stdout.contains("latency "), "it was measured and told: {end:?}");
    assert_eq!(end.stderr.matches("the run goes on").count(), 1, "{end:?}");
    assert!(end.stderr.lines().last().is_some_and(|line| line.starts_with("error: cannot write ")), "{end:?}");
    assert!(!Path::new(&directory).join("result.json").exists(), "half of a result is none");
}

/// Makes a run under a limit for the size of files, in blocks of 512 bytes.
fn limited(blocks: u32, directory: &str) -> End {
    let program = env!("CARGO_BIN_EXE_sockdrawer");
    let mut command = Command::new("sh");
    let script =
        format!("trap '' XFSZ; ulimit -f {blocks}; exec {program} load ping -c 4 -d 2500ms --interval 5ms --out {directory}");
    command.args(["-c", &script]);
    Program::run(command).end()
}

#[test]
fn what_a_killed_run_measured_is_shown() {
    let folder = Folder::new("killed");
    let directory = folder.path("run");
    let words = format!("load ping -c 4 -d 60 --interval 5ms --out {directory}");
    let mut program = Program::of(&words);
    // A line of progress comes with each sample.
    loop {
        let line = program.error_line();
        assert!(!line.is_empty(), "it ended");
        if line.starts_with("3 s ") {
            break;
        }
    }
    program.signal(Signal::KILL);
    drop(program);
    let end = sockdrawer(&format!("report {directory}"));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.starts_with("no result    the run goes on, or was ended before it had one; in its first "), "{end:?}");
    assert!(end.stdout.contains("4 attempted, 4 established"), "{end:?}");
    assert!(read(&directory, "report.html").contains("There is no result."));
    let compared = sockdrawer(&format!("compare {directory} {directory}"));
    assert_eq!(compared.code, Some(2), "{compared:?}");
    assert!(compared.stderr.contains("the run was ended before it had a result"), "{compared:?}");
}

#[test]
fn an_interrupted_run_keeps_its_result() {
    let folder = Folder::new("interrupted");
    let directory = folder.path("run");
    let words = format!("load ping -c 4 -d 60 --interval 5ms --out {directory}");
    let mut program = Program::of(&words);
    assert!(program.line().starts_with("4 connections"));
    program.signal(Signal::INT);
    let end = program.end();
    assert_eq!(end.code, Some(130), "{end:?}");
    let result: Value = serde_json::from_str(&read(&directory, "result.json")).expect("one object");
    assert_eq!(result["workload"], "ping");
    assert!(Path::new(&directory).join("report.html").exists());
}

#[test]
fn a_report_is_made_again() {
    let folder = Folder::new("again");
    let directory = folder.path("run");
    let first = run(&directory, "--threshold lost==0");
    let page = read(&directory, "report.html");
    fs::remove_file(Path::new(&directory).join("report.html")).expect("it is there");
    let end = sockdrawer(&format!("report {directory}"));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(read(&directory, "report.html"), page);
    let (summary, last) = end.stdout.trim_end().rsplit_once('\n').expect("some lines");
    assert!(first.stdout.contains(summary) && summary.contains("threshold    ok      lost==0: 0"), "{end:?} {first:?}");
    assert_eq!(last, format!("verdict      ok, the threshold is kept; page: {directory}/report.html"));
    assert_eq!(first.stdout.lines().last(), Some(last));
    let nothing = sockdrawer(&format!("report {}", folder.path("nothing")));
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("there is neither result.json nor series.ndjson"), "{nothing:?}");
}

#[test]
fn runs_are_compared_with_their_spread() {
    let folder = Folder::new("compared");
    for name in ["old/1", "old/2", "new/1"] {
        assert_eq!(run(&folder.path(name), "").code, Some(0));
    }
    let (old, new) = (folder.path("old"), folder.path("new/1"));
    let end = sockdrawer(&format!("compare {old} {new}/result.json --threshold rate>10 --threshold lost<=+0"));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.starts_with("threshold    ok      rate>10: "), "{end:?}");
    assert!(end.stdout.contains("A            2 runs: median") && end.stdout.contains("change  spread"), "{end:?}");
    assert!(!end.stdout.contains("note "), "the runs differ in nothing but their seeds: {end:?}");
    let missed = sockdrawer(&format!("compare {old}/1,{old}/2 {new} --threshold rate>+900% --json -"));
    assert_eq!(missed.code, Some(99), "{missed:?}");
    let json: Value = serde_json::from_str(&missed.stdout).expect("one object");
    assert_eq!((json["runs"][0].as_array().map(Vec::len), &json["thresholds"][0]["ok"]), (Some(2), &Value::Bool(false)));
    let other = folder.path("other");
    assert_eq!(sockdrawer(&format!("load echo -c 1 -n 1 --out {other}")).code, Some(0));
    let refused = sockdrawer(&format!("compare {new} {other}"));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.stderr.contains("differ in their workload, \"echo\" and \"ping\""), "{refused:?}");
}

#[test]
fn what_is_no_run_is_told_in_one_line() {
    let folder = Folder::new("none");
    let file = |name: &str, text: &str| {
        fs::write(folder.0.join(name), text).expect("it can be written");
        folder.path(name)
    };
    let told = |words: String, reason: &str| {
        let end = sockdrawer(&words);
        assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""), "{words}: {end:?}");
        assert!(end.stderr.contains(reason) && end.stderr.lines().count() == 1, "{words}: {end:?}");
    };
    let (text, object) = (file("text", "no JSON"), file("object", "{\"runs\": []}"));
    told(format!("compare {text} {text}"), "expected ident at line 1");
    told(format!("compare {object} {object}"), "it is no result of load");
    told(format!("compare {} {object}", folder.path("nothing")), "No such file");
    told(format!("compare {0} {0}", folder.path("")), "there is no result, and no directory with one");
    file("result.json", "{\"schema\": 1000}");
    told(format!("report {}", folder.path("")), "its schema is 1000, this version reads \"sockdrawer.load/2\"");
    file("result.json", "{\"schema\": 1");
    told(format!("report {}", folder.path("")), "EOF while parsing");
}
