//! `ping` and `echo`: a question again and again on each connection, which waits for the answer each time.

use super::kind::{Kind, Life, Properties, each};
use super::recorder::Recorder;
use super::shared::Shared;
use serde::{Deserialize, Serialize};
use sockdrawer::{Behaviour, Model};
use sockdrawer_catalog::dialogue::{self, Expect};
use sockdrawer_catalog::{Client, Pace, echo, ping};
use std::sync::Arc;
use std::time::Duration;

/// A question and when it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Time from one question to the next; zero is back to back.
    pub interval: Duration,
    /// The question.
    pub question: Question,
}

/// Question of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// `Ping`, which `Pong` answers.
    Ping,
    /// A message, which comes back.
    Echo {
        /// Bytes of it.
        size: u32,
    },
    /// Bytes for a server that speaks something else.
    Other {
        /// True where the question takes the place of that of `echo`, not of `ping`.
        of_echo: bool,
        /// The question.
        send: Vec<u8>,
        /// Answer that is expected; None: whatever comes first.
        expect: Option<Expect>,
    },
}

impl Kind for RoundTrips {
    fn properties(&self) -> Properties {
        let name = match self.question {
            Question::Ping | Question::Other { of_echo: false, .. } => "ping",
            Question::Echo { .. } | Question::Other { of_echo: true, .. } => "echo",
        };
        Properties { interval: self.interval, ..Properties::new(name, Life::RoundTrips) }
    }

    fn client(&self, shared: &Arc<Shared>) -> Behaviour {
        let Shared { timeout, lifetime, seed, .. } = **shared;
        let pace = Pace { interval: shared.interval(), timeout, budget: shared.budget(), lifetime, seed };
        let meter = Recorder::each(shared);
        match &self.question {
            Question::Ping => Client::new(ping::Question, pace, meter).into(),
            Question::Echo { size } => Client::new(echo::Block::new(*size, seed), pace, meter).into(),
            Question::Other { send, expect, .. } => {
                Client::new(dialogue::Question::new(send.clone(), expect.clone()), pace, meter).into()
            }
        }
    }

    fn server(&self) -> (Behaviour, Model) {
        match self.question {
            Question::Ping => (ping::Ping.into(), Model::Loops),
            Question::Echo { .. } | Question::Other { .. } => (echo::Echo.into(), Model::Loops),
        }
    }

    fn set_rate(&mut self, per_second: f64, connections: usize) -> bool {
        self.interval = each(per_second, connections);
        true
    }
}
