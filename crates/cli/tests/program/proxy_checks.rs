//! `serve proxy` with checks of its targets: one that answers wrongly, late or not at all gets no new clients, and keeps those that it has.

use crate::operated::Operated;
use crate::program::Program;
use crate::tls::certificate;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const GOOD: u8 = 0;
const WRONG: u8 = 1;
const SILENT: u8 = 2;

/// A server that says `PONG` to `PING` when all is well with it, and its name to all else.
struct Backend {
    at: String,
    state: Arc<AtomicU8>,
}

impl Backend {
    fn new() -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let at = listener.local_addr().expect("it is bound").to_string();
        let (name, state) = (at.clone(), Arc::new(AtomicU8::new(GOOD)));
        let its = state.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (name, its) = (name.clone(), its.clone());
                thread::spawn(move || serve(client.expect("a client"), &name, &its));
            }
        });
        Backend { at, state }
    }

    fn becomes(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }
}

fn serve(mut client: TcpStream, name: &str, state: &AtomicU8) {
    let lines = BufReader::new(client.try_clone().expect("a copy")).lines();
    for line in lines.map_while(Result::ok) {
        let answer = match (line.as_str(), state.load(Ordering::Relaxed)) {
            ("PING", GOOD) => "PONG",
            ("PING", WRONG) => "LOADING",
            ("PING", _) => continue,
            _ => name,
        };
        // A client may be gone.
        let _ = client.write_all(format!("{answer}\n").as_bytes());
    }
}

/// Returns the target that a client has.
fn target_of(client: &mut TcpStream) -> String {
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("not zero");
    client.write_all(b"NAME\n").expect("it stands");
    let (mut name, mut byte) = (String::new(), [0]);
    while client.read_exact(&mut byte).is_ok() && byte != *b"\n" {
        name.push(byte[0] as char);
    }
    name
}

fn file(model: &str, targets: &[&str], settings: &str) -> String {
    let targets: Vec<String> = targets.iter().map(|target| format!("\"{target}\"")).collect();
    format!(
        "upgrade = \"upgrade\"\n[pool.proxy]\nprotocol = \"proxy\"\nmodel = \"{model}\"\nlisten = \"127.0.0.1:0\"\nto = [{}]\n\
         balance = \"rotate\"\n{settings}\n",
        targets.join(", ")
    )
}

const CHECKS: &str = "check-every = \"100ms\"\ncheck-send = 'PING\\n'\ncheck-expect = 'PONG'\ncheck-timeout = \"2s\"";

/// Returns what a check has found next.
fn found(server: &mut Operated) -> String {
    server.event(&["Checked"])["text"].as_str().expect("a text").to_owned()
}

/// Returns the targets of four new clients, which stay, each once.
fn targets(server: &Operated, clients: &mut Vec<TcpStream>) -> Vec<String> {
    clients.extend((0..4).map(|_| TcpStream::connect(&server.addresses[0]).expect("it listens")));
    let new = clients.len() - 4;
    let mut names: Vec<String> = clients[new..].iter_mut().map(target_of).collect();
    names.sort();
    names.dedup();
    names
}

/// Waits until new clients get these targets, once the last change is in force, and each process has had its turn.
fn come_to(server: &Operated, clients: &mut Vec<TcpStream>, expected: &[String]) {
    let until = Instant::now() + Duration::from_secs(20);
    while targets(server, clients) != expected {
        assert!(Instant::now() < until, "they do not come to {expected:?}");
    }
}

