//! `serve proxy` with TLS at its clients, its targets or both, and PROXY headers in and out.

use crate::operated::Operated;
use crate::program::Program;
use crate::secured::{Asks, Client, connect};
use crate::tls::{Certificate, certificate};
use crate::upgrade::tls::came;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Starts a target, which sends every byte back.
fn target(words: &str) -> (Program, String) {
    let mut server = Program::of(&format!("serve echo -l 127.0.0.1:0 {words}"));
    let at = server.line().strip_prefix("listening on ").expect("where").to_owned();
    (server, at)
}

fn secured_target(name: &str, certificate: &Certificate) -> (Program, String) {
    let [chain, key] = certificate.files(name);
    target(&format!("--tls-cert {chain} --tls-key {key}"))
}

fn file(listen: &str, to: &str, settings: &str) -> String {
    format!("upgrade = \"upgrade\"\n[pool.proxy]\nprotocol = \"proxy\"\nlisten = {listen}\nto = \"{to}\"\n{settings}\n")
}

const SECURED: &str = "{ address = \"127.0.0.1:0\", tls-cert = \"a.pem\", tls-key = \"a.key\" }";

/// Sends bytes in the clear, and gets them back.
fn is_answered(client: &mut TcpStream) {
    let mut answer = [0; 5];
    client.write_all(b"plain").and_then(|()| client.read_exact(&mut answer)).expect("it stands");
    assert_eq!(&answer, b"plain");
}

#[test]
fn tls_at_either_side_goes_on_through_upgrades_reloads_and_new_certificates() {
    for (model, tls_to) in [("loops", true), ("prefork", true), ("loops", false)] {
        let (own, of_target, next) = (certificate(|_| {}), certificate(|_| {}), certificate(|_| {}));
        let name = format!("proxy-tls-{model}-{tls_to}");
        let (one, one_at) = if tls_to { secured_target(&name, &of_target) } else { target("") };
        // All addresses of prefork have one set of layers.
        let with_plain = model != "prefork";
        let listen = if with_plain { format!("[{SECURED}, \"127.0.0.1:0\"]") } else { "\"127.0.0.1:0\"".to_owned() };
        let own_tls = if with_plain { "" } else { "tls-cert = \"a.pem\"\ntls-key = \"a.key\"\n" };
        let settings = format!("model = \"{model}\"\n{own_tls}{}", if tls_to { "tls-to = \"targets.pem\"" } else { "" });
        let mut server = Operated::told(&name, &file(&listen, &one_at, &settings), |server| {
            server.put("a", &own);
            server.put("targets", &of_target);
        });
        let plain_at = if with_plain { server.next_address() } else { String::new() };
        let mut secured: Vec<_> = (0..8).map(|_| connect(&server.addresses[0])).collect();
        let mut plain: Vec<_> =
            (0..8).filter(|_| with_plain).map(|_| TcpStream::connect(&plain_at).expect("it listens")).collect();
        let mut all_answer = |round: &str| {
            for client in &mut secured {
                client.is_answered().unwrap_or_else(|error| panic!("{round}: {error}"));
            }
            plain.iter_mut().for_each(is_answered);
        };
        all_answer("joined");
        for _ in 0..2 {
            assert_eq!(came(&server.says("upgrade --json")), (if with_plain { 32 } else { 16 }, 0));
            all_answer("upgraded");
        }
        // Certificates are renewed at both sides: old connections keep theirs.
        server.put("a", &next);
        server.event(&["Changed"]);
        if tls_to {
            server.put("targets", &next);
            server.event(&["Changed"]);
        }
        all_answer("renewed");
        let (_two, two_at) = if tls_to { secured_target(&format!("{name}-2"), &next) } else { target("") };
        server.write(&file(&listen, &two_at, &settings));
        server.says("reload");
        all_answer("another target");
        let mut late = connect(&server.addresses[0]);
        assert!(late.was_shown(&next));
        late.is_answered().expect("by the other target");
        assert_eq!(came(&server.says("upgrade --json")), (if with_plain { 34 } else { 18 }, 0), "all generations move");
        all_answer("upgraded again");
        late.is_answered().expect("it moved");
        // Clients are told of the end by a goodbye, where their target has said one.
        one.signal(rustix::process::Signal::TERM);
        secured.into_iter().for_each(Client::ends);
        plain.into_iter().for_each(|mut client| assert_eq!(client.read(&mut [0]).expect("an orderly end"), 0));
        assert_eq!(one.end().code, Some(0));
        late.is_answered().expect("its target is another");
    }
}

