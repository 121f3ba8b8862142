//! The limit over a chain of builds, while more clients than it admits come, exchange and go all the time.

use super::common::{PATIENCE, Random, address, any_port, is_long, percentile};
use super::kills::ALONE;
use super::place::Place;
use sockdrawer::{
    Address, CannotRestore, CannotSave, Closed, Config, Context, Input, Peer, Pool, Protocol, Saved, Saver, Service, State, Step,
    connecting::Connecting,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LIMIT: usize = 500;
const CLIENTS: usize = 600;
/// Minimum number of connections that come between two upgrades.
const COME: u64 = 200;
/// Number of clients among which there is one that cannot move.
const STAYS: u64 = 20;

/// Counts of the services of all builds, which are in one process: a connection that moves is counted once.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    open: usize,
    most: usize,
    /// Times at which places were freed that are free still, and how long others were.
    freed: VecDeque<Instant>,
    used: Vec<Duration>,
}

impl Places {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().expect("no panic")
    }
}

impl Service for Places {
    type Protocol = Guest;
    fn open(&self, _peer: &Peer) -> Guest {
        let mut counted = self.counted();
        counted.open += 1;
        counted.most = counted.most.max(counted.open);
        if let Some(since) = counted.freed.pop_front() {
            counted.used.push(since.elapsed());
        }
        drop(counted);
        Guest { places: self.clone(), stays: false }
    }
    fn state(&self) -> State {
        State::of("guest", 1)
    }
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Guest, CannotRestore> {
        Ok(Guest { places: self.clone(), stays: false })
    }
}

/// Protocol that sends back what it gets; after an `s` it cannot move.
struct Guest {
    places: Places,
    stays: bool,
}

impl Protocol for Guest {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.stays |= input.bytes().contains(&b's');
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        if self.stays { Err(CannotSave::because("it is to stay")) } else { Ok(()) }
    }
    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        if why != Closed::Adopted {
            let mut counted = self.places.counted();
            counted.open -= 1;
            counted.freed.push_back(Instant::now());
        }
    }
}

/// The clients. Each exchanges, stays for a moment, exchanges once more, and goes by a reset, which leaves no port behind.
#[derive(Default)]
struct Visitors {
    came: AtomicU64,
    /// No visitor goes before all places were taken: on a busy machine they might go faster than they come.
    may_go: Arc<AtomicBool>,
    lost: Arc<AtomicUsize>,
}

struct Visitor {
    number: u64,
    stayed: bool,
    may_go: Arc<AtomicBool>,
    lost: Arc<AtomicUsize>,
}

impl Service for Visitors {
    type Protocol = Visitor;
    fn open(&self, _peer: &Peer) -> Visitor {
        let number = self.came.fetch_add(1, SeqCst);
        Visitor { number, stayed: false, may_go: self.may_go.clone(), lost: self.lost.clone() }
    }
}

impl Visitor {
    fn ask(&self, cx: &mut Context<'_>) -> Step {
        cx.send(if self.number.is_multiple_of(STAYS) { b"s" } else { b"m" });
        Step::Continue
    }

    fn stay(&self, cx: &mut Context<'_>) -> Step {
        cx.set_timer(Duration::from_millis(50 + Random(self.number + 1).below(250)));
        Step::Continue
    }
}

impl Protocol for Visitor {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.ask(cx)
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        if self.stayed {
            return Step::Abort;
        }
        self.stay(cx)
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        if !self.may_go.load(SeqCst) {
            return self.stay(cx);
        }
        self.stayed = true;
        self.ask(cx)
    }
    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        self.lost.fetch_add(usize::from(why != Closed::Aborted), SeqCst);
    }
}

/// The builds that have connections, newest last.
struct Chain<'a> {
    place: &'a Place,
    places: &'a Places,
    pools: Mutex<Vec<Pool>>,
}

impl Chain<'_> {
    fn newest(&self) -> Pool {
        self.pools.lock().expect("no panic").last().expect("one").clone()
    }

    fn config(&self, at: Address) -> Config {
        Config::accept(self.places.clone()).loops(2).limit(LIMIT).listen(at)
    }

    fn upgrade(&self) {
        let (before, mut begun) = (self.newest(), None);
        // It is refused while four builds have connections.
        let begins = before.wait(PATIENCE, |_| {
            begun = self.place.upgrade().begin().ok();
            begun.is_some()
        });
        assert!(begins, "{:#?}", before.status());
        let upgrade = begun.expect("it begins");
        let next = upgrade.start("guests", self.config(before.addresses()[0].clone())).expect("it starts");
        upgrade.ready().expect("it takes over");
        self.pools.lock().expect("no panic").push(next.clone());
        let accepted = next.status().counts.accepted;
        let come = next.wait(PATIENCE, |status| status.counts.accepted >= accepted + COME);
        assert!(come, "at most {} were open; {:#?}", self.places.counted().most, next.status());
    }

    /// Returns the maximum of what the newest build says of all connections, until it is over.
    fn look(&self, is_over: impl Fn() -> bool) -> usize {
        let mut most = 0;
        while !is_over() {
            most = most.max(self.newest().status().connections);
            // waits because: looks without a pause would take the only core of a small machine.
            std::thread::sleep(Duration::from_micros(500));
        }
        most
    }
}

#[test]
fn the_limit_holds_at_each_instant_and_freed_places_are_used() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (place, places, visitors) = (Place::new("limit-chain"), Places::default(), Visitors::default());
    let (lost, may_go) = (visitors.lost.clone(), visitors.may_go.clone());
    let chain = Chain { place: &place, places: &places, pools: Mutex::default() };
    let upgrade = place.upgrade().begin().expect("it begins");
    let first = upgrade.start("guests", chain.config(any_port())).expect("it starts");
    upgrade.ready().expect("it serves");
    let connecting = Connecting::to([address(&first)]).keep(CLIENTS);
    chain.pools.lock().expect("no panic").push(first.clone());
    let clients = Pool::start(Config::connect(visitors, connecting).loops(1)).expect("they start");
    assert!(first.wait(PATIENCE, |status| status.connections == LIMIT), "{:#?}", first.status());
    may_go.store(true, SeqCst);
    places.counted().used.clear();
    let upgrades = if is_long() { 200 } else { 20 };
    let seen = std::thread::scope(|scope| {
        let all = scope.spawn(|| (0..upgrades).for_each(|_| chain.upgrade()));
        chain.look(|| all.is_finished())
    });
    let counts = (chain.newest().status().counts, clients.status().counts);
    let mut counted = places.counted();
    let (most, places) = (counted.most, counted.used.len());
    let [median, p99, longest] = [0.5, 0.99, 1.0].map(|share| percentile(&mut counted.used, share));
    println!("{upgrades} upgrades: at most {most} of {LIMIT}, {seen} as told; moved {}", counts.0.moved_in);
    println!("{places} freed places were used after {median:?}, p99 {p99:?}, max {longest:?}");
    assert!(most == LIMIT && seen <= LIMIT, "{most}, {seen}");
    assert_eq!((lost.load(SeqCst), counts.1.connect_failed, counts.0.rejected), (0, 0, 0));
    // Beside other tests the slowest of a hundred say how busy the machine is.
    let (took, within) = if is_long() { (p99, 20) } else { (median, 200) };
    assert!(took <= Duration::from_millis(within), "{took:?}");
}
