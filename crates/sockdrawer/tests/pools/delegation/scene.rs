//! A protocol that gives its connections away, and the pool it runs in.

use crate::common::{PATIENCE, connect, start};
use sockdrawer::{
    After, Closed, Config, Context, Delegate, Handle, Input, Note, Peer, Pool, Protocol, Selector, Service, Step,
    blocking::{Connection, Wakeup},
    observe::{ConnectionState, ConnectionStatus, Event},
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

/// Code that runs on a connection that is away.
pub(crate) type Call = dyn Fn(&mut Connection) -> After + Send + Sync;

/// Service that echoes, until a `!`: what follows is left to a delegate. What the delegate's note says is sent, and it echoes again.
#[derive(Clone)]
pub(crate) struct Giving {
    pub(crate) call: Arc<Call>,
    pub(crate) tells: mpsc::Sender<Told>,
    pub(crate) handle: Option<Handle>,
}

/// Report of a connection's protocol to the test.
pub(crate) enum Told {
    Opened(Handle),
    Note(String),
    Draining,
    Closed(Closed),
}

impl Service for Giving {
    type Protocol = Giving;
    fn open(&self, _peer: &Peer) -> Giving {
        self.clone()
    }
}

impl Giving {
    fn tell(&self, told: Told) {
        // A test may have heard enough.
        let _ = self.tells.send(told);
    }
}

impl Protocol for Giving {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.handle = Some(cx.handle());
        self.tell(Told::Opened(cx.handle()));
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let Some(before) = input.until(b"!") else {
            cx.send(input.take_all());
            return Step::Continue;
        };
        cx.send(before);
        let call = self.call.clone();
        Step::Delegate(Delegate::new(move |connection| call(connection)))
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        let text = match note.bytes() {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => note.take::<String>().expect("these tests send text"),
        };
        cx.send(text.as_bytes());
        self.tell(Told::Note(text));
        Step::Continue
    }
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        self.tell(Told::Draining);
        Step::Close
    }
    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        self.tell(Told::Closed(why));
    }
}

/// A pool of one loop whose connections are given to `call`.
pub(crate) struct Scene {
    pub(crate) pool: Pool,
    pub(crate) at: SocketAddr,
    pub(crate) told: mpsc::Receiver<Told>,
    pub(crate) events: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    pub(crate) fn new(call: impl Fn(&mut Connection) -> After + Send + Sync + 'static) -> Scene {
        Scene::with(call, |config| config)
    }

    pub(crate) fn with(
        call: impl Fn(&mut Connection) -> After + Send + Sync + 'static,
        configure: impl FnOnce(Config) -> Config,
    ) -> Scene {
        let (tells, told) = mpsc::channel();
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        let config = Config::accept(Giving { call: Arc::new(call), tells, handle: None }).loops(1);
        let config = config.observer(move |event: &Event| heard.lock().expect("no panic").push(format!("{event:?}")));
        let (pool, at) = start(configure(config));
        Scene { pool, at, told, events }
    }

    /// Returns a connection whose delegate was told all that follows the `!`.
    pub(crate) fn given(&self, first: &[u8]) -> TcpStream {
        let mut stream = connect(self.at);
        stream.write_all(first).expect("it stands");
        stream
    }

    /// Waits until so many connections are away.
    #[track_caller]
    pub(crate) fn wait_away(&self, count: usize) -> Vec<ConnectionStatus> {
        let away = |pool: &Pool| {
            pool.connections(&Selector::All).into_iter().filter(|one| one.state == ConnectionState::Delegated).collect::<Vec<_>>()
        };
        assert!(self.pool.wait(PATIENCE, |_| away(&self.pool).len() == count), "{:#?}", self.pool.status());
        away(&self.pool)
    }

    #[track_caller]
    pub(crate) fn hear(&self) -> Told {
        self.told.recv_timeout(PATIENCE).expect("told")
    }

    #[track_caller]
    pub(crate) fn hear_closed(&self) -> Closed {
        loop {
            if let Told::Closed(why) = self.hear() {
                return why;
            }
        }
    }

    #[track_caller]
    pub(crate) fn hear_handle(&self) -> Handle {
        match self.hear() {
            Told::Opened(handle) => handle,
            _ => panic!("opened comes first"),
        }
    }
}

/// Reads a line, byte by byte, so that the rest stays where it is.
pub(crate) fn line(connection: &mut Connection) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while connection.read(&mut byte).expect("it stands") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}

/// Waits and echoes until the pool or the peer ends the connection.
pub(crate) fn echo_until_asked(connection: &mut Connection) -> After {
    let mut bytes = [0; 4096];
    while let Ok(Wakeup::Input) = connection.wait() {
        match connection.read(&mut bytes) {
            Ok(count) if count > 0 => connection.write_all(&bytes[..count]).expect("the peer reads"),
            _ => break,
        }
    }
    After::End
}
