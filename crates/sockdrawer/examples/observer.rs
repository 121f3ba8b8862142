//! An observer of one's own: it counts what happens by kind, and writes what an operator must know.

use sockdrawer::{
    Config, Context, Drain, Input, Peer, Pool, Protocol, Service, Step,
    observe::{Event, Observer},
};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
struct Journal {
    generations: AtomicU64,
    panics: AtomicU64,
}

impl Observer for Journal {
    // On the thread where it happened: counting is quick, and so is a line to a file.
    fn event(&self, event: &Event) {
        match event {
            Event::GenerationStarted(_) => _ = self.generations.fetch_add(1, Ordering::Relaxed),
            Event::ConnectionPanicked { .. } => _ = self.panics.fetch_add(1, Ordering::Relaxed),
            Event::LoopStuck { .. } | Event::LoopReplaced { .. } | Event::GaveUp { .. } => eprintln!("look at this: {event:?}"),
            other => println!("{other:?}"),
        }
    }
}

struct Hello;

impl Service for Hello {
    type Protocol = Hello;
    fn open(&self, _peer: &Peer) -> Hello {
        Hello
    }
}

impl Protocol for Hello {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.send(b"Hello\n");
        Step::Close
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let journal = Arc::new(Journal::default());
    // Shared with the program, which reads its numbers.
    let shared = journal.clone();
    let pool = Pool::start(Config::accept(Hello).listen("127.0.0.1:0").observer(move |event: &Event| shared.event(event)))?;
    pool.update(|config| config.behaviour(Hello))?;
    pool.shutdown(Drain::within(Duration::from_secs(1)));
    println!("{} generations, {} panics", journal.generations.load(Ordering::Relaxed), journal.panics.load(Ordering::Relaxed));
    Ok(())
}
