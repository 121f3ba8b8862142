//! Two processes upgrade, and one of them is killed, or stopped for a while, at each packet between them in turn. What is lost is
//! exactly what it had.

use super::joins::{Joins, joins};
use super::place::{Place, config};
use super::proxy::{GO, OFFER, PREPARED, Packet, Pids, Proxy, SETTLED, Side, WELCOME, YOURS};
use super::sums::{add, build, try_add};
use crate::common::{
    PATIENCE, Stops, address, any_port, connect, hear, is_long, kill, play, reset, role, say, start, tcp, try_connect_from,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use sockdrawer::{Address, Config, Model, Selector, Upgrade};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Two slices of each of two loops, nearly.
const CONNECTIONS: usize = 70;
/// Relays with as many.
const RELAYS: usize = CONNECTIONS / 2;
/// Held by what starts process after process, and by what measures times beside that: one of them at a time.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());
/// Number of packets that is more than an upgrade of so many connections takes.
const PACKETS: usize = 30;
/// Longer than the predecessor waits for an answer.
const STOPPED: Duration = Duration::from_millis(1300);

#[derive(Clone, Copy, Debug)]
enum Act {
    Kill(Side),
    Stop(Side),
}

/// Act on a process at a packet, before the packet is passed on or after that.
#[derive(Clone, Copy, Debug)]
struct Case {
    act: Act,
    at: usize,
    after: bool,
    /// The connections move together.
    together: bool,
    /// Each client is relayed to a backend that lives on.
    relays: bool,
    model: Model,
}

/// Kills at each packet, in the test of this name.
pub(crate) fn kill_at_each_packet(name: &str, model: Model) {
    if let Some(role) = role() {
        return serve(&role);
    }
    // A test that failed has said so.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let sides = [Side::Predecessor, Side::Successor].map(Act::Kill);
    // `SOCKDRAWER_TIMES` says how often, for `ci/long upgrade kills`.
    let told = std::env::var("SOCKDRAWER_TIMES").ok().and_then(|times| times.parse().ok());
    each_packet(name, model, &sides, &[false, true], told.unwrap_or(if is_long() { 20 } else { 1 }));
}

/// Stops at each packet, in the test of this name.
pub(crate) fn stop_at_each_packet(name: &str, model: Model) {
    if let Some(role) = role() {
        return serve(&role);
    }
    let sides = [Side::Predecessor, Side::Successor].map(Act::Stop);
    each_packet(name, model, &sides, &[false], 1);
}

/// Tries all packets, several at once: most of the time is waiting.
fn each_packet(name: &str, model: Model, acts: &[Act], after: &[bool], times: usize) {
    let mut cases = Vec::new();
    for act in (0..times).flat_map(|_| acts) {
        for at in 1..PACKETS {
            let kinds: &[(bool, bool)] = match act {
                Act::Kill(_) => &[(false, false), (true, false), (false, true), (true, true)],
                // A stop takes its time.
                Act::Stop(_) => &[(true, false), (false, true)],
            };
            let of = |(together, relays)| after.iter().map(move |after| (*after, together, relays));
            let all = kinds.iter().copied().flat_map(of);
            cases.extend(all.map(|(after, together, relays)| Case { act: *act, at, after, together, relays, model }));
        }
    }
    let (cases, met) = (Mutex::new(cases.into_iter()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let (cases, met) = (&cases, &met);
            scope.spawn(move || {
                while let Some(case) = { cases.lock().expect("no case panicked").next() } {
                    met.fetch_add(usize::from(case.is_met(name, worker)), SeqCst);
                }
            });
        }
    });
    // Five packets to the commit, three for each slice, or two and one more, and the end.
    let least = if matches!(acts, [Act::Kill(_), ..]) { 2 * (15 + 13) } else { 15 + 13 };
    assert!(met.load(SeqCst) >= times * acts.len() * after.len() * least, "{met:?} cases");
}

