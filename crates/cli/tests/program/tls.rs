//! Load under TLS: what handshakes are counted and timed as, and the one line for each way in which they fail.

use crate::program::{End, Program, load};
use crate::report::{number, numbers, report};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use sockdrawer::layer::Layer;
use sockdrawer::{Config, Pool};
use sockdrawer_tls::{ClientCertificates, Identity, Server, ServerOptions};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A certificate that signed itself, and its key.
pub(crate) struct Certificate {
    pub(crate) pem: String,
    pub(crate) key: String,
}

pub(crate) fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Certificate {
    let key = KeyPair::generate().expect("a key");
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut parameters = CertificateParams::new(names).expect("names");
    // As authorities they are told apart by their names.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("certificate {}", NEXT.fetch_add(1, Ordering::Relaxed));
    parameters.distinguished_name.push(DnType::CommonName, name);
    change(&mut parameters);
    Certificate { pem: parameters.self_signed(&key).expect("a certificate").pem(), key: key.serialize_pem() }
}

impl Certificate {
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("a certificate")
    }

    fn options(&self) -> ServerOptions {
        Server::new([Identity::from_pem(self.pem.as_bytes(), self.key.as_bytes()).expect("they go together")])
    }

    /// Files of the certificate and its key.
    pub(crate) fn files(&self, name: &str) -> [String; 2] {
        ["crt", "key"].map(|ending| {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{name}-{}.{ending}", std::process::id()));
            fs::write(&path, if ending == "crt" { &self.pem } else { &self.key }).expect("a file of this test");
            path.to_str().expect("text").to_owned()
        })
    }
}

/// Starts an echo under TLS in this process, and returns it with where it listens.
fn echoing(options: ServerOptions) -> (Pool, String) {
    let service = Layer::new(options.build().expect("a server"), sockdrawer_catalog::echo::Echo);
    let pool = Pool::start(Config::accept(service).listen("127.0.0.1:0").loops(1)).expect("it listens");
    let address = pool.addresses().remove(0).to_string();
    (pool, address)
}

/// Checks that all connects are established or failed, all failed ones have a reason, and all established ones had a handshake.
#[track_caller]
fn adds_up(end: &End) -> Value {
    let report = report(end);
    let [attempted, established, failed] =
        numbers(&report, ["/connections/attempted", "/connections/established", "/connections/failed"]);
    let [full, resumed, bad] = numbers(&report, ["/tls/handshakes/full", "/tls/handshakes/resumed", "/tls/handshakes/failed"]);
    assert_eq!((attempted, established), (established + failed, full + resumed), "{report}");
    let of = |phase: &str| -> u64 {
        let errors = report["errors"].as_array().expect("a list").iter();
        errors.filter(|error| error["phase"] == phase).map(|error| number(error, "/count")).sum()
    };
    assert_eq!((failed, bad), (of("connect") + of("handshake"), of("handshake")), "{report}");
    report
}

#[test]
fn handshakes_are_counted_full_or_resumed_and_timed_apart_from_connects() {
    let run = load("hello --tls -n 60 -c 3 --json - --threshold handshake.p99<60s --threshold tls.handshakes.failed==0");
    let report = adds_up(&run);
    assert_eq!(run.code, Some(0), "{run:?}");
    let [full, resumed] = numbers(&report, ["/tls/handshakes/full", "/tls/handshakes/resumed"]);
    assert!(full > 0 && resumed > 0 && full + resumed == 60, "{report}");
    let time = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {report}"));
    assert!(time("/tls/cpu_us") > 0.0 && time("/tls/per_second") > 0.0, "{report}");
    // An operation is all of a connection, the handshake with it.
    assert!(time("/latency_us/operation/min") > time("/latency_us/handshake/min"), "{report}");
    assert_eq!(report["tls"]["agreed"][0]["version"], "1.3");
}

