//! A server whose connections say their numbers, and clients that say them.

use sockdrawer_lease::sockets::{Socket, Sockets};
use sockdrawer_lease::{BoxError, Connect, Event, Gone, Pool, Reason, Returned, Settings};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Time that no test needs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) type Target = sockdrawer::Address;

/// A server that keeps the connections of its clients by their numbers.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    all: Arc<(Mutex<BTreeMap<u32, TcpStream>>, Condvar)>,
}

impl Server {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let all: Arc<(Mutex<BTreeMap<u32, TcpStream>>, Condvar)> = Arc::default();
        let kept = all.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut number = [0; 4];
                if stream.read_exact(&mut number).is_ok() {
                    kept.0.lock().expect("no panic").insert(u32::from_le_bytes(number), stream);
                    kept.1.notify_all();
                }
            }
        });
        Server { address, all }
    }

    pub(crate) fn target(&self) -> Target {
        Target::Tcp(self.address)
    }

    /// Takes the server's end of a connection.
    pub(crate) fn take(&self, number: u32) -> TcpStream {
        let all = self.all.0.lock().expect("no panic");
        let (mut all, _) = self.all.1.wait_timeout_while(all, LONG, |all| !all.contains_key(&number)).expect("no panic");
        all.remove(&number).expect("it was accepted")
    }
}

/// Clients that say their numbers, from 1 on, as what connects and logs in.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub(crate) sockets: Sockets,
    last: Arc<AtomicU32>,
}

pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) number: u32,
}

impl Numbered {
    pub(crate) fn new() -> Self {
        Numbered { sockets: Sockets::new().expect("a pool"), last: Arc::default() }
    }
}

impl Connect for Numbered {
    type Target = Target;
    type Connection = Client;

    fn connect(&self, target: &Target, timeout: Duration) -> Result<Client, BoxError> {
        let mut socket = self.sockets.connect(target, timeout)?;
        let number = self.last.fetch_add(1, SeqCst) + 1;
        socket.write_all(&number.to_le_bytes())?;
        Ok(Client { socket, number })
    }

    fn watch(&self, client: &mut Client, gone: Gone) {
        Connect::watch(&self.sockets, &mut client.socket, gone);
    }

    fn look(&self, client: &mut Client) -> Option<Reason> {
        Connect::look(&self.sockets, &mut client.socket)
    }

    fn returned(&self, client: &mut Client) -> Returned {
        Connect::returned(&self.sockets, &mut client.socket)
    }
}

/// Settings under which nothing ends by time alone.
pub(crate) fn quiet() -> Settings {
    Settings { lifetime: None, free_timeout: None, check_after: None, ..Settings::default() }
}

/// Tells the events of a pool to the receiver.
pub(crate) fn events<C: Send + 'static>(pool: &Pool<Target, C>) -> Receiver<Event<Target>> {
    let (tell, told) = channel();
    pool.observe(move |event| _ = tell.send(event.clone()));
    told
}

/// Waits for an end of a connection, and returns its reason.
pub(crate) fn end(events: &Receiver<Event<Target>>) -> Reason {
    loop {
        if let Event::Ended { reason, .. } = events.recv_timeout(LONG).expect("an end") {
            break reason;
        }
    }
}

pub(crate) fn soon() -> Instant {
    Instant::now() + LONG
}
