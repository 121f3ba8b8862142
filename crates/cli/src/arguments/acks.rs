//! The options of `load acks`.

use super::load::first_given;
use crate::values::Positive;
use clap::Args;
use sockdrawer_catalog::acks::AckPattern;

/// Options of `acks` alone.
#[derive(Debug, Args)]
pub(crate) struct AcksArguments {
    /// acks: how the server acknowledges: reply, read, timer=5ms, async=20,5ms or every=K [default: read].
    #[arg(long, value_name = "HOW")]
    pub(crate) ack: Option<AckPattern>,
    /// acks: messages in one write [default: 1000, or as many as --window allows].
    #[arg(long, value_name = "K")]
    pub(crate) batch: Option<Positive>,
    /// acks: the most messages of a connection without ack; then it waits for one [default: 100000, or --batch if that is more].
    #[arg(long, value_name = "W")]
    pub(crate) window: Option<Positive>,
    /// acks: run all patterns one after the other, at 1 and 8 connections, against a server inside this program, -d each [default: 2s],
    /// and compare them.
    #[arg(long, conflicts_with_all = ["ack", "connections", "operations", "stage", "hold", "connect_rate", "interval", "rate", "source", "local_ports", "processes", "server_pid", "dry_run", "seed"])]
    pub(crate) ladder: bool,
}

impl AcksArguments {
    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given([
            ("--ack", self.ack.is_some()),
            ("--batch", self.batch.is_some()),
            ("--window", self.window.is_some()),
            ("--ladder", self.ladder),
        ])
    }
}
