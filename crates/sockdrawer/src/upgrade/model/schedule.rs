//! Two processes that take turns, a clock that moves only while both wait, and the choices of one run.

use super::books::Books;
use crate::ipc::messages::Said;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::sys::{Errno, Result};
use crate::upgrade::talk::{Heard, Line, Room};
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const OLD: usize = 0;
pub(super) const NEW: usize = 1;

/// The panic by which a killed process ends.
pub(super) const KILLED: &str = "killed";
/// A stopped process goes on after this time: longer than anything waits for it.
const STOPPED: Duration = Duration::from_millis(1500);
/// A call of a run that takes more of them never ends.
const MAX_CALLS: usize = 4000;

/// The kinds of faults that are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinds {
    /// Each errno.
    All,
    /// Errnos that no code tells apart count as one.
    Classes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Fails(Errno),
    /// This process dies in the call, before it has an effect.
    Killed,
    /// This process dies in the call, after it had its effect.
    KilledAfter,
    /// This process is stopped for a while.
    Stopped,
    /// The other is stopped, with a full queue.
    OtherIsFull,
    /// The other runs first.
    OtherFirst,
}

const ERRNOS: [Errno; 10] = [
    Errno::NOBUFS,
    Errno::NOMEM,
    Errno::MSGSIZE,
    Errno::MFILE,
    Errno::NFILE,
    Errno::TOOMANYREFS,
    Errno::INVAL,
    Errno::IO,
    Errno::PERM,
    Errno::CONNRESET,
];

impl Kinds {
    fn of_calls(self, sends: bool) -> Vec<Fault> {
        let errnos = if self == Kinds::All { &ERRNOS[..] } else { &ERRNOS[..1] };
        let mut faults = vec![Fault::None];
        faults.extend(errnos.iter().map(|errno| Fault::Fails(*errno)));
        faults.extend([Fault::Killed, Fault::Stopped]);
        if sends {
            faults.extend([Fault::KilledAfter, Fault::OtherIsFull, Fault::OtherFirst, Fault::Fails(Errno::AGAIN)]);
        }
        faults
    }
}

pub(super) struct World {
    state: Mutex<State>,
    turn: Condvar,
}

pub(super) struct State {
    script: Vec<usize>,
    taken: Vec<(usize, usize)>,
    faults: usize,
    kinds: Kinds,
    calls: usize,
    now: Instant,
    turn: usize,
    sides: [Process; 2],
    pub(super) books: Books,
}

#[derive(Default)]
struct Process {
    /// Messages that it has not heard.
    queue: VecDeque<(Said, Vec<OwnedFd>)>,
    waits: Option<Wait>,
    stopped: Option<Instant>,
    is_full: bool,
    /// The process's end of the conversation is closed.
    closed: bool,
    done: bool,
}

#[derive(Clone, Copy)]
struct Wait {
    until: Option<Instant>,
    hears: bool,
}

impl State {
    fn choose(&mut self, sends: bool) -> Fault {
        if self.faults == 0 {
            return Fault::None;
        }
        let options = self.kinds.of_calls(sends);
        // A script at random does not know how many there are.
        let choice = self.script.get(self.taken.len()).map_or(0, |choice| choice % options.len());
        self.taken.push((choice, options.len()));
        self.faults -= usize::from(choice > 0);
        options[choice]
    }

    /// Returns true where there is a message for this process, or the end of the other one.
    fn has_news(&self, side: usize) -> bool {
        !self.sides[side].queue.is_empty() || self.sides[1 - side].closed
    }

    fn can_run(&self, side: usize) -> bool {
        let Process { waits, stopped, done, .. } = &self.sides[side];
        let ready =
            waits.is_none_or(|wait| wait.hears && self.has_news(side) || wait.until.is_some_and(|until| until <= self.now));
        !done && ready && stopped.is_none_or(|until| until <= self.now)
    }

    /// Lets the next process run. False: neither ever can.
    fn switch(&mut self, from: usize) -> bool {
        for side in [1 - from, from] {
            if self.can_run(side) {
                self.turn = side;
                return true;
            }
        }
        let times = self.sides.iter().filter(|side| !side.done).flat_map(|side| {
            let until = side.waits.and_then(|wait| wait.until);
            [side.stopped, until].into_iter().flatten()
        });
        let Some(next) = times.filter(|time| *time > self.now).min() else { return false };
        self.now = next;
        self.switch(from)
    }
}

