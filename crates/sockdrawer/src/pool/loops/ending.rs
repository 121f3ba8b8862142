//! The end of a pool of loops.

use super::Loops;
use super::shutdown::Shutdown;
use super::{drain, replace};
use crate::admission::AcceptState;
use crate::clock::deadline;
use crate::event_loop::acceptor::Retiring;
use crate::gather::{Answers, gather};
use crate::model::loops::TurnCounter;
use crate::operation::{Drain, Drained};
use crate::pool::control::{Control, Core};
use crate::pool::listeners::ListenerEntry;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time that loops are waited for before their connections are asked to end: one that hangs takes no more of the drain's time.
const HEARS_WITHIN: Duration = Duration::from_millis(100);

/// Maximum time that a loop that hangs in user code is waited for after the deadline of a shutdown.
const STOPPED_WITHIN: Duration = Duration::from_millis(90);

/// Has the holders of these addresses accept what waits and then give them up; nothing more is waited for when all have. It is told as
/// their end.
pub(crate) fn retire(core: &Core<Loops>, control: &Control<Loops>, gone: Vec<ListenerEntry>) -> Answers<()> {
    gather(gone, None, |entry, gave_up| {
        let address = Some(entry.listener.address.clone());
        retire_sockets(control, &entry, &Retiring::new(address, core.own.shared.clone(), gave_up));
    })
}

/// Has the loops that hold the sockets of one address empty them and give them up.
pub(super) fn retire_sockets(control: &Control<Loops>, entry: &ListenerEntry, retiring: &Arc<Retiring>) {
    for (socket, owners) in entry.listener.sockets.iter().zip(&entry.owners) {
        let running = owners.iter().filter_map(|owner| control.members.get(*owner)?.running.as_ref());
        running.for_each(|running| {
            let (socket, retiring) = (socket.clone(), retiring.clone());
            running.command(move |event_loop| event_loop.intake().retire_socket(&socket, &retiring));
        });
    }
}

/// Ends the pool: connections that wait in the kernel are accepted, connected ones are drained.
pub(super) fn end(core: &Core<Loops>, how: Drain) -> (Drained, Instant) {
    {
        let mut control = lock(&core.control);
        // Sockets handed over to another process are skipped: that process accepts what waits there.
        let gone = control.listeners.take_all().into_iter().filter(|entry| !entry.listener.is_handed_over()).collect();
        core.retirements.stop();
        retire(core, &control, gone);
        control.accept_state = AcceptState::Suspended;
        core.own.pass_accept_state(&mut control, Instant::now() + HEARS_WITHIN);
    }
    // Drains that run take their time no more: all are asked to end now.
    core.own.shutdown.raise(Shutdown::Begun);
    let is_over = || {
        // In this order: a connection accepted before a socket was given up has a permit. Lingering connections have one too.
        core.own.shared.leaving.load(Ordering::SeqCst) == 0
            && core.retirements.under_way() == 0
            && core.own.shared.limiter.taken_here() == 0
    };
    let until = deadline(Instant::now(), how.deadline);
    // Loops may still be closing what was cut, which is no reason to be late.
    (drain::drain_to_the_end(core, how, is_over), deadline(until, STOPPED_WITHIN))
}

/// Stops every thread now. Connections that are left end with their loops. A loop that hangs is waited for until then, and left behind.
pub(super) fn stop(core: &Core<Loops>, until: Instant) {
    let shared = &core.own.shared;
    let threads: Vec<Arc<TurnCounter>> = {
        let control = lock(&core.control);
        control.running().for_each(|running| running.command(|event_loop| event_loop.stopping = true));
        // A loop that drops the last handle of its own pool does not wait for itself.
        let is_this = |id| id == std::thread::current().id();
        let others = control.running().filter(|running| !is_this(running.running.thread.thread().id()));
        others.map(|running| running.running.turns.clone()).collect()
    };
    shared.placement.iter().for_each(|placement| placement.stop());
    shared.workers.set_wanted(0);
    core.own.shutdown.raise(Shutdown::Here);
    shared.delegates.stop();
    let placed = || shared.placement.as_ref().map_or(0, |placement| placement.threads());
    let loops_ended = || threads.iter().all(|turns| turns.ended.load(Ordering::Acquire));
    let ended = || loops_ended() && placed() == 0 && shared.delegates.have_ended();
    shared.notifier.wait(until, ended);
    replace::drop_stranded(core);
    #[cfg(feature = "tokio")]
    end_listeners(core);
}

/// Tells a listener that takes the pool's connections that no more come.
#[cfg(feature = "tokio")]
fn end_listeners(core: &Core<Loops>) {
    let behaviour = lock(&core.control).config.behaviour.clone();
    if let Some(queue) = crate::tasks::queue(&behaviour) {
        queue.end();
    }
}
