//! Signals, brought to a thread of their own, so that nothing runs inside a signal handler.

use crate::outcome::{Exit, Failure};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

/// A signal by which the program is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// `kill`, systemd, Docker.
    Terminate,
    /// The terminal has gone.
    HangUp,
}

impl Signal {
    /// Returns the exit of a program that was stopped by it with a part of the result.
    pub fn exit(self) -> Exit {
        match self {
            Signal::Interrupt => Exit::Interrupted,
            Signal::Terminate => Exit::Terminated,
            Signal::HangUp => Exit::HungUp,
        }
    }

    /// Ends the program by it at once, whatever other threads wait for.
    pub(crate) fn end_now(self) -> ! {
        signal_hook::low_level::exit(self.exit().code().into())
    }
}

/// Calls `on_signal` for each signal from now on. Call it before anything that takes time, or a signal ends the program at once.
pub fn watch(mut on_signal: impl FnMut(Signal) + Send + 'static) -> Result<(), Failure> {
    watch_these(&[SIGINT, SIGTERM, SIGHUP], move |signal| {
        on_signal(match signal {
            SIGINT => Signal::Interrupt,
            SIGHUP => Signal::HangUp,
            _ => Signal::Terminate,
        });
    })
}

/// Calls `stopping` when Ctrl-Z is to stop this process, which has to call [`stop_now`], and `continued` when it goes on, whatever stopped it.
pub fn watch_stops(
    mut stopping: impl FnMut() + Send + 'static,
    mut continued: impl FnMut() + Send + 'static,
) -> Result<(), Failure> {
    watch_these(&[SIGTSTP, SIGCONT], move |signal| if signal == SIGTSTP { stopping() } else { continued() })
}

/// Stops this process until it is told to go on.
pub fn stop_now() {
    // Only a signal that does not exist is refused.
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
}

/// Calls `pass` for each of the signals that a server may be sent.
pub fn pass_on(pass: impl FnMut(i32) + Send + 'static) -> Result<(), Failure> {
    watch_these(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2], pass)
}

fn watch_these(numbers: &[i32], on_signal: impl FnMut(i32) + Send + 'static) -> Result<(), Failure> {
    sockdrawer_operate::signals::watch(numbers, on_signal).map_err(|error| {
        Failure::run(format_args!("cannot watch for signals: {error}; free descriptors or threads and try again"))
    })
}
