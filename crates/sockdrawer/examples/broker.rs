//! A broker: clients subscribe to topics, and what is published to a topic goes to all of its subscribers.
//!
//! `cargo run --release --example broker -- 127.0.0.1:9000`, then `nc 127.0.0.1 9000` in two terminals: type `SUB news` in one, and
//! `PUB news it rains` in the other. `UNSUB news` and `PING` are understood, too.

use sockdrawer::{
    CannotRestore, CannotSave, Context, Group, Groups, Input, Note, Peer, Pool, Protocol, Saved, Saver, Service, State, Step,
};
use std::collections::BTreeMap;

#[derive(Clone, Default)]
pub(crate) struct Broker {
    topics: Groups,
}

impl Service for Broker {
    type Protocol = Client;
    fn open(&self, _peer: &Peer) -> Client {
        Client { topics: self.topics.clone(), subscribed: BTreeMap::new() }
    }
    fn state(&self) -> State {
        State::of("client", 1).together()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Client, CannotRestore> {
        let names = (0..from.u64()?).map(|_| from.bytes()).collect::<Result<Vec<_>, _>>()?;
        let subscribed = names.into_iter().map(|name| (name.into(), self.topics.get(name))).collect();
        Ok(Client { topics: self.topics.clone(), subscribed })
    }
}

/// One connection, with what it subscribed to.
pub(crate) struct Client {
    topics: Groups,
    subscribed: BTreeMap<Box<[u8]>, Group>,
}

impl Client {
    fn obey(&mut self, line: &[u8], cx: &mut Context<'_>) {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        match (words.next(), words.next(), words.next()) {
            (Some(b"PUB"), Some(topic), Some(text)) => {
                if let Some(group) = self.topics.find(topic) {
                    cx.publish(&group, [b"MSG ", topic, b" ", text, b"\n"].concat());
                }
            }
            (Some(b"SUB"), Some(topic), None) => {
                let group = self.topics.get(topic);
                cx.join(&group);
                self.subscribed.insert(topic.into(), group);
                cx.send(b"OK\n");
            }
            (Some(b"UNSUB"), Some(topic), None) => {
                if let Some(group) = self.subscribed.remove(topic) {
                    cx.leave(&group);
                }
                cx.send(b"OK\n");
            }
            (Some(b"PING"), None, None) => cx.send(b"PONG\n"),
            _ => cx.send(b"ERR what? SUB topic, UNSUB topic, PUB topic text, PING\n"),
        }
    }
}

impl Protocol for Client {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            self.obey(line, cx);
        }
        Step::Continue
    }
    fn notified(&mut self, message: Note, cx: &mut Context<'_>) -> Step {
        cx.send(message.bytes().unwrap_or_default());
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.subscribed.len() as u64);
        self.subscribed.keys().for_each(|topic| to.bytes(topic));
        Ok(())
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        self.subscribed.values().for_each(|group| cx.join(group));
        Step::Continue
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, listen] = &std::env::args().collect::<Vec<_>>()[..] else { return Err("usage: broker LISTEN".into()) };
    sockdrawer::raise_descriptor_limit()?;
    Ok(Pool::serve(Broker::default(), listen.as_str())?.join()?)
}
