//! The commands of a program that serves: `serve`, `check`, `ctl`, `upgrade`, `parent` and `generate`, with the program's own name, version,
//! protocols and settings in all that they do and say. The program `sockdrawer` has them from here; a service of one's own has them by one line:
//!
//! ```no_run
//! use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step};
//! use sockdrawer_operate::{Kind, Operated, Setting};
//! use std::process::ExitCode;
//!
//! /// A key of the file and an option of `serve`, in help, man page, completions and schema as those that are built in.
//! const GREETING: Setting = Setting::new("greeting", Kind::Switch, "Greet each member").unless_given("true");
//!
//! struct Chat {
//!     greets: bool,
//! }
//!
//! impl Service for Chat {
//!     type Protocol = Member;
//!     fn open(&self, _peer: &Peer) -> Member {
//!         Member { is_new: self.greets }
//!     }
//! }
//!
//! struct Member {
//!     is_new: bool,
//! }
//!
//! impl Protocol for Member {
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
//!         if std::mem::take(&mut self.is_new) {
//!             cx.send(b"welcome\n");
//!         }
//!         cx.send(input.take_all());
//!         Step::Continue
//!     }
//! }
//!
//! fn chat() -> sockdrawer_operate::Protocol {
//!     let build = |values: &sockdrawer_operate::Values| Ok(Config::accept(Chat { greets: values.switch("greeting").unwrap_or(true) }));
//!     sockdrawer_operate::Protocol::new("chat", "a room for lines", build).setting(GREETING)
//! }
//!
//! fn main() -> ExitCode {
//!     sockdrawer_program::main("chat", Operated::new("/etc/chat/chat.toml").version(env!("CARGO_PKG_VERSION")).protocol(chat()))
//! }
//! ```
//!
//! Then `chat serve` runs `/etc/chat/chat.toml`, `chat serve --config FILE` another file, and `chat serve chat --listen 127.0.0.1:9000` what the
//! options say; `chat check` tells what is wrong with a file, `chat ctl status` asks the server, whose control socket is `chat.sock` in
//! `$RUNTIME_DIRECTORY`, `$XDG_RUNTIME_DIR` or `/run/chat` unless `$CHAT_CONTROL` or `--control` say otherwise, `chat upgrade PATH` has the next
//! build take over, and `chat generate man` prints the man page.
//!
//! A program with models that run in other processes registers its recipes before: see [`sockdrawer::processes`]. One with commands of its own
//! builds the whole command line by [`Program::command_of`], and asks [`Program::run`] first.

mod arguments;
mod check;
mod commands;
mod ctl;
pub mod executable;
mod generate;
pub mod help;
pub mod keys;
pub mod line;
pub mod names;
pub mod outcome;
mod parent;
pub mod print;
mod program;
pub mod screen;
mod serve;
pub mod signals;
mod table;
pub mod terminal;
mod upgrade;
pub mod usage;
pub mod values;

pub use commands::end;
pub use outcome::{Exit, Failure};
pub use program::{Entry, Program};

use sockdrawer_operate::Operated;
use std::process::ExitCode;

/// Runs a program of this name as its `main`: does what the command line asks for. See the [crate](self).
pub fn main(name: &'static str, operated: Operated) -> ExitCode {
    Program::new(name, operated).main()
}
