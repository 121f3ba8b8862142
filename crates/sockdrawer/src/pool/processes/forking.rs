//! The helper of the model `fork`: one thread that accepts, forks, reaps, and passes on what the pool asks of connections.

use super::child::ChildTemplate;
use super::ends::Ends;
use super::listener_states::ListenerStates;
use super::refusals::{CANNOT_BEGIN, check, check_sockets, done, other};
use super::registry;
use super::to_pool::ToPool;
use super::wire::{Generated, HelperRequest, Start, ToHelper, Tuning};
use crate::event_loop::acceptor::Retiring;
use crate::event_loop::delegates::Delegates;
use crate::event_loop::endings::Endings;
use crate::event_loop::generation::{Generation, Services};
use crate::event_loop::inbox::Inbox;
use crate::event_loop::worker::Workers;
use crate::event_loop::{Basis, EventLoop, EventLoopError, Shared};
use crate::gather::{Answers, gather};
use crate::ipc::packets::Receiver;
use crate::ipc::shared_counters::{MAX_LOOPS, SharedCounters};
use crate::limit::limiter::{Limiter, Process};
use crate::listen::socket::ListenSocket;
use crate::listen::state::ListenerState;
use crate::model::fork::{Child, Children};
use crate::net::{Address, SocketOptions};
use crate::observe::{ConnectionState, ConnectionStatus, Counts, Event, GenerationStatus, LoopStatus};
use crate::operation::{Drain, Op, Outcome, Page, Selector, Traits};
use crate::pool::request::{PartStatus, Refusal, Reply, Request};
use crate::protocol::Side;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sys::{Errno, Events, Kernel, System, Unforked, fork, panics};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bits by which the helper's event loop notices a request, and an ended child.
const POOL: u32 = 0;
const CHILDREN: u32 = 1;
/// The bit by which it notices that connections of programs are to be looked at.
const PROGRAMS: u32 = 2;

/// Events of one turn. A forking helper has few descriptors.
const EVENTS_PER_TURN: usize = 16;

/// Runs a forking helper from its beginning to its end.
pub(super) fn run(start: Start, number: u64, descriptors: Vec<OwnedFd>, to_pool: Arc<ToPool>, receiver: Receiver) -> ! {
    let begun = Forking::begin(start, descriptors, &to_pool, receiver).and_then(|helper| Unforked::new(helper).map_err(system));
    match begun {
        Ok(mut helper) => {
            to_pool.reply(number, Reply::Done);
            helper.serve();
            helper.children.kill_programs();
            std::process::exit(0);
        }
        Err(refusal) => {
            to_pool.reply(number, Reply::Refused(refusal));
            std::process::exit(CANNOT_BEGIN);
        }
    }
}

struct Forking {
    event_loop: EventLoop,
    shared: Arc<Shared>,
    children: Arc<Children>,
    template: Arc<ChildTemplate>,
    to_pool: Arc<ToPool>,
    receiver: Receiver,
    events: Events,
    /// The descriptor that is readable when a child has ended.
    ended: OwnedFd,
    ends: Ends,
    /// The sockets that it accepts from, by the pool's numbers.
    sockets: HashMap<(u64, usize), Arc<ListenSocket>>,
    listener_states: HashMap<u64, Arc<ListenerState>>,
    known_listeners: ListenerStates,
    /// Listeners that are being given up, each with the number of the request.
    retiring: Vec<(u64, Answers<()>)>,
    generations: Vec<Arc<Generation>>,
    /// The generation in force, as it was built.
    generated: Generated,
    /// The generation that was prepared.
    next: Option<(Arc<Generation>, Generated)>,
    /// True where the helper ends when no child is left.
    last: bool,
}

fn system(errno: Errno) -> Refusal {
    other(std::io::Error::from(errno))
}

