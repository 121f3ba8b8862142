//! Replacement of parts that die: how often, after which pauses, and the end of a pool in which too many die.

use crate::common::{Echo, PATIENCE, connect, echoes, in_time, start};
use sockdrawer::testing::crash;
use sockdrawer::{
    Config, Error, Model, Pool,
    observe::Event,
    restarting::{Part, Restarts},
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NONE: Restarts = Restarts { max: 0, within: Duration::from_secs(10), pause: Duration::ZERO };

struct Scene {
    pool: Pool,
    at: SocketAddr,
    events: Arc<Mutex<Vec<String>>>,
}

fn scene(config: Config, restarts: Restarts) -> Scene {
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let observer = move |event: &Event| told.lock().expect("no panic").push(format!("{event:?}"));
    let (pool, at) = start(config.restarts(restarts).observer(observer));
    Scene { pool, at, events }
}

impl Scene {
    fn told(&self, what: &str) -> bool {
        self.events.lock().expect("no panic").iter().any(|event| event.contains(what))
    }
}

#[test]
fn parts_of_all_kinds_are_replaced_and_told() {
    let scene = scene(Config::accept(Echo).loops(2).workers(2), Restarts::default());
    assert!(crash(&scene.pool, Part::Loop, 1));
    assert!(scene.pool.wait(PATIENCE, |status| status.restarts == 1));
    assert!(crash(&scene.pool, Part::Worker, 0));
    assert!(scene.pool.wait(PATIENCE, |status| status.restarts == 2 && status.workers == 2));
    for told in
        ["LoopReplaced { index: 1, reason: \"a test crashed this loop", "WorkerReplaced { reason: \"a test crashed this worker"]
    {
        assert!(scene.pool.wait(PATIENCE, |_| scene.told(told)), "{told}");
    }
    assert!(!crash(&scene.pool, Part::Process, 0) && !crash(&scene.pool, Part::Thread, 0) && !crash(&scene.pool, Part::Loop, 2));
    assert!((0..4).all(|_| echoes(&mut connect(scene.at), b"x")));
}

#[test]
fn a_part_is_replaced_after_the_pause() {
    const PAUSE: Duration = Duration::from_millis(400);
    for part in [Part::Loop, Part::Worker] {
        let scene = scene(Config::accept(Echo).loops(2).workers(2), Restarts { pause: PAUSE, ..Restarts::default() });
        let began = Instant::now();
        assert!(crash(&scene.pool, part, 0));
        // The others do its work.
        assert!((0..8).all(|_| echoes(&mut connect(scene.at), b"x")), "{part}");
        let found = scene.pool.status().restarts;
        assert!(found == 0 || began.elapsed() >= PAUSE, "{part}");
        assert!(
            scene.pool.wait(PATIENCE, |status| status.restarts == 1 && status.workers == 2),
            "{part}: {:#?}",
            scene.pool.status()
        );
        assert!(began.elapsed() >= PAUSE, "{part}");
        assert!((0..8).all(|_| echoes(&mut connect(scene.at), b"x")), "{part}");
    }
}

#[test]
fn too_many_deaths_end_the_pool_which_says_why() {
    in_time(|| {
        for part in [Part::Loop, Part::Worker, Part::Thread] {
            let model = if part == Part::Thread { Model::Threads } else { Model::Loops };
            let config = Config::accept(Echo).model(model);
            let config = if part == Part::Thread { config } else { config.loops(2).workers(1) };
            let scene = scene(config, NONE);
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
fn restarts_are_changed_in_place() {
    let scene = scene(Config::accept(Echo).loops(1), NONE);
    let wanted = Restarts { pause: Duration::from_millis(1), ..Restarts::default() };
    let plan = scene.pool.plan(&scene.pool.config().restarts(wanted)).expect("it makes sense").to_string();
    assert!(
        plan.contains("restarts.max: in place (0 to 10)") && plan.contains("restarts.pause: in place (0ns to 1ms)"),
        "{plan}"
    );
    scene.pool.update(|config| config.restarts(wanted)).expect("in place");
    assert_eq!(scene.pool.update(|config| config.restarts(wanted)).expect("nothing to do").revision, 2);
    assert!(crash(&scene.pool, Part::Loop, 0));
    assert!(scene.pool.wait(PATIENCE, |status| status.restarts == 1));
    assert!(echoes(&mut connect(scene.at), b"x"));
}
