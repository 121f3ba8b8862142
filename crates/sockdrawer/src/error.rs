//! The errors of a pool: each says what failed, why, and what to do.

use crate::config::Model;
use crate::net::{Address, AddressError};
use crate::sys::Errno;
use std::io;

/// Reason why a pool could not be started, changed or asked. Each error prints as one line: what failed, why, what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another socket listens at the address, possibly of another instance of this program.
    #[error("cannot listen on {0}: the address is in use; stop what listens there (ss -lnp shows it) or choose another")]
    AddressInUse(Address),
    /// The system does not let this user listen at the address.
    #[error("cannot listen on {address}: permission denied; {remedy}")]
    PermissionDenied {
        /// The address.
        address: Address,
        /// Advice on what to do.
        remedy: &'static str,
    },
    /// The system refused the address for another reason.
    #[error("cannot listen on {address}: {source}; {remedy}")]
    Listen {
        /// The address.
        address: Address,
        /// The system's reason.
        source: io::Error,
        /// Advice on what to do.
        remedy: &'static str,
    },
    /// More connections were asked for than the process may open descriptors.
    #[error(
        "{} {asked} connections needs {needed} descriptors, this process may open {allowed}{}: at most {fits} fit; raise `ulimit -n` or {}",
        asks(setting),
        has_open(*open),
        ask_for_less(setting)
    )]
    LimitTooHigh {
        /// The name of the setting: `limit`, or `connecting.keep` of a pool that connects.
        setting: &'static str,
        /// The number of connections asked for.
        asked: usize,
        /// Descriptors it needs, the pool's own included.
        needed: usize,
        /// The process's descriptor limit.
        allowed: usize,
        /// Descriptors that the process had open for other things.
        open: usize,
        /// The highest limit that works.
        fits: usize,
    },
    /// A setting makes no sense by itself or together with another.
    #[error("{setting}: {reason}")]
    Invalid {
        /// The name of the setting.
        setting: &'static str,
        /// The mistake in the setting, and advice on what to do.
        reason: String,
    },
    /// A text that was given in the place of an address is none.
    #[error("{setting}: {source}")]
    Address {
        /// The name of the setting: `listeners`, or `connecting.targets`.
        setting: &'static str,
        /// The mistake in the text, and what to write instead.
        source: AddressError,
    },
    /// The model cannot do what was asked for.
    #[error("the model {model} cannot {what}: {remedy}")]
    NotInModel {
        /// The model.
        model: Model,
        /// Action that the model cannot do.
        what: &'static str,
        /// Advice on what to use instead.
        remedy: &'static str,
    },
    /// The program does not say how a helper process builds its service, so that it cannot be had in the models `fork` and `prefork`.
    #[error("the model {model} cannot {what}: {remedy}")]
    NoRecipe {
        /// The model.
        model: Model,
        /// Action that the model cannot do.
        what: &'static str,
        /// Advice: what the program has to say, or the model to use.
        remedy: &'static str,
    },
    /// The pool does not listen at the address.
    #[error("the pool does not listen on {address}: it listens on {}; name one of them, with its port", list(known))]
    NoSuchListener {
        /// The address that was named.
        address: Address,
        /// The addresses at which the pool listens.
        known: Vec<Address>,
    },
    /// A process of the pool refused the change; the pool goes on as it was.
    #[error("a process of the pool refuses: {reason}")]
    InProcess {
        /// The reason.
        reason: String,
    },
    /// The setting cannot be changed in a running pool: start another pool.
    #[error("{setting} cannot be changed while the pool runs: {reason}")]
    CannotChange {
        /// The name of the setting.
        setting: &'static str,
        /// The reason, and advice on what to do.
        reason: String,
    },
    /// The pool was changed since this configuration was copied from it; nothing was done.
    #[error(
        "the configuration changed meanwhile: it is based on revision {based_on}, the pool is at {current}; take pool.config() again and apply the change to that"
    )]
    Conflict {
        /// The revision that the configuration is based on.
        based_on: u64,
        /// The revision of the pool.
        current: u64,
    },
    /// The change needs another generation, and the maximum, [`Config::max_generations`](crate::Config::max_generations), is reached; the
    /// pool goes on as it was.
    #[error(
        "{live} generations live, the oldest holds {}: let them be adopted, drain or purge them",
        Amount(*.connections)
    )]
    TooManyGenerations {
        /// The number of generations that are in force or have connections.
        live: usize,
        /// The number of the oldest generation.
        oldest: u32,
        /// The connections of the oldest generation.
        connections: usize,
    },
    /// User code panicked while a change was prepared; the pool goes on as it was.
    #[error("the new service panicked in `local`: {message}; the pool goes on as it was")]
    ServicePanicked {
        /// The panic's message.
        message: String,
    },
    /// A loop's inbox is full of notes.
    #[error("a loop's inbox is full of notes: send less, or again later")]
    InboxFull,
    /// The pool was shut down, or gave up after too many restarts.
    #[error("the pool has stopped: {reason}")]
    Stopped {
        /// The reason.
        reason: String,
    },
    /// The pool is on its way from one process to another, which say the configuration of it.
    #[error("the pool cannot be changed now: {reason}")]
    HandingOver {
        /// The place where, or the time when, it can be changed.
        reason: &'static str,
    },
    /// This process could not take over from the one that it was to replace, which goes on as it was.
    #[error("cannot take over at {}: {reason}", path.display())]
    Upgrade {
        /// The path at which the two meet.
        path: std::path::PathBuf,
        /// The reason, and advice on what to do.
        reason: String,
    },
    /// This process was to be the next build in a rehearsal, which has ended: the other goes on as it was, and knows what would be taken over.
    #[error("a rehearsal at {} has ended: nothing was taken over", path.display())]
    Rehearsed {
        /// The path at which the two met.
        path: std::path::PathBuf,
    },
    /// The system refused a thread, an epoll or an event descriptor.
    #[error("cannot {what}: {source}{}", remedy(source))]
    System {
        /// Action that was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

/// Returns what an operator can do about an error of a limit that the process has inherited.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN | Errno::NOMEM) => {
            "; allow more processes, threads and memory (ulimit -u, -v and -d, and those of the cgroup)"
        }
        Some(Errno::MFILE) => "; allow more descriptors (ulimit -n)",
        Some(Errno::FBIG) => "; allow larger files (ulimit -f)",
        _ => "",
    }
}

