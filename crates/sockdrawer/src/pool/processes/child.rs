//! The life of a child: one connection, from its first to its last byte.

use super::forking;
use super::speaker::Speaker;
use super::wire::{FromHelper, Generated, Receiver, Reply, Request, Sender, ToHelper};
use crate::admission::Limits;
use crate::behaviour::Kind;
use crate::exec;
use crate::flow::acceptor::Parcel;
use crate::flow::delegates::Delegates;
use crate::flow::gate::{Gate, Permit};
use crate::flow::generation::Generation;
use crate::flow::inbox::Inbox;
use crate::flow::joint::Joint;
use crate::flow::worker::Workers;
use crate::flow::{Basis, Flow, Shared};
use crate::model::fork::{Birth, Life};
use crate::observe::{Event, Observer};
use crate::pool::drain::Drained;
use crate::pool::handle::Adopted;
use crate::pool::selector::Selector;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::sys::passing::Meeting;
use crate::sys::{Errno, Events, Kernel, fork, panics};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bit by which a child's flow notices its parent.
const PARENT: u32 = 0;
/// Exit codes: in order; a bug of ours; a program that could not be started, as shells have it.
const FAILED: i32 = 70;
const NO_PROGRAM: i32 = 127;
/// A connection that was asked to end and did not has so long for what was written.
const PURGE_WITHIN: Duration = Duration::from_secs(5);

/// What all children find when they are born.
pub(super) struct Ground {
    pub(super) speaker: Arc<Speaker>,
    pub(super) meeting: Meeting,
    pub(super) bed: Box<Bed>,
    pub(super) inbox: usize,
    pub(super) stack: usize,
}

/// A child's whole life. It never returns into what it was forked from.
impl Life for Arc<Ground> {
    fn live(&self, birth: Birth) -> ! {
        let keep = [birth.parcel.socket.as_fd(), self.speaker.end()];
        if fork::settle_child(birth.parent, keep).is_err() {
            fork::exit(FAILED);
        }
        if birth.generation.kind == Kind::Program {
            become_program(birth);
        }
        let lived = catch_unwind(AssertUnwindSafe(|| serve(self, birth)));
        fork::exit(if matches!(lived, Ok(Ok(()))) { 0 } else { FAILED });
    }
}

/// Not a part of what other children run: what it has on the stack, each of them would have to get pages for.
#[inline(never)]
fn become_program(birth: Birth) -> ! {
    let words = birth.generation.service().recipe().and_then(|recipe| exec::words(&recipe.options)).unwrap_or_default();
    let socket = birth.parcel.socket;
    let input = socket.try_clone();
    if let (Ok(input), Some((program, arguments))) = (input, words.split_first()) {
        fork::restore(socket.as_fd());
        let _ = Command::new(program).args(arguments).stdin(Stdio::from(input)).stdout(Stdio::from(socket)).exec();
    }
    fork::exit(NO_PROGRAM);
}

/// Tells the pool what happens here.
struct Voice(Arc<Speaker>);

impl Observer for Voice {
    fn event(&self, event: &Event) {
        // Generations are counted by the parent.
        if !matches!(event, Event::GenerationEnded(_)) {
            self.0.in_child();
            self.0.tell(event);
        }
    }
}

/// A flow that was made before there was a connection for it, so that a child has little to do before its first byte.
struct Seed {
    flow: Flow,
    permit: Option<Permit>,
    generation: u32,
}

/// Where the seed of the next child lies: a page of its own, because a child gets a copy of each page that it writes to.
#[derive(Default)]
#[repr(align(4096))]
pub(super) struct Bed(Mutex<Option<Seed>>);

