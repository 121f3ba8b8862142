//! Connects to a WebSocket, sends each message back until the server closes, and prints short ones and how it did:
//! `cargo run -p sockdrawer-websocket --example echo_client 'ws://127.0.0.1:9001/chat'`.

use sockdrawer::connecting::{ConnectFailure, Connecting};
use sockdrawer::{Config, Local, Pool, Step};
use sockdrawer_websocket::{Answer, Close, Message, MessageProtocol, MessageService, Opening, Socket, WebSocket};
use std::error::Error;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

struct Echo(Sender<Result<Close, ConnectFailure>>);

impl MessageService for Echo {
    type Protocol = Echo;
    fn open(&self, _opening: &mut Opening<'_>) -> Result<Echo, Answer> {
        Ok(Echo(self.0.clone()))
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        // The program may have ended.
        let _ = self.0.send(Err(*failure));
    }
}

impl MessageProtocol for Echo {
    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
        if let Message::Text(text) = message
            && text.len() < 100
        {
            println!("{text}");
        }
        socket.send(message);
        Step::Continue
    }

    fn closed(&mut self, close: &Close, _socket: &mut Socket<'_>) {
        let _ = self.0.send(Ok(close.clone()));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("no URL: name one such as ws://127.0.0.1:9001/chat")?;
    let host = url.trim_start_matches("ws://").split(['/', '?']).next().unwrap_or_default().to_owned();
    let (closed, end) = channel();
    let client = WebSocket::client(Echo(closed), &url).max_message(32 << 20).deflate(true);
    let _pool = Pool::start(Config::connect(client, Connecting::to([host.as_str()]).keep(1).total(1)))?;
    let close = match end.recv_timeout(Duration::from_secs(60))? {
        Ok(close) => close,
        Err(failure) => {
            return Err(format!("cannot connect to {host}: {}", std::io::Error::from_raw_os_error(failure.errno)).into());
        }
    };
    println!("closed {} {:?}, {}", close.code, close.reason, if close.is_clean { "clean" } else { "not clean" });
    Ok(())
}
