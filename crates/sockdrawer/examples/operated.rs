//! The broker of `broker.rs` as it is operated: with limits, signs of life, a port for the operator, and an end in order.
//!
//! `cargo run --release --example operated -- 127.0.0.1:9000 127.0.0.1:9001`, then `nc 127.0.0.1 9000` in two terminals: type `SUB news` in one,
//! and `PUB news it rains` in the other. `UNSUB news` and `PING` are understood, too. At the second port: `STATS`, `TOPICS`, `LIMIT 5000`.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sockdrawer::admission::{Limits, OnFull, PerPeer, Reject};
use sockdrawer::{
    CannotRestore, CannotSave, Config, Context, Drain, Error, Group, Groups, Input, Note, Peer, Pool, Protocol, Saved, Saver,
    Service, State, Step,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// After so long without a line a client is asked for one; after twice as long it is gone.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
pub(crate) struct Broker {
    topics: Groups,
}

impl Service for Broker {
    type Protocol = Client;
    fn open(&self, _peer: &Peer) -> Client {
        Client { topics: self.topics.clone(), subscribed: BTreeMap::new(), asked: false }
    }
    fn state(&self) -> State {
        State::of("client", 1).together()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Client, CannotRestore> {
        let names: Vec<Vec<u8>> = from.value()?;
        let subscribed = names.into_iter().map(|name| (name.clone(), self.topics.get(name))).collect();
        Ok(Client { topics: self.topics.clone(), subscribed, asked: false })
    }
}

/// One connection, with what it subscribed to.
pub(crate) struct Client {
    topics: Groups,
    subscribed: BTreeMap<Vec<u8>, Group>,
    /// For a sign of life.
    asked: bool,
}

impl Client {
    fn obey(&mut self, line: &[u8], cx: &mut Context<'_>) {
        match line.splitn(3, |byte| *byte == b' ').collect::<Vec<_>>()[..] {
            [b"PUB", topic, text] => {
                let subscribers = self.topics.find(topic);
                subscribers.iter().for_each(|group| cx.publish(group, [b"MSG ", topic, b" ", text, b"\n"].concat()));
            }
            [b"SUB", topic] => {
                let group = self.topics.get(topic);
                cx.join(&group);
                self.subscribed.insert(topic.to_vec(), group);
                cx.send(b"OK\n");
            }
            [b"UNSUB", topic] => {
                self.subscribed.remove(topic).iter().for_each(|group| cx.leave(group));
                cx.send(b"OK\n");
            }
            [b"PING"] => cx.send(b"PONG\n"),
            [b"PONG"] => {}
            _ => cx.send(b"ERR what? SUB topic, UNSUB topic, PUB topic text, PING\n"),
        }
    }
}

impl Protocol for Client {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.set_timer(SILENCE);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            self.obey(line, cx);
            self.asked = false;
            cx.set_timer(SILENCE);
        }
        Step::Continue
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        if self.asked {
            return Step::Close;
        }
        self.asked = true;
        cx.send(b"PING\n");
        cx.set_timer(SILENCE);
        Step::Continue
    }
    fn notified(&mut self, message: Note, cx: &mut Context<'_>) -> Step {
        cx.send(message.bytes().unwrap_or_default());
        Step::Continue
    }
    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"BYE\n");
        Step::Close
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.value(&self.subscribed.keys().collect::<Vec<_>>())
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        self.subscribed.values().for_each(|group| cx.join(group));
        Step::Continue
    }
}

/// The operator's port, of the pool of the clients.
#[derive(Clone)]
struct Admin(Groups, Pool);

impl Service for Admin {
    type Protocol = Admin;
    fn open(&self, _peer: &Peer) -> Admin {
        self.clone()
    }
}

impl Protocol for Admin {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let pool = &self.1;
        while let Some(line) = input.line() {
            match std::str::from_utf8(line).unwrap_or_default().split(' ').collect::<Vec<_>>()[..] {
                ["STATS"] => {
                    let status = pool.status();
                    writeln!(cx.out(), "{} connections, {} rejected", status.connections, status.counts.rejected);
                }
                ["TOPICS"] => self.0.list().iter().for_each(|(topic, subscribers)| {
                    writeln!(cx.out(), "{} {subscribers}", topic.escape_ascii());
                }),
                ["LIMIT", limit] => match set_limit(pool, limit) {
                    Ok(()) => cx.send(b"OK\n"),
                    Err(error) => writeln!(cx.out(), "ERR {error}"),
                },
                _ => cx.send(b"ERR what? STATS, TOPICS, LIMIT connections\n"),
            }
        }
        Step::Continue
    }
}

fn set_limit(pool: &Pool, limit: &str) -> Result<(), Box<dyn std::error::Error>> {
    let limit = limit.parse()?;
    pool.update(|config| config.limit(limit))?;
    Ok(())
}

pub(crate) fn start(clients: &str, admin: &str) -> Result<[Pool; 2], Error> {
    let broker = Broker::default();
    let limits = Limits::default()
        .on_full(OnFull::Reject(Reject::text("ERR full\n")))
        .per_peer(PerPeer::address(50).reject(Reject::text("ERR too many from your address\n")));
    let pool = Pool::start(Config::accept(broker.clone()).limit(10_000).admission(limits).listen(clients))?;
    // A pool of their own: operators have room while the clients have none, and are turned away by no limit of theirs.
    let operators = Config::accept(Admin(broker.topics, pool.clone())).loops(1).limit(10).listen(admin);
    Ok([pool, Pool::start(operators)?])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, clients, admin] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("usage: operated CLIENTS ADMIN".into());
    };
    sockdrawer::raise_descriptor_limit()?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let [pool, _operators] = start(clients, admin)?;
    let stopping = pool.clone();
    std::thread::spawn(move || signals.forever().next().map(|_| stopping.shutdown(Drain::within(Duration::from_secs(9)))));
    Ok(pool.join()?)
}
