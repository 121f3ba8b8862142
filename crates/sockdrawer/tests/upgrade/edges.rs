//! Bad moments of one of the two processes, and excesses: none of them costs a connection, a byte, a note or a permit.

use super::common::{PATIENCE, address, any_port, connect, hear, play, read, read_all, role, say, tcp};
use super::place::{Place, config, id_of, many_sums, moved};
use super::proxy::packet_socket;
use super::sums::{OnRestore, add, build, message};
use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, bind, listen, shutdown};
use sockdrawer::upgrade::Replace;
use sockdrawer::{
    Address, CannotRestore, CannotSave, Config, Context, Drain, Handle, Input, Model, Note, Peer, Pool, Protocol, Saved, Saver,
    Selector, Service, State, Step, Upgrade, connecting::Connecting, observe::Readiness,
};
use std::collections::HashSet;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Service that sends back what ends with a `.`, keeps what does not, answers a note of bytes by `n`, and ends by the note `end`.
struct Lines {
    handles: Arc<Mutex<Vec<Handle>>>,
    on_restore: Mutex<Option<OnRestore>>,
}

struct Line(Arc<Mutex<Vec<Handle>>>);

impl Lines {
    fn new(handles: &Arc<Mutex<Vec<Handle>>>, on_restore: Option<OnRestore>) -> Lines {
        Lines { handles: handles.clone(), on_restore: Mutex::new(on_restore) }
    }
}

impl Service for Lines {
    type Protocol = Line;
    fn open(&self, _peer: &Peer) -> Line {
        Line(self.handles.clone())
    }
    fn state(&self) -> State {
        State::of("line", 1)
    }
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Line, CannotRestore> {
        if let Some(on_restore) = self.on_restore.lock().expect("no panic").take() {
            on_restore();
        }
        Ok(Line(self.handles.clone()))
    }
}

impl Protocol for Line {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.lock().expect("no panic").push(cx.handle());
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while input.until(b".").is_some() {
            cx.send(b".");
        }
        Step::Continue
    }
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        match note.bytes() {
            Some(b"end") => return Step::Abort,
            Some(_) => cx.send(b"n"),
            None => note.take::<&str>().iter().for_each(|text| cx.send(text.as_bytes())),
        }
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

fn line(client: &mut TcpStream, bytes: &[u8]) -> Option<Vec<u8>> {
    client.write_all(bytes).ok()?;
    read(client, 1)
}

fn lines(pool: &Pool, count: usize) -> Vec<TcpStream> {
    let mut clients: Vec<_> = (0..count).map(|_| connect(address(pool))).collect();
    clients.iter_mut().for_each(|client| assert_eq!(line(client, b".").as_deref(), Some(&b"."[..])));
    clients
}

#[test]
fn more_untaken_input_than_the_next_build_may_have_stays() {
    let (place, none) = (Place::new("untaken"), Arc::default());
    let lines_of = |most: usize| {
        let mut config = Config::accept(Lines::new(&none, None)).loops(1);
        config.settings.max_partial = most;
        config
    };
    let (old, at) = place.serve(lines_of(1 << 20).listen(any_port()));
    let mut clients = lines(&old, 2);
    clients[0].write_all(&vec![b'x'; 500_000]).expect("it stands");
    assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 500_002));
    let (new, _) = place.serve(lines_of(64 * 1024).listen(Address::Tcp(at)));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 1));
    clients.iter_mut().for_each(|client| assert_eq!(line(client, b"."), Some(b".".to_vec())));
    // It has taken all of it, and follows.
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 2 && status.restarts == 0), "{:#?}", new.status());
}

#[test]
fn what_is_said_of_accepting_meanwhile_holds_afterwards() {
    let place = Place::new("accepting");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let upgrade = place.upgrade().begin().expect("it begins");
    let new = upgrade.start("sums", config(build(2)).listen(Address::Tcp(at))).expect("it starts");
    new.resume();
    assert!((0..50).all(|_| add(&mut connect(at), 1).0 == 1), "only one of them accepts");
    new.suspend();
    upgrade.ready().expect("it takes over");
    assert!(old.join().is_ok());
    assert_eq!(new.status().readiness, Readiness::Suspended);
    new.resume();
    assert_eq!(add(&mut connect(at), 1), (2, 1));
}