/// Runs a build that serves until another has taken over.
fn serve(role: &str) {
    let [path, at, number, together, model, target] = role.split(' ').collect::<Vec<_>>().try_into().expect("six words");
    let (number, together) = (number.parse().expect("a number"), together == "true");
    let mut service = build(number);
    if together {
        service.state = service.state.together();
    }
    let upgrade = Upgrade::at(path).replaces("any").stand_by(Duration::from_millis(50)).begin().expect("it begins");
    let mut config = config(service);
    if let Ok(target) = target.parse() {
        config = Config::accept(Joins { together, ..joins(target) }).loops(2);
    }
    if model == "prefork" {
        config = config.model(Model::Prefork).processes(3).loops(1);
    }
    let pool = upgrade.start("sums", config.listen(Address::Tcp(at.parse().expect("an address")))).expect("it starts");
    upgrade.ready().expect("it takes over");
    say(&address(&pool).to_string());
    if number == 1 {
        hear().expect("a question");
        let ids: Vec<String> = pool.connections(&Selector::All).iter().map(|one| one.id.to_string()).collect();
        say(&ids.join(" "));
    }
    pool.join().expect("another takes over");
}

/// Kills a process. Its helpers end with it, and may answer until then.
pub(crate) fn kill_with_helpers(pid: u32) {
    let helpers = helpers(pid);
    kill(pid);
    for helper in helpers {
        poll(&mut [PollFd::from_borrowed_fd(helper.as_fd(), PollFlags::IN)], None).expect("poll");
    }
}

/// Returns the processes that a process has started.
fn helpers(of: u32) -> Vec<OwnedFd> {
    let threads = std::fs::read_dir(format!("/proc/{of}/task")).expect("it lives");
    let started = threads.flat_map(|thread| {
        let all = std::fs::read_to_string(thread.expect("a thread").path().join("children")).unwrap_or_default();
        all.split_whitespace().map(|pid| pid.parse().expect("a number")).collect::<Vec<i32>>()
    });
    let pidfd = |pid| pidfd_open(Pid::from_raw(pid).expect("a pid"), PidfdFlags::empty());
    started.filter_map(|pid| pidfd(pid).ok()).collect()
}

/// Counts and times of what clients saw that came meanwhile.
#[derive(Default)]
struct Visits {
    refused: AtomicUsize,
    /// Time since when another process has served, once one was killed.
    killed: Mutex<Option<Instant>>,
    served: Mutex<Option<Duration>>,
    over: AtomicBool,
}

impl Case {
    /// Runs the case and returns true where there was such a packet.
    fn is_met(self, name: &str, worker: usize) -> bool {
        let what = if matches!(self.act, Act::Kill(_)) { "kill" } else { "stop" };
        let (place, proxied) = (Place::new(&format!("{what}-{worker}")), Place::new(&format!("{what}-{worker}-proxy")));
        let (backend, target) = start(config(build(1)));
        let (clients, target) = if self.relays { (RELAYS, target.to_string()) } else { (CONNECTIONS, "none".to_owned()) };
        let role = |place: &Place, at: SocketAddr, number| {
            format!("{} {at} {number} {} {} {target}", place.0.display(), self.together, self.model)
        };
        let mut old = play(name, &role(&place, tcp(&any_port()), 1));
        let at: SocketAddr = old.hear().parse().expect("an address");
        let mut clients: Vec<TcpStream> = (0..clients).map(|_| connect(at)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(add(client, number as u32 + 100), (1, number as u32 + 100));
        }
        old.tell("which?");
        let ids: HashSet<u64> = old.hear().split(' ').map(|id| id.parse().expect("a number")).collect();
        let (visits, proxy) = (Visits::default(), Proxy::at(&proxied.0));
        let (packets, _new) = std::thread::scope(|scope| {
            scope.spawn(|| visits.go_on(at));
            // Also where this test fails: the visitor would go on for ever.
            let _stops = Stops(&visits.over);
            let new = play(name, &role(&proxied, at, 2));
            let packets = self.run(proxy, (&proxied.0, &place.0), &visits);
            (packets, new)
        });
        let met = packets.len() >= self.at;
        let stand = clients.iter_mut().enumerate().filter_map(|(number, client)| {
            let sum = try_add(client, 1)?.1;
            assert_eq!(sum, number as u32 + 101, "{self:?}");
            Some(())
        });
        let stand = stand.count();
        let costs = if met { self.costs(&ids, &packets) } else { 0 };
        assert_eq!(ids.len() - costs, if self.relays { 2 * stand } else { stand }, "{self:?}: {packets:?}");
        if self.relays {
            // Neither side is left without the other: the backend has what clients have.
            assert!(backend.wait(PATIENCE, |status| status.connections == stand), "{self:?}: {:?}", backend.status());
        }
        if met && !self.ends_the_listener(&packets) {
            assert_eq!(visits.refused.load(SeqCst), 0, "{self:?}: refused");
            let build = add(&mut connect(at), 1).0;
            assert_eq!(build, if self.relays { 1 } else { self.survivor(&packets) }, "{self:?}: {packets:?}");
            let served = *visits.served.lock().expect("no panic");
            assert!(served.is_none_or(|served| served < Duration::from_secs(5)), "{self:?}: {served:?}");
        }
        met
    }

