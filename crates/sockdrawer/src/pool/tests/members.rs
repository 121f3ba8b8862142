//! The control plane over members that are none: whatever is refused, and whenever, a change is whole or has not been, and no socket
//! is ever without a member that accepts from it.

use super::Echo;
use crate::config::{Config, Listening, Part};
use crate::error::Error;
use crate::event_loop::notifier::Notifier;
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::Limiter;
use crate::listen::state::{AcceptState, ListenerState};
use crate::observe::{Event, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::pool::control::{Control, Core, Member};
use crate::pool::listeners::ListenerEntry;
use crate::pool::members::{Changing, Members};
use crate::pool::supervise::Report;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sync::{Mutex, lock, mpsc};
use crate::sys::{Kernel, System};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the control plane asked of its members, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Limit,
    Next,
    Open,
    Tune,
    Launch(usize),
    Prepare,
    Undo,
    Commit,
    Committed,
}

struct Fakes {
    system: Arc<dyn System>,
    limiter: Arc<Limiter>,
    notifier: Notifier,
    steps: Mutex<Vec<Step>>,
    launched: Mutex<Vec<Fake>>,
    /// The step of this number is refused.
    refused: Mutex<Option<usize>>,
    /// Offers are refused at random.
    moods: Mutex<Option<Random>>,
}

/// Random enough: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let one = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (one ^ (one >> 27)) % bound
    }
}

/// A member.
#[derive(Clone, Default)]
struct Fake(Arc<Had>);

#[derive(Default)]
struct Had {
    dismissed: AtomicBool,
    /// Sockets that it accepts from: the number of their address and theirs.
    sockets: Mutex<BTreeSet<(u64, usize)>>,
}

impl Fakes {
    fn step(&self, step: Step) -> Result<(), Error> {
        let mut steps = lock(&self.steps);
        steps.push(step);
        if *lock(&self.refused) == Some(steps.len() - 1) { Err(Error::Stopped { reason: "refused".to_owned() }) } else { Ok(()) }
    }
}

impl Members for Fakes {
    type Running = Fake;
    type State = ();
    type Next = ();
    type Start = ();
    type News = ();
    type GaveUp = ();

    const PART: Part = Part::Loop;
    const SHARE_A_SOCKET: bool = false;
    const REPLACED_WHILE_DRAINING: bool = false;
    const STOP_WITHIN: Duration = Duration::ZERO;