#[test]
fn handshakes_of_two_processes_add_up_and_the_options_are_obeyed() {
    let certificate = certificate(|_| {});
    let (pool, address) = echoing(certificate.options().alpn(["one", "two"]));
    let [ca, _] = certificate.files("options");
    let words =
        format!("echo {address} --tls --ca {ca} --tls-version 1.2 --alpn two --no-resume -c 8 -n 80 --lifetime 50ms --json -");
    let run = load(&format!("{words} --processes 2"));
    let report = adds_up(&run);
    assert_eq!(run.code, Some(0), "{run:?}");
    let [established, full, resumed] =
        numbers(&report, ["/connections/established", "/tls/handshakes/full", "/tls/handshakes/resumed"]);
    assert_eq!((full, resumed, report["client"]["processes"].as_u64()), (established, 0, Some(2)), "{report}");
    let agreed = &report["tls"]["agreed"];
    assert_eq!(
        (&agreed[0]["version"], &agreed[0]["alpn"], agreed.as_array().map(Vec::len)),
        (&"1.2".into(), &"two".into(), Some(1))
    );
    assert!(report["plan"]["ca"] == ca.as_str() && !report["plan"].to_string().contains("BEGIN"), "{report}");
    assert_eq!(pool.status().counts.accepted, established);
}

#[test]
fn a_server_counts_what_its_clients_counted_wherever_its_connections_run() {
    let files = certificate(|_| {}).files("counted");
    for model in ["loops", "threads", "prefork", "fork"] {
        let words = format!("serve hello -l 127.0.0.1:0 --metrics 127.0.0.1:0 --model {model}");
        let mut server = Program::of(&format!("{words} --tls-cert {} --tls-key {}", files[0], files[1]));
        let at = server.line().trim_start_matches("listening on ").to_owned();
        let line = server.line();
        let metrics = line.strip_prefix("metrics on http://").and_then(|line| line.strip_suffix("/metrics")).expect("an address");
        let run = load(&format!("hello {at} --tls --insecure -c 1 -n 8 --json -"));
        let report = adds_up(&run);
        let [full, resumed] = numbers(&report, ["/tls/handshakes/full", "/tls/handshakes/resumed"]);
        assert!(full > 0 && resumed > 0 && full + resumed == 8, "{model}: {report}");
        // This client says nothing.
        drop(TcpStream::connect(&at).expect("it listens"));
        // A child counts the last when it has ended.
        let counted = || {
            let mut stream = TcpStream::connect(metrics).expect("it listens");
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
            let mut page = String::new();
            stream.read_to_string(&mut page).expect("text");
            let of = |outcome: &str| -> u64 {
                let name = format!("sockdrawer_tls_handshakes_total{{pool=\"serve\",outcome=\"{outcome}\"}} ");
                page.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_else(|| panic!("{page}"))
            };
            ["full", "resumed", "failed"].map(of)
        };
        let until = Instant::now() + Duration::from_secs(30);
        while counted() != [full, resumed, 1] {
            assert!(Instant::now() < until, "{model}: {:?}, not {full} and {resumed}", counted());
        }
    }
}