#[test]
fn a_pool_that_was_handed_over_connects_no_more() {
    let place = Place::new("no-more");
    let target = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = Address::Tcp(target.local_addr().expect("bound"));
    let serve = |number| {
        let upgrade = place.upgrade().stand_by(PATIENCE).begin().expect("it begins");
        let config = Config::connect(build(number), Connecting::to([&at]).keep(4)).loops(1);
        let pool = upgrade.start("sums", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        pool
    };
    let old = serve(1);
    let peers: Vec<_> = (0..4).map(|_| target.accept().expect("they connect")).collect();
    let new = serve(2);
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 4));
    old.suspend();
    old.resume();
    drop(peers);
    let again: Vec<_> = (0..4).map(|_| target.accept().expect("the next ones")).collect();
    assert_eq!((again.len(), old.status().counts.connected), (4, 4), "these are the new pool's");
    new.shutdown(Drain::within(Duration::ZERO));
}

/// Checks a note of bytes that ends the connection, and a value that follows it: both came while the connection was frozen.
#[test]
fn a_note_for_a_connection_that_a_kept_note_ended_goes_to_no_other() {
    let (place, handles) = (Place::new("ended"), Arc::default());
    let (old, at) = place.serve(Config::accept(Lines::new(&handles, None)).loops(1).listen(any_port()));
    let mut clients = lines(&old, 40);
    let (all, pool) = (handles.clone(), old.clone());
    let act = move || {
        // This handle is that of a slot in the middle.
        let handle = all.lock().expect("no panic")[5].clone();
        handle.notify(Arc::<[u8]>::from(&b"end"[..])).expect("few notes");
        handle.notify(Note::value(1_u32)).expect("few notes");
        // A question that is answered behind them.
        pool.connections(&Selector::All);
    };
    let (new, _) = place.serve(Config::accept(Lines::new(&handles, Some(Box::new(act)))).loops(1).listen(Address::Tcp(at)));
    assert!(old.join().is_ok());
    let lost = clients.iter_mut().filter_map(|client| line(client, b".").is_none().then_some(())).count();
    assert_eq!((old.status().restarts, old.status().counts.panics, lost, new.status().connections), (0, 0, 1, 39));
}

/// Checks that a connection does not act while another process has a copy: if this process died then, the other one would go on
/// from it.
#[test]
fn a_connection_does_not_act_while_another_process_has_a_copy() {
    let (place, handles) = (Place::new("copy"), Arc::default());
    let (old, at) = place.serve(Config::accept(Lines::new(&handles, None)).loops(1).listen(any_port()));
    let mut clients = lines(&old, 1);
    let (all, pool, (told, heard)) = (handles.clone(), old.clone(), mpsc::channel());
    let client = clients[0].try_clone().expect("a descriptor");
    let act = move || {
        let handle = all.lock().expect("no panic")[0].clone();
        handle.notify(Note::value("v")).expect("few notes");
        handle.notify(Arc::<[u8]>::from(&b"bytes"[..])).expect("few notes");
        // A question that is answered behind them.
        pool.connections(&Selector::All);
        client.set_nonblocking(true).expect("a socket");
        let peeked = client.peek(&mut [0]).map_err(|error| error.kind());
        client.set_nonblocking(false).expect("a socket");
        told.send(peeked).expect("it is waited for");
    };
    let (new, _) = place.serve(Config::accept(Lines::new(&handles, Some(Box::new(act)))).loops(1).listen(Address::Tcp(at)));
    assert_eq!(heard.recv_timeout(PATIENCE).expect("it acted"), Err(std::io::ErrorKind::WouldBlock));
    assert_eq!(read(&mut clients[0], 2).as_deref(), Some(&b"vn"[..]), "in order, once the verdict was said");
    moved(&old, &new, 1);
    assert_eq!(line(&mut clients[0], b".").as_deref(), Some(&b"."[..]), "and no more");
}

