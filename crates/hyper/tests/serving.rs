//! An axum app on a pool: clients that are silent, slow or deaf, drains of both versions of HTTP, WebSockets, and timeouts that change.

use axum::extract::{Extension, WebSocketUpgrade, ws::Message, ws::WebSocket};
use axum::{Router, body::Body, body::Bytes, response::Response, routing::get};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sockdrawer::observe::Event;
use sockdrawer::{Behaviour, Config, Drain, Model, Pool, Selector, tasks::Info};
use sockdrawer_hyper::{Server, Timeouts};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A failing test ends by this; a passing one never waits for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// No passing test waits for it either.
const FAR: Timeouts = Timeouts { head: PATIENCE, write: PATIENCE, last_request: PATIENCE };
const SOON: Duration = Duration::from_millis(200);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: app\r\n\r\n";

struct Scene {
    pool: Pool,
    at: SocketAddr,
    runtime: Runtime,
    server: Server<Router>,
    reports: mpsc::Receiver<String>,
}

async fn echo(mut socket: WebSocket, info: Info) {
    loop {
        let message = tokio::select! {
            message = socket.recv() => message,
            () = info.draining() => return drop(socket.send(Message::Close(None)).await),
        };
        match message {
            Some(Ok(message @ Message::Binary(_))) => socket.send(message).await.expect("it stands"),
            Some(Ok(_)) => {}
            _ => return,
        }
    }
}

fn app() -> Router {
    let page = async |Extension(info): Extension<Info>| format!("you are {}\n", info.id());
    let chat = async |Extension(info): Extension<Info>, upgrade: WebSocketUpgrade| -> Response {
        upgrade.on_upgrade(|socket| echo(socket, info))
    };
    let endless = async || Body::new(Endless);
    Router::new().route("/", get(page)).route("/chat", get(chat)).route("/endless", get(endless))
}

/// A body without an end.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(Bytes::from_static(&[b'x'; 65536])))))
    }
}

impl Scene {
    fn new(timeouts: Timeouts) -> Scene {
        let (says, reports) = mpsc::channel();
        let observer = move |event: &Event| {
            if let Event::Reported { report: sockdrawer::Report { message, .. }, .. } = event {
                // Some tests do not listen.
                let _ = says.send(message.clone());
            }
        };
        let config = Config::accept(Behaviour::listener()).model(Model::Tasks).loops(1).observer(observer);
        let pool = Pool::start(config.listen("127.0.0.1:0")).expect("it starts");
        let at = pool.addresses()[0].to_string().parse().expect("an address of TCP");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let server = Server::new(app(), timeouts);
        let (serves, listener) = (server.clone(), pool.listener());
        runtime.spawn(async move { serves.serve(listener).await });
        Scene { pool, at, runtime, server, reports }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.at).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("above zero");
        Client(stream)
    }

    #[track_caller]
    fn reported(&self, what: &str) {
        let report = self.reports.recv_timeout(PATIENCE).expect("it is reported");
        assert!(report.starts_with(what), "{report}");
    }

    fn drain(&self) -> std::thread::JoinHandle<sockdrawer::Drained> {
        let pool = self.pool.clone();
        std::thread::spawn(move || pool.drain(&Selector::All, Drain::within(PATIENCE)))
    }

    /// Waits until each connection knows that it is to end.
    fn is_asked(&self) {
        assert!(self.pool.wait(PATIENCE, |_| self.pool.connections(&Selector::All).iter().all(|one| one.draining)));
    }
}

struct Client(TcpStream);

impl Client {
    fn ask(&mut self, request: &[u8]) -> String {
        self.0.write_all(request).expect("it reads");
        self.head()
    }

    fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&head)));
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text").to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().expect("a number"));
        self.0.read_exact(&mut vec![0; length]).expect("a body");
        head
    }

    #[track_caller]
    fn ends(mut self) {
        assert_eq!(self.0.read(&mut [0; 64]).expect("an orderly end"), 0);
    }

    /// Reads up to the end; an answer may come before it.
    fn ends_at_last(mut self) {
        self.0.read_to_end(&mut Vec::new()).expect("an orderly end");
    }
}

#[test]
fn a_client_that_says_nothing_is_closed() {
    let scene = Scene::new(Timeouts { head: SOON, ..FAR });
    let began = Instant::now();
    scene.client().ends();
    assert!(began.elapsed() >= SOON);
    scene.reported("no request within 200ms");
}

#[test]
fn the_rest_of_a_head_and_a_connection_at_rest_have_their_time() {
    let scene = Scene::new(Timeouts { head: SOON, ..FAR });
    let mut slow = scene.client();
    slow.0.write_all(&GET[..20]).expect("it reads");
    slow.ends_at_last();
    scene.reported("no request within 200ms");
    let mut rests = scene.client();
    assert!(rests.ask(GET).starts_with("http/1.1 200"));
    rests.ends();
    assert!(scene.reports.try_recv().is_err(), "a rest is no news");
    // A preface of HTTP/2 is no request.
    let mut second = scene.client();
    second.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("it reads");
    second.ends_at_last();
    scene.reported("no request within 200ms");
}

