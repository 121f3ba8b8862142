//! The life of a child: one connection, from its first to its last byte. Of its pool it hears signals, and no more.

use crate::admission::Limits;
use crate::behaviour::Kind;
use crate::clock::deadline;
use crate::event_loop::acceptor::Incoming;
use crate::event_loop::child_page::ChildPage;
use crate::event_loop::delegates::Delegates;
use crate::event_loop::ending::Endings;
use crate::event_loop::generation::Generation;
use crate::event_loop::inbox::Inbox;
use crate::event_loop::limiter::{Limiter, Permit};
use crate::event_loop::shared_counters::SharedCounters;
use crate::event_loop::worker::Workers;
use crate::event_loop::{Basis, EventLoop, Shared};
use crate::exec;
use crate::model::fork::{Birth, Life};
use crate::observe::{Event, Observer};
use crate::operation::Selector;
use crate::pool::drain::CUT_WITHIN;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::sys::{Errno, Events, Kernel, System, fork, panics};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// The bit by which a child's event loop notices that it is asked to end.
const ASKED: u32 = 0;
/// Exit codes: a bug of ours; a program that could not be started, as shells have it.
const FAILED: i32 = 70;
const NO_PROGRAM: i32 = 127;

/// What all children find when they are born.
pub(super) struct Ground {
    pub(super) bed: Box<Bed>,
    pub(super) inbox: usize,
    pub(super) stack: usize,
}

/// A child's whole life. It never returns into what it was forked from.
impl Life for Arc<Ground> {
    fn live(&self, birth: Birth<'_>) -> ! {
        if birth.generation.kind == Kind::Program {
            become_program(birth);
        }
        let Ok(page) = SharedCounters::own_page(birth.numbers, birth.slot) else { fork::exit(FAILED) };
        if fork::settle_child(birth.parent, birth.inherited).is_err() {
            fork::exit(FAILED);
        }
        let lived = catch_unwind(AssertUnwindSafe(|| serve(self, birth, page)));
        fork::exit(if matches!(lived, Ok(Ok(()))) { 0 } else { FAILED });
    }
}

/// Not a part of what other children run: what it has on the stack, each of them would have to get pages for.
#[inline(never)]
fn become_program(birth: Birth<'_>) -> ! {
    if fork::settle_program(birth.parent, birth.incoming.socket.as_fd()).is_err() {
        fork::exit(FAILED);
    }
    let words = birth.generation.service().recipe().and_then(|recipe| exec::words(&recipe.options)).unwrap_or_default();
    let socket = birth.incoming.socket;
    let input = socket.try_clone();
    if let (Ok(input), Some((program, arguments))) = (input, words.split_first()) {
        fork::restore(socket.as_fd());
        let _ = Command::new(program).args(arguments).stdin(Stdio::from(input)).stdout(Stdio::from(socket)).exec();
    }
    fork::exit(NO_PROGRAM);
}

/// Leaves word of what happens here.
#[derive(Default)]
struct Voice(Mutex<Option<ChildPage>>);

impl Observer for Voice {
    fn event(&self, event: &Event) {
        lock(&self.0).iter().for_each(|page| page.tell(event));
    }
}

/// An event loop that was made before there was a connection for it, so that a child has little to do before its first byte.
struct Seed {
    event_loop: EventLoop,
    permit: Option<Permit>,
    generation: u32,
    voice: Arc<Voice>,
}

/// Where the seed of the next child lies: a page of its own, because a child gets a copy of each page that it writes to.
#[derive(Default)]
#[repr(align(4096))]
pub(super) struct Bed(Mutex<Option<Seed>>);

impl Ground {
    /// Has the event loop of the next child ready. A panic of the service's `local` is met again by each child. A function of its own for
    /// its stack, as above.
    #[inline(never)]
    pub(super) fn sow(&self, generation: &Generation) {
        let shared_counters = SharedCounters::private();
        // Its few numbers lie with what else a child writes.
        let limiter = Limiter::shared(shared_counters.door(0), 1, None);
        let permit = limiter.take().expect("the first connection of a limiter for one");
        // A child counts by itself: what its parent counts in is in pages that the parent writes.
        let voice = Arc::<Voice>::default();
        let shared = shared(self, shared_counters, limiter, generation.apart(), voice.clone());
        let inbox = Inbox::asleep(shared.system.clone(), self.inbox);
        let mut event_loop = EventLoop::asleep(shared, inbox);
        event_loop.prepare();
        let before = lock(&self.bed.0).replace(Seed { event_loop, permit: Some(permit), generation: generation.id, voice });
        // What its service made for it is the user's.
        panics::discard(before);
    }

    /// A child has it until it ends.
    fn seed_of(&self, generation: &Generation) -> MutexGuard<'_, Option<Seed>> {
        let seed = lock(&self.bed.0);
        if seed.as_ref().is_some_and(|seed| seed.generation == generation.id) {
            return seed;
        }
        drop(seed);
        self.sow(generation);
        lock(&self.bed.0)
    }
}

