//! Errors, by who is at fault and what to do.

use crate::config::Model;
use crate::net::Address;
use std::io;

/// Why a pool could not be started, changed or asked. Each prints as one line: what, why, what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else listens there, possibly another instance of the same program.
    #[error("cannot listen on {0}: the address is in use; stop what listens there (ss -lnp shows it) or choose another")]
    AddressInUse(Address),
    /// The system does not let this user listen there.
    #[error("cannot listen on {address}: permission denied; {remedy}")]
    PermissionDenied {
        /// The address.
        address: Address,
        /// What to do.
        remedy: &'static str,
    },
    /// The system refused the address for another reason.
    #[error("cannot listen on {address}: {source}; {remedy}")]
    Listen {
        /// The address.
        address: Address,
        /// The system's reason.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// More connections were asked for than the process may open descriptors.
    #[error(
        "a limit of {asked} connections needs {needed} descriptors, this process may open {allowed}: at most {fits} fit; raise `ulimit -n` or lower the limit"
    )]
    LimitTooHigh {
        /// The limit asked for.
        asked: usize,
        /// Descriptors it needs, the pool's own included.
        needed: usize,
        /// The process's descriptor limit.
        allowed: usize,
        /// The highest limit that works.
        fits: usize,
    },
    /// A setting makes no sense by itself or beside another.
    #[error("{setting}: {reason}")]
    Invalid {
        /// Which setting.
        setting: &'static str,
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// The model cannot do what was asked.
    #[error("the model {model} cannot {what}: {remedy}")]
    NotInModel {
        /// Which model.
        model: Model,
        /// What it cannot do.
        what: &'static str,
        /// What does it.
        remedy: &'static str,
    },
    /// The pool does not listen there.
    #[error("the pool does not listen on {address}: it listens on {}; name one of them, with its port", list(known))]
    NoSuchListener {
        /// The address that was named.
        address: Address,
        /// Where it does.
        known: Vec<Address>,
    },
    /// One of the pool's processes refuses; the pool goes on as it was.
    #[error("a process of the pool refuses: {reason}")]
    InProcess {
        /// Why.
        reason: String,
    },
    /// The change would need another pool.
    #[error("{setting} cannot be changed while the pool runs: {reason}")]
    CannotChange {
        /// Which setting.
        setting: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// User code failed while a change was prepared; the pool goes on as it was.
    #[error("the new service panicked in `local`: {message}; the pool goes on as it was")]
    ServicePanicked {
        /// The panic's message.
        message: String,
    },
    /// A loop has more notes to bring than its inbox holds.
    #[error("a loop's inbox is full of notes: send less, or again later")]
    InboxFull,
    /// The pool was shut down, or gave up after too many restarts.
    #[error("the pool has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// The system refused a thread, an epoll or an event descriptor.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

/// The same line: `fn main() -> Result<(), Error>` prints this form.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

fn list(known: &[Address]) -> String {
    let names: Vec<String> = known.iter().map(Address::to_string).collect();
    if names.is_empty() { "no address".to_owned() } else { names.join(", ") }
}
