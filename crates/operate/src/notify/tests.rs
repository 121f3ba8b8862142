use super::*;
use crate::document::{Document, Format, Known};
use crate::hub::Hub;
use crate::protocol::Protocol;
use crate::server::Server;
use crate::systemd::Passed;
use sockdrawer::{Address, Config, Context, Input, Peer, Service, Step};
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// A manager's socket, as systemd has one.
struct Socket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Socket {
    fn new(name: &str) -> Socket {
        let path = std::env::temp_dir().join(format!("sockdrawer-notify-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("a free path");
        // A datagram that is sent in this process is there at once.
        socket.set_nonblocking(true).expect("it is a socket");
        Socket { socket, path }
    }

    /// Makes a server without pools, whose manager this is.
    fn server(&self, watchdog: Option<&str>) -> Server {
        self.server_of(Vec::new(), watchdog)
    }

    fn server_of(&self, protocols: Vec<Protocol>, watchdog: Option<&str>) -> Server {
        let variables =
            Variables { socket: Some(self.path.clone().into()), watchdog: watchdog.map(str::to_owned), ..Variables::default() };
        let hub = Hub::new(None, Manager::of(&variables), |_| ());
        Server::new(Known { protocols, ..Known::default() }, (hub, None, Passed::default()), false, |_, _| ())
    }

    /// Returns all that came.
    fn told(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let next = || self.socket.recv(&mut bytes).ok().map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned());
        std::iter::from_fn(next).collect()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

const NOTHING: &str = "0 pools, 0 connections, revision 0";

#[test]
fn a_reload_is_told_with_its_time_and_a_failure_stays_in_the_status() {
    let socket = Socket::new("reload");
    let server = socket.server(None);
    let manager = &server.hub.manager;
    manager.ready(&server.line());
    assert_eq!(socket.told(), [format!("READY=1\nSTATUS={NOTHING}")]);
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
    };
    let before = now();
    manager.reloading();
    let [told] = &socket.told()[..] else { panic!("one datagram") };
    let at: i64 = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|at| at.parse().ok()).expect("a time");
    assert!((before..=now()).contains(&at), "{before} {at}");
    manager.reloaded(&server.line(), Some(&"line one\nline two"));
    let failed = format!("{NOTHING}; not reloaded: line one");
    assert_eq!(socket.told(), [format!("READY=1\nSTATUS={failed}")]);
    let mut told = String::new();
    manager.tell_again(&server.line(), &mut told);
    manager.tell_again(&server.line(), &mut told);
    assert_eq!(socket.told(), [format!("STATUS={failed}")], "once, and no watchdog that was not asked for");
    manager.reloaded(&server.line(), None);
    manager.not_replaced(&server.line(), "it died");
    let expected = [format!("READY=1\nSTATUS={NOTHING}"), format!("READY=1\nSTATUS={NOTHING}; not replaced: it died")];
    assert_eq!(socket.told(), expected);
}

#[test]
fn each_drain_is_announced_with_its_time() {
    let socket = Socket::new("drain");
    let server = socket.server(None);
    // Some systems wait for 45 s, others for 90 s.
    for (drain, micros) in [(Duration::ZERO, 10_000_000_u64), (Duration::from_secs(60), 70_000_000)] {
        server.hub.manager.stopping(drain);
        assert_eq!(socket.told(), [format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}")]);
    }
}

#[test]
fn only_the_main_process_speaks() {
    let socket = Socket::new("main");
    let server = socket.server(Some("1000000"));
    let manager = &server.hub.manager;
    let mut told = String::new();
    manager.tell_again(&server.line(), &mut told);
    assert_eq!(socket.told(), [format!("STATUS={NOTHING}"), "WATCHDOG=1".to_owned()]);
    manager.tell(&Event::HandedOver { pid: 77 });
    assert_eq!(socket.told(), ["MAINPID=77\nREADY=1"]);
    manager.tell_again(&server.line(), &mut String::new());
    manager.ready(&server.line());
    manager.reloading();
    manager.stopping(Duration::from_secs(1_000));
    assert_eq!(socket.told(), [""; 0], "a watchdog of the predecessor would hide that the successor hangs");
    manager.tell(&Event::TakenBack);
    manager.tell_again(&server.line(), &mut told);
    let back = format!("MAINPID={}\nREADY=1\nSTATUS=the new build died", std::process::id());
    assert_eq!(socket.told(), [back, "WATCHDOG=1".to_owned()]);
}

#[test]
fn the_watchdog_is_for_the_process_that_it_names() {
    let watchdog = |within: &str, pid: Option<String>| {
        Manager::of(&Variables { watchdog: Some(within.to_owned()), watched: pid, ..Variables::default() }).watchdog
    };
    let half = Some(Duration::from_millis(500));
    assert_eq!(watchdog("1000000", None), half);
    assert_eq!(watchdog("1000000", Some(std::process::id().to_string())), half);
    assert_eq!(watchdog("1000000", Some("1".to_owned())), None);
    assert_eq!(watchdog("0", None), None);
    assert_eq!(watchdog("soon", None), None);
    assert_eq!(Manager::of(&Variables::default()).watchdog, None);
}

#[test]
fn an_abstract_socket_is_told_too_and_one_that_is_gone_is_no_error() {
    let name = format!("sockdrawer-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let socket = UnixDatagram::bind_addr(&address).expect("a free name");
    let manager = Manager::of(&Variables { socket: Some(format!("@{name}").into()), ..Variables::default() });
    manager.send("READY=1");
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).expect("it came");
    assert_eq!(&bytes[..length], b"READY=1");
    drop(socket);
    manager.send("READY=1");
}

#[test]
fn a_status_is_a_line_for_people() {
    let line = |pools, connections, revision, ending, stuck| Line { pools, connections, revision, ending, stuck }.to_string();
    assert_eq!(line(3, 1_204, 7, false, 0), "3 pools, 1,204 connections, revision 7");
    assert_eq!(line(1, 1, 1, false, 2), "1 pool, 1 connection, revision 1, 2 loops stuck");
    assert_eq!(line(3, 12, 7, true, 0), "draining, 12 connections");
}

/// A service whose connections keep their loop until they are let go on.
struct Waits(Arc<Mutex<Receiver<()>>>);

impl Service for Waits {
    type Protocol = Waits;
    fn open(&self, _peer: &Peer) -> Waits {
        Waits(self.0.clone())
    }
}

impl sockdrawer::Protocol for Waits {
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        // It ends with the test.
        let _ = self.0.lock().map(|told| told.recv());
        Step::Continue
    }
}

/// A loop that never ends its turn is what only a restart mends.
#[test]
fn the_watchdog_hears_nothing_while_a_loop_is_stuck() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let socket = Socket::new("stuck");
    let (go_on, told) = channel();
    let told = Arc::new(Mutex::new(told));
    let waits = Protocol::new("waits", "keeps its loop", move |_| Ok(Config::accept(Waits(told.clone()))));
    let server = socket.server_of(vec![waits], Some("1000000"));
    let text = "[pool.a]\nprotocol = 'waits'\nlisten = '127.0.0.1:0'\nloops = 1\nstuck-after = '50ms'\n";
    server
        .start(Document::parse(text, Format::Toml, &server.known, |_| ()).expect("it is right"), server.hold_changes())
        .expect("it starts");
    let pool = server.state().pools["a"].clone();
    let Address::Tcp(at) = pool.addresses()[0] else { panic!("TCP") };
    let mut client = TcpStream::connect(at).expect("it listens");
    client.write_all(b"x").expect("it stands");
    assert!(pool.wait(PATIENCE, |status| status.loops[0].stuck));
    let mut status = String::new();
    server.hub.manager.tell_again(&server.line(), &mut status);
    assert_eq!(socket.told(), ["STATUS=1 pool, 1 connection, revision 1, 1 loop stuck"]);
    go_on.send(()).expect("it waits");
    assert!(pool.wait(PATIENCE, |status| !status.loops[0].stuck));
    server.hub.manager.tell_again(&server.line(), &mut status);
    assert_eq!(socket.told(), ["STATUS=1 pool, 1 connection, revision 1", "WATCHDOG=1"]);
}

/// The kernel keeps few datagrams: a program that sends more at once waits until the manager has read some.
#[test]
fn a_manager_that_is_behind_misses_no_word() {
    let socket = Socket::new("behind");
    let manager = socket.server(None).hub.manager.clone();
    socket.socket.set_nonblocking(false).expect("it is a socket");
    socket.socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let sends = std::thread::spawn(move || (0..100).for_each(|number| manager.send(number)));
    for number in 0..100 {
        let mut bytes = [0; 16];
        let length = socket.socket.recv(&mut bytes).expect("it is told");
        assert_eq!(String::from_utf8_lossy(&bytes[..length]), number.to_string());
    }
    sends.join().expect("no panic");
}
