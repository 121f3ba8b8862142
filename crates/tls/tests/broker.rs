//! A broker whose members come by a plain port and by one under TLS: each message that it answers is delivered once, to all members of its topic
//! and in one order, while builds of different states take over from each other. `SOCKDRAWER_LONG=1` has 2,000 members and 20 upgrades.

use rcgen::{CertificateParams, KeyPair};
use sockdrawer::connecting::Connecting;
use sockdrawer::listening::Listening;
use sockdrawer::{
    Address, Behaviour, CannotRestore, CannotSave, Config, Context, Drain, Error, Groups, Handle, Input, Note, Peer, Pool,
    Protocol, Saved, Saver, Service, State, Step, Upgrade,
};
use sockdrawer_tls::{Client, Identity, Server, Trust};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A failing test ends by this; a passing one never waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Members of each topic.
const MEMBERS: usize = 10;

/// Build of the broker.
#[derive(Clone)]
struct Broker {
    topics: Groups,
    /// Number that the states of this build begin with; the second build has a count more.
    build: u64,
}

struct Subscriber {
    broker: Broker,
    topic: Option<Vec<u8>>,
    /// Messages that it was delivered, where a build counts them.
    delivered: u64,
}

impl Service for Broker {
    type Protocol = Subscriber;
    fn open(&self, _peer: &Peer) -> Subscriber {
        Subscriber { broker: self.clone(), topic: None, delivered: 0 }
    }
    fn state(&self) -> State {
        State::of("subscriber", 1).together()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Subscriber, CannotRestore> {
        let (build, topic) = (from.u64()?, from.bytes()?.to_vec());
        let delivered = if build == 2 { from.u64()? } else { 0 };
        Ok(Subscriber { broker: self.clone(), topic: Some(topic).filter(|topic| !topic.is_empty()), delivered })
    }
}

impl Protocol for Subscriber {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            match line.splitn(3, |byte| *byte == b' ').collect::<Vec<_>>()[..] {
                [b"SUB", topic] => {
                    cx.join(&self.broker.topics.get(topic));
                    self.topic = Some(topic.to_vec());
                    cx.send(b"READY\n");
                }
                [b"PUB", topic, number] => {
                    cx.publish(&self.broker.topics.get(topic), [b"MSG ", number, b"\n"].concat());
                    cx.send(&[b"OK ", number, b"\n"].concat());
                }
                _ => return Step::Abort,
            }
        }
        Step::Continue
    }
    fn notified(&mut self, message: Note, cx: &mut Context<'_>) -> Step {
        self.delivered += 1;
        cx.send(message.bytes().unwrap_or_default());
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.broker.build);
        to.bytes(self.topic.as_deref().unwrap_or_default());
        if self.broker.build == 2 {
            to.u64(self.delivered);
        }
        Ok(())
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        self.topic.iter().for_each(|topic| cx.join(&self.broker.topics.get(topic)));
        Step::Continue
    }
}

/// Members in the order in which they came. Each kind has its half of every topic.
#[derive(Default)]
struct Members(Mutex<Books>);

#[derive(Default)]
struct Books {
    opened: [usize; 2],
    ready: Vec<(usize, Handle)>,
    /// Messages by topic, and then by member, in the order in which they came.
    heard: BTreeMap<usize, Vec<Vec<u64>>>,
    /// Messages that were answered, by topic.
    answered: BTreeMap<usize, BTreeSet<u64>>,
    lost: usize,
}

/// The clients that come by one port.
struct Clients {
    members: Arc<Members>,
    port: usize,
}

struct ClientState {
    members: Arc<Members>,
    topic: usize,
    place: usize,
}

impl Service for Clients {
    type Protocol = ClientState;
    fn open(&self, _peer: &Peer) -> ClientState {
        let mut books = self.members.0.lock().expect("no panic");
        let number = books.opened[self.port];
        books.opened[self.port] += 1;
        let topic = number / (MEMBERS / 2);
        let heard = books.heard.entry(topic).or_default();
        heard.push(Vec::new());
        ClientState { members: self.members.clone(), topic, place: heard.len() - 1 }
    }
}

