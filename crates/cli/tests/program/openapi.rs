//! The description of the control socket, held against a server: each operation, parameter and status of the file is asked for, and each
//! answer is one that the file describes, without a key that it does not.

use crate::operated::{Operated, TWO_POOLS};
use serde_json::{Value, json};
use sockdrawer_operate::client::Client;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The file, and what of it was not asked for yet.
struct File {
    whole: Value,
    left: BTreeSet<String>,
}

impl File {
    fn of(text: &str) -> File {
        let mut whole: Value = serde_json::from_str(text).expect("JSON");
        close(&mut whole["components"]["schemas"]);
        let mut left = BTreeSet::new();
        for (path, methods) in whole["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let method = method.to_uppercase();
                let statuses = operation["responses"].as_object().expect("responses").keys();
                left.extend(statuses.filter(|status| *status != "default").map(|status| format!("{method} {path} {status}")));
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                left.extend(parameters.map(|one| format!("{method} {path} ?{}", name(&whole, one))));
            }
        }
        File { whole, left }
    }

    /// Asks, and looks the answer up in the file.
    #[track_caller]
    fn ask(&mut self, client: &mut Client, (method, target): (&str, &str), fields: &[(&str, &str)], body: &str) -> (u16, String) {
        let answer = client.send(method, target, fields, body.as_bytes()).expect("an answer");
        let status = answer.status;
        let text = answer.text().expect("text");
        self.holds((method, target), fields, status, &text);
        (status, text)
    }

    #[track_caller]
    fn holds(&mut self, (method, target): (&str, &str), fields: &[(&str, &str)], status: u16, text: &str) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let operation = &self.whole["paths"][path][method.to_lowercase()];
        let response = &operation["responses"][status.to_string()];
        let response = if response.is_null() { &operation["responses"]["default"] } else { response };
        let response = resolved(&self.whole, response);
        let (kind, content) = response["content"].as_object().and_then(|all| all.iter().next()).expect("a content");
        let schema = content["schema"].as_object().expect("a schema").clone();
        let schema =
            Value::Object(schema.into_iter().chain([("components".to_owned(), self.whole["components"].clone())]).collect());
        let validator = jsonschema::draft202012::new(&schema).expect("a schema");
        let values: Vec<Value> = match kind.as_str() {
            "application/json" => vec![serde_json::from_str(text).expect(text)],
            "application/x-ndjson" => text.lines().map(|line| serde_json::from_str(line).expect(line)).collect(),
            _ => vec![json!(text)],
        };
        for value in values {
            let wrong: Vec<String> =
                validator.iter_errors(&value).map(|error| format!("{error} at {}", error.instance_path())).collect();
            assert!(wrong.is_empty(), "{method} {target} {status}: {wrong:?}\n{value}");
        }
        self.left.remove(&format!("{method} {path} {status}"));
        let names = query.split('&').filter_map(|part| part.split('=').next()).chain(fields.iter().map(|(name, _)| *name));
        names.filter(|_| status == 200).for_each(|name| _ = self.left.remove(&format!("{method} {path} ?{name}")));
    }
}

/// Returns what a reference names.
fn resolved<'a>(whole: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(place) => whole.pointer(place.trim_start_matches('#')).expect("it is there"),
        None => value,
    }
}

fn name(whole: &Value, parameter: &Value) -> String {
    resolved(whole, parameter)["name"].as_str().expect("a name").to_owned()
}

/// Closes all objects: one with a key that the file does not name is refused.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(close);
            if map.get("type") == Some(&json!("object")) && map.contains_key("properties") {
                map.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(all) => all.iter_mut().for_each(close),
        _ => {}
    }
}

fn connect(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.write_all(b"hello").and_then(|()| stream.read_exact(&mut [0; 5])).expect("the server answers");
    stream
}