pub(super) fn build(generated: &Generated) -> Result<Arc<Generation>, Refusal> {
    let behaviour = registry::build(&generated.recipe).map_err(Refusal::Other)?;
    let services = Services { service: behaviour.service().clone(), own: Vec::new() };
    Generation::prepare(generated.id, services, generated.settings.clone(), 1, 1)
        .map_err(|panicked| Refusal::Panicked(panicked.0))
}

impl Forking {
    fn begin(start: Start, descriptors: Vec<OwnedFd>, to_pool: &Arc<ToPool>, receiver: Receiver) -> Result<Forking, Refusal> {
        let [numbers, event] = check(&start, descriptors)?;
        panics::caught_on_this_thread();
        let shared_counters = SharedCounters::map(numbers.as_fd()).map_err(system)?;
        let Tuning { inbox, stack, .. } = start.tuning;
        let kernel: Arc<dyn System> = Arc::new(Kernel);
        let process = Process { index: Some(start.index), most: start.most, event: Arc::new(event), system: kernel.clone() };
        let limit = shared_counters.limit().load(SeqCst) as usize;
        // The memory that is written for each connection is made together, because forking makes each of its pages cost a copy.
        let generation = build(&start.generated)?;
        let limiter = Limiter::shared(shared_counters.clone(), limit, Some(process.clone()));
        let events = Events::with_capacity(EVENTS_PER_TURN);
        let template = Arc::new(ChildTemplate { prepared: Box::default(), inbox, stack });
        let own = vec![to_pool.end().as_raw_fd(), process.event.as_raw_fd()];
        let children = Children::new(template.clone(), shared_counters.clone(), numbers, own).map_err(system)?;
        let tells = to_pool.clone();
        let shared = Shared::new(Basis {
            system: kernel.clone(),
            limiter,
            shared_counters,
            process: Some(start.index),
            generation: generation.clone(),
            workers: Workers::new(1),
            delegates: Delegates::new(1, start.tuning.stack),
            observer: Some(Arc::new(move |event: &Event| tells.tell(event))),
            admission: Arc::new(start.tuning.limits),
            placement: Some(children.clone()),
        });
        let inbox = Inbox::new(kernel, start.tuning.inbox).map_err(system)?;
        let mut event_loop = EventLoop::new(0, shared.clone(), inbox, 1).map_err(|error| match error {
            EventLoopError::System(errno) => system(errno),
            EventLoopError::Service(panicked) => Refusal::Panicked(panicked.0),
        })?;
        event_loop.inbox().wake.read_here();
        let ended = fork::watch_children().map_err(system)?;
        for (number, descriptor) in [(POOL, to_pool.end()), (CHILDREN, ended.as_fd())] {
            event_loop.notice(number, descriptor).map_err(system)?;
        }
        children.notice(&event_loop, PROGRAMS).map_err(system)?;
        children.keep_from_children(event_loop.descriptors().map_err(system)?.into_iter().chain([ended.as_raw_fd()]));
        event_loop.intake().set_accept_state(&start.accept_state);
        template.prepare(&generation);
        if !fork::is_alone() {
            return Err(other("building the service started a thread: a helper that forks must have none; use prefork"));
        }
        Ok(Forking {
            event_loop,
            shared,
            children,
            template,
            to_pool: to_pool.clone(),
            receiver,
            events,
            ended,
            ends: Ends::default(),
            sockets: HashMap::new(),
            listener_states: HashMap::new(),
            known_listeners: ListenerStates::new(Process { most: usize::MAX, ..process }),
            retiring: Vec::new(),
            generations: vec![generation],
            generated: start.generated,
            next: None,
            last: false,
        })
    }