#[test]
fn each_way_to_fail_is_a_line_with_its_reason() {
    let (own, other) = (certificate(|_| {}), certificate(|_| {}));
    let old = certificate(|parameters| parameters.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let [ca, _] = own.files("reasons");
    let [other_ca, _] = other.files("other");
    let [old_ca, _] = old.files("old");
    let (_own, at) = echoing(own.options());
    let (_old, old_at) = echoing(old.options());
    let mut plain = Program::of("serve hello -l 127.0.0.1:0");
    let plain_at = plain.line().trim_start_matches("listening on ").to_owned();
    let mut echo = Program::of("serve echo -l 127.0.0.1:0");
    let echo_at = echo.line().trim_start_matches("listening on ").to_owned();
    let ending = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let ending_at = ending.local_addr().expect("it is bound");
    std::thread::spawn(move || ending.incoming().for_each(|client| _ = client.map(|mut client| client.read(&mut [0; 64]))));
    for (words, reason, remedy) in [
        (format!("{at} --ca {other_ca}"), "is signed by no trusted authority", "--ca FILE"),
        (format!("{at} --ca {ca} --sni example.org"), "not for example.org", "--sni NAME"),
        (format!("{old_ca} --ca {old_ca}").replacen(&old_ca, &old_at, 1), "has expired", "--insecure"),
        (format!("{plain_at} --insecure"), "does not speak TLS", "leave --tls out"),
        (format!("{echo_at} --insecure"), "does not speak TLS: it sends back what it is sent", "leave --tls out"),
        (format!("{ending_at} --insecure"), "the connection ended in the TLS handshake", "see its log"),
    ] {
        let run = load(&format!("ping {words} --tls -c 3 --connect-rate 1k -d 5s --json -"));
        let report = adds_up(&run);
        assert_eq!((run.code, number(&report, "/connections/failed")), (Some(1), 3), "{words}: {run:?}");
        let line = run.stderr.lines().find(|line| line.starts_with("error ")).unwrap_or_else(|| panic!("{run:?}"));
        assert!(line.contains(reason) && line.contains(remedy), "{words}: {line}");
    }
}

#[test]
fn an_untrusted_certificate_is_refused_a_few_times_and_no_load() {
    let server = certificate(|_| {});
    let (_pool, at) = echoing(server.options());
    let run = load(&format!("hello {at} --tls -c 4 -d 20s --json -"));
    let report = report(&run);
    let failed = number(&report, "/connections/failed");
    assert!(run.code == Some(1) && (3..2_000).contains(&failed), "it goes on for 20 s otherwise: {run:?}");
    let early = report["ended_early"].as_str().expect("it is over at once");
    assert!(early.starts_with("each handshake failed for the same reason, after 0.") && report["wall"].is_null(), "{run:?}");
}

#[test]
fn a_handshake_that_does_not_end_is_cut_off_by_its_timeout_and_by_a_signal() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = silent.local_addr().expect("it is bound");
    let words = format!("load ping {at} --tls --insecure -c 3 --connect-rate 1k -d 30s --json -");
    let reason = |report: &Value| (report["errors"][0]["errno"].clone(), number(report, "/errors/0/count"));
    let run = Program::of(&format!("{words} --timeout 100ms")).end();
    assert_eq!((run.code, reason(&adds_up(&run))), (Some(1), ("the TLS handshake did not end in time".into(), 3)), "{run:?}");
    let run = Program::of(&format!("{words} --timeout 30s"));
    // The three before are still in the queue.
    let clients: Vec<TcpStream> = (0..6).map(|_| silent.accept().expect("a client").0).collect();
    let mut hello = [0; 5];
    (&clients[5]).read_exact(&mut hello).expect("it speaks first");
    assert_eq!(hello[0], 22, "a record of the handshake");
    run.signal(Signal::INT);
    let run = run.end();
    assert_eq!((run.code, reason(&adds_up(&run))), (Some(130), ("it was under way when the run ended".into(), 3)), "{run:?}");
}

#[test]
fn a_server_that_wants_a_certificate_gets_it_or_says_so() {
    let (server, client) = (certificate(|_| {}), certificate(|_| {}));
    let required = ClientCertificates::Required;
    let (_pool, at) = echoing(server.options().client_authorities(client.pem.clone(), required));
    let ([ca, _], [cert, key]) = (server.files("wants"), client.files("client"));
    let words = format!("echo {at} --tls --ca {ca} -c 2 -n 10 --connect-rate 1k --json -");
    let run = load(&format!("{words} --cert {cert} --key {key}"));
    assert_eq!((run.code, number(&adds_up(&run), "/operations/ok")), (Some(0), 10), "{run:?}");
    // In TLS 1.3 the server refuses after the client's end of the handshake.
    for (version, phase) in [("1.2", "handshake"), ("1.3", "tls")] {
        let run = load(&format!("{words} --tls-version {version}"));
        let report = adds_up(&run);
        let told = report["errors"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|error| error["phase"] == phase && error["errno"].as_str().is_some_and(|why| why.contains("the TLS alert")));
        assert!(told && run.code == Some(1), "{version}: {report}");
    }
}

/// `openssl s_server`, ended when it is left.
struct Openssl(Child);

