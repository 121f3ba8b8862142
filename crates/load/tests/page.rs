//! The page of a run, in a browser: it needs no network and has no errors, it shows every chart, also to readers without scripts. Where there is no
//! Chromium these tests say that they are skipped; what they need it for is in their names.

#[path = "page/run.rs"]
mod run;

use run::{Folder, record, record_samples};
use serde_json::{Value, json};
use sockdrawer_load::results::show;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Charts along time that every run of 180 s has to show, and that the script reads at the pointer.
const CHARTS: [&str; 13] = [
    "Connections",
    "Operations",
    "Latency of operations",
    "Connects",
    "Latency of connects",
    "Send delay",
    "Errors",
    "CPU",
    "Memory per connection",
    "Memory",
    "Bits",
    "Packets",
    "Context switches",
];

fn page(folder: &Folder) -> String {
    fs::read_to_string(folder.0.join("report.html")).expect("the page was written")
}

#[test]
fn every_chart_is_there_without_a_script() {
    let folder = Folder::new("charts");
    record(&folder.0, 180, false);
    let page = page(&folder);
    for chart in CHARTS.into_iter().chain(["Percentiles of the whole run"]) {
        assert!(page.contains(&format!("<h3>{chart}</h3>")), "no chart of {chart}");
    }
    assert_eq!(page.matches("<svg").count(), CHARTS.len() + 1);
    for text in [
        "100,000",
        "p99&lt;50ms",
        "FAILED",
        "Limited by: accept queue.",
        "ping to 10.0.0.2:9000, in stages, up to 100,000 connections",
        "2026-11-24 12:00:00 UTC",
        "--out &#39;&lt;run 1&gt;&#39;",
        ">ramping</span>",
        "A CPU &amp; its &lt;friends&gt;",
        "suspend &lt;at once&gt;",
    ] {
        assert!(page.contains(text), "{text} is not in the page");
    }
}

#[test]
fn nothing_in_it_is_loaded_from_elsewhere() {
    let folder = Folder::new("elsewhere");
    record(&folder.0, 60, false);
    let page = page(&folder);
    for reference in ["http:", "https:", "//cdn", "src=", "href=", "url(", "@import", "fetch("] {
        assert!(!page.contains(reference), "{reference} is in the page");
    }
}

#[test]
fn a_long_run_has_a_small_page_and_keeps_its_peaks() {
    const SECONDS: u32 = 6 * 3600;
    let folder = Folder::new("long");
    record_samples(&folder.0, SECONDS);
    show(&folder.0).expect("what there is can be shown");
    let page = page(&folder);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    // The server stood still for three seconds, a fifteenth of a point: they are four thousand times as slow.
    let (_, chart) = page.split_once("<h3>Latency of operations</h3>").expect("a chart");
    let (_, most) = chart.split_once("p50&nbsp;<b>").expect("a line");
    let most = most.split('<').next().expect("what it reached");
    assert!(most.ends_with(" ms") && most.len() > 5, "{most}: half of the times are microseconds, but for that moment");
}

#[test]
fn an_interrupted_run_has_a_page_too() {
    let folder = Folder::new("interrupted");
    record(&folder.0, 30, true);
    let path = folder.0.join("series.ndjson");
    let text = fs::read_to_string(&path).expect("it was written");
    fs::write(&path, &text[..text.len() - 40]).expect("it can be written");
    let recorded = show(&folder.0).expect("what there is can be shown");
    assert_eq!((recorded.samples.len(), recorded.report.is_none()), (29, true), "the line that was cut off is left out");
    let page = page(&folder);
    assert!(page.contains("There is no result.") && page.contains("<h3>Connections</h3>"));
}