#[test]
fn a_target_that_is_not_trusted_is_left_out_and_the_log_says_why() {
    let (of_target, other) = (certificate(|_| {}), certificate(|_| {}));
    let (_target, at) = secured_target("proxy-untrusted", &of_target);
    let file = file("\"127.0.0.1:0\"", &at, "tls-to = \"targets.pem\"\ntries = 1");
    let mut server = Operated::told("proxy-untrusted", &file, |server| server.put("targets", &other));
    let mut client = TcpStream::connect(&server.addresses[0]).expect("it listens");
    assert_eq!(client.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    let told = ["Reported", "TargetFailed"].map(|kind| server.event(&[kind])["text"].as_str().expect("a text").to_owned());
    assert!(told[0].contains("the peer's certificate is signed by no trusted authority"), "{told:?}");
    assert!(told[1].contains(&format!("target {at}: the handshake of TLS failed: it may speak no TLS, be slow, or not be trusted; the log says which; left out for 1s")), "{told:?}");
    assert_eq!(
        server
            .metrics()
            .lines()
            .filter(|line| *line == format!("proxy_target_left_out{{pool=\"proxy\",target=\"{at}\"}} 1"))
            .count(),
        1
    );
}

#[test]
fn the_address_of_the_client_goes_through_with_tls_behind_it() {
    let own = certificate(|_| {});
    let [chain, key] = own.files("proxy-headers");
    let words = format!(
        "[pool.echo]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\nproxy-protocol = \"from=127.0.0.1\"\ntls-cert = \"{chain}\"\ntls-key = \"{key}\"\n"
    );
    let target = Operated::start("proxy-headers-target", &words);
    for version in ["v1", "v2"] {
        let settings = format!(
            "tls-to = \"a.pem\"\nproxy-protocol-out = \"{version}\"\nproxy-protocol = \"from=127.0.0.1\"\ntls-cert = \"a.pem\"\ntls-key = \"a.key\""
        );
        let server = Operated::told(
            &format!("proxy-headers-{version}"),
            &file("\"127.0.0.1:0\"", &target.addresses[0], &settings),
            |server| {
                server.put("a", &own);
            },
        );
        let asks = Asks { header: "PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n", ..Asks::default() };
        let mut client = Client::connect(&server.addresses[0], &asks).expect("it is served");
        let seen = target.says("connections");
        assert!(seen.contains("192.0.2.7:4711"), "{version}: {seen}");
        assert_eq!(came(&server.says("upgrade --json")), (2, 0));
        client.is_answered().expect("it moved");
    }
}

/// Has the proxy wait for the rest of a ClientHello, and returns what it sends then.
fn sends(at: &str, bytes: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    let mut client = TcpStream::connect(at).expect("it listens");
    client.set_nodelay(true).expect("it stands");
    bytes.iter().try_for_each(|byte| client.write_all(&[*byte])).expect("it stands");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).map(|_| answer).map_err(|error| error.kind())
}

/// Returns a ClientHello of TLS 1.2 without a cipher suite, for this name.
fn hello_for(name: &str) -> Vec<u8> {
    let long = |bytes: &[u8]| [&u16::try_from(bytes.len()).expect("short").to_be_bytes()[..], bytes].concat();
    let name = long(&[&[0][..], &long(name.as_bytes())].concat());
    let extensions = long(&[&[0, 0][..], &long(&name)].concat());
    let body = [&[3, 3][..], &[9; 32], &[0, 0, 0, 1, 0], &extensions].concat();
    [&[22, 3, 1][..], &long(&[&[1, 0][..], &long(&body)].concat())].concat()
}

