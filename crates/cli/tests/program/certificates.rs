//! Certificates that are renewed while a server runs, in each way in which files are replaced; and what cannot be used, which changes nothing.

use crate::operated::Operated;
use crate::secured::{Asks, Client, connect};
use crate::tls::{Certificate, certificate};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::sync::mpsc::channel;

/// Events that come of files that changed.
const CAME: [&str; 3] = ["Changed", "NotChanged", "ChangeFailed"];

const ECHO: &str = "[pool.echo]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\ntls-cert = \"a.pem\"\ntls-key = \"a.key\"\n";

impl Operated {
    /// Writes a certificate and its key into its folder, each as a new file that takes the place of the old.
    pub(crate) fn put(&self, name: &str, certificate: &Certificate) {
        self.replace(&format!("{name}.pem"), &certificate.pem);
        self.replace(&format!("{name}.key"), &certificate.key);
    }

    /// Replaces a file by a new one: at no moment is it half there.
    fn replace(&self, file: &str, text: &str) {
        fs::write(self.path("new"), text)
            .and_then(|()| fs::rename(self.path("new"), self.path(file)))
            .expect("the folder takes it");
    }

    /// Puts a certificate and its key in a folder in it.
    fn put_in(&self, folder: &str, certificate: &Certificate) {
        fs::create_dir(self.path(folder)).expect("a folder");
        fs::write(self.path(&format!("{folder}/a.pem")), &certificate.pem).expect("a file");
        fs::write(self.path(&format!("{folder}/a.key")), &certificate.key).expect("a file");
    }

    /// Returns what is told next of its files.
    fn came(&mut self) -> (String, String) {
        loop {
            let event = self.event(&CAME);
            let [kind, text] = [&event["event"], &event["text"]].map(|value| value.as_str().expect("text"));
            if text.starts_with("certificates by its files") {
                return (kind.to_owned(), text.to_owned());
            }
        }
    }

    /// Checks that the files are in force. Between two files they may not go together.
    #[track_caller]
    fn is_renewed(&mut self) {
        loop {
            let (kind, text) = self.came();
            if kind == "Changed" {
                return assert!(text.contains("tls-cert: new generation (the files have another content)"), "{text}");
            }
        }
    }

    /// Checks that a failure is told in one line with these words, which status has too.
    #[track_caller]
    fn is_refused(&mut self, why: &str) {
        let (kind, text) = self.came();
        assert_eq!((kind.as_str(), text.lines().count()), ("ChangeFailed", 1), "{text}");
        assert!(text.starts_with("certificates by its files failed, all goes on as it was: a.toml:"), "{text}");
        assert!(text.contains(": pool.echo.tls-"), "{text}");
        assert!(text.contains(why), "{text}");
        let status = self.says("status");
        assert!(status.lines().nth(1).is_some_and(|line| line.starts_with("certificates: ") && line.contains(why)), "{status}");
    }

    fn shows(&self, certificate: &Certificate) -> Client {
        let client = connect(&self.addresses[0]);
        assert!(client.was_shown(certificate), "another one is shown");
        client
    }
}

#[test]
fn a_renewed_certificate_begins_a_generation_and_old_connections_keep_theirs() {
    for model in ["loops", "prefork"] {
        let (old, new) = (certificate(|_| {}), certificate(|_| {}));
        let name = format!("certificates-renewed-{model}");
        let mut server = Operated::told(&name, &format!("{ECHO}model = \"{model}\"\n"), |server| server.put("a", &old));
        let mut before = server.shows(&old);
        server.put("a", &new);
        server.is_renewed();
        let _after = server.shows(&new);
        before.is_answered().expect("it goes on");
        let of = |generation: u32| server.says(&format!("connections --generation {generation}")).lines().count() - 1;
        assert_eq!((of(1), of(2)), (1, 1), "{model}");
        assert!(server.says("generations").contains("retired"));
        assert!(server.says("purge --pool echo --generation 1").contains("1 "));
        before.ends();
        assert_eq!(server.says("status").lines().filter(|line| line.starts_with("certificates")).count(), 0);
    }
}

