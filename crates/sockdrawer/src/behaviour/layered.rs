//! A layer around a service whose type is not known.

use super::{AnyService, Behaviour, Kind, Panicked, Slabs, TableBox};
use crate::layer::{Filtering, Layer};
use crate::protocol::{
    CannotRestore, CannotSave, Closed, Closing, ConnectFailure, Context, Handle, Input, JobResult, Local, Note, Peer, Protocol,
    Receiving, Recipe, Saved, Saver, Service, State, Step,
};
use std::any::Any;
use std::sync::Arc;

/// A [`Service`] with the type of its protocol erased.
pub trait BoxedService: Send + Sync {
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
    #[doc(hidden)]
    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local);
}

impl<S: Service> BoxedService for S {
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

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        Service::connect_failed(self, failure, local);
    }
}

/// A behaviour as a service again.
struct Erased {
    boxed: Arc<dyn BoxedService>,
    of: Arc<dyn AnyService>,
}

impl Service for Erased {
    type Protocol = Box<dyn Protocol>;

    fn open(&self, peer: &Peer) -> Box<dyn Protocol> {
        self.boxed.open(peer)
    }

    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Box<dyn Protocol>, CannotRestore> {
        self.boxed.restore(peer, from)
    }

    fn state(&self) -> State {
        self.of.state()
    }

    fn local(&self) -> Box<Local> {
        self.boxed.local()
    }

    fn closing(&self) -> Closing {
        self.boxed.closing()
    }

    fn receiving(&self) -> Receiving {
        self.boxed.receiving()
    }

    fn needs_peer_address(&self) -> bool {
        self.boxed.needs_peer_address()
    }

    fn learns_peer_address(&self) -> bool {
        self.of.learns_peer_address()
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        self.boxed.connect_failed(failure, local);
    }

    fn recipe(&self) -> Option<Recipe> {
        self.of.recipe()
    }
}

impl Protocol for Box<dyn Protocol> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        (**self).opened(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        (**self).received(input, cx)
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        (**self).peer_ended(cx)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        (**self).timeout(cx)
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        (**self).job_done(result, cx)
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        (**self).notified(note, cx)
    }

    fn connected(&mut self, result: Result<Handle, ConnectFailure>, cx: &mut Context<'_>) -> Step {
        (**self).connected(result, cx)
    }

    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        (**self).writable(cx)
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        (**self).draining(cx)
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        (**self).closed(why, cx);
    }

    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        (**self).restored(cx)
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        (**self).save(to)
    }
}

/// What is the layer's, and of what it is around.
struct Around {
    layer: Arc<dyn AnyService>,
    of: Arc<dyn AnyService>,
}

impl AnyService for Around {
    fn table(&self, capacity: usize) -> Result<TableBox, Panicked> {
        self.layer.table(capacity)
    }

    fn kind(&self) -> Kind {
        self.of.kind()
    }

    fn name(&self) -> &'static str {
        self.of.name()
    }

    fn recipe(&self) -> Option<Recipe> {
        self.layer.recipe()
    }

    fn state(&self) -> State {
        self.layer.state()
    }

    fn learns_peer_address(&self) -> bool {
        self.layer.learns_peer_address()
    }

    fn boxed(&self) -> Arc<dyn BoxedService> {
        self.layer.boxed()
    }

    fn is_layered(&self) -> bool {
        true
    }

    fn queue(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.of.queue()
    }
}

pub(super) fn layered(of: Arc<dyn AnyService>, filtering: impl Filtering) -> Behaviour {
    let erased = Erased { boxed: of.boxed(), of: of.clone() };
    let layer: Arc<dyn AnyService> = Arc::new(Slabs(Arc::new(Layer::new(filtering, erased))));
    Behaviour::Protocol(Arc::new(Around { layer, of }))
}
