//! Configurations that are right, and each kind of mistake with its place.

use super::*;
use crate::Kind;
use sockdrawer::Config;
use sockdrawer_catalog::echo::Echo;
use std::time::Duration;

fn protocols() -> Vec<Protocol> {
    let greeting = Setting::new("greeting", Kind::Choice(&["hello", "hi"]), "What is said first");
    let echo = |name| Protocol::new(name, "sends back", |_| Ok(Config::accept(Echo.behaviour())));
    vec![echo("echo"), echo("polite").setting(greeting)]
}

fn parse(text: &str, format: Format) -> Result<Document, Vec<Mistake>> {
    Document::parse(text, format, Known { protocols: &protocols() })
}

const RIGHT: &str = r#"
metrics = "127.0.0.1:9464"

[pool.web]
protocol = "polite"
greeting = "hi"
listen = ["127.0.0.1:0", "unix:/run/a,b.sock,limit=5"]
limit = "10k"
idle = 30
accept-rate = 0.5
nodelay = false
send-buffer = "64k"

[pool.other]
protocol = "echo"
listen = 9000
"#;

#[test]
fn a_right_file_is_read_and_written_as_json_that_reads_equal() {
    let document = parse(RIGHT, Format::Toml).expect("it is right");
    let web = &document.pools["web"].values;
    assert_eq!(
        (web.count("limit"), web.time("idle"), web.rate("accept-rate")),
        (Some(10_000), Some(Duration::from_secs(30)), Some(0.5))
    );
    assert_eq!((web.switch("nodelay"), web.count("send-buffer"), web.text("greeting")), (Some(false), Some(65_536), Some("hi")));
    assert_eq!(web.list("listen"), ["127.0.0.1:0", "unix:/run/a,b.sock,limit=5"]);
    assert_eq!(document.pools["other"].values.list("listen"), ["9000"]);
    assert_eq!(document.program.text("metrics"), Some("127.0.0.1:9464"));
    let json = serde_json::to_string(&document).expect("JSON");
    assert_eq!(parse(&json, Format::Json).expect(&json), document);
}

#[test]
fn each_mistake_is_told_with_its_line_and_what_to_write() {
    let pool = |lines: &str| format!("[pool.web]\nprotocol = \"polite\"\nlisten = 1\n{lines}\n");
    let wrong = [
        (pool("limt = 5"), "4:1: pool.web.limt: unknown setting `limt`: did you mean `limit`?"),
        (pool("limit = 0"), "4:9: pool.web.limit: `0`: must be at least 1"),
        (pool("limit = [5]"), "4:9: pool.web.limit: a list is no value of it: write N"),
        (pool("limit = 1979-05-27"), "4:9: pool.web.limit: a date is no value of it"),
        (pool("  idle   = \"soon\""), "4:12: pool.web.idle: `soon`: not a time: write 5 or 5s"),
        (pool("model = \"loop\""), "4:9: pool.web.model: unknown model `loop`: did you mean `loops`?"),
        (pool("greeting = \"hey\""), "4:12: pool.web.greeting: unknown greeting `hey`: there are hello, hi"),
        (pool("alarm = [\"9/8\", \"8/9\"]"), "4:17: pool.web.alarm: `8/9`: not an alarm"),
        (pool("slow = 1"), "4:1: pool.web.slow: unknown setting `slow`"),
        (
            pool("model = \"threads\"\nworkers = 5"),
            "5:11: pool.web.workers is an option of the models prefork, loops and tasks, not of",
        ),
        (pool("low-water = \"64k\"\nhigh-water = \"32k\""), "4:13: pool.web.low-water: the low-water mark is above the high one"),
        (pool("keepalive-probes = 3"), "4:20: pool.web.keepalive-probes is for keepalive, which is not set"),
        (
            "[pool.web]\nprotocol = \"echo\"\nlisten = [\"systemd:a\", \"systemd:a\"]".to_owned(),
            "3:10: pool.web.listen: unix:@systemd/a is named twice",
        ),
        (pool("max-per-peer = \"5/33\""), "4:16: pool.web.max-per-peer: `5/33`: has no prefix of 0 to 32 bits"),
        (pool("[pool.web.x]\na = 1"), "4:11: pool.web.x: unknown setting `x`"),
        (
            "[pool.web]\nprotocol = \"ehco\"\n".to_owned(),
            "2:12: pool.web.protocol: unknown protocol `ehco`: did you mean `echo`?",
        ),
        ("[pool.web]\nlisten = 1\n".to_owned(), "1:7: pool.web has no protocol: write protocol = and one of echo, polite"),
        ("[pool.web]\nprotocol = \"echo\"\n".to_owned(), "1:7: pool.web listens nowhere: write listen"),
        ("[pool.Web]\nprotocol = \"echo\"\nlisten = 1\n".to_owned(), "1:7: `Web` is no name of a pool"),
        (
            "[pool.control]\nprotocol = \"echo\"\nlisten = 1\n".to_owned(),
            "1:7: `control` is no name of a pool: the program has a pool of its own",
        ),
        ("[pool]\nweb = 5\n".to_owned(), "2:7: pool.web is a table: write [pool.web]"),
        ("pool = 5".to_owned(), "1:8: pool is a table of pools"),
        ("metric = \"1\"".to_owned(), "1:1: metric: unknown setting `metric`: did you mean `metrics`?"),
        (String::new(), "no pool: write one"),
        (
            "[pool.web]\nlisten = \"systemd:\"\nprotocol = \"echo\"".to_owned(),
            "2:10: pool.web.listen: `systemd:`: names no socket",
        ),
        (
            "[pool.web]\nlisten = \"1,limt=5\"\nprotocol = \"echo\"".to_owned(),
            "unknown option of an address `limt`: did you mean `limit`?",
        ),
        ("[pool.web]\nlisten = \"*:80\"\nprotocol = \"echo\"".to_owned(), "did you mean 0.0.0.0:80"),
        ("[pool.web\n".to_owned(), "1:10: not TOML: "),
        ("limit = \"é\" x".to_owned(), "1:13: not TOML: "),
    ];
    for (text, why) in wrong {
        let mistakes = parse(&text, Format::Toml).expect_err(&text);
        let told = mistakes[0].to_string();
        assert!(told.contains(why), "{told}\nof {text}");
        assert!(!told.contains('\n'), "{told}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = "metric = 1\n[pool.a]\nprotocol = \"echo\"\nlisten = \"x y\"\nlimit = -1\n[pool.b]\n";
    let mistakes = parse(text, Format::Toml).expect_err("it is wrong");
    let lines: Vec<usize> = mistakes.iter().filter_map(|mistake| Some(mistake.at?.0)).collect();
    assert_eq!((lines.len(), [1, 4, 5, 6].iter().all(|line| lines.contains(line))), (4, true), "{mistakes:?}");
}

#[test]
fn json_is_refused_with_the_name_of_the_setting() {
    let wrong = [
        ("{\"pool\":{\"a\":{\"protocol\":\"echo\",\"listen\":[null]}}}", "pool.a.listen: a null is no value of it"),
        ("{\"pool\":", "1:8: not an object of JSON"),
        ("[]", "not an object of JSON"),
        ("", "not an object of JSON"),
    ];
    for (text, why) in wrong {
        let told = parse(text, Format::Json).expect_err(text)[0].to_string();
        assert!(told.contains(why), "{told}");
    }
    let long = format!("# {}", "x".repeat(MAX_BYTES));
    assert!(parse(&long, Format::Toml).expect_err("it is long")[0].what.contains("more than 1048576"));
}
