//! Probes: connections that test from outside whether a change is in force.

use super::served::MARKER;
use crate::Group;
use crate::PATIENCE;
use crate::{Counter, Tally, Witness};
use sockdrawer::{
    Address, Closed, Config, Context, Drain, Error, Input, Local, Peer, Pool, Protocol, Selector, Service, Step,
    connecting::{ConnectFailure, Connecting},
    observe::ConnectionStatus,
};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The bytes that a probe sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// Bytes that the server must send back.
    Hello,
    /// The marker at which a crashing service panics.
    Marker,
}

impl Says {
    fn bytes(self) -> &'static [u8] {
        match self {
            Says::Hello => b"is it in force?",
            Says::Marker => MARKER,
        }
    }
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// The bytes came back.
    Echo,
    /// The connect failed.
    Refused(i32),
    /// The socket failed.
    Broken(i32),
    /// The connection ended otherwise: early, late or with wrong bytes.
    Else,
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Met::Echo => f.write_str("its echo"),
            Met::Refused(errno) => write!(f, "a failed connect (errno {errno})"),
            Met::Broken(errno) => write!(f, "a broken connection (errno {errno})"),
            Met::Else => f.write_str("neither echo nor refusal"),
        }
    }
}

/// A probe that is under way, or stays open after its echo until it is dropped or ended.
pub(crate) struct EchoProbe {
    pool: Pool,
    source: IpAddr,
    hears: Receiver<Met>,
}

impl EchoProbe {
    /// Connects to `target` as the `number`th probe and sends its bytes.
    ///
    /// # Errors
    /// When the probe's pool cannot be started.
    pub(crate) fn send(target: &Address, number: u64, says: Says, tally: &Arc<Tally>) -> Result<EchoProbe, Error> {
        let (tell, hears) = channel();
        let source = Group::Probe.source(number);
        let connecting = Connecting::to([target]).keep(1).sources([source]).total(1).timeout(PATIENCE);
        let prober = Prober { tell, says, counter: tally.witness(Group::Probe) };
        let pool = Pool::start(Config::connect(prober, connecting).loops(1).workers(0).capacity(1))?;
        Ok(EchoProbe { pool, source, hears })
    }

    /// Waits for the result. A client pool without a result after twice its timeout has a bug.
    pub(crate) fn met(&self) -> Met {
        self.hears.recv_timeout(2 * PATIENCE).unwrap_or(Met::Else)
    }

    /// Returns this connection as the server's pool lists it; None if there is not exactly one.
    pub(crate) fn on(&self, server: &Pool) -> Option<ConnectionStatus> {
        let mut found = server.connections(&Selector::Peers(self.source, 32));
        if found.len() == 1 { found.pop() } else { None }
    }

    /// Ends the probe in order.
    pub(crate) fn end(self) {
        self.pool.shutdown(Drain::within(PATIENCE));
    }
}

struct Prober {
    tell: Sender<Met>,
    says: Says,
    counter: Arc<Counter>,
}

impl Service for Prober {
    type Protocol = Question;

    fn open(&self, _peer: &Peer) -> Question {
        Question { tell: self.tell.clone(), says: self.says, counter: self.counter.clone(), came: 0, told: false }
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        // The receiver is gone if the trial gave up on this probe.
        let _ = self.tell.send(Met::Refused(failure.errno));
    }
}

struct Question {
    tell: Sender<Met>,
    says: Says,
    counter: Arc<Counter>,
    came: usize,
    told: bool,
}

impl Question {
    fn tell(&mut self, met: Met) {
        if !self.told {
            self.told = true;
            // As above.
            let _ = self.tell.send(met);
        }
    }
}

impl Protocol for Question {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.counter.stood();
        cx.send(self.says.bytes());
        cx.set_timer(PATIENCE);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let left = &self.says.bytes()[self.came..];
        if !left.starts_with(input.bytes()) {
            self.tell(Met::Else);
            return Step::Abort;
        }
        self.came += input.bytes().len();
        input.take_all();
        if self.came == self.says.bytes().len() {
            cx.clear_timer();
            self.tell(Met::Echo);
        }
        Step::Continue
    }

    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        self.tell(Met::Else);
        Step::Abort
    }

    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        // The server answers with its own end, which ends this connection.
        Step::EndOutput
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        self.tell(match why {
            Closed::Error(errno) => Met::Broken(errno),
            _ => Met::Else,
        });
    }
}
