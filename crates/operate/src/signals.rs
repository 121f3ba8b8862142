//! Signals, brought to a thread of their own, so that nothing runs inside a signal handler.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::{fs, io, thread};

/// Calls `drain` at the first SIGINT or SIGTERM; a second one ends the program at once, with exit code 1, from here: nothing that another
/// thread waits for is in its way, and `second` is called before it does. Calls `upgrade` for each SIGUSR2. SIGUSR1 means nothing, and must not end a
/// server.
///
/// SIGHUP calls `reload`. Where there is nothing to reload it is one more request to drain, as when a terminal goes away, and never the
/// second signal: systemd sends it beside SIGTERM.
///
/// # Errors
/// When the system refuses a thread or a descriptor.
pub fn drain_or_end(
    drain: impl Fn() + Send + 'static,
    upgrade: impl Fn() + Send + 'static,
    reload: Option<Box<dyn Fn() + Send>>,
    second: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let (mut draining, mut ending) = (false, false);
    watch(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2], move |signal| {
        match (signal, &reload) {
            (SIGUSR1, _) => return,
            (SIGUSR2, _) => return upgrade(),
            (SIGHUP, Some(reload)) => return reload(),
            _ => {}
        }
        if ending && signal != SIGHUP {
            second();
            // Not `std::process::exit`, which would wait for standard output.
            signal_hook::low_level::exit(1);
        }
        ending |= signal != SIGHUP;
        if !std::mem::replace(&mut draining, true) {
            drain();
        }
    })
}

/// Calls `on_signal` for each of these signals from now on. Call it before anything that takes time, or a signal ends the program at once.
///
/// A hangup that is ignored since before the program began stays so, because nohup(1) asked for it, and so does Ctrl-Z where a shell without
/// job control started it.
///
/// # Errors
/// When the system refuses a thread or a descriptor.
pub fn watch(numbers: &[i32], mut on_signal: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let numbers = numbers.iter().filter(|number| !matches!(**number, SIGHUP | SIGTSTP) || !is_ignored(**number));
    let mut signals = Signals::new(numbers)?;
    let watch = move || signals.forever().for_each(&mut on_signal);
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map(drop)
}

/// Returns whether the kernel discards this signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
