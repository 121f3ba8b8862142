//! Addresses with layers of their own: one pool and one service at a plain port and at ports behind a filter.

use crate::common::{PATIENCE, assert_empty, connect, read, read_all, start, tcp};
use sockdrawer::changing::How;
use sockdrawer::layer::{Filter, Filtering, Progress, Refused};
use sockdrawer::listening::Listening;
use sockdrawer::{
    Address, Behaviour, CannotRestore, CannotSave, Config, Context, Error, Input, Model, Output, Peer, Pool, Protocol, Saved,
    Saver, Selector, Service, State, Step, Upgrade,
};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Service that answers each message with its name and the number of messages, and says at which address it was asked.
struct Named(&'static str);

impl Service for Named {
    type Protocol = NamedState;
    fn open(&self, peer: &Peer) -> NamedState {
        NamedState { name: self.0, at: peer.listener().cloned(), asked: 0 }
    }
    fn state(&self) -> State {
        State::of("named", 1)
    }
    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<NamedState, CannotRestore> {
        Ok(NamedState { asked: from.u64()?, ..self.open(peer) })
    }
}

struct NamedState {
    name: &'static str,
    at: Option<Address>,
    asked: u64,
}

impl Protocol for NamedState {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            assert_eq!(line, b"who?", "plain bytes");
            self.asked += 1;
            let at = self.at.as_ref().map_or_else(|| "nowhere".to_owned(), Address::to_string);
            writeln!(cx.out(), "{} {} at {at}", self.name, self.asked);
        }
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.asked);
        Ok(())
    }
}

/// Layer by which each byte of the wire is another.
#[derive(Clone, Copy)]
struct Xor(u8);

struct XorState {
    key: u8,
    established: bool,
}

impl Filtering for Xor {
    type Filter = XorState;
    fn filter(&self, _peer: &Peer) -> XorState {
        XorState { key: self.0, established: false }
    }
    fn state(&self) -> State {
        State::of("xor", 1)
    }
    fn restore(&self, from: &mut Saved<'_>) -> Result<XorState, CannotRestore> {
        Ok(XorState { key: from.u64()? as u8, established: true })
    }
}

impl Filter for XorState {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, _back: &mut Output) -> Result<Progress, Refused> {
        if !std::mem::replace(&mut self.established, true) {
            return Ok(Progress::Established(None));
        }
        if wire.is_empty() {
            return Ok(Progress::NeedMore);
        }
        plain.extend(wire.take_all().iter().map(|byte| byte ^ self.key));
        Ok(Progress::Plain)
    }
    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        plain.iter().for_each(|byte| wire.push(&[byte ^ self.key]));
    }
    fn goodbye(&mut self, _wire: &mut Output) {}
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.key.into());
        Ok(())
    }
}

/// A client that speaks by a key; 0 is plain.
struct Client(TcpStream, u8);

impl Client {
    fn hears(&mut self, expected: &str) {
        self.0.write_all(&b"who?\n".map(|byte| byte ^ self.1)).expect("it stands");
        let heard = read(&mut self.0, expected.len() + 1).expect("an answer");
        let heard: Vec<u8> = heard.iter().map(|byte| byte ^ self.1).collect();
        assert_eq!(String::from_utf8_lossy(&heard), format!("{expected}\n"));
    }
}

fn addresses(pool: &Pool) -> Vec<SocketAddr> {
    pool.status().listeners.iter().map(|listener| tcp(&listener.address)).collect()
}

fn layered(at: &str, key: u8) -> Listening {
    Listening::new(at).layered(Xor(key))
}

fn two_ports(model: Model) -> (Pool, SocketAddr, SocketAddr) {
    let secret = layered("127.0.0.1:0", 7).limit(2);
    let config = Config::accept(Named("one")).model(model).listen("127.0.0.1:0").listening(secret);
    let pool = Pool::start(config).expect("it starts");
    let [plain, secret] = addresses(&pool)[..] else { panic!("two addresses") };
    (pool, plain, secret)
}