#[test]
fn many_notes_that_come_meanwhile_are_told_once_each() {
    const NOTES: usize = 25;
    let (place, handles) = (Place::new("many-notes"), Arc::default());
    let (old, at) = place.serve(Config::accept(Lines::new(&handles, None)).loops(1).listen(any_port()));
    let mut clients = lines(&old, 40);
    let (all, pool) = (handles.clone(), old.clone());
    let act = move || {
        let note: Arc<[u8]> = vec![0; 100_000].into();
        (0..NOTES).for_each(|_| pool.notify(&Selector::All, note.clone()).expect("few notes"));
        // It stays, for values do not move.
        all.lock().expect("no panic")[5].notify(Note::value(1_u32)).expect("few notes");
        pool.connections(&Selector::All);
    };
    let (new, _) = place.serve(Config::accept(Lines::new(&handles, Some(Box::new(act)))).loops(1).listen(Address::Tcp(at)));
    for client in &mut clients {
        assert_eq!(read(client, NOTES), Some(vec![b'n'; NOTES]));
        assert_eq!(line(client, b".").as_deref(), Some(&b"."[..]), "and no more");
    }
    moved(&old, &new, 40);
}

#[test]
fn numbers_are_not_given_twice_by_two_processes() {
    let place = Place::new("numbers");
    let target = TcpListener::bind("127.0.0.1:0").expect("a free port");
    // A single connect stands in the target's queue, and most others wait for the kernel to try again.
    rustix::net::listen(&target, 0).expect("it listens");
    let at = Address::Tcp(target.local_addr().expect("bound"));
    let serve = |number, model: Model, limit| {
        let upgrade = place.upgrade().begin().expect("it begins");
        let config = Config::connect(build(number), Connecting::to([&at]).keep(limit)).model(model);
        let pool = upgrade.start("sums", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        pool
    };
    thread::scope(|scope| {
        let peers = scope.spawn(|| std::iter::from_fn(|| target.accept().ok()).collect::<Vec<_>>());
        let old = serve(1, Model::Threads, 4);
        assert!(old.wait(PATIENCE, |status| status.connections == 4), "they are on their way");
        let new = serve(2, Model::Loops, 8);
        let all = || new.connections(&Selector::All).into_iter().map(|one| one.id).collect::<Vec<_>>();
        let came = new.wait(PATIENCE, |_| all().len() == 8);
        let ids = all();
        rustix::net::shutdown(&target, rustix::net::Shutdown::Read).expect("it listens");
        new.shutdown(Drain::within(Duration::ZERO));
        drop(peers.join().expect("no panic"));
        assert!(came && ids.iter().collect::<HashSet<_>>().len() == 8, "{ids:?}");
    });
}

#[test]
fn of_two_that_start_on_a_stale_path_one_begins() {
    for round in 0..50 {
        let place = Place::new(&format!("stale-{round}"));
        // As of a process that was killed.
        bind(packet_socket(), &SocketAddrUnix::new(&place.0).expect("a path")).expect("a free path");
        let barrier = Barrier::new(2);
        // None is ready: the other gives up.
        let start = || {
            barrier.wait();
            Upgrade::at(&place.0).within(Duration::from_millis(150)).begin()
        };
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(start);
            (start(), other.join().expect("no panic"))
        });
        assert!(one.is_ok() != other.is_ok(), "round {round}: {one:?}, {other:?}");
    }
}

