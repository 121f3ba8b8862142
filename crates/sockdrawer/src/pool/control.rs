//! What the control plane knows of a pool, and how it speaks to the loops.

use super::commit::warm;
use super::drain::{ANSWER_WITHIN, Drained};
use super::halt::Halt;
use super::places::{Place, Places};
use super::restarts::{Absence, History};
use super::retire::Retirements;
use crate::config::{Config, Model, Revision};
use crate::error::Error;
use crate::event_loop::dialer::Dialer;
use crate::event_loop::door::{Door, Intake};
use crate::event_loop::generation::Generation;
use crate::event_loop::inbox::{Inbox, Message};
use crate::event_loop::listener::Shard;
use crate::event_loop::{EventLoop, EventLoopError, Shared};
use crate::model::{self, loops::Running};
use crate::observe::{Counts, Event, Readiness};
use crate::operation::{Op, Outcome, Selector};
use crate::sync::atomic::Ordering;
use crate::sync::{Condvar, Mutex, lock, mpsc};
use crate::sys::panics;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A loop that does not answer within this time is left out of the answer.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// One pool.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) control: Mutex<Control>,
    /// Told when the pool has stopped.
    pub(crate) stopped: Condvar,
    /// Told when it begins to end.
    pub(crate) halt: Halt,
    /// To the supervisor.
    pub(crate) reports: mpsc::Sender<Report>,
    pub(super) retirements: Arc<Retirements>,
}

/// What is changed under one lock.
pub(crate) struct Control {
    pub(crate) config: Config,
    pub(crate) revision: Revision,
    pub(crate) readiness: Readiness,
    /// What the loops do, whatever is said of it.
    pub(crate) intake: Intake,
    /// In force, retired ones before it. They belong to the switch and to the loops that have connections of them.
    pub(crate) generations: Vec<Weak<Generation>>,
    /// The number of the one in force.
    pub(crate) generation: u32,
    pub(crate) places: Places<Option<usize>>,
    pub(crate) members: Vec<Member>,
    pub(crate) dialer: Option<Arc<Dialer>>,
    pub(crate) restarts: History,
    /// Workers are missing until then.
    pub(crate) workers_absent: Option<Absence>,
    /// The threads are being stopped, or have been.
    pub(crate) stopping: bool,
    /// What came of the connections of a pool that was shut down.
    pub(crate) drained: Drained,
    /// What loops counted that are gone.
    pub(crate) past: Counts,
    /// Descriptors the program had open before the pool.
    pub(crate) others: usize,
}

/// An address, and the member that holds each of its sockets.
pub(crate) type ListeningPlace = Place<Option<usize>>;

/// A loop.
pub(crate) struct Member {
    pub(crate) inbox: Arc<Inbox>,
    /// None: it died and was not replaced yet.
    pub(crate) running: Option<Running>,
    /// ... and will not be before that.
    pub(crate) absent: Option<Absence>,
    /// Whether it takes new connections; else it is parked, and only runs those it has.
    pub(crate) active: bool,
    /// Distinguishes a loop from the one it replaced.
    pub(crate) life: u64,
    pub(crate) stuck: bool,
    /// The turn it was seen in, and since when.
    pub(crate) seen: (Option<u64>, Instant),
}

/// What the supervisor hears.
pub(crate) enum Report {
    /// A loop ended; with a panic's message it was not asked to.
    LoopEnded { index: usize, life: u64, panic: Option<String> },
    /// A thread that served one connection died.
    ThreadDied { panic: String },
    /// A worker thread died.
    WorkerDied { panic: String },
    /// The pool is stopping.
    Stop,
}

impl Core {
    /// Does this to the connections that are meant, and waits for the loops' answers; a note is left in their inboxes.
    pub(crate) fn apply(&self, op: Op, selector: &Selector) -> Outcome {
        let (inboxes, asked) = (self.inboxes(), Arc::new((op, selector.clone())));
        let question = asked.clone();
        let apply = move |event_loop: &mut EventLoop| event_loop.apply(&question.0, &question.1);
        match &asked.0 {
            Op::Notify(_) => {
                let post = |inbox: &&Arc<Inbox>| {
                    let apply = apply.clone();
                    inbox.put_bounded(Box::new(move |event_loop| _ = apply(event_loop)))
                };
                let taken = inboxes.iter().filter(post).count();
                Outcome { silent: inboxes.len() - taken, ..Outcome::default() }
            }
            Op::List if self.shared.placement.is_some() => self.list(&inboxes, selector, apply),
            op => {
                let answers = self.ask_each(Instant::now() + ASK_WITHIN, &inboxes, apply).map(|(_, answer)| answer);
                let mut answer = Outcome::gathered(inboxes.len(), answers, selector);
                if matches!(op, Op::Adopt) && answer.silent > 0 {
                    answer.adopted.unasked = self.shared.limiter.taken_here().saturating_sub(answer.connections);
                }
                answer
            }
        }
    }

