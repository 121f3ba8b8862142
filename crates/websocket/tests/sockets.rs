//! WebSockets over sockets: a room whose guests hear each other once and in order, while its service changes, and is told to end.

use sockdrawer::connecting::Connecting;
use sockdrawer::{CannotRestore, CannotSave, Config, Drain, Group, Model, Peer, Pool, Saved, Saver, Selector, State, Step};
use sockdrawer_websocket::{Answer, Close, Message, MessageProtocol, MessageService, Opening, Socket, WebSocket, code};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const GUESTS: usize = 40;
const LINES: u64 = 25;

/// The server: all that a guest says goes to all guests.
#[derive(Clone, Default)]
struct Room(Group);

impl MessageService for Room {
    type Protocol = Room;

    fn open(&self, _opening: &mut Opening<'_>) -> Result<Room, Answer> {
        Ok(self.clone())
    }

    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Room, CannotRestore> {
        Ok(self.clone())
    }

    fn state(&self) -> State {
        State::of("room", 1)
    }
}

impl MessageProtocol for Room {
    fn opened(&mut self, socket: &mut Socket<'_>) -> Step {
        socket.join(&self.0);
        Step::Continue
    }

    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
        socket.publish(&self.0, message);
        Step::Continue
    }

    fn restored(&mut self, socket: &mut Socket<'_>) -> Step {
        self.opened(socket)
    }

    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

/// The clients: each says its lines once it is told to begin, and hears all of all.
#[derive(Clone)]
struct Guests {
    number: Arc<AtomicU64>,
    all: Arc<Group>,
    heard: Sender<(u64, u64)>,
    closed: Arc<Mutex<Vec<Close>>>,
}

struct Guest {
    guests: Guests,
    number: u64,
    /// The next line of each guest.
    next: Vec<u64>,
}

impl MessageService for Guests {
    type Protocol = Guest;

    fn open(&self, _opening: &mut Opening<'_>) -> Result<Guest, Answer> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        Ok(Guest { guests: self.clone(), number, next: vec![0; GUESTS] })
    }
}

impl MessageProtocol for Guest {
    fn opened(&mut self, socket: &mut Socket<'_>) -> Step {
        socket.join(&self.guests.all);
        Step::Continue
    }

    /// The signal to say the next line: a frame of this process, which no peer sends.
    fn published(&mut self, _frame: sockdrawer_websocket::Frame, socket: &mut Socket<'_>) -> Step {
        let line = self.next[self.number as usize];
        socket.text(&format!("{} {line}", self.number));
        Step::Continue
    }

    fn message(&mut self, message: Message<'_>, _socket: &mut Socket<'_>) -> Step {
        let Message::Text(text) = message else { panic!("a guest said bytes") };
        let (guest, line) = text.split_once(' ').expect("a guest and a line");
        let (guest, line): (u64, u64) = (guest.parse().expect("a number"), line.parse().expect("a number"));
        let next = &mut self.next[guest as usize];
        assert_eq!(line, *next, "guest {} hears guest {guest}", self.number);
        *next += 1;
        // The test ends first where it fails.
        let _ = self.guests.heard.send((self.number, guest));
        Step::Continue
    }

    fn closed(&mut self, close: &Close, _socket: &mut Socket<'_>) {
        self.guests.closed.lock().expect("no panic").push(close.clone());
    }
}

struct Scene {
    server: Pool,
    clients: Pool,
    guests: Guests,
    heard: Receiver<(u64, u64)>,
}

impl Scene {
    fn begin(model: Model) -> Scene {
        let room = WebSocket::new(Room::default());
        let server = Pool::start(Config::accept(room).model(model).listen("127.0.0.1:0")).expect("it starts");
        let (heard, receiver) = channel();
        let guests = Guests { number: Arc::default(), all: Arc::default(), heard, closed: Arc::default() };
        let address = server.addresses()[0].clone();
        let client = WebSocket::client(guests.clone(), &format!("ws://{address}/room"));
        let connecting = Connecting::to([address]).keep(GUESTS).total(GUESTS as u64);
        let clients = Pool::start(Config::connect(client, connecting)).expect("it starts");
        let there = clients.wait(PATIENCE, |_| guests.all.len() == GUESTS);
        assert!(there, "all guests are there");
        Scene { server, clients, guests, heard: receiver }
    }

    /// Has all guests say a line, and waits until all have heard all of them.
    fn round(&self) {
        self.guests.all.publish(sockdrawer_websocket::Frame::text("now")).expect("there is room");
        for count in 0..GUESTS * GUESTS {
            self.heard.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{count} of {} lines were heard", GUESTS * GUESTS));
        }
    }
}

#[test]
fn guests_hear_each_other_while_the_service_changes_under_them() {
    let scene = Scene::begin(Model::Loops);
    for line in 0..LINES {
        scene.round();
        if line % 5 == 0 {
            // Each generation has a room of its own, which all guests are brought to.
            scene.server.reconfigure(scene.server.config().behaviour(WebSocket::new(Room::default()))).expect("it changes");
            let adopted = scene.server.adopt(&Selector::All);
            assert_eq!(adopted.moved, GUESTS, "{adopted:?}");
        }
    }
    let drained = scene.server.shutdown(Drain::within(PATIENCE));
    assert_eq!((drained.ended, drained.cut), (GUESTS, 0), "{drained:?}");
    assert!(scene.clients.wait(PATIENCE, |status| status.connections == 0), "the server ended them");
    let away = Close { code: code::GOING_AWAY, reason: String::new(), is_clean: true };
    assert_eq!(*scene.guests.closed.lock().expect("no panic"), vec![away; GUESTS]);
}

#[test]
fn guests_hear_each_other_under_other_models() {
    for model in [Model::Threads, Model::Tasks] {
        let scene = Scene::begin(model);
        (0..3).for_each(|_| scene.round());
    }
}
