//! `sockdrawer trial TARGET --send S --expect S`: a server with a protocol of its own, in the clear and under TLS.

use serde_json::Value;
use sockdrawer::{Behaviour, Config, Context, Input, IntoBehaviour, Peer, Pool, Protocol, Service, Step};
use sockdrawer_tls::{Identity, Server};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

const LOGIN: [&str; 4] = ["--connect-send", r"LOGIN {n}\n", "--connect-expect", r"OK\n"];
const PING: [&str; 4] = ["--send", r"PING {n}\n", "--expect", r"PONG {n}\n"];

/// Wants a login first, once, then answers `PING number` by `PONG number`: after 1,000 questions, each tenth gets the number of the one
/// before it if `mixes`.
#[derive(Clone)]
struct Lines {
    mixes: bool,
    asked: Arc<Mutex<(u64, String)>>,
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
                    let mixes = self.lines.mixes && asked.0 > 1_000 && asked.0.is_multiple_of(10);
                    cx.send(format!("PONG {}\n", if mixes { &before } else { number }).as_bytes());
                }
                _ => cx.send(b"ERR\n"),
            }
        }
        Step::Continue
    }
}

fn lines(mixes: bool) -> Behaviour {
    Lines { mixes, asked: Arc::default() }.into_behaviour()
}

fn serve(behaviour: Behaviour) -> (Pool, String) {
    let pool = Pool::start(Config::accept(behaviour).listen("127.0.0.1:0")).expect("it starts");
    let address = pool.addresses()[0].to_string();
    (pool, address)
}

fn trial(address: &str, own: &[&[&str]]) -> (Output, String) {
    let all = ["trial", address, "--change", "true", "--every", "200ms", "--changes", "3", "--kept", "10", "--json", "-"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_sockdrawer")).args(all).args(own.concat()).output().expect("the program was built");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let told = format!("{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    (output, told)
}

fn report(output: &Output, told: &str) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {told}"))
}

fn is_good(output: &Output, told: &str) {
    let report = report(output, told);
    assert_eq!(
        (output.status.code(), &report["verdict"], &report["workload"]),
        (Some(0), &"good".into(), &"script".into()),
        "{told}"
    );
    assert!(report["connects"].as_u64() > Some(60) && report["kept_round_trips"].as_u64() > Some(30), "{told}");
}

#[test]
fn a_sound_server_with_a_protocol_of_its_own_loses_nothing() {
    let identity = Identity::self_signed("lines", &["localhost"]).expect("a certificate");
    let tls = Server::new([identity]).build().expect("a server");
    for (behaviour, more) in [(lines(false), &[][..]), (lines(false).layered(tls), &["--tls", "--insecure"])] {
        let (_pool, address) = serve(behaviour);
        let (output, told) = trial(&address, &[&LOGIN, &PING, more]);
        is_good(&output, &told);
        assert!(told.contains(r": 3 changes by `true`") && told.contains(r"`PING {n}\n` answered by `PONG {n}\n`"), "{told}");
    }
}

#[test]
fn an_answer_to_another_question_is_wrong() {
    let (_pool, address) = serve(lines(true));
    let (output, told) = trial(&address, &[&LOGIN, &PING]);
    let report = report(&output, &told);
    assert_eq!((output.status.code(), &report["verdict"]), (Some(1), &"bad".into()), "{told}");
    assert!(report["wrong_bytes"].as_u64() > Some(0) && report["reasons"].to_string().contains("wrong bytes"), "{told}");
    let odd = report["odd_answer"].as_str().expect("it is described");
    assert!(odd.starts_with("after `PING ") && odd.contains(r"`PONG {n}\n` was expected, with the number "), "{odd}");
}

#[test]
fn a_server_that_answers_otherwise_is_told_with_its_answer_before_anything_is_changed() {
    let (_pool, address) = serve(lines(false));
    let (output, told) = trial(&address, &[&PING]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{told}");
    let line = r"does not answer as the workload expects: after `PING 1\n` `PONG {n}\n` was expected, with the number 1, and `ERR\n` came";
    assert!(told.contains(line), "{told}");
}

#[test]
fn several_exchanges_come_from_a_file() {
    let file = std::env::temp_dir().join(format!("sockdrawer-exchanges-{}", std::process::id()));
    let path = file.to_str().expect("text");
    std::fs::write(
        &file,
        "# A login.\n>> LOGIN {n}\\n\n<< OK\\n\n\n> PING a{n}\\n\n< PONG a{n}\\n\n> PING b\\n\n< /PONG [ab]\\n/\n",
    )
    .expect("a file");
    let (_pool, address) = serve(lines(false));
    let (output, told) = trial(&address, &[&["--exchanges", path]]);
    is_good(&output, &told);
    assert!(told.contains(r"`PING a{n}\n` answered by `PONG a{n}\n` and 1 more"), "{told}");
    std::fs::write(&file, "> PING {n}\\n\n> PING\\n\n").expect("a file");
    let (output, told) = trial(&address, &[&["--exchanges", path]]);
    std::fs::remove_file(&file).expect("it was written");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{told}");
    assert!(
        told.contains(&format!(r"--exchanges {path}: line 2: nothing is expected after `PING {{n}}\n`: write < and the answer")),
        "{told}"
    );
}
