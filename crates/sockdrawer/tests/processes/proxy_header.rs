//! Peers behind a proxy: their real addresses count, in every model, also for limits, and go along wherever the connection goes.

use super::upgrades::place::{Place, moved};
use crate::common::{PATIENCE, any_port, assert_empty, assert_reset, connect, connect_from, read, read_all, start};
use sockdrawer::admission::{Admission, AfterAccept, Limits, NewPeer, PerPeer, Reject};
use sockdrawer::connecting::Connecting;
use sockdrawer::layer::Layer;
use sockdrawer::layer::proxy_header::{Accepts, Header, Sends, Version};
use sockdrawer::observe::{Event, Status};
use sockdrawer::{
    Address, Behaviour, Build, CannotRestore, CannotSave, Config, Context, Drain, Input, Model, Peer, Pool, Protocol, Recipe,
    Saved, Saver, Selector, Service, State, Step,
};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const RECIPES: &[(&str, Build)] = &[("named", |_| Ok(Behaviour::from(Named)))];

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("the_real_address_is_the_peers_in_every_model", in_every_model),
    ("limits_per_peer_count_the_real_address", limits_per_peer),
    ("a_policy_judges_the_real_address", a_policy_judges),
    ("a_limit_that_comes_later_counts_the_real_address", a_limit_that_comes_later),
    ("a_layer_that_comes_or_goes_leaves_no_connection_uncounted", a_layer_that_comes_or_goes),
    ("a_strangers_header_is_not_believed", a_stranger),
    ("an_adoption_keeps_the_real_address", an_adoption),
    ("an_upgrade_keeps_the_real_address", an_upgrade),
    ("half_headers_go_along_and_count_for_nobody_until_they_are_whole", half_headers_go_along),
    ("half_headers_under_an_upgrade_pass_no_limit", half_headers_pass_no_limit),
    ("half_headers_end_at_the_deadline_and_hold_up_no_other", half_headers),
    ("a_proxy_at_a_unix_socket_is_believed", at_a_unix_socket),
    ("a_pool_that_connects_sends_a_header", a_pool_that_connects),
    ("processes_of_single_connections_have_no_limit_per_peer", no_limit_per_peer),
];

/// Names its peer when it begins and when it goes on elsewhere, and sends back what it gets.
struct Named;
struct Name(String);

impl Service for Named {
    type Protocol = Name;
    fn open(&self, peer: &Peer) -> Name {
        Name(peer.remote().map_or("none".to_owned(), |peer| peer.to_string()))
    }
    fn restore(&self, peer: &Peer, _from: &mut Saved<'_>) -> Result<Name, CannotRestore> {
        Ok(self.open(peer))
    }
    fn state(&self) -> State {
        State::of("named", 1)
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "named".to_owned(), options: Vec::new() })
    }
}

impl Protocol for Name {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(format!("[{}]", self.0).as_bytes());
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.take_all());
        Step::Continue
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        self.opened(cx)
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

/// Returns the proxies that are accepted: one at 127.0.0.1.
fn accepts() -> Accepts {
    Accepts::from(["127.0.0.1".parse().expect("a source")])
}

fn layered() -> Config {
    Config::accept(Behaviour::from(Named).layered(accepts()))
}

fn real(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 4000 + u16::from(last)).into()
}

/// Connects by the proxy, on behalf of that peer or of itself.
fn proxied(at: SocketAddr, source: Option<SocketAddr>) -> TcpStream {
    let mut client = connect(at);
    let header = source.map_or(Header::Local, |source| Header::proxied(source, at));
    client.write_all(&header.bytes(Version::V2)).expect("it stands");
    client
}

/// Returns true where the client is served, under that name.
fn is_named(client: &mut TcpStream, name: SocketAddr) -> bool {
    let name = format!("[{name}]");
    read(client, name.len()).is_some_and(|read| read == name.as_bytes())
}

fn served(at: SocketAddr, last: u8) -> TcpStream {
    let mut client = proxied(at, Some(real(last)));
    assert!(is_named(&mut client, real(last)), "{last}");
    client
}

fn is_turned_away(mut client: TcpStream) -> bool {
    read_all(&mut client).expect("an orderly end").is_empty()
}

/// Asserts that each connection is counted once, wherever it is.
fn assert_books(pool: &Pool) {
    let balance = |status: &Status| {
        let counts = status.counts;
        counts.accepted + counts.moved_in == counts.closed + counts.rejected + counts.moved_out + status.connections as u64
    };
    assert!(pool.wait(PATIENCE, balance), "{:#?}", pool.status());
}

