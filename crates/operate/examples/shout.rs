//! A service that is operated, in 40 lines: its configuration is a file that is checked, reloaded and rolled back, it has a control socket,
//! metrics, logs and systemd's protocol, and a new build takes over from it.
//!
//! `cargo run -p sockdrawer-operate --example shout -- crates/operate/examples/shout.toml`, then `nc 127.0.0.1 9000`, and beside it
//! `sockdrawer ctl --control /tmp/shout.sock status`.
use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step};
use sockdrawer_operate::{Kind, Operated, Setting};
use std::process::ExitCode;

/// A setting of this service alone: a key of the file like any other.
const MARKS: Setting = Setting::new("marks", Kind::Count(0), "Exclamation marks behind each line").unless_given("1");

struct Shout(usize);

impl Service for Shout {
    type Protocol = Shout;
    fn open(&self, _peer: &Peer) -> Shout {
        Shout(self.0)
    }
}

impl Protocol for Shout {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            cx.send(&line.to_ascii_uppercase());
            cx.send("!".repeat(self.0).as_bytes());
            cx.send(b"\n");
        }
        Step::Continue
    }
}

fn main() -> ExitCode {
    let file = std::env::args().nth(1).unwrap_or_else(|| "shout.toml".to_owned());
    let shout = sockdrawer_operate::Protocol::new("shout", "repeats lines in capitals", |values| {
        Ok(Config::accept(Shout(values.count("marks").unwrap_or(1))))
    });
    Operated::new(file).version(env!("CARGO_PKG_VERSION")).protocol(shout.setting(MARKS)).main()
}
