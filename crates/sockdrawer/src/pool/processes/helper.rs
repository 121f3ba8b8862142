//! A helper: a process that runs loops for a pool in another process, and does as it is told.

use super::forking;
use super::listener_states::ListenerStates;
use super::refusals::{CANNOT_BEGIN, check, check_sockets, done, other, refusal};
use super::registry;
use super::to_pool::ToPool;
use super::wire::{Generated, HelperRequest, Start, ToHelper};
use crate::behaviour::{Build, BuildLayer};
use crate::config::{Config, Listening, Model};
use crate::event_loop::generation::Generation;
use crate::ipc::packets::Receiver;
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::{Limiter, Process};
use crate::listen::listener::BoundListener;
use crate::listen::socket::ListenSocket;
use crate::listen::state::ListenerState;
use crate::observe::Event;
use crate::operation::{Drain, Op};
use crate::pool::control::Core;
use crate::pool::listeners::ListenerEntry;
use crate::pool::loops::apply::settle;
use crate::pool::loops::change::listener_states_changed;
use crate::pool::loops::{self, apply, change, ending, status};
use crate::pool::loops::{Foundation, Loops};
use crate::pool::manager::Manager;
use crate::pool::request::{PartStatus, Refusal, Reply};
use crate::sync::lock;
use crate::sys::{Kernel, process};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Lets this program run pools in processes of their own ([`Model::Fork`](crate::Model::Fork),
/// [`Model::Prefork`](crate::Model::Prefork)). Call it first of all in `main`, before arguments are parsed and threads started: a
/// helper is this program started again, and this call is where it turns into a helper and never returns. In the program itself it
/// returns at once.
///
/// `recipes` name what a helper may be asked to build, see [`Service::recipe`](crate::Service::recipe).
///
/// ```no_run
/// # use sockdrawer::{Context, Input, Peer, Protocol, Recipe, Service, Step};
/// struct Echo;
/// impl Service for Echo {
///     type Protocol = Echo;
///     fn open(&self, _peer: &Peer) -> Echo {
///         Echo
///     }
///     fn recipe(&self) -> Option<Recipe> {
///         Some(Recipe { name: "echo".to_owned(), options: Vec::new() })
///     }
/// }
/// # impl Protocol for Echo {
/// #     fn received(&mut self, i: &mut Input<'_>, cx: &mut Context<'_>) -> Step { cx.send(i.bytes()); i.take_all(); Step::Continue }
/// # }
/// fn main() {
///     sockdrawer::processes(&[("echo", |_options| Ok(Echo.into()))]);
///     // The program begins here.
/// }
/// ```
pub fn processes(recipes: &[(&str, Build)]) {
    // A second call adds nothing: a helper has long been diverted by the first.
    registry::set(recipes);
    if let Some(end) = process::helper_end() {
        run(end);
    }
}

/// Names layers that helpers can put around what they build, see [`Filtering::recipe`](crate::layer::Filtering::recipe). Call it before
/// [`processes`]. The layer of PROXY headers is known without.
pub fn layers(layers: &[(&str, BuildLayer)]) {
    registry::set_layers(layers);
}

/// Runs a helper to its end: it ends when its pool says so, or when the other end of `end` is gone, and with it the pool.
pub(super) fn run(end: OwnedFd) -> ! {
    let mut receiver = Receiver::default();
    let Ok(end) = process::settle_helper(end) else { std::process::exit(CANNOT_BEGIN) };
    let to_pool = Arc::new(ToPool::new(end));
    let start = receiver.receive::<ToHelper>(to_pool.end(), true).ok().flatten();
    let Some(((number, HelperRequest::Start(start)), descriptors)) = start else { std::process::exit(CANNOT_BEGIN) };
    if start.model == Model::Fork {
        forking::run(*start, number, descriptors.unwrap_or_default(), to_pool, receiver);
    }
    let mut helper = match Helper::begin(*start, descriptors.unwrap_or_default(), &to_pool) {
        Ok(helper) => helper,
        Err(refusal) => {
            to_pool.reply(number, Reply::Refused(refusal));
            std::process::exit(CANNOT_BEGIN);
        }
    };
    to_pool.reply(number, Reply::Done);
    while let Ok(Some(((number, request), descriptors))) = receiver.receive::<ToHelper>(to_pool.end(), true) {
        // A request whose descriptors found no room here has none, and is refused where it needs them.
        helper.answer(number, request, descriptors.unwrap_or_default());
    }
    std::process::exit(0);
}

pub(super) struct Helper {
    pub(super) core: Arc<Core<Loops>>,
    pub(super) to_pool: Arc<ToPool>,
    pub(super) listener_states: ListenerStates,
    /// The loop that restores connections next.
    pub(super) turn: usize,
    /// The sockets that it accepts from, by the pool's numbers. The loops own them: one that retires goes when its queue is empty.
    sockets: HashMap<(u64, usize), Weak<ListenSocket>>,
    /// The configuration and generation that come into force when the switch word is stored. The generation before is kept until then: loops that
    /// switch at once would forget it before its end is told.
    next: Option<(Config, Arc<Generation>)>,
    /// A count of the threads that owe the pool an answer: each has a clone.
    owed: Arc<()>,
}

/// The maximum of what the end of a helper waits for its other answers: of drains and purges, whose connections have ended with it.
const ANSWERED_WITHIN: Duration = Duration::from_millis(50);

impl Helper {
    fn begin(start: Start, descriptors: Vec<OwnedFd>, to_pool: &Arc<ToPool>) -> Result<Helper, Refusal> {
        let [numbers, event] = check(&start, descriptors)?;
        let behaviour = registry::build(&start.generated.recipe).map_err(Refusal::Other)?;
        let mut config = Config::accept(behaviour).settings(|settings| *settings = start.generated.settings);
        start.tuning.apply(&mut config);
        let tells = to_pool.clone();
        config = config.observer(move |event: &Event| tells.tell(event));
        let shared_counters = SharedCounters::map(numbers.as_fd()).map_err(|errno| other(std::io::Error::from(errno)))?;
        let event = Arc::new(event);
        let process = Process { index: Some(start.index), most: start.most, event, system: config.system.clone() };
        let limit = shared_counters.limit().load(crate::sync::atomic::Ordering::SeqCst) as usize;
        let limiter = Limiter::shared(shared_counters.clone(), limit, Some(process.clone()));
        let foundation = Foundation {
            shared_counters,
            limiter,
            generation: start.generated.id,
            process: Some(start.index),
            others: 0,
            inherited: None,
        };
        let core = loops::start_on(config, foundation).map_err(refusal)?;
        Manager::set_accept_state(&*core, &start.accept_state);
        let listener_states = ListenerStates::new(Process { most: usize::MAX, ..process });
        Ok(Helper {
            core,
            listener_states,
            to_pool: to_pool.clone(),
            sockets: HashMap::new(),
            turn: 0,
            next: None,
            owed: Arc::default(),
        })
    }

    /// Answers what is quick here, and leaves the rest to a thread.
    fn answer(&mut self, number: u64, request: HelperRequest, descriptors: Vec<OwnedFd>) {
        let reply = match request {
            HelperRequest::Start(_) => Reply::Refused(other("a helper begins once")),
            HelperRequest::Prepare(next) => done(self.prepare(next)),
            HelperRequest::Forget => done(self.forget()),
            HelperRequest::Committed => done(self.committed()),
            HelperRequest::Tune(tuning) => {
                let mut wanted = self.core.config();
                tuning.apply(&mut wanted);
                done(self.core.reconfigure(wanted).map(|_| ()).map_err(refusal))
            }
            HelperRequest::Take { listener, address, slot, accept_state, is_borrowed, sockets } => {
                let state = self.listener_states.at(slot, &address, &self.core.own.shared.shared_counters);
                state.set_accept_state(&accept_state);
                done(self.take(listener, state, is_borrowed, &sockets, descriptors))
            }
            HelperRequest::Release { listener, sockets } => {
                self.release(listener, &sockets);
                Reply::Done
            }
            HelperRequest::Retire { listener } => return self.retire(number, listener),
            #[cfg(feature = "upgrade")]
            HelperRequest::Ask(request) => self.take_part(request, descriptors),
            #[cfg(feature = "upgrade")]
            HelperRequest::Offer { reads, listeners, from } => return self.offer(number, reads, &listeners, from),
            HelperRequest::AcceptState(accept_state, within) => {
                self.core.put_accept_state(&mut lock(&self.core.control), &accept_state, within);
                Reply::Done
            }
            HelperRequest::ListenerAcceptState { listener, accept_state, is_borrowed, within } => {
                let control = lock(&self.core.control);
                for entry in control.listeners.listening.iter().filter(|entry| entry.number == listener) {
                    entry.state.set_accept_state(&accept_state);
                    // The pool has given them their options where they are not any more.
                    entry.listener.sockets.iter().for_each(|socket| socket.set_borrowed(is_borrowed, &Kernel));
                }
                listener_states_changed(&control, within);
                Reply::Done
            }
            HelperRequest::Apply(op @ Op::Notify(_), selector) => {
                Reply::Outcome(Box::new(apply::apply(&self.core, op, &selector)))
            }
            HelperRequest::Crash(part, index) if status::crash(&self.core, part, index) => Reply::Done,
            HelperRequest::Crash(..) => Reply::Refused(other("there is no such part")),
            HelperRequest::Shutdown(how) => return self.end(number, how),
            request => return self.answer_later(number, |core| slow(core, request)),
        };
        self.to_pool.reply(number, reply);
    }

    /// Answers by a thread of its own.
    fn answer_later(&self, number: u64, answer: impl FnOnce(&Core<Loops>) -> Reply + Send + 'static) {
        let (core, to_pool, owed) = (self.core.clone(), self.to_pool.clone(), self.owed.clone());
        let started = on_a_thread(move || {
            to_pool.reply(number, answer(&core));
            drop(owed);
            core.own.shared.notifier.notify();
        });
        if let Err(error) = started {
            self.to_pool.reply(number, Reply::Refused(other(error)));
        }
    }

    fn end(&self, number: u64, how: Drain) {
        let end = || {
            let (core, to_pool, owed) = (self.core.clone(), self.to_pool.clone(), Arc::downgrade(&self.owed));
            move || {
                core.shutdown(how, "its pool ends", |drained| {
                    let by = Instant::now() + ANSWERED_WITHIN;
                    // The helper itself has one.
                    core.own.shared.notifier.wait(by, || owed.strong_count() == 1);
                    to_pool.reply(number, Reply::Outcome(Box::new(drained.into())));
                });
                // All that it had is done; the pool closes its end when it has heard so.
                std::process::exit(0);
            }
        };
        if on_a_thread(end()).is_err() {
            // Little is asked after this.
            end()();
        }
    }

    fn prepare(&mut self, next: Generated) -> Result<(), Refusal> {
        let behaviour = registry::build(&next.recipe).map_err(Refusal::Other)?;
        let wanted = self.core.config().behaviour(behaviour).settings(|settings| *settings = next.settings);
        let before = change::prepare_next(&self.core, next.id, &wanted).map_err(refusal)?;
        self.next = Some((wanted, before));
        Ok(())
    }

    fn forget(&mut self) -> Result<(), Refusal> {
        let Some((next, _before)) = self.next.take() else { return Ok(()) };
        change::forget_next(&self.core, &next).map_err(refusal)
    }

    fn committed(&mut self) -> Result<(), Refusal> {
        let (next, _before) = self.next.take().ok_or_else(|| other("nothing was prepared"))?;
        // The service before it is the user's, and dropped without a lock.
        drop(change::next_is_in_force(&self.core, next));
        Ok(())
    }

    fn take(
        &mut self,
        listener: u64,
        state: Arc<ListenerState>,
        is_borrowed: bool,
        numbers: &[usize],
        sockets: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        check_sockets(numbers, &sockets)?;
        self.sockets.retain(|_, socket| socket.strong_count() > 0);
        let mut control = lock(&self.core.control);
        let known = control.listeners.listening.iter().position(|entry| entry.number == listener);
        let at = known.unwrap_or_else(|| {
            let asked = Listening::new(state.address.clone());
            let shared = BoundListener::shared(state.address.clone());
            control.listeners.listening.push(ListenerEntry::new(listener, &asked, shared, state, 0));
            control.listeners.listening.len() - 1
        });
        let entry = &mut control.listeners.listening[at];
        for (number, socket) in numbers.iter().zip(sockets) {
            let socket = ListenSocket::new(Arc::new(socket), false);
            socket.set_borrowed(is_borrowed, &Kernel);
            self.sockets.insert((listener, *number), Arc::downgrade(&socket));
            entry.listener.sockets.push(socket);
            entry.owners.push(Vec::new());
        }
        self.core.rebalance(&mut control);
        drop(control);
        settle(&apply::inboxes(&self.core));
        Ok(())
    }

    fn release(&mut self, listener: u64, numbers: &[usize]) {
        let held = numbers.iter().filter_map(|number| self.sockets.remove(&(listener, *number)));
        let left: Vec<_> = held.filter_map(|socket| socket.upgrade()).collect();
        let mut control = lock(&self.core.control);
        for running in control.running() {
            let left = left.clone();
            running.command(move |event_loop| left.iter().for_each(|socket| event_loop.intake().release_socket(socket)));
        }
        for entry in control.listeners.listening.iter_mut().filter(|entry| entry.number == listener) {
            let sockets = std::mem::take(&mut entry.listener.sockets).into_iter().zip(std::mem::take(&mut entry.owners));
            let stays = |(socket, _): &(Arc<ListenSocket>, Vec<usize>)| !left.iter().any(|gone| Arc::ptr_eq(gone, socket));
            (entry.listener.sockets, entry.owners) = sockets.filter(stays).unzip();
        }
        drop(control);
        settle(&apply::inboxes(&self.core));
    }

    fn retire(&mut self, number: u64, listener: u64) {
        let mut control = lock(&self.core.control);
        let (gone, stay) =
            std::mem::take(&mut control.listeners.listening).into_iter().partition(|entry| entry.number == listener);
        control.listeners.listening = stay;
        let retired = ending::retire(&self.core, &control, gone);
        drop(control);
        self.answer_later(number, move |_| {
            // Until the last socket was given up.
            retired.for_each(drop);
            Reply::Done
        });
    }
}

/// Answers on a thread.
///
/// # Errors
/// Where the system has none to give.
fn on_a_thread(answer: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name("sockdrawer-answer".to_owned()).spawn(answer).map(drop)
}

/// Answers a request that may take as long as connections take to end.
fn slow(core: &Core<Loops>, request: HelperRequest) -> Reply {
    match request {
        HelperRequest::Apply(op, selector) => Reply::Outcome(Box::new(apply::apply(core, op, &selector))),
        _ => {
            let status = Manager::status(core);
            Reply::Status(Box::new(PartStatus {
                counts: None,
                generations: status.generations,
                loops: status.loops,
                workers: status.workers,
                jobs_waiting: status.jobs_waiting,
                delegates: status.delegates,
                delegates_waiting: status.delegates_waiting,
                restarts: status.restarts,
            }))
        }
    }
}