fn peers(pool: &Pool, selector: &Selector) -> Vec<SocketAddr> {
    let mut peers: Vec<_> = pool.connections(selector).into_iter().filter_map(|one| one.peer).collect();
    peers.sort_unstable();
    peers
}

fn of(model: Model) -> Config {
    let config = layered().model(model);
    match model {
        Model::Loops => config.loops(2),
        Model::Prefork => config.processes(2).loops(1),
        _ => config,
    }
}

fn in_every_model() {
    for model in [Model::Loops, Model::Threads, Model::Prefork, Model::Fork, Model::Single] {
        let (pool, at) = start(of(model));
        let count = if model == Model::Single { 1 } else { 6 };
        let mut clients: Vec<TcpStream> = (1..=count).map(|last| served(at, last)).collect();
        let all: Vec<SocketAddr> = (1..=count).map(real).collect();
        assert_eq!(peers(&pool, &Selector::All), all, "{model}");
        let net = |last, bits| Selector::Peers(IpAddr::from([192, 0, 2, last]), bits);
        assert_eq!(peers(&pool, &net(0, 24)).len(), usize::from(count), "{model}");
        assert_eq!(peers(&pool, &Selector::Peers(Ipv4Addr::LOCALHOST.into(), 8)), [], "{model}");
        assert_eq!(pool.kill(&net(1, 32)).cut, 1, "{model}");
        assert_reset(&mut clients[0]);
        for client in &mut clients[1..] {
            assert!(crate::common::echoes(client, b"hello"), "{model}");
        }
        drop(clients);
        assert_empty(&pool);
        assert_books(&pool);
    }
}

fn limits_per_peer() {
    for model in [Model::Loops, Model::Threads] {
        let limited = of(model).admission(Limits::default().per_peer(PerPeer::address(2)));
        let (pool, at) = start(limited);
        // More than two by the proxy, and two for each peer.
        let mut clients: Vec<TcpStream> = [1, 1, 2, 2, 3].map(|last| served(at, last)).into();
        assert!(is_turned_away(proxied(at, Some(real(1)))), "{model}");
        assert!(is_turned_away(proxied(at, Some(real(2)))), "{model}");
        clients.push(served(at, 3));
        // Connections that the proxy makes for itself count for the proxy.
        for _ in 0..2 {
            let mut own = proxied(at, None);
            let name = own.local_addr().expect("it has one");
            assert!(is_named(&mut own, name), "{model}");
            clients.push(own);
        }
        assert!(is_turned_away(proxied(at, None)), "{model}");
        // A stranger's address is judged as well.
        let stranger = Ipv4Addr::new(127, 0, 0, 9);
        for _ in 0..2 {
            let mut client = connect_from(stranger, at);
            let name = client.local_addr().expect("it has one");
            assert!(is_named(&mut client, name), "{model}");
            clients.push(client);
        }
        assert!(is_turned_away(connect_from(stranger, at)), "{model}");
        let there = |status: &Status| status.connections == 10 && status.counts.rejected_per_peer == 4;
        assert!(pool.wait(PATIENCE, there), "{model}: {:#?}", pool.status());
        assert_books(&pool);
        drop(clients.remove(0));
        assert!(pool.wait(PATIENCE, |status| status.connections == 9));
        clients.push(served(at, 1));
        drop(clients);
        assert_empty(&pool);
        assert_books(&pool);
        let counts = pool.status().counts;
        assert_eq!((counts.rejected, counts.aborted, counts.accepted), (4, 0, 15), "{model}");
    }
}

/// Policy that writes down what it is asked, and turns one address away.
struct Denies(Reject, Arc<Mutex<Vec<SocketAddr>>>);

impl Admission for Denies {
    fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
        self.1.lock().expect("no panic").extend(peer.address);
        match peer.address {
            Some(address) if address == real(6) => AfterAccept::Reject(self.0.clone()),
            Some(address) if address == real(7) => panic!("these words"),
            _ => AfterAccept::Keep,
        }
    }
}

fn a_policy_judges() {
    for reject in [Reject::Fin, Reject::Reset, Reject::text("no room")] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (pool, at) = start(of(Model::Loops).admission(Denies(reject.clone(), asked.clone())));
        let _stays = [1, 7].map(|last| served(at, last));
        let mut denied = proxied(at, Some(real(6)));
        match &reject {
            Reject::Reset => assert_reset(&mut denied),
            Reject::Bytes(bytes) => assert_eq!(read_all(&mut denied).expect("an orderly end"), **bytes),
            Reject::Fin => assert_eq!(read_all(&mut denied).expect("an orderly end"), b""),
        }
        assert_books(&pool);
        let counts = pool.status().counts;
        assert_eq!((counts.rejected_by_policy, counts.admission_panics, counts.aborted), (1, 1, 0), "{reject:?}");
        assert_eq!(*asked.lock().expect("no panic"), [1, 7, 6].map(real), "each once, and never the proxy");
    }
}

