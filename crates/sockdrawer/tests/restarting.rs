//! Restart policies: what is asked of them, and that it is done.

mod common;

use common::{Echo, PATIENCE, connect, echoes, in_time, start, without_place};
use sockdrawer::testing::crash;
use sockdrawer::{
    Config, Error, Model, Pool,
    observe::Event,
    restarting::{Death, Part, Replace, RestartPolicy, Restarts},
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One death: the part, its index, the reason and how many restarts there were before.
type Noted = (Part, Option<usize>, String, usize);

/// Does what the test says, and notes what it is asked.
struct Scripted {
    says: Replace,
    noted: Arc<Mutex<Vec<Noted>>>,
}

impl RestartPolicy for Scripted {
    fn decide(&self, death: &Death<'_>) -> Replace {
        assert!(death.restarts.iter().all(|at| *at <= death.at) && death.restarts.is_sorted());
        let noted = (death.part, death.index, death.reason.to_owned(), death.restarts.len());
        self.noted.lock().expect("no panic").push(noted);
        self.says
    }
}

struct Scene {
    pool: Pool,
    at: std::net::SocketAddr,
    noted: Arc<Mutex<Vec<Noted>>>,
    events: Arc<Mutex<Vec<String>>>,
}

fn scene(config: Config, says: Replace) -> Scene {
    let (noted, events) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let told = events.clone();
    let config = config.restarts(Scripted { says, noted: noted.clone() });
    let (pool, at) = start(config.observer(move |event: &Event| told.lock().expect("no panic").push(format!("{event:?}"))));
    Scene { pool, at, noted, events }
}

impl Scene {
    fn told(&self, what: &str) -> bool {
        self.events.lock().expect("no panic").iter().any(|event| event.contains(what))
    }

    fn noted(&self) -> Vec<Noted> {
        self.noted.lock().expect("no panic").clone()
    }
}

#[test]
fn a_policy_is_asked_of_each_death_and_hears_of_those_before() {
    let scene = scene(Config::accept(Echo).loops(2).workers(2), Replace::Now);
    assert!(crash(&scene.pool, Part::Loop, 1));
    assert!(scene.pool.wait(PATIENCE, |status| status.restarts == 1));
    assert!(crash(&scene.pool, Part::Worker, 0));
    assert!(scene.pool.wait(PATIENCE, |status| status.restarts == 2 && status.workers == 2));
    let reason = |what: &str| format!("a test crashed this {what}");
    let noted: Vec<_> =
        scene.noted().into_iter().map(|(part, index, why, before)| (part, index, without_place(&why), before)).collect();
    assert_eq!(noted, [(Part::Loop, Some(1), reason("loop"), 0), (Part::Worker, None, reason("worker"), 1)]);
    assert!(scene.told("LoopReplaced { index: 1") && scene.pool.wait(PATIENCE, |_| scene.told("WorkerReplaced")));
    assert!(!crash(&scene.pool, Part::Process, 0) && !crash(&scene.pool, Part::Thread, 0) && !crash(&scene.pool, Part::Loop, 2));
    assert!((0..4).all(|_| echoes(&mut connect(scene.at), b"x")));
}

#[test]
fn a_part_is_replaced_after_the_pause_that_the_policy_wants() {
    const PAUSE: Duration = Duration::from_millis(400);
    for part in [Part::Loop, Part::Worker] {
        let scene = scene(Config::accept(Echo).loops(2).workers(2), Replace::After(PAUSE));
        let began = Instant::now();
        assert!(crash(&scene.pool, part, 0));
        assert!(scene.pool.wait(PATIENCE, |_| !scene.noted().is_empty()), "{part}");
        // The others do its work.
        assert!((0..8).all(|_| echoes(&mut connect(scene.at), b"x")), "{part}");
        assert!(scene.pool.status().restarts == 0 || began.elapsed() >= PAUSE, "{part}");
        assert!(
            scene.pool.wait(PATIENCE, |status| status.restarts == 1 && status.workers == 2),
            "{part}: {:#?}",
            scene.pool.status()
        );
        assert!(began.elapsed() >= PAUSE && began.elapsed() < PAUSE + PATIENCE, "{part}");
        assert!((0..8).all(|_| echoes(&mut connect(scene.at), b"x")), "{part}");
    }
}

#[test]
fn a_policy_that_gives_up_ends_the_pool_and_says_why() {
    in_time(|| {
        for part in [Part::Loop, Part::Worker, Part::Thread] {
            let model = if part == Part::Thread { Model::Threads } else { Model::Loops };
            let config = Config::accept(Echo).model(model);
            let config = if part == Part::Thread { config } else { config.loops(2).workers(1) };
            let scene = scene(config, Replace::GiveUp);
            let mut client = connect(scene.at);
            assert!(echoes(&mut client, b"x"));
            assert!(crash(&scene.pool, part, 0), "{part}");
            drop(client);
            let Err(Error::Stopped { reason }) = scene.pool.join() else { panic!("{part}: it goes on") };
            assert!(reason.contains(&format!("{part}s died too often")) && scene.told("GaveUp"), "{reason}");
            assert_eq!(scene.pool.status().restarts, 0, "{part}");
        }
    });
}

#[test]
fn a_policy_that_panics_is_told_and_the_default_decides() {
    struct Broken;
    impl RestartPolicy for Broken {
        fn decide(&self, _death: &Death<'_>) -> Replace {
            panic!("a broken policy")
        }
    }
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let observer = move |event: &Event| told.lock().expect("no panic").push(format!("{event:?}"));
    let (pool, at) = start(Config::accept(Echo).loops(1).restarts(Broken).observer(observer));
    for deaths in 1..=2 {
        assert!(crash(&pool, Part::Loop, 0));
        assert!(pool.wait(PATIENCE, |status| status.restarts == deaths));
        assert!(echoes(&mut connect(at), b"x"));
    }
    let events = events.lock().expect("no panic");
    let panics = events.iter().filter(|event| event.contains("ServicePanicked { message: \"a broken policy\" }")).count();
    assert_eq!(panics, 2, "{events:?}");
}

#[test]
fn a_policy_is_changed_in_place() {
    let scene = scene(Config::accept(Echo).loops(1), Replace::GiveUp);
    let plan = scene.pool.plan(&scene.pool.config().restarts(Restarts::default())).expect("it makes sense").to_string();
    assert!(plan.starts_with("restarts: in place (another policy)"), "{plan}");
    scene.pool.update(|config| config.restarts(Restarts::default())).expect("in place");
    // The same data is no change.
    assert_eq!(scene.pool.update(|config| config.restarts(Restarts::default())).expect("nothing to do").revision, 2);
    assert!(crash(&scene.pool, Part::Loop, 0));
    assert!(scene.pool.wait(PATIENCE, |status| status.restarts == 1));
    assert!(scene.noted().is_empty() && echoes(&mut connect(scene.at), b"x"));
}
