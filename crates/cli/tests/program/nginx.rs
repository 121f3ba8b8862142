//! `load` under TLS against nginx: what it counts is what nginx logs, and each way to fail is one line.

use crate::program::{End, Program};
use crate::report::{numbers, report};
use crate::runs::Folder;
use crate::strangers::{address, start};
use crate::tls::certificate;
use rustix::process::Signal;
use std::fs;
use std::net::SocketAddr;

/// Starts a server of TLS at each of these addresses, in one process, so that it ends with this test; each writes a log of its own.
fn nginx(folder: &Folder, servers: [(&str, SocketAddr, &str); 3], files: &[String; 2]) -> Option<Program> {
    let folder = folder.0.to_str().expect("a path of text");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {folder}/{name};"));
    let servers = servers.map(|(name, at, more)| {
        format!(
            "server {{ listen {at} {more}; access_log {folder}/{name}.log told; ssl_certificate {}; ssl_certificate_key {};
                location / {{ return 200 \"pong\\n\"; }} }}",
            files[0], files[1]
        )
    });
    let text = format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr notice; events {{ worker_connections 512; }}
         http {{
             log_format told '$ssl_protocol $ssl_session_reused $status $proxy_protocol_addr:$proxy_protocol_port $ssl_server_name';
             keepalive_timeout 60s; {}
             {}
         }}",
        temporary.concat(),
        servers.concat()
    );
    let path = format!("{folder}/nginx.conf");
    fs::write(&path, text).expect("a file of this test can be written");
    start("nginx", "nginx-light", &["-c", &path, "-e", "stderr"], Program::error_line, "getrlimit")
}

/// Requests of `load` that all end well, of which most are resumed: full and resumed handshakes.
#[track_caller]
fn counted(words: &str) -> [u64; 2] {
    let end = Program::of(&format!("load {words} --json -")).end();
    assert_eq!(end.code, Some(0), "{words}: {end:?}");
    let report = report(&end);
    let [full, resumed, failed] = numbers(&report, ["/tls/handshakes/full", "/tls/handshakes/resumed", "/tls/handshakes/failed"]);
    let [established, answered] = numbers(&report, ["/connections/established", "/operations/ok"]);
    assert_eq!((full + resumed, failed, answered), (established, 0, established), "{report}");
    [full, resumed]
}

/// Checks that an error is told in one line, with why and what helps.
#[track_caller]
fn fails(words: &str, [why, remedy]: [&str; 2]) {
    let End { code, stdout, stderr } = Program::of(&format!("load {words} -c 1 -n 1")).end();
    let told: Vec<_> = stdout.lines().filter(|line| line.starts_with("error ")).collect();
    assert!(code == Some(1) && told.len() == 1, "{words}: {code:?}\n{stdout}\n{stderr}");
    assert!(told[0].contains(why) && told[0].contains(remedy), "{words}: {}", told[0]);
}

#[test]
fn nginx_logs_the_handshakes_that_load_counts() {
    let folder = Folder::new("nginx-tls");
    let (own, other) = (certificate(|_| {}), certificate(|_| {}));
    let (files, others) = (own.files("nginx"), other.files("nginx-other"));
    let [old, new, proxied] = [3, 4, 5].map(address);
    let servers = [
        ("1.2", old, "ssl; ssl_protocols TLSv1.2"),
        ("1.3", new, "ssl; ssl_protocols TLSv1.3"),
        ("proxied", proxied, "proxy_protocol ssl; ssl_protocols TLSv1.2 TLSv1.3"),
    ];
    let Some(mut server) = nginx(&folder, servers, &files) else { return };
    let trusted = format!("--ca {} --sni localhost -c 4 -n 60 --close server", files[0]);
    let runs = [
        ("1.2", counted(&format!("https://{old}/ {trusted}"))),
        ("1.3", counted(&format!("https://{new}/ {trusted}"))),
        ("proxied", counted(&format!("https://{proxied}/ {trusted} --proxy-protocol v2,source=192.0.2.7:4321"))),
    ];
    // An address is no name to ask for: the certificate is another's, and is taken.
    let [insecure, all] = counted(&format!("https://{new}/ --insecure --no-resume -n 5 -c 1 --close server"));
    assert_eq!((insecure, all), (5, 0));
    for (words, line) in [
        (format!("https://{new}/ --ca {} --sni localhost", others[0]), ["is signed by no trusted authority", "--ca FILE"]),
        (format!("https://{new}/ --ca {} --sni example.org", files[0]), ["not for example.org", "--sni NAME"]),
        (format!("https://{new}/ --ca {}", files[0]), [&format!("not for {}", new.ip()), "--sni NAME"]),
        (format!("https://{new}/ --insecure --tls-version 1.2"), ["refused the handshake with the TLS alert", "ProtocolVersion"]),
        (format!("https://{proxied}/ --insecure"), ["the connection ended in the TLS handshake", "see its log"]),
    ] {
        fails(&words, line);
    }
    // At its end all is logged.
    server.signal(Signal::QUIT);
    server.child.wait().expect("it ends");
    for (name, [full, resumed]) in runs {
        let log = fs::read_to_string(folder.0.join(format!("{name}.log"))).expect("it has logged");
        let of = |line: &str| log.lines().filter(|logged| *logged == line).count() as u64;
        let version = if name == "1.2" { "TLSv1.2" } else { "TLSv1.3" };
        let header = if name == "proxied" { "192.0.2.7:4321" } else { "-:-" };
        let theirs = [".", "r"].map(|kind| of(&format!("{version} {kind} 200 {header} localhost")));
        assert_eq!(theirs, [full, resumed], "{name}: {log}");
        assert!(full + resumed == 60 && resumed > 0, "{name}: {full} full, {resumed} resumed");
        // The run without resumption is in the log of its server.
        let unnamed = of(&format!("{version} . 200 {header} -"));
        assert_eq!(unnamed, if name == "1.3" { 5 } else { 0 }, "{log}");
    }
}