#[test]
fn clients_get_the_target_that_they_ask_for_by_tls_which_stays_between_the_two() {
    for model in ["loops", "prefork"] {
        let certificates = [(); 4].map(|()| certificate(|_| {}));
        let name = |number: usize| format!("proxy-sni-{model}-{number}");
        let all: Vec<_> = certificates.iter().enumerate().map(|(number, one)| secured_target(&name(number), one)).collect();
        let (_plain, plain_at) = target("");
        let wishes = ["sni=one.example", "sni=*.example,sni=two.test", "sni=one.example,alpn=h2"];
        let mut to: Vec<String> = all.iter().zip(wishes).map(|((_, at), wish)| format!("\"{at},{wish}\"")).collect();
        let named = to.join(", ");
        to.push(format!("\"{plain_at}\""));
        let file = |to: &str| {
            let words =
                format!("[pool.proxy]\nprotocol = \"proxy\"\nlisten = \"127.0.0.1:0\"\nmodel = \"{model}\"\nto = [{to}]\n");
            format!("upgrade = \"upgrade\"\n{words}")
        };
        let mut server = Operated::told(&name(9), &file(&to.join(", ")), |_| {});
        let at = server.addresses[0].clone();
        let get = |name, alpn| Client::connect(&at, &Asks { name: Some(name), alpn, ..Asks::default() }).expect("it is served");
        let mut clients =
            [get("one.example", &[]), get("www.Example", &[]), get("one.example", &["h2"]), get("two.test", &["h2"])];
        let targets = [0, 1, 2, 1];
        let are_whose = |clients: &[Client; 4]| {
            clients.iter().zip(targets).for_each(|(client, target)| assert!(client.was_shown(&certificates[target]), "{target}"));
        };
        are_whose(&clients);
        let mut in_the_clear = TcpStream::connect(&at).expect("it listens");
        is_answered(&mut in_the_clear);
        assert_eq!(came(&server.says("upgrade --json")), (10, 0));
        clients.iter_mut().for_each(|client| client.is_answered().expect("it moved"));
        is_answered(&mut in_the_clear);
        // Without a target for all others, they are told so.
        server.write(&file(&named));
        server.says("reload");
        clients.iter_mut().for_each(|client| client.is_answered().expect("it stays"));
        assert_eq!(sends(&at, &hello_for("else.test")), Ok(vec![21, 3, 3, 0, 2, 2, 112]), "an alert of TLS: unrecognized_name");
        let told = server.event(&["Reported"])["text"].as_str().expect("a text").to_owned();
        assert!(told.ends_with("no target is for a client that asks for `else.test`"), "{told}");
        assert_eq!(sends(&at, b"G"), Err(ErrorKind::ConnectionReset));
        let told = server.event(&["Reported"])["text"].as_str().expect("a text").to_owned();
        assert!(told.ends_with("no ClientHello of TLS came, and each target has a name: no target is for this client"), "{told}");
        are_whose(&clients);
        // A target of that name takes what it sent, byte by byte: an alert of its own comes back.
        let answer = sends(&at, &hello_for("WWW.EXAMPLE")).expect("the target ends it");
        assert_eq!((answer[0], answer[5]), (21, 2), "{answer:?}");
    }
}

/// The connection to a target is made in the old process, after the new one was told how many connections there are.
#[test]
fn clients_that_get_their_target_after_an_upgrade_follow_whole() {
    let (_target, to) = target("");
    let words =
        format!("[pool.proxy]\nprotocol = \"proxy\"\nlisten = \"127.0.0.1:0\"\nto = [\"127.0.0.1:1,sni=none.test\", \"{to}\"]\n");
    let server = Operated::start("proxy-late", &format!("upgrade = \"upgrade\"\n{words}"));
    for round in 0..5 {
        let mut clients: Vec<_> = (0..40).map(|_| TcpStream::connect(&server.addresses[0]).expect("it listens")).collect();
        // Each is accepted, in the order in which they came.
        let mut joined = TcpStream::connect(&server.addresses[0]).expect("it listens");
        is_answered(&mut joined);
        server.says("upgrade");
        for some in clients.chunks_mut(8) {
            some.iter_mut().for_each(is_answered);
        }
        // They follow while they are served.
        let here = || {
            let status: serde_json::Value = serde_json::from_str(&server.says("status --json")).expect("JSON");
            status["pools"]["proxy"]["connections"].as_u64()
        };
        let until = Instant::now() + Duration::from_secs(20);
        while here() < Some(82) {
            assert!(Instant::now() < until, "round {round}: {:?}", here());
            clients.iter_mut().for_each(is_answered);
        }
        clients.iter_mut().for_each(is_answered);
    }
}

