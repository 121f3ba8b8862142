//! An axum app on a pool that changes while it serves. Type `limit 100`, `listen 127.0.0.1:9001`, `say Good day`, `drain 50` or
//! `status` at it; `curl 127.0.0.1:9000` shows what it says, and WebSockets at /echo stay what they are.
use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use sockdrawer::tasks::Info;
use sockdrawer::{Behaviour, Config, Drain, Model, Pool, Selector};
use std::future::{Future, IntoFuture};
use std::time::Duration;

type Problem = Box<dyn std::error::Error + Send + Sync>;

fn app(greeting: String) -> Router {
    Router::new().route("/", get(move || std::future::ready(greeting.clone()))).route("/echo", get(upgrade))
}

async fn upgrade(ConnectInfo(info): ConnectInfo<Info>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|socket| echo(socket, info))
}

/// Until the peer has had enough, or the pool asks the connection to end.
async fn echo(mut socket: WebSocket, info: Info) {
    loop {
        let answer = tokio::select! {
            message = socket.recv() => match message {
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => message,
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => return,
            },
            () = info.draining() => Message::Close(None),
        };
        let last = matches!(answer, Message::Close(_));
        if socket.send(answer).await.is_err() || last {
            return;
        }
    }
}

pub(crate) fn config(address: &str) -> Result<Config, Problem> {
    Ok(Config::accept(Behaviour::listener()).model(Model::Tasks).listen(address))
}

/// Serves the connections of the pool's behaviour in force, until another took its place and the last of them ended.
pub(crate) fn serve(pool: &Pool, greeting: &str) -> impl Future<Output = std::io::Result<()>> + Send + use<> {
    let listener = pool.listener();
    let ended = listener.ended();
    let app = app(greeting.to_owned()).into_make_service_with_connect_info::<Info>();
    axum::serve(listener, app).with_graceful_shutdown(ended).into_future()
}

/// Other words for new connections. Those that are there keep the app that they have.
pub(crate) fn say(pool: &Pool, greeting: &str) -> Result<impl Future<Output = std::io::Result<()>> + Send + use<>, Problem> {
    pool.reconfigure(pool.config().behaviour(Behaviour::listener()))?;
    Ok(serve(pool, greeting))
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let pool = Pool::start(config("127.0.0.1:9000")?)?;
    tokio::spawn(serve(&pool, "Hello"));
    let runtime = tokio::runtime::Handle::current();
    // A pool's methods wait for its threads, and standard input waits for its user.
    let obeying = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lines() {
            if let Err(problem) = line.map_err(Problem::from).and_then(|line| obey(&pool, &line, &runtime)) {
                eprintln!("{problem}");
            }
        }
    });
    Ok(obeying.await?)
}

fn obey(pool: &Pool, order: &str, runtime: &tokio::runtime::Handle) -> Result<(), Problem> {
    match order.split_once(' ').unwrap_or((order, "")) {
        ("limit", limit) => drop(pool.reconfigure(pool.config().limit(limit.parse()?))?),
        ("listen", address) => drop(pool.reconfigure(pool.config().listen(address))?),
        ("say", greeting) => drop(runtime.spawn(say(pool, greeting)?)),
        ("drain", rate) => {
            let how = Drain::within(Duration::from_secs(60)).rate(rate.parse()?);
            println!("{:?}", pool.drain(&Selector::All, how));
        }
        _ => println!("{:#?}", pool.status()),
    }
    Ok(())
}
