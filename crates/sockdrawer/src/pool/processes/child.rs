//! The life of a child: one connection, from its first to its last byte. Of its pool it hears signals, and no more.

use crate::admission::Limits;
use crate::behaviour::Kind;
use crate::event_loop::connections::ending::CountedEnd;
use crate::event_loop::connections::ending::drain_one;
use crate::event_loop::connections::entering::name_next;
use crate::event_loop::connections::selecting::Selecting;
use crate::event_loop::delegates::Delegates;
use crate::event_loop::endings::Endings;
use crate::event_loop::generation::Generation;
use crate::event_loop::inbox::Inbox;
use crate::event_loop::incoming::Incoming;
use crate::event_loop::worker::Workers;
use crate::event_loop::{Basis, EventLoop, Shared};
use crate::exec;
use crate::ipc::child_page::ChildPage;
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::Limiter;
use crate::listen::permit::Permit;
use crate::model::fork::{ChildMain, NewChild};
use crate::observe::{Event, Observer};
use crate::operation::Selector;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::sys::{Errno, Events, Kernel, System, fork, panics};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The bit by which a child's event loop notices that it is asked to end.
const ASKED: u32 = 0;
/// Exit codes: a bug of ours; a program that could not be started, as shells have it.
const FAILED: i32 = 70;
const NO_PROGRAM: i32 = 127;

/// The data that every child begins with, made by its parent before.
pub(super) struct ChildTemplate {
    pub(super) prepared: Box<OwnPage>,
    pub(super) inbox: usize,
    pub(super) stack: usize,
}

/// The whole of a child. It never returns into what it was forked from.
impl ChildMain for Arc<ChildTemplate> {
    fn run(&self, child: NewChild<'_>) -> ! {
        if child.generation.kind == Kind::Program {
            become_program(child);
        }
        let Ok(page) = SharedCounters::own_page(child.numbers, child.slot) else { fork::exit(FAILED) };
        if fork::settle_child(child.parent, child.inherited).is_err() {
            fork::exit(FAILED);
        }
        let lived = catch_unwind(AssertUnwindSafe(|| serve(self, child, page)));
        fork::exit(if matches!(lived, Ok(Ok(()))) { 0 } else { FAILED });
    }
}

/// Variables by which a service manager, or a predecessor, speaks to this process: a program for one connection is not meant, and what it
/// said to a manager would be taken for the state of the service. See sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3).
const OF_THE_SERVICE: [&str; 8] = [
    "LISTEN_PID",
    "LISTEN_PIDFDID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "SOCKDRAWER_REPLACES",
];

/// Runs another program in the child. Not a part of what other children run: what it has on the stack, each of them would have to get pages for.
#[inline(never)]
fn become_program(child: NewChild<'_>) -> ! {
    if fork::settle_program(child.parent, child.incoming.socket.as_fd()).is_err() {
        fork::exit(FAILED);
    }
    let words = child.generation.service().recipe().and_then(|recipe| exec::words(&recipe.options)).unwrap_or_default();
    let socket = child.incoming.socket;
    let input = socket.try_clone();
    if let (Ok(input), Some((program, arguments))) = (input, words.split_first()) {
        fork::restore(socket.as_fd());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::from(input)).stdout(Stdio::from(socket));
        OF_THE_SERVICE.iter().for_each(|name| _ = command.env_remove(name));
        let _ = command.exec();
    }
    fork::exit(NO_PROGRAM);
}

/// Leaves in the page of this child what happens here.
#[derive(Default)]
struct PageObserver(Mutex<Option<ChildPage>>);

impl Observer for PageObserver {
    fn event(&self, event: &Event) {
        lock(&self.0).iter().for_each(|page| page.tell(event));
    }
}

/// An event loop that was made before there was a connection for it, so that a child has little to do before its first byte.
struct PreparedChild {
    event_loop: EventLoop,
    permit: Option<Permit>,
    generation: u32,
    observer: Arc<PageObserver>,
}

/// The data prepared for the next child, in a page of its own, because a child gets a copy of each page that it writes to.
#[derive(Default)]
#[repr(align(4096))]
pub(super) struct OwnPage(Mutex<Option<PreparedChild>>);

