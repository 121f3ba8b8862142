//! Packets that earlier builds wrote are kept as files, and this build must read them: one side of a conversation is played from them, and
//! the other is this build. `SOCKDRAWER_RECORD=VERSION` has the conversations of this build recorded, in `blobs/VERSION`.

use super::common::{PATIENCE, address, any_port, connect, read, tcp};
use super::place::{Place, moved};
use super::proxy::{self, HEAD, NAMES, OFFER, PREPARED, Packet, Proxy, Side, WELCOME, packet_socket, receive, send};
use super::sums::{add, answer, build, message};
use ciborium::Value;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use sockdrawer::upgrade::Replace;
use sockdrawer::{Address, Config, Pool, Selector};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const LEFT: usize = 8;
/// Sockets of an address.
const SOCKETS: usize = 16;

fn config(number: u8, at: Address) -> Config {
    let mut config = Config::accept(build(number)).loops(1).limit(100).listen(at);
    // Little of what is sent finds room.
    config.settings.options.send_buffer = Some(4096);
    config
}

fn serve(place: &Place, name: &str, number: u8) -> Result<Pool, sockdrawer::Error> {
    let upgrade = place.upgrade().begin()?;
    let pool = upgrade.start(name, config(number, any_port()))?;
    upgrade.ready().map(|()| pool)
}

/// Returns a connection for each thing that may go along, in the order in which they came.
fn clients(pool: &Pool) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for number in 0..6 {
        let mut client = narrow(address(pool));
        // Each connection is accepted before the next comes: their records have this order.
        assert_eq!(add(&mut client, number), (1, number));
        clients.push(client);
    }
    clients[1].write_all(&message(b'n', 77)).expect("it stands");
    clients[2].write_all(&message(b't', 400)).expect("it stands");
    clients[3].write_all(&message(b'a', 5)[..2]).expect("it stands");
    clients[4].write_all(&[message(b'w', 0), message(b'a', 1)].concat()).expect("it stands");
    clients[5].write_all(&message(b'b', 16_000)).expect("it stands");
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == 6 * 5 + 5 + 5 + 2 + 10 + 5));
    clients
}

/// Returns a connection whose client takes little that it does not read.
fn narrow(at: SocketAddr) -> TcpStream {
    let socket = tcp_socket();
    sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("a socket");
    rustix::net::connect(&socket, &at).expect("it listens");
    TcpStream::from(socket)
}

fn tcp_socket() -> OwnedFd {
    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket")
}

/// Checks what became of the clients in another build.
fn go_on(clients: &mut [TcpStream], pool: &Pool) {
    assert_eq!(add(&mut clients[0], 1), (2, 1));
    assert_eq!((add(&mut clients[1], 1), pool.connections(&Selector::tag("77")).len()), ((2, 2), 1));
    assert_eq!(answer(&mut clients[2], b't'), (2, 2));
    clients[3].write_all(&message(b'a', 5)[2..]).expect("it stands");
    assert_eq!(answer(&mut clients[3], b'a'), (2, 8));
    pool.notify(&Selector::All, *b"go on").expect("it is told");
    clients[..5].iter_mut().for_each(|client| _ = answer(client, b'n'));
    assert_eq!(answer(&mut clients[4], b'a'), (2, 5));
    let unsent = std::iter::from_fn(|| read(&mut clients[5], 1).filter(|byte| *byte == [5]));
    assert!(unsent.count() > 0, "it was not sent before");
}

fn blobs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade/blobs")
}

/// Returns the folders of a conversation, of all versions that are kept.
fn folders(conversation: &str) -> Vec<PathBuf> {
    let versions = std::fs::read_dir(blobs()).expect("a folder");
    versions.map(|version| version.expect("a folder").path().join(conversation)).collect()
}

#[test]
fn conversations_are_recorded_where_that_is_asked_for() {
    let Ok(version) = std::env::var("SOCKDRAWER_RECORD") else { return };
    for conversation in ["moves", "refused", "look", "replace"] {
        let folder = blobs().join(&version).join(conversation);
        // An earlier try may have left files there.
        let _ = std::fs::remove_dir_all(&folder);
        record(conversation, &folder);
    }
}

