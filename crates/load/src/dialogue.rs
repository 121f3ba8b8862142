//! What connections say to a server that speaks something else.

use serde::{Deserialize, Serialize};
use sockdrawer_catalog::dialogue::Expect;
use std::time::Duration;

/// A question of one's own, in place of that of `ping` or of `echo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialogue {
    /// In place of that of `echo`.
    pub of_echo: bool,
    /// From one question to the next; zero is back to back.
    pub interval: Duration,
    /// The question.
    pub send: Vec<u8>,
    /// Its answer; None: whatever comes first.
    pub expect: Option<Expect>,
}

impl Dialogue {
    /// The workload that it is one of.
    pub fn name(&self) -> &'static str {
        if self.of_echo { "echo" } else { "ping" }
    }
}
