//! A chat in the browser: the page and its WebSockets are served by one program, with a file, TLS, metrics, and upgrades in which all guests stay connected.
//!
//! `cargo run -p sockdrawer-program --example web_chat -- serve --listen 127.0.0.1:9000 --upgrade /tmp/web_chat.upgrade`, then open
//! `http://127.0.0.1:9000/?name=ada` in two windows, and replace the program under them with
//! `cargo run -p sockdrawer-program --example web_chat -- upgrade /tmp/web_chat.upgrade`.
use sockdrawer::{CannotRestore, CannotSave, Config, Group, Peer, Saved, Saver, State, Step};
use sockdrawer_operate::{Gauge, MetricFamily, Operated, Protocol};
use sockdrawer_websocket::{Answer, Close, Message, MessageProtocol, MessageService, Opening, Request, Socket, WebSocket};
use std::process::ExitCode;
use std::sync::LazyLock;

const PAGE: &str = include_str!("web_chat.html");
/// The longest name, and the longest line, in bytes.
const MAX_NAME: usize = 40;
const MAX_LINE: usize = 2000;

/// All guests: a reload of the file keeps the room.
static ROOM: LazyLock<Group> = LazyLock::new(Group::default);
/// Shown on the page of metrics as `web_chat_guests`.
static GUESTS: LazyLock<MetricFamily<Gauge, 0>> = LazyLock::new(|| Gauge::family("web_chat_guests", "Guests in the room.", []));

struct Chat;

/// A guest; it counts for as long as it is here.
struct Guest {
    name: String,
}

impl Guest {
    fn new(name: String) -> Guest {
        GUESTS.at([]).add(1.0);
        Guest { name }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        GUESTS.at([]).add(-1.0);
    }
}

/// A line for all pages.
fn line(from: &str, text: &str) -> String {
    serde_json::json!({"from": from, "text": text}).to_string()
}

impl MessageService for Chat {
    type Protocol = Guest;

    fn open(&self, opening: &mut Opening<'_>) -> Result<Guest, Answer> {
        let request = opening.request();
        let name = request.parameter("name").unwrap_or_default();
        // Pages of other servers send their own origin.
        let is_own = match (request.field("Origin"), request.field("Host")) {
            (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, own)| own == host),
            _ => true,
        };
        match request.path.as_str() {
            "/chat" if !is_own => Err(Answer::text(403, "the page of another server\n")),
            "/chat" if name.is_empty() || name.len() > MAX_NAME => Err(Answer::text(400, "name: write 1 to 40 bytes\n")),
            "/chat" => Ok(Guest::new(name.to_owned())),
            path => Err(Answer::error(404, format_args!("nothing is at {path}"))),
        }
    }

    fn page(&self, request: &Request, _peer: &Peer) -> Answer {
        match request.path.as_str() {
            "/" => Answer::new(200, "text/html; charset=utf-8", PAGE),
            path => Answer::error(404, format_args!("nothing is at {path}")),
        }
    }

    /// No line is said while only some of the guests are in the new build's room.
    fn state(&self) -> State {
        State::of("guest", 1).together()
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Guest, CannotRestore> {
        Ok(Guest::new(from.value()?))
    }
}

impl MessageProtocol for Guest {
    fn opened(&mut self, socket: &mut Socket<'_>) -> Step {
        socket.join(&ROOM);
        socket.tag(&self.name);
        socket.publish(&ROOM, Message::Text(&line("", &format!("{} is here", self.name))));
        Step::Continue
    }

    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
        if let Message::Text(text) = message {
            socket.publish(&ROOM, Message::Text(&line(&self.name, text)));
        }
        Step::Continue
    }

    fn closed(&mut self, _close: &Close, socket: &mut Socket<'_>) {
        socket.publish(&ROOM, Message::Text(&line("", &format!("{} has left", self.name))));
    }

    fn restored(&mut self, socket: &mut Socket<'_>) -> Step {
        socket.join(&ROOM);
        Step::Continue
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.value(&self.name)
    }
}

fn main() -> ExitCode {
    let chat = |_: &_| Ok(Config::accept(WebSocket::new(Chat).max_message(MAX_LINE)));
    let chat = Protocol::new("chat", "a page and its WebSockets", chat);
    let operated = Operated::new("/etc/web_chat.toml").version(env!("CARGO_PKG_VERSION")).protocol(chat).metric(&*GUESTS);
    sockdrawer_program::main("web_chat", operated)
}
