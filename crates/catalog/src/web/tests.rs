//! Requests that are right, wrong and slow, without sockets where no answer is needed.

use super::*;
use sockdrawer::testing::Driver;
use sockdrawer::{Config, Pool};
use std::io::{Read, Write};
use std::net::TcpStream;

fn pages(request: &Request, _from: &mut Connection) -> Answer {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/words") => Answer::stream("text/plain", |to| (0..5000).try_for_each(|word| writeln!(to, "{word}"))),
        ("PUT", "/body") => Answer::new(200, "text/plain", request.body.clone()).field("ETag", "\"7\""),
        (_, "/query") => Answer::text(200, format!("{:?}", request.query)),
        (method, path) => Answer::error(404, format_args!("nothing is at {method} \"{path}\"")),
    }
}

fn web() -> Web {
    Web::new(pages).max_body(100)
}

/// Returns what a pool answers to these bytes, until it ends the connection.
fn asked(requests: &[u8]) -> String {
    let web = web();
    let mut config = Config::accept(web.clone()).listen("127.0.0.1:0").loops(1).workers(0);
    web.fit(&mut config.settings);
    let pool = Pool::start(config).expect("a pool");
    let address = pool.addresses().remove(0).to_string();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(requests).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn requests_of_a_connection_are_answered_one_after_the_other() {
    let answers = asked(
        b"PUT /body HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET /query?a=1+2&b=%22&c HTTP/1.1\r\n\r\nGET /\" HTTP/1.1\r\nConnection: close\r\n\r\n",
    );
    let first = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"7\"\r\nContent-Length: 5\r\n\r\nhello";
    assert!(answers.starts_with(first), "{answers}");
    assert!(answers.contains(r#"[("a", "1 2"), ("b", "\""), ("c", "")]"#), "{answers}");
    assert!(answers.ends_with("Connection: close\r\n\r\n{\"error\":\"nothing is at GET \\\"/\\\"\\\"\"}\n"), "{answers}");
}

#[test]
fn a_streamed_answer_comes_in_chunks_and_ends() {
    let answer = asked(b"GET /words HTTP/1.1\r\nConnection: close\r\n\r\n");
    let (head, mut rest) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    let mut body = String::new();
    loop {
        let (length, after) = rest.split_once("\r\n").expect("a length");
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            break assert_eq!(after, "\r\n");
        }
        body += &after[..length];
        rest = after[length..].strip_prefix("\r\n").expect("the end of a chunk");
    }
    assert_eq!(body, (0..5000).map(|word| format!("{word}\n")).collect::<String>());
    let head = asked(b"HEAD /words HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn each_wrong_request_gets_one_error_and_the_end() {
    let long = [b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'x'; MAX_HEAD], b"\r\n\r\n".to_vec()].concat();
    let fields = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    let wrong: [(&[u8], u16); 9] = [
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET words HTTP/1.1\r\n\r\n", 400),
        (b"GET /%zz HTTP/1.1\r\n\r\n", 400),
        (b"PUT /body HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (b"PUT /body HTTP/1.1\r\nContent-Length: 101\r\n\r\n", 413),
        (b"PUT /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (&long, 431),
        (fields.as_bytes(), 431),
    ];
    for (request, status) in wrong {
        let mut connection = Driver::open(web());
        connection.receive(request);
        let answer = String::from_utf8(connection.sent()).expect("text");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains("{\"error\":\"") && connection.closed().is_some(), "{answer}");
    }
}

#[test]
fn a_request_that_does_not_come_is_answered_at_its_deadline() {
    let mut connection = Driver::open(web());
    connection.receive(b"PUT /body HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(connection.sent(), b"HTTP/1.1 100 Continue\r\n\r\n");
    connection.receive(b"hell");
    connection.advance(REQUEST_WITHIN);
    let answer = String::from_utf8(connection.sent()).expect("text");
    assert!(answer.starts_with("HTTP/1.1 408 ") && connection.closed().is_some(), "{answer}");
}

#[test]
fn the_oldest_silent_client_gives_way() {
    let web = web().max_silent(2);
    let mut config = Config::accept(web.clone()).listen("127.0.0.1:0").loops(1).workers(0).limit(4);
    web.fit(&mut config.settings);
    let pool = Pool::start(config).expect("a pool");
    let address = pool.addresses().remove(0).to_string();
    let connect = || {
        let stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        stream
    };
    let connect_silent = |number: u64| {
        let mut stream = connect();
        // Half a request is none.
        stream.write_all(b"GET /query HTTP/1.1\r\n").expect("it stands");
        // Listening sockets of an address are accepted from in no order.
        assert!(pool.wait(Duration::from_secs(20), |status| status.counts.accepted == number), "{:?}", pool.status());
        stream
    };
    let mut silent: Vec<TcpStream> = (1..=4).map(connect_silent).collect();
    for mut oldest in silent.drain(..2) {
        let end = oldest.read(&mut [0; 1]);
        assert!(matches!(&end, Ok(0)) || end.is_err_and(|end| end.kind() == std::io::ErrorKind::ConnectionReset));
    }
    for _ in 0..20 {
        let (mut stream, mut answer) = (connect(), String::new());
        stream.write_all(b"GET /query HTTP/1.1\r\nConnection: close\r\n\r\n").expect("it reads");
        stream.read_to_string(&mut answer).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn a_client_that_does_not_read_holds_no_thread_that_answers() {
    let large = |_: &Request, _: &mut Connection| Answer::text(200, "x".repeat(400 * 1024));
    let web = Web::new(large);
    let mut config = Config::accept(web.clone()).listen("127.0.0.1:0").loops(1).workers(0);
    web.fit(&mut config.settings);
    // Less than the answer fits into the kernel.
    config.settings.options.send_buffer = Some(4096);
    config.delegates = 1;
    let pool = Pool::start(config).expect("a pool");
    let address = pool.addresses().remove(0).to_string();
    let ask = || {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").expect("it reads");
        stream
    };
    let unread: Vec<TcpStream> = (0..3).map(|_| ask()).collect();
    let mut answer = String::new();
    let since = std::time::Instant::now();
    ask().read_to_string(&mut answer).expect("text");
    assert!(answer.ends_with("xxx") && since.elapsed() < WRITE_TIMEOUT, "after {:?}", since.elapsed());
    drop(unread);
}