    fn serve(&mut self) {
        while !(self.last && self.ends.is_empty()) {
            self.event_loop.turn_until = self.ends.due().into_iter().chain(self.children.due()).min();
            self.event_loop.turn(&mut self.events, |_| ());
            let noticed = std::mem::take(&mut self.event_loop.noticed);
            let has = |number: u32| noticed & (1 << number) != 0;
            if has(CHILDREN) {
                fork::clear(self.ended.as_fd());
                self.children.reap(&self.event_loop, |pid, cut| self.ends.ended(pid, cut));
            }
            if has(PROGRAMS) {
                self.children.gone().into_iter().for_each(|pid| self.ends.peer_gone(pid, &self.children));
            }
            if has(POOL) && !self.listen() {
                return;
            }
            self.go_on();
        }
    }

    /// Does what the pool asks. False when it is gone.
    /// Not a part of a turn in which connections come: of what is on the stack there, a fork costs this process copies.
    #[inline(never)]
    fn listen(&mut self) -> bool {
        loop {
            match self.receiver.receive::<ToHelper>(self.to_pool.end(), false) {
                Ok(Some(((number, request), descriptors))) => {
                    if let Some(reply) = self.answer(number, request, descriptors.unwrap_or_default()) {
                        self.to_pool.reply(number, reply);
                    }
                }
                Err(Errno::AGAIN) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Goes on with what waits for time, for a listener's queue, or for children.
    fn go_on(&mut self) {
        self.children.close_lingering();
        // Connections that came in while the pool was already ending are asked, too.
        self.ends.drain_more(&self.children);
        self.ends.go_on(&self.children);
        if self.ends.is_time_over() && !self.retiring.is_empty() {
            let waited = Endings::within(Duration::ZERO);
            self.event_loop.cut_queues(&waited);
            self.ends.add_cut(waited.tell(|| 0).1);
        }
        let mut retired = Vec::new();
        self.retiring.retain_mut(|(number, gave_up)| {
            let over = gave_up.rest_by(Instant::now());
            if over {
                retired.push(*number);
            }
            !over
        });
        retired.into_iter().for_each(|number| self.ends.retired(number));
        for (number, reply) in self.ends.answered(self.shared.limiter.taken()) {
            self.last |= self.ends.was_last(number);
            self.to_pool.reply(number, reply);
        }
        self.tell_ended();
        self.generations.retain(|generation| generation.id == self.generated.id || generation.live.load(SeqCst) > 0);
    }

    /// Answers a request. None: the answer comes later.
    fn answer(&mut self, number: u64, request: HelperRequest, descriptors: Vec<OwnedFd>) -> Option<Reply> {
        let reply = match request {
            HelperRequest::Prepare(next) => done(self.prepare(&next)),
            HelperRequest::Forget => {
                self.forget();
                Reply::Done
            }
            HelperRequest::Committed => done(self.committed()),
            HelperRequest::Tune(tuning) => {
                self.shared.set_admission(Arc::new(tuning.limits));
                self.event_loop.intake().policy_changed();
                self.children.count_peers(&self.shared.policy.get());
                Reply::Done
            }
            HelperRequest::Take { listener, address, slot, accept_state, is_borrowed, sockets } => {
                let state = self.state(listener, &address, slot);
                state.set_accept_state(&accept_state);
                done(self.take(listener, &state, is_borrowed, &sockets, descriptors))
            }
            HelperRequest::Release { listener, sockets } => {
                for socket in sockets.iter().filter_map(|socket| self.sockets.remove(&(listener, *socket))) {
                    self.event_loop.intake().release_socket(&socket);
                }
                Reply::Done
            }
            HelperRequest::Retire { listener } => {
                self.retire(number, |(of, _)| *of == listener);
                self.ends.wait_for_listener(number);
                return None;
            }
            HelperRequest::AcceptState(accept_state, _) => {
                self.event_loop.intake().set_accept_state(&accept_state);
                Reply::Done
            }
            HelperRequest::ListenerAcceptState { listener, accept_state, is_borrowed, .. } => {
                self.listener_states.get(&listener).into_iter().for_each(|state| state.set_accept_state(&accept_state));
                let of_it = self.sockets.iter().filter(|((of, _), _)| *of == listener);
                // The pool has given them their options where they are not any more.
                of_it.for_each(|(_, socket)| socket.set_borrowed(is_borrowed, &Kernel));
                self.event_loop.intake().policy_changed();
                Reply::Done
            }
            HelperRequest::Status => Reply::Status(Box::new(self.status())),
            HelperRequest::Ask(Request::Turn(_)) => Reply::Done,
            asks => return self.ask(number, asks),
        };
        Some(reply)
    }

    /// Does or answers a request about connections: into their processes only signals reach.
    fn ask(&mut self, number: u64, request: HelperRequest) -> Option<Reply> {
        let reply = match request {
            HelperRequest::Apply(Op::Kill, selector) => {
                self.ends.kill(number, self.meant(&selector), &self.children);
                return None;
            }
            HelperRequest::Apply(Op::Drain(how), selector) => {
                self.ends.drain(number, self.meant(&selector), how);
                return None;
            }
            HelperRequest::Apply(Op::Purge(within), selector) => {
                self.ends.purge(number, self.meant(&selector), within);
                return None;
            }
            HelperRequest::Shutdown(how) => {
                self.end(number, how);
                return None;
            }
            HelperRequest::Apply(op, selector) => Reply::Outcome(Box::new(self.apply(&op, selector))),
            _ => Reply::Refused(other("a forking helper has no such part")),
        };
        Some(reply)
    }

    fn apply(&self, op: &Op, selector: Selector) -> Outcome {
        let mut answer = Outcome::default();
        match op {
            Op::Count => answer.done = self.meant(&selector).len(),
            Op::List(page) => (answer.list, answer.next) = self.list(&selector, *page),
            Op::Adopt => {
                for pid in self.meant(&selector.and(!Selector::Generation(self.generated.id))) {
                    let stays = Err("its process was made before the service, and obeys signals only".to_owned());
                    self.children.with(pid, |child| answer.adopted.add(child.id, stays));
                }
            }
            // An end is a signal, which is answered when the process has ended; all else is the connection's own.
            _ => {}
        }
        answer
    }

    /// Returns the processes of connections that are meant.
    fn meant(&self, selector: &Selector) -> Vec<u32> {
        let now = Instant::now();
        self.children.choose(|_, child| selector.takes(&traits(child, now)))
    }

    /// Returns a part of the connections that are meant, and the number of the first that was not looked at.
    fn list(&self, selector: &Selector, page: Page) -> (Vec<ConnectionStatus>, Option<u64>) {
        let mut part = Vec::new();
        self.children.choose(|pid, child| {
            part.push((child.id.0, pid));
            false
        });
        let (next, now) = (page.cut(&mut part), Instant::now());
        let meant = |pid, child: &Child| selector.takes(&traits(child, now)).then(|| self.listed(pid, child));
        (part.into_iter().filter_map(|(_, pid)| self.children.with(pid, |child| meant(pid, child)).flatten()).collect(), next)
    }

    fn listed(&self, pid: u32, child: &Child) -> ConnectionStatus {
        let counts = child.counts();
        let bytes = (counts.bytes_in, counts.bytes_out);
        // Only its own process knows what the connection is doing.
        traits(child, Instant::now()).status(Side::Accepted, bytes, ConnectionState::Delegated, self.ends.is_draining(pid))
    }

    fn status(&self) -> PartStatus {
        let generations = self.generations.iter();
        let live =
            |generation: &Arc<Generation>| GenerationStatus { id: generation.id, connections: generation.live.load(SeqCst) };
        let accepted = self.event_loop.counters().accepted().get();
        let mut counts = Counts::default();
        (0..MAX_LOOPS).for_each(|index| self.shared.shared_counters.counters(0, index).add_to(&mut counts));
        self.children.add_to(&mut counts);
        PartStatus {
            counts: Some(Box::new(counts)),
            generations: generations.map(live).collect(),
            loops: vec![LoopStatus { connections: 0, accepted, active: true, stuck: false }],
            workers: 0,
            jobs_waiting: 0,
            delegates: 0,
            delegates_waiting: 0,
            restarts: 0,
        }
    }

    fn prepare(&mut self, next: &Generated) -> Result<(), Refusal> {
        let generation = build(next)?;
        if !fork::is_alone() {
            return Err(other("building the service started a thread: a helper that forks must have none; use prefork"));
        }
        if let Err(errno) = self.set_options(&next.settings.options) {
            // These options were set before, so they can be set again.
            let _ = self.set_options(&self.generated.settings.options);
            return Err(system(errno));
        }
        self.shared.switch.prepare(Some(generation.clone()));
        self.next = Some((generation, next.clone()));
        Ok(())
    }

    fn forget(&mut self) {
        self.shared.switch.prepare(None);
        if self.next.take().is_some() {
            let _ = self.set_options(&self.generated.settings.options);
        }
    }

    /// Sets the options that connections inherit from their listeners.
    fn set_options(&self, options: &SocketOptions) -> Result<(), Errno> {
        self.sockets.values().try_for_each(|socket| socket.set_options(&Kernel, options))
    }

    fn committed(&mut self) -> Result<(), Refusal> {
        let (generation, generated) = self.next.take().ok_or_else(|| other("nothing was prepared"))?;
        self.generated = generated;
        self.event_loop.connections.streams.look_at_switch();
        self.template.prepare(&generation);
        self.generations.push(generation);
        Ok(())
    }

    /// Tells the end of generations that had no connection when they were retired.
    fn tell_ended(&self) {
        for ended in self.generations.iter().filter(|generation| generation.has_ended()) {
            self.shared.tell(&Event::GenerationEnded(ended.id));
        }
    }

    fn state(&mut self, listener: u64, address: &Address, slot: usize) -> Arc<ListenerState> {
        let state = self.known_listeners.at(slot, address, &self.shared.shared_counters);
        self.listener_states.entry(listener).or_insert(state).clone()
    }

    fn take(
        &mut self,
        listener: u64,
        state: &Arc<ListenerState>,
        is_borrowed: bool,
        numbers: &[usize],
        sockets: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        check_sockets(numbers, &sockets)?;
        for (number, socket) in numbers.iter().zip(sockets) {
            let socket = ListenSocket::new(Arc::new(socket), false);
            socket.set_borrowed(is_borrowed, &Kernel);
            self.children.add_listener(&socket);
            self.sockets.insert((listener, *number), socket.clone());
            self.event_loop.intake().take_socket(socket, state.clone());
        }
        Ok(())
    }

    fn retire(&mut self, number: u64, meant: impl Fn(&(u64, usize)) -> bool) {
        let gone: Vec<_> = self.sockets.extract_if(|key, _| meant(key)).map(|(_, socket)| socket).collect();
        self.listener_states.retain(|listener, _| self.sockets.keys().any(|(of, _)| of == listener));
        let retired = gather([gone], None, |gone, gave_up| {
            // The address is the pool's to tell.
            let retiring = Retiring::new(None, self.shared.clone(), gave_up);
            gone.iter().for_each(|socket| self.event_loop.intake().retire_socket(socket, &retiring));
        });
        self.retiring.push((number, retired));
    }

    /// Ends all: what waits in the queues is accepted, then every child is asked to end.
    fn end(&mut self, number: u64, how: Drain) {
        self.retire(number, |_| true);
        self.event_loop.intake().suspend();
        let all = self.children.choose(|_, _| true);
        self.ends.end(number, all, how);
    }
}

/// Returns the traits that a child is chosen by.
fn traits(child: &Child, now: Instant) -> Traits<'_> {
    let age = now.duration_since(child.since);
    Traits { id: child.id, generation: child.generation.id, peer: child.peer(), age, listener: child.listener(), tag: None }
}