#[test]
fn one_service_serves_both_under_each_model_in_one_process() {
    for model in [Model::Loops, Model::Threads, Model::Single, Model::Tasks] {
        if model == Model::Tasks && !cfg!(feature = "tokio") {
            continue;
        }
        let (pool, plain, secret) = two_ports(model);
        for _ in 0..4 {
            Client(connect(plain), 0).hears(&format!("one 1 at {plain}"));
            Client(connect(secret), 7).hears(&format!("one 1 at {secret}"));
        }
        assert!(pool.wait(PATIENCE, |status| status.connections == 0));
        assert_eq!(pool.status().generations.len(), 1, "{model}: one generation for both");
        assert_empty(&pool);
    }
}

#[test]
fn blocking_code_is_behind_the_layers_of_its_listener() {
    let shout = Behaviour::blocking(|connection| {
        let mut line = [0; 5];
        std::io::Read::read_exact(connection, &mut line)?;
        connection.write_all(&line.to_ascii_uppercase())
    });
    let config = Config::accept(shout).model(Model::Threads).listen("127.0.0.1:0").listening(layered("127.0.0.1:0", 9));
    let pool = Pool::start(config).expect("it starts");
    for (at, key) in addresses(&pool).into_iter().zip([0, 9]) {
        let mut client = connect(at);
        client.write_all(&b"who?\n".map(|byte| byte ^ key)).expect("it stands");
        assert_eq!(read(&mut client, 5).map(|heard| heard.iter().map(|byte| byte ^ key).collect()), Some(b"WHO?\n".to_vec()));
    }
}

#[test]
fn layers_change_at_their_address_alone_and_a_new_service_is_adopted_behind_them() {
    let (pool, plain, secret) = two_ports(Model::Loops);
    let (mut at_plain, mut at_secret) = (Client(connect(plain), 0), Client(connect(secret), 7));
    at_plain.hears(&format!("one 1 at {plain}"));
    at_secret.hears(&format!("one 1 at {secret}"));
    let config = pool.config().listeners(|listeners| {
        listeners[1].layers = sockdrawer::listening::Layers::default();
        listeners[1] = listeners[1].clone().layered(Xor(9));
    });
    let plan = pool.plan(&config).expect("valid");
    assert!(plan.has(How::NewGeneration) && !plan.has(How::NewSocket), "{plan}");
    pool.reconfigure(config).expect("valid");
    Client(connect(secret), 9).hears(&format!("one 1 at {secret}"));
    at_secret.hears(&format!("one 2 at {secret}"));
    pool.update(|config| config.behaviour(Named("two"))).expect("valid");
    assert!(pool.plan(&pool.config()).expect("valid").changes.is_empty(), "copies are the same layers");
    let adopted = pool.adopt(&Selector::All);
    assert_eq!(adopted.stayed, 0, "{adopted:?}");
    // The key that it has is in its state.
    at_secret.hears(&format!("two 3 at {secret}"));
    at_plain.hears(&format!("two 2 at {plain}"));
    assert!(pool.wait(PATIENCE, |status| status.generations.len() == 1));
}

#[test]
fn an_address_with_layers_comes_and_goes_and_becomes_plain() {
    let (pool, at) = start(Config::accept(Named("one")).loops(2));
    let mut old = Client(connect(at), 0);
    old.hears(&format!("one 1 at {at}"));
    pool.update(|config| config.listening(layered("127.0.0.1:0", 7))).expect("valid");
    let secret = addresses(&pool)[1];
    let mut stays = Client(connect(secret), 7);
    stays.hears(&format!("one 1 at {secret}"));
    // The address stays, its layers go: its sockets are replaced, and none is lost.
    pool.update(|config| config.listeners(|listeners| listeners[1] = Listening::new(secret))).expect("valid");
    Client(connect(secret), 0).hears(&format!("one 1 at {secret}"));
    // It has left when the pool has seen its end.
    assert!(pool.wait(PATIENCE, |status| status.connections == 2));
    pool.update(|config| config.behaviour(Named("two"))).expect("valid");
    let adopted = pool.adopt(&Selector::All);
    assert_eq!((adopted.moved, adopted.stayed), (1, 1), "the other's peer speaks to the layers: {adopted:?}");
    assert!(adopted.reasons.keys().all(|why| why.contains("layers")), "{adopted:?}");
    stays.hears(&format!("one 2 at {secret}"));
    pool.update(|config| config.listeners(|listeners| listeners.truncate(1))).expect("valid");
    old.hears(&format!("two 2 at {at}"));
    Client(connect(at), 0).hears(&format!("two 1 at {at}"));
    drop((old, stays));
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    assert_empty(&pool);
}