#[test]
fn settings_of_tls_to_targets_need_each_other() {
    for (words, why) in [
        ("--tls-to-name x", "--tls-to-name is for tls-to, which is not set: set it too"),
        (
            "--tls-to /nowhere.pem",
            "--tls-to: /nowhere.pem: No such file or directory (os error 2): name a file that is there and may be read",
        ),
        ("--tls-to Cargo.toml", "--tls-to: Cargo.toml: there is no certificate in PEM form"),
        ("--tls-to Cargo.toml --tls-to-key x", "--tls-to-key is of a certificate: set tls-to-cert too"),
    ] {
        let end = Program::of(&format!("serve proxy -l 127.0.0.1:0 --to 127.0.0.1:1 {words}")).end();
        assert_eq!(end.code, Some(2), "{words}");
        assert!(end.stderr.starts_with(&format!("error: {why}")), "{words}: {}", end.stderr);
    }
    let end = Program::of("serve echo -l 127.0.0.1:0 --tls-to x.pem").end();
    assert_eq!(end.stderr, "error: --tls-to is an option of proxy, not of echo: leave it out (try: sockdrawer serve --help)\n");
}

#[test]
fn a_target_that_ends_without_close_notify_resets_its_client_unless_that_is_to_be_ignored() {
    for (model, ignore) in [("loops", false), ("loops", true), ("prefork", true)] {
        let (name, of_target) = (format!("proxy-eof-{model}-{ignore}"), certificate(|_| {}));
        let (target, at) = secured_target(&name, &of_target);
        let settings = format!("model = \"{model}\"\ntls-to = \"targets.pem\"\ntls-to-ignore-eof = {ignore}");
        let server = Operated::told(&name, &file("\"127.0.0.1:0\"", &at, &settings), |server| server.put("targets", &of_target));
        let mut clients = [(); 2].map(|()| TcpStream::connect(&server.addresses[0]).expect("it listens"));
        clients.iter_mut().for_each(is_answered);
        assert_eq!(came(&server.says("upgrade --json")), (4, 0));
        clients.iter_mut().for_each(is_answered);
        // Its sockets are closed by the kernel, which says nothing of TLS.
        drop(target);
        for mut client in clients {
            let ended = client.read(&mut [0; 1]);
            match ignore {
                true => assert_eq!(ended.expect("an end in order"), 0, "{model}"),
                false => assert_eq!(ended.expect_err("a reset").kind(), ErrorKind::ConnectionReset),
            }
        }
    }
}

/// Starts a target that answers once, and reads nothing more before it is told to. Returns its address, and a thread that returns how many bytes came
/// then, and how they ended.
fn slow_target(reads: mpsc::Receiver<()>) -> (String, JoinHandle<(usize, io::Result<usize>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let at = listener.local_addr().expect("bound").to_string();
    let reading = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut asked = [0; 5];
        client.read_exact(&mut asked).and_then(|()| client.write_all(&asked)).expect("it stands");
        reads.recv().expect("the test says when");
        let (mut came, mut bytes) = (0, vec![0; 64 << 10]);
        loop {
            match client.read(&mut bytes) {
                Ok(count) if count > 0 => came += count,
                ended => return (came, ended),
            }
        }
    });
    (at, reading)
}

#[test]
fn what_a_client_sent_before_an_end_without_close_notify_comes_to_its_target() {
    const BYTES: usize = 3 << 20;
    for (model, ignore) in [("loops", false), ("loops", true), ("prefork", false), ("prefork", true)] {
        let (name, own) = (format!("proxy-cut-{model}-{ignore}"), certificate(|_| {}));
        let (says, reads) = mpsc::channel();
        let (at, reading) = slow_target(reads);
        let tls = format!("tls-cert = \"a.pem\"\ntls-key = \"a.key\"\ntls-ignore-eof = {ignore}\nmodel = \"{model}\"");
        let server = Operated::told(&name, &file("\"127.0.0.1:0\"", &at, &tls), |server| server.put("a", &own));
        let client = connect(&server.addresses[0]);
        let client = client.cuts_off(&vec![7; BYTES]);
        says.send(()).expect("it waits");
        let (came, ended) = reading.join().expect("no panic");
        assert_eq!(came, BYTES, "{model}: {ended:?}");
        match ignore {
            true => assert_eq!(ended.expect("an end in order"), 0, "{model}"),
            false => assert_eq!(ended.expect_err("what was cut off does not look whole").kind(), ErrorKind::ConnectionReset),
        }
        drop(client);
    }
}
