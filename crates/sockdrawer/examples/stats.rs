//! A pool that shows the numbers of another: clients talk to 127.0.0.1:9000, and `curl 127.0.0.1:9001` shows the pool's numbers, in the form that
//! Prometheus reads.

use sockdrawer::{Config, Context, Error, Input, Peer, Pool, PoolHandle, Protocol, Service, Step};

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

/// Answers each request with the numbers of the pool.
#[derive(Clone)]
struct Stats(PoolHandle);

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
        let status = self.0.status();
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

/// Both pools. The second serves few at a time, and has permits of its own: it answers although the first is full.
pub(crate) fn start(clients: &str, stats: &str) -> Result<[Pool; 2], Error> {
    let pool = Pool::start(Config::accept(Echo).limit(1000).listen(clients))?;
    let numbers = Pool::start(Config::accept(Stats(pool.handle())).loops(1).limit(10).listen(stats))?;
    Ok([pool, numbers])
}

fn main() -> Result<(), Error> {
    let [pool, _numbers] = start("127.0.0.1:9000", "127.0.0.1:9001")?;
    pool.join()
}
