//! A proxy for TCP as tokio's documentation has it: `copy_bidirectional` in a task for each connection, on a `current_thread` runtime.
//! usage: `tokio_proxy LISTEN TARGET [BUFFER]`, with BUFFER bytes for each direction in the place of the default of 8 KiB.

use std::net::SocketAddr;
use tokio::io::{copy_bidirectional, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};

async fn carry(mut client: TcpStream, target: SocketAddr, buffer: Option<usize>) -> std::io::Result<()> {
    let mut backend = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    backend.set_nodelay(true)?;
    match buffer {
        None => copy_bidirectional(&mut client, &mut backend).await?,
        Some(size) => copy_bidirectional_with_sizes(&mut client, &mut backend, size, size).await?,
    };
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (listen, target, buffer) = match &arguments[..] {
        [listen, target] => (listen, target, None),
        [listen, target, buffer] => (listen, target, Some(buffer.parse()?)),
        _ => return Err("usage: tokio_proxy LISTEN TARGET [BUFFER]".into()),
    };
    let target: SocketAddr = target.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (client, _) = listener.accept().await?;
            // A failure ends its own connection, and no other.
            tokio::spawn(carry(client, target, buffer));
        }
    })
}
