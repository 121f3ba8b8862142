//! Loops as members of a pool, for the control plane.

use super::apply::{inboxes_of, settle};
use super::change::{listener_states_changed, same_dialer};
use super::{LoopHandle, LoopNews, Loops, LoopsState, prepare_generation};
use super::{apply, change, ending, replace, status};
use crate::admission::AcceptState;
use crate::config::{Config, Listening, Part};
use crate::error::Error;
use crate::event_loop::acceptor::Retiring;
use crate::event_loop::connections::connecting::connect_for;
use crate::event_loop::generation::Generation;
use crate::event_loop::inbox::{Asker, Command, Message};
use crate::event_loop::notifier::Notifier;
use crate::event_loop::user_code;
use crate::gather::{Answers, gather};
use crate::limit::limiter::Limiter;
use crate::listen::state::ListenerState;
use crate::observe::{Event, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::pool::control::{Control, Core, Member};
use crate::pool::listeners::ListenerEntry;
use crate::pool::members::Visit;
use crate::pool::members::{Changing, Members};
use crate::pool::plan::is_same_policy;
use crate::pool::validate::{effective_limit, make_room};
use crate::protocol::{Connect, Told};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::sys::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time between two looks at the loops.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

impl Members for Loops {
    type Running = LoopHandle;
    type State = LoopsState;
    type Next = Arc<Generation>;
    type Start = Config;
    type News = LoopNews;
    type GaveUp = ();

    const PART: Part = Part::Loop;
    const SHARE_A_SOCKET: bool = false;
    const REPLACED_WHILE_DRAINING: bool = true;
    const STOP_WITHIN: Duration = Duration::from_secs(5);

    fn system(&self) -> &Arc<dyn System> {
        &self.shared.system
    }

    fn limiter(&self) -> &Arc<Limiter> {
        &self.shared.limiter
    }

    fn notifier(&self) -> &Notifier {
        &self.shared.notifier
    }

    fn tell(&self, event: &Event) {
        self.shared.tell(event);
    }

    fn waited_code(&self) -> Option<&'static str> {
        user_code::code_of(&*self.shared)
    }

    fn wanted(config: &Config) -> usize {
        config.loops
    }

    fn limit(&self, own: &LoopsState, wanted: &Config) -> Result<Option<usize>, Error> {
        // Among several processes the limit is not this one's matter.
        if self.shared.process.is_some() {
            return Ok(None);
        }
        let limit = effective_limit(wanted, own.others)?;
        if limit > self.shared.limiter.limit() {
            // Made at once, and not in steps while connections come.
            make_room(wanted, limit, own.others);
        }
        Ok(Some(limit))
    }

    fn live_generations(core: &Core<Loops>, control: &mut Control<Loops>, _wanted: &Config) -> Vec<(u32, usize)> {
        if core.own.shared.process.is_some() {
            return Vec::new();
        }
        control.own.live_generations(control.generation).iter().map(|live| (live.id, live.live.load(Ordering::SeqCst))).collect()
    }

    fn next(&self, control: &Control<Loops>, wanted: &Config) -> Result<Arc<Generation>, Error> {
        prepare_generation(control.generation + 1, wanted, wanted.loops.max(control.members.len()))
    }

    fn open(
        core: &Core<Loops>,
        control: &mut Control<Loops>,
        added: &[ListenerEntry],
        (config, asked): (&Config, &Listening),
    ) -> Result<ListenerEntry, Error> {
        let listener = control.listeners.listen((config, asked), &core.retirements, added)?;
        let counters = core.own.shared.shared_counters.listener(0);
        let own = (!asked.layers.is_empty()).then(|| asked.address.clone());
        let state = ListenerState::new((listener.address.clone(), own), counters, asked.limit, None);
        Ok(ListenerEntry::new(control.take_number(), asked, listener, state, 0))
    }

    fn tune(core: &Core<Loops>, control: &Control<Loops>, wanted: &Config) -> Result<(), Error> {
        core.own.set_listener_options(control, &control.config.settings.options, &wanted.settings.options)
    }

    fn prepare(core: &Core<Loops>, control: &Control<Loops>, change: &Changing<'_, Loops>) -> Result<(), Error> {
        // Workers that are to go stay until nothing can fail any more: they could not be started again for sure.
        super::start_workers(core, change.wanted.workers.max(control.config.workers))
    }

    fn undo(core: &Core<Loops>, control: &Control<Loops>, change: &Changing<'_, Loops>) {
        // The old options were set before, so they can be set again.
        let _ = core.own.set_listener_options(control, &change.wanted.settings.options, &control.config.settings.options);
        // Lets those go that are too many.
        let _ = super::start_workers(core, control.config.workers);
    }

    fn commit(
        core: &Core<Loops>,
        control: &mut Control<Loops>,
        wanted: &Config,
        next: Option<Arc<Generation>>,
        limit: Option<usize>,
    ) {
        change::commit(core, control, wanted, next, limit);
    }

    fn awaited(before: &Config, wanted: &Config) -> Option<&'static str> {
        let counts_peers = wanted.limits().is_some_and(|limits| limits.per_peer.is_some());
        let waits = [
            ("loops", before.loops != wanted.loops),
            ("listen", before.listened() != wanted.listened()),
            ("connect", !same_dialer(before, wanted)),
            ("admission", counts_peers && !is_same_policy(&*before.admission, &*wanted.admission)),
        ];
        waits.into_iter().find(|(_, differs)| *differs).map(|(setting, _)| setting)
    }

    fn committed(core: &Core<Loops>, control: &Control<Loops>, before: &Config) {
        if Loops::awaited(before, &control.config).is_some() {
            settle(&inboxes_of(control));
        }
        if !is_same_policy(&*before.admission, &*control.config.admission) {
            core.own.count_peers(control);
        }
    }

    fn pass_accept_state(core: &Core<Loops>, control: &mut Control<Loops>, until: Instant) {
        core.own.pass_accept_state(control, until);
    }

    fn pass_listener_accept_states(_core: &Core<Loops>, control: &Control<Loops>, entries: &[&ListenerEntry], within: Duration) {
        // A pool that ends, or moves, comes by here also where it has none.
        if !entries.is_empty() {
            listener_states_changed(control, within);
        }
    }

    fn start(_: &Core<Loops>, _: &Control<Loops>, config: &Config, _index: usize) -> Config {
        config.clone()
    }

    fn launch(core: &Core<Loops>, index: usize, life: u64, config: &Config) -> Result<LoopHandle, Error> {
        let event_loop = super::prepare_loop(core, index, config)?;
        super::launch_loop(core, config.model, index, life, event_loop)
    }

    fn is_current(_: &Control<Loops>, _: &Config) -> bool {
        true
    }

    fn join(control: &mut Control<Loops>, _life: u64, running: &LoopHandle) {
        running.inbox.set_bound(control.config.inbox);
        let accept_state = control.accept_state.clone();
        running.command(move |event_loop| {
            // A change may have come meanwhile.
            event_loop.connections.streams.look_at_switch();
            if accept_state != AcceptState::Open {
                event_loop.intake().set_accept_state(&accept_state);
            }
        });
    }

    /// Dismisses a loop without waiting for its thread: what it drops is the user's, and may wait for the lock of changes.
    fn dismiss(running: &LoopHandle) {
        running.command(|event_loop| event_loop.stopping = true);
    }

    fn beat(_: &Core<Loops>, _index: usize, running: &LoopHandle) -> Option<u64> {
        let turn = running.running.turns.turn();
        turn.inspect(|_| running.inbox.wake.wake())
    }

    fn patience(config: &Config) -> Duration {
        config.stuck_after
    }

    fn ended(core: &Core<Loops>, control: &mut Control<Loops>, index: usize, life: u64) -> (Vec<Event>, bool) {
        let known = control.members.get_mut(index).filter(|member| member.life == life && !control.stopping);
        if let Some(dead) = known.and_then(|member| member.running.take()) {
            // Where processes share counters, those of a loop are there still.
            if core.own.shared.process.is_none() {
                dead.running.counters.add_to(&mut control.own.past);
            }
            // The thread has reported: it ends at once.
            let _ = dead.running.thread.join();
        }
        (Vec::new(), false)
    }

    fn hear(core: &Arc<Core<Loops>>, news: LoopNews) {
        match news {
            LoopNews::ThreadDied { panic } => replace::thread_died(core, panic),
            LoopNews::WorkerDied { panic } => replace::worker_died(core, &panic),
        }
    }

    fn replace_others(core: &Arc<Core<Loops>>) {
        replace::pass_on_stranded(core, &lock(&core.control));
        replace::replace_workers(core);
    }

    fn gave_up(core: &Core<Loops>) {
        replace::drop_stranded(core);
    }

    fn look_interval(config: &Config) -> Duration {
        (config.stuck_after / 5).clamp(Duration::from_millis(1), LONGEST_LOOK)
    }

    fn look(core: &Core<Loops>, control: &mut Control<Loops>) {
        let turns = control.members.iter().any(|member| member.running.is_some() && !member.stuck);
        if let Some(process) = core.own.shared.process {
            core.own.shared.shared_counters.beats(process).fetch_add(u64::from(turns), Ordering::Relaxed);
        }
    }

    fn offer(&self, entry: &ListenerEntry, to: &[(&Member<Loops>, Vec<usize>)]) -> Vec<bool> {
        let offer = |(member, sockets): &(&Member<Loops>, Vec<usize>)| {
            let sockets: Vec<_> = sockets.iter().map(|socket| entry.listener.sockets[*socket].clone()).collect();
            let state = entry.state.clone();
            let running = member.running.as_ref();
            if let Some(running) = running {
                running.command(move |event_loop| {
                    sockets.into_iter().for_each(|socket| event_loop.intake().take_socket(socket, state.clone()));
                });
            }
            running.is_some()
        };
        to.iter().map(offer).collect()
    }

    fn release(&self, entry: &ListenerEntry, from: &[(&Member<Loops>, Vec<usize>)]) {
        for (member, sockets) in from {
            let sockets: Vec<_> = sockets.iter().map(|socket| entry.listener.sockets[*socket].clone()).collect();
            let command = move |event_loop: &mut crate::event_loop::EventLoop| {
                sockets.iter().for_each(|socket| event_loop.intake().release_socket(socket));
            };
            member.running.iter().for_each(|running| running.command(command.clone()));
        }
    }

    fn balanced(core: &Core<Loops>, control: &mut Control<Loops>) {
        core.own.balanced(control);
    }

    fn let_go(core: &Core<Loops>, control: &Control<Loops>, entry: &ListenerEntry) -> Answers<()> {
        gather([entry], None, |entry, gave_up| {
            ending::retire_sockets(control, entry, &Retiring::new(None, core.own.shared.clone(), gave_up));
        })
    }

    fn apply(core: &Core<Loops>, op: Op, selector: &Selector) -> Result<Outcome, Error> {
        Ok(apply::apply(core, op, selector))
    }

    fn visit_locals(core: &Core<Loops>, visit: Visit) {
        status::visit_locals(core, visit);
    }

    fn connect(core: &Core<Loops>, connect: Connect, told: Told) {
        let inboxes = apply::inboxes_of_loops(core);
        let turn = core.own.turn.fetch_add(1, Ordering::Relaxed);
        if let Some(inbox) = inboxes.get(turn % inboxes.len().max(1)) {
            let begin: Command =
                Box::new(move |event_loop| connect_for(&mut event_loop.connections, Asker::Code(Some(told)), connect));
            // A loop that is gone drops what it was asked.
            let _ = inbox.put(Message::Command(begin));
        }
    }

    fn status(core: &Core<Loops>) -> Status {
        status::status(core)
    }

    fn crash(core: &Core<Loops>, part: Part, index: usize) -> bool {
        status::crash(core, part, index)
    }

    fn end(core: &Core<Loops>, how: Drain) -> (Drained, Instant) {
        ending::end(core, how)
    }

    fn stop(core: &Core<Loops>, until: Instant) {
        ending::stop(core, until);
    }
}
