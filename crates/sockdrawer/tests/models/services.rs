//! Services that the pools of the suite run. They may run in other processes: they tell what they see to their clients alone, and
//! each has a recipe.

use sockdrawer::{
    Build, CannotRestore, CannotSave, Closed, Context, Input, Job, JobError, JobResult, Note, Peer, Protocol, Recipe, Saved,
    Saver, Service, Step,
};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Recipes of all services, as other processes build them.
pub(crate) const RECIPES: [(&str, Build); 3] = [
    (Mute::NAME, |_| Ok(Mute.into())),
    (Mirror::NAME, |_| Ok(Mirror.into())),
    (Actor::NAME, |options| Ok(Actor { version: u32::from_le_bytes(options.try_into()?) }.into())),
];

/// Service that sends back what it gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mirror;

impl Mirror {
    pub(crate) const NAME: &str = "mirror";
}

impl Service for Mirror {
    type Protocol = Mirror;

    fn open(&self, _peer: &Peer) -> Mirror {
        Mirror
    }

    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: Mirror::NAME.to_owned(), options: Vec::new() })
    }
}

impl Protocol for Mirror {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

/// Service that sends back whole frames, and says nothing else. What it does when it is drained depends on the letter of its last frame:
///
/// - `s` says `d` and closes, `k` stays, `l` closes a moment later, any other closes at once.
/// - `t` does that too, and takes what comes of a frame as it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mute;

impl Mute {
    pub(crate) const NAME: &str = "mute";
}

impl Service for Mute {
    type Protocol = Silence;

    fn open(&self, _peer: &Peer) -> Silence {
        Silence { letter: 0, taken: 0 }
    }

    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: Mute::NAME.to_owned(), options: Vec::new() })
    }
}

/// Protocol of one connection of [`Mute`].
pub(crate) struct Silence {
    letter: u8,
    /// Bytes of a frame that is not whole.
    taken: usize,
}

impl Protocol for Silence {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(order) = input.bytes().first_chunk::<SIZE>() {
            self.letter = order[0];
            cx.send(order);
            input.take(SIZE);
        }
        if self.letter == b't' {
            self.taken += input.take_all().len();
        }
        Step::Continue
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        match self.letter {
            b's' => cx.send(&frame(b'd', 0)),
            b'k' => return Step::Continue,
            b'l' => {
                cx.set_timer(Duration::from_millis(10));
                return Step::Continue;
            }
            _ => {}
        }
        Step::Close
    }

    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    fn owes(&self) -> bool {
        self.taken > 0
    }
}

/// Place where a connection panics when it is told to; the first two when its peer's address says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Open,
    Opened,
    Received,
    Finished,
    Timeout,
    Done,
    Notified,
    Writable,
    Draining,
    Closed,
    Drop,
}

impl At {
    pub(crate) const ALL: [At; 11] = [
        At::Open,
        At::Opened,
        At::Received,
        At::Finished,
        At::Timeout,
        At::Done,
        At::Notified,
        At::Writable,
        At::Draining,
        At::Closed,
        At::Drop,
    ];

    /// Returns the address from which a client connects to be panicked upon in `open` or `opened`.
    pub(crate) fn source(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 0, 100 + self as u8)
    }

    fn of(peer: &Peer) -> Option<At> {
        let ip = peer.remote()?.ip();
        [At::Open, At::Opened].into_iter().find(|at| ip == at.source())
    }
}

/// Bytes of an order, and of an answer: a letter and a little-endian number.
pub(crate) const SIZE: usize = 5;

pub(crate) type Frame = [u8; SIZE];

pub(crate) fn frame(letter: u8, number: u32) -> Frame {
    let [a, b, c, d] = number.to_le_bytes();
    [letter, a, b, c, d]
}

pub(crate) fn parts(frame: Frame) -> (u8, u32) {
    let [letter, a, b, c, d] = frame;
    (letter, u32::from_le_bytes([a, b, c, d]))
}

/// Number of bytes after which the pattern repeats: no power of two, so that what is missing or doubled shows.
pub(crate) const PERIOD: usize = 251;

/// Returns the bytes that the order `w` makes, from this place on. Copies whole blocks: byte by byte, a build for tests would do
/// little else.
pub(crate) fn pattern(from: usize, count: usize) -> Vec<u8> {
    let begin = from % PERIOD;
    let period: Vec<u8> = (0..PERIOD).map(|place| place as u8).collect();
    period.repeat((begin + count).div_ceil(PERIOD))[begin..begin + count].to_vec()
}