#[test]
fn a_link_that_leads_elsewhere_is_followed_again_and_again() {
    let all = [certificate(|_| {}), certificate(|_| {}), certificate(|_| {})];
    // As Kubernetes mounts secrets: the link of the folder is replaced, those of the files stay.
    let mut server = Operated::told("certificates-links", ECHO, |server| {
        server.put_in("..0", &all[0]);
        symlink("..0", server.path("..data")).expect("a link");
        for file in ["a.pem", "a.key"] {
            symlink(format!("..data/{file}"), server.path(file)).expect("a link");
        }
    });
    let mut kept = server.shows(&all[0]);
    for (number, certificate) in all.iter().enumerate().skip(1) {
        server.put_in(&format!("..{number}"), certificate);
        symlink(format!("..{number}"), server.path("..new")).expect("a link");
        fs::rename(server.path("..new"), server.path("..data")).expect("the link is replaced");
        fs::remove_dir_all(server.path(&format!("..{}", number - 1))).expect("the old files go");
        server.is_renewed();
        server.shows(certificate);
    }
    // A file behind links is rewritten where it is.
    fs::write(server.path("..2/a.pem"), &all[0].pem).expect("a file");
    fs::write(server.path("..2/a.key"), &all[0].key).expect("a file");
    server.is_renewed();
    server.shows(&all[0]);
    kept.is_answered().expect("it goes on");
}

#[test]
fn files_that_are_half_replaced_change_nothing_until_they_go_together() {
    let (old, new) = (certificate(|_| {}), certificate(|_| {}));
    let mut server = Operated::told("certificates-halves", ECHO, |server| server.put("a", &old));
    // Equal content in new files is no change.
    server.put("a", &old);
    assert_eq!(server.says("reload"), "nothing to change: revision 1 is in force\n");
    let (half, rest) = new.pem.split_at(new.pem.len() / 2);
    server.replace("a.pem", half);
    server.is_refused("a.pem: ");
    server.shows(&old);
    let mut file = OpenOptions::new().append(true).open(server.path("a.pem")).expect("it is there");
    file.write_all(rest.as_bytes()).expect("the folder takes it");
    drop(file);
    server.is_refused("a.key: it is not the key of the certificate in a.pem");
    server.shows(&old);
    server.replace("a.key", &new.key);
    server.is_renewed();
    server.shows(&new);
    let status = server.says("status");
    assert!(status.contains(" (1 changes, 2 failed)") && !status.contains("certificates: "), "{status}");
}

