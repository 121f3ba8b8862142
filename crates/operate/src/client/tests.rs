//! Answers of servers of all kinds, each read from a socket.

use super::*;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

struct Socket(PathBuf);

impl Socket {
    fn new(name: &str) -> Socket {
        let path = std::env::temp_dir().join(format!("sockdrawer-client-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Socket(path)
    }

    /// Accepts one connection for each list of answers; each answer is for a request, and the connection ends behind the last one.
    fn answers(&self, connections: &'static [&'static [&'static str]]) -> JoinHandle<usize> {
        let listener = UnixListener::bind(&self.0).expect("the folder takes it");
        thread::spawn(move || {
            let mut asked = 0;
            for answers in connections {
                let mut stream = BufReader::new(listener.accept().expect("a client").0);
                for answer in *answers {
                    let mut length = 0;
                    loop {
                        let mut line = String::new();
                        stream.read_line(&mut line).expect("a request");
                        let line = line.trim_end();
                        if let Some(text) = line.strip_prefix("Content-Length: ") {
                            length = text.parse().expect("a number");
                        }
                        if line.is_empty() {
                            break;
                        }
                    }
                    stream.read_exact(&mut vec![0; length]).expect("its body");
                    asked += 1;
                    stream.get_mut().write_all(answer.as_bytes()).expect("the client reads");
                }
            }
            asked
        })
    }

    fn client(&self) -> Client {
        Client::at(&self.0).timeout(Some(Duration::from_secs(20)))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: \"7\"\r\n\r\none";
const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na\nb\n\r\n5;x=y\r\nlong \r\n5\r\nline\n\r\n0\r\nTrailer: x\r\n\r\n";
const EMPTY: &str = "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n";

fn text(client: &mut Client, method: &str) -> (u16, Option<u64>, String) {
    let answer = client.send(method, "/x", &[("If-Match", "\"6\"")], b"body").expect("an answer");
    (answer.status, answer.revision, answer.text().expect("a whole body"))
}

#[test]
fn a_connection_is_kept_for_whole_answers_and_chunks() {
    let socket = Socket::new("kept");
    let server = socket.answers(&[&[WHOLE, CHUNKS, EMPTY, WHOLE]]);
    let mut client = socket.client();
    assert_eq!(text(&mut client, "PUT"), (200, Some(7), "one".to_owned()));
    assert_eq!(text(&mut client, "GET"), (200, None, "a\nb\nlong line\n".to_owned()));
    assert_eq!(text(&mut client, "PUT"), (412, None, String::new()));
    assert_eq!(text(&mut client, "PUT"), (200, Some(7), "one".to_owned()));
    assert_eq!(server.join().expect("the server ends"), 4, "all on one connection");
}

#[test]
fn lines_come_one_by_one_and_what_is_left_unread_ends_the_connection() {
    let socket = Socket::new("lines");
    let server = socket.answers(&[&[CHUNKS], &[CHUNKS]]);
    let mut client = socket.client();
    let mut lines = Vec::new();
    let mut of = |client: &mut Client, most: usize| {
        lines.clear();
        let answer = client.send("GET", "/x", &[], b"").expect("an answer");
        let result = answer.lines(|line| {
            lines.push(line.to_owned());
            if lines.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        result.map(|()| lines.clone()).expect("whole lines")
    };
    assert_eq!(of(&mut client, 1), ["a"]);
    assert_eq!(of(&mut client, 9), ["a", "b", "long line"]);
    server.join().expect("it was connected to twice");
}

#[test]
fn a_question_is_asked_again_where_the_kept_connection_was_closed_and_a_change_is_not() {
    let socket = Socket::new("again");
    let server = socket.answers(&[&[WHOLE], &[WHOLE]]);
    let mut client = socket.client();
    assert_eq!(text(&mut client, "PUT").0, 200);
    assert_eq!(text(&mut client, "GET").0, 200);
    server.join().expect("a second connection");
    let gone = client.send("POST", "/stop", &[], b"").expect_err("the server has ended");
    assert!(matches!(gone, ClientError::Ended(_)), "{gone}");
}

#[test]
fn what_is_no_answer_is_told_in_one_line() {
    let long = Box::leak(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD)).into_boxed_str());
    let cases: [(&'static str, &str); 8] = [
        ("SSH-2.0-x\r\n", "it speaks no HTTP"),
        ("HTTP/1.1 x\r\n\r\n", "its HTTP is wrong"),
        ("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "Content-Length is no number"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "gzip is not understood"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "its chunks have no sizes"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "closed the connection before"),
        ("HTTP/1.1 200 OK\r\n", "closed the connection before"),
        (long, "too long"),
    ];
    for (answer, part) in cases {
        let socket = Socket::new("wrong");
        let server = socket.answers(vec![vec![answer].leak() as &[&str]].leak());
        let told = match socket.client().send("POST", "/x", &[], b"") {
            Ok(answer) => answer.text().expect_err(part).to_string(),
            Err(error) => error.to_string(),
        };
        assert!(told.contains(part) && told.contains("client-") && !told.contains('\n'), "{part}: {told}");
        server.join().expect("the server ends");
    }
}

#[test]
fn a_socket_that_is_not_there_is_dead_or_silent_is_told_by_its_path() {
    let socket = Socket::new("none");
    let told = |client: &mut Client| client.send("GET", "/status", &[], b"").expect_err("no server").to_string();
    assert!(told(&mut socket.client()).starts_with("no control socket at "));
    std::fs::write(&socket.0, "a file").expect("the folder takes it");
    assert!(told(&mut socket.client()).starts_with("no control socket at "));
    std::fs::remove_file(&socket.0).expect("it is there");
    let listener = UnixListener::bind(&socket.0).expect("the folder takes it");
    let mut impatient = socket.client().timeout(Some(Duration::from_millis(30)));
    let silent = told(&mut impatient);
    assert!(silent.contains("did not answer within 30ms"), "{silent}");
    drop(listener);
    assert!(told(&mut socket.client()).starts_with("nothing answers at "));
    let long = told(&mut Client::at("/".to_owned() + &"x".repeat(200)));
    assert!(long.starts_with("cannot use /xxx"), "{long}");
}
