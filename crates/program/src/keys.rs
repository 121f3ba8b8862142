//! Keys, where a person is at the terminal.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::{IsTerminal, Read, stderr, stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time between two looks whether the terminal is for this program again, where a key was for another one.
const ASIDE: Duration = Duration::from_millis(300);

/// The modes of the terminal before; None: nothing was changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
/// Keys count.
static LISTENS: AtomicBool = AtomicBool::new(false);

/// Calls `pressed` with each key from now on, if standard input and standard error are a terminal that this program has for itself.
pub fn listen(pressed: impl FnMut(u8) + Send + 'static) -> Option<Keys> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return None;
    }
    LISTENS.store(true, Ordering::Relaxed);
    renew();
    let keys = Keys;
    // Nobody waits for it: it ends with the program.
    thread::Builder::new().name("keys".to_owned()).spawn(move || read(pressed)).ok()?;
    Some(keys)
}

/// Has the terminal give keys as they are pressed, if it does not yet: not while another program has it, and again after a shell had it, which
/// leaves its own modes behind.
pub fn renew() {
    if !LISTENS.load(Ordering::Relaxed) || !is_foreground() {
        return;
    }
    let Ok(before) = tcgetattr(stdin()) else { return };
    let lines = LocalModes::ICANON | LocalModes::ECHO;
    if !before.local_modes.intersects(lines) {
        return;
    }
    let mut modes = before.clone();
    modes.local_modes.remove(lines);
    // A read waits for one byte, however long that takes.
    (modes.special_codes[SpecialCodeIndex::VMIN], modes.special_codes[SpecialCodeIndex::VTIME]) = (1, 0);
    *before_now() = Some(before);
    let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
}

/// Does something while the terminal is as it was.
pub fn without(does: impl FnOnce()) {
    let listened = LISTENS.swap(false, Ordering::Relaxed);
    restore();
    does();
    LISTENS.store(listened, Ordering::Relaxed);
    renew();
}

/// While it is there, the terminal gives keys as they are pressed.
#[derive(Debug)]
pub struct Keys;

impl Drop for Keys {
    fn drop(&mut self) {
        LISTENS.store(false, Ordering::Relaxed);
        restore();
    }
}

/// Gives the terminal back as it was, also where the program ends at once or is stopped. In the background it is another program's, and to
/// change it would stop this one.
pub fn restore() {
    if let Some(before) = before_now().take().filter(|_| is_foreground()) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

fn before_now() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether this program is in the foreground: one in the background that reads from its terminal is stopped by the kernel.
fn is_foreground() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

fn read(mut pressed: impl FnMut(u8)) {
    loop {
        let input = stdin();
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !is_foreground() => {
                // The key is for another program, and stays readable until that takes it.
                thread::sleep(ASIDE);
                continue;
            }
            Ok(_) => {}
        }
        let mut key = [0];
        match input.lock().read(&mut key) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        pressed(key[0]);
    }
}