    fn system(&self) -> &Arc<dyn System> {
        &self.system
    }
    fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }
    fn notifier(&self) -> &Notifier {
        &self.notifier
    }
    fn tell(&self, _: &Event) {}
    fn waited_code(&self) -> Option<&'static str> {
        None
    }
    fn wanted(config: &Config) -> usize {
        config.loops
    }
    fn limit(&self, (): &(), wanted: &Config) -> Result<Option<usize>, Error> {
        self.step(Step::Limit).map(|()| wanted.limit)
    }
    fn live_generations(_: &Core<Fakes>, _: &mut Control<Fakes>, _: &Config) -> Vec<(u32, usize)> {
        Vec::new()
    }
    fn next(&self, _: &Control<Fakes>, _: &Config) -> Result<(), Error> {
        self.step(Step::Next)
    }
    fn open(
        core: &Core<Fakes>,
        control: &mut Control<Fakes>,
        added: &[ListenerEntry],
        (config, asked): (&Config, &Listening),
    ) -> Result<ListenerEntry, Error> {
        core.own.step(Step::Open)?;
        let listener = control.listeners.listen((config, asked), &core.retirements, added)?;
        let state = ListenerState::new(listener.address.clone(), SharedCounters::private(), asked.limit, None);
        Ok(ListenerEntry::new(control.take_number(), asked, listener, state, 0))
    }
    fn tune(core: &Core<Fakes>, _: &Control<Fakes>, _: &Config) -> Result<(), Error> {
        core.own.step(Step::Tune)
    }
    fn prepare(core: &Core<Fakes>, _: &Control<Fakes>, _: &Changing<'_, Fakes>) -> Result<(), Error> {
        core.own.step(Step::Prepare)
    }
    fn undo(core: &Core<Fakes>, _: &Control<Fakes>, change: &Changing<'_, Fakes>) {
        assert!(change.started.iter().all(|member| member.running.is_some()));
        lock(&core.own.steps).push(Step::Undo);
    }
    fn commit(core: &Core<Fakes>, control: &mut Control<Fakes>, _: &Config, next: Option<()>, _: Option<usize>) {
        control.generation += u32::from(next.is_some());
        lock(&core.own.steps).push(Step::Commit);
    }
    fn committed(core: &Core<Fakes>, control: &Control<Fakes>, _: &Config) {
        assert!(control.listeners.listening.iter().all(|entry| entry.owners.iter().all(|owners| owners.len() == 1)));
        lock(&core.own.steps).push(Step::Committed);
    }
    fn pass_accept_state(_: &Core<Fakes>, _: &mut Control<Fakes>) {}
    fn pass_listener_accept_state(_: &Core<Fakes>, _: &Control<Fakes>, _: &ListenerEntry, _: &AcceptState) {}
    fn start(_: &Core<Fakes>, _: &mut Control<Fakes>, _: &Config, _: usize) {}
    fn launch(core: &Core<Fakes>, index: usize, _: u64, (): &()) -> Result<Fake, Error> {
        core.own.step(Step::Launch(index))?;
        let fake = Fake::default();
        lock(&core.own.launched).push(fake.clone());
        Ok(fake)
    }
    fn is_current(_: &Control<Fakes>, (): &()) -> bool {
        true
    }
    fn join(_: &Core<Fakes>, _: &mut Control<Fakes>, _: u64, _: &Fake) {}
    fn dismiss(fake: &Fake) {
        fake.0.dismissed.store(true, SeqCst);
    }
    fn beat(_: &Core<Fakes>, _: usize, _: &Fake) -> Option<u64> {
        None
    }
    fn patience(_: &Config) -> Duration {
        Duration::MAX
    }
    fn ended(_: &Core<Fakes>, control: &mut Control<Fakes>, index: usize, _: u64) -> (Vec<Event>, bool) {
        control.members[index].running = None;
        (Vec::new(), false)
    }
    fn hear(_: &Arc<Core<Fakes>>, (): ()) {}
    fn look_interval(_: &Config) -> Duration {
        Duration::from_secs(600)
    }
    fn look(_: &Core<Fakes>, _: &mut Control<Fakes>) {}
    fn offer(&self, entry: &ListenerEntry, to: &[(&Member<Fakes>, Vec<usize>)]) -> Vec<bool> {
        let offer = |(member, sockets): &(&Member<Fakes>, Vec<usize>)| {
            let refused = lock(&self.moods).as_mut().is_some_and(|random| random.below(3) == 0);
            let fake = member.running.as_ref().expect("sockets are offered to those that run");
            if !refused {
                lock(&fake.0.sockets).extend(sockets.iter().map(|socket| (entry.number, *socket)));
            }
            !refused
        };
        to.iter().map(offer).collect()
    }
    fn release(&self, entry: &ListenerEntry, from: &[(&Member<Fakes>, Vec<usize>)]) {
        for (member, sockets) in from {
            let fake = member.running.as_ref().expect("who is gone has no sockets");
            for socket in sockets {
                assert!(lock(&fake.0.sockets).remove(&(entry.number, *socket)), "it had socket {socket}");
            }
        }
    }
    fn let_go(_: &Core<Fakes>, _: &Control<Fakes>, _: &ListenerEntry) -> Vec<mpsc::Receiver<()>> {
        Vec::new()
    }
    fn apply(_: &Core<Fakes>, _: Op, _: &Selector) -> Result<Outcome, Error> {
        Ok(Outcome::default())
    }
    fn status(core: &Core<Fakes>) -> Status {
        core.common_status(&lock(&core.control))
    }
    fn crash(_: &Core<Fakes>, _: Part, _: usize) -> bool {
        false
    }
    fn end(_: &Core<Fakes>, _: Drain) -> (Drained, Instant) {
        (Drained::default(), Instant::now())
    }
    fn stop(_: &Core<Fakes>, _: Instant) {}
}

fn pool(members: usize) -> Arc<Core<Fakes>> {
    let config = Config::accept(Echo).listen("127.0.0.1:0".parse().expect("an address")).loops(members);
    let own = |_: &mpsc::Sender<Report<()>>| Fakes {
        system: Arc::new(Kernel),
        limiter: Limiter::shared(SharedCounters::private(), 100, None),
        notifier: Notifier::default(),
        steps: Mutex::default(),
        launched: Mutex::default(),
        refused: Mutex::default(),
        moods: Mutex::default(),
    };
    let (core, heard) = Core::new(own, config, 1, ());
    core.begin(heard).expect("nothing is refused");
    lock(&core.own.steps).clear();
    core
}