#[test]
fn what_may_stay_no_longer_is_asked_to_end() {
    let place = Place::new("stays");
    let serve = |config: Config| {
        let upgrade = place.upgrade().stays(Duration::from_millis(300), Drain::within(PATIENCE)).begin().expect("it begins");
        let pool = upgrade.start("sums", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        (pool, Instant::now())
    };
    let (old, _) = serve(config(build(1)).listen(any_port()));
    let mut clients = many_sums(address(&old), 2);
    clients[0].write_all(&message(b's', 0)).expect("it stands");
    add(&mut clients[0], 0);
    let (new, replaced) = serve(config(build(2)).listen(old.addresses()[0].clone()));
    assert_eq!(read_all(&mut clients[0]).expect("an orderly end"), b"");
    assert!(old.join().is_ok() && replaced.elapsed() >= Duration::from_millis(250), "{:?}", replaced.elapsed());
    assert_eq!(add(&mut clients[1], 1), (2, 2));
    assert!(new.wait(PATIENCE, |status| status.connections == 1), "{:#?}", new.status());
}

#[test]
fn more_than_can_be_carried_ends_the_upgrade() {
    let place = Place::new("too-long");
    let serve = |number, at| {
        // A debug build wipes such a message byte by byte, for a second of CPU each time.
        let upgrade = place.upgrade().within(4 * PATIENCE).begin().expect("it begins");
        upgrade.carry("much", || vec![7; 65 << 20], |_| ()).expect("it has begun");
        let pool = upgrade.start("sums", config(build(number)).listen(at)).expect("it starts");
        (upgrade.ready(), pool)
    };
    let (ready, old) = serve(1, any_port());
    ready.expect("it serves");
    let at = address(&old);
    let mut client = many_sums(at, 1).remove(0);
    let (refused, new) = serve(2, Address::Tcp(at));
    let refused = refused.expect_err("a message has an end").to_string();
    assert!(refused.ends_with("what is carried is too long: 64 MiB is the most"), "{refused}");
    drop(new);
    assert_eq!((add(&mut client, 1), add(&mut connect(at), 1)), ((1, 2), (1, 1)), "the one before goes on");
}

/// Checks that a successor of a format that this build does not know is told so; what is no message of any format is left.
#[test]
fn a_newer_format_is_refused_and_garbage_is_left() {
    let place = Place::new("format");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    // The head of a packet: its number, that it is the last of its message, and that no descriptors come along.
    let says = |message: &[u8]| {
        let socket = packet_socket();
        rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(&place.0).expect("a path")).expect("it is met");
        let packet = [&1_u64.to_le_bytes()[..], &[1, 0], message].concat();
        rustix::net::send(&socket, &packet, rustix::net::SendFlags::NOSIGNAL).expect("sent");
        let mut answer = [0; 1024];
        let (length, _) = rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty()).expect("an answer, or an end");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    let formats = ciborium::Value::Map(vec![("lowest_format".into(), 2.into()), ("highest_format".into(), 3.into())]);
    let mut hello = Vec::new();
    ciborium::into_writer(&ciborium::Value::Map(vec![("Hello".into(), formats)]), &mut hello).expect("memory takes it");
    let refused = says(&hello);
    assert!(refused.contains("it speaks formats 1 to 1, the new one 2 to 3"), "{refused}");
    for garbage in [&b"\xff garbage"[..], b"", &hello[..9]] {
        assert_eq!(says(garbage), "");
    }
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    moved(&old, &new, 0);
}

#[test]
fn it_says_which_build_runs_while_the_next_one_prepares() {
    let place = Place::new("says");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let upgrade = place.upgrade().begin().expect("it begins");
    let new = upgrade.start("sums", config(build(2)).listen(Address::Tcp(at))).expect("it starts");
    let asks = Replace::at(&place.0);
    let (runs, seen) = (asks.build().expect("an answer"), asks.look().expect("an answer"));
    assert_eq!((runs.pid, &seen.from, seen.pools.len()), (std::process::id(), &runs, 1));
    let refused = asks.run(|_| ()).expect_err("another is at it").to_string();
    assert!(refused.contains("is taking over since 0 s: wait for it"), "{refused}");
    upgrade.ready().expect("it takes over");
    moved(&old, &new, 0);
}

