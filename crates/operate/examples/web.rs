//! An axum app that is operated: HTTP/1.1, h2 and WebSockets, TLS by the file, times for heads and writes, metrics of its own, and a drain that clients
//! are told of.
//!
//! `cargo run -p sockdrawer-operate --example web -- crates/operate/examples/web.toml`, then `curl http://127.0.0.1:9000/`.
use axum::extract::{Extension, State, WebSocketUpgrade, ws::Message, ws::WebSocket};
use axum::{Router, response::Response, routing::get};
use sockdrawer::tasks::Info;
use sockdrawer_hyper::{Server, Timeouts};
use sockdrawer_operate::{Counter, Kind, MetricFamily, Operated, Protocol, Setting};
use std::process::ExitCode;
use tokio::runtime::Runtime;

const HEAD: Setting = Setting::new("head", Kind::PositiveTime, "How long the head of a request may take").unless_given("10s");
type Requests = MetricFamily<Counter, 1>;

async fn page(State(requests): State<Requests>, Extension(info): Extension<Info>) -> String {
    requests.at(["page"]).add(1);
    format!("you are {}\n", info.id())
}

async fn chat(State(requests): State<Requests>, Extension(info): Extension<Info>, upgrade: WebSocketUpgrade) -> Response {
    requests.at(["chat"]).add(1);
    upgrade.on_upgrade(|socket| echo(socket, info))
}

async fn echo(mut socket: WebSocket, info: Info) {
    loop {
        let message = tokio::select! {
            message = socket.recv() => message,
            () = info.draining() => return drop(socket.send(Message::Close(None)).await),
        };
        let echoed = match message {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => socket.send(message).await,
            // axum answers a ping and a close by itself.
            Some(Ok(_)) => Ok(()),
            _ => return,
        };
        if echoed.is_err() {
            return;
        }
    }
}

fn main() -> ExitCode {
    let runtime = Runtime::new().expect("threads for the app");
    let requests = Counter::family("web_requests", "Requests, by what was asked for.", ["of"]);
    let app = Router::new().route("/", get(page)).route("/chat", get(chat)).with_state(requests.clone());
    let server = Server::new(app, Timeouts::default());
    let (serves, file) = (server.clone(), std::env::args().nth(1).unwrap_or_else(|| "web.toml".to_owned()));
    // Each pool of the file that names it, also one that a reload adds.
    let web = Protocol::listener("web", "a page and a WebSocket", move |listener, _| {
        let server = serves.clone();
        runtime.spawn(async move { server.serve(listener).await });
    });
    let operated = Operated::new(file).protocol(web).setting(HEAD).metric(&requests).hook(move |_, running| {
        let head = running.document().program.time(HEAD.name);
        server.set_timeouts(head.map_or(Timeouts::default(), |head| Timeouts { head, ..Timeouts::default() }));
        Ok(())
    });
    operated.version(env!("CARGO_PKG_VERSION")).main()
}
