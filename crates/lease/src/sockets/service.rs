//! Protocol of sockets that no code has: new ones, those that move, and those that have moved.

use super::Arrivals;
use super::socket::Socket;
use super::watch::Watch;
use serde::{Deserialize, Serialize};
use sockdrawer::blocking::Connection;
use sockdrawer::{Address, CannotRestore, CannotSave, Context, Delegate, Input, Note, Peer, Protocol, Saved, Saver, State, Step};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A socket that was given back for a move, and did not move, is closed after this time.
const RESTS: Duration = Duration::from_secs(1);

/// A new socket whose claim was lost, as by a full inbox, is closed after this time.
const UNCLAIMED: Duration = Duration::from_secs(60);

/// Service of the sockets of a [`Sockets`](super::Sockets): the pool that makes them runs it, under the layers that they are to have.
pub struct Service {
    pub(super) arrivals: Arc<Arrivals>,
}

impl sockdrawer::Service for Service {
    type Protocol = Resting;

    fn open(&self, _peer: &Peer) -> Resting {
        Resting { arrivals: self.arrivals.clone(), moved: None, since: Instant::now() }
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Resting, CannotRestore> {
        let moved: Moved = from.value()?;
        let since = Instant::now();
        Ok(Resting { arrivals: self.arrivals.clone(), since: since.checked_sub(moved.age).unwrap_or(since), moved: Some(moved) })
    }

    fn state(&self) -> State {
        State::of("sockdrawer-lease", 1)
    }
}

/// Socket that no code has.
pub struct Resting {
    arrivals: Arc<Arrivals>,
    /// State of a socket that moves, or has moved.
    moved: Option<Moved>,
    since: Instant,
}

/// State of a socket that moves.
#[derive(Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) target: Address,
    /// Time since it was connected.
    pub(super) age: Duration,
}

/// Note by which a socket that no code has is asked for.
pub(super) struct Claim {
    /// Target of a new one.
    pub(super) target: Option<Address>,
    pub(super) told: Box<dyn FnOnce(Socket) + Send>,
}

impl Resting {
    fn give(&self, target: Address, told: Box<dyn FnOnce(Socket) + Send>, cx: &mut Context<'_>) -> Step {
        cx.clear_timer();
        let (handle, watch, born) = (cx.handle(), Arc::<Watch>::default(), self.since);
        let (watched, moves) = (watch.clone(), self.arrivals.are_taken());
        let take = move |connection: Connection| {
            if moves {
                connection.may_move();
            }
            told(Socket::new(connection, handle, target, born, watched));
        };
        Step::Delegate(Delegate::watched(take, move |event| watch.hear(event)))
    }
}

impl Protocol for Resting {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        // It goes along with the socket.
        Step::Continue
    }

    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.set_timer(UNCLAIMED);
        Step::Continue
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        let note = match note.take::<Claim>() {
            Ok(Claim { target, told }) => {
                let target = target.or_else(|| Some(self.moved.take()?.target));
                return target.map_or(Step::Close, |target| self.give(target, told, cx));
            }
            Err(note) => note,
        };
        if let Ok(moved) = note.take::<Moved>() {
            self.moved = Some(moved);
            cx.set_timer(RESTS);
        }
        Step::Continue
    }

    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        cx.clear_timer();
        self.arrivals.arrives(cx.handle());
        Step::Continue
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        match &mut self.moved {
            Some(moved) => {
                moved.age = self.since.elapsed();
                to.value(moved)
            }
            None => Err(CannotSave::because("it is leased, or was not leased yet")),
        }
    }
}
