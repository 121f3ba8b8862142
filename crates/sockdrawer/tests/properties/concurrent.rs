//! Random changes from several threads while clients come, stay, suffer and go.

use crate::changes::{Changer, STAYING};
use crate::common::{PATIENCE, Random, address};
use crate::crowd::Scene;
use crate::service::{behaviour, forget};
use sockdrawer::{Address, Config, Drain, Model, Pool, admission::OnFull, observe::Readiness, restarting::Restarts};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread::{self, ScopedJoinHandle};

/// Threads that change the pool, each so many times.
const CHANGERS: u64 = 3;
const CHANGES: usize = 12;
const VISITORS: usize = 4;

/// Counts that a case leaves.
pub(crate) struct Tally {
    pub(crate) accepted: u64,
    pub(crate) lost: u64,
}

fn config(model: Model) -> Config {
    let restarts = Restarts { max: 10_000, within: PATIENCE, ..Restarts::default() };
    let mut config = Config::accept(behaviour(1)).model(model).capacity(0).restarts(restarts);
    config.settings.max_unsent = None;
    match model {
        Model::Threads => config,
        Model::Prefork => config.processes(2),
        _ => config.loops(2).workers(1),
    }
}

/// Runs one case. The seed says what each thread asks for, not how they meet.
pub(crate) fn case(model: Model, lane: u8, seed: u64) -> Tally {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let pool = Pool::start(config(model).listen(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()))).expect("the pool starts");
    let (rejects, crashes) = (random.below(3) == 0, random.below(4) == 0);
    let scene = Scene { ports: vec![address(&pool)].into(), lane, rejects, crashes, ..Scene::default() };
    let versions = AtomicU32::new(1);
    thread::scope(|scope| {
        let mut crowd: Vec<ScopedJoinHandle<'_, ()>> = (0..STAYING).map(|_| scope.spawn(|| scene.stay())).collect();
        // Notes are for all of them.
        let stay = pool.wait(PATIENCE, |status| status.connections == STAYING && scene.served.load(SeqCst) == STAYING as u64);
        crowd.extend((0..VISITORS).map(|number| {
            scope.spawn({
                let scene = &scene;
                move || scene.visit(number)
            })
        }));
        crowd.extend((0..2).map(|_| scope.spawn(|| scene.suffer())));
        let changers: Vec<_> = (0..CHANGERS)
            .map(|number| {
                let random = Random(random.below(u64::MAX) | (1 + number));
                let mut changer = Changer { pool: &pool, scene: &scene, versions: &versions, random };
                scope.spawn(move || changer.run(CHANGES))
            })
            .collect();
        let mut ends: Vec<_> = changers.into_iter().map(ScopedJoinHandle::join).collect();
        settle(&pool);
        scene.over.store(true, SeqCst);
        ends.extend(crowd.into_iter().map(ScopedJoinHandle::join));
        if let Some(panic) = ends.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
        assert!(stay, "{:#?}", pool.status());
    });
    judge(&pool, &scene)
}

/// Lets all clients that wait come in.
fn settle(pool: &Pool) {
    let open = |mut config: Config| {
        config.limit = None;
        let config = config.listeners(|listeners| listeners.iter_mut().for_each(|listening| listening.limit = None));
        config.on_full(OnFull::Backpressure)
    };
    pool.update(open).expect("a limit can be taken away");
    pool.addresses().iter().for_each(|address| pool.resume_listener(address).expect("nobody changes it any more"));
    pool.resume();
}

/// Asserts that both ends counted alike, and that nothing is left.
fn judge(pool: &Pool, scene: &Scene) -> Tally {
    let config = pool.config();
    let settled = pool.wait(PATIENCE, |status| {
        let active = status.loops.iter().filter(|one| one.active).count();
        let processes = status.processes.iter().filter(|one| one.active).count();
        status.connections == 0
            && status.readiness == Readiness::Serving
            && status.retiring == 0
            && status.generations.iter().map(|one| (one.id, one.connections)).eq([(status.generation, 0)])
            && status.listeners.iter().all(|one| one.queued == 0)
            && (config.model == Model::Prefork || active == config.loops)
            && (config.model != Model::Prefork || processes == config.processes)
            && status.counts.accepted == status.counts.closed + status.counts.rejected
    });
    let status = pool.status();
    assert!(settled, "{status:#?}");
    let count = |counter: &AtomicU64| counter.load(SeqCst);
    let (connected, served, turned_away) = (count(&scene.connected), count(&scene.served), count(&scene.turned_away));
    let (early, lost) = (count(&scene.ended_early), count(&scene.lost));
    assert_eq!(connected, served + turned_away + early + lost);
    // A client that is turned away by a reset may look like one that is lost.
    assert!(lost == 0 || scene.rejects || scene.crashes, "{lost} of {connected} lost");
    assert_eq!(status.counts.admission_panics, 0);
    assert_eq!((status.counts.panics, status.restarts > 0 && !scene.crashes), (0, false), "{status:#?}");
    if !scene.crashes {
        let (accepted, rejected) = (status.counts.accepted, status.counts.rejected);
        // A connection that was lost was not accepted; it may also have been turned away.
        assert!((connected - lost..=connected).contains(&accepted), "{connected} connected, {lost} lost: {status:#?}");
        assert!((turned_away..=turned_away + early + lost).contains(&rejected), "{turned_away} turned away: {status:#?}");
    }
    pool.shutdown(Drain::within(PATIENCE));
    scene.gone.lock().expect("no panic").iter().copied().for_each(forget);
    Tally { accepted: status.counts.accepted, lost }
}