/// Holds a conversation of two builds like this one.
fn record(conversation: &str, folder: &Path) {
    let (place, proxied) = (Place::new("record"), Place::new("record-proxy"));
    let proxy = Proxy::at(&proxied.0);
    let old = serve(&place, "sums", 1).expect("it serves");
    let clients = clients(&old);
    let packets = thread::scope(|scope| {
        let packets = scope.spawn(|| proxy.pass_on(&proxied.0, &place.0, |_, _, _| ()));
        match conversation {
            "moves" => moved(&old, &serve(&proxied, "sums", 2).expect("it takes over"), clients.len()),
            "refused" => {
                let upgrade = proxied.upgrade().begin().expect("it begins");
                let _pool = upgrade.start("another", config(2, any_port())).expect("it starts");
                old.reconfigure(old.config().limit(99)).expect("it is its own");
                upgrade.ready().expect_err("it knows another pool");
            }
            "look" => _ = Replace::at(&proxied.0).look().expect("an answer"),
            _ => _ = Replace::at(&proxied.0).command(["/bin/false"]).run(|_| ()).expect_err("it ends"),
        }
        packets.join().expect("no panic")
    });
    std::fs::create_dir_all(folder).expect("a folder");
    for (number, Packet { from, kind, bytes, .. }) in packets.iter().enumerate() {
        let from = if *from == Side::Predecessor { "predecessor" } else { "successor" };
        let name = NAMES[*kind].to_lowercase();
        std::fs::write(folder.join(format!("{number:02}-{from}-{name}")), &bytes.0).expect("a file");
    }
}

/// Plays a side of a conversation, and hears from the other what it was answered then. Returns the descriptors that came along.
fn play(socket: &OwnedFd, folder: &Path, side: Side, say: impl Fn(&Packet)) -> Vec<OwnedFd> {
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(PATIENCE)).expect("a socket");
    let mut files: Vec<_> = std::fs::read_dir(folder).expect("a conversation").map(|file| file.expect("a file").path()).collect();
    files.sort();
    let (mut heard, mut passed) = (Vec::new(), Vec::new());
    for file in &files {
        let from = if file.display().to_string().contains("-predecessor-") { Side::Predecessor } else { Side::Successor };
        let packet = proxy::read(from, &std::fs::read(file).expect("a packet"));
        if from == side {
            say(&packet);
            continue;
        }
        // Packets of the kind `LEFT` may be more or fewer than were recorded.
        while packet.kind != LEFT && !heard.contains(&packet.kind) {
            let Some((bytes, descriptors)) = receive(socket) else { panic!("it ended before {}", file.display()) };
            heard.push(proxy::read(from, &bytes).kind);
            passed.extend(descriptors);
        }
        heard.retain(|kind| *kind != packet.kind);
    }
    passed
}

/// Plays a successor, or a program that asks, to this build.
fn play_successor(place: &Place, folder: &Path, before: impl Fn(&Packet)) -> Vec<OwnedFd> {
    let socket = packet_socket();
    rustix::net::connect(&socket, &SocketAddrUnix::new(&place.0).expect("a path")).expect("it is met");
    play(&socket, folder, Side::Successor, |packet| {
        before(packet);
        send(&socket, &packet.bytes.0, &[]);
    })
}

/// Plays a predecessor to this build, with these sockets in the place of those that it had: the ends of connections are at `at`.
fn play_predecessor(proxy: Proxy, folder: &Path, sockets: [Vec<OwnedFd>; 2], at: SocketAddr) {
    let (socket, [mut listening, connections]) = (proxy.accept(), sockets);
    // Behind them comes that of the meeting place.
    listening.push(proxy.0);
    play(&socket, folder, Side::Predecessor, |packet| {
        let bytes = with_port(&packet.bytes.0, at.port());
        match packet.kind {
            WELCOME => send(&socket, &bytes, &listening),
            OFFER => send(&socket, &with_cookies(&bytes, &connections), &connections),
            _ => send(&socket, &bytes, &[]),
        }
    });
}

/// Returns the bytes with another port; each port has five digits.
fn with_port(bytes: &[u8], port: u16) -> Vec<u8> {
    let (before, mut bytes) = (b"127.0.0.1:", bytes.to_vec());
    let places: Vec<_> = bytes.windows(before.len()).enumerate().filter(|(_, at)| *at == before).map(|(at, _)| at).collect();
    for at in places {
        bytes[at + before.len()..][..5].copy_from_slice(port.to_string().as_bytes());
    }
    bytes
}

/// Gives each record of an offer the kernel's number for the socket that goes along here.
fn with_cookies(packet: &[u8], sockets: &[OwnedFd]) -> Vec<u8> {
    let (head, said) = packet.split_at(HEAD);
    let mut offer = ciborium::from_reader(said).expect("an offer");
    let mut sockets = sockets.iter();
    renew(&mut offer, &mut |name, value| {
        if name == "cookie" {
            *value = sockopt::socket_cookie(sockets.next().expect("one for each")).expect("a socket").into();
        }
    });
    let mut packet = head.to_vec();
    ciborium::into_writer(&offer, &mut packet).expect("memory takes it");
    packet
}