fn a_limit_that_comes_later() {
    let (pool, at) = start(of(Model::Loops));
    let clients = [1, 1, 2].map(|last| served(at, last));
    let half = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.connections == 4));
    let limited = pool.config().admission(Limits::default().per_peer(PerPeer::address(2)));
    pool.reconfigure(limited).expect("another policy");
    assert!(is_turned_away(proxied(at, Some(real(1)))));
    let more = served(at, 2);
    assert!(is_turned_away(proxied(at, Some(real(2)))));
    drop((clients, half, more));
    assert_empty(&pool);
    assert_books(&pool);
}

fn a_layer_that_comes_or_goes() {
    let limits = || Limits::default().per_peer(PerPeer::address(2));
    let (pool, at) = start(Config::accept(Named).loops(2).admission(limits()));
    let plain = || {
        let mut client = connect(at);
        let name = client.local_addr().expect("it has one");
        (is_named(&mut client, name), client)
    };
    let (first, second) = (plain(), plain());
    assert!(first.0 && second.0 && is_turned_away(connect(at)));
    pool.reconfigure(pool.config().behaviour(Behaviour::from(Named).layered(accepts()))).expect("another behaviour");
    // The proxy has as many as it may, and its peers have not.
    let clients = [1, 1, 2].map(|last| served(at, last));
    assert!(is_turned_away(proxied(at, Some(real(1)))) && is_turned_away(proxied(at, None)));
    pool.reconfigure(pool.config().behaviour(Named)).expect("another behaviour");
    assert!(is_turned_away(connect(at)));
    drop((first, second));
    assert!(pool.wait(PATIENCE, |status| status.connections == 3));
    let (third, fourth) = (plain(), plain());
    assert!(third.0 && fourth.0 && is_turned_away(connect(at)));
    drop((third, fourth, clients));
    assert_empty(&pool);
    assert_books(&pool);
}

fn a_stranger() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = reports.clone();
    let observer = move |event: &Event| {
        if let Event::Reported { report: sockdrawer::Report { message, .. }, peer, .. } = event {
            told.lock().expect("no panic").push((*peer, message.clone()));
        }
    };
    let (pool, at) = start(of(Model::Loops).observer(observer));
    let mut stranger = connect_from(Ipv4Addr::new(127, 0, 0, 2), at);
    let name = stranger.local_addr().expect("it has one");
    assert!(is_named(&mut stranger, name));
    for version in [Version::V1, Version::V2] {
        assert!(crate::common::echoes(&mut stranger, &Header::proxied(real(1), at).bytes(version)), "it is input as any other");
    }
    assert_eq!(peers(&pool, &Selector::All), [name]);
    // A peer that has to send a header cannot leave it out.
    let mut proxy = connect(at);
    let name = proxy.local_addr().expect("it has one");
    proxy.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it stands");
    assert_reset(&mut proxy);
    assert!(pool.wait(PATIENCE, |status| status.counts.aborted == 1));
    let reports = reports.lock().expect("no panic").clone();
    assert_eq!(reports, [(Some(name), "it sent no PROXY header, which its address has to".to_owned())]);
}

fn an_adoption() {
    for model in [Model::Loops, Model::Threads] {
        let (pool, at) = start(of(model).admission(Limits::default().per_peer(PerPeer::address(2))));
        let mut clients = [1, 1, 2].map(|last| served(at, last));
        let mut half = connect(at);
        // It is listed from when it belongs to a generation.
        assert!(pool.wait(PATIENCE, |_| pool.connections(&Selector::All).len() == 4));
        pool.reconfigure(pool.config().behaviour(Behaviour::from(Named).layered(accepts()))).expect("another behaviour");
        let adopted = pool.adopt(&Selector::All);
        assert_eq!((adopted.moved, adopted.stayed), (4, 0), "{model}: {adopted:?}");
        for (client, last) in clients.iter_mut().zip([1, 1, 2]) {
            assert!(is_named(client, real(last)), "{model}");
        }
        assert_eq!(peers(&pool, &Selector::Peers(IpAddr::from([192, 0, 2, 0]), 24)), [1, 1, 2].map(real), "{model}");
        assert!(is_turned_away(proxied(at, Some(real(1)))), "{model}");
        half.write_all(&Header::proxied(real(3), at).bytes(Version::V1)).expect("it stands");
        assert!(is_named(&mut half, real(3)), "{model}");
        assert_books(&pool);
    }
}

