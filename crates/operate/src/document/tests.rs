//! Configurations that are right, and each kind of mistake with its place.

use super::*;
use crate::Kind;
use sockdrawer::Config;
use sockdrawer_catalog::echo::Echo;
use std::time::Duration;

fn known() -> Known {
    let greeting = Setting::new("greeting", Kind::Choice(&["hello", "hi"]), "What is said first");
    let echo = |name| Protocol::new(name, "sends back", |_| Ok(Config::accept(Echo.behaviour())));
    let protocols = vec![echo("echo"), echo("polite").setting(greeting)];
    Known { protocols, settings: vec![Setting::new("rooms", Kind::Count(1), "How many there may be")], ..Known::default() }
}

fn parse(text: &str, format: Format) -> Result<Document, Vec<Mistake>> {
    Document::parse(text, format, &known(), |_| ())
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
        (pool("limit = [5]"), "4:9: pool.web.limit: a list is no count: write a number such as 250"),
        (pool("limit = 1979-05-27"), "4:9: pool.web.limit: a date is no count: write a number such as 250"),
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
        ("pool = 5".to_owned(), "1:8: pool is a table of pools"),
        (pool("metrics = \"1\""), "4:1: pool.web.metrics: a setting of the program: write it above the first [pool.NAME]"),
        ("limit = 5".to_owned(), "1:1: limit: a setting of a pool: write it below its [pool.NAME]"),
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
    wrong.iter().for_each(|(text, why)| is_wrong(text, why));
}

/// Checks that the first mistake of a text is told with these words.
#[track_caller]
fn is_wrong(text: &str, why: &str) {
    let mistakes = parse(text, Format::Toml).expect_err(text);
    let told = mistakes[0].to_string();
    assert!(told.contains(why), "{told}\nof {text}");
    assert!(!told.contains('\n'), "{told}");
}

#[test]
fn what_is_right_by_itself_and_wrong_beside_another_is_told_with_both_places() {
    let pool = |lines: &str| format!("[pool.web]\nprotocol = \"polite\"\nlisten = 1\n{lines}\n");
    let wrong = [
        ("[pool]\nweb = 5\n".to_owned(), "2:1: pool.web is no pool: a pool has a name of its own, write [pool.NAME]"),
        (pool("listen = 2"), "4:1: pool.web.listen is there twice, first in line 3: leave one out"),
        (pool("[pool.web]\nlimit = 2"), "[pool.web] is there twice, first in line 1"),
        (pool("limit = 99999999999999999999"), "4:9: pool.web.limit: `99999999999999999999`: too large"),
        (pool("keepalive = \"10h\""), "4:13: pool.web.keepalive: `10h`: must be at most "),
        (pool("keepalive = 5\nkeepalive-probes = 200"), "5:20: pool.web.keepalive-probes: `200`: must be at most 127"),
        (pool("user-timeout = \"600h\""), "4:16: pool.web.user-timeout: `600h`: must be at most "),
        (pool("idle = 1979-05-27"), "4:8: pool.web.idle: a date is no time: write \"5s\", \"50ms\", \"2m\" or \"1h\""),
        (
            "[pool.web]\nprotocl = \"echo\"\nlisten = 1".to_owned(),
            "2:1: pool.web.protocl: unknown setting `protocl`: did you mean `protocol`?",
        ),
        (
            "[pool.web]\nprotocol = \"echo\"\nlisten = 1\ngreeting = \"hi\"".to_owned(),
            "4:1: pool.web.greeting: a setting of the protocol polite: leave it out, or choose that protocol",
        ),
        (
            pool("[pool.z]\nprotocol = \"echo\"\nlisten = [2, 1]"),
            "6:10: pool.z.listen: 127.0.0.1:1 is that of pool.web.listen too: choose another",
        ),
        (
            pool("[pool.z]\nprotocol = \"echo\"\nlisten = \"0.0.0.0:1\""),
            "6:10: pool.z.listen: 0.0.0.0:1 is at the port of pool.web.listen, 127.0.0.1:1: choose another port",
        ),
        (format!("metrics = 1\n{}", pool("")), "4:10: pool.web.listen: 127.0.0.1:1 is that of metrics too"),
        (format!("control = \"/{}\"\n{}", "x".repeat(129), pool("")), "has 130 bytes, and Linux allows 107 for a socket"),
    ];
    wrong.iter().for_each(|(text, why)| is_wrong(text, why));
}

#[test]
fn all_mistakes_are_told_at_once() {
    // Neither a misspelt protocol nor another mistake of the pool hides what is wrong besides.
    for text in [
        "[pool.a]\nprotocl = \"echo\"\nlisten = \"x y\"\nlimit = 0",
        "[pool.a]\nprotocol = \"echo\"\nlisten = 1\nlimit = 0\nlow-water = \"64k\"\nhigh-water = \"32k\"\nidel = 1",
    ] {
        assert_eq!(parse(text, Format::Toml).expect_err("it is wrong").len(), 3, "{text}");
    }
    // A mistake that may follow from another one is not told.
    let text = "[pool.a]\nprotocol = \"echo\"\nlisten = 1\nlow-water = \"128k\"\nhigh-watr = \"1m\"";
    assert_eq!(parse(text, Format::Toml).expect_err("it is wrong").len(), 1);
    let text = "metric = 1\n[pool.a]\nprotocol = \"echo\"\nlisten = \"x y\"\nlimit = -1\n[pool.b]\n";
    let mistakes = parse(text, Format::Toml).expect_err("it is wrong");
    let lines: Vec<usize> = mistakes.iter().filter_map(|mistake| Some(mistake.at?.0)).collect();
    assert_eq!((lines.len(), [1, 4, 5, 6].iter().all(|line| lines.contains(line))), (4, true), "{mistakes:?}");
}

#[test]
fn json_is_refused_with_the_name_of_the_setting() {
    let wrong = [
        ("{\"pool\":{\"a\":{\"protocol\":\"echo\",\"listen\":[null]}}}", "pool.a.listen: a null is no value of it"),
        ("{\"pool\":{\"a\":{\"protocol\":\"echo\",\n \"listen\":[1,\n null]}}}", "3:2: pool.a.listen: a null is no value of it"),
        ("{\"pool\":{\"a\":{\"protocol\":\"echo\",\"listen\":1,\n\"limt\\u0021\":1}}}", "2:1: pool.a.limt!: unknown setting"),
        (
            "{\"pool\":{\"a\":{\"protocol\":\"echo\",\"listen\":1},\n \"a\":{\"protocol\":\"echo\",\"listen\":2}}}",
            "2:2: pool.a is there twice, first in line 1: leave one out",
        ),
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
