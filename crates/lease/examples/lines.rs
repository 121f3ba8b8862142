//! A pool of TCP connections to a server that answers a line with a line, used by a thread and by a task. The server restarts in between: the
//! connections that it had ended are gone from the pool before the next one asks.
//!
//! `cargo run -p sockdrawer-lease --features sockets --example lines`

use sockdrawer_lease::sockets::{Address, Socket, Sockets};
use sockdrawer_lease::{BoxError, Event, Pool, Reason, Settings};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time that a request may take, from the ask for a connection on.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers each line in capital letters, until it says `restart`.
fn serve(stream: TcpStream) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if line == "restart" {
            break;
        }
        writer.write_all(format!("{}\n", line.to_uppercase()).as_bytes())?;
    }
    Ok(())
}

fn ask(pool: &Pool<Address, Socket>, server: &Address, line: &str) -> Result<String, BoxError> {
    let mut socket = pool.lease(server, Instant::now() + PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE));
    socket.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(&mut *socket).read_line(&mut answer)?;
    whole(answer)
}

/// Returns an answer that is whole: the server may have ended in the middle of it, or before.
fn whole(answer: String) -> Result<String, BoxError> {
    if answer.ends_with('\n') { Ok(answer) } else { Err("the server ended the connection".into()) }
}

async fn ask_async(pool: &Pool<Address, Socket>, server: &Address, line: &str) -> Result<String, BoxError> {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
    let mut lease = pool.lease_async(server, Instant::now() + PATIENCE).await?;
    let socket: &mut Socket = &mut lease;
    let asked = async {
        AsyncWriteExt::write_all(socket, format!("{line}\n").as_bytes()).await?;
        let mut answer = String::new();
        AsyncBufReadExt::read_line(&mut tokio::io::BufReader::new(socket), &mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answer) => whole(answer?),
        Err(late) => {
            // The answer may come yet, and is not the next caller's.
            lease.discard();
            Err(late.into())
        }
    }
}

fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = Address::Tcp(listener.local_addr()?);
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(thread::spawn(move || serve(stream)))));

    let pool = Pool::new(Sockets::new()?, Settings { max: 4, ..Settings::default() })?;
    let (tell, told) = mpsc::channel();
    pool.observe(move |event| {
        if let Event::Ended { reason, .. } = event {
            let _ = tell.send(*reason);
        }
    });
    print!("a thread: {}", ask(&pool, &server, "hello")?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    print!("a task: {}", runtime.block_on(ask_async(&pool, &server, "hello again"))?);
    assert_eq!(pool.stats().connecting.count(), 1, "both had the same connection");

    pool.lease(&server, Instant::now() + PATIENCE)?.write_all(b"restart\n")?;
    assert_eq!(told.recv_timeout(PATIENCE)?, Reason::PeerEnded);
    println!("the server has ended its connection: {} are free", pool.status().free);
    print!("a thread: {}", ask(&pool, &server, "once more")?);
    Ok(())
}