#[test]
fn timeouts_change_for_connections_that_come() {
    let scene = Scene::new(FAR);
    let mut kept = scene.client();
    kept.ask(GET);
    scene.server.set_timeouts(Timeouts { head: SOON, ..FAR });
    scene.client().ends();
    assert!(kept.ask(GET).starts_with("http/1.1 200"));
}

#[test]
fn a_client_that_takes_nothing_is_reset() {
    let scene = Scene::new(Timeouts { write: SOON, ..FAR });
    let mut deaf = scene.client();
    deaf.ask(b"GET /endless HTTP/1.1\r\nHost: app\r\n\r\n");
    scene.reported("the peer took nothing of an answer within 200ms");
    let end = std::io::copy(&mut deaf.0, &mut std::io::sink()).expect_err("it does not look complete");
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert!(scene.pool.wait(PATIENCE, |status| status.connections == 0));
}

#[test]
fn a_client_that_reads_slowly_goes_on() {
    let within = Duration::from_millis(500);
    let scene = Scene::new(Timeouts { write: within, ..FAR });
    let mut slow = scene.client();
    slow.0.write_all(b"GET /endless HTTP/1.1\r\nHost: app\r\n\r\n").expect("it reads");
    let (began, mut part) = (Instant::now(), vec![0; 40_000]);
    // The kernel has a MiB or more for the connection, and tells of room after a third of that.
    while began.elapsed() < 6 * within {
        slow.0.read_exact(&mut part).expect("it goes on");
        // waits because: the client is slow.
        std::thread::sleep(within / 10);
    }
}

#[test]
fn a_drain_is_told_with_the_next_answer() {
    let scene = Scene::new(FAR);
    let mut clients: Vec<Client> = (0..3).map(|_| scene.client()).collect();
    for client in &mut clients {
        assert!(!client.ask(GET).contains("connection: close"));
    }
    let drain = scene.drain();
    scene.is_asked();
    for mut client in clients {
        assert!(client.ask(GET).contains("connection: close"));
        client.ends();
    }
    let drained = drain.join().expect("no panic");
    assert_eq!((drained.ended, drained.cut), (3, 0));
}

#[test]
fn a_connection_at_rest_ends_after_its_time_for_a_last_request() {
    let scene = Scene::new(Timeouts { last_request: SOON, ..FAR });
    let mut rests = scene.client();
    rests.ask(GET);
    let (silent, began) = (scene.client(), Instant::now());
    assert!(scene.pool.wait(PATIENCE, |status| status.connections == 2));
    let drained = scene.pool.shutdown(Drain::within(PATIENCE));
    assert_eq!((drained.ended, drained.cut), (2, 0));
    assert!((SOON..PATIENCE).contains(&began.elapsed()));
    rests.ends();
    silent.ends();
}

#[test]
fn http_2_hears_of_a_drain_at_once() {
    let scene = Scene::new(FAR);
    let stream = scene.client().0;
    stream.set_nonblocking(true).expect("a socket");
    let (ended, drained) = scene.runtime.block_on(async {
        let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream).expect("a socket"));
        let (mut requests, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.expect("both know it");
        let ended = tokio::spawn(connection);
        let request = Request::get("http://app/").body(String::new()).expect("a request");
        assert_eq!(requests.send_request(request).await.expect("an answer").status(), 200);
        let drained = scene.pool.drain_async(Selector::All, Drain::within(PATIENCE)).await;
        (ended.await, drained)
    });
    assert!(ended.expect("no panic").is_ok());
    assert_eq!((drained.ended, drained.cut), (1, 0));
}

/// Checks that an upgrade keeps its own `Connection: upgrade`, though the connection is to end.
#[test]
fn a_web_socket_is_asked_to_end_by_its_handler() {
    const UPGRADE: &[u8] = b"GET /chat HTTP/1.1\r\nHost: app\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let scene = Scene::new(FAR);
    let [mut socket, mut late] = [scene.client(), scene.client()];
    assert!(socket.ask(UPGRADE).starts_with("http/1.1 101"));
    socket.0.write_all(&[0x82, 0x81, 0, 0, 0, 0, b'x']).expect("it reads");
    let mut echo = [0; 3];
    socket.0.read_exact(&mut echo).expect("an echo");
    assert_eq!(echo, [0x82, 1, b'x']);
    late.ask(GET);
    let drain = scene.drain();
    scene.is_asked();
    let upgraded = late.ask(UPGRADE);
    assert!(upgraded.starts_with("http/1.1 101") && upgraded.contains("connection: upgrade"), "{upgraded}");
    for mut socket in [socket, late] {
        let mut goodbye = [0; 2];
        socket.0.read_exact(&mut goodbye).expect("a goodbye");
        assert_eq!(goodbye, [0x88, 0]);
        socket.ends();
    }
    let drained = drain.join().expect("no panic");
    assert_eq!((drained.ended, drained.cut), (2, 0));
}
