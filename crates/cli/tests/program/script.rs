//! `sockdrawer trial TARGET --send S --expect S`: a server with a protocol of its own, in the clear and under TLS.

use serde_json::Value;
use sockdrawer::{Behaviour, Config, Context, Groups, Input, IntoBehaviour, Note, Peer, Pool, Protocol, Service, Step};
use sockdrawer_tls::{Identity, Server};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const LOGIN: [&str; 4] = ["--connect-send", r"LOGIN {n}\n", "--connect-expect", r"OK\n"];
const PING: [&str; 4] = ["--send", r"PING {n}\n", "--expect", r"PONG {n}\n"];

const NEWS: [&str; 8] =
    ["--subscribe", r"SUB\n", "--subscribe-expect", r"OK\n", "--publish", r"PUB {n}\n", "--publish-expect", r"/MSG {n}\n/"];

/// Wants a login first, once, then answers `PING number` by `PONG number`, and passes `PUB text` on to all that sent `SUB`. Once the file
/// `fails` is there, each third question gets the number of the one before it, and each third message is passed on to nobody.
#[derive(Clone)]
struct Lines {
    fails: PathBuf,
    asked: Arc<Mutex<(u64, String)>>,
    published: Arc<AtomicU64>,
    topics: Groups,
}

struct Speaking {
    lines: Lines,
    is_in: bool,
}

impl Service for Lines {
    type Protocol = Speaking;

    fn open(&self, _peer: &Peer) -> Speaking {
        Speaking { lines: self.clone(), is_in: false }
    }
}

impl Protocol for Speaking {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            let line = String::from_utf8_lossy(line).into_owned();
            match (line.split_once(' '), std::mem::replace(&mut self.is_in, true)) {
                (Some(("LOGIN", _)), false) => cx.send(b"OK\n"),
                (Some(("PING", number)), true) => {
                    let mut asked = self.lines.asked.lock().expect("no test panics with it");
                    asked.0 += 1;
                    let before = std::mem::replace(&mut asked.1, number.to_owned());
                    let mixes = asked.0.is_multiple_of(3) && self.lines.fails.exists();
                    cx.send(format!("PONG {}\n", if mixes { &before } else { number }).as_bytes());
                }
                (None, true) if line == "SUB" => {
                    cx.join(&self.lines.topics.get(b"news"));
                    cx.send(b"OK\n");
                }
                (Some(("PUB", text)), true) => {
                    let count = self.lines.published.fetch_add(1, Ordering::Relaxed);
                    if !(count.is_multiple_of(3) && self.lines.fails.exists()) {
                        cx.publish(&self.lines.topics.get(b"news"), format!("MSG {text}\n").into_bytes());
                    }
                }
                _ => cx.send(b"ERR\n"),
            }
        }
        Step::Continue
    }

    fn notified(&mut self, message: Note, cx: &mut Context<'_>) -> Step {
        cx.send(message.bytes().unwrap_or_default());
        Step::Continue
    }
}

/// Returns a name of a file in the folder for temporary ones.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sockdrawer-script-{}-{name}", std::process::id()))
}

fn lines(fails: PathBuf) -> Behaviour {
    Lines { fails, asked: Arc::default(), published: Arc::default(), topics: Groups::default() }.into_behaviour()
}

fn serve(behaviour: Behaviour) -> (Pool, String) {
    let pool = Pool::start(Config::accept(behaviour).listen("127.0.0.1:0")).expect("it starts");
    let address = pool.addresses()[0].to_string();
    (pool, address)
}

