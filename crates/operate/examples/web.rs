//! An axum app that is operated: HTTP/1.1, h2 and WebSockets, TLS by the file, a time for heads, metrics of its own, and a drain that clients are told of.
//!
//! `cargo run -p sockdrawer-operate --example web -- crates/operate/examples/web.toml`, then `curl http://127.0.0.1:9000/`.
use axum::extract::{Extension, State, WebSocketUpgrade, ws::Message, ws::WebSocket};
use axum::{Router, response::Response, routing::get};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::{server::conn::auto::Builder, server::graceful::GracefulShutdown, service::TowerToHyperService};
use sockdrawer::{Behaviour, Config, Model, tasks::Info, tasks::Listener};
use sockdrawer_operate::{Counter, Kind, MetricFamily, Moment, Operated, Protocol, Setting};
use std::{process::ExitCode, time::Duration};
use tokio::{runtime::Runtime, sync::watch};

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
        let (message, goes_on) = tokio::select! {
            Some(Ok(message)) = socket.recv() => (message, true),
            () = info.draining() => (Message::Close(None), false),
            else => return,
        };
        if socket.send(message).await.is_err() || !goes_on {
            return;
        }
    }
}

/// Serves connections until the stop; then each ends once it has answered.
async fn serve(mut listener: Listener, app: Router, head: Duration, mut stop: watch::Receiver<bool>) {
    let (graceful, mut http) = (GracefulShutdown::new(), Builder::new(TokioExecutor::new()));
    http.http1().timer(TokioTimer::new()).header_read_timeout(head);
    while let Some(connection) = tokio::select! { next = listener.accept() => next, _ = stop.wait_for(|stop| *stop) => None } {
        let app = TowerToHyperService::new(app.clone().layer(Extension(connection.info().clone())));
        let served = http.serve_connection_with_upgrades(TokioIo::new(connection), app).into_owned();
        tokio::spawn(graceful.watch(served));
    }
    graceful.shutdown().await;
}

fn main() -> ExitCode {
    let runtime = Runtime::new().expect("threads for the app");
    let requests = Counter::family("web_requests", "Requests, by what was asked for.", ["of"]);
    let app = Router::new().route("/", get(page)).route("/chat", get(chat)).with_state(requests.clone());
    let (queue, stop) = (Behaviour::listener(), watch::Sender::new(false));
    let web = Protocol::new("web", "a page and a WebSocket", move |_| Ok(Config::accept(queue.clone()).model(Model::Tasks)));
    let file = std::env::args().nth(1).unwrap_or_else(|| "web.toml".to_owned());
    let operated = Operated::new(file).protocol(web).setting(HEAD).metric(&requests).hook(move |moment, running| {
        match (moment, running.pool("web")) {
            (Moment::Started, Some(pool)) => {
                let head = running.document().program.time(HEAD.name).unwrap_or(Duration::from_secs(10));
                runtime.spawn(serve(pool.listener(), app.clone(), head, stop.subscribe()));
            }
            // Only the app knows connections between two requests: they end once no more come.
            (Moment::Draining | Moment::Replaced, Some(pool)) => {
                pool.wait(Duration::from_secs(5), |status| status.listeners.is_empty());
                stop.send_replace(true);
            }
            _ => {}
        }
        Ok(())
    });
    operated.version(env!("CARGO_PKG_VERSION")).main()
}