/// Service that does what its clients order:
///
/// - `v` tells the service's version; `a` adds the number to what it keeps and tells the sum.
/// - `j` runs a job that answers one more; `q` one that answers how many it ran before in its process, once nobody listens at the
///   port any more; `p` one that panics, answered by `!`.
/// - `t` answers `t` after so many milliseconds.
/// - `w` sends so many bytes of the pattern.
/// - `b` panics when it comes to the place of this number in [`At::ALL`].
/// - `k` stays when it is drained; else it says `d` and ends.
/// - `n` calls the connection `tag-` and the number, `h` does so through its handle; both answer.
/// - `x` waits: what comes is not read any more.
/// - `c` answers and closes, `f` answers and finishes, `r` resets.
///
/// Notes of the pool are sent as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor {
    pub(crate) version: u32,
}

impl Actor {
    pub(crate) const NAME: &str = "actor";

    fn play(self, sum: u64) -> Play {
        Play { version: self.version, sum, breaks: None, stays: false, made: 0 }
    }
}

/// Jobs `q` that began in this process.
static JOBS: AtomicU32 = AtomicU32::new(0);

impl Service for Actor {
    type Protocol = Play;

    fn open(&self, peer: &Peer) -> Play {
        let breaks = At::of(peer);
        assert!(breaks != Some(At::Open), "broken in Open");
        Play { breaks, ..self.play(0) }
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Play, CannotRestore> {
        Ok(self.play(from.u64()?))
    }

    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: Actor::NAME.to_owned(), options: self.version.to_le_bytes().to_vec() })
    }
}

/// Protocol of one connection of [`Actor`].
pub(crate) struct Play {
    version: u32,
    sum: u64,
    breaks: Option<At>,
    stays: bool,
    /// Bytes of the pattern so far.
    made: usize,
}

impl Play {
    fn breaks(&self, here: At) {
        assert!(self.breaks != Some(here), "broken in {here:?}");
    }

    fn obey(&mut self, letter: u8, number: u32, cx: &mut Context<'_>) -> Step {
        match letter {
            b'v' => cx.send(&frame(letter, self.version)),
            b'a' => {
                self.sum += u64::from(number);
                cx.send(&frame(letter, self.sum as u32));
            }
            b'j' => return Step::Work(Job::new(move || frame(b'j', number + 1))),
            b'q' => return Step::Work(Job::new(move || queued(number as u16))),
            b'p' => return Step::Work(Job::new(|| -> Frame { panic!("broken in a job") })),
            b't' => cx.set_timer(Duration::from_millis(number.into())),
            b'w' => {
                let bytes = pattern(self.made, number as usize);
                self.made += bytes.len();
                cx.send(&bytes);
            }
            b'b' => self.breaks = At::ALL.get(number as usize).copied(),
            b'k' => self.stays = true,
            b'n' => {
                cx.tag(&format!("tag-{number}"));
                cx.send(&frame(letter, number));
            }
            b'h' => {
                cx.handle().tag(&format!("tag-{number}"));
                cx.send(&frame(letter, number));
            }
            b'x' => {
                cx.pause();
                return Step::Continue;
            }
            b'c' => {
                cx.send(&frame(letter, number));
                return Step::Close;
            }
            b'f' => {
                cx.send(&frame(letter, number));
                return Step::EndOutput;
            }
            _ => return Step::Abort,
        }
        Step::Continue
    }
}

/// Waits for the end of a connection to this port, or for its absence.
fn queued(port: u16) -> Frame {
    let place = JOBS.fetch_add(1, SeqCst);
    if let Ok(mut gate) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        // However it ends, it ended.
        let _ = gate.read(&mut [0]);
    }
    frame(b'q', place)
}

impl Drop for Play {
    fn drop(&mut self) {
        self.breaks(At::Drop);
    }
}

impl Protocol for Play {
    fn opened(&mut self, _cx: &mut Context<'_>) -> Step {
        self.breaks(At::Opened);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some((order, _)) = input.bytes().split_first_chunk::<SIZE>() {
            self.breaks(At::Received);
            let (letter, number) = parts(*order);
            input.take(SIZE);
            let step = self.obey(letter, number, cx);
            if !matches!(step, Step::Continue) {
                return step;
            }
        }
        Step::Continue
    }

    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        self.breaks(At::Finished);
        Step::Close
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.breaks(At::Timeout);
        cx.send(&frame(b't', 0));
        Step::Continue
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        self.breaks(At::Done);
        let refused = |error| frame(if error == JobError::Panicked { b'!' } else { b'?' }, 0);
        cx.send(&result.take::<Frame>().unwrap_or_else(refused));
        Step::Continue
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        self.breaks(At::Notified);
        cx.send(note.bytes().expect("the pool's notes are bytes"));
        Step::Continue
    }

    fn writable(&mut self, _cx: &mut Context<'_>) -> Step {
        self.breaks(At::Writable);
        Step::Continue
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.breaks(At::Draining);
        if self.stays {
            return Step::Continue;
        }
        cx.send(&frame(b'd', 0));
        Step::Close
    }

    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {
        self.breaks(At::Closed);
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.sum);
        Ok(())
    }
}
