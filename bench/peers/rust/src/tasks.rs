//! A connection as a task of tokio; the two runtimes run the same one.

use crate::{PINGS, READ, Workload, Wrong, acknowledge, answer, pongs};
use bytes::{Buf, BytesMut};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

impl From<Wrong> for io::Error {
    fn from(_: Wrong) -> Self {
        io::ErrorKind::InvalidData.into()
    }
}

/// Accepts for ever, a task for each connection.
pub async fn accept(listener: TcpListener, workload: Workload) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        // A connection that ends with an error is closed like the others: this server does not tell of it.
        match workload {
            Workload::Ping => drop(tokio::spawn(ping(stream))),
            Workload::Http => drop(tokio::spawn(http(stream))),
            Workload::Acks => drop(tokio::spawn(acks(stream))),
        }
    }
}

async fn ping(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; PINGS];
    let mut kept = 0;
    loop {
        let read = stream.read(&mut buffer[kept..]).await?;
        if read == 0 {
            return Ok(());
        }
        let end = kept + read;
        let answer = pongs(&buffer[..end])?;
        stream.write_all(answer).await?;
        buffer.copy_within(answer.len()..end, 0);
        kept = end - answer.len();
    }
}

async fn http(mut stream: TcpStream) -> io::Result<()> {
    let mut request = BytesMut::with_capacity(1024);
    while stream.read_buf(&mut request).await? > 0 {
        if let Some(answer) = answer(&request)? {
            return stream.write_all(answer).await;
        }
    }
    Ok(())
}

async fn acks(mut stream: TcpStream) -> io::Result<()> {
    let mut input = BytesMut::with_capacity(READ);
    while stream.read_buf(&mut input).await? > 0 {
        let (used, ack) = acknowledge(&input)?;
        input.advance(used);
        input.reserve(READ - READ / 4);
        if let Some(ack) = ack {
            stream.write_all(&ack).await?;
        }
    }
    Ok(())
}
