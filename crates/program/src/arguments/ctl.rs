//! `ctl`.

use super::RequiredShare;
use crate::values::{count, positive_time, time};
use clap::{Args, Subcommand};
use sockdrawer::Address;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `ctl`.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "WHAT", subcommand_help_heading = "What")]
pub(crate) struct CtlArguments {
    #[command(subcommand)]
    pub(crate) what: Ctl,
    /// The server's control socket [default: $SOCKDRAWER_CONTROL; else sockdrawer.sock in $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR or
    /// /run/sockdrawer].
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) control: Option<PathBuf>,
    /// Print what the server answers, in JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How long the server may be silent [default: 10s; what waits for connections or a new build: for ever].
    #[arg(long, value_name = "T", value_parser = positive_time, global = true)]
    pub(crate) timeout: Option<Duration>,
}

/// Questions to a server, and orders.
#[derive(Debug, Subcommand)]
pub(crate) enum Ctl {
    /// Show the server and its pools.
    Status,
    /// Show the generations of each pool, and their connections.
    Generations,
    /// Show the addresses of each pool, and what waits there.
    Listeners,
    /// Show a table of the program's own, such as the targets of a proxy.
    Show(Named),
    /// List connections: all, or those that match.
    Connections(Selected),
    /// Redraw connections, rates, generations and loops each second; on no terminal, print a line each second.
    ///
    /// Until `q`, Ctrl-C or SIGTERM; `s` sorts the pools, `/` shows those whose names contain what is typed, `j`, `k`, space, `b` and the arrows
    /// scroll where there are many.
    Top,
    /// Print events as they come.
    Events,
    /// Print the configuration in force, as a file that apply takes.
    ///
    /// It is TOML, with `# revision N` above it.
    Config,
    /// Change the configuration to that of a file: all of it or nothing.
    Apply(ApplyArguments),
    /// Have the server read its configuration file again.
    Reload(Change),
    /// Go back to the configuration before the one in force.
    Rollback(Change),
    /// List the last revisions of the configuration: when, by whom, what each changed, and where a rollback goes.
    Revisions,
    /// Accept no more; what is connected goes on.
    ///
    /// Of all pools, or of some.
    Suspend(At),
    /// Accept again.
    Resume(At),
    /// Ask connections to end, and wait for that; those that have not at the end of the time are ended.
    Drain(DrainArguments),
    /// End connections as soon as they owe their peers nothing.
    Purge(PurgeArguments),
    /// End connections at once.
    Kill(Chosen),
    /// Move connections of older generations to the newest one.
    Adopt(Chosen),
    /// Have a new build of the program take over: needs serve --upgrade.
    Upgrade(UpgradeBy),
    /// Drain all connections, and end the server.
    Stop,
}

/// A table.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name. Without one, those that there are.
    #[arg(value_name = "TABLE")]
    pub(crate) name: Option<String>,
}

/// Connections that match all that is given.
#[derive(Debug, Args)]
pub(crate) struct Selected {
    /// Those of this pool [default: of all pools].
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// The connection of this number.
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    pub(crate) id: Option<u64>,
    /// Those of this generation.
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    pub(crate) generation: Option<u32>,
    /// Those of generations before this one.
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    pub(crate) before: Option<u32>,
    /// Those of this address, or of a network such as 10.0.0.0/8.
    #[arg(long, value_name = "IP[/PREFIX]", value_parser = network)]
    pub(crate) peer: Option<String>,
    /// Those that have been open for longer.
    #[arg(long, value_name = "T", value_parser = time)]
    pub(crate) older_than: Option<Duration>,
    /// Those with this tag.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Those that were accepted at this address.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listener: Option<Address>,
}

/// Connections that are done something to: all must be asked for.
#[derive(Debug, Args)]
pub(crate) struct Chosen {
    #[command(flatten)]
    pub(crate) selected: Selected,
    /// All connections of the pool, or of all pools.
    #[arg(long, conflicts_with_all = ["id", "generation", "before", "peer", "older_than", "tag", "listener"])]
    pub(crate) all: bool,
}

/// `ctl drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArguments {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    /// How long they may take [default: the drain of their pool].
    #[arg(long, value_name = "T", value_parser = time)]
    pub(crate) within: Option<Duration>,
    /// How many are asked per second [default: all at once].
    #[arg(long, value_name = "R", value_parser = crate::values::rate)]
    pub(crate) rate: Option<f64>,
}

/// `ctl purge`.
#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    /// How long they may take [default: 5s].
    #[arg(long, value_name = "T", value_parser = time)]
    pub(crate) within: Option<Duration>,
}

/// `ctl apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArguments {
    /// The configuration, TOML or, if its name ends with .json, JSON; - is standard input.
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) change: Change,
    /// The revision that the file was made of; if another one is in force, nothing is changed [default: that of the line
    /// "# revision N" with which the output of ctl config begins; without it, the one in force].
    #[arg(long = "if", value_name = "REVISION", value_parser = count::<u64>)]
    pub(crate) based_on: Option<u64>,
}

/// A change.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `ctl suspend` and `resume`.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// Of this pool alone.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// At this address alone.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listener: Option<Address>,
}

/// `ctl upgrade`.
#[derive(Debug, Args)]
pub(crate) struct UpgradeBy {
    /// Start the new build, let it prepare itself, print the plan, and end it: the server goes on.
    #[arg(long)]
    pub(crate) rehearse: bool,
    #[command(flatten)]
    pub(crate) required: RequiredShare,
}

impl Selected {
    /// As parameters of a request; the name of the pool is none that selects.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        let text = |name, value: Option<String>| value.map(|value| (name, value));
        let age = self.older_than.map(sockdrawer_catalog::time::format);
        let all = [
            text("id", self.id.map(|id| id.to_string())),
            text("generation", self.generation.map(|number| number.to_string())),
            text("before", self.before.map(|number| number.to_string())),
            text("peer", self.peer.clone()),
            text("older-than", age),
            text("tag", self.tag.clone()),
            text("listener", self.listener.as_ref().map(Address::to_string)),
        ];
        all.into_iter().flatten().collect()
    }
}

fn network(text: &str) -> Result<String, String> {
    let (address, prefix) = text.split_once('/').unwrap_or((text, "0"));
    let most = address.parse::<IpAddr>().map(|address| if address.is_ipv4() { 32 } else { 128 });
    match (most, prefix.parse::<u8>()) {
        (Ok(most), Ok(prefix)) if prefix <= most => Ok(text.to_owned()),
        _ => Err("not an address or network: write one such as 10.0.0.1, 10.0.0.0/8 or fd00::/8".to_owned()),
    }
}
