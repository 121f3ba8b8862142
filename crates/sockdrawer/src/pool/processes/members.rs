//! Helpers as members of a pool, for the control plane.

use super::change::agree;
use super::channel::{ANSWERS_WITHIN, Channel};
use super::helpers::{Announced, Helpers, HelpersState, live_generations, parts, told};
use super::registry::generated;
use super::supervise::HelperNews;
use super::wire::{Generated, HelperRequest, Start, Tuning};
use super::{change, helpers, supervise};
use crate::config::{Config, Listening, Model, Part};
use crate::error::Error;
use crate::event_loop::generation::MAX_GENERATIONS;
use crate::event_loop::notifier::Notifier;
use crate::event_loop::user_code;
use crate::gather::{Answers, ReplyTo, gather};
use crate::limit::limiter::Limiter;
use crate::model::prefork;
use crate::observe::{Event, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::pool::control::{Control, Core, Member};
use crate::pool::listeners::ListenerEntry;
use crate::pool::members::{Changing, Members};
use crate::pool::request::Reply;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::sys::System;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks at processes that have said nothing.
const LOOK: Duration = Duration::from_millis(500);
/// The least time without a beat after which a process is taken to be stopped: it beats each second.
const SILENT_AFTER: Duration = Duration::from_secs(2);

impl Members for Helpers {
    type Running = Arc<Channel>;
    type State = HelpersState;
    type Next = Generated;
    type Start = Announced;
    type News = HelperNews;
    type GaveUp = Reply;

    const PART: Part = Part::Process;
    const SHARE_A_SOCKET: bool = true;
    const REPLACED_WHILE_DRAINING: bool = false;
    const STOP_WITHIN: Duration = ANSWERS_WITHIN;

    fn system(&self) -> &Arc<dyn System> {
        &self.system
    }

    fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    fn notifier(&self) -> &Notifier {
        &self.news
    }

    fn tell(&self, event: &Event) {
        if let Some(observer) = lock(&self.observer).clone() {
            user_code::tell(self, || observer.event(event));
        }
        self.news.notify();
    }

    fn waited_code(&self) -> Option<&'static str> {
        user_code::code_of(self)
    }

    fn wanted(config: &Config) -> usize {
        prefork::processes(config)
    }

    fn limit(&self, _own: &HelpersState, wanted: &Config) -> Result<Option<usize>, Error> {
        Helpers::effective_limit(wanted).map(Some)
    }

    fn live_generations(_: &Core<Helpers>, control: &mut Control<Helpers>, wanted: &Config) -> Vec<(u32, usize)> {
        // Helpers are asked only where it may matter: those of a generation may be gone without having said so yet.
        if wanted.max_generations.is_none() && control.own.holders.len() < MAX_GENERATIONS {
            return Vec::new();
        }
        live_generations(control.generation, &parts(&control.running().cloned().collect::<Vec<_>>())).into_iter().collect()
    }

    fn next(&self, control: &Control<Helpers>, wanted: &Config) -> Result<Generated, Error> {
        generated(wanted, control.generation + 1)
    }

    fn open(
        core: &Core<Helpers>,
        control: &mut Control<Helpers>,
        added: &[ListenerEntry],
        (config, asked): (&Config, &Listening),
    ) -> Result<ListenerEntry, Error> {
        change::open(core, control, added, config, asked)
    }

    fn tune(_: &Core<Helpers>, control: &Control<Helpers>, wanted: &Config) -> Result<(), Error> {
        tune(control, &control.config, wanted)
    }

    fn prepare(_: &Core<Helpers>, control: &Control<Helpers>, change: &Changing<'_, Helpers>) -> Result<(), Error> {
        let Some(next) = &change.next else { return Ok(()) };
        let started = change.started.iter().filter_map(|(_, member)| member.running.as_ref());
        agree(control.running().chain(started), || HelperRequest::Prepare(next.clone()))
    }

    /// Undoes a change: helpers had it this way before, so they can have it again.
    fn undo(_: &Core<Helpers>, control: &Control<Helpers>, change: &Changing<'_, Helpers>) {
        if change.next.is_some() {
            let _ = agree(control.running(), || HelperRequest::Forget);
        }
        let _ = tune(control, change.wanted, &control.config);
    }

    fn commit(
        core: &Core<Helpers>,
        control: &mut Control<Helpers>,
        wanted: &Config,
        next: Option<Generated>,
        _limit: Option<usize>,
    ) {
        if let Some(next) = next {
            change::switch_to(core, control, next);
        }
        let rate = |config: &Config| config.limits().and_then(|limits| limits.rate.clone());
        if rate(&control.config) != rate(wanted) {
            core.own.shared_counters.pace().store(0, Ordering::SeqCst);
        }
        *lock(&core.own.observer) = wanted.observer.clone();
    }

    fn pass_accept_state(_: &Core<Helpers>, control: &mut Control<Helpers>, until: Instant) {
        let within = until.saturating_duration_since(Instant::now());
        told(control.running(), within, || HelperRequest::AcceptState(control.accept_state.clone(), within)).for_each(drop);
    }

    fn pass_listener_accept_states(_: &Core<Helpers>, control: &Control<Helpers>, entries: &[&ListenerEntry], within: Duration) {
        // A helper may have only those of an address that are on their way out.
        let meant = control.listeners.all().filter_map(|other| {
            let entry = entries.iter().find(|entry| entry.slot == other.slot)?;
            Some((other.number, entry.state.accept_state(), other.listener.is_borrowed()))
        });
        let meant: Vec<_> = meant.collect();
        let each = control.running().flat_map(|channel| meant.iter().map(move |one| (channel, one.clone())));
        let answers = gather(each, None, |(channel, (listener, accept_state, is_borrowed)), reply| {
            channel.tell(HelperRequest::ListenerAcceptState { listener, accept_state, is_borrowed, within }, &[], reply);
        });
        answers.within(within).for_each(drop);
    }

    fn start(core: &Core<Helpers>, control: &Control<Helpers>, config: &Config, index: usize) -> Announced {
        change::announce(core, control, config, index)
    }

    fn launch(core: &Core<Helpers>, _index: usize, life: u64, announced: &Announced) -> Result<Arc<Channel>, Error> {
        change::launch(core, life, announced)
    }

    fn is_current(control: &Control<Helpers>, announced: &Announced) -> bool {
        let Start { generated, accept_state, .. } = &announced.start;
        let is_built_so = generated.id == control.generation && *accept_state == control.accept_state;
        is_built_so && announced.revision == control.revision.number()
    }

    fn join(control: &mut Control<Helpers>, life: u64, _running: &Arc<Channel>) {
        control.own.holders.entry(control.generation).or_default().insert(life);
    }

    fn dismiss(channel: &Arc<Channel>) {
        channel.dismiss();
    }

    fn can_take(channel: &Arc<Channel>) -> bool {
        !channel.is_closed()
    }

    fn beat(core: &Core<Helpers>, index: usize, _running: &Arc<Channel>) -> Option<u64> {
        Some(core.own.shared_counters.beats(index).load(Ordering::Relaxed))
    }

    fn patience(config: &Config) -> Duration {
        // A helper that forks has no loop that beats.
        if config.model == Model::Prefork { config.stuck_after.max(SILENT_AFTER) } else { Duration::MAX }
    }

    fn ended(core: &Core<Helpers>, control: &mut Control<Helpers>, index: usize, life: u64) -> (Vec<Event>, bool) {
        supervise::helper_ended(core, control, index, life)
    }

    fn hear(core: &Arc<Core<Helpers>>, news: HelperNews) {
        match news {
            HelperNews::GenerationEnded { generation, life } => supervise::generation_ended(core, generation, life),
            HelperNews::Event(event) => core.tell(&event),
        }
    }

    fn look_interval(_: &Config) -> Duration {
        LOOK
    }

    fn look(core: &Core<Helpers>, control: &mut Control<Helpers>) {
        supervise::look_after(core, control);
    }

    fn offer(&self, entry: &ListenerEntry, to: &[(&Member<Helpers>, Vec<usize>)]) -> Vec<bool> {
        let mut took: Vec<bool> = to.iter().map(|(member, _)| member.running.is_some()).collect();
        let answers = gather(to, None, |(member, sockets), reply| {
            let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| entry.listener.sockets[*socket].fd()).collect();
            let (address, accept_state) = (entry.listener.address.clone(), entry.state.accept_state());
            let (listener, slot, is_borrowed) = (entry.number, entry.slot, entry.listener.is_borrowed());
            let take = HelperRequest::Take { listener, address, slot, accept_state, is_borrowed, sockets: sockets.clone() };
            if let Some(channel) = &member.running {
                channel.tell(take, &descriptors, reply);
            }
        });
        // A helper that is stopped has the sockets in its unread messages.
        answers.within(ANSWERS_WITHIN).for_each(|(index, reply)| took[index] = matches!(reply, Some(Reply::Done)));
        took
    }

    fn release(&self, entry: &ListenerEntry, from: &[(&Member<Helpers>, Vec<usize>)]) {
        let (stuck, others): (Vec<_>, Vec<_>) = from.iter().partition(|(member, _)| member.stuck);
        let release = |(member, sockets): &(&Member<Helpers>, Vec<usize>), reply: ReplyTo<Reply>| {
            let release = HelperRequest::Release { listener: entry.number, sockets: sockets.clone() };
            if let Some(channel) = &member.running {
                channel.tell(release, &[], reply);
            }
        };
        // A helper that is stopped has the request in its unread messages.
        drop(gather(stuck, None, release));
        gather(others, None, release).within(ANSWERS_WITHIN).for_each(drop);
    }

    fn let_go(_: &Core<Helpers>, control: &Control<Helpers>, entry: &ListenerEntry) -> Answers<Reply> {
        let holds = |index: usize| entry.owners.iter().flatten().any(|owner| *owner == index);
        let holders = control.members.iter().enumerate().filter(|(index, _)| holds(*index));
        let channels = holders.filter_map(|(_, member)| member.running.as_ref());
        gather(channels, None, |channel, reply| channel.tell(HelperRequest::Retire { listener: entry.number }, &[], reply))
    }

    fn apply(core: &Core<Helpers>, op: Op, selector: &Selector) -> Result<Outcome, Error> {
        helpers::apply(core, op, selector)
    }

    fn status(core: &Core<Helpers>) -> Status {
        helpers::status(core)
    }

    fn crash(core: &Core<Helpers>, part: Part, index: usize) -> bool {
        helpers::crash(core, part, index)
    }

    fn end(core: &Core<Helpers>, how: Drain) -> (Drained, Instant) {
        helpers::end(core, how)
    }

    /// Closes all channels. A helper that has not ended by `until` ends later, or is killed by the thread that reads what it says.
    fn stop(core: &Core<Helpers>, until: Instant) {
        let channels = helpers::channels(core);
        channels.iter().for_each(|channel| channel.close());
        core.own.news.wait(until, || channels.iter().all(|channel| channel.has_ended()));
    }
}

fn tune(control: &Control<Helpers>, from: &Config, to: &Config) -> Result<(), Error> {
    let wanted = Tuning::of(to);
    if Tuning::of(from) == wanted { Ok(()) } else { agree(control.running(), || HelperRequest::Tune(wanted.clone())) }
}
