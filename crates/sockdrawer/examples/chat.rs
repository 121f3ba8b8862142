//! A chat room. The first line that a client sends is its name; every line after it goes to all who are in the room.
//!
//! Start it with `cargo run --example chat`, then run `nc 127.0.0.1 9000` in two terminals, and type. Change something here, start it once
//! more with `SOCKDRAWER_REPLACES=any` before the command, and go on typing: the new build has the room.

use sockdrawer::{
    CannotRestore, CannotSave, Closed, Config, ConnectionId, Context, Error, Handle, Input, Note, NotesWhenFull, Peer, Protocol,
    Saved, Saver, Service, State, Step, Upgrade,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

type Members = HashMap<ConnectionId, Handle>;

/// Everybody who has a name.
#[derive(Default)]
pub(crate) struct Room(Arc<Mutex<Members>>);

impl Service for Room {
    type Protocol = Guest;
    fn open(&self, _peer: &Peer) -> Guest {
        Guest { name: None, room: self.0.clone() }
    }
    /// No line is said while only some of the guests are in the new build's room.
    fn state(&self) -> State {
        State::of("guest", 1).together()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Guest, CannotRestore> {
        let name = String::from_utf8_lossy(from.bytes()?).into_owned();
        Ok(Guest { name: Some(name).filter(|name| !name.is_empty()), room: self.0.clone() })
    }
}

/// One connection.
pub(crate) struct Guest {
    name: Option<String>,
    room: Arc<Mutex<Members>>,
}

impl Guest {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.room.lock().expect("nothing panics under this lock")
    }
}

/// Told under the lock, so that all hear the lines in one order. All share the bytes; a loop whose inbox is full loses the line.
fn tell(members: &Members, line: &str) {
    let bytes: Arc<[u8]> = line.as_bytes().into();
    members.values().for_each(|member| drop(member.notify(bytes.clone())));
}

impl Protocol for Guest {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(end) = input.bytes().iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&input.bytes()[..end]).trim().to_owned();
            input.take(end + 1);
            if let Some(name) = &self.name {
                tell(&self.members(), &format!("{name}: {line}\n"));
            } else if !line.is_empty() {
                let mut members = self.members();
                members.insert(cx.id(), cx.handle());
                tell(&members, &format!("* {line} is here\n"));
                drop(members);
                self.name = Some(line);
            }
        }
        Step::Continue
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().unwrap_or_default());
        Step::Continue
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        if let Some(name) = &self.name {
            let mut members = self.members();
            members.remove(&cx.id());
            if why != Closed::Adopted {
                tell(&members, &format!("* {name} has left\n"));
            }
        }
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.bytes(self.name.as_deref().unwrap_or_default().as_bytes());
        Ok(())
    }

    /// The handle is another one in the new place.
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        if self.name.is_some() {
            self.members().insert(cx.id(), cx.handle());
        }
        Step::Continue
    }
}

/// The room at `address`. Who does not read loses lines; nobody waits for it, and what is kept for it is bounded.
pub(crate) fn config(address: &str) -> Config {
    Config::accept(Room::default()).listen(address).settings(|settings| settings.notes_when_full = NotesWhenFull::Drop)
}

fn main() -> Result<(), Error> {
    let upgrade = Upgrade::at(std::env::temp_dir().join("sockdrawer-example-chat")).begin()?;
    let pool = upgrade.start("chat", config("127.0.0.1:9000"))?;
    upgrade.ready()?;
    pool.join()
}