impl Ground {
    /// Has the flow of the next child ready. A panic of the service's `local` is met again by each child. A function of its own for
    /// its stack, as above.
    #[inline(never)]
    pub(super) fn sow(&self, generation: &Generation) {
        let joint = Joint::private();
        // Its few numbers lie with what else a child writes.
        let gate = Gate::shared(joint.door(0), 1, None);
        let permit = gate.take().expect("the first connection of a gate for one");
        // A child counts by itself: what its parent counts in is in pages that the parent writes.
        let shared = shared(self, joint, gate, generation.apart());
        let inbox = Inbox::asleep(shared.system.clone(), self.inbox);
        let mut flow = Flow::asleep(shared, inbox);
        flow.prepare();
        let before = lock(&self.bed.0).replace(Seed { flow, permit: Some(permit), generation: generation.id });
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

fn serve(ground: &Ground, birth: Birth) -> Result<(), Errno> {
    let Birth { parcel, id, generation, counters, .. } = birth;
    let Parcel { socket, permit, remote, side, lag, connect_time } = parcel;
    // They are the parent's to give back.
    let (generation, _permit) = (ManuallyDrop::new(generation), ManuallyDrop::new(permit));
    // Nothing of it is dropped or moved: the process ends, and pages that are written are copied.
    let mut seed = ManuallyDrop::new(ground.seed_of(&generation));
    let Seed { flow, permit: own, .. } = seed.as_mut().expect("it was sown");
    flow.number_next(id);
    // Where the parent sees it, also when this process is killed.
    std::mem::forget(std::mem::replace(&mut flow.counters, counters));
    let permit = own.take().expect("a seed is for one connection");
    flow.adopt_parcel(Parcel { socket, permit, remote, side, lag, connect_time });
    if flow.count() > 0 { Child::new(ground)?.run(flow) } else { Ok(()) }
}

fn shared(ground: &Ground, joint: Joint, gate: Arc<Gate>, generation: Arc<Generation>) -> Arc<Shared> {
    Shared::new(Basis {
        system: Arc::new(Kernel),
        joint,
        process: None,
        gate,
        generation,
        // None run: a job runs where its connection runs.
        workers: Workers::new(1),
        delegates: Delegates::new(1, ground.stack),
        observer: Arc::new(Voice(ground.speaker.clone())),
        admission: Arc::new(Limits::default()),
        placement: None,
    })
}

/// Builds the newer service here, because this process was made before it was, and moves the connection to it.
fn adopt(flow: &mut Flow, generated: &Generated, tokens: &[u64]) -> bool {
    let Ok(generation) = forking::build(generated) else { return false };
    flow.shared().switch.commit(generation);
    tokens.iter().any(|token| flow.adopt_one(*token).is_ok())
}

/// A child whose connection has not ended at once: it is there to be spoken to.
struct Child {
    home: OwnedFd,
    receiver: Receiver,
    sender: Sender,
    /// Who asked it to end, and by when it must.
    drain: Option<(u64, Instant)>,
    /// It did not by then.
    purged: bool,
    purge: Option<u64>,
}

impl Child {
    fn new(ground: &Ground) -> Result<Child, Errno> {
        let home = ground.meeting.come()?;
        Ok(Child { home, receiver: Receiver::default(), sender: Sender::default(), drain: None, purged: false, purge: None })
    }

    fn run(mut self, flow: &mut Flow) -> Result<(), Errno> {
        flow.awaken()?;
        flow.notice(PARENT, self.home.as_fd())?;
        let mut events = Events::with_capacity(4);
        flow.inbox.read_here();
        while flow.count() > 0 {
            flow.turn_until = self.drain.map(|(_, until)| until).filter(|_| !self.purged);
            flow.turn(&mut events, |_| ());
            if std::mem::take(&mut flow.noticed) != 0 && !self.listen(flow) {
                // The parent is gone, and this process on its way.
                return Ok(());
            }
            self.look_at_deadline(flow);
        }
        if let Some((number, _)) = self.drain {
            let purged = usize::from(self.purged);
            self.reply(number, Reply::Drained(Drained { asked: 1, ended: 1 - purged, cut: purged }));
        }
        if let Some(number) = self.purge {
            self.reply(number, Reply::Count(1));
        }
        Ok(())
    }

    fn reply(&mut self, number: u64, reply: Reply) {
        // Nobody hears it when the parent is gone.
        let _ = self.sender.send(self.home.as_fd(), &FromHelper::Reply(number, reply), &[], true);
    }

    /// Does what the parent asks. False when it is gone.
    fn listen(&mut self, flow: &mut Flow) -> bool {
        loop {
            match self.receiver.receive_now::<ToHelper>(self.home.as_fd()) {
                Ok(Some(((number, request), _))) => self.obey(flow, number, request),
                Err(Errno::AGAIN) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// It was chosen by the parent: whatever it has is meant.
    fn obey(&mut self, flow: &mut Flow, number: u64, request: Request) {
        let tokens = flow.choose(&Selector::All);
        match request {
            Request::Drain(_, how) => {
                self.drain = Some((number, crate::clock::deadline(Instant::now(), how.deadline)));
                tokens.into_iter().for_each(|token| _ = flow.drain_one(token));
            }
            Request::Purge(_, within) => {
                self.purge = Some(number);
                tokens.into_iter().for_each(|token| flow.purge_one(token, within));
            }
            Request::Kill(_) => {
                let killed = tokens.into_iter().any(|token| flow.kill_one(token));
                self.reply(number, Reply::Count(usize::from(killed)));
            }
            Request::Tag(_, text) => {
                let tag = crate::protocol::tag(&text);
                let tagged = tokens.into_iter().filter(|token| flow.tag_one(*token, &tag)).count();
                self.reply(number, Reply::Count(tagged));
            }
            Request::List(_) => {
                let list = flow.list(&Selector::All);
                self.reply(number, Reply::List(list));
            }
            Request::Notify(_, bytes) => flow.notify(&Selector::All, &bytes.into()),
            Request::AdoptTo(generated) => {
                let moved = usize::from(adopt(flow, &generated, &tokens));
                self.reply(number, Reply::Adopted(Adopted { moved, stayed: 1 - moved, ..Adopted::default() }));
            }
            Request::SetOptions(_, options) => {
                let set = tokens.into_iter().filter(|token| flow.set_options_of(*token, &options)).count();
                self.reply(number, Reply::Count(set));
            }
            Request::Options(_) => {
                let options = tokens.into_iter().next().and_then(|token| flow.options_of(token));
                self.reply(number, Reply::Options(options));
            }
            _ => self.reply(number, Reply::Done),
        }
    }

    fn look_at_deadline(&mut self, flow: &mut Flow) {
        if !self.purged && self.drain.is_some_and(|(_, until)| until <= Instant::now()) {
            self.purged = true;
            for token in flow.choose(&Selector::All) {
                flow.purge_one(token, PURGE_WITHIN);
            }
        }
    }
}
