//! A server that a new build of itself replaces while its clients go on typing.
//!
//! ```text
//! cargo run --example upgrade                               # one terminal
//! nc 127.0.0.1 9000                                         # another: type lines, they are counted
//! SOCKDRAWER_REPLACES=any cargo run --example upgrade       # a third, after you have changed ANSWER below
//! ```
//!
//! The first process ends, `nc` does not notice, and the next line is answered by the new build, which goes on counting.

use sockdrawer::{
    CannotRestore, CannotSave, Config, Context, Error, Input, Peer, Protocol, Saved, Saver, Service, State, Step, Upgrade,
};

/// Change this, and start the program once more.
const ANSWER: &str = "line";

/// Makes a counter for each connection.
struct Counting;

/// Counts the lines of one connection.
struct Counter {
    lines: u64,
}

impl Service for Counting {
    type Protocol = Counter;
    fn open(&self, _peer: &Peer) -> Counter {
        Counter { lines: 0 }
    }
    /// Raise the version when `save` writes something else, and read the older one as long as such a build may still run.
    fn state(&self) -> State {
        State::of("lines", 1)
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Counter, CannotRestore> {
        Ok(Counter { lines: from.u64()? })
    }
}

impl Protocol for Counter {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while input.line().is_some() {
            self.lines += 1;
            writeln!(cx.out(), "{ANSWER} {}", self.lines);
        }
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.lines);
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let path = std::env::temp_dir().join("sockdrawer-example-upgrade");
    let upgrade = Upgrade::at(path).version(env!("CARGO_PKG_VERSION")).begin()?;
    let address = "127.0.0.1:9000";
    let pool = upgrade.start("lines", Config::accept(Counting).listen(address))?;
    upgrade.ready()?;
    println!("pid {} serves", std::process::id());
    pool.join()?;
    println!("pid {} has been replaced", std::process::id());
    Ok(())
}
