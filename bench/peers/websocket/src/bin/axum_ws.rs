//! axum's `ws`. Tuned: small read buffers, and all messages that wait for a connection are written at once.

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::routing::get;
use bench_websocket::{Arguments, ROOM, Serves, Stream, TUNED_READ_BUFFER, run};
use futures_util::SinkExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::sync::broadcast::{self, Sender};

#[derive(Clone)]
struct Server(Router);

impl Serves for Server {
    /// Serves a connection as `axum::serve` does, which has no TLS.
    async fn serve<S: Stream>(self, stream: S) {
        let service = TowerToHyperService::new(self.0);
        // An error is the end of the connection.
        _ = Builder::new(TokioExecutor::new()).serve_connection_with_upgrades(TokioIo::new(stream), service).await;
    }
}

fn is_data(message: &Message) -> bool {
    matches!(message, Message::Text(_) | Message::Binary(_))
}

async fn echo(mut socket: WebSocket) -> Result<(), axum::Error> {
    while let Some(message) = socket.recv().await.transpose()? {
        if is_data(&message) {
            socket.send(message).await?;
        }
    }
    Ok(())
}

async fn chat(mut socket: WebSocket, room: Sender<Message>, is_tuned: bool) -> Result<(), axum::Error> {
    let mut messages = room.subscribe();
    loop {
        tokio::select! {
            message = socket.recv() => match message.transpose()? {
                Some(message) if is_data(&message) => drop(room.send(message)),
                Some(_) => {}
                None => return Ok(()),
            },
            Ok(message) = messages.recv() => {
                socket.feed(message).await?;
                while is_tuned && let Ok(message) = messages.try_recv() {
                    socket.feed(message).await?;
                }
                socket.flush().await?;
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parsed()?;
    let is_tuned = arguments.is_tuned;
    let room = arguments.is_room.then(|| broadcast::channel(ROOM).0);
    let open = async move |upgrade: WebSocketUpgrade| {
        let upgrade = if is_tuned { upgrade.read_buffer_size(TUNED_READ_BUFFER) } else { upgrade };
        upgrade.on_upgrade(async move |socket| {
            // An error is the end of the connection.
            _ = match room {
                None => echo(socket).await,
                Some(room) => chat(socket, room, is_tuned).await,
            };
        })
    };
    run(&arguments, Server(Router::new().route("/", get(open))))
}
