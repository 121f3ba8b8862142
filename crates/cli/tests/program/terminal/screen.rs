//! A terminal for the program, and what is to be seen on it.

use crate::faults::until;
use crate::program::hear_hangups;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal on which the program runs.
pub(crate) struct Terminal {
    child: Child,
    keyboard: Option<File>,
    /// Keeps the terminal there when the program has ended.
    end: Option<OwnedFd>,
    shows: Receiver<Vec<u8>>,
    size: (usize, usize),
    /// Everything that was written.
    pub(crate) all: String,
    bytes: Vec<u8>,
    /// Place in `bytes` where the screen was cleared or got another size.
    since: usize,
    before: LocalModes,
}

impl Terminal {
    /// Starts the program with these words on a terminal of this size.
    pub(crate) fn start(size: (usize, usize), variables: &[(&str, &str)], words: &str) -> Terminal {
        Terminal::start_into(size, variables, words, None)
    }

    /// Starts the program so; `output` takes its standard output, in the place of the terminal.
    pub(crate) fn start_into(size: (usize, usize), variables: &[(&str, &str)], words: &str, output: Option<OwnedFd>) -> Terminal {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&main).and_then(|()| unlockpt(&main)).expect("it is ours");
        let name = ptsname(&main, Vec::new()).expect("it has a name");
        let end = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("its other end");
        let before = tcgetattr(&end).expect("a terminal").local_modes;
        // The program leads a session of its own, whose terminal this is.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_sockdrawer")]).args(words.split_whitespace());
        command.env_remove("NO_COLOR").envs([("TERM", "xterm"), ("LC_ALL", "C.UTF-8")]).envs(variables.iter().copied());
        let copy = || end.try_clone().expect("a descriptor");
        command.stdin(copy()).stdout(output.unwrap_or_else(copy)).stderr(copy());
        set_size(&end, size);
        hear_hangups();
        let child = command.spawn().expect("util-linux is there");
        let keyboard = File::from(main);
        let mut screen = keyboard.try_clone().expect("a descriptor");
        let (sender, shows) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (all, bytes) = (String::new(), Vec::new());
        Terminal { child, keyboard: Some(keyboard), end: Some(end), shows, size, all, bytes, since: 0, before }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.as_mut().expect("it is there").write_all(text.as_bytes()).expect("the terminal takes it");
    }

    /// Types Ctrl-S, and waits until the terminal takes nothing.
    pub(crate) fn stops_output(&mut self) {
        self.types("\u{13}");
        let end = self.end.as_ref().expect("it is there");
        until("the terminal takes nothing", || {
            poll(&mut [PollFd::new(end, PollFlags::OUT)], Some(&Timespec::default())) == Ok(0)
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a child that nobody has waited for");
    }

    pub(crate) fn resize(&mut self, size: (usize, usize)) {
        set_size(self.end.as_ref().expect("it is there"), size);
        self.takes_all();
        // Terminals differ in what becomes of the text: this one is empty then.
        self.size = size;
        self.since = self.bytes.len();
    }

    /// Shrinks the terminal as some do that keep what they show where it is: the size of the text on it is unknown then.
    pub(crate) fn shrink(&mut self, size: (usize, usize)) {
        set_size(self.end.as_ref().expect("it is there"), size);
        self.size = size;
    }

    /// Takes what is there.
    pub(crate) fn reads(&mut self) {
        let _ = self.take(Duration::from_millis(100));
    }

    /// Clears the screen as another program would.
    pub(crate) fn clear(&mut self) {
        self.takes_all();
        self.since = self.bytes.len();
    }

    /// Takes what was written.
    fn take(&mut self, within: Duration) -> Result<(), RecvTimeoutError> {
        let first = self.shows.recv_timeout(within)?;
        self.bytes.extend(std::iter::once(first).chain(self.shows.try_iter()).flatten());
        self.all = String::from_utf8_lossy(&self.bytes).into_owned();
        Ok(())
    }

    /// Takes all that was written so far: it stands before a mark that is written now.
    fn takes_all(&mut self) {
        const MARK: &[u8] = b"\0mark\0";
        std::fs::File::from(self.end.as_ref().and_then(|end| end.try_clone().ok()).expect("it is there"))
            .write_all(MARK)
            .expect("a terminal takes it");
        let deadline = Instant::now() + PATIENCE;
        let at = loop {
            if let Some(at) = self.bytes.windows(MARK.len()).position(|bytes| bytes == MARK) {
                break at;
            }
            assert!(Instant::now() < deadline, "the mark never comes:\n{}", self.screen());
            let _ = self.take(Duration::from_millis(100));
        };
        self.bytes.drain(at..at + MARK.len());
        self.all = String::from_utf8_lossy(&self.bytes).into_owned();
    }

    /// Returns what is to be seen.
    pub(crate) fn screen(&self) -> String {
        draw(&String::from_utf8_lossy(&self.bytes[self.since..]), self.size)
    }

    /// Waits until the screen is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what} never comes:\n{screen}");
            let _ = self.take(Duration::from_millis(100));
        }
    }

    /// Waits until the program is stopped, and all that it wrote is there.
    pub(crate) fn until_stopped(&mut self) {
        let status = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("a child").expect("it waits").1;
        assert!(status.stopped(), "{status:?}");
        self.takes_all();
    }

    /// Returns its exit code, when it has ended and all that it wrote is there.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            let _ = self.take(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.screen());
        };
        // Ctrl-Q: it may have been told to take nothing.
        self.types("\u{11}");
        self.takes_all();
        status.code()
    }

    /// Closes the terminal, as when its window is closed.
    pub(crate) fn hang_up(&mut self) -> Option<i32> {
        (self.keyboard, self.end) = (None, None);
        // The thread that reads has the last descriptor, and lets go of it when nothing comes any more.
        let (_, none) = channel();
        self.shows = none;
        self.child.wait().expect("a child").code()
    }

    pub(crate) fn modes(&self) -> LocalModes {
        tcgetattr(self.end.as_ref().expect("it is there")).expect("a terminal").local_modes
    }

    /// Checks that lines and their echo are back, and the cursor is to be seen.
    #[track_caller]
    pub(crate) fn is_as_before(&self) {
        assert_eq!(self.modes(), self.before);
        let last = |sequence: &str| self.all.rfind(sequence);
        assert!(last("\u{1b}[?25h") >= last("\u{1b}[?25l"), "the cursor is hidden");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(end: &OwnedFd, (columns, rows): (usize, usize)) {
    let small = |count: usize| u16::try_from(count).expect("a terminal is small");
    let size = Winsize { ws_col: small(columns), ws_row: small(rows), ws_xpixel: 0, ws_ypixel: 0 };
    match tcsetwinsize(end, size) {
        Ok(()) | Err(Errno::INTR) => {}
        Err(error) => panic!("no size: {error}"),
    }
}

/// Returns what a terminal of this size shows after this text. Lines that are too long are broken, as terminals do, and the screen scrolls.
fn draw(text: &str, (columns, rows): (usize, usize)) -> String {
    let mut screen = vec![vec![' '; columns]; rows];
    let (mut row, mut column) = (0, 0);
    let mut rest = text.chars();
    while let Some(sign) = rest.next() {
        if sign != '\u{1b}' && (sign == '\n' || (column == columns && !sign.is_control())) {
            row += 1;
            column = if sign == '\n' { column } else { 0 };
            if row == rows {
                screen.remove(0);
                screen.push(vec![' '; columns]);
                row -= 1;
            }
        }
        match sign {
            '\u{1b}' => {
                assert_eq!(rest.next(), Some('['), "an unknown sequence in {text:?}");
                let parameters: String = rest.clone().take_while(|sign| !sign.is_ascii_alphabetic()).collect();
                let last = rest.nth(parameters.chars().count()).expect("its end");
                match (last, parameters.parse::<usize>()) {
                    ('A', Ok(up)) => row = row.saturating_sub(up),
                    ('H', Err(_)) => (row, column) = (0, 0),
                    ('K', _) => screen[row][column.min(columns)..].fill(' '),
                    ('J', _) => {
                        screen[row][column.min(columns)..].fill(' ');
                        screen[row + 1..].iter_mut().for_each(|line| line.fill(' '));
                    }
                    ('m' | 'h' | 'l', _) => {}
                    other => panic!("an unknown sequence {other:?}"),
                }
            }
            '\r' => column = 0,
            sign if sign.is_control() => {}
            sign => {
                screen[row][column] = sign;
                column += 1;
            }
        }
    }
    let lines: Vec<String> = screen.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect();
    lines.join("\n").trim_end().to_owned()
}
