//! Signals, brought to a thread of their own, so that nothing runs inside a signal handler.

use crate::outcome::{Exit, Failure};
use crate::print;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::fs;
use std::thread;
use std::time::Duration;

/// Somebody wants the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// `kill`, systemd, Docker.
    Terminate,
    /// The terminal has gone.
    HangUp,
}

impl Signal {
    /// How a program ends that was stopped by it with a part of the result.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Signal::Interrupt => Exit::Interrupted,
            Signal::Terminate => Exit::Terminated,
            Signal::HangUp => Exit::HungUp,
        }
    }
}

/// Calls `on_signal` for each signal from now on. Call it before anything that takes time, or a signal ends the program at once.
pub(crate) fn watch(mut on_signal: impl FnMut(Signal) + Send + 'static) -> Result<(), Failure> {
    watch_these(&[SIGINT, SIGTERM, SIGHUP], move |signal| {
        on_signal(match signal {
            SIGINT => Signal::Interrupt,
            SIGHUP => Signal::HangUp,
            _ => Signal::Terminate,
        });
    })
}

/// Calls `stopping` when Ctrl-Z is to stop this process, which has to call [`stop_now`], and `continued` when it goes on, whatever stopped it.
pub(crate) fn watch_stops(
    mut stopping: impl FnMut() + Send + 'static,
    mut continued: impl FnMut() + Send + 'static,
) -> Result<(), Failure> {
    watch_these(&[SIGTSTP, SIGCONT], move |signal| if signal == SIGTSTP { stopping() } else { continued() })
}

/// Stops this process until it is told to go on.
pub(crate) fn stop_now() {
    // Only a signal that does not exist is refused.
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
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

/// As the kernel has it.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

const SECOND: &str = "error: a second signal: connections were ended before they had finished; send one to drain them";

/// A hangup that is ignored since before the program began stays so, because nohup(1) asked for it, and so does Ctrl-Z where a shell without
/// job control started it.
fn watch_these(numbers: &[i32], mut on_signal: impl FnMut(i32) + Send + 'static) -> Result<(), Failure> {
    let numbers = numbers.iter().filter(|number| !matches!(**number, SIGHUP | SIGTSTP) || !is_ignored(**number));
    let cannot =
        |error| Failure::run(format_args!("cannot watch for signals: {error}; free descriptors or threads and try again"));
    let mut signals = Signals::new(numbers).map_err(cannot)?;
    let watch = move || signals.forever().for_each(&mut on_signal);
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(cannot).map(drop)
}
