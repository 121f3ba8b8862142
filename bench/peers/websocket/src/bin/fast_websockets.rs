//! fastwebsockets, by its `upgrade` with hyper. Tuned: without hyper's wrapper around the socket and without joining fragments, and all messages
//! that wait for a connection of a room are written at once.

use bench_websocket::{Arguments, ROOM, Serves, Stream, TUNED_WRITE_BUFFER, run};
use bytes::Bytes;
use fastwebsockets::upgrade::{UpgradeFut, upgrade};
use fastwebsockets::{FragmentCollector, FragmentCollectorRead, Frame, OpCode, Payload, Role, WebSocket, WebSocketError};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::io::BufWriter;
use tokio::sync::Mutex;
use tokio::sync::broadcast::{self, Sender};
use tokio::task::unconstrained;

#[derive(Clone)]
struct Server {
    room: Option<Sender<Bytes>>,
    is_tuned: bool,
}

impl Serves for Server {
    async fn serve<S: Stream>(self, stream: S) {
        let service = service_fn(move |mut request: Request<Incoming>| {
            // `upgrade` takes it for itself.
            let socket = hyper::upgrade::on(&mut request);
            request.extensions_mut().insert(socket.clone());
            let upgraded = upgrade(&mut request).map(|(response, wrapped)| {
                match self.is_tuned {
                    false => drop(tokio::spawn(unconstrained(self.clone().opened(wrapped)))),
                    true => drop(tokio::spawn(unconstrained(self.clone().opened_bare::<S>(socket)))),
                }
                response
            });
            async { upgraded }
        });
        // An error is the end of the connection.
        _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    }
}

impl Server {
    async fn opened(self, socket: UpgradeFut) -> Result<(), WebSocketError> {
        match self.room {
            None => echo(socket.await?).await,
            Some(room) => chat(socket.await?, room, false).await,
        }
    }

    async fn opened_bare<S: Stream>(self, socket: OnUpgrade) -> Result<(), WebSocketError> {
        // Nothing was read behind the request: the client waits for the answer.
        let Ok(parts) = socket.await?.downcast::<TokioIo<S>>() else { return Ok(()) };
        let socket = WebSocket::after_handshake(parts.io.into_inner(), Role::Server);
        match self.room {
            None => echo_frames(socket).await,
            Some(room) => chat(socket, room, true).await,
        }
    }
}

fn is_data(frame: &Frame<'_>) -> bool {
    matches!(frame.opcode, OpCode::Text | OpCode::Binary)
}

async fn echo<S: Stream>(socket: WebSocket<S>) -> Result<(), WebSocketError> {
    let mut socket = FragmentCollector::new(socket);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            _ if is_data(&frame) => socket.write_frame(frame).await?,
            _ => {}
        }
    }
}

async fn echo_frames<S: Stream>(mut socket: WebSocket<S>) -> Result<(), WebSocketError> {
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            // Another frame: this one has the client's mask still.
            opcode => socket.write_frame(Frame::new(frame.fin, opcode, None, frame.payload)).await?,
        }
    }
}

/// Serves a connection of the chat. Reading a frame must not be cancelled: it is a task of its own.
async fn chat<S: Stream>(socket: WebSocket<S>, room: Sender<Bytes>, is_tuned: bool) -> Result<(), WebSocketError> {
    let mut messages = room.subscribe();
    let (reader, writer) = socket.split(|stream| {
        let (reader, writer) = tokio::io::split(stream);
        (reader, BufWriter::with_capacity(if is_tuned { TUNED_WRITE_BUFFER } else { 0 }, writer))
    });
    let writer = Arc::new(Mutex::new(writer));
    let answers = Arc::clone(&writer);
    tokio::spawn(async move {
        let mut reader = FragmentCollectorRead::new(reader);
        let mut answer = |frame| {
            let answers = Arc::clone(&answers);
            async move {
                let mut writer = answers.lock().await;
                writer.write_frame(frame).await?;
                writer.flush().await
            }
        };
        while let Ok(frame) = reader.read_frame::<_, WebSocketError>(&mut answer).await {
            if frame.opcode == OpCode::Close {
                break;
            } else if is_data(&frame) {
                _ = room.send(Bytes::copy_from_slice(&frame.payload));
            }
        }
    });
    while let Ok(message) = messages.recv().await {
        let mut writer = writer.lock().await;
        writer.write_frame(Frame::binary(Payload::Borrowed(&message))).await?;
        while is_tuned && let Ok(message) = messages.try_recv() {
            writer.write_frame(Frame::binary(Payload::Borrowed(&message))).await?;
        }
        writer.flush().await?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parsed()?;
    let room = arguments.is_room.then(|| broadcast::channel(ROOM).0);
    run(&arguments, Server { room, is_tuned: arguments.is_tuned })
}