/// A number of connections as text, with commas: "41,210 connections".
struct Amount(usize);

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.char_indices() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        f.write_str(if self.0 == 1 { " connection" } else { " connections" })
    }
}

/// Prints the line of `Display`: `fn main() -> Result<(), Error>` prints errors by `Debug`.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The setting of [`Config::connecting`](crate::Config::connecting) that is the maximum of connections of a pool that connects.
pub(crate) const KEEP: &str = "connecting.keep";

/// Returns words about the descriptors open for other things than a pool, so that a leak is not taken for a limit that is too low.
fn has_open(open: usize) -> String {
    if open > 0 { format!(" and has {open} open for other things") } else { String::new() }
}

fn asks(setting: &str) -> &'static str {
    if setting == KEEP { "keeping" } else { "a limit of" }
}

fn ask_for_less(setting: &str) -> &'static str {
    if setting == KEEP { "keep fewer" } else { "lower the limit" }
}

fn list(known: &[Address]) -> String {
    let names: Vec<String> = known.iter().map(Address::to_string).collect();
    if names.is_empty() { "no address".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_connections_have_commas() {
        let line = |connections| Error::TooManyGenerations { live: 8, oldest: 1, connections }.to_string();
        assert_eq!(
            line(41_210),
            "8 generations live, the oldest holds 41,210 connections: let them be adopted, drain or purge them"
        );
        for (connections, words) in
            [(0, "0 c"), (1, "1 connection:"), (999, "999 c"), (1000, "1,000 c"), (1_234_567, "1,234,567 c")]
        {
            assert!(line(connections).contains(&format!("holds {words}")), "{}", line(connections));
        }
    }
}