#[test]
fn a_path_of_another_program_stays() {
    let (place, path) = (Place::new("shared"), Place::new("shared-path"));
    let activated = UnixListener::bind(&path.0).expect("a free path");
    let socket = Arc::new(OwnedFd::from(activated.try_clone().expect("a copy")));
    let serve = |config: Config| {
        let upgrade = place.upgrade().begin().expect("it begins");
        let pool = upgrade.start("sums", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        pool
    };
    let old = serve(config(build(1)).inherit(Address::Unix(path.0.clone()), socket.clone()));
    let new = serve(config(build(2)).inherit(Address::Unix(path.0.clone()), socket));
    assert!(old.join().is_ok());
    new.shutdown(Drain::within(Duration::ZERO));
    drop((old, new));
    assert!(path.0.exists());
    UnixStream::connect(&path.0).expect("it listens still");
}

#[test]
fn a_predecessor_that_ends_in_order_takes_its_unix_path_along() {
    let name = "edges::a_predecessor_that_ends_in_order_takes_its_unix_path_along";
    if let Some(role) = role() {
        let [path, at] = role.split(' ').collect::<Vec<_>>().try_into().expect("two words");
        let upgrade = Upgrade::at(path).replaces("any").begin().expect("it begins");
        let pool = upgrade.start("sums", config(build(1)).listen(at)).expect("it starts");
        upgrade.ready().expect("it serves");
        say(&pool.addresses()[0].to_string());
        hear();
        pool.shutdown(Drain::within(Duration::ZERO));
        return;
    }
    let unix = Place::new("left-path");
    for at in [Address::Unix(unix.0.clone()), any_port()] {
        let place = Place::new("left");
        let mut old = play(name, &format!("{} {at}", place.0.display()));
        let at: Address = old.hear().parse().expect("an address");
        let upgrade = place.upgrade().begin().expect("it begins");
        let new = upgrade.start("sums", config(build(2)).listen(at)).expect("it starts");
        old.tell("end");
        old.0.wait().expect("it ends");
        match (upgrade.ready(), &new.addresses()[0]) {
            // Its socket is here, and listens.
            (Ok(()), Address::Tcp(at)) => assert_eq!(add(&mut connect(*at), 1), (2, 1)),
            (Err(refused), Address::Unix(_)) => {
                let expected = "it ended meanwhile, and its listeners with it: start this program again";
                assert!(refused.to_string().ends_with(expected), "{refused}");
            }
            (ready, at) => panic!("{at}: {ready:?}"),
        }
        drop(new);
    }
}

#[test]
fn a_program_of_many_addresses_is_replaced() {
    let place = Place::new("many-addresses");
    let listen = |config: Config, at: u8| config.listen(Address::Tcp(([127, 0, 1, at], 0).into()));
    let (old, _) = place.serve((1..=80).fold(config(build(1)).limit(100), listen));
    let client = &mut many_sums(tcp(&old.addresses()[79]), 1)[0];
    let all = old.addresses().into_iter().fold(config(build(2)).limit(100), Config::listen);
    let (new, _) = place.serve(all);
    moved(&old, &new, 1);
    assert_eq!((add(client, 1), new.addresses().len()), ((2, 2), 80));
}

#[test]
fn permits_of_an_address_that_is_given_up_go_back_once() {
    let place = Place::new("given-up-late");
    let second = Address::Tcp(([127, 0, 0, 2], 0).into());
    let (old, at) = place.serve(config(build(1)).loops(1).listen(any_port()).listen(second.clone()));
    let (mut late, mut other) = (many_sums(tcp(&old.addresses()[1]), 2), many_sums(at, 1).remove(0));
    // Both stay for now: 13 is not restored.
    late.iter_mut().for_each(|client| assert_eq!(add(client, 12).1, 13));
    let (new, _) = place.serve(config(build(2)).loops(1).listen(Address::Tcp(at)));
    let one_is_left = |status: &sockdrawer::observe::Status| status.listeners.len() == 1 && status.retiring == 0;
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 1 && one_is_left(status)));
    for (number, client) in late.iter_mut().enumerate() {
        assert_eq!(add(client, 1).1, 14);
        assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 2 + number as u64));
    }
    assert!(old.join().is_ok());
    drop(late);
    assert!(new.wait(PATIENCE, |status| status.connections == 1), "{:#?}", new.status());
    new.update(|config| config.listen(second.clone())).expect("it may listen there again");
    let mut client = many_sums(tcp(&new.addresses()[1]), 1).remove(0);
    assert_eq!((new.status().listeners[1].connections, new.status().restarts), (1, 0));
    assert_eq!((add(&mut client, 1), add(&mut other, 1)), ((2, 2), (2, 2)));
}

