//! Runs pools as a service that is operated: a configuration file that is checked, reloaded and rolled back, a control socket, metrics, logs,
//! signals, systemd, and the upgrade to a new build. A program registers its protocols, and [`Operated::main`] does the rest. The crate
//! `sockdrawer-program` puts the commands of a command line around it.
//!
//! ```no_run
//! use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step};
//! use sockdrawer_operate::Operated;
//! # use std::process::ExitCode;
//!
//! struct Echo;
//!
//! impl Service for Echo {
//!     type Protocol = Echo;
//!     fn open(&self, _peer: &Peer) -> Echo {
//!         Echo
//!     }
//! }
//!
//! impl Protocol for Echo {
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
//!         cx.send(input.take_all());
//!         Step::Continue
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     let echo = sockdrawer_operate::Protocol::new("echo", "sends back what comes", |_| Ok(Config::accept(Echo)));
//!     Operated::new("echo.toml").protocol(echo).main()
//! }
//! ```
//!
//! with `echo.toml`:
//!
//! ```toml
//! metrics = "127.0.0.1:9464"
//!
//! [pool.echo]
//! protocol = "echo"
//! listen = ["127.0.0.1:9000", "unix:/run/echo.sock"]
//! limit = "10k"
//! ```

mod carry;
mod certificates;
mod change;
mod checks;
pub mod client;
mod control;
mod document;
mod failure;
mod hooks;
mod hub;
mod layers;
#[cfg(feature = "lease")]
mod leases;
mod listen;
mod lock;
mod log;
mod metric_family;
mod metrics;
mod moves;
mod notify;
mod operated;
mod operator;
mod origin;
mod pool_settings;
pub mod print;
mod process;
mod program_settings;
mod protocol;
mod rehearsal;
pub mod replaced;
mod revisions;
mod running;
#[cfg(test)]
mod security;
mod server;
mod setting;
pub mod signals;
mod systemd;
mod times;
mod tls;
mod totals;
mod users;
mod watched;
mod words;
pub mod written;

pub use document::{Document, Format, MAX_BYTES, Mistake, Places, PoolDocument, pool_default};
pub use failure::{Failure, Fault};
pub use hooks::Moment;
#[cfg(feature = "lease")]
pub use leases::Leases;
pub use metric_family::{Counter, Gauge, Histogram, MetricFamily};
pub use operated::Operated;
pub use protocol::{Checked, Protocol};
pub use running::Running;
pub use setting::{Kind, Setting, Text, Value, Values};

/// Returns the settings of pools, in the order in which help shows them.
pub fn pool_settings() -> impl Iterator<Item = &'static Setting> {
    pool_settings::SETTINGS.iter().map(|one| &one.setting)
}

/// The names of the program's own pools, the control socket's and that of collectors of metrics, by which a new build takes them over.
pub const OWN_POOLS: [&str; 2] = [program_settings::CONTROL_POOL, program_settings::METRICS_POOL];

/// Returns the settings of the whole program.
pub fn program_settings() -> impl Iterator<Item = &'static Setting> {
    program_settings::SETTINGS.iter()
}