/// Calls this for each named value.
fn renew(value: &mut Value, with: &mut impl FnMut(&str, &mut Value)) {
    match value {
        Value::Map(fields) => fields.iter_mut().for_each(|(name, value)| {
            with(name.as_text().unwrap_or_default(), value);
            renew(value, with);
        }),
        Value::Array(values) => values.iter_mut().for_each(|value| renew(value, with)),
        _ => {}
    }
}

#[test]
fn a_successor_of_an_earlier_build_is_understood() {
    for folder in folders("moves") {
        let place = Place::new("blobs-successor");
        let old = serve(&place, "sums", 1).expect("it serves");
        let _clients = clients(&old);
        let passed = play_successor(&place, &folder, |_| ());
        assert!(old.join().is_ok(), "it took over");
        assert_eq!((old.status().counts.moved_out, passed.len()), (6, SOCKETS + 1 + 6));
    }
    for conversation in ["refused", "look", "replace"] {
        for folder in folders(conversation) {
            let place = Place::new("blobs-asks");
            let old = serve(&place, "sums", 1).expect("it serves");
            play_successor(&place, &folder, |packet| {
                if packet.kind == PREPARED {
                    old.reconfigure(old.config().limit(99)).expect("it is its own");
                }
            });
            assert_eq!(add(&mut connect(address(&old)), 1), (1, 1));
        }
    }
}

#[test]
fn a_predecessor_of_an_earlier_build_is_understood() {
    for folder in folders("moves") {
        let place = Place::new("blobs-predecessor");
        let (listening, at) = listening();
        // Where the connections come in.
        let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let comes = || (connect(door.local_addr().expect("bound")), OwnedFd::from(door.accept().expect("a client").0));
        let (mut clients, connections): (Vec<_>, Vec<_>) = (0..6).map(|_| comes()).unzip();
        let proxy = Proxy::at(&place.0);
        let pool = thread::scope(|scope| {
            scope.spawn(|| play_predecessor(proxy, &folder, [listening, connections], at));
            serve(&place, "sums", 2).expect("it takes over")
        });
        assert!(pool.wait(PATIENCE, |status| status.counts.moved_in == 6), "{:#?}", pool.status());
        go_on(&mut clients, &pool);
        assert_eq!((add(&mut connect(at), 1), tcp(&pool.addresses()[0])), ((2, 1), at));
    }
    for folder in folders("refused") {
        let refused = asked(&folder, |place| serve(place, "another", 2).expect_err("it is refused").to_string());
        // The words of that build.
        assert!(refused.ends_with("the pool sums was changed meanwhile: start the new build again"), "{refused}");
    }
    for folder in folders("look") {
        let seen = asked(&folder, |place| Replace::at(&place.0).look().expect("an answer"));
        assert_eq!((seen.pools[0].name.as_str(), seen.pools[0].connections, seen.pools[0].limits), ("sums", 6, (100, 100)));
    }
    for folder in folders("replace") {
        let ask =
            |place: &Place| Replace::at(&place.0).within(Duration::from_secs(1)).run(|_| ()).expect_err("it ends").to_string();
        let refused = asked(&folder, ask);
        assert!(refused.ends_with("/bin/false ended before it was ready: exit status: 1"), "{refused}");
    }
}

/// Returns what this build makes of the answers of an earlier one.
fn asked<T>(folder: &Path, ask: impl FnOnce(&Place) -> T) -> T {
    let place = Place::new("blobs-asked");
    let (proxy, (listening, at)) = (Proxy::at(&place.0), listening());
    thread::scope(|scope| {
        scope.spawn(|| play_predecessor(proxy, folder, [listening, Vec::new()], at));
        ask(&place)
    })
}

/// Returns the listening sockets of one address.
fn listening() -> (Vec<OwnedFd>, SocketAddr) {
    let mut at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut sockets: Vec<OwnedFd> = Vec::new();
    for _ in 0..SOCKETS {
        let socket = tcp_socket();
        sockopt::set_socket_reuseport(&socket, true).expect("a socket");
        bind(&socket, &at).expect("its port");
        listen(&socket, 16).expect("it listens");
        at = TcpListener::from(socket.try_clone().expect("a copy")).local_addr().expect("bound");
        sockets.push(socket);
    }
    (sockets, at)
}
