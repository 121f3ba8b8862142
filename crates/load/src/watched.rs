//! A client that the end of its run may cut off: the operation under way then is counted, which no client does by itself.

use crate::tally::Recorder;
use sockdrawer::{
    CannotRestore, CannotSave, Closed, Closing, ConnectFailure, Context, Input, JobResult, Local, Note, Peer, Protocol,
    Receiving, Recipe, Saved, Saver, Service, Step,
};

/// A client's service, or one of its connections, forwarded whole. Its local is a [`Recorder`].
pub(crate) struct Watched<T>(pub(crate) T);

impl<S: Service> Service for Watched<S> {
    type Protocol = Watched<S::Protocol>;

    fn open(&self, peer: &Peer) -> Watched<S::Protocol> {
        Watched(self.0.open(peer))
    }

    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Watched<S::Protocol>, CannotRestore> {
        self.0.restore(peer, from).map(Watched)
    }

    fn local(&self) -> Box<Local> {
        self.0.local()
    }

    fn closing(&self) -> Closing {
        self.0.closing()
    }

    fn receiving(&self) -> Receiving {
        self.0.receiving()
    }

    fn asks_for_remote(&self) -> bool {
        self.0.asks_for_remote()
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        self.0.connect_failed(failure, local);
    }

    fn recipe(&self) -> Option<Recipe> {
        self.0.recipe()
    }
}

impl<P: Protocol> Protocol for Watched<P> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.opened(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.0.received(input, cx)
    }

    fn finished(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.finished(cx)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.timeout(cx)
    }

    fn done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        self.0.done(result, cx)
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        self.0.notified(note, cx)
    }

    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.writable(cx)
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.draining(cx)
    }

    /// A purge asks first, and a client at rest ends then by itself: whom it ends had an operation under way.
    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        if why == Closed::Purged
            && let Some(recorder) = cx.local::<Recorder>()
        {
            recorder.cut_off();
        }
        self.0.closed(why, cx);
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        self.0.save(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;
    use crate::tally::Numbers;
    use sockdrawer::testing::Connection;
    use sockdrawer_catalog::{Budget, Client, Pace, ping};
    use std::sync::Arc;
    use std::time::Duration;

    fn numbers(answered: u64, asking: bool) -> (Numbers, u64) {
        let shared = Arc::new(Shared::new(None, Duration::ZERO));
        let interval = Duration::from_secs(if asking { 0 } else { 5 });
        let pace = Pace {
            interval: interval.into(),
            timeout: Duration::from_secs(9),
            budget: Budget::Unlimited,
            lifetime: None,
            seed: 0,
        };
        let mut client = Connection::open(Watched(Client::new(ping::Question, pace, move || Recorder::new(shared.clone()))));
        client.advance(interval);
        (0..answered).for_each(|_| client.receive(b"Pong"));
        client.drain();
        if client.closed().is_none() {
            client.end(Closed::Purged);
        }
        let tally = &client.local::<Recorder>().expect("the client's local").tally;
        (tally.numbers, tally.unfinished)
    }

    #[test]
    fn an_operation_that_is_cut_off_is_failed() {
        let cut = Numbers { established: 1, closed: 1, operations_ok: 3, operations_failed: 1, ..Numbers::default() };
        assert_eq!(numbers(3, true), (cut, 1), "the fourth question was under way");
        let at_rest = Numbers { established: 1, closed: 1, operations_ok: 1, ..Numbers::default() };
        assert_eq!(numbers(1, false), (at_rest, 0), "no question was under way");
    }
}