fn an_upgrade() {
    let place = Place::new("proxy-header");
    let limits = |model| model != Model::Prefork;
    let build = |model| {
        let per_peer = Limits::default().per_peer(PerPeer::address(2));
        of(model).admission(if limits(model) { per_peer } else { Limits::default() })
    };
    let (mut pool, at) = place.serve(build(Model::Loops).listen(any_port()));
    let mut clients = [1, 1, 2].map(|last| served(at, last));
    let own = peers(&pool, &Selector::All);
    for model in [Model::Loops, Model::Threads, Model::Prefork, Model::Loops] {
        let (new, _) = place.serve(build(model).listen(Address::Tcp(at)));
        moved(&pool, &new, 3);
        for (client, last) in clients.iter_mut().zip([1, 1, 2]) {
            assert!(is_named(client, real(last)), "{model}: restored under its name");
        }
        assert_eq!(peers(&new, &Selector::All), own, "{model}");
        assert_eq!(peers(&new, &Selector::Peers(IpAddr::from([192, 0, 2, 2]), 32)), [real(2)], "{model}");
        assert!(!limits(model) || is_turned_away(proxied(at, Some(real(1)))), "{model}");
        let more = served(at, 2);
        assert!(!limits(model) || is_turned_away(proxied(at, Some(real(2)))), "{model}");
        drop(more);
        assert!(new.wait(PATIENCE, |status| status.connections == 3), "{model}");
        assert_books(&new);
        pool = new;
    }
}

/// Connections with the first part of a header of that peer.
fn halves(at: SocketAddr, last: u8, count: usize) -> Vec<(TcpStream, Vec<u8>)> {
    let half = |number| {
        let (mut client, mut header) = (connect(at), Header::proxied(real(last), at).bytes(Version::V1));
        let rest = header.split_off(number % header.len());
        client.write_all(&header).expect("it stands");
        (client, rest)
    };
    (0..count).map(half).collect()
}

/// Completes the headers and returns how many clients are served then; the others are turned away.
fn completed(halves: &mut [(TcpStream, Vec<u8>)], last: u8) -> usize {
    halves.iter_mut().for_each(|(client, rest)| client.write_all(rest).expect("it stands"));
    let served = |(client, _): &mut (TcpStream, Vec<u8>)| is_named(client, real(last));
    halves.iter_mut().map(served).filter(|served| *served).count()
}

fn limited(model: Model) -> Config {
    let per_peer = Limits::default().per_peer(PerPeer::address(2));
    of(model).admission(if model == Model::Prefork { Limits::default() } else { per_peer })
}

fn half_headers_go_along() {
    let place = Place::new("half-headers");
    let (mut pool, at) = place.serve(limited(Model::Loops).listen(any_port()));
    let _served = [1, 1].map(|last| served(at, last));
    for model in [Model::Loops, Model::Threads, Model::Prefork, Model::Loops, Model::Threads, Model::Threads] {
        let before = pool.status().connections;
        let (mut of_full, mut of_new) = (halves(at, 1, 6), halves(at, 2, 6));
        let all = before + 12;
        assert!(pool.wait(PATIENCE, |_| pool.connections(&Selector::All).len() == all), "{model}: {:#?}", pool.status());
        let (new, _) = place.serve(limited(model).listen(Address::Tcp(at)));
        moved(&pool, &new, all);
        if model != Model::Prefork {
            // The proxy's own address has none of them.
            let mut own = proxied(at, None);
            let name = own.local_addr().expect("it has one");
            assert!(is_named(&mut own, name), "{model}");
            assert_eq!((completed(&mut of_full, 1), completed(&mut of_new, 2)), (0, 2), "{model}");
            assert!(is_turned_away(proxied(at, Some(real(2)))), "{model}");
        } else {
            assert_eq!((completed(&mut of_full, 1), completed(&mut of_new, 2)), (6, 6), "it has no limit per peer");
        }
        drop((of_full, of_new));
        assert!(new.wait(PATIENCE, |status| status.connections == before), "{model}: {:#?}", new.status());
        assert_books(&new);
        pool = new;
    }
}

