//! The events of a pool go to `tracing`, and its numbers to the facade `metrics`, for whatever the program exports them by. A connection has a span.
use sockdrawer::{
    Config, Context, Drain, Input, Peer, Pool, Protocol, Service, Step,
    observe::{Event, Observer},
};
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tracing::Span;

/// Passes events of the pool of this name on.
struct Traced(&'static str);

impl Observer for Traced {
    // On the thread where it happened: a subscriber that writes should not wait for a disk.
    fn event(&self, event: &Event) {
        match event {
            Event::ConnectionPanicked { .. } | Event::LoopStuck { .. } | Event::LoopReplaced { .. } | Event::GaveUp { .. } => {
                tracing::error!(pool = self.0, ?event);
            }
            _ => tracing::info!(pool = self.0, ?event),
        }
    }
}

/// Sets what the facade knows of a pool, before each export or once a second: the values are absolute, so that nothing is counted twice.
fn export(name: &'static str, pool: &Pool) {
    let status = pool.status();
    metrics::gauge!("sockdrawer_connections", "pool" => name).set(status.connections as f64);
    for (counter, value) in status.counts.by_name() {
        metrics::counter!(format!("sockdrawer_{counter}"), "pool" => name).absolute(value);
    }
}

struct Shout;

struct Shouting(Span);

impl Service for Shout {
    type Protocol = Shouting;
    fn open(&self, peer: &Peer) -> Shouting {
        Shouting(tracing::info_span!("connection", peer = ?peer.remote()))
    }
}

impl Protocol for Shouting {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let _entered = self.0.enter();
        while let Some(line) = input.line() {
            tracing::debug!(bytes = line.len(), "a line");
            cx.send(&line.to_ascii_uppercase());
            cx.send(b"\n");
        }
        Step::Continue
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::start(Config::accept(Shout).listen("127.0.0.1:0").observer(Traced("shout")))?;
    let mut client = TcpStream::connect(pool.addresses()[0].to_string())?;
    let mut answer = [0; 6];
    client.write_all(b"hello\n").and_then(|()| client.read_exact(&mut answer))?;
    export("shout", &pool);
    pool.shutdown(Drain::within(Duration::from_secs(1)));
    assert_eq!(&answer, b"HELLO\n");
    Ok(())
}