fn serve(ground: &Ground, birth: Birth<'_>, page: ChildPage) -> Result<(), Errno> {
    let Birth { incoming, id, generation, .. } = birth;
    let Incoming { socket, permit, remote, side, lag, connect_time } = incoming;
    // They are the parent's to give back.
    let (generation, _permit) = (ManuallyDrop::new(generation), ManuallyDrop::new(permit));
    // Nothing of it is dropped or moved: the process ends, and pages that are written are copied.
    let mut seed = ManuallyDrop::new(ground.seed_of(&generation));
    let Seed { event_loop, permit: own, voice, .. } = seed.as_mut().expect("it was sown");
    event_loop.number_next(id);
    // Where the parent sees it, also when this process is killed.
    std::mem::forget(std::mem::replace(&mut event_loop.counters, page.counters()));
    *lock(&voice.0) = Some(page.clone());
    let permit = own.take().expect("a seed is for one connection");
    // However this process dies, its peer does not take that for an orderly end. It fails where the connection is gone already.
    let resets = Kernel.reset_on_close(socket.as_fd()).is_ok();
    event_loop.page = Some(page).filter(|page| resets || !page.end_in_order());
    event_loop.adopt_incoming(Incoming { socket, permit, remote, side, lag, connect_time });
    if event_loop.count() > 0 { run(event_loop) } else { Ok(()) }
}

fn shared(
    ground: &Ground,
    shared_counters: SharedCounters,
    limiter: Arc<Limiter>,
    generation: Arc<Generation>,
    voice: Arc<Voice>,
) -> Arc<Shared> {
    Shared::new(Basis {
        system: Arc::new(Kernel),
        shared_counters,
        process: None,
        limiter,
        generation,
        // None run: a job runs where its connection runs.
        workers: Workers::new(1),
        delegates: Delegates::new(1, ground.stack),
        observer: voice,
        admission: Arc::new(Limits::default()),
        placement: None,
    })
}

/// A connection that has not ended at once: this process is there to be asked to end.
fn run(event_loop: &mut EventLoop) -> Result<(), Errno> {
    event_loop.awaken()?;
    let signals = fork::watch_for_end()?;
    event_loop.notice(ASKED, signals.as_fd())?;
    let mut events = Events::with_capacity(4);
    event_loop.inbox.read_here();
    let mut asked: Option<Asked> = None;
    while event_loop.count() > 0 {
        event_loop.turn_until = asked.as_ref().and_then(Asked::due);
        event_loop.turn(&mut events, |_| ());
        if std::mem::take(&mut event_loop.noticed) != 0 {
            listen(event_loop, &signals, &mut asked);
        }
        if let Some(asked) = &mut asked {
            asked.go_on(event_loop);
        }
    }
    Ok(())
}

/// A child that is asked to end by a deadline.
struct Asked {
    endings: Arc<Endings>,
    stage: Stage,
}

/// How far its time has gone.
#[derive(Clone, Copy)]
enum Stage {
    Asked,
    /// The protocol was told that this is the last moment.
    Told,
    /// The deadline is over. What is cut is closed a little later: to let go of what the kernel has for many such connections takes
    /// all CPUs for a while, and by then the parent has said what came of them.
    Cut,
    Closed,
}

/// The nearest deadline counts.
fn listen(event_loop: &mut EventLoop, signals: &OwnedFd, asked: &mut Option<Asked>) {
    let Some(how) = fork::asked_to_end(signals.as_fd()) else { return };
    let Some(within) = how.within else {
        event_loop.choose(&Selector::All).into_iter().for_each(|token| _ = event_loop.drain_one(token));
        return;
    };
    let endings = Endings::within(within);
    if how.at_once {
        event_loop.purge_counted(&Selector::All, within, &endings);
    } else {
        event_loop.drain_all_counted(&endings);
    }
    if asked.as_ref().is_none_or(|before| before.endings.until > endings.until) {
        *asked = Some(Asked { endings, stage: Stage::Asked });
    }
}

impl Asked {
    fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Asked => Some(self.endings.last_words),
            Stage::Told => Some(self.endings.until),
            Stage::Cut => Some(deadline(self.endings.until, 2 * CUT_WITHIN)),
            Stage::Closed => None,
        }
    }

    fn go_on(&mut self, event_loop: &mut EventLoop) {
        while self.due().is_some_and(|due| due <= Instant::now()) {
            self.stage = match self.stage {
                Stage::Asked => {
                    event_loop.last_words(&self.endings);
                    Stage::Told
                }
                Stage::Told => {
                    event_loop.cut_counted(&self.endings);
                    Stage::Cut
                }
                Stage::Cut | Stage::Closed => {
                    event_loop.close_cut();
                    Stage::Closed
                }
            };
        }
    }
}
