//! A proxy whose connections move: it joins each client with a connection to its target.

use sockdrawer::connecting::ConnectFailure;
use sockdrawer::{
    Address, CannotRestore, CannotSave, Context, Handle, Input, Peer, Protocol, Recipe, Saved, Saver, Service, Side, State, Step,
};
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Joins {
    pub(crate) target: Address,
    /// Its connections move together.
    pub(crate) together: bool,
    /// The side of a relay that is not restored.
    pub(crate) refuses: Option<Side>,
}

/// Side of a relay. A client's side knows where to connect to, until it is joined.
pub(crate) struct End(Option<Address>);

pub(crate) fn joins(target: Address) -> Joins {
    Joins { target, together: false, refuses: None }
}

/// Builds the service from its recipe.
#[allow(dead_code, reason = "helpers of one program of tests alone have it")]
pub(crate) fn from_recipe(options: &[u8]) -> Joins {
    let target = String::from_utf8_lossy(&options[1..]).parse().expect("an address");
    Joins { together: options[0] == 1, ..joins(target) }
}

impl Service for Joins {
    type Protocol = End;
    fn open(&self, peer: &Peer) -> End {
        End((peer.side() == Side::Accepted).then(|| self.target.clone()))
    }
    fn state(&self) -> State {
        let state = State::of("joins", 1);
        if self.together { state.together() } else { state }
    }
    fn restore(&self, peer: &Peer, _from: &mut Saved<'_>) -> Result<End, CannotRestore> {
        if self.refuses == Some(peer.side()) { Err(CannotRestore::because("that side stays")) } else { Ok(End(None)) }
    }
    fn recipe(&self) -> Option<Recipe> {
        let options = [&[u8::from(self.together)], self.target.to_string().as_bytes()].concat();
        Some(Recipe { name: "joins".to_owned(), options })
    }
}

impl Protocol for End {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.pause();
        self.0.iter().for_each(|target| cx.connect(target, Duration::from_secs(10)));
        Step::Continue
    }
    fn connected(&mut self, result: Result<Handle, ConnectFailure>, _cx: &mut Context<'_>) -> Step {
        result.map_or(Step::Abort, Step::Relay)
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}
