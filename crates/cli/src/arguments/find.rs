//! The options of `sockdrawer find`: those of `load`, and what is varied.

use super::load::LoadArguments;
use crate::values::positive;
use clap::{Args, ValueEnum};

/// `sockdrawer find`.
#[derive(Debug, Args)]
pub(crate) struct FindArguments {
    /// The quantity to search for.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "connections")]
    pub(crate) vary: Vary,
    /// The maximum to try.
    #[arg(long, value_name = "N", value_parser = positive::<u64>, default_value = "1m")]
    pub(crate) max: u64,
    /// The options of each try; --connections is the start of a search for connections.
    #[command(flatten)]
    pub(crate) load: LoadArguments,
}

/// The quantity that a search changes from one try to the next.
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

    /// Returns the unit of its numbers.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Vary::Connections => "connections",
            Vary::Rate => "operations/s",
            Vary::ConnectRate => "connects/s",
        }
    }
}