    fn run(self, proxy: Proxy, (path, to): (&Path, &Path), visits: &Visits) -> Vec<Packet> {
        proxy.pass_on(path, to, |packet, after, pids| {
            if (packet, after) == (self.at, self.after) {
                self.act(pids, visits);
            }
        })
    }

    fn act(self, pids: &Pids, visits: &Visits) {
        let pid = |side| if side == Side::Predecessor { pids.predecessor } else { pids.successor };
        match self.act {
            Act::Kill(side) => {
                kill_with_helpers(pid(side));
                *visits.killed.lock().expect("no panic") = Some(Instant::now());
            }
            Act::Stop(side) => {
                let pid = Pid::from_raw(pid(side).cast_signed()).expect("a pid");
                kill_process(pid, Signal::STOP).expect("it lives");
                // waits because: a stopped process tells nothing.
                std::thread::sleep(STOPPED);
                kill_process(pid, Signal::CONT).expect("it lives");
            }
        }
    }

    /// Returns how many of the connections from before are lost.
    fn costs(self, before: &HashSet<u64>, packets: &[Packet]) -> usize {
        let all = |kind| packets.iter().filter(|one| one.kind == kind).flat_map(|one| &one.ids).collect::<HashSet<_>>();
        match self.act {
            Act::Stop(_) => 0,
            // Connections are lost that the successor was told were its own.
            Act::Kill(Side::Successor) => all(YOURS).into_iter().filter(|id| before.contains(id)).count(),
            // All but those that it had let go of, or offered last: a machine that is too slow for an offer has it taken back.
            Act::Kill(Side::Predecessor) => {
                let last = packets.iter().rposition(|one| one.kind == YOURS).map_or(0, |at| at + 1);
                let offered = packets[last..].iter().filter(|one| one.kind == OFFER).flat_map(|one| &one.ids);
                before.len() - all(YOURS).into_iter().chain(offered).filter(|id| before.contains(id)).count()
            }
        }
    }

    fn survivor(self, packets: &[Packet]) -> u8 {
        let went = packets.iter().any(|one| one.kind == GO);
        match self.act {
            Act::Kill(Side::Successor) => 1,
            Act::Kill(Side::Predecessor) => 2,
            Act::Stop(_) => 1 + u8::from(went),
        }
    }

    /// Nobody listens where the process is killed that took over for good, nor, for a moment, where one is that passed no sockets on.
    fn ends_the_listener(self, packets: &[Packet]) -> bool {
        let has = |kind| packets.iter().any(|one| one.kind == kind);
        match self.act {
            Act::Kill(Side::Successor) => has(SETTLED),
            Act::Kill(Side::Predecessor) => !has(WELCOME) || !has(PREPARED),
            Act::Stop(_) => false,
        }
    }
}

impl Visits {
    /// Connects one client after the other, until the case is over.
    fn go_on(&self, at: SocketAddr) {
        while !self.over.load(SeqCst) {
            let killed = *self.killed.lock().expect("no panic");
            // Not from the listener's own address: where it is gone, a client may meet itself there.
            match try_connect_from(Ipv4Addr::new(127, 0, 0, 3), at) {
                Ok(mut client) => {
                    if try_add(&mut client, 2).is_some()
                        && let Some(killed) = killed
                    {
                        self.served.lock().expect("no panic").get_or_insert(killed.elapsed());
                    }
                    // Leaves no port behind that is in use for a minute.
                    reset(client);
                }
                Err(_) => _ = self.refused.fetch_add(1, SeqCst),
            }
            // waits because: visitors without a pause would take the only core of a small machine.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
