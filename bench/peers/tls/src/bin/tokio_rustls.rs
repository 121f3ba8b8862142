//! A task for each connection. MORE: `current-thread`; without it the multi-thread runtime.

use bench_tls::{Arguments, BLOCK_SENT, Mode};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

async fn serve(acceptor: TlsAcceptor, socket: TcpStream, mode: Mode) -> io::Result<()> {
    let mut stream = acceptor.accept(socket).await?;
    match mode {
        // A message fits on the task.
        Mode::Echo => works(&mut stream, mode, &mut [0; 64]).await?,
        _ => works(&mut stream, mode, &mut vec![0; mode.buffer()]).await?,
    }
    stream.shutdown().await
}

async fn works(stream: &mut TlsStream<TcpStream>, mode: Mode, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        let read = stream.read(buffer).await?;
        if read == 0 {
            return Ok(());
        }
        if mode.returns() {
            stream.write_all(&buffer[..read]).await?;
            stream.flush().await?;
        }
        while mode == Mode::Source {
            stream.write_all(&BLOCK_SENT).await?;
        }
    }
}

async fn accepts(listener: TcpListener, acceptor: TlsAcceptor, mode: Mode) -> io::Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        // A failure ends its own connection, and no other.
        tokio::spawn(serve(acceptor.clone(), socket, mode));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parsed()?;
    let acceptor = TlsAcceptor::from(arguments.config()?);
    let current_thread = arguments.more.as_deref() == Some("current-thread");
    let mut builder = if current_thread { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build()?.block_on(async {
        let listener = TcpListener::from_std(arguments.listen()?)?;
        // On a worker, as the connections.
        tokio::spawn(accepts(listener, acceptor, arguments.mode)).await??;
        Ok(())
    })
}
