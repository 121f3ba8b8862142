//! A broker of lines, which `bench/fanout` measures: a broadcast channel for each topic, and a task for each subscription, which writes
//! all that is there at once. A receiver that is `CAPACITY` messages behind loses the oldest.

use bench_peers::listen;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::sync::{Mutex, broadcast};
use tokio::task::AbortHandle;

const CAPACITY: usize = 65_536;
const READ: usize = 8 * 1024;
/// Bytes of a subscription that are written at once.
const BATCH: usize = 16 * 1024;

/// The channels by topic. Never held while something is awaited.
type Topics = std::sync::Mutex<HashMap<Vec<u8>, Sender<Bytes>>>;
type Writer = Arc<Mutex<OwnedWriteHalf>>;

struct Connection {
    topics: Arc<Topics>,
    writer: Writer,
    subscriptions: HashMap<Vec<u8>, AbortHandle>,
    answers: Vec<u8>,
}

impl Connection {
    /// Takes a line with its end.
    async fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let words = &line[..line.len() - 1];
        if words == b"PING" {
            self.answers.extend_from_slice(b"PONG\n");
        } else if let Some(topic) = words.strip_prefix(b"SUB ") {
            self.subscribe(topic);
            self.answers.extend_from_slice(b"OK\n");
        } else if let Some(topic) = words.strip_prefix(b"UNSUB ") {
            // Between two writes: half a line must not stay there.
            let _between = self.writer.lock().await;
            self.subscriptions.remove(topic).inspect(AbortHandle::abort);
            self.answers.extend_from_slice(b"OK\n");
        } else if let Some(rest) = line.strip_prefix(b"PUB ") {
            self.publish(rest);
        } else {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(())
    }

    fn subscribe(&mut self, topic: &[u8]) {
        if self.subscriptions.contains_key(topic) {
            return;
        }
        let mut topics = self.topics.lock().expect("no holder panics");
        let receiver = match topics.get(topic) {
            Some(sender) => sender.subscribe(),
            None => topics.entry(topic.to_vec()).or_insert(broadcast::channel(CAPACITY).0).subscribe(),
        };
        drop(topics);
        let task = tokio::spawn(forward(receiver, Arc::clone(&self.writer)));
        self.subscriptions.insert(topic.to_vec(), task.abort_handle());
    }

    /// Publishes a message: the topic, a space, the text and the end of the line.
    fn publish(&self, rest: &[u8]) {
        let topic = rest.split(|&byte| byte == b' ' || byte == b'\n').next().unwrap_or_default();
        if let Some(sender) = self.topics.lock().expect("no holder panics").get(topic) {
            // An error says that nobody listens.
            _ = sender.send([b"MSG ", rest].concat().into());
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.subscriptions.values().for_each(AbortHandle::abort);
    }
}

async fn forward(mut receiver: Receiver<Bytes>, writer: Writer) -> io::Result<()> {
    let mut batch = Vec::new();
    loop {
        match receiver.recv().await {
            Ok(message) => batch.extend_from_slice(&message),
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return Ok(()),
        }
        while batch.len() < BATCH {
            match receiver.try_recv() {
                Ok(message) => batch.extend_from_slice(&message),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        writer.lock().await.write_all(&batch).await?;
        batch.clear();
    }
}

async fn serve(stream: TcpStream, topics: Arc<Topics>) -> io::Result<()> {
    let (mut reader, writer) = stream.into_split();
    let writer = Arc::new(Mutex::new(writer));
    let mut connection = Connection { topics, writer, subscriptions: HashMap::new(), answers: Vec::new() };
    let mut input = BytesMut::with_capacity(READ);
    while reader.read_buf(&mut input).await? > 0 {
        let mut used = 0;
        for line in input.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            connection.line(line).await?;
            used += line.len();
        }
        input.advance(used);
        input.reserve(READ / 2);
        if !connection.answers.is_empty() {
            connection.writer.lock().await.write_all(&connection.answers).await?;
            connection.answers.clear();
        }
    }
    Ok(())
}

async fn accept(listener: TcpListener) -> io::Result<()> {
    let topics = Arc::<Topics>::default();
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream, Arc::clone(&topics)));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("usage: tokio_broadcast PORT")?.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listen(port)?)?;
        // In a task, not in block_on, whose thread is none of the workers.
        tokio::spawn(accept(listener)).await?
    })?;
    Ok(())
}