/// Runs the browser without a screen on the page; None where there is none.
fn chromium(folder: &Folder, options: &[&str]) -> Option<Output> {
    let profile = folder.0.join("profile");
    let mut command = Command::new("timeout");
    command.args([
        "120",
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--virtual-time-budget=2000",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display())).args(options);
    command.arg(format!("file://{}", folder.0.join("report.html").display()));
    let output = command.output().expect("timeout is one of the core utilities");
    // Exit code of `timeout` when there is no such program.
    if output.status.code() == Some(127) {
        println!("skipped: there is no chromium here (apt-get install chromium)");
        return None;
    }
    Some(output)
}

/// Returns what the page wrote to the console: errors of its script and whatever its policy forbade.
fn console(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect()
}

#[test]
fn in_chromium_the_script_runs_without_an_error() {
    let folder = Folder::new("script");
    record(&folder.0, 180, false);
    let Some(output) = chromium(&folder, &["--dump-dom"]) else { return };
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(dom.contains(&format!("data-charts=\"{}\"", CHARTS.len())), "the script did not come to its end: {output:?}");
    assert_eq!(console(&output), [""; 0]);
}

#[test]
fn in_chromium_an_error_and_a_forbidden_request_would_be_seen() {
    let folder = Folder::new("forbidden");
    record(&folder.0, 10, false);
    let path = folder.0.join("report.html");
    let broken = page(&folder).replace("</body>", "<script>fetch('http://127.0.0.1:9/'); missing();</script></body>");
    fs::write(&path, broken).expect("it can be written");
    let Some(output) = chromium(&folder, &["--dump-dom"]) else { return };
    let console = console(&output).join("\n");
    assert!(console.contains("Content Security Policy") && console.contains("missing is not defined"), "{output:?}");
}

#[test]
fn in_chromium_a_moment_that_is_pointed_at_is_read_in_every_chart() {
    const POINT: &str = r#"
        const texts = (of, what) => [...of.querySelectorAll(what)].map((element) => element.textContent).join("; ");
        const figures = [...document.querySelectorAll(".chart[data-unit]")];
        const read = () => figures.map((figure) => texts(figure, ".key b"));
        const before = read();
        const place = figures[0].querySelector(".plot").getBoundingClientRect();
        const at = { clientX: place.left + place.width / 2, clientY: place.top + 5 };
        figures[0].querySelector(".plot").dispatchEvent(new PointerEvent("pointermove", at));
        const result = { middle: texts(figures[3], ".when"), cursor: figures[3].querySelector(".cursor").style.left };
        figures[2].dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
        result.last = read();
        result.table = figures.map((figure) => texts(figure, "tr:last-child td"));
        figures[2].dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
        result.restored = JSON.stringify(read()) === JSON.stringify(before);
        document.documentElement.dataset.result = JSON.stringify(result).replaceAll('"', "~");
    "#;
    let folder = Folder::new("pointed");
    record(&folder.0, 180, false);
    let pointed = page(&folder).replace("</body>", &format!("<script>{POINT}</script></body>"));
    fs::write(folder.0.join("report.html"), pointed).expect("it can be written");
    let Some(output) = chromium(&folder, &["--dump-dom", "--window-size=1300,900"]) else { return };
    let dom = String::from_utf8_lossy(&output.stdout);
    let result =
        dom.split_once("data-result=\"").and_then(|(_, rest)| rest.split('"').next()).map(|text| text.replace('~', "\""));
    let result: Value = serde_json::from_str(&result.unwrap_or_else(|| panic!("{output:?}"))).expect("an object");
    assert_eq!((&result["middle"], &result["cursor"]), (&json!("90 s"), &json!("50%")));
    assert_eq!(result["last"], result["table"], "the script and the page write numbers alike");
    assert_eq!(result["restored"], true, "Escape shows again what every line reached");
    assert_eq!(console(&output), [""; 0]);
}

#[test]
fn in_chromium_it_has_a_picture_in_light_and_dark_wide_and_narrow() {
    let folder = Folder::new("pictures");
    record(&folder.0, 180, false);
    // Keeps them for people that want to look at them.
    let keep = std::env::var_os("SOCKDRAWER_PICTURES");
    if let Some(keep) = &keep {
        fs::copy(folder.0.join("report.html"), Path::new(keep).join("report.html")).expect("the folder is there");
    }
    let mut pictures = Vec::new();
    for (name, options) in [
        ("light", &["--window-size=1300,2900"][..]),
        ("dark", &["--window-size=1300,2900", "--blink-settings=preferredColorScheme=0"][..]),
        ("narrow", &["--window-size=500,6400"][..]),
    ] {
        let picture = folder.0.join(format!("{name}.png"));
        let option = format!("--screenshot={}", picture.display());
        let Some(output) = chromium(&folder, &[options, &[option.as_str()]].concat()) else { return };
        let bytes = fs::read(&picture).unwrap_or_else(|error| panic!("no picture, {error}: {output:?}"));
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 50_000, "{name}: {} bytes", bytes.len());
        if let Some(keep) = &keep {
            fs::copy(&picture, Path::new(keep).join(format!("{name}.png"))).expect("the folder is there");
        }
        pictures.push(bytes);
    }
    assert!(pictures[0] != pictures[1], "dark looks like light");
}
