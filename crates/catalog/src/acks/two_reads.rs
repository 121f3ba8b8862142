//! The server that most people write first: a thread for each connection, and two reads for each message.

use super::ack;
use super::parse::{HEADER, MAX_PAYLOAD, SizeOrder};
use sockdrawer::{
    Behaviour,
    blocking::{Connection, Wakeup},
};
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Speaks as [`Acks`](super::Acks) with [`AckPattern::Timer`](super::AckPattern::Timer) does, by blocking code that reads the header
/// of a message, then its payload: what whole reads are to be compared with. For models that run blocking code.
///
/// ```no_run
/// use sockdrawer::{Config, Model, Pool};
/// use sockdrawer_catalog::acks;
/// use std::time::Duration;
///
/// let behaviour = acks::two_reads(Duration::from_millis(5));
/// let config = Config::accept(behaviour).model(Model::Threads).listen("127.0.0.1:9000");
/// Pool::start(config)?.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn two_reads(after: Duration) -> Behaviour {
    Behaviour::blocking(move |connection| {
        let mut reader = TwoReads { connection, after, due: None, last: 0, unacked: 0 };
        reader.serve()?;
        reader.flush()
    })
}

struct TwoReads<'a> {
    connection: &'a mut Connection,
    after: Duration,
    /// Moment at which the messages that wait are acknowledged; None: none waits.
    due: Option<Instant>,
    last: u64,
    unacked: u32,
}

impl TwoReads<'_> {
    /// Serves until the peer's end, a message that is too large, or the pool's wish between two messages.
    fn serve(&mut self) -> io::Result<()> {
        let mut header = [0; HEADER];
        let mut payload = Vec::new();
        while self.fill(&mut header, true)? {
            let (id, size) = SizeOrder::Little.header(header);
            if size > MAX_PAYLOAD {
                return Ok(());
            }
            // Grows to the largest payload that came.
            payload.resize(payload.len().max(size as usize), 0);
            if !self.fill(&mut payload[..size as usize], false)? {
                return Ok(());
            }
            (self.last, self.unacked) = (id, self.unacked + 1);
            let now = Instant::now();
            match self.due {
                None => self.due = Some(now + self.after),
                Some(due) if due <= now => self.flush()?,
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Acknowledges all that waits.
    fn flush(&mut self) -> io::Result<()> {
        if self.unacked > 0 {
            self.connection.write_all(&ack(self.last, self.unacked))?;
        }
        (self.unacked, self.due) = (0, None);
        Ok(())
    }

    /// Reads as much as `into` holds; one read where all has come. False when the connection is to end: the peer has
    /// finished, or, where a message `begins`, the pool asks.
    fn fill(&mut self, into: &mut [u8], begins: bool) -> io::Result<bool> {
        let mut filled = 0;
        while filled < into.len() {
            let idle = begins && filled == 0;
            // A reader within a message may wait in the read; between messages it must hear what else there is.
            self.connection.set_read_timeout(if idle { Some(Duration::ZERO) } else { self.patience() });
            match self.connection.read(&mut into[filled..]) {
                Ok(0) => return Ok(false),
                Ok(count) => filled += count,
                Err(error) if error.kind() != ErrorKind::TimedOut => return Err(error),
                Err(_) if !idle => self.flush()?,
                Err(_) => {
                    if self.wait()? == Wakeup::Draining {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Waits between two messages; what is due meanwhile is acknowledged. Notes are nothing to it.
    fn wait(&mut self) -> io::Result<Wakeup> {
        loop {
            self.connection.set_read_timeout(self.patience());
            match self.connection.wait() {
                Err(error) if error.kind() == ErrorKind::TimedOut => self.flush()?,
                Ok(Wakeup::Note) => drop(self.connection.take_note()),
                waited => return waited,
            }
        }
    }

    /// Returns the time until the ack is due; None: nothing need be done.
    fn patience(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }
}
