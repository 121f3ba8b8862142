//! A second port of a pool: clients talk to 127.0.0.1:9000, and `curl 127.0.0.1:9001` shows the pool's numbers, in the form that
//! Prometheus reads.

use sockdrawer::listening::Listening;
use sockdrawer::{Config, Context, Error, Input, Peer, Pool, Protocol, Service, Step};
use std::sync::{Arc, OnceLock};

struct Echo;

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
}

impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.take_all());
        Step::Continue
    }
}

/// Answers each request with the numbers of the pool, which is there once it was started.
#[derive(Clone, Default)]
struct Stats(Arc<OnceLock<Pool>>);

impl Service for Stats {
    type Protocol = Stats;
    fn open(&self, _peer: &Peer) -> Stats {
        self.clone()
    }
}

impl Protocol for Stats {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.until(b"\r\n\r\n").is_none() {
            return Step::Continue;
        }
        let Some(status) = self.0.get().map(Pool::status) else { return Step::Abort };
        let mut page = String::new();
        for listener in &status.listeners {
            page += &format!("connections{{address=\"{}\"}} {}\n", listener.address, listener.connections);
        }
        let counts = status.counts;
        page += &format!("limit {}\naccepted_total {}\nrejected_total {}\n", status.limit, counts.accepted, counts.rejected);
        page += &format!("received_bytes_total {}\nsent_bytes_total {}\n", counts.bytes_in, counts.bytes_out);
        write!(cx.out(), "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}", page.len());
        Step::Close
    }
}

/// Both ports. The second serves few at a time, and keeps its permits although the first is full: the pool's limit is above that of the first.
pub(crate) fn start(clients: &str, stats: &str) -> Result<Pool, Error> {
    let service = Stats::default();
    let config = Config::accept(Echo)
        .limit(1010)
        .listening(Listening::new(clients).limit(1000))
        .listening(Listening::new(stats).limit(10).behaviour(service.clone()));
    let pool = Pool::start(config)?;
    // This is the only place that sets it.
    let _ = service.0.set(pool.clone());
    Ok(pool)
}

fn main() -> Result<(), Error> {
    start("127.0.0.1:9000", "127.0.0.1:9001")?.join()
}
