//! Signals, brought to a thread of their own, so that nothing runs inside a signal handler.

use crate::outcome::{Exit, Failure};
use crate::print;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::thread;
use std::time::Duration;

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
    watch_these(&[SIGINT, SIGTERM], move |signal| {
        on_signal(if signal == SIGINT { Signal::Interrupt } else { Signal::Terminate });
    })
}

/// Calls `drain` at the first SIGINT, SIGTERM or SIGHUP; a second SIGINT or SIGTERM ends the program at once, with exit code 1, from here:
/// nothing that another thread waits for is in its way. A SIGHUP is never the second: a terminal that goes away, and systemd, send it
/// beside SIGTERM. Calls `upgrade` for each SIGUSR2. SIGUSR1 means nothing yet, and must not end a server.
pub(crate) fn drain_or_end(drain: impl Fn() + Send + 'static, upgrade: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let (mut draining, mut ending) = (false, false);
    watch_these(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2], move |signal| {
        match signal {
            SIGUSR1 => return,
            SIGUSR2 => return upgrade(),
            _ => {}
        }
        if ending && signal != SIGHUP {
            print::tell_within(Duration::ZERO, SECOND);
            // Not `std::process::exit`, which would wait for standard output.
            signal_hook::low_level::exit(Exit::Failed as i32);
        }
        ending |= signal != SIGHUP;
        if !std::mem::replace(&mut draining, true) {
            drain();
        }
    })
}

/// Calls `pass` for each of the signals that a server may be sent.
pub(crate) fn pass_on(pass: impl FnMut(i32) + Send + 'static) -> Result<(), Failure> {
    watch_these(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2], pass)
}

const SECOND: &str = "error: a second signal: connections were ended before they had finished; send one to drain them";

fn watch_these(numbers: &[i32], mut on_signal: impl FnMut(i32) + Send + 'static) -> Result<(), Failure> {
    let cannot =
        |error| Failure::run(format_args!("cannot watch for signals: {error}; free descriptors or threads and try again"));
    let mut signals = Signals::new(numbers).map_err(cannot)?;
    let watch = move || signals.forever().for_each(&mut on_signal);
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(cannot).map(drop)
}