/// Headers are completed while one build takes over from another: no peer ever has more than it may, wherever its connections are.
fn half_headers_pass_no_limit() {
    let place = Place::new("half-headers-race");
    let (mut pool, at) = place.serve(limited(Model::Loops).listen(any_port()));
    for _ in 0..20 {
        let mut halves = halves(at, 1, 40);
        assert!(pool.wait(PATIENCE, |_| pool.connections(&Selector::All).len() == 40), "{:#?}", pool.status());
        let (served, next) = std::thread::scope(|scope| {
            let next = scope.spawn(|| place.serve(limited(Model::Loops).listen(Address::Tcp(at))).0);
            for (client, rest) in &mut halves {
                client.write_all(rest).expect("it stands");
                rest.clear();
                // waits because: all that the other build does takes some milliseconds, and some are to come at each step of it.
                std::thread::sleep(Duration::from_micros(500));
            }
            (completed(&mut halves, 1), next.join().expect("no panic"))
        });
        assert_eq!(served, 2);
        drop(halves);
        assert!(next.wait(PATIENCE, |status| status.connections == 0), "{:#?}", next.status());
        pool = next;
    }
}

fn half_headers() {
    const MANY: usize = 1000;
    let within = Duration::from_secs(2);
    let accepts = accepts().within(within);
    let (pool, at) = start(Config::accept(Behaviour::from(Named).layered(accepts)).loops(2).limit(MANY + 10));
    let whole = Header::proxied(real(1), at).bytes(Version::V1);
    let began = Instant::now();
    let half = |number: usize| {
        let mut client = connect(at);
        client.write_all(&whole[..number % whole.len()]).expect("it stands");
        client
    };
    let mut clients: Vec<TcpStream> = (0..MANY).map(half).collect();
    // They hold up no other.
    let mut other = served(at, 2);
    assert!(crate::common::echoes(&mut other, b"hello"));
    let over = pool.wait(PATIENCE, |status| status.connections == 1);
    assert!(over && began.elapsed() >= within, "{:#?}", pool.status());
    assert_eq!(pool.status().counts.aborted, MANY as u64);
    clients.iter_mut().for_each(assert_reset);
    assert!(crate::common::echoes(&mut other, b"still"));
    assert_books(&pool);
}

fn at_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("sockdrawer-proxy-header-{}", std::process::id()));
    let accepts = Accepts::from(["unix".parse().expect("a source")]);
    let config = Config::accept(Layer::new(accepts, Named)).listen(Address::Unix(path.clone()));
    let connect = |last| {
        let mut client = UnixStream::connect(&path).expect("it listens");
        client.write_all(&Header::proxied(real(last), real(0)).bytes(Version::V2)).expect("it stands");
        let mut read = vec![0; format!("[{}]", real(last)).len()];
        let whole = std::io::Read::read_exact(&mut client, &mut read).is_ok();
        (whole, client)
    };
    for model in [Model::Loops, Model::Threads, Model::Prefork, Model::Fork] {
        let pool = Pool::start(config.clone().model(model)).expect("it starts");
        let (first, second) = (connect(1), connect(2));
        assert!(first.0 && second.0, "{model}");
        assert_eq!(peers(&pool, &Selector::All), [1, 2].map(real));
        pool.purge(&Selector::All, PATIENCE);
        assert_empty(&pool);
        pool.shutdown(Drain::within(PATIENCE));
    }
    let pool = Pool::start(config.loops(1).admission(Limits::default().per_peer(PerPeer::address(1)))).expect("it starts");
    let (first, second, third) = (connect(1), connect(2), connect(1));
    assert!(first.0 && second.0 && !third.0);
    assert_eq!(peers(&pool, &Selector::All), [1, 2].map(real));
    let _ = std::fs::remove_file(path);
}

fn a_pool_that_connects() {
    for version in [Version::V1, Version::V2] {
        let (server, at) = start(of(Model::Loops));
        let sends = Sends::new(version).on_behalf_of(|peer| peer.remote().map(|_| real(9)));
        let clients = Config::connect(Behaviour::from(Named).layered(sends), Connecting::to([Address::Tcp(at)]).keep(5)).loops(1);
        let clients = Pool::start(clients).expect("it starts");
        let there = |status: &Status| status.connections == 5 && status.counts.bytes_in > 0;
        assert!(server.wait(PATIENCE, there), "{:#?}", server.status());
        let all_named = |_: &Status| peers(&server, &Selector::All) == [real(9); 5];
        assert!(server.wait(PATIENCE, all_named), "{:?}", peers(&server, &Selector::All));
        assert_eq!(peers(&clients, &Selector::All), [at; 5], "their peer is the server");
    }
}

fn no_limit_per_peer() {
    let limited = of(Model::Fork).admission(Limits::default().per_peer(PerPeer::address(2)));
    let refused = Pool::start(limited.listen(any_port())).expect_err("it cannot be kept").to_string();
    assert!(refused.contains("the model fork knows peers only by the addresses that connect"), "{refused}");
}