impl ChildTemplate {
    /// Has the event loop of the next child ready. A panic of the service's `local` is met again by each child. A function of its own for
    /// its stack, as above.
    #[inline(never)]
    pub(super) fn prepare(&self, generation: &Generation) {
        let shared_counters = SharedCounters::private();
        // The few numbers of the limiter lie with what else a child writes.
        let limiter = Limiter::shared(shared_counters.listener(0), 1, None);
        let permit = Permit::take(&limiter).expect("the first connection of a limiter for one");
        // A child counts by itself: what its parent counts in is in pages that the parent writes.
        let observer = Arc::<PageObserver>::default();
        let shared = shared(self, shared_counters, limiter, generation.apart(), observer.clone());
        let inbox = Inbox::asleep(shared.system.clone(), self.inbox);
        let mut event_loop = EventLoop::asleep(shared, inbox);
        event_loop.prepare();
        let before = lock(&self.prepared.0).replace(PreparedChild {
            event_loop,
            permit: Some(permit),
            generation: generation.id,
            observer,
        });
        // Values that its service made for it are the user's.
        panics::discard(before);
    }

    /// Returns what is prepared for a child, which has it until it ends.
    fn prepared_for(&self, generation: &Generation) -> MutexGuard<'_, Option<PreparedChild>> {
        let prepared = lock(&self.prepared.0);
        if prepared.as_ref().is_some_and(|prepared| prepared.generation == generation.id) {
            return prepared;
        }
        drop(prepared);
        self.prepare(generation);
        lock(&self.prepared.0)
    }
}

fn serve(template: &ChildTemplate, child: NewChild<'_>, page: ChildPage) -> Result<(), Errno> {
    let NewChild { incoming, id, generation, .. } = child;
    let Incoming { socket, permit, remote, side, lag, connect_time, .. } = incoming;
    // The generation and the permit are the parent's to give back.
    let (generation, permit_of_parent) = (ManuallyDrop::new(generation), ManuallyDrop::new(permit));
    // Nothing of it is dropped or moved: the process ends, and pages that are written are copied.
    let mut prepared = ManuallyDrop::new(template.prepared_for(&generation));
    let PreparedChild { event_loop, permit: own, observer, .. } = prepared.as_mut().expect("it was just prepared");
    name_next(&mut event_loop.connections.streams, id, permit_of_parent.listener().map(|listener| &listener.address));
    // The counts go where the parent sees them, also when this process is killed.
    std::mem::forget(std::mem::replace(&mut event_loop.connections.streams.io.counters, page.counters()));
    *lock(&observer.0) = Some(page.clone());
    let permit = own.take().expect("what is prepared is for one connection");
    // However this process dies, its peer does not take that for an orderly end. It fails where the connection is gone already.
    let resets = Kernel.reset_on_close(socket.as_fd()).is_ok();
    event_loop.connections.streams.page = Some(page).filter(|page| resets || !page.end_in_order());
    event_loop.intake().adopt_incoming(Incoming { socket, permit, remote, side, arrival: None, lag, connect_time });
    if event_loop.count() > 0 { run(event_loop) } else { Ok(()) }
}

fn shared(
    template: &ChildTemplate,
    shared_counters: SharedCounters,
    limiter: Arc<Limiter>,
    generation: Arc<Generation>,
    observer: Arc<PageObserver>,
) -> Arc<Shared> {
    Shared::new(Basis {
        system: Arc::new(Kernel),
        shared_counters,
        process: None,
        limiter,
        generation,
        // No worker runs: a job runs where its connection runs.
        workers: Workers::new(1),
        delegates: Delegates::new(1, template.stack),
        observer: Some(observer),
        admission: Arc::new(Limits::default()),
        placement: None,
    })
}

/// Runs a connection that has not ended at once: this process is there to be asked to end.
fn run(event_loop: &mut EventLoop) -> Result<(), Errno> {
    event_loop.awaken()?;
    let signals = fork::watch_for_end()?;
    event_loop.notice(ASKED, signals.as_fd())?;
    let mut events = Events::with_capacity(4);
    event_loop.inbox().wake.read_here();
    while event_loop.count() > 0 {
        event_loop.turn(&mut events, |_| ());
        if std::mem::take(&mut event_loop.noticed) != 0 {
            listen(event_loop, &signals);
        }
    }
    Ok(())
}

/// Listens to signals. The loop keeps each deadline, so the nearest counts.
fn listen(event_loop: &mut EventLoop, signals: &OwnedFd) {
    let Some(how) = fork::asked_to_end(signals.as_fd()) else { return };
    let Some(within) = how.within else {
        let all = Selecting::of(&mut event_loop.connections.streams).choose(&Selector::All);
        all.into_iter().for_each(|token| drain_one(&mut event_loop.connections, token));
        return;
    };
    let endings = Endings::within(within);
    let mut counted = CountedEnd::of(&mut event_loop.connections, &endings);
    if how.at_once { counted.purge(&Selector::All, within) } else { counted.drain_all() }
}