#[test]
fn what_cannot_be_used_is_told_once_and_the_old_goes_on() {
    let (old, other) = (certificate(|_| {}), certificate(|_| {}));
    let expired = certificate(|parameters| parameters.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let mut server = Operated::told("certificates-unusable", ECHO, |server| server.put("a", &old));
    let mut kept = server.shows(&old);
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (file, text, why) in [
        ("a.pem", Some("nonsense"), "a.pem: there is no certificate in PEM form"),
        ("a.pem", Some(old.key.as_str()), "a.pem: it has a key and no certificate: name the file of the certificate"),
        ("a.pem", None, "a.pem: No such file or directory (os error 2): name a file that is there and may be read"),
        ("a.key", Some(other.key.as_str()), "a.key: it is not the key of the certificate in a.pem"),
        ("a.key", Some(encrypted), "a.key: the key is encrypted: decrypt it into a file"),
        ("a.key", Some(old.pem.as_str()), "a.key: it has a certificate and no key: name the file of the private key"),
        ("a.key", Some(""), "a.key: there is no private key in PEM form"),
    ] {
        match text {
            Some(text) => server.replace(file, text),
            None => fs::remove_file(server.path(file)).expect("it is there"),
        }
        server.is_refused(why);
        server.shows(&old);
        server.put("a", &old);
        assert_eq!(server.came().0, "NotChanged");
        assert!(!server.says("status").contains("certificates: "), "it is over");
    }
    symlink(".", server.path("new"))
        .and_then(|()| fs::rename(server.path("new"), server.path("a.key")))
        .expect("a link to a folder");
    server.is_refused("a.key: it is no regular file");
    server.replace("a.key", &old.key);
    assert_eq!(server.came().0, "NotChanged");
    server.replace("a.pem", &(old.pem.clone() + &"#".repeat(4 << 20)));
    server.is_refused("a.pem: it is longer than 4 MiB: name a file of certificates, or a key");
    server.put("a", &expired);
    while !server.came().1.contains("tls-cert: a.pem: it has expired: clients would refuse it; renew it") {}
    server.shows(&old);
    kept.is_answered().expect("it goes on");
    let generations = server.says("generations");
    let begun = generations.lines().filter(|line| line.starts_with("echo ")).count();
    assert_eq!(begun, 1, "{generations}");
}

/// Reloads a file that names bad certificates instead of the good one, or beside it.
#[test]
fn a_good_certificate_gives_way_to_none_that_clients_refuse() {
    let good = certificate(|_| {});
    let expired = certificate(|parameters| parameters.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let early = certificate(|parameters| parameters.not_before = rcgen::date_time_ymd(4000, 1, 1));
    let server = Operated::told("certificates-refused", ECHO, |server| server.put("a", &good));
    for (name, certificate, why) in [("b", &expired, "it has expired"), ("c", &early, "it is not valid yet")] {
        server.put(name, certificate);
        let both = |kind: &str| format!("tls-{kind} = [\"a.{0}\", \"{name}.{0}\"]", if kind == "cert" { "pem" } else { "key" });
        let (pool, _) = ECHO.split_once("tls-cert").expect("it has one");
        for file in [ECHO.replace("\"a.", &format!("\"{name}.")), format!("{pool}{}\n{}\n", both("cert"), both("key"))] {
            server.write(&file);
            let end = server.ctl("reload");
            assert!(
                end.code != Some(0) && end.stderr.contains(&format!("{name}.pem: {why}: clients would refuse it")),
                "{end:?}"
            );
            server.shows(&good);
        }
    }
}

#[test]
fn operators_who_watch_events_are_told() {
    let own = certificate(|_| {});
    let server = Operated::told("certificates-events", ECHO, |server| server.put("a", &own));
    let mut events = server.command("events").stdout(Stdio::piped()).spawn().expect("the program starts");
    let lines = BufReader::new(events.stdout.take().expect("it was asked for")).lines();
    let (sender, told) = channel();
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    // It watches from some moment on.
    while told.try_recv().is_err() {
        server.says("suspend --pool echo");
        server.says("resume --pool echo");
    }
    fs::remove_file(server.path("a.key")).expect("it is there");
    let line = told.iter().find(|line| line.contains("certificates")).expect("it goes on");
    let says = [
        "certificates by its files failed, all goes on as it was: a.toml:",
        ": pool.echo.tls-key: a.key: No such file or directory",
    ];
    assert!(says.iter().all(|part| line.contains(part)), "{line}");
    assert_eq!(server.end().code, Some(0));
    // The stream ends with the server.
    let _ = reader.join();
    assert!(events.wait().is_ok());
}

#[test]
fn status_and_metrics_tell_when_it_expires_and_a_rollback_goes_back_to_files_as_they_are() {
    let [first, second, renewed] =
        [2030, 2031, 2032].map(|year| certificate(|of| of.not_after = rcgen::date_time_ymd(year, 1, 1)));
    let mut server = Operated::told("certificates-rollback", ECHO, |server| {
        server.put("a", &first);
        server.put("b", &second);
    });
    let expires = |server: &Operated, file: &str, seconds: u64| {
        let json: serde_json::Value = serde_json::from_str(&server.says("status --json")).expect("JSON");
        let shown = serde_json::json!([{"file": file, "expires": seconds}]);
        assert_eq!(json["pools"]["echo"]["tls"]["certificates"], shown);
        let metrics = server.metrics();
        let line = format!("sockdrawer_tls_certificate_expiry_seconds{{certificate=\"{file}\"}} {seconds}\n");
        assert!(metrics.contains(&line), "{metrics}");
    };
    expires(&server, "a.pem", 1_893_456_000);
    let table = server.says("status");
    assert!(table.lines().any(|line| line.starts_with("echo ") && line.contains("  a.pem (expires in ")), "{table}");
    fs::write(server.path("b.toml"), fs::read_to_string(server.path("a.toml")).expect("a file").replace("a.", "b."))
        .expect("a file");
    let plan = server.says("apply b.toml");
    assert!(plan.contains("tls-cert  new generation  a.pem to b.pem\n"), "{plan}");
    server.shows(&second);
    expires(&server, "b.pem", 1_924_992_000);
    // Meanwhile the one before is renewed.
    server.put("a", &renewed);
    assert!(server.says("rollback").contains("revision 3 is in force"));
    server.shows(&renewed);
    expires(&server, "a.pem", 1_956_528_000);
    let refused = server.ctl("rollback");
    assert!(
        refused.stderr.starts_with("error: revision 3 has the configuration of the start: there is none before it"),
        "{refused:?}"
    );
    // It is watched again.
    server.put("a", &first);
    server.is_renewed();
    server.shows(&first);
    assert!(server.says("status").contains("revision 3 "), "another content is no revision");
}

#[test]
fn a_port_under_tls_stands_beside_a_plain_one_of_its_pool() {
    let (own, other) = (certificate(|_| {}), certificate(|_| {}));
    let file = |name: &str| {
        format!(
            "[pool.echo]\nprotocol = \"echo\"\nlisten = [\"127.0.0.1:0\", {{ address = \"127.0.0.2:0\", limit = 5, tls-cert = \"{name}.pem\", \
             tls-key = [\"{name}.key\"] }}, \"127.0.0.3:0,tls-cert=a.pem,tls-key=a.key,proxy-protocol=unix,from=127.0.0.0/8\"]\n"
        )
    };
    let mut server = Operated::told("certificates-beside", &file("a"), |server| {
        server.put("a", &own);
        server.put("b", &other);
    });
    let status: serde_json::Value = serde_json::from_str(&server.says("status --json")).expect("JSON");
    let at = |number: usize| status["pools"]["echo"]["listeners"][number]["address"].as_str().expect("it listens").to_owned();
    let mut plain = std::net::TcpStream::connect(at(0)).expect("it listens");
    let mut is_echoed = || {
        let mut answer = [0; 5];
        plain.write_all(b"plain").and_then(|()| std::io::Read::read_exact(&mut plain, &mut answer)).expect("it is served");
        assert_eq!(&answer, b"plain");
    };
    is_echoed();
    let mut secret = connect(&at(1));
    assert!(secret.was_shown(&own));
    let header = "PROXY TCP4 192.0.2.1 192.0.2.2 7 8\r\n";
    let behind = Client::connect(&at(2), &Asks { header, ..Asks::default() }).expect("a header, and TLS behind it");
    assert!(behind.was_shown(&own) && server.says("connections").contains("192.0.2.1:7"));
    assert_eq!(server.says("reload"), "nothing to change: revision 1 is in force\n");
    // Another certificate at one port, and then another content of a file.
    server.write(&file("b"));
    let said = server.says("reload");
    assert!(said.contains("other layers on 127.0.0.2:0"), "the port is named: {said}");
    assert!(connect(&at(1)).was_shown(&other));
    server.put("b", &own);
    server.is_renewed();
    assert!(connect(&at(1)).was_shown(&own));
    secret.is_answered().expect("it goes on");
    is_echoed();
    for (wrong, why) in [
        (file("c"), "pool.echo.listen: 127.0.0.2:0,limit=5,tls-cert=c.pem,tls-key=c.key: tls-cert: c.pem: "),
        (file("b") + "tls-cert = \"a.pem\"\ntls-key = \"a.key\"\n", "has layers of its own, and tls-cert is for all addresses"),
        (file("b") + "model = \"prefork\"\n", "prefork has the same layers at all addresses"),
        ("[pool.echo]\nprotocol = \"echo\"\nlisten = { tls-cert = \"a.pem\" }\n".to_owned(), "has no address"),
    ] {
        server.write(&wrong);
        let refused = server.ctl("reload");
        assert!(refused.code != Some(0) && refused.stderr.contains(why), "{refused:?}");
    }
}