#[test]
fn a_target_that_answers_wrongly_or_not_at_all_gets_no_new_clients_until_it_does() {
    for model in ["loops", "prefork"] {
        let (one, other) = (Backend::new(), Backend::new());
        let mut server = Operated::told(&format!("proxy-checks-{model}"), &file(model, &[&one.at, &other.at], CHECKS), |_| {});
        let (mut clients, mut both) = (Vec::new(), vec![one.at.clone(), other.at.clone()]);
        both.sort();
        come_to(&server, &mut clients, &both);
        let had = target_of(&mut clients[0]);
        for (state, why) in
            [(WRONG, "`LOADING\\n` came in a check, and `PONG` was expected"), (SILENT, "no answer to a check within 2s")]
        {
            one.becomes(state);
            assert_eq!(found(&mut server), format!("target {}: {why}; left out until a check succeeds", one.at));
            server.event(&["Changed"]);
            assert_eq!(targets(&server, &mut clients), [&*other.at], "{model}: {why}");
            let shown = server.says("show targets");
            let line = shown.lines().find(|line| line.contains(&one.at)).expect("its line").to_owned();
            assert!(model == "prefork" || line.contains("check fails") && line.ends_with(why), "{shown}");
            assert_eq!(target_of(&mut clients[0]), had, "who has it keeps it");
            one.becomes(GOOD);
            assert_eq!(found(&mut server), format!("target {} is back", one.at));
            server.event(&["Changed"]);
            come_to(&server, &mut clients, &both);
        }
        // The last one is never left out.
        [&one, &other].into_iter().for_each(|backend| backend.becomes(WRONG));
        let mut told = String::new();
        while !both.iter().all(|at| told.contains(at.as_str())) {
            told.push_str(&found(&mut server));
        }
        // Where one was found earlier, the other got all clients for a moment.
        come_to(&server, &mut clients, &both);
        other.becomes(GOOD);
        assert_eq!(found(&mut server), format!("target {} is back", other.at));
        come_to(&server, &mut clients, std::slice::from_ref(&other.at));
        server.says("upgrade");
        assert_eq!(target_of(&mut clients[0]), had, "it moved");
        // The next build knows what this one has found, and this one, which stands by, checks no more.
        while server.event(&["Changed"])["pid"] == server.pid() {}
        assert_eq!(targets(&server, &mut clients), [&*other.at], "{model}");
        let shown = server.says("show targets");
        assert!(model == "prefork" || shown.contains("check fails"), "{shown}");
        let wrong = format!(
            "target {}: `LOADING\\n` came in a check, and `PONG` was expected; left out until a check succeeds",
            other.at
        );
        for (backend, state, finding) in [(&one, GOOD, format!("target {} is back", one.at)), (&other, WRONG, wrong)] {
            backend.becomes(state);
            let told = server.event(&["Checked", "ChangeFailed"]);
            assert_eq!((&told["event"], &told["text"]), (&"Checked".into(), &finding.into()), "{told}");
            server.event(&["Changed"]);
            let expected = if state == WRONG { std::slice::from_ref(&one.at) } else { &both[..] };
            come_to(&server, &mut clients, expected);
        }
    }
}

#[test]
fn a_check_is_made_by_tls_where_the_target_is_and_its_certificate_counts() {
    let (of_target, other) = (certificate(|_| {}), certificate(|_| {}));
    let [chain, key] = of_target.files("proxy-checks-tls");
    let secured = || {
        let mut server = Program::of(&format!("serve echo -l 127.0.0.1:0 --tls-cert {chain} --tls-key {key}"));
        let at = server.line().strip_prefix("listening on ").expect("where").to_owned();
        (server, at)
    };
    let ((_one, one_at), (_other, other_at)) = (secured(), secured());
    let settings = "tls-to = \"targets.pem\"\ncheck-every = \"100ms\"\ncheck-send = 'back'\ncheck-expect = 'back'";
    let file = file("loops", &[&one_at, &other_at], settings);
    let mut server = Operated::told("proxy-checks-tls", &file, |server| server.put("targets", &of_target));
    let mut client = TcpStream::connect(&server.addresses[0]).expect("it listens");
    assert!(!target_of(&mut client).is_empty(), "the target is connected to");
    // All checks fail from now on, and none before.
    server.put("targets", &other);
    let told = found(&mut server);
    assert!(told.starts_with("target 127.0.0.1:") && told.contains(": the peer's certificate is signed by no"), "{told}");
}

#[test]
fn what_cannot_be_checked_is_refused() {
    for (words, why) in [
        ("--check-send PING", "check-send and check-expect are for check-every: say how often, as in check-every = \"2s\""),
        (
            r"--check-every 1s --check-send \q",
            r"--check-send: `\q` begins no escape: there are \r, \n, \t, \0, \\ and \xNN (hexadecimal)",
        ),
        ("--check-timeout 1s", "check-timeout is for check-every: say how often, as in check-every = \"2s\""),
        ("--check-every 0s", "--check-every 0s: must be more than 0: write 50ms or 5s"),
    ] {
        let end = Program::of(&format!("serve proxy --to 127.0.0.1:1 {words}")).end();
        assert_eq!(end.code, Some(2), "{words}");
        assert_eq!(end.stderr, format!("error: {why} (try: sockdrawer serve --help)\n"), "{words}");
    }
}
