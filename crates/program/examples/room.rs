//! A chat whose program has all that `sockdrawer` has for a server, under its own name: `serve`, `check`, `ctl`, `upgrade`, `parent` and
//! `generate`. Each line of a member goes to all members.
//!
//! `cargo run -p sockdrawer-program --example room -- serve --config crates/program/examples/room.toml`, then `nc 127.0.0.1 9000` twice, and
//! beside it `cargo run -p sockdrawer-program --example room -- ctl --control /tmp/chat.sock status`. Without a file:
//! `chat serve --listen 127.0.0.1:9000 --greeting hello`.
use sockdrawer::{
    CannotRestore, CannotSave, Config, Context, Group, Input, Note, Peer, Protocol, Saved, Saver, Service, State, Step,
};
use sockdrawer_operate::{Counter, Kind, MetricFamily, Operated, Setting, Text, Values};
use std::process::ExitCode;
use std::sync::LazyLock;

/// A setting of this service alone: a key of the file and an option of `serve`, in help, man page, completions and schema as any other.
const GREETING: Setting = Setting::new("greeting", Kind::Text(LINE), "The line that each new member gets").unless_given("hello");
const LINE: Text = Text { form: "LINE", check: one_line };

fn one_line(text: &str) -> Result<(), String> {
    if text.contains('\n') { Err("has several lines: write one".to_owned()) } else { Ok(()) }
}

/// All members: a reload of the file keeps the room.
static ROOM: LazyLock<Group> = LazyLock::new(Group::default);

/// Shown on the page of metrics as `chat_lines_total`.
static LINES: LazyLock<MetricFamily<Counter, 0>> = LazyLock::new(|| Counter::family("chat_lines", "Lines that were said.", []));

struct Chat {
    greeting: String,
}

/// A connection. It is saved for the next build as nothing but that it is there.
struct Member {
    greeting: String,
}

impl Service for Chat {
    type Protocol = Member;

    /// No line is said while only some of the members are in the new build's room.
    fn state(&self) -> State {
        State::of("member", 1).together()
    }

    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Member, CannotRestore> {
        Ok(Member { greeting: self.greeting.clone() })
    }

    fn open(&self, _peer: &Peer) -> Member {
        Member { greeting: self.greeting.clone() }
    }
}

impl Protocol for Member {
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }

    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        cx.join(&ROOM);
        Step::Continue
    }

    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.join(&ROOM);
        cx.send(format!("{}\n", self.greeting).as_bytes());
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            LINES.at([]).add(1);
            cx.publish(&ROOM, [line, b"\n"].concat());
        }
        Step::Continue
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().unwrap_or_default());
        Step::Continue
    }
}

fn chat() -> sockdrawer_operate::Protocol {
    let config = |values: &Values| {
        let greeting = values.text("greeting").unwrap_or("hello").to_owned();
        Ok(Config::accept(Chat { greeting }))
    };
    sockdrawer_operate::Protocol::new("chat", "a room for lines", config).setting(GREETING)
}

fn main() -> ExitCode {
    let operated = Operated::new("/etc/chat/chat.toml").version(env!("CARGO_PKG_VERSION")).protocol(chat()).metric(&*LINES);
    sockdrawer_program::main("chat", operated)
}
