//! SIGINT and SIGTERM, brought to a thread of their own, so that nothing runs inside a signal handler.

use crate::outcome::{Exit, Failure};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::thread;

/// Somebody wants the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// `kill`, systemd, Docker.
    Terminate,
}

impl Signal {
    /// How a program ends that was stopped by it with a part of the result.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Signal::Interrupt => Exit::Interrupted,
            Signal::Terminate => Exit::Terminated,
        }
    }
}

/// Calls `on_signal` for each signal from now on. Call it before anything that takes time, or a signal ends the program at once.
pub(crate) fn watch(mut on_signal: impl FnMut(Signal) + Send + 'static) -> Result<(), Failure> {
    let cannot =
        |error| Failure::run(format_args!("cannot watch for signals: {error}; free descriptors or threads and try again"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(cannot)?;
    let watch = move || {
        for signal in signals.forever() {
            on_signal(if signal == SIGINT { Signal::Interrupt } else { Signal::Terminate });
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(cannot).map(drop)
}
