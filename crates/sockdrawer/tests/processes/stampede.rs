//! Parts of a pool die at random, again and again, under load. A client that is served by another part does not notice, and at the end the
//! pool is whole.

use crate::common::{PATIENCE, Random, is_long, start};
use sockdrawer::testing::crash;
use sockdrawer::{
    Build, Config, Context, Input, Job, JobResult, Model, Peer, Pool, Protocol, Recipe, Service, Step,
    observe::Status,
    restarting::{Part, Restarts},
};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CLIENTS: usize = 8;

/// Attacks, however slow the machine is.
const FEWEST: usize = 5;

/// Service that says where it runs, then sends back each frame: a kind, a length and as many bytes. Those of kind 1 are done by a worker.
#[derive(Clone, Copy)]
struct Mark;

const HEAD: usize = 3;
const BY_A_WORKER: u8 = 1;

impl Service for Mark {
    type Protocol = Mark;
    fn open(&self, _peer: &Peer) -> Mark {
        Mark
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "mark".to_owned(), options: Vec::new() })
    }
}

impl Protocol for Mark {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        let thread = std::thread::current();
        let index = thread.name().and_then(|name| name.strip_prefix("sockdrawer-")).and_then(|index| index.parse().ok());
        cx.send(&std::process::id().to_le_bytes());
        cx.send(&index.unwrap_or(u32::MAX).to_le_bytes());
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some([kind, low, high]) = input.bytes().first_chunk::<HEAD>().copied() {
            let length = HEAD + usize::from(u16::from_le_bytes([low, high]));
            if input.bytes().len() < length {
                break;
            }
            let frame = input.bytes()[..length].to_vec();
            input.take(length);
            if kind == BY_A_WORKER {
                return Step::Work(Job::new(move || frame));
            }
            cx.send(&frame);
        }
        Step::Continue
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        cx.send(&result.take::<Vec<u8>>().expect("no job dies with a worker that has none"));
        Step::Continue
    }
}

/// Attacks that may have hit a client: how often an attack on each part began, and was over. Parts are named by numbers.
#[derive(Default)]
struct Attacks(Mutex<HashMap<u64, (u64, u64)>>);

impl Attacks {
    fn begins(&self, part: u64) {
        self.0.lock().expect("no panic").entry(part).or_default().0 += 1;
    }

    fn is_over(&self, part: u64) {
        let mut attacks = self.0.lock().expect("no panic");
        let attack = attacks.entry(part).or_default();
        attack.1 = attack.0;
    }

    /// Returns how many attacks on each part are over by now: they can hit no client that comes later.
    fn over(&self) -> HashMap<u64, u64> {
        self.0.lock().expect("no panic").iter().map(|(part, (_, over))| (*part, *over)).collect()
    }

    /// Returns true where one of these parts was attacked since; `None` stands for any part.
    fn since(&self, over: &HashMap<u64, u64>, parts: Option<&[u64]>) -> bool {
        let attacks = self.0.lock().expect("no panic");
        let attacked = |(part, (begun, _)): (&u64, &(u64, u64))| *begun > over.get(part).copied().unwrap_or_default();
        attacks.iter().filter(|(part, _)| parts.is_none_or(|parts| parts.contains(part))).any(attacked)
    }
}

struct Scene {
    model: Model,
    pool: Pool,
    at: SocketAddr,
    attacks: Attacks,
    ends: AtomicBool,
    connects: AtomicUsize,
    lost: AtomicUsize,
    echoes: AtomicUsize,
    /// Processes that serve a client now.
    serving: Mutex<Vec<u32>>,
}

/// The one process that forks, and the threads that serve one connection each: attacked as a whole.
const HELPER: u64 = 0;
const THREADS: u64 = 1 << 40;

/// Returns the number that names a loop of a process.
fn loop_of(pid: u64, index: u64) -> u64 {
    (1 << 41) + (index << 32) + pid
}

impl Scene {
    /// Returns the parts that a connection depends on.
    fn parts(&self, pid: u32, index: u32) -> Vec<u64> {
        match self.model {
            Model::Fork => vec![u64::from(pid), HELPER],
            Model::Prefork => vec![u64::from(pid), loop_of(u64::from(pid), u64::from(index))],
            Model::Threads => vec![THREADS],
            _ => vec![u64::from(index)],
        }
    }

