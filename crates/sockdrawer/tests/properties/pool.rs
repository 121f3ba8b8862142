//! The pool under test and its clients. Each step is done, and what is seen of it is compared with the reference.

use crate::client::{Client, Outcome};
use crate::common::{PATIENCE, read_all};
use crate::policies::{By, CLOSED};
use crate::reference::{Intake, PLACES, Place, Reference, Step, Whom};
use crate::seeds;
use crate::service::{Origin, answer, behaviour, forget, handle};
use sockdrawer::{
    Address, Config, Drain, Endpoint, Error, Model, Pool, Selector, Upgrade,
    admission::Reject,
    listening::Listening,
    observe::{Readiness, Status},
    restarting::Restarts,
};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The name by which pools know each other.
const POOL: &str = "tested";

pub(crate) struct Tested {
    pub(super) pool: Option<Pool>,
    /// Address at which each place listens, or listened last.
    addresses: [Option<SocketAddr>; PLACES],
    /// Clients that are served, by their names in the reference.
    pub(super) clients: BTreeMap<u64, Client>,
    pub(super) waiting: Vec<Client>,
    /// Keys of the handles of connections that are gone.
    pub(super) gone: Vec<u64>,
    notes: u64,
    /// Number of other connections of its peer that the newest connection found, where the policy is one of this program.
    of_peer: Arc<AtomicUsize>,
    pub(super) before: Reference,
}

/// Returns the asked address of a place; each has an address of its own, so that ports need not differ.
fn asked(lane: u8, place: usize) -> Address {
    Address::Tcp((asked_ip(lane, place), 0).into())
}

fn asked_ip(lane: u8, place: usize) -> Ipv4Addr {
    seeds::address(lane, 1 + place as u8)
}

fn config(reference: &Reference) -> Config {
    let restarts = Restarts { max: 1_000, within: Duration::from_secs(3600), ..Restarts::default() };
    let mut config = Config::accept(behaviour(reference.version)).model(reference.model).capacity(0).restarts(restarts);
    config.limit = reference.limit;
    config = config.on_full(reference.policy.on_full());
    config.settings.max_unsent = None;
    if reference.model != Model::Threads {
        config = config.workers(1);
    }
    set_loops(&mut config, reference.loops);
    reference.places.iter().fold(config, |config, place| config.listen(asked(reference.lane, place.number)))
}

fn set_loops(config: &mut Config, loops: usize) {
    match config.model {
        Model::Prefork => config.processes = loops,
        _ => config.loops = loops,
    }
}

fn listeners(config: &mut Config) -> &mut Vec<Listening> {
    match &mut config.endpoint {
        Endpoint::Accept { listeners, .. } => listeners,
        _ => unreachable!("these pools accept"),
    }
}

fn listening(config: &mut Config, lane: u8, place: Place) -> &mut Listening {
    let address = asked(lane, place.number);
    listeners(config).iter_mut().find(|listening| listening.address == address).expect("it listens")
}

fn readiness(intake: Intake) -> Readiness {
    match intake {
        Intake::Open => Readiness::Serving,
        Intake::Suspended => Readiness::Suspended,
        Intake::Refusing => Readiness::Refusing,
    }
}

/// Returns true where the pool says of its addresses what the reference says of them.
fn same_places(status: &Status, reference: &Reference) -> bool {
    let mut places = reference.places.iter();
    status.listeners.len() == reference.places.len()
        && places.all(|place| {
            let asked = asked_ip(reference.lane, place.number);
            status.listeners.iter().any(|one| {
                matches!(&one.address, Address::Tcp(address) if address.ip() == asked)
                    && reference.may_count(place).contains(&one.connections)
                    && one.limit == place.limit
                    && one.readiness == readiness(place.intake)
            })
        })
}