/// All that a change may change, and whose sockets are whose.
fn state(core: &Core<Fakes>) -> String {
    let control = lock(&core.control);
    let members: Vec<_> = control.members.iter().map(|member| (member.life, member.active, member.absent.is_some())).collect();
    let listening: Vec<_> = control.listeners.listening.iter().map(|entry| (entry.number, &entry.owners)).collect();
    let (limit, revision) = (core.own.limiter.limit(), control.revision.number());
    format!("{members:?} {listening:?} {} {limit} {revision} {:?}", control.generation, control.config.limit)
}

#[test]
fn a_change_is_whole_or_has_not_been_whatever_is_refused() {
    for (members, listens, service) in [(3, true, true), (3, false, false), (1, true, true), (2, false, true), (2, false, false)]
    {
        for refused in 0.. {
            let core = pool(2);
            let (before, running) = (state(&core), core.config());
            *lock(&core.own.refused) = Some(refused);
            let mut wanted = running.loops(members).limit(50);
            if listens {
                wanted = wanted.listen("127.0.0.2:0".parse().expect("an address"));
            }
            if service {
                wanted = wanted.behaviour(Echo);
            }
            let outcome = core.change(wanted).map(|(applied, ..)| applied);
            let steps = lock(&core.own.steps).clone();
            let committed = steps.iter().position(|step| *step == Step::Commit);
            let Ok(applied) = outcome else {
                assert_eq!(state(&core), before, "{steps:?}");
                assert_eq!(committed, None, "{steps:?}");
                assert!(lock(&core.own.launched)[2..].iter().all(|fake| fake.0.dismissed.load(SeqCst)), "{steps:?}");
                let tuned = steps.contains(&Step::Tune);
                assert_eq!(steps.iter().filter(|step| **step == Step::Undo).count(), usize::from(tuned), "{steps:?}");
                continue;
            };
            // All that can fail came before: each of these steps was refused once.
            assert_eq!(committed, Some(refused), "{steps:?}");
            assert_eq!(steps[refused..], [Step::Commit, Step::Committed]);
            assert_eq!((applied.generation, applied.revision), (1 + u32::from(service), 2));
            let launched = steps.iter().filter(|step| matches!(step, Step::Launch(_))).count();
            assert_eq!(launched, members.saturating_sub(2));
            break;
        }
    }
}

#[test]
fn no_socket_is_without_a_member_whatever_members_refuse_and_whenever_they_die() {
    for seed in 0..200 {
        let core = pool(4);
        let mut random = Random(seed);
        *lock(&core.own.moods) = Some(Random(seed + 1000));
        for _ in 0..50 {
            let mut control = lock(&core.control);
            let index = usize::try_from(random.below(4)).expect("few");
            match random.below(4) {
                0 => control.members[index].active ^= true,
                1 => control.members[index].stuck ^= true,
                2 => {
                    control.members[index].running = None;
                    control
                        .listeners
                        .all_mut()
                        .flat_map(|entry| &mut entry.owners)
                        .for_each(|owners| owners.retain(|one| *one != index));
                }
                _ => _ = control.members[index].running.get_or_insert_default(),
            }
            let had: Vec<bool> =
                control.listeners.all().flat_map(|entry| &entry.owners).map(|owners| !owners.is_empty()).collect();
            core.rebalance(&mut control);
            for entry in control.listeners.all() {
                for (socket, owners) in entry.owners.iter().enumerate() {
                    let has = |fake: &Fake| lock(&fake.0.sockets).contains(&(entry.number, socket));
                    let holders: Vec<usize> =
                        (0..4).filter(|index| control.members[*index].running.as_ref().is_some_and(has)).collect();
                    assert_eq!(&holders, owners, "seed {seed}: what is noted is so");
                    assert!(holders.len() <= 1, "seed {seed}");
                    assert!(!had[socket] || !holders.is_empty(), "seed {seed}: it is taken from a member before another has it");
                }
            }
        }
        // None refuses any more: what was left alone has a member at the next look.
        *lock(&core.own.moods) = None;
        let mut control = lock(&core.control);
        control.members.iter_mut().for_each(|member| (member.active, member.stuck) = (true, false));
        _ = control.members[0].running.get_or_insert_default();
        core.rebalance(&mut control);
        assert!(control.listeners.all().flat_map(|entry| &entry.owners).all(|owners| owners.len() == 1), "seed {seed}");
    }
}