    fn client(&self, seed: u64) {
        let mut random = Random(seed);
        while !self.ends.load(SeqCst) {
            let over = self.attacks.over();
            let mut stream = TcpStream::connect(self.at).expect("somebody listens all the time");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
            self.connects.fetch_add(1, SeqCst);
            let mut greeting = [0; 8];
            if let Err(error) = stream.read_exact(&mut greeting) {
                self.may_be_lost(&error, &over, None);
                continue;
            }
            let [pid, index] = [0, 4].map(|at| u32::from_le_bytes(*greeting[at..].first_chunk().expect("4 bytes")));
            self.serving.lock().expect("no panic").push(pid);
            let parts = self.parts(pid, index);
            let frames = 1 + random.below(60);
            let spoken = (0..frames).try_for_each(|_| self.echo(&mut stream, &mut random));
            let mut serving = self.serving.lock().expect("no panic");
            let at = serving.iter().position(|one| *one == pid).expect("noted above");
            serving.swap_remove(at);
            drop(serving);
            if let Err(error) = spoken {
                self.may_be_lost(&error, &over, Some(&parts));
            }
        }
    }

    fn echo(&self, stream: &mut TcpStream, random: &mut Random) -> io::Result<()> {
        let length = random.below(2000) as u16;
        let [low, high] = length.to_le_bytes();
        let mut frame = vec![u8::from(random.below(4) == 0), low, high];
        frame.extend((0..length).map(|_| random.below(256) as u8));
        stream.write_all(&frame)?;
        let mut back = vec![0; frame.len()];
        stream.read_exact(&mut back)?;
        assert!(back == frame, "{}: wrong bytes", self.model);
        self.echoes.fetch_add(1, SeqCst);
        Ok(())
    }

    #[track_caller]
    fn may_be_lost(&self, error: &io::Error, over: &HashMap<u64, u64>, parts: Option<&[u64]>) {
        let late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let hit = self.attacks.since(over, parts);
        assert!(hit && !late, "{}: a connection of {parts:?}, which nobody attacked, ended: {error}", self.model);
        self.lost.fetch_add(1, SeqCst);
    }

    fn is_whole(&self, status: &Status) -> bool {
        let config = self.pool.config();
        let processes = match self.model {
            Model::Fork => 1,
            Model::Prefork => config.processes,
            _ => 0,
        };
        let inner = if self.model == Model::Prefork { processes } else { 1 };
        let loops = status.loops.iter().filter(|one| one.active && !one.stuck).count();
        status.processes.iter().filter(|one| one.active).count() == processes
            && loops == inner * config.loops
            && (status.workers, status.listeners.len()) == (inner * config.workers, 1)
    }

    /// Ends a part, and waits until the pool is whole again.
    fn attack(&self, random: &mut Random) {
        let status = self.pool.status();
        let (kinds, chosen) = (random.below(2), random.below(1 << 20) as usize);
        let (part, done): (Option<u64>, bool) = match (self.model, kinds) {
            (Model::Fork, 0) => {
                let serving = self.serving.lock().expect("no panic").clone();
                let Some(pid) = serving.get(chosen % serving.len().max(1)) else { return };
                self.attacks.begins(u64::from(*pid));
                let pid = rustix::process::Pid::from_raw(*pid as i32).expect("a pid");
                // It may have ended by itself.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                return;
            }
            (Model::Fork, _) => (Some(HELPER), self.hit(HELPER, Part::Process, 0)),
            (Model::Prefork, _) => {
                let index = chosen % status.processes.len();
                let pid = u64::from(status.processes[index].pid);
                // Loops are numbered through all processes: the first of each, then the second of each.
                let inner = random.below(self.pool.config().loops as u64);
                let part = loop_of(pid, inner);
                match random.below(3) {
                    0 => (Some(pid), self.hit(pid, Part::Process, index)),
                    1 => (Some(part), self.hit(part, Part::Loop, index + inner as usize * status.processes.len())),
                    // It dies between two jobs.
                    _ => (None, crash(&self.pool, Part::Worker, index)),
                }
            }
            (Model::Threads, 0) => (Some(THREADS), self.hit(THREADS, Part::Thread, chosen)),
            // Whom it has accepted and not placed yet is placed by its successor.
            (Model::Threads, _) => (None, crash(&self.pool, Part::Loop, 0)),
            (_, 0) if status.workers > 0 => (None, crash(&self.pool, Part::Worker, 0)),
            _ => {
                let index = chosen % status.loops.len();
                (Some(index as u64), self.hit(index as u64, Part::Loop, index))
            }
        };
        // Parts that a process had replaced are not counted any more when the process is gone.
        let same = |now: &Status| now.processes.iter().all(|one| status.processes.iter().any(|before| before.pid == one.pid));
        let more = usize::from(done);
        let whole = self.pool.wait(PATIENCE, |now| (now.restarts >= status.restarts + more || !same(now)) && self.is_whole(now));
        assert!(whole, "{} after {part:?}: {:#?}", self.model, self.pool.status());
        part.into_iter().for_each(|part| self.attacks.is_over(part));
    }

