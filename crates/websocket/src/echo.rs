//! A ready service: each message goes back, or to all.

use crate::{Answer, Message, MessageProtocol, MessageService, Opening, Socket, WebSocket};
use sockdrawer::{Behaviour, Build, CannotRestore, CannotSave, Group, Peer, Recipe, Saved, Saver, State, Step};

/// Sends each message back to its sender, or to all clients, at any path.
#[derive(Clone, Debug, Default)]
pub struct Echo {
    all: Option<Group>,
    max_message: Option<usize>,
    deflates: bool,
}

impl Echo {
    /// Name of its recipe.
    pub const NAME: &str = "ws";

    /// The recipe by which a process that runs the connections of another builds this service: see [`sockdrawer::processes`].
    pub const RECIPE: (&str, Build) = (Echo::NAME, |options| Ok(Echo::from_options(options).behaviour()));

    /// Has each message go to all clients instead. Under a model of several processes, to those in the sender's process.
    #[must_use]
    pub fn to_all(mut self) -> Echo {
        self.all = Some(Group::new());
        self
    }

    /// Sets the maximum of bytes in a message: see [`WebSocket::max_message`].
    #[must_use]
    pub fn max_message(mut self, bytes: usize) -> Echo {
        self.max_message = Some(bytes);
        self
    }

    /// Compresses messages for clients that offer it: see [`WebSocket::deflate`].
    #[must_use]
    pub fn deflate(mut self, deflates: bool) -> Echo {
        self.deflates = deflates;
        self
    }

    /// Returns the behaviour of a pool, like that of [`WebSocket::new`], compiled in this crate.
    #[must_use]
    pub fn behaviour(self) -> Behaviour {
        let (max, deflates) = (self.max_message, self.deflates);
        let socket = WebSocket::new(self).deflate(deflates);
        match max {
            Some(bytes) => socket.max_message(bytes),
            None => socket,
        }
        .into()
    }

    fn from_options(options: &[u8]) -> Echo {
        let text = String::from_utf8_lossy(options);
        let words = text.split(' ');
        words.fold(Echo::default(), |echo, word| match word {
            "all" => echo.to_all(),
            "deflate" => echo.deflate(true),
            bytes => Echo { max_message: bytes.parse().ok().or(echo.max_message), ..echo },
        })
    }
}

/// A connection of [`Echo`].
#[derive(Debug)]
pub struct EchoConnection(Option<Group>);

impl MessageService for Echo {
    type Protocol = EchoConnection;

    fn open(&self, _opening: &mut Opening<'_>) -> Result<EchoConnection, Answer> {
        Ok(EchoConnection(self.all.clone()))
    }

    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<EchoConnection, CannotRestore> {
        Ok(EchoConnection(self.all.clone()))
    }

    fn state(&self) -> State {
        let state = State::of(Echo::NAME, 1);
        if self.all.is_some() { state.together() } else { state }
    }

    fn recipe(&self) -> Option<Recipe> {
        let all = if self.all.is_some() { "all" } else { "" };
        let max = self.max_message.map(|bytes| bytes.to_string()).unwrap_or_default();
        let deflate = if self.deflates { "deflate" } else { "" };
        Some(Recipe { name: Echo::NAME.to_owned(), options: format!("{all} {max} {deflate}").into_bytes() })
    }
}

impl MessageProtocol for EchoConnection {
    fn opened(&mut self, socket: &mut Socket<'_>) -> Step {
        if let Some(all) = &self.0 {
            socket.join(all);
        }
        Step::Continue
    }

    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
        match &self.0 {
            Some(all) => socket.publish(all, message),
            None => socket.send(message),
        }
        Step::Continue
    }

    fn restored(&mut self, socket: &mut Socket<'_>) -> Step {
        self.opened(socket)
    }

    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}