/// Returns what a server answers to these bytes, until it ends the connection.
pub(crate) fn answer(path: &str, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    // A server that refuses may close before it has read all.
    let _ = stream.write_all(bytes);
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn each_operation_of_the_file_answers_as_the_file_says() {
    let upgrade = std::env::temp_dir().join(format!("sockdrawer-openapi-{}", std::process::id())).join("upgrade");
    let with_upgrade = format!("upgrade = \"{}\"\n{TWO_POOLS}", upgrade.display());
    let server = Operated::start("openapi", &with_upgrade);
    let mut client = Client::at(server.path("c.sock"));
    let text = client.send("GET", "/openapi.json", &[], b"").expect("an answer").text().expect("text");
    let mut file = File::of(&text);
    for path in ["/status", "/config", "/openapi.json", "/metrics", "/readyz", "/healthz"] {
        assert_eq!(file.ask(&mut client, ("GET", path), &[], "").0, 200);
    }
    changes(&mut file, &mut client, &server, &with_upgrade);
    connections(&mut file, &mut client, &server);
    events(&mut file, &mut client, &server);
    errors(&mut file, &server);
    let without = Operated::start("openapi-without", TWO_POOLS);
    assert_eq!(file.ask(&mut Client::at(without.path("c.sock")), ("POST", "/upgrade"), &[], "").0, 409);
    assert!(file.ask(&mut client, ("POST", "/upgrade?dry-run"), &[], "").1.contains("\"plan\""));
    let (_, upgraded) = file.ask(&mut client, ("POST", "/upgrade"), &[], "");
    assert!(upgraded.contains("\"result\""), "{upgraded}");
    let (_, revisions) = file.ask(&mut Client::at(server.path("c.sock")), ("GET", "/revisions"), &[], "");
    assert!(
        revisions.contains("\"what\":\"reload\"") && revisions.contains("\"what\":\"upgrade\""),
        "a new build goes on with the list: {revisions}"
    );
    assert_eq!(file.ask(&mut Client::at(server.path("c.sock")), ("POST", "/stop"), &[], "").0, 200);
    assert_eq!(server.has_ended().code, Some(0));
    assert!(file.left.is_empty(), "never asked for: {:#?}", file.left);
}

fn changes(file: &mut File, client: &mut Client, server: &Operated, right: &str) {
    for (text, status) in [
        (right.replace("1000", "2000"), 200),
        (right.replace("limit", "limt"), 422),
        (format!("metrics = \"127.0.0.1:0\"\n{right}"), 409),
    ] {
        server.write(&text);
        assert_eq!(file.ask(client, ("POST", "/reload?dry-run"), &[], "").0, status, "{text}");
        assert_eq!(file.ask(client, ("POST", "/reload"), &[], "").0, status, "{text}");
    }
    let (_, config) = file.ask(client, ("GET", "/config"), &[], "");
    let other = config.replace("2000", "3000");
    let elsewhere = config.replacen('{', "{\"metrics\":\"127.0.0.1:0\",", 1);
    let pools_alone = other.replace("3000", "4000");
    let pools_alone = &pools_alone[pools_alone.find("\"pool\"").expect("pools")..];
    let pools_alone = format!("{{{pools_alone}");
    let toml = ("Content-Type", "application/toml");
    for (target, fields, body, status) in [
        ("/config?dry-run=true", vec![("If-Match", "\"2\"")], other.as_str(), 200),
        ("/config", vec![("If-Match", "\"1\"")], &other, 412),
        ("/config", vec![("If-Match", "\"2\"")], &other, 200),
        // Settings of the whole program that are left out stay as they are.
        ("/config", vec![], &pools_alone, 200),
        ("/config", vec![("Content-Type", "text/html")], &other, 415),
        ("/config", vec![], "{\"pool\":{\"a\":{},\"b\":{}}}", 422),
        ("/config", vec![toml], "[pool.a]", 422),
        ("/config", vec![], &elsewhere, 409),
        ("/config?dry", vec![], &other, 400),
    ] {
        assert_eq!(file.ask(client, ("PUT", target), &fields, body).0, status, "{target} {fields:?} {body}");
    }
    assert_eq!(file.ask(client, ("POST", "/rollback"), &[("If-Match", "\"2\"")], "").0, 412);
    assert_eq!(file.ask(client, ("POST", "/rollback?dry-run="), &[("If-Match", "\"4\"")], "").0, 200);
    for status in [200, 200, 200, 409] {
        assert_eq!(file.ask(client, ("POST", "/rollback"), &[], "").0, status);
    }
    let (_, revisions) = file.ask(client, ("GET", "/revisions"), &[], "");
    assert!(revisions.contains("\"back_to\":1") && revisions.contains("\"rollback_to\":null"), "{revisions}");
    server.write(right);
}

fn connections(file: &mut File, client: &mut Client, server: &Operated) {
    let address = &server.addresses[0];
    let _connections = [connect(address), connect(address)];
    let (_, list) = file.ask(client, ("GET", "/connections"), &[], "");
    assert_eq!(list.lines().count(), 2, "{list}");
    let selectors = format!("pool=echo&id=1&generation=1&before=2&peer=127.0.0.0%2F8&older-than=1h&tag=none&listener={address}");
    assert_eq!(file.ask(client, ("GET", &format!("/connections?{selectors}")), &[], ""), (200, String::new()));
    assert_eq!(file.ask(client, ("GET", "/connections?pool=web"), &[], "").0, 404);
    for what in ["/suspend", "/resume"] {
        assert_eq!(file.ask(client, ("POST", &format!("{what}?pool=web")), &[], "").0, 404);
        assert_eq!(file.ask(client, ("POST", &format!("{what}?pool=echo&listener={address}")), &[], "").0, 200);
        assert_eq!(file.ask(client, ("POST", what), &[], "").0, 200);
        let ready = file.ask(client, ("GET", "/readyz"), &[], "").0;
        assert_eq!(ready, if what == "/suspend" { 503 } else { 200 });
    }
    for (what, rest) in [("adopt", ""), ("kill", ""), ("purge", "&within=5s"), ("drain", "&within=5s&rate=1000")] {
        for (query, status) in
            [(format!("?{selectors}{rest}"), 200), ("?all&pool=echo".to_owned(), 200), ("?all&pool=web".to_owned(), 404)]
        {
            assert_eq!(file.ask(client, ("POST", &format!("/{what}{query}")), &[], "").0, status, "{what}{query}");
        }
        assert_eq!(file.ask(client, ("POST", &format!("/{what}")), &[], "").0, 400, "{what}");
    }
}

fn events(file: &mut File, client: &mut Client, server: &Operated) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // It watches from some moment on.
        scope.spawn(|| {
            let mut other = Client::at(server.path("c.sock"));
            while !over.load(Ordering::Relaxed) {
                for path in ["/suspend?pool=ping", "/resume?pool=ping"] {
                    other.send("POST", path, &[], b"").expect("an answer").text().expect("text");
                }
            }
        });
        let answer = client.send("GET", "/events", &[], b"").expect("an answer");
        let (status, mut lines) = (answer.status, Vec::new());
        let read = answer.lines(|line| {
            lines.push(line.to_owned());
            if lines.len() < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        over.store(true, Ordering::Relaxed);
        read.expect("lines");
        file.holds(("GET", "/events"), &[], status, &lines.join("\n"));
    });
}

/// Errors of every operation. Another user is refused in a test of its own, and connections beyond the limit too.
fn errors(file: &mut File, server: &Operated) {
    let long = format!("GET /status HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(9_000));
    let cases: [(u16, &str); 7] = [
        (400, "nonsense\r\n\r\n"),
        (405, "PATCH /status HTTP/1.1\r\nConnection: close\r\n\r\n"),
        (411, "GET /status HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (413, "GET /status HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n"),
        (431, &long),
        (408, "GET /status HTTP/1.1\r\n"),
        (408, ""),
    ];
    let told = file.whole["components"]["responses"]["error"]["description"].as_str().expect("text").to_owned();
    // At the same time: what does not come is waited for.
    let answers: Vec<String> = thread::scope(|scope| {
        let all = cases.map(|(_, request)| scope.spawn(move || answer(&server.path("c.sock"), request.as_bytes())));
        all.into_iter().map(|one| one.join().expect("text")).collect()
    });
    for ((status, request), answer) in cases.iter().zip(answers) {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && told.contains(&status.to_string()), "{request}: {answer}");
        file.holds(("GET", "/status"), &[], *status, answer.split_once("\r\n\r\n").expect("a head").1);
    }
}
