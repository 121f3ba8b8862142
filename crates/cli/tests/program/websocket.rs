//! Load and trials by WebSocket: what is counted is what the server counts, and each way in which a handshake fails has its line.

use crate::program::{End, Program, load};
use crate::report::{number, numbers, report};
use crate::runs::Folder;
use crate::strangers::{address, start};
use crate::tls::certificate;
use rustix::process::Signal;
use serde_json::{Value, json};
use sockdrawer::layer::Layer;
use sockdrawer::{Config, Drain, IntoBehaviour, Pool, Selector, Step};
use sockdrawer_tls::{Identity, Server};
use sockdrawer_websocket::{Answer, Message, MessageProtocol, MessageService, Opening, Socket, WebSocket};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sends each message back, at one path, to clients of one origin, and counts.
#[derive(Clone, Default)]
struct Echo(Arc<Counts>);

#[derive(Default)]
struct Counts {
    opened: AtomicU64,
    texts: AtomicU64,
    bytes: AtomicU64,
}

impl MessageService for Echo {
    type Protocol = Echo;
    fn open(&self, opening: &mut Opening<'_>) -> Result<Echo, Answer> {
        if opening.request().path != "/echo" {
            return Err(Answer::error(404, "only /echo is here"));
        }
        if opening.subprotocols().any(|name| name == "b") {
            opening.choose("b");
        }
        self.0.opened.fetch_add(1, Ordering::Relaxed);
        Ok(self.clone())
    }
}

impl MessageProtocol for Echo {
    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
        match message {
            Message::Text(_) => self.0.texts.fetch_add(1, Ordering::Relaxed),
            Message::Binary(_) => self.0.bytes.fetch_add(1, Ordering::Relaxed),
        };
        socket.send(message);
        Step::Continue
    }
}

/// Starts a server in this process, and returns it with its address.
fn serving(behaviour: impl IntoBehaviour) -> (Pool, String) {
    let listen = "127.0.0.1:0".parse::<sockdrawer::Address>().expect("an address");
    let pool = Pool::start(Config::accept(behaviour).listen(listen).loops(1).workers(0)).expect("a free port");
    let address = pool.addresses()[0].to_string();
    (pool, address)
}

#[track_caller]
fn ran_well(words: &str) -> Value {
    let end = load(&format!("{words} --json -"));
    assert_eq!(end.code, Some(0), "{words}: {end:?}");
    let report = report(&end);
    let [opened, established] = numbers(&report, ["/websocket/opened", "/connections/established"]);
    assert_eq!((opened, number(&report, "/websocket/failed")), (established, 0), "{report}");
    assert!(report["latency_us"]["websocket"]["p50"].is_number(), "{report}");
    report
}

#[test]
fn the_server_counts_what_load_counts() {
    let echo = Echo::default();
    let (pool, at) = serving(WebSocket::new(echo.clone()));
    let report = ran_well(&format!("ws://{at}/echo -c 20 -n 400"));
    assert_eq!(numbers(&report, ["/connections/established", "/operations/ok"]), [20, 400]);
    // Two processes, and messages of one's own, which are text.
    let own = ran_well(&format!(
        "echo {at} --websocket /echo -H Origin:x --subprotocol a,b --send {{}} --expect {{}} -c 6 -n 60 --processes 2"
    ));
    assert_eq!(numbers(&own, ["/connections/established", "/operations/ok"]), [6, 60]);
    let counted = [&echo.0.opened, &echo.0.bytes, &echo.0.texts].map(|count| count.load(Ordering::Relaxed));
    assert_eq!((counted, pool.status().counts.accepted), ([26, 400, 60], 26));
}

#[test]
fn websockets_under_tls_have_handshakes_of_both() {
    let own = certificate(|_| {});
    let server = Server::new([Identity::from_pem(own.pem.as_bytes(), own.key.as_bytes()).expect("they go together")]);
    let (_pool, at) = serving(Layer::new(server.build().expect("a server"), WebSocket::new(Echo::default())));
    let [ca, _] = own.files("wss");
    let report = ran_well(&format!("wss://{at}/echo --ca {ca} --sni localhost -c 5 -n 50"));
    let [full, resumed] = numbers(&report, ["/tls/handshakes/full", "/tls/handshakes/resumed"]);
    assert_eq!((full + resumed, number(&report, "/operations/ok")), (5, 50), "{report}");
    let refused = load(&format!("wss://{at}/else --ca {ca} --sni localhost -c 5 -n 50 --json -"));
    let told = crate::report::report(&refused);
    assert_eq!(numbers(&told, ["/websocket/failed", "/connections/failed", "/tls/handshakes/failed"]), [5, 5, 0], "{told}");
}

/// Checks that there is one line about an error, with why and what helps.
#[track_caller]
fn fails(words: &str, parts: &[&str]) {
    let End { code, stdout, stderr } = load(&format!("{words} -c 2 -n 2 --timeout 500ms"));
    let told: Vec<_> = stdout.lines().filter(|line| line.starts_with("error ")).collect();
    assert!(code == Some(1) && told.len() == 1, "{words}: {code:?}\n{stdout}\n{stderr}");
    assert!(parts.iter().all(|part| told[0].contains(part)), "{words}: {}", told[0]);
}

