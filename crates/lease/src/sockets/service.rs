//! Protocol of sockets that no code has: new ones, those that move, and those that have moved.

use super::Arrivals;
use super::socket::Socket;
use super::watch::Watch;
use sockdrawer::blocking::Connection;
use sockdrawer::{Address, CannotRestore, CannotSave, Context, Delegate, Input, Note, Peer, Protocol, Saved, Saver, State, Step};
use std::sync::Arc;
use std::time::Duration;

/// A socket that was given back for a move, and did not move, is closed after this time.
const RESTS: Duration = Duration::from_secs(1);

/// Service of the sockets of a [`Sockets`](super::Sockets): the pool that makes them runs it, under the layers that they are to have.
pub struct Service {
    pub(super) arrivals: Arc<Arrivals>,
}

impl sockdrawer::Service for Service {
    type Protocol = Resting;

    fn open(&self, _peer: &Peer) -> Resting {
        Resting { arrivals: self.arrivals.clone(), target: None }
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Resting, CannotRestore> {
        Ok(Resting { arrivals: self.arrivals.clone(), target: Some(from.value()?) })
    }

    fn state(&self) -> State {
        State::of("sockdrawer-lease", 1)
    }
}

/// Socket that no code has.
pub struct Resting {
    arrivals: Arc<Arrivals>,
    /// Target of a socket that moves.
    target: Option<Address>,
}

/// Note by which a new socket is asked for.
pub(super) struct Claim {
    pub(super) target: Address,
    pub(super) told: Box<dyn FnOnce(Socket) + Send>,
}

/// Note by which a socket is given back for a move.
pub(super) struct Back(pub(super) Address);

impl Resting {
    fn give(&self, target: Address, told: Box<dyn FnOnce(Socket) + Send>, cx: &mut Context<'_>) -> Step {
        let (handle, watch, moves) = (cx.handle(), Arc::<Watch>::default(), self.arrivals.are_taken());
        let watched = watch.clone();
        let take = move |connection: Connection| {
            if moves {
                connection.may_move();
            }
            told(Socket::new(connection, handle, target, watched));
        };
        Step::Delegate(Delegate::watched(take, move |change| watch.hear(change)))
    }
}

impl Protocol for Resting {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        // It goes along with the socket.
        Step::Continue
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        let note = match note.take::<Claim>() {
            Ok(Claim { target, told }) => return self.give(target, told, cx),
            Err(note) => note,
        };
        if let Ok(Back(target)) = note.take::<Back>() {
            self.target = Some(target);
            cx.set_timer(RESTS);
        }
        Step::Continue
    }

    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        let (Some(target), arrivals) = (self.target.take(), self.arrivals.clone()) else { return Step::Close };
        cx.clear_timer();
        self.give(target, Box::new(move |socket| arrivals.take(socket)), cx)
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        match &self.target {
            Some(target) => to.value(target),
            None => Err(CannotSave::because("it is leased, or was not leased yet")),
        }
    }
}