impl Tested {
    pub(crate) fn start(reference: &Reference) -> Tested {
        let mut tested = Tested {
            pool: None,
            addresses: [None; PLACES],
            clients: BTreeMap::new(),
            waiting: Vec::new(),
            gone: Vec::new(),
            notes: 0,
            of_peer: Arc::default(),
            before: reference.clone(),
        };
        tested.begin(reference);
        tested
    }

    fn begin(&mut self, reference: &Reference) {
        let upgrade = self.place().begin().expect("it begins");
        self.pool = Some(upgrade.start(POOL, config(reference)).expect("the pool starts"));
        upgrade.ready().expect("the pool before it has ended");
        self.learn_addresses();
    }

    /// Returns where the pools of a lane meet, one after the other.
    fn place(&self) -> Upgrade {
        Upgrade::at(self.path()).replaces("any").stand_by(Duration::ZERO)
    }

    fn path(&self) -> PathBuf {
        std::env::temp_dir().join(format!("sockdrawer-properties-{}-{}", std::process::id(), self.before.lane))
    }

    /// Lets another pool take over all that there is; no client notices.
    fn upgrade(&mut self) {
        let (old, before) = (self.pool().clone(), self.addresses);
        let upgrade = self.place().begin().expect("it begins");
        let new = upgrade.start(POOL, old.config()).expect("it starts");
        upgrade.ready().expect("it takes over");
        self.pool = Some(new);
        let over = old.wait(PATIENCE, |status| matches!(status.readiness, Readiness::Stopped(_)));
        assert!(over, "nothing is left there: {:#?}", old.status());
        // The last counts of the pool before come a moment after its end.
        let has_counts = |status: &Status| status.counts.moved_out == status.counts.moved_in;
        assert!(self.pool().wait(PATIENCE, has_counts), "{:#?}", self.pool().status());
        self.learn_addresses();
        assert_eq!(self.addresses, before);
    }

    fn give_up_upgrade(&self) {
        let upgrade = self.place().begin().expect("it begins");
        drop(upgrade.start(POOL, self.pool().config()).expect("it starts"));
    }

