//! The options of `sockdrawer find`: those of `load`, and what is varied.

use super::load::LoadArguments;
use crate::values::positive;
use clap::{Args, ValueEnum};

/// `sockdrawer find`.
#[derive(Debug, Args)]
pub(crate) struct FindArguments {
    /// What is varied.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "connections")]
    pub(crate) vary: Vary,
    /// The most to try.
    #[arg(long, value_name = "N", value_parser = positive::<u64>, default_value = "1m")]
    pub(crate) max: u64,
    /// What each try does; --connections is where a search for connections begins.
    #[command(flatten)]
    pub(crate) load: LoadArguments,
}

/// What a search changes from one try to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Vary {
    /// Connections at once.
    Connections,
    /// Operations per second of all connections.
    Rate,
    /// Connects per second.
    ConnectRate,
}

impl Vary {
    /// As the option has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Vary::Connections => "connections",
            Vary::Rate => "rate",
            Vary::ConnectRate => "connect-rate",
        }
    }

    /// What a number of it counts.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Vary::Connections => "connections",
            Vary::Rate => "operations/s",
            Vary::ConnectRate => "connects/s",
        }
    }
}
