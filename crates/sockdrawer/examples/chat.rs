//! A chat room. The first line that a client sends is its name; every line after it goes to all who are in the room.
//!
//! Start it with `cargo run --example chat`, then run `nc 127.0.0.1 9000` in two terminals, and type. Change something here, start it once
//! more with `SOCKDRAWER_REPLACES=any` before the command, and go on typing: the new build has the room.

use sockdrawer::{
    CannotRestore, CannotSave, Closed, Config, Context, Error, Group, Input, Note, Peer, Protocol, Saved, Saver, Service, State,
    Step, Upgrade,
};

/// All guests who have a name.
#[derive(Default)]
pub(crate) struct Room(Group);

impl Service for Room {
    type Protocol = Guest;
    fn open(&self, _peer: &Peer) -> Guest {
        Guest { name: None, room: self.0.clone() }
    }
    /// No line is said while only some of the guests are in the new build's room.
    fn state(&self) -> State {
        State::of("guest", 2).together()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Guest, CannotRestore> {
        Ok(Guest { name: from.value()?, room: self.0.clone() })
    }
}

/// One connection.
pub(crate) struct Guest {
    name: Option<String>,
    room: Group,
}

impl Protocol for Guest {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            let line = String::from_utf8_lossy(line).trim().to_owned();
            if let Some(name) = &self.name {
                cx.publish(&self.room, format!("{name}: {line}\n").into_bytes());
            } else if !line.is_empty() {
                cx.join(&self.room);
                cx.publish(&self.room, format!("* {line} is here\n").into_bytes());
                self.name = Some(line);
            }
        }
        Step::Continue
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().unwrap_or_default());
        Step::Continue
    }

    /// An adopted guest has not left: its connection goes on.
    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        if let Some(name) = self.name.as_ref().filter(|_| why != Closed::Adopted) {
            cx.publish(&self.room, format!("* {name} has left\n").into_bytes());
        }
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.value(&self.name)
    }

    /// The room is another one in another process.
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        if self.name.is_some() {
            cx.join(&self.room);
        }
        Step::Continue
    }
}

/// The room at `address`. A guest who does not read for so long that 1 MiB waits is shown out; no other waits for it.
pub(crate) fn config(address: &str) -> Config {
    Config::accept(Room::default()).listen(address)
}

fn main() -> Result<(), Error> {
    let upgrade = Upgrade::at(std::env::temp_dir().join("sockdrawer-example-chat")).begin()?;
    let pool = upgrade.start("chat", config("127.0.0.1:9000"))?;
    upgrade.ready()?;
    pool.join()
}