impl Protocol for ClientState {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(format!("SUB {}\n", self.topic).as_bytes());
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let mut books = self.members.0.lock().expect("no panic");
        while let Some(line) = input.line() {
            let line = std::str::from_utf8(line).expect("ASCII");
            let number = |text: &str| text.parse().expect("a number");
            match line.split_once(' ') {
                Some(("MSG", text)) => books.heard.get_mut(&self.topic).expect("its topic")[self.place].push(number(text)),
                Some(("OK", text)) => _ = books.answered.entry(self.topic).or_default().insert(number(text)),
                _ => books.ready.push((self.topic, cx.handle())),
            }
        }
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().unwrap_or_default());
        Step::Continue
    }
    fn closed(&mut self, _why: sockdrawer::Closed, _cx: &mut Context<'_>) {
        self.members.0.lock().expect("no panic").lost += 1;
    }
}

impl Members {
    fn wait(&self, what: &str, is: impl Fn(&Books) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let books = self.0.lock().expect("no panic");
            if is(&books) {
                return;
            }
            assert!(Instant::now() < until, "waited for {what}: {}", books.tell());
            drop(books);
            // waits because: members are in pools of their own, and what they have heard tells nothing.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Books {
    fn answered(&self) -> usize {
        self.answered.values().map(BTreeSet::len).sum()
    }

    /// Returns whether all members of a topic have heard what was answered there, once.
    fn is_whole(&self) -> bool {
        self.answered.iter().all(|(topic, answered)| self.heard[topic].iter().all(|heard| heard.len() >= answered.len()))
    }

    /// Tells how much was lost, and in how many topics the order differs.
    fn tell(&self) -> String {
        let misses = |topic: &usize, number: &u64| self.heard[topic].iter().any(|heard| !heard.contains(number));
        let lost = self.answered.iter().flat_map(|(topic, all)| all.iter().filter(move |number| misses(topic, number))).count();
        let apart = self.heard.values().filter(|members| members.iter().any(|heard| *heard != members[0])).count();
        let (answered, topics) = (self.answered(), self.heard.len());
        format!(
            "{lost} of {answered} messages answered were not heard by all, another order in {apart} of {topics} topics, {} ready, {} clients lost",
            self.ready.len(),
            self.lost
        )
    }
}

/// The meeting place of the builds.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Function that starts the pools of a build: the port under TLS is the second.
type Pools = fn(&Upgrade, Broker, &Server, &[Address; 2]) -> Result<Vec<Pool>, Error>;

fn two_pools(upgrade: &Upgrade, broker: Broker, tls: &Server, at: &[Address; 2]) -> Result<Vec<Pool>, Error> {
    let plain = Config::accept(broker.clone()).loops(2).listen(&at[0]);
    let secret = Config::accept(Behaviour::from(broker).layered(tls.clone())).loops(2).listen(&at[1]);
    Ok(vec![upgrade.start("plain", plain)?, upgrade.start("secret", secret)?])
}

fn one_pool(upgrade: &Upgrade, broker: Broker, tls: &Server, at: &[Address; 2]) -> Result<Vec<Pool>, Error> {
    let config = Config::accept(broker).loops(2).listen(&at[0]).listening(Listening::new(&at[1]).layered(tls.clone()));
    Ok(vec![upgrade.start("broker", config)?])
}

/// Starts a build that takes over. Where a busy machine has a loop late, the build before goes on, and this one begins again.
fn serve(place: &Path, build: u64, tls: &Server, at: &[Address; 2], pools: Pools) -> Vec<Pool> {
    let until = Instant::now() + PATIENCE;
    loop {
        let serve = || {
            let upgrade = Upgrade::at(place).replaces("any").stand_by(Duration::ZERO).begin()?;
            let pools = pools(&upgrade, Broker { topics: Groups::default(), build }, tls, at)?;
            upgrade.ready().map(|()| pools)
        };
        match serve() {
            Ok(pools) => return pools,
            Err(refused) if refused.to_string().contains("a loop of it hangs") && Instant::now() < until => {}
            Err(refused) => panic!("{refused}"),
        }
    }
}

fn server() -> Server {
    let key = KeyPair::generate().expect("a key");
    let chain = CertificateParams::new(["localhost".to_owned()]).expect("a name").self_signed(&key).expect("a certificate");
    let identity = Identity::from_pem(chain.pem().as_bytes(), key.serialize_pem().as_bytes()).expect("they go together");
    Server::new([identity]).build().expect("a server")
}

/// Publishes by each member in turn, at this rate, until that is over; returns how many messages it was.
fn publish(ready: &[(usize, Handle)], rate: u32, over: &AtomicBool) -> usize {
    let (began, mut published) = (Instant::now(), 0_usize);
    while !over.load(SeqCst) {
        let due = began + Duration::from_secs(1) * published as u32 / rate;
        // waits because: a message is due at a time.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (topic, handle) = &ready[published % ready.len()];
        handle.notify(format!("PUB {topic} {published}\n").into_bytes()).expect("its loop has room");
        published += 1;
    }
    published
}

fn delivers_all(name: &str, pools: Pools) {
    let (topics, upgrades, rate) = if std::env::var_os("SOCKDRAWER_LONG").is_some() { (200, 20, 500) } else { (8, 6, 400) };
    sockdrawer::raise_descriptor_limit().expect("the limit rises");
    let place = Place(std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id())));
    let any = || "127.0.0.1:0".parse().expect("an address");
    let tls = server();
    let mut running = serve(&place.0, 1, &tls, &[any(), any()], pools);
    let at: Vec<Address> = running.iter().flat_map(|pool| pool.addresses()).collect();
    let at: [Address; 2] = at.try_into().expect("two ports");
    let (members, half) = (Arc::new(Members::default()), topics * MEMBERS / 2);
    let trusting = Client::new(Trust::Anybody).name("localhost").build().expect("a client");
    let clients: Vec<Pool> = (0..2)
        .map(|port| {
            let clients = Behaviour::from(Clients { members: members.clone(), port });
            let clients = if port == 1 { clients.layered(trusting.clone()) } else { clients };
            let connecting = Connecting::to([&at[port]]).keep(half).total(half as u64);
            Pool::start(Config::connect(clients, connecting).loops(1)).expect("it starts")
        })
        .collect();
    members.wait("members to subscribe", |books| books.ready.len() == 2 * half);
    let ready = std::mem::take(&mut members.0.lock().expect("no panic").ready);
    let over = AtomicBool::new(false);
    let published = std::thread::scope(|scope| {
        let publishes = scope.spawn(|| publish(&ready, rate, &over));
        for upgrade in 0..upgrades {
            let before = members.0.lock().expect("no panic").answered();
            members.wait("messages between two upgrades", |books| books.answered() >= before + rate as usize / 10);
            let next = serve(&place.0, 1 + (upgrade + 1) % 2, &tls, &at, pools);
            running.iter().for_each(|pool| pool.join().expect("all of it moved"));
            running = next;
        }
        over.store(true, SeqCst);
        publishes.join().expect("no panic")
    });
    members.wait("answers", |books| books.answered() == published);
    members.wait("messages to be heard", Books::is_whole);
    let books = members.0.lock().expect("no panic");
    println!("{} members, {published} messages through {upgrades} upgrades: {}", 2 * half, books.tell());
    for (topic, heard) in &books.heard {
        let answered = books.answered.get(topic).into_iter().flatten().copied().collect::<Vec<_>>();
        let mut first = heard[0].clone();
        assert!(heard.iter().all(|other| *other == heard[0]), "one order in topic {topic}: {}", books.tell());
        first.sort_unstable();
        assert_eq!(first, answered, "each message once in topic {topic}: {}", books.tell());
    }
    assert_eq!(books.lost, 0, "{}", books.tell());
    drop(books);
    clients.iter().chain(&running).for_each(|pool| _ = pool.shutdown(Drain::within(Duration::ZERO)));
}

#[test]
fn what_members_at_two_ports_of_a_pool_are_answered_is_delivered_through_upgrades() {
    delivers_all("one-pool", one_pool);
}

#[test]
fn what_members_in_two_pools_are_answered_is_delivered_through_upgrades() {
    delivers_all("two-pools", two_pools);
}
