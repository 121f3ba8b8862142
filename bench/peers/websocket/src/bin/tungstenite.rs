//! tokio-tungstenite. Tuned: small read buffers, and all messages that wait for a connection are written at once.

use bench_websocket::{Arguments, ROOM, Serves, Stream, TUNED_READ_BUFFER, run};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::broadcast::{self, Sender};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

#[derive(Clone)]
struct Server {
    config: WebSocketConfig,
    room: Option<Sender<Message>>,
    is_tuned: bool,
}

impl Serves for Server {
    async fn serve<S: Stream>(self, stream: S) {
        let Ok(socket) = tokio_tungstenite::accept_async_with_config(stream, Some(self.config)).await else { return };
        // An error is the end of the connection.
        _ = match self.room {
            None => echo(socket).await,
            Some(room) => chat(socket, room, self.is_tuned).await,
        };
    }
}

fn is_data(message: &Message) -> bool {
    message.is_text() || message.is_binary()
}

async fn echo<S: Stream>(mut socket: WebSocketStream<S>) -> Result<(), Error> {
    while let Some(message) = socket.next().await.transpose()? {
        if is_data(&message) {
            socket.send(message).await?;
        }
    }
    Ok(())
}

async fn chat<S: Stream>(mut socket: WebSocketStream<S>, room: Sender<Message>, is_tuned: bool) -> Result<(), Error> {
    let mut messages = room.subscribe();
    loop {
        tokio::select! {
            message = socket.next() => match message.transpose()? {
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
    let mut config = WebSocketConfig::default();
    if arguments.is_tuned {
        config = config.read_buffer_size(TUNED_READ_BUFFER);
    }
    let room = arguments.is_room.then(|| broadcast::channel(ROOM).0);
    run(&arguments, Server { config, room, is_tuned: arguments.is_tuned })
}
