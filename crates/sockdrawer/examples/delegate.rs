//! Lines come back in capitals; `sleep` gives the connection to blocking code, which may take its time, and takes it back.
use sockdrawer::{After, Context, Delegate, Error, Input, Note, Peer, Pool, Protocol, Service, Step};
use std::io::Write;

struct Lines;

impl Service for Lines {
    type Protocol = Lines;
    fn open(&self, _peer: &Peer) -> Lines {
        Lines
    }
}

impl Protocol for Lines {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            // What follows this line waits: the delegate may read it, and what it leaves is offered here again.
            if line.eq_ignore_ascii_case(b"sleep") {
                return Step::Delegate(Delegate::new(|connection| {
                    std::thread::sleep(std::time::Duration::from_secs(1));
                    match connection.write_all(b"slept well\n") {
                        Ok(()) => After::Return(Note::value("awake")),
                        Err(_) => After::End,
                    }
                }));
            }
            cx.send(&line.to_ascii_uppercase());
            cx.send(b"\n");
        }
        Step::Continue
    }

    fn notified(&mut self, _awake: Note, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
}

fn main() -> Result<(), Error> {
    Pool::serve(Lines, "127.0.0.1:9000")?.join()
}