    pub(super) fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("it runs")
    }

    /// Ports are known when they are bound.
    fn learn_addresses(&mut self) {
        for address in self.pool().addresses() {
            let Address::Tcp(address) = address else { unreachable!("these pools listen on TCP") };
            let IpAddr::V4(ip) = address.ip() else { unreachable!("... of version 4") };
            self.addresses[usize::from(ip.octets()[3]) - 1] = Some(address);
        }
    }

    pub(crate) fn apply(&mut self, after: &Reference, step: Step) {
        match step {
            Step::Start => self.begin(after),
            Step::Stop => self.stop(),
            Step::Connect(number) => self.connect(number, after),
            Step::ConnectNowhere => self.connect_nowhere(),
            Step::Close(number) => self.take(number).end(),
            Step::CloseWaiting => drop(self.waiting.pop().expect("one waits")),
            Step::Check(number) => self.check(number),
            Step::Half(number) => self.client(number).0.half(),
            Step::Flood(number) => self.flood(number, after),
            Step::Kill(number) => self.kill(number),
            Step::Notify(whom) => self.notify(whom),
            Step::Speak(number) => self.speak(number),
            Step::SpeakToGone => self.speak_to_gone(),
            Step::Adopt(whom) => self.adopt(whom),
            Step::Purge(whom) => self.purge(whom),
            Step::Drain(whom) => self.drain(whom),
            Step::Crash(number) => self.crash(number, after),
            Step::Intake(Intake::Open) => self.pool().resume(),
            Step::Intake(Intake::Suspended) => self.pool().suspend(),
            Step::Intake(Intake::Refusing) => self.pool().refuse(Reject::Bytes(CLOSED.into())),
            Step::IntakeAt(number, intake) => self.intake_at(number, intake),
            Step::Refused => self.refused(),
            Step::Upgrade => self.upgrade(),
            Step::GivenUpUpgrade => self.give_up_upgrade(),
            _ => self.reconfigure(step, after),
        }
        self.welcome(after);
        let others = self.before.served.len();
        if matches!((step, after.by), (Step::Connect(_), By::Own)) && after.served.len() == others + 1 {
            assert_eq!(self.of_peer.load(SeqCst), others, "others of the same peer");
        }
        self.before = after.clone();
    }

    /// Returns the client of the n-th served connection before this step, and what the reference knows of it.
    fn client(&mut self, number: usize) -> (&mut Client, crate::reference::Served) {
        let served = self.before.served[self.before.nth(number)].clone();
        (self.clients.get_mut(&served.name).expect("it is served"), served)
    }

    /// Takes the client of a connection that is served no more.
    fn take(&mut self, number: usize) -> Client {
        let name = self.before.served[self.before.nth(number)].name;
        self.take_named(name)
    }

    pub(super) fn take_named(&mut self, name: u64) -> Client {
        let client = self.clients.remove(&name).expect("it is served");
        self.gone.push(client.key);
        client
    }

    /// Connects a client, which waits in the kernel, as far as it knows.
    fn connect(&mut self, number: usize, after: &Reference) {
        let address = self.addresses[self.before.place(number).number].expect("it listens");
        let mut client = Client::connect(self.before.lane, address);
        if after.turned_away > 0 {
            // It says nothing, so that nothing of it is unread.
            return assert_eq!(client.rest(), after.farewell, "a farewell, in order");
        }
        client.hello();
        self.waiting.push(client);
    }

    fn connect_nowhere(&self) {
        let listens = |place: &usize| self.before.running && self.before.places.iter().any(|one| one.number == *place);
        for place in (0..PLACES).filter(|place| !listens(place)) {
            if let Some(address) = self.addresses[place] {
                // A helper that another lane starts has copies of all sockets until its exec, and then the connection is reset.
                let end = TcpStream::connect(address).and_then(|mut client| {
                    client.set_read_timeout(Some(PATIENCE))?;
                    read_all(&mut client)
                });
                let end = end.expect_err("nobody listens there").kind();
                assert!(matches!(end, ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset), "nobody listens there: {end}");
            }
        }
    }

    fn check(&mut self, number: usize) {
        let (client, served) = self.client(number);
        client.read_flood(served.owed);
        client.add(1, served.half);
        assert_eq!(client.answer(), answer(b'a', served.origin, served.sum + 1));
    }

    fn flood(&mut self, number: usize, after: &Reference) {
        let owed = after.served[after.nth(number)].owed;
        let (client, served) = self.client(number);
        client.request(b'w', owed as u64);
        assert_eq!(client.answer(), answer(b'w', served.origin, owed as u64));
    }

    pub(super) fn selector(&self, whom: Whom) -> Selector {
        match whom {
            Whom::All => Selector::All,
            Whom::Old => Selector::Before(self.before.generation),
            Whom::New => Selector::Generation(self.before.generation),
            Whom::One(number) => {
                let name = self.before.served[self.before.nth(number)].name;
                let local = self.clients[&name].local();
                let all = self.pool().connections(&Selector::All);
                Selector::Id(all.iter().find(|one| one.peer == Some(local)).expect("it is listed").id)
            }
        }
    }

    fn kill(&mut self, number: usize) {
        let selector = self.selector(Whom::One(number));
        assert_eq!(self.pool().kill(&selector).cut, 1);
        self.take(number).assert_reset();
    }

    fn notify(&mut self, whom: Whom) {
        self.notes += 1;
        let note = answer(b'n', Origin::default(), self.notes);
        self.pool().notify(&self.selector(whom), note).expect("few notes");
        let meant = self.before.meant(whom);
        for place in meant {
            self.hear(place, &note);
        }
    }

    /// Reads the note of a connection, which comes after what the client was sent before.
    fn hear(&mut self, place: usize, note: &[u8]) {
        let (client, served) = self.client(place);
        client.read_flood(served.owed);
        assert_eq!(client.answer(), note);
    }

    fn speak(&mut self, number: usize) {
        self.notes += 1;
        let note = answer(b's', Origin::default(), self.notes);
        let key = self.client(number).0.key;
        handle(key).expect("it said hello").notify(Arc::<[u8]>::from(note)).expect("few notes");
        self.hear(number, &note);
    }

    /// Sends notes that nobody hears: see what each client reads next.
    fn speak_to_gone(&self) {
        for key in &self.gone {
            let gone = handle(*key).expect("it said hello");
            gone.notify(Arc::<[u8]>::from(answer(b'g', Origin::default(), *key))).expect("few notes");
        }
    }

    fn adopt(&self, whom: Whom) {
        let old = |place: &usize| self.before.served[*place].origin.generation < self.before.generation;
        let moved = self.before.meant(whom).iter().filter(|place| old(place)).count();
        let adopted = self.pool().adopt(&self.selector(whom));
        assert_eq!((adopted.moved, adopted.stayed), (moved, 0));
    }

    fn refused(&self) {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let in_use = Address::Tcp(taken.local_addr().expect("bound"));
        let wanted = self.pool().config().behaviour(behaviour(self.before.version + 1)).listen(in_use);
        let refused = self.pool().reconfigure(wanted);
        assert!(matches!(refused, Err(Error::AddressInUse(_))), "{refused:?}");
    }

    fn intake_at(&self, number: usize, intake: Intake) {
        let address = Address::Tcp(self.addresses[self.before.place(number).number].expect("it listens"));
        let done = match intake {
            Intake::Open => self.pool().resume_listener(&address),
            Intake::Suspended => self.pool().suspend_listener(&address),
            Intake::Refusing => self.pool().refuse_listener(&address, Reject::Bytes(CLOSED.into())),
        };
        done.expect("it listens there");
    }

    fn reconfigure(&mut self, step: Step, after: &Reference) {
        let before = self.addresses;
        let began = Instant::now();
        let applied = loop {
            let applied = self.pool().update(|wanted| self.changed(wanted, step, after));
            // A predecessor that has ended stands by for a moment more, as far as this pool knows.
            let stands_by = applied.as_ref().is_err_and(|error| error.to_string().contains("stands by"));
            if !stands_by || began.elapsed() > PATIENCE {
                break applied;
            }
        };
        match step {
            Step::Loops(loops) if !after.has_loops(loops) => {
                assert!(matches!(applied, Err(Error::Invalid { .. } | Error::NotInModel { .. })), "{applied:?}");
            }
            Step::LimitAt(_, Some(0)) => assert!(matches!(applied, Err(Error::Invalid { .. })), "{applied:?}"),
            Step::Admission(_, by) if !after.has_policy(by) => {
                assert!(matches!(applied, Err(Error::NotInModel { .. })), "{applied:?}");
            }
            _ => assert_eq!(applied.expect("it can be changed").generation, after.generation),
        }
        self.learn_addresses();
        for place in self.before.places.iter().filter(|place| after.places.iter().any(|other| other.name == place.name)) {
            assert_eq!(self.addresses[place.number], before[place.number], "an address stays what it is");
        }
    }

    fn changed(&self, mut wanted: Config, step: Step, after: &Reference) -> Config {
        let newest = || asked(after.lane, after.places.last().expect("it came last").number);
        match step {
            Step::Protocol => wanted.behaviour = behaviour(after.version),
            Step::Settings => wanted.settings.max_partial += 1,
            Step::Loops(loops) => set_loops(&mut wanted, loops),
            Step::Admission(policy, by) => wanted = by.admit(wanted, policy.on_full(), &self.of_peer),
            Step::Limit(limit) => wanted.limit = limit,
            Step::LimitAt(number, limit) => listening(&mut wanted, after.lane, self.before.place(number)).limit = limit,
            Step::Listen => wanted = wanted.listen(newest()),
            Step::Unlisten(number) => self.without(&mut wanted, number),
            Step::Replace(number) => {
                wanted = wanted.listen(newest());
                self.without(&mut wanted, number);
            }
            Step::Renew(number) => {
                let options = &mut listening(&mut wanted, after.lane, self.before.place(number)).options;
                options.freebind = !options.freebind;
            }
            other => unreachable!("{other:?} is no change"),
        }
        wanted
    }

    fn without(&self, config: &mut Config, number: usize) {
        let gone = asked(self.before.lane, self.before.place(number).number);
        listeners(config).retain(|listening| listening.address != gone);
    }

    /// Looks at the clients that waited and are served now, or are turned away: the kernel decides which, but their number is
    /// certain.
    fn welcome(&mut self, after: &Reference) {
        let mut newcomers: Vec<_> = after.served.iter().filter(|one| !self.clients.contains_key(&one.name)).collect();
        // A client that was turned away as soon as it came has been seen.
        let left = if after.running { after.waiting } else { 0 };
        while self.waiting.len() > left {
            let ready = Client::ready(&self.waiting);
            let mut client = self.waiting.swap_remove(ready);
            match client.outcome() {
                Outcome::Answered(bytes) => {
                    let one = newcomers.pop().expect("as many are served as there are permits");
                    assert_eq!(bytes, answer(b'h', one.origin, client.key));
                    self.clients.insert(one.name, client);
                }
                Outcome::Ended(bytes) => {
                    assert!(after.turned_away > 0, "nobody who waits is turned away");
                    assert_eq!(bytes, after.farewell);
                }
            }
        }
        assert!(newcomers.is_empty(), "as many are served as there are permits");
    }

    pub(super) fn wait(&self, what: &str, condition: impl Fn(&Status) -> bool) {
        assert!(self.pool().wait(PATIENCE, condition), "{what}: {:#?}", self.pool().status());
    }

    /// Asserts that the pool says of itself what the reference says of it.
    pub(crate) fn compare(&self, reference: &Reference) {
        if !reference.running {
            return;
        }
        let generations = reference.generations();
        let active = |status: &Status| match reference.model {
            Model::Prefork => status.processes.iter().filter(|one| one.active).count(),
            _ => status.loops.iter().filter(|one| one.active).count(),
        };
        let (fewest, most) = (reference.waiting, reference.waiting + reference.ghosts);
        if !reference.orphaned {
            // A client that waited there and is gone by now is seen for a moment.
            self.wait("nothing waits in retiring sockets", |status| status.retiring == 0);
        }
        self.wait(&format!("{reference:#?}"), |status| {
            let queued: usize = status.listeners.iter().map(|one| one.queued).sum();
            status.connections == reference.served.len()
                && status.generations.iter().map(|one| (one.id, one.connections)).eq(generations.iter().copied())
                && status.generation == reference.generation
                && status.readiness == readiness(reference.intake)
                && reference.limit.is_none_or(|limit| status.limit == limit)
                && active(status) == reference.loops
                && status.restarts == reference.restarts
                && status.counts.admission_panics == 0
                && (reference.orphaned || queued >= fewest && queued <= most)
                && same_places(status, reference)
        });
        let mut listed: Vec<_> =
            self.pool().connections(&Selector::All).iter().map(|one| (one.peer.expect("TCP"), one.generation)).collect();
        let mut known: Vec<_> =
            reference.served.iter().map(|one| (self.clients[&one.name].local(), one.origin.generation)).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    /// Checks that all clients that must answer do.
    pub(crate) fn finish(mut self, reference: &Reference) {
        for number in 0..reference.served.len() {
            self.check(number);
        }
        let keys = self.clients.values().chain(&self.waiting).map(|client| client.key).chain(self.gone.iter().copied());
        keys.for_each(forget);
    }
}

impl Drop for Tested {
    /// Ends the pool at once: that of the next case has other connections.
    fn drop(&mut self) {
        self.pool.iter().for_each(|pool| _ = pool.shutdown(Drain::within(Duration::ZERO)));
        let _ = std::fs::remove_file(self.path());
    }
}