#[test]
fn its_limit_is_its_own_and_operations_are_for_all() {
    let (pool, plain, secret) = two_ports(Model::Loops);
    let mut held: Vec<_> = (0..2).map(|_| Client(connect(secret), 7)).collect();
    held.iter_mut().for_each(|one| one.hears(&format!("one 1 at {secret}")));
    let mut waits = Client(connect(secret), 7);
    Client(connect(plain), 0).hears(&format!("one 1 at {plain}"));
    held.pop();
    waits.hears(&format!("one 1 at {secret}"));
    let all = pool.purge(&Selector::All, PATIENCE);
    assert!(all.asked >= 2, "{all:?}");
    assert!(read_all(&mut waits.0).expect("an orderly end").is_empty());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let own = || layered("127.0.0.1:0", 7);
    let refused = |config: Config| match Pool::start(config) {
        Err(Error::Invalid { setting: "listeners.layers", reason }) => reason,
        other => panic!("{other:?}"),
    };
    let twice = Config::accept(Named("one")).listening(own()).listening(own());
    assert!(refused(twice).contains("named twice"));
    #[cfg(feature = "processes")]
    assert!(refused(Config::accept(Named("one")).model(Model::Prefork).listening(own())).contains("second pool"));
}

/// Checks that plain connections and such behind layers move to the next build, also where it has other layers at their address.
#[test]
fn connections_behind_layers_of_their_listener_are_upgraded() {
    let place = std::env::temp_dir().join(format!("sockdrawer-layers-{}", std::process::id()));
    let _ = std::fs::remove_file(&place);
    let serve = |name, listeners: Vec<Listening>, model| {
        let upgrade = Upgrade::at(&place).replaces("any").stand_by(Duration::ZERO).begin().expect("it begins");
        let config = Config::accept(Named(name)).model(model).listeners(|all| *all = listeners);
        let pool = upgrade.start("named", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        pool
    };
    let any = "127.0.0.1:0";
    let mut pool = serve("one", vec![Listening::new(any), layered(any, 7)], Model::Loops);
    let [plain, secret] = addresses(&pool)[..] else { panic!("two addresses") };
    let (at_plain, at_secret) = (plain.to_string(), secret.to_string());
    let mut clients = [Client(connect(plain), 0), Client(connect(secret), 7)];
    clients.iter_mut().zip([plain, secret]).for_each(|(client, at)| client.hears(&format!("one 1 at {at}")));
    let builds = [
        ("two", vec![Listening::new(&*at_plain), layered(&at_secret, 9)], Model::Loops),
        ("three", vec![Listening::new(&*at_secret), layered(&at_plain, 9)], Model::Threads),
        ("four", vec![layered(&at_secret, 3), Listening::new(&*at_plain)], Model::Loops),
    ];
    for (asked, (name, listeners, model)) in (2..).zip(builds) {
        let next = serve(name, listeners, model);
        pool.join().expect("all of it moved");
        assert!(next.wait(PATIENCE, |status| status.connections == 2), "{name}: {:#?}", next.status());
        pool = next;
        clients.iter_mut().zip([plain, secret]).for_each(|(client, at)| client.hears(&format!("{name} {asked} at {at}")));
    }
    let _ = std::fs::remove_file(&place);
}
