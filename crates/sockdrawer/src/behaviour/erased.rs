//! A service and its protocols behind pointers, so that a layer can be put around a behaviour of any kind.

use super::AnyService;
use crate::protocol::{
    CannotRestore, CannotSave, Closed, Closing, ConnectFailure, Context, Handle, Input, JobResult, Lent, Local, Note, Passage,
    Peer, Protocol, Receiving, Recipe, Saved, Saver, Service, State, Step,
};
use std::sync::Arc;

/// A service whose protocols are boxed.
pub trait DynService: Send + Sync {
    #[doc(hidden)]
    fn open(&self, peer: &Peer) -> Box<dyn Protocol>;
    #[doc(hidden)]
    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Box<dyn Protocol>, CannotRestore>;
    #[doc(hidden)]
    fn local(&self) -> Box<Local>;
    #[doc(hidden)]
    fn closing(&self) -> Closing;
    #[doc(hidden)]
    fn receiving(&self) -> Receiving;
    #[doc(hidden)]
    fn needs_peer_address(&self) -> bool;
    fn longest_record(&self) -> usize;
    #[doc(hidden)]
    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local);
}

impl<S: Service> DynService for S {
    fn open(&self, peer: &Peer) -> Box<dyn Protocol> {
        Box::new(Service::open(self, peer))
    }
    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Box<dyn Protocol>, CannotRestore> {
        Ok(Box::new(Service::restore(self, peer, from)?))
    }
    fn local(&self) -> Box<Local> {
        Service::local(self)
    }
    fn closing(&self) -> Closing {
        Service::closing(self)
    }
    fn receiving(&self) -> Receiving {
        Service::receiving(self)
    }
    fn needs_peer_address(&self) -> bool {
        Service::needs_peer_address(self)
    }
    fn longest_record(&self) -> usize {
        Service::longest_record(self)
    }
    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        Service::connect_failed(self, failure, local);
    }
}

/// The service of a behaviour.
pub(super) struct Erased {
    pub(super) service: Arc<dyn DynService>,
    /// It says what another process builds it from; and a queue ends when it is dropped.
    pub(super) within: Arc<dyn AnyService>,
}

impl Service for Erased {
    type Protocol = Boxed;

    fn open(&self, peer: &Peer) -> Boxed {
        Boxed(self.service.open(peer))
    }
    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Boxed, CannotRestore> {
        self.service.restore(peer, from).map(Boxed)
    }
    fn state(&self) -> State {
        self.within.state()
    }
    fn local(&self) -> Box<Local> {
        self.service.local()
    }
    fn closing(&self) -> Closing {
        self.service.closing()
    }
    fn receiving(&self) -> Receiving {
        self.service.receiving()
    }
    fn needs_peer_address(&self) -> bool {
        self.service.needs_peer_address()
    }
    fn longest_record(&self) -> usize {
        self.service.longest_record()
    }
    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        self.service.connect_failed(failure, local);
    }
    fn learns_peer_address(&self) -> bool {
        self.within.learns_peer_address()
    }
    fn recipe(&self) -> Option<Recipe> {
        self.within.recipe()
    }
}

pub(super) struct Boxed(Box<dyn Protocol>);

impl Protocol for Boxed {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.opened(cx)
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.0.received(input, cx)
    }
    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.peer_ended(cx)
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.timeout(cx)
    }
    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        self.0.job_done(result, cx)
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        self.0.notified(note, cx)
    }
    fn connected(&mut self, result: Result<Handle, ConnectFailure>, cx: &mut Context<'_>) -> Step {
        self.0.connected(result, cx)
    }
    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.writable(cx)
    }
    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.draining(cx)
    }
    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        self.0.closed(why, cx);
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        self.0.restored(cx)
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        self.0.save(to)
    }
    fn owes(&self) -> bool {
        self.0.owes()
    }
    fn awaits_peer(&self) -> bool {
        self.0.awaits_peer()
    }
    fn lend(&mut self) -> Option<Lent> {
        self.0.lend()
    }
    fn passage(&mut self) -> Option<Passage<'_>> {
        self.0.passage()
    }
}