impl World {
    pub(super) fn new(script: &[usize], faults: usize, kinds: Kinds, connections: u64, together: bool) -> World {
        let state = State {
            script: script.to_vec(),
            taken: Vec::new(),
            faults,
            kinds,
            calls: 0,
            now: Instant::now(),
            turn: NEW,
            sides: Default::default(),
            books: Books::new(connections, together),
        };
        World { state: Mutex::new(state), turn: Condvar::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wait_for_turn<'a>(&'a self, mut state: MutexGuard<'a, State>, side: usize) -> MutexGuard<'a, State> {
        while state.turn != side && !state.books.is_over() {
            state = wait(&self.turn, state);
        }
        if state.books.is_over() {
            drop(state);
            resume_unwind(Box::new(KILLED));
        }
        state
    }

    pub(super) fn begin(&self, side: usize) {
        drop(self.wait_for_turn(self.state(), side));
    }

    /// Notes that the process did what it had to, or was killed; `Err(false)`: it panicked.
    pub(super) fn finish(&self, side: usize, came: std::result::Result<Option<String>, bool>) {
        let mut state = self.state();
        match came {
            Ok(refused) => state.books.returned(side, refused),
            Err(true) => {}
            Err(false) => state.books.wrong(format!("process {side} panicked")),
        }
        (state.sides[side].done, state.sides[side].closed) = (true, true);
        if !state.sides[1 - side].done && !state.switch(side) {
            state.books.wrong("the other process waits for ever".to_owned());
        }
        self.turn.notify_all();
    }

    pub(super) fn judged(&self) -> (Option<String>, Vec<(usize, usize)>) {
        let mut state = self.state();
        let taken = std::mem::take(&mut state.taken);
        (state.books.judge(), taken)
    }

    /// Waits until this process can go on.
    fn block<'a>(&'a self, mut state: MutexGuard<'a, State>, side: usize, wait: Wait) -> MutexGuard<'a, State> {
        state.sides[side].waits = Some(wait);
        if !state.switch(side) {
            state.books.wrong(format!("both wait for ever, seen by process {side}"));
        }
        self.turn.notify_all();
        let mut state = self.wait_for_turn(state, side);
        state.sides[side].waits = None;
        state
    }

    fn begin_call(&self, side: usize) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.calls += 1;
        state.now += Duration::from_micros(1);
        if state.calls > MAX_CALLS {
            state.books.wrong("it never ends".to_owned());
        }
        if state.books.is_over() {
            self.turn.notify_all();
        }
        self.wait_for_turn(state, side)
    }

    fn die(&self, mut state: MutexGuard<'_, State>, side: usize) -> ! {
        state.books.died(side);
        state.sides[side].closed = true;
        drop(state);
        resume_unwind(Box::new(KILLED))
    }

    fn stop<'a>(&'a self, mut state: MutexGuard<'a, State>, side: usize) -> MutexGuard<'a, State> {
        state.sides[side].stopped = Some(state.now + STOPPED);
        let until = Some(state.now);
        self.block(state, side, Wait { until, hears: false })
    }
}

/// The end of one process.
pub(super) struct End {
    pub(super) world: Arc<World>,
    pub(super) side: usize,
}

impl End {
    /// Begins a call that hears, with its fault, and waits until there is something to hear, or until then.
    fn begin_hearing(&self, until: Option<Instant>) -> Result<MutexGuard<'_, State>> {
        let mut state = self.world.begin_call(self.side);
        match state.choose(false) {
            Fault::Fails(errno) => return Err(errno),
            Fault::Killed => self.world.die(state, self.side),
            Fault::Stopped => state = self.world.stop(state, self.side),
            _ => {}
        }
        if !state.has_news(self.side) {
            state = self.world.block(state, self.side, Wait { until, hears: true });
        }
        Ok(state)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.world.state().sides[self.side].closed = true;
    }
}

impl Line for End {
    fn send(&self, said: Said, descriptors: &[BorrowedFd<'_>], room: Room) -> Result<()> {
        let (world, side, other) = (&self.world, self.side, 1 - self.side);
        let mut state = world.begin_call(side);
        let fault = state.choose(true);
        match fault {
            Fault::Fails(errno) => return Err(errno),
            Fault::Killed => world.die(state, side),
            Fault::Stopped => state = world.stop(state, side),
            Fault::OtherIsFull => {
                let until = state.now + STOPPED;
                let process = &mut state.sides[other];
                (process.stopped, process.is_full) = (Some(until), true);
            }
            _ => {}
        }
        if state.sides[other].closed {
            return Err(Errno::PIPE);
        }
        let process = &state.sides[other];
        if process.is_full && process.stopped.is_some_and(|until| until > state.now) && room != Room::Kept {
            if room == Room::Soon {
                let until = Some(state.now + Duration::from_millis(100));
                drop(world.block(state, side, Wait { until, hears: false }));
            }
            return Err(Errno::AGAIN);
        }
        let descriptors = descriptors.iter().map(|one| one.try_clone_to_owned().expect("room for a descriptor"));
        state.books.settled |= matches!(said, Said::Settled | Said::ShutDown(_));
        state.books.carried |= matches!(said, Said::Go(_));
        let message = (said, descriptors.collect());
        state.sides[other].queue.push_back(message);
        if fault == Fault::KilledAfter {
            world.die(state, side);
        }
        if fault == Fault::OtherFirst {
            let until = Some(state.now);
            drop(world.block(state, side, Wait { until, hears: false }));
        }
        Ok(())
    }

    fn receive(&self, until: Option<Instant>) -> Result<Heard> {
        let mut state = self.begin_hearing(until)?;
        match state.sides[self.side].queue.pop_front() {
            Some((said, descriptors)) => Ok((said, Some(descriptors))),
            None if state.sides[1 - self.side].closed => Err(Errno::PIPE),
            None => Err(Errno::AGAIN),
        }
    }

    fn wait_beside(&self, _: Option<BorrowedFd<'_>>, until: Instant) -> Result<[bool; 2]> {
        if self.begin_hearing(Some(until))?.has_news(self.side) { Ok([true, false]) } else { Err(Errno::AGAIN) }
    }

    fn end_later(self: Arc<Self>, last: Said) {
        // Another thread says it, in time.
        self.world.state().sides[1 - self.side].queue.push_back((last, Vec::new()));
    }

    fn now(&self) -> Instant {
        self.world.state().now
    }

    fn pause(&self, time: Duration) {
        let state = self.world.begin_call(self.side);
        let until = Some(state.now + time);
        drop(self.world.block(state, self.side, Wait { until, hears: false }));
    }
}
