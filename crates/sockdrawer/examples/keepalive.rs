//! A server with two deadlines: a client says its name within 10 seconds, and is asked for a sign of life after 30 seconds of silence. The tests
//! below run all of that in no time, because a test sets the clock.

use sockdrawer::{Context, Error, Input, Peer, Pool, Protocol, Service, Step, Timers};
use std::time::Duration;

const LOGIN: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(5);

#[derive(PartialEq)]
enum Deadline {
    Login,
    Ping,
    Pong,
}

struct Sessions;

impl Service for Sessions {
    type Protocol = Session;
    fn open(&self, _peer: &Peer) -> Session {
        Session { name: None, timers: Timers::new() }
    }
}

struct Session {
    name: Option<Vec<u8>>,
    timers: Timers<Deadline>,
}

impl Protocol for Session {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.timers.set(Deadline::Login, LOGIN, cx);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            if self.name.is_none() {
                self.name = Some(line.to_owned());
                self.timers.clear(&Deadline::Login, cx);
            }
            self.timers.clear(&Deadline::Pong, cx);
            self.timers.set(Deadline::Ping, SILENCE, cx);
        }
        Step::Continue
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        while let Some(deadline) = self.timers.due(cx) {
            match deadline {
                Deadline::Login | Deadline::Pong => return Step::Close,
                Deadline::Ping => {
                    cx.send(b"PING\n");
                    self.timers.set(Deadline::Pong, PONG, cx);
                }
            }
        }
        Step::Continue
    }
}

fn main() -> Result<(), Error> {
    Pool::serve(Sessions, "127.0.0.1:9000")?.join()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer::Closed;
    use sockdrawer::testing::Driver;

    #[test]
    fn a_client_that_does_not_say_its_name_is_ended() {
        let mut connection = Driver::open(Sessions);
        connection.receive(b"no whole li");
        connection.advance(LOGIN - Duration::from_millis(1));
        assert_eq!(connection.closed(), None);
        connection.advance(Duration::from_millis(1));
        assert_eq!(connection.closed(), Some(Closed::Orderly));
    }

    #[test]
    fn a_client_stays_for_as_long_as_it_answers() {
        let mut connection = Driver::open(Sessions);
        connection.receive_split(b"ada\n");
        for _ in 0..1000 {
            assert_eq!(connection.timer(), Some(SILENCE));
            connection.advance(SILENCE);
            assert_eq!(connection.sent(), b"PING\n");
            connection.receive(b"PONG\n");
        }
        connection.advance(SILENCE + PONG);
        assert_eq!((connection.sent(), connection.closed()), (b"PING\n".to_vec(), Some(Closed::Orderly)));
    }
}
