//! An axum app on a pool that changes while it serves. Type `limit 100`, `listen 127.0.0.1:9001`, `say Good day`, `drain 50` or
//! `status` at it; `curl 127.0.0.1:9000` shows what it says, and WebSockets at /echo stay what they are.
use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use sockdrawer::tasks::Info;
use sockdrawer::{Behaviour, Config, Drain, Drained, Error, Model, Pool, Selector};
use std::future::{Future, IntoFuture};
use std::time::Duration;
use tokio::sync::watch;

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

pub(crate) fn config(address: &str) -> Config {
    Config::accept(Behaviour::listener()).model(Model::Tasks).listen(address)
}

/// Serves the connections of the pool's behaviour in force, until another took its place and the last of them ended, or until the stop.
pub(crate) fn serve(pool: &Pool, greeting: &str, stop: &Stop) -> impl Future<Output = std::io::Result<()>> + Send + use<> {
    let listener = pool.listener();
    let (ended, mut stop) = (listener.ended(), stop.subscribe());
    let over = async move {
        tokio::select! {
            () = ended => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    };
    let app = app(greeting.to_owned()).into_make_service_with_connect_info::<Info>();
    axum::serve(listener, app).with_graceful_shutdown(over).into_future()
}

/// Other words for new connections. Those that are there keep the app that they have.
pub(crate) async fn say(
    pool: &Pool,
    greeting: &str,
    stop: &Stop,
) -> Result<impl Future<Output = std::io::Result<()>> + Send + use<>, Error> {
    pool.update_async(|config| config.behaviour(Behaviour::listener())).await?;
    Ok(serve(pool, greeting, stop))
}

/// True tells axum's servers to end.
pub(crate) type Stop = watch::Sender<bool>;

/// Ends the pool, then axum's servers, then waits for both. The pool takes what waits in the kernel and stops listening. Then axum's servers end
/// the connections that wait for a request; told before, they would drop those that the pool goes on to accept.
pub(crate) async fn shut_down(pool: &Pool, stop: &Stop, within: Duration) -> Result<Drained, Problem> {
    let ended = tokio::spawn(pool.shutdown_async(Drain::within(within)));
    let accepting = pool.clone();
    let has_stopped = move || accepting.wait(within, |status| status.listeners.is_empty() && status.retiring == 0);
    tokio::task::spawn_blocking(has_stopped).await?;
    stop.send_replace(true);
    Ok(ended.await?)
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let pool = Pool::start(config("127.0.0.1:9000"))?;
    let stop = Stop::default();
    tokio::spawn(serve(&pool, "Hello", &stop));
    // Standard input waits for its user, on a thread of its own.
    let (lines, mut orders) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).all(|line| lines.blocking_send(line).is_ok()));
    while let Some(order) = orders.recv().await {
        if let Err(problem) = obey(&pool, &order, &stop).await {
            eprintln!("{problem}");
        }
    }
    println!("{:?}", shut_down(&pool, &stop, Duration::from_secs(10)).await?);
    Ok(())
}

async fn obey(pool: &Pool, order: &str, stop: &Stop) -> Result<(), Problem> {
    match order.split_once(' ').unwrap_or((order, "")) {
        ("limit", limit) => {
            let limit = limit.parse()?;
            pool.update_async(move |config| config.limit(limit)).await?;
        }
        ("listen", address) => {
            let address = address.to_owned();
            pool.update_async(move |config| config.listen(&address)).await?;
        }
        ("say", greeting) => drop(tokio::spawn(say(pool, greeting, stop).await?)),
        ("drain", rate) => {
            let how = Drain::within(Duration::from_secs(60)).rate(rate.parse()?);
            println!("{:?}", pool.drain_async(Selector::All, how).await);
        }
        _ => println!("{:#?}", pool.status()),
    }
    Ok(())
}