fn trial(address: &str, change: &str, own: &[&[&str]]) -> (Output, String) {
    let all = ["trial", address, "--change", change, "--every", "1s", "--changes", "2", "-c", "4", "--kept", "10", "--json", "-"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_sockdrawer")).args(all).args(own.concat()).output().expect("the program was built");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let told = format!("{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    (output, told)
}

fn report(output: &Output, told: &str) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {told}"))
}

/// Checks that the verdict is good. A busy machine may be too slow for a connect under each change, which is inconclusive; nothing may be lost.
fn is_good(output: &Output, told: &str) {
    let report = report(output, told);
    let is_short = report["reasons"].as_array().is_some_and(|reasons| {
        report["verdict"] == "inconclusive"
            && reasons.iter().all(|one| one.as_str().is_some_and(|one| one.starts_with("no connect ended during change")))
    });
    assert!(is_short || (output.status.code(), &report["verdict"]) == (Some(0), &"good".into()), "{told}");
    assert_eq!(report["workload"], "script", "{told}");
    assert!(report["kept_round_trips"].as_u64() > Some(30), "{told}");
}

#[test]
fn a_sound_server_with_a_protocol_of_its_own_loses_nothing() {
    let identity = Identity::self_signed("lines", &["localhost"]).expect("a certificate");
    let tls = Server::new([identity]).build().expect("a server");
    for (behaviour, more) in
        [(lines(PathBuf::from("/none")), &[][..]), (lines(PathBuf::from("/none")).layered(tls), &["--tls", "--insecure"])]
    {
        let (_pool, address) = serve(behaviour);
        let (output, told) = trial(&address, "true", &[&LOGIN, &PING, more]);
        is_good(&output, &told);
        assert!(told.contains(r": 2 changes by `true`") && told.contains(r"`PING {n}\n` answered by `PONG {n}\n`"), "{told}");
    }
}

#[test]
fn an_answer_to_another_question_is_wrong() {
    let fails = file("mixes");
    let (_pool, address) = serve(lines(fails.clone()));
    let (output, told) = trial(&address, &format!("touch {}", fails.display()), &[&LOGIN, &PING]);
    std::fs::remove_file(&fails).expect("the command made it");
    let report = report(&output, &told);
    assert_eq!((output.status.code(), &report["verdict"]), (Some(1), &"bad".into()), "{told}");
    assert!(report["wrong_bytes"].as_u64() > Some(0) && report["reasons"].to_string().contains("wrong bytes"), "{told}");
    let odd = report["odd_answer"].as_str().expect("it is described");
    assert!(odd.starts_with("after `PING ") && odd.contains(r"`PONG {n}\n` was expected, with the number "), "{odd}");
}

#[test]
fn a_server_that_answers_otherwise_is_told_with_its_answer_before_anything_is_changed() {
    let (_pool, address) = serve(lines(PathBuf::from("/none")));
    let (output, told) = trial(&address, "true", &[&PING]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{told}");
    let line = r"does not answer as the workload expects: after `PING 1\n` `PONG {n}\n` was expected, with the number 1, and `ERR\n` came";
    assert!(told.contains(line), "{told}");
}

#[test]
fn several_exchanges_come_from_a_file() {
    let file = file("exchanges");
    let path = file.to_str().expect("text");
    std::fs::write(
        &file,
        "# A login.\n>> LOGIN {n}\\n\n<< OK\\n\n\n> PING a{n}\\n\n< PONG a{n}\\n\n> PING b\\n\n< /PONG [ab]\\n/\n",
    )
    .expect("a file");
    let (_pool, address) = serve(lines(PathBuf::from("/none")));
    let (output, told) = trial(&address, "true", &[&["--exchanges", path]]);
    is_good(&output, &told);
    assert!(told.contains(r"`PING a{n}\n` answered by `PONG a{n}\n` and 1 more"), "{told}");
    std::fs::write(&file, "> PING {n}\\n\n> PING\\n\n").expect("a file");
    let (output, told) = trial(&address, "true", &[&["--exchanges", path]]);
    std::fs::remove_file(&file).expect("it was written");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{told}");
    assert!(
        told.contains(&format!(r"--exchanges {path}: line 2: nothing is expected after `PING {{n}}\n`: write < and the answer")),
        "{told}"
    );
}

#[test]
fn clients_that_hear_each_other_hear_all_of_a_sound_server() {
    let identity = Identity::self_signed("lines", &["localhost"]).expect("a certificate");
    let tls = Server::new([identity]).build().expect("a server");
    for (behaviour, more) in
        [(lines(PathBuf::from("/none")), &[][..]), (lines(PathBuf::from("/none")).layered(tls), &["--tls", "--insecure"])]
    {
        let (_pool, address) = serve(behaviour);
        let (output, told) = trial(&address, "true", &[&LOGIN, &PING, &NEWS, more]);
        is_good(&output, &told);
        let messages = &report(&output, &told)["messages"];
        let count = |name: &str| messages[name].as_u64().unwrap_or_else(|| panic!("no {name}: {told}"));
        assert!(count("published") > 20 && count("heard") > 5 * count("published"), "{told}");
        assert_eq!((count("lost"), count("doubled"), count("out_of_order")), (0, 0, 0), "{told}");
        assert_eq!(messages["senders"].as_array().map(Vec::len), Some(10), "{told}");
        assert!(told.contains(r"10 that stay and publish `PUB {n}\n` heard by all as `/MSG {n}\n/`, seed "), "{told}");
        let verdict = format!("0 wrong bytes, messages: {} published, {} heard, 0 lost, ", count("published"), count("heard"));
        assert!(told.contains(&verdict) || report(&output, &told)["verdict"] == "inconclusive", "{told}");
    }
}

#[test]
fn messages_that_a_server_loses_are_counted_by_sender() {
    let fails = file("loses");
    let (_pool, address) = serve(lines(fails.clone()));
    let hello = ["--send", r"PUB\n", "--expect", r"ERR\n"];
    let (output, told) = trial(&address, &format!("touch {}", fails.display()), &[&LOGIN, &hello, &NEWS]);
    std::fs::remove_file(&fails).expect("the command made it");
    let report = report(&output, &told);
    assert_eq!((output.status.code(), &report["verdict"]), (Some(1), &"bad".into()), "{told}");
    let lost = report["messages"]["lost"].as_u64().expect("a count");
    let senders = report["messages"]["senders"].as_array().expect("a list");
    assert_eq!(senders.iter().filter_map(|sender| sender["lost"].as_u64()).sum::<u64>(), lost, "{told}");
    assert_eq!(report["reasons"], serde_json::json!([format!("{lost} messages lost, 0 doubled, 0 out of order")]), "{told}");
    assert!(lost > 0 && told.contains("\nsender ") && told.contains("\nmessages of 10 senders: "), "{told}");
}

#[test]
fn a_message_of_another_form_is_told_before_anything_is_changed() {
    let (_pool, address) = serve(lines(PathBuf::from("/none")));
    let other = [&NEWS[..7], &[r"NEWS {n}\n"]].concat();
    let (output, told) = trial(&address, "true", &[&LOGIN, &PING, &other]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{told}");
    assert!(told.contains(r"workload expects: a message as `NEWS {n}\n` was expected, and `MSG "), "{told}");
}
