//! Addresses with behaviours of their own: one pool, several protocols, each of which changes while the others go on.

mod common;
#[path = "../examples/proxy.rs"]
#[allow(dead_code)]
mod proxy;

use common::{PATIENCE, assert_empty, connect, read, read_all, start, tcp};
use sockdrawer::changing::How;
use sockdrawer::listening::Listening;
use sockdrawer::{
    Address, CannotRestore, CannotSave, Config, Context, Error, Input, Model, Peer, Pool, Protocol, Saved, Saver, Selector,
    Service, Step,
};
use std::io::Write;
use std::net::SocketAddr;

/// Answers each byte with its name, and says at which address it was asked.
struct Named(&'static str);

impl Service for Named {
    type Protocol = NamedState;
    fn open(&self, peer: &Peer) -> NamedState {
        NamedState { name: self.0, at: peer.listener().cloned() }
    }
    fn restore(&self, peer: &Peer, _from: &mut Saved<'_>) -> Result<NamedState, CannotRestore> {
        Ok(self.open(peer))
    }
}

struct NamedState {
    name: &'static str,
    at: Option<Address>,
}

impl Protocol for NamedState {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        let at = self.at.as_ref().map_or_else(|| "nowhere".to_owned(), Address::to_string);
        writeln!(cx.out(), "{} at {at}", self.name);
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

fn answers(stream: &mut std::net::TcpStream, name: &str, at: SocketAddr) {
    stream.write_all(b"?").expect("it stands");
    let expected = format!("{name} at {at}\n");
    assert_eq!(read(stream, expected.len()).as_deref(), Some(expected.as_bytes()));
}

fn addresses(pool: &Pool) -> Vec<SocketAddr> {
    pool.status().listeners.iter().map(|listener| tcp(&listener.address)).collect()
}

fn two_ports(model: Model) -> (Pool, SocketAddr, SocketAddr) {
    let admin = Listening::new("127.0.0.1:0").behaviour(Named("admin")).limit(2);
    let config = Config::accept(Named("chat")).model(model).listen("127.0.0.1:0").listening(admin);
    let pool = Pool::start(config).expect("it starts");
    let [chat, admin] = addresses(&pool)[..] else { panic!("two addresses") };
    (pool, chat, admin)
}

#[test]
fn each_address_runs_its_own_under_each_model_in_one_process() {
    for model in [Model::Loops, Model::Threads, Model::Single, Model::Tasks] {
        if model == Model::Tasks && !cfg!(feature = "tokio") {
            continue;
        }
        let (pool, chat, admin) = two_ports(model);
        for _ in 0..4 {
            answers(&mut connect(chat), "chat", chat);
            answers(&mut connect(admin), "admin", admin);
        }
        assert!(pool.wait(PATIENCE, |status| status.connections == 0));
        assert_eq!(pool.status().generations.len(), 1, "{model}: one generation for both");
        assert_empty(&pool);
    }
}

#[test]
fn a_behaviour_changes_at_its_address_alone_and_is_adopted_there() {
    let (pool, chat, admin) = two_ports(Model::Loops);
    let (mut old_chat, mut old_admin) = (connect(chat), connect(admin));
    answers(&mut old_chat, "chat", chat);
    answers(&mut old_admin, "admin", admin);
    let config = pool.config().listeners(|listeners| listeners[1] = listeners[1].clone().behaviour(Named("console")));
    let plan = pool.plan(&config).expect("valid");
    assert!(plan.has(How::NewGeneration) && !plan.has(How::NewSocket), "{plan}");
    pool.reconfigure(config).expect("valid");
    answers(&mut connect(admin), "console", admin);
    answers(&mut connect(chat), "chat", chat);
    answers(&mut old_admin, "admin", admin);
    let adopted = pool.adopt(&Selector::All);
    assert_eq!((adopted.moved, adopted.stayed), (2, 0), "{adopted:?}");
    answers(&mut old_admin, "console", admin);
    answers(&mut old_chat, "chat", chat);
    assert!(pool.wait(PATIENCE, |status| status.generations.len() == 1));
}

#[test]
fn an_address_with_its_own_behaviour_comes_and_goes_and_becomes_ordinary() {
    let (pool, at) = start(Config::accept(Named("chat")).loops(2));
    let mut old = connect(at);
    answers(&mut old, "chat", at);
    pool.update(|config| config.listening(Listening::new("127.0.0.1:0").behaviour(Named("admin")))).expect("valid");
    let admin = addresses(&pool)[1];
    answers(&mut connect(admin), "admin", admin);
    // The address stays, its behaviour goes: its sockets are replaced, and none is lost.
    pool.update(|config| config.listeners(|listeners| listeners[1] = Listening::new(admin))).expect("valid");
    answers(&mut connect(admin), "chat", admin);
    pool.update(|config| config.listeners(|listeners| listeners.truncate(1))).expect("valid");
    answers(&mut old, "chat", at);
    answers(&mut connect(at), "chat", at);
    drop(old);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    assert_empty(&pool);
}

#[test]
fn its_limit_is_its_own_and_operations_are_for_all() {
    let (pool, chat, admin) = two_ports(Model::Loops);
    let mut held: Vec<_> = (0..2).map(|_| connect(admin)).collect();
    held.iter_mut().for_each(|one| answers(one, "admin", admin));
    let mut waits = connect(admin);
    waits.write_all(b"?").expect("it stands");
    answers(&mut connect(chat), "chat", chat);
    held.pop();
    let expected = format!("admin at {admin}\n");
    assert_eq!(read(&mut waits, expected.len()).as_deref(), Some(expected.as_bytes()));
    let all = pool.purge(&Selector::All, PATIENCE);
    assert!(all.asked >= 2, "{all:?}");
    assert!(read_all(&mut waits).expect("an orderly end").is_empty());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let own = || Listening::new("127.0.0.1:0").behaviour(Named("admin"));
    let refused = |config: Config| match Pool::start(config) {
        Err(Error::Invalid { setting: "listeners.behaviour", reason }) => reason,
        other => panic!("{other:?}"),
    };
    let twice = Config::accept(Named("chat")).listening(own()).listening(own());
    assert!(refused(twice).contains("named twice"));
    #[cfg(feature = "processes")]
    assert!(refused(Config::accept(Named("chat")).model(Model::Prefork).listening(own())).contains("second pool"));
    let handler = sockdrawer::Behaviour::blocking(|_| Ok(()));
    assert!(refused(Config::accept(handler).model(Model::Threads).listening(own())).contains("a handler"));
}

#[test]
fn what_a_connection_makes_for_itself_runs_the_behaviour_of_its_address() {
    let backend = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let target = backend.local_addr().expect("it is bound").into();
    let proxy = Listening::new("127.0.0.1:0").behaviour(proxy::Proxy(target));
    let pool = Pool::start(Config::accept(Named("chat")).listen("127.0.0.1:0").listening(proxy)).expect("it starts");
    let [chat, proxy] = addresses(&pool)[..] else { panic!("two addresses") };
    let mut client = connect(proxy);
    client.write_all(b"question").expect("it stands");
    let (mut far, _) = backend.accept().expect("the proxy connects");
    assert_eq!(read(&mut far, 8).as_deref(), Some(&b"question"[..]));
    answers(&mut connect(chat), "chat", chat);
}