#[test]
fn each_handshake_that_fails_has_a_line() {
    let (_pool, at) = serving(WebSocket::new(Echo::default()));
    fails(&format!("ws://{at}/"), &["upgrade", "refused the WebSocket with status 404: 2", "check the path of the URL"]);
    let (_http, at) = serving(sockdrawer_catalog::http::Http::default());
    fails(&format!("ws://{at}/test/fast"), &["with status 200", "answered with a page", "must pass Upgrade and Connection on"]);
    let (_bytes, at) = serving(sockdrawer_catalog::hello::Hello);
    fails(&format!("ws://{at}/"), &["upgrade"]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = silent.local_addr().expect("it is bound");
    fails(&format!("ws://{at}/"), &["upgrade the handshake did not end in time: 2"]);
    // The two before wait in its queue still.
    let refuse = std::thread::spawn(move || (0..4).for_each(|_| drop(silent.accept().expect("a client"))));
    fails(&format!("ws://{at}/"), &["upgrade the connection ended in the WebSocket handshake: 2"]);
    refuse.join().expect("all came");
}

#[test]
fn codes_of_a_server_that_goes_away_are_counted() {
    let echo = Echo::default();
    let (pool, at) = serving(WebSocket::new(echo.clone()));
    let run = Program::of(&format!("load ws://{at}/echo -c 12 -d 30 --interval 20ms --json -"));
    // A code is for a client whose handshake is done.
    let opened = pool.wait(Duration::from_secs(20), |_| echo.0.opened.load(Ordering::Relaxed) == 12);
    assert!(opened, "{:?}", pool.status());
    pool.drain(&Selector::All, Drain::within(Duration::from_secs(5)));
    let report = report(&run.end());
    assert_eq!(report["websocket"]["closed"], json!([{"code": 1001, "connections": 12}]), "{report}");
    assert_eq!(number(&report, "/connections/lost"), 12);
}

#[test]
fn a_trial_by_websocket_says_what_a_change_did_to_them() {
    let (pool, at) = serving(WebSocket::new(Echo::default()));
    let trial = |more: &[&str]| {
        let words =
            ["trial", &format!("ws://{at}/echo"), "-c", "4", "--kept", "10", "--every", "300ms", "--changes", "2", "--json", "-"];
        let end = Program::start(&[&words[..], more].concat()).end();
        (end.code, report(&end))
    };
    let (code, good) = trial(&["--change", "true"]);
    assert_eq!((code, &good["verdict"], &good["closed"]), (Some(0), &json!("good"), &json!([])), "{good}");
    let (code, own) = trial(&["--change", "true", "--send", "PING {n};", "--expect", "PING {n};"]);
    assert_eq!((code, &own["verdict"]), (Some(0), &json!("good")), "{own}");
    let counts = pool.status().counts;
    assert!(counts.accepted > 20, "{counts:?}");
    let words = ["trial", &format!("ws://{at}/else"), "--change", "true", "--changes", "1"];
    let End { code, stderr, .. } = Program::start(&words).end();
    let told = "the server refused the WebSocket with status 404";
    assert!(code == Some(3) && stderr.contains(told) && stderr.lines().count() == 1, "{code:?} {stderr}");
}

#[test]
fn nginx_before_the_server_logs_the_websockets_that_load_counts() {
    let (pool, server) = serving(WebSocket::new(Echo::default()));
    let (folder, at) = (Folder::new("nginx-ws"), address(6));
    let path = folder.0.to_str().expect("a path of text");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {path}/{name};"));
    let text = format!(
        "daemon off; master_process off; pid {path}/pid; error_log stderr notice; events {{ worker_connections 512; }}
         http {{
             log_format told '$status $http_origin'; access_log {path}/log told; {}
             server {{
                 listen {at};
                 location / {{
                     proxy_pass http://{server}; proxy_http_version 1.1;
                     proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_set_header Host $host;
                 }}
             }}
         }}",
        temporary.concat()
    );
    let file = format!("{path}/nginx.conf");
    std::fs::write(&file, text).expect("a file of this test can be written");
    let Some(mut nginx) = start("nginx", "nginx-light", &["-c", &file, "-e", "stderr"], Program::error_line, "getrlimit") else {
        return;
    };
    let report = ran_well(&format!("ws://{at}/echo -c 20 -n 400 -H Origin:one"));
    assert_eq!(numbers(&report, ["/connections/established", "/operations/ok"]), [20, 400]);
    let refused = load(&format!("ws://{at}/else -c 5 -n 5 -H Origin:two --json -"));
    assert_eq!(numbers(&crate::report::report(&refused), ["/websocket/opened", "/websocket/failed"]), [0, 5]);
    assert_eq!(pool.status().counts.accepted, 25);
    // At its end all is logged.
    nginx.signal(Signal::QUIT);
    nginx.child.wait().expect("it ends");
    let log = std::fs::read_to_string(format!("{path}/log")).expect("it has logged");
    let of = |line: &str| log.lines().filter(|logged| *logged == line).count();
    assert_eq!((of("101 one"), of("404 two"), log.lines().count()), (20, 5, 25), "{log}");
}
