//! Another program as a behaviour: one process of it for each connection, which is its standard input and output.

use crate::behaviour::{Behaviour, Kind};
use crate::protocol::{Context, Input, Peer, Protocol, Recipe, Service, Step};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Names the recipe that every helper knows.
pub(crate) const NAME: &str = "sockdrawer exec";

impl Behaviour {
    /// Runs `program` for each connection, under [`Model::Fork`](crate::Model::Fork): the connection is its standard input and
    /// output, blocking; its standard error is this program's. When it ends, the connection does, and what it has started in its
    /// process group is killed. A program that cannot be started ends its connection at once.
    ///
    /// A drain waits for it to end by itself; in the last tenth of the time, and for a second at most, it has had SIGTERM, and at the
    /// deadline SIGKILL. The peer of a program that a signal ends sees a reset.
    ///
    /// ```
    /// use sockdrawer::{Behaviour, Config, Model};
    ///
    /// let config = Config::accept(Behaviour::exec("cat", ["-u"])).model(Model::Fork);
    /// ```
    pub fn exec<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = A>) -> Behaviour {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().as_bytes().to_vec());
        let words: Vec<Vec<u8>> = std::iter::once(program.as_ref().as_bytes().to_vec()).chain(arguments).collect();
        let options = postcard::to_allocvec(&words).expect("bytes can always be written");
        from_options(&options).expect("just written")
    }
}

/// What [`Behaviour::exec`] put into its recipe, again.
pub(crate) fn from_options(options: &[u8]) -> Option<Behaviour> {
    words(options)?;
    let recipe = Recipe { name: NAME.to_owned(), options: options.to_vec() };
    Some(Behaviour::of_kind(Elsewhere, Kind::Program).with_recipe(recipe))
}

/// The program and its arguments.
pub(crate) fn words(options: &[u8]) -> Option<Vec<OsString>> {
    let words: Vec<Vec<u8>> = postcard::from_bytes(options).ok()?;
    (!words.is_empty()).then(|| words.into_iter().map(OsString::from_vec).collect())
}

/// No protocol runs where a program does.
struct Elsewhere;

impl Service for Elsewhere {
    type Protocol = Elsewhere;

    fn open(&self, _peer: &Peer) -> Elsewhere {
        Elsewhere
    }
}

impl Protocol for Elsewhere {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Abort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_recipe() {
        let behaviour = Behaviour::exec("echo", ["one word", "\u{e9}"]);
        let recipe = behaviour.service().recipe().expect("it has one");
        assert_eq!(recipe.name, NAME);
        assert_eq!(words(&recipe.options), Some(["echo", "one word", "\u{e9}"].map(OsString::from).to_vec()));
        assert!(from_options(b"").is_none());
    }
}