impl Drop for Openssl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that answers GET, and returns it with where it listens; None where there is none.
fn openssl([cert, key]: &[String; 2], more: &[&str]) -> Option<(Openssl, String)> {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-www", "-accept", "127.0.0.1:0", "-cert", cert, "-key", key]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Openssl(command.spawn().ok()?);
    let lines = BufReader::new(server.0.stdout.take().expect("it was asked for")).lines();
    let at = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("ACCEPT ")?.to_owned()));
    at.map(|at| (server, at.replace("127.0.0.1", "localhost")))
}

#[test]
fn openssl_is_asked_by_https_in_both_versions() {
    let files = certificate(|_| {});
    let files = files.files("openssl");
    for version in ["-tls1_2", "-tls1_3"] {
        let Some((_server, at)) = openssl(&files, &[version, "-alpn", "http/1.1"]) else { return };
        let run = load(&format!("https://{at}/ --ca {} --alpn http/1.1 -c 2 -n 8 --close server --json -", files[0]));
        let report = adds_up(&run);
        assert_eq!((run.code, number(&report, "/operations/ok")), (Some(0), 8), "{version}: {run:?}");
        assert!(number(&report, "/tls/handshakes/resumed") > 0, "{version}: {report}");
        assert_eq!(report["tls"]["agreed"][0]["alpn"], "http/1.1", "{version}");
    }
}

#[test]
fn options_of_tls_without_it_are_a_mistake_of_usage() {
    for (words, says) in [
        ("load ping 127.0.0.1:9 --insecure", "--insecure is an option of TLS: add --tls"),
        ("load http://127.0.0.1:9 --sni a", "--sni is an option of TLS"),
        ("load http://127.0.0.1:9 --tls", "write https:// or wss:// in each URL"),
        ("load ping 127.0.0.1:9 --tls --ca /nowhere", "--ca: /nowhere: "),
        ("load ping --tls --ca /nowhere", "is made for the run: leave it out"),
        ("load ping 127.0.0.1:9 --tls --ca /dev/null", "/dev/null: there is no certificate in PEM form"),
        ("load ping 127.0.0.1:9 --tls --cert /nowhere", "--key"),
        ("load ping 127.0.0.1:9 --tls --insecure --cert /nowhere --key /nowhere", "/nowhere: No such file or directory"),
        ("load ping 127.0.0.1:9 --tls --insecure --cert /dev/null --key /dev/null", "/dev/null: there is no certificate"),
        ("load ping 127.0.0.1:9 --tls --insecure --tls-version 1.1", "write 1.2 or 1.3"),
        ("load ping localhost:9 127.0.0.1:9 --tls --insecure", "say by --sni which one"),
        ("load ping 127.0.0.1:9 --tls --insecure --sni a..b", "no name of a TLS server"),
        ("load acks --ladder --tls", "--ladder compares acks without TLS"),
        ("trial --tls", "need a TARGET"),
    ] {
        let end = Program::of(words).end();
        assert!(end.code == Some(2) && end.stderr.lines().count() == 1 && end.stderr.contains(says), "{words}: {end:?}");
    }
}

#[test]
fn a_trial_of_a_server_under_tls_loses_nothing_and_names_a_wrong_certificate() {
    let (certificate, other) = (certificate(|_| {}), certificate(|_| {}));
    let ([ca, _], [other, _]) = (certificate.files("trial"), other.files("trial-other"));
    let (_pool, at) = echoing(certificate.options());
    let words =
        ["trial", &at, "--change", "true", "--changes", "2", "--every", "100ms", "--kept", "4", "-c", "4", "--tls", "--ca"];
    let run = Program::start(&[&words[..], &[&ca, "--json", "-"]].concat()).end();
    let report = report(&run);
    assert_eq!((&report["failed_connects"], &report["lost_connections"]), (&0.into(), &0.into()), "{run:?}");
    assert!(number(&report, "/connects") > 0, "{report}");
    let run = Program::start(&[&words[..], &[&other]].concat()).end();
    assert!(run.code == Some(3) && run.stderr.contains("is signed by no trusted authority"), "{run:?}");
}