    /// Where each connection has a thread, one that user code keeps from answering is listed all the same.
    fn list(
        &self,
        inboxes: &[Arc<Inbox>],
        selector: &Selector,
        list: impl Fn(&mut EventLoop) -> Outcome + Send + Sync + 'static,
    ) -> Outcome {
        let mut silent: Vec<_> = inboxes.iter().map(Some).collect();
        let answers = self.ask_each(Instant::now() + ANSWER_WITHIN, inboxes, list).map(|(index, answer)| {
            silent[index] = None;
            answer
        });
        let mut answer = Outcome::gathered(inboxes.len(), answers, &Selector::All);
        let silent: Vec<_> = silent.into_iter().flatten().collect();
        answer.list.extend(self.shared.placement.iter().flat_map(|placement| placement.seen(&silent, selector)));
        answer
    }

    /// Asks loops something and waits for their answers. A loop that does not answer in time, or is gone, is left out.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        inboxes: &[Arc<Inbox>],
        question: impl Fn(&mut EventLoop) -> T + Send + Sync + 'static,
    ) -> Vec<(usize, T)> {
        self.ask_until(Instant::now() + ASK_WITHIN, inboxes, question)
    }

    /// The same, with as much patience as the caller has.
    pub(crate) fn ask_until<T: Send + 'static>(
        &self,
        until: Instant,
        inboxes: &[Arc<Inbox>],
        question: impl Fn(&mut EventLoop) -> T + Send + Sync + 'static,
    ) -> Vec<(usize, T)> {
        self.ask_each(until, inboxes, question).collect()
    }

    /// The answers as they come.
    fn ask_each<T: Send + 'static>(
        &self,
        until: Instant,
        inboxes: &[Arc<Inbox>],
        question: impl Fn(&mut EventLoop) -> T + Send + Sync + 'static,
    ) -> impl Iterator<Item = (usize, T)> {
        let (answers, received) = mpsc::channel();
        let question = Arc::new(question);
        for (index, inbox) in inboxes.iter().enumerate() {
            let (answers, question) = (answers.clone(), question.clone());
            // Those of a loop that is gone are dropped: when all are, or were used, no more answers come.
            let _ = inbox.put(Message::Command(Box::new(move |event_loop: &mut EventLoop| {
                // Nobody may wait for the answer any more.
                let _ = answers.send((index, question(event_loop)));
            })));
        }
        std::iter::from_fn(move || received.recv_timeout(until.saturating_duration_since(Instant::now())).ok())
    }

    /// The inboxes of all that may have connections: loops, parked ones too, and where else connections were placed.
    pub(crate) fn inboxes(&self) -> Vec<Arc<Inbox>> {
        let mut inboxes: Vec<_> = lock(&self.control).members.iter().map(|member| member.inbox.clone()).collect();
        inboxes.extend(self.shared.placement.iter().flat_map(|placement| placement.inboxes()));
        inboxes
    }

    /// Makes a loop's own things; it does not run yet.
    pub(crate) fn prepare_loop(&self, index: usize, config: &Config) -> Result<EventLoop, Error> {
        let system = |source: crate::sys::Errno| Error::System { what: "start a loop", source: source.into() };
        let inbox = Inbox::new(config.system.clone(), config.inbox).map_err(system)?;
        EventLoop::new(index, self.shared.clone(), inbox, warm(config)).map_err(|error| match error {
            EventLoopError::System(errno) => system(errno),
            EventLoopError::Service(panicked) => Error::ServicePanicked { message: panicked.0 },
        })
    }

    /// Starts a prepared loop in place of the member `index`, or as a new one.
    pub(crate) fn start_loop(&self, control: &mut Control, index: usize, event_loop: EventLoop) -> Result<(), Error> {
        let member = self.launch_loop(control.config.model, index, event_loop)?;
        if index == control.members.len() {
            control.members.push(member);
        } else {
            control.members[index] = member;
        }
        Ok(())
    }

    /// Starts the thread of a prepared loop. It accepts nothing until it is a member and has listening sockets.
    pub(crate) fn launch_loop(&self, model: Model, index: usize, event_loop: EventLoop) -> Result<Member, Error> {
        let inbox = event_loop.inbox.clone();
        let life = self.shared.lives.fetch_add(1, Ordering::Relaxed);
        let reports = self.reports.clone();
        let running = model::start(model, index, event_loop, move |panic| {
            // The supervisor is gone when the pool is.
            let _ = reports.send(Report::LoopEnded { index, life, panic });
        });
        let running = running.map_err(|source| Error::System { what: "start a thread", source })?;
        Ok(Member { inbox, running: Some(running), absent: None, active: true, life, stuck: false, seen: (None, Instant::now()) })
    }

    /// Ends loops that were launched for a change that did not come about. Nobody waits for them: what they drop is the user's, and
    /// may wait for the lock of changes.
    pub(crate) fn dismiss_loops(launched: &[Member]) {
        for member in launched {
            let _ = member.inbox.put(Message::Command(Box::new(|event_loop| event_loop.stopping = true)));
        }
    }

    /// Starts worker threads until as many run as are wanted.
    pub(crate) fn start_workers(&self, wanted: usize) -> Result<(), Error> {
        let missing = self.shared.workers.set_wanted(wanted);
        for started in 0..missing {
            let (workers, reports) = (self.shared.workers.clone(), self.reports.clone());
            let thread = std::thread::Builder::new().name("sockdrawer-worker".to_owned()).spawn(move || {
                panics::quiet_thread();
                if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| workers.serve())) {
                    workers.died();
                    let _ = reports.send(Report::WorkerDied { panic: panics::message(payload) });
                }
            });
            if let Err(source) = thread {
                self.shared.workers.not_started(missing - started);
                return Err(Error::System { what: "start a worker thread", source });
            }
        }
        Ok(())
    }

    /// Who should hold each shard: the active loops in turn, leaving out those that are stuck while others are not.
    fn assign(control: &Control) -> Vec<Vec<Option<usize>>> {
        let usable = |stuck: bool| -> Vec<usize> {
            let members = control.members.iter().enumerate();
            members
                .filter(|(_, member)| member.active && member.running.is_some() && (stuck || !member.stuck))
                .map(|(index, _)| index)
                .collect()
        };
        let mut loops = usable(false);
        if loops.is_empty() {
            loops = usable(true);
        }
        let places = control.places.all().enumerate();
        places
            .map(|(place, at)| {
                (0..at.listener.shards.len())
                    .map(|shard| (!loops.is_empty()).then(|| loops[(place + shard) % loops.len()]))
                    .collect()
            })
            .collect()
    }

    /// Moves shards to whom they should belong, the new holder first; none is closed, none is left alone. Also says who takes
    /// connections from shared sockets and who connects.
    pub(crate) fn rebalance(&self, control: &mut Control) {
        let assigned = Core::assign(control);
        let mut takes: Vec<Vec<(Arc<Shard>, Arc<Door>)>> = control.members.iter().map(|_| Vec::new()).collect();
        let mut leaves: Vec<Vec<Arc<Shard>>> = control.members.iter().map(|_| Vec::new()).collect();
        for (place, wanted) in control.places.all_mut().zip(assigned) {
            for (shard, (owner, wanted)) in place.listener.shards.iter().zip(place.owners.iter_mut().zip(wanted)) {
                if *owner != wanted {
                    if let Some(new) = wanted {
                        takes[new].push((shard.clone(), place.door.clone()));
                    }
                    if let Some(old) = *owner {
                        leaves[old].push(shard.clone());
                    }
                    *owner = wanted;
                }
            }
        }
        let intake = control.intake.clone();
        for (member, takes) in control.members.iter().zip(takes) {
            let dialer = if member.active && intake == Intake::Open { control.dialer.clone() } else { None };
            let intake = intake.clone();
            let order: crate::event_loop::inbox::Command = Box::new(move |event_loop| {
                event_loop.set_dialer(dialer);
                // One that takes connections already goes on.
                if intake != Intake::Open {
                    event_loop.set_intake(&intake);
                }
                takes.into_iter().for_each(|(shard, door)| event_loop.take_shard(shard, door));
            });
            // A loop that died meanwhile is replaced, and the new one gets all again.
            let _ = member.inbox.put(Message::Command(order));
        }
        for (member, leaves) in control.members.iter().zip(leaves).filter(|(_, leaves)| !leaves.is_empty()) {
            let order: crate::event_loop::inbox::Command =
                Box::new(move |event_loop| leaves.iter().for_each(|shard| event_loop.release_shard(shard)));
            let _ = member.inbox.put(Message::Command(order));
        }
        let usable = |member: &&Member| member.active && member.running.is_some() && !member.stuck;
        let active = control.members.iter().filter(usable);
        let loops = active.clone().count();
        control.places.all().for_each(|place| place.listener.spread_over(loops));
        *lock(&self.shared.roster) = active.map(|member| member.inbox.clone()).collect();
    }

    /// Waits until every loop has read the messages it had.
    pub(crate) fn settle(&self, inboxes: &[Arc<Inbox>]) {
        self.ask(inboxes, |_| ());
    }

    pub(crate) fn tell(&self, event: &Event) {
        self.shared.tell(event);
    }
}
