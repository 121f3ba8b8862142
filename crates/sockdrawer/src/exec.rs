//! Another program as a behaviour: a process per connection, which has the connection as its standard input and output.

use crate::behaviour::{Behaviour, Kind};
use crate::ipc::codec;
use crate::protocol::{Context, Input, Peer, Protocol, Recipe, Service, Step};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The name of the recipe that every helper process knows.
pub(crate) const NAME: &str = "sockdrawer exec";

impl Behaviour {
    /// Runs `program` for each connection, under [`Model::Fork`](crate::Model::Fork). The connection is the program's standard input and
    /// output, in blocking mode; its standard error is that of this process. It begins without ignored or blocked signals, and without what a
    /// service manager put into the environment for this process (`LISTEN_FDS`, `NOTIFY_SOCKET`, `WATCHDOG_USEC`). When the program
    /// ends, by itself or by a signal that this library did not send, its connection ends, once all that it has written was sent, and all
    /// processes in its process group are killed; one that has started a session of its own (setsid) is out of reach, and goes on. If the
    /// program cannot be started, its connection ends at once.
    ///
    /// A program whose peer is gone gets SIGTERM, and SIGKILL 5 s later: after a reset, and when both directions have ended. A peer that has
    /// sent its end may still read, and is probed (keepalive) every 30 s.
    ///
    /// A drain waits for the program to end by itself. It gets SIGTERM when a tenth of the time is left, at most a second, and SIGKILL at
    /// the deadline. The peer of a program that dies by one of these sees a reset.
    ///
    /// ```
    /// use sockdrawer::{Behaviour, Config, Model};
    ///
    /// let config = Config::accept(Behaviour::exec("cat", ["-u"])).model(Model::Fork);
    /// ```
    pub fn exec<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = A>) -> Behaviour {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().as_bytes().to_vec());
        let words: Vec<Vec<u8>> = std::iter::once(program.as_ref().as_bytes().to_vec()).chain(arguments).collect();
        let options = codec::encode(&words).expect("bytes can always be written");
        from_options(&options).expect("just written")
    }
}

/// Makes the behaviour of a recipe made by [`Behaviour::exec`].
pub(crate) fn from_options(options: &[u8]) -> Option<Behaviour> {
    words(options)?;
    let recipe = Recipe { name: NAME.to_owned(), options: options.to_vec() };
    Some(Behaviour::of_kind(Elsewhere, Kind::Program).with_recipe(recipe))
}

/// Returns the program and its arguments, from the options of a recipe.
pub(crate) fn words(options: &[u8]) -> Option<Vec<OsString>> {
    let words: Vec<Vec<u8>> = codec::decode(options).ok()?;
    (!words.is_empty()).then(|| words.into_iter().map(OsString::from_vec).collect())
}

/// A service whose protocol never runs: a program takes its place.
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
