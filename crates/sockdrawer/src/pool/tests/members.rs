//! The control plane over fake members: whatever is refused, and whenever, a change is whole or has not been, and no socket
//! is ever without a member that accepts from it.

use super::Echo;
use crate::config::{Config, Listening, Part, Restarts};
use crate::error::Error;
use crate::event_loop::notifier::Notifier;
use crate::gather::{Answers, gather};
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::Limiter;
use crate::listen::state::ListenerState;
use crate::observe::{Event, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::pool::control::{Control, Core, FromMember, Member};
use crate::pool::listeners::ListenerEntry;
use crate::pool::manager::Manager as _;
use crate::pool::members::{Changing, Members};
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sync::{Mutex, lock, mpsc};
use crate::sys::{Kernel, System};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request of the control plane to its members: tests compare the order.
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
    told: Mutex<Vec<Event>>,
    /// The end waits for this.
    ends: Mutex<()>,
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
    const REPLACED_WHILE_DRAINING: bool = true;
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
    fn tell(&self, event: &Event) {
        lock(&self.told).push(event.clone());
    }
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
        let state = ListenerState::new((listener.address.clone(), None), SharedCounters::private(), asked.limit, None);
        Ok(ListenerEntry::new(control.take_number(), asked, listener, state, 0))
    }
    fn tune(core: &Core<Fakes>, _: &Control<Fakes>, _: &Config) -> Result<(), Error> {
        core.own.step(Step::Tune)
    }
    fn prepare(core: &Core<Fakes>, _: &Control<Fakes>, _: &Changing<'_, Fakes>) -> Result<(), Error> {
        core.own.step(Step::Prepare)
    }
    fn undo(core: &Core<Fakes>, _: &Control<Fakes>, change: &Changing<'_, Fakes>) {
        assert!(change.started.iter().all(|(_, member)| member.running.is_some()));
        lock(&core.own.steps).push(Step::Undo);
    }
    fn commit(core: &Core<Fakes>, control: &mut Control<Fakes>, _: &Config, next: Option<()>, _: Option<usize>) {
        control.generation += u32::from(next.is_some());
        lock(&core.own.steps).push(Step::Commit);
    }
    fn committed(core: &Core<Fakes>, control: &Control<Fakes>, _: &Config) {
        if control.members.iter().any(|member| member.active && member.running.is_some()) {
            assert!(control.listeners.listening.iter().all(|entry| entry.owners.iter().all(|owners| owners.len() == 1)));
        }
        lock(&core.own.steps).push(Step::Committed);
    }
    fn pass_accept_state(_: &Core<Fakes>, _: &mut Control<Fakes>, _: Instant) {}
    fn pass_listener_accept_states(_: &Core<Fakes>, _: &Control<Fakes>, _: &[&ListenerEntry], _: Duration) {}
    fn start(_: &Core<Fakes>, _: &Control<Fakes>, _: &Config, _: usize) {}
    fn launch(core: &Core<Fakes>, index: usize, _: u64, (): &()) -> Result<Fake, Error> {
        core.own.step(Step::Launch(index))?;
        let fake = Fake::default();
        lock(&core.own.launched).push(fake.clone());
        Ok(fake)
    }
    fn is_current(_: &Control<Fakes>, (): &()) -> bool {
        true
    }
    fn join(_: &mut Control<Fakes>, _: u64, _: &Fake) {}
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
            let fake = member.running.as_ref().expect("a member that is gone has no sockets");
            for socket in sockets {
                assert!(lock(&fake.0.sockets).remove(&(entry.number, *socket)), "it had socket {socket}");
            }
        }
    }
    fn let_go(_: &Core<Fakes>, _: &Control<Fakes>, _: &ListenerEntry) -> Answers<()> {
        gather([], None, |(), _| ())
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
    fn end(core: &Core<Fakes>, _: Drain) -> (Drained, Instant) {
        drop(lock(&core.own.ends));
        (Drained::default(), Instant::now())
    }
    fn stop(_: &Core<Fakes>, _: Instant) {}
}

fn pool(members: usize) -> Arc<Core<Fakes>> {
    let config = Config::accept(Echo).listen("127.0.0.1:0").loops(members);
    let own = |_: &mpsc::Sender<FromMember<()>>| Fakes {
        system: Arc::new(Kernel),
        limiter: Limiter::shared(SharedCounters::private(), 100, None),
        notifier: Notifier::default(),
        steps: Mutex::default(),
        launched: Mutex::default(),
        refused: Mutex::default(),
        moods: Mutex::default(),
        told: Mutex::default(),
        ends: Mutex::default(),
    };
    let (core, heard) = Core::new(own, config, 1, ());
    core.begin(heard).expect("nothing is refused");
    lock(&core.own.steps).clear();
    core
}

/// Returns all that a change may change, and whose sockets are whose.
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
                wanted = wanted.listen("127.0.0.2:0");
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

/// Kills a member that runs, as the supervisor hears of it. False: there is none of this index.
fn kill(core: &Arc<Core<Fakes>>, index: usize) -> bool {
    let life = lock(&core.control).members.get(index).filter(|member| member.running.is_some()).map(|member| member.life);
    life.inspect(|life| core.member_ended(index, *life, "a test killed it")).is_some()
}

/// Lets time pass until every pending restart is due.
fn all_are_due(core: &Core<Fakes>) {
    let now = Instant::now();
    lock(&core.control).members.iter_mut().filter_map(|member| member.absent.as_mut()).for_each(|restart| restart.until = now);
}

#[test]
fn after_the_pool_gave_up_no_member_is_started() {
    let core = pool(2);
    core.change(core.config().restarts(Restarts { max: 0, ..Restarts::default() })).expect("a change of restarts");
    // The pool drains meanwhile.
    let ends = lock(&core.own.ends);
    assert!(kill(&core, 0));
    for _ in 0..3 {
        core.look();
        core.replace_missing();
    }
    assert_eq!(lock(&core.own.launched).len(), 2, "the first ones");
    assert_eq!(core.next_times(Instant::now()).1.filter(|due| *due <= Instant::now()), None);
    let gave_up = lock(&core.own.told).iter().filter(|event| matches!(event, Event::GaveUp { .. })).count();
    assert_eq!(gave_up, 1);
    drop(ends);
}

#[test]
fn every_wanted_member_runs_in_the_end_whatever_dies_and_is_refused_meanwhile() {
    for seed in 0..100 {
        let core = pool(3);
        let mut random = Random(seed);
        core.change(core.config().restarts(Restarts { max: usize::MAX, ..Restarts::default() })).expect("a change of restarts");
        for _ in 0..50 {
            let next = lock(&core.own.steps).len();
            *lock(&core.own.refused) = (random.below(3) == 0).then_some(next);
            let which = usize::try_from(random.below(5)).expect("few");
            match random.below(4) {
                0 => _ = kill(&core, which),
                1 => _ = core.change(core.config().loops(which + 1)),
                2 => core.look(),
                _ => all_are_due(&core),
            }
            // A restart that is put off for a moment may be due again by the time of the look.
            let before = Instant::now();
            core.replace_missing();
            let due = core.next_times(before).1;
            assert!(due.is_none_or(|due| due > before), "seed {seed}: what was due is done, or is due later");
        }
        *lock(&core.own.refused) = None;
        all_are_due(&core);
        core.replace_missing();
        let control = lock(&core.control);
        let running = control.members.iter().filter(|member| member.active && member.running.is_some()).count();
        assert_eq!(running, control.config.loops, "seed {seed}");
        assert!(control.listeners.all().flat_map(|entry| &entry.owners).all(|owners| owners.len() == 1), "seed {seed}");
    }
}