    fn hit(&self, name: u64, part: Part, index: usize) -> bool {
        self.attacks.begins(name);
        crash(&self.pool, part, index)
    }
}

fn stampede(model: Model) {
    let lasts = Duration::from_secs(if is_long() { 60 } else { 1 });
    let mut config = Config::accept(Mark).model(model).restarts(Restarts {
        max: usize::MAX,
        within: Duration::from_secs(1),
        ..Restarts::default()
    });
    match model {
        Model::Loops | Model::Tasks => config = config.loops(3).workers(2),
        Model::Prefork => config = config.processes(3),
        _ => {}
    }
    let (pool, at) = start(config);
    let scene = Scene {
        model,
        pool,
        at,
        attacks: Attacks::default(),
        ends: AtomicBool::new(false),
        connects: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
        echoes: AtomicUsize::new(0),
        serving: Mutex::default(),
    };
    let mut attacks = 0;
    std::thread::scope(|scope| {
        let scene = &scene;
        let clients: Vec<_> = (1..=CLIENTS as u64).map(|seed| scope.spawn(move || scene.client(seed))).collect();
        let (until, mut random) = (Instant::now() + lasts, Random(7));
        while (Instant::now() < until || attacks < FEWEST) && !clients.iter().any(|client| client.is_finished()) {
            // Ten connections' worth: more than an attack can end, also where the machine is slow.
            let enough = scene.echoes.load(SeqCst) + 400;
            scene.pool.wait(PATIENCE, |_| scene.echoes.load(SeqCst) >= enough);
            scene.attack(&mut random);
            attacks += 1;
        }
        scene.ends.store(true, SeqCst);
    });
    assess(&scene, attacks);
}

/// Asserts that all that was taken is given back, and that both ends count alike.
fn assess(scene: &Scene, attacks: usize) {
    let (model, pool) = (scene.model, &scene.pool);
    let settled = pool.wait(PATIENCE, |status| {
        status.connections == 0
            && status.counts.accepted == status.counts.closed + status.counts.rejected
            && scene.is_whole(status)
    });
    let status = pool.status();
    assert!(settled, "{model}: {status:#?}");
    let (connects, lost, echoes) = (scene.connects.load(SeqCst), scene.lost.load(SeqCst), scene.echoes.load(SeqCst));
    println!("{model}: {attacks} attacks, {} restarts, {connects} connects, {lost} lost, {echoes} echoes", status.restarts);
    assert!(attacks > 3 && echoes > 100 && lost < connects / 2, "{model}");
    let accepted = status.counts.accepted as usize;
    // A process that is killed right after accept had no time to count it.
    let uncounted = if matches!(model, Model::Fork | Model::Prefork) { attacks } else { 0 };
    assert!((connects.saturating_sub(uncounted)..=connects).contains(&accepted), "{model}: {accepted} of {connects} accepted");
    assert_eq!((status.counts.panics, status.listeners[0].queued), (0, 0), "{model}");
    // Nobody waits for what is gone.
    let mut last = crate::common::connect(scene.at);
    assert!(
        crate::common::read(&mut last, 8).is_some() && crate::common::echoes(&mut last, &[BY_A_WORKER, 2, 0, b'o', b'k']),
        "{model}"
    );
}

pub(crate) const RECIPES: &[(&str, Build)] = &[("mark", |_| Ok(Mark.into()))];

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("loops_die_and_others_do_not_notice", || stampede(Model::Loops)),
    #[cfg(feature = "tokio")]
    ("tasks_die_and_others_do_not_notice", || stampede(Model::Tasks)),
    ("single_dies_and_comes_back", || stampede(Model::Single)),
    ("threads_die_and_others_do_not_notice", || stampede(Model::Threads)),
    ("prefork_dies_and_others_do_not_notice", || stampede(Model::Prefork)),
    ("fork_dies_and_others_do_not_notice", || stampede(Model::Fork)),
];