#[test]
fn a_half_closed_connection_is_idle_and_hears_a_reset_afterwards() {
    let place = Place::new("half-closed");
    let idle = || {
        let mut config = Config::accept(Lines::new(&Arc::default(), None)).loops(1);
        config.settings.idle = Some(Duration::from_millis(800));
        config
    };
    let (old, at) = place.serve(idle().listen(any_port()));
    let client = lines(&old, 1).remove(0);
    client.shutdown(Shutdown::Write).expect("it stands");
    let (new, _) = place.serve(idle().listen(Address::Tcp(at)));
    moved(&old, &new, 1);
    assert!(new.wait(PATIENCE, |status| status.counts.idle == 1), "{:#?}", new.status());
    // Without an upgrade, too, where its end came with its first bytes.
    let mut client = connect(at);
    client.write_all(b".").and_then(|()| client.shutdown(Shutdown::Write)).expect("it stands");
    assert!(new.wait(PATIENCE, |status| status.counts.idle == 2), "{:#?}", new.status());
}

#[test]
fn options_of_a_listener_change_with_the_commit() {
    let place = Place::new("options");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let receive_buffer = |pool: &Pool| {
        let client = many_sums(at, 1).remove(0);
        pool.options(id_of(pool, &client)).expect("they can be read").receive_buffer
    };
    let before = receive_buffer(&old);
    let mut wanted = config(build(2)).listen(Address::Tcp(at));
    wanted.settings.options.receive_buffer = Some(4096);
    let upgrade = place.upgrade().begin().expect("it begins");
    drop(upgrade.start("sums", wanted.clone()).expect("it starts"));
    drop(upgrade);
    assert_eq!(receive_buffer(&old), before, "the one that gave up has changed nothing");
    let (new, _) = place.serve(wanted);
    assert_ne!(receive_buffer(&new), before);
}

#[test]
fn a_predecessor_that_hangs_up_is_met_again_with_pauses_and_not_for_ever() {
    let place = Place::new("hangs-up");
    let meeting = packet_socket();
    bind(&meeting, &SocketAddrUnix::new(&place.0).expect("a path")).expect("a free path");
    listen(&meeting, 8).expect("it listens");
    thread::scope(|scope| {
        let met = scope.spawn(|| {
            let accept = || accept_with(&meeting, SocketFlags::CLOEXEC).ok();
            std::iter::from_fn(accept).count()
        });
        let refused = place.upgrade().within(Duration::from_millis(200)).begin().expect_err("it hangs up").to_string();
        shutdown(&meeting, rustix::net::Shutdown::Both).expect("it listens");
        assert!(refused.contains("hangs up each time"), "{refused}");
        assert!(met.join().expect("no panic") <= 22, "a try each 10 ms");
    });
}

#[test]
fn only_this_user_may_come_to_the_meeting_place() {
    let place = Place::new("mode");
    let (_old, _) = place.serve(config(build(1)).listen(any_port()));
    assert_eq!(std::fs::metadata(&place.0).expect("it is there").mode() & 0o777, 0o600);
}

/// Checks that the time of the old build counts, wherever the connection waits.
#[test]
fn a_connection_that_is_idle_goes_on_to_be() {
    const IDLE: Duration = Duration::from_secs(4);
    for together in [false, true] {
        let place = Place::new("idle");
        let of = |number| {
            let mut service = build(number);
            if together {
                service.state = service.state.together();
            }
            let mut config = config(service);
            config.settings.idle = Some(IDLE);
            config
        };
        let (old, at) = place.serve(of(1).listen(any_port()));
        let (began, mut client) = (Instant::now(), many_sums(at, 1).remove(0));
        // waits because: it is the time in which nothing happens that is to count.
        std::thread::sleep(IDLE - Duration::from_secs(1));
        let (new, _) = place.serve(of(2).listen(Address::Tcp(at)));
        moved(&old, &new, 1);
        assert_eq!(read_all(&mut client).expect("an end in order"), b"");
        let idle = began.elapsed();
        assert!(idle >= IDLE && idle < IDLE + Duration::from_secs(2), "{idle:?}, together: {together}");
        assert_eq!(new.status().counts.idle, 1);
    }
}
