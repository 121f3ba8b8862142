//! A crowd in the room: lines are said to all, one each millisecond, while one build after the other takes the room over.

use super::{Client, PATIENCE, serve, try_serve};
use sockdrawer::{Closed, Config, Context, Input, Peer, Pool, Protocol, Service, Step, connecting::Connecting};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Lines that are not heard by all yet, at most: a loop whose inbox is full would lose some, which is no matter of upgrades.
const AHEAD: usize = 30;
/// Minimum number of lines between two upgrades.
const BETWEEN: usize = 50;

/// Counts of what all members have heard.
#[derive(Default)]
struct Heard {
    /// Number of lines that all members together have heard.
    lines: AtomicUsize,
    /// Number of lines heard, for each member that has heard the last line.
    ended: Mutex<Vec<usize>>,
    lost: AtomicUsize,
}

struct Crowd(Arc<Heard>);

impl Service for Crowd {
    type Protocol = Member;
    fn open(&self, _peer: &Peer) -> Member {
        Member { heard: self.0.clone(), next: 0 }
    }
}

/// Checks that each line is the next one.
struct Member {
    heard: Arc<Heard>,
    next: usize,
}

impl Protocol for Member {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"member\n");
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        let before = self.next;
        while let Some(line) = input.line() {
            match line.strip_prefix(b"talker: ") {
                Some(b"end") => self.heard.ended.lock().expect("no panic").push(self.next),
                Some(line) => {
                    assert_eq!(line, self.next.to_string().as_bytes(), "once, and in order");
                    self.next += 1;
                }
                // Others come.
                None => {}
            }
        }
        self.heard.lines.fetch_add(self.next - before, SeqCst);
        Step::Continue
    }
    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {
        self.heard.lost.fetch_add(1, SeqCst);
    }
}

/// Says a line each millisecond, or as soon as all can hear it, until that is told to no one; returns how many.
fn talk(talker: &mut Client, members: usize, heard: &Heard, told: &mpsc::SyncSender<()>) -> usize {
    let (began, mut last, mut said) = (Instant::now(), Instant::now(), 0);
    loop {
        let due = began + Duration::from_millis(said as u64);
        let is_behind = said * members > heard.lines.load(SeqCst) + AHEAD * members;
        if Instant::now() < due || is_behind {
            assert!(last.elapsed() < PATIENCE, "{said} lines said, {:?} heard", heard.lines);
            // waits because: a line is due at a time, and what the crowd has heard tells nothing.
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        talker.say(&said.to_string());
        (said, last) = (said + 1, Instant::now());
        if said.is_multiple_of(BETWEEN) && matches!(told.try_send(()), Err(mpsc::TrySendError::Disconnected(()))) {
            talker.say("end");
            return said;
        }
    }
}

/// A build that takes the room over. Where the machine has much else to do, a loop with a room full of notes takes longer than the second
/// after which it counts as one that hangs: then the room goes on as it was, and the build is started again.
fn take_over(place: &std::path::Path, address: &str, loops: usize) -> Pool {
    let began = Instant::now();
    loop {
        match try_serve(place, address, loops) {
            Ok(room) => return room,
            Err(refused) if refused.to_string().contains("a loop of it hangs") && began.elapsed() < PATIENCE => {
                println!("tried again: {refused}");
            }
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// Checks that each member hears each line, once and in order.
pub(super) fn hears_all(place: &std::path::Path, members: usize, upgrades: usize) {
    let mut room = serve(place, "127.0.0.1:0", 2);
    let address = room.addresses()[0].clone();
    let (mut talker, heard) = (Client::enter(&room, "talker"), Arc::new(Heard::default()));
    // Each arrival is told to all.
    let connecting = Connecting::to([&address]).keep(members).total(members as u64).rate(500.0);
    let crowd = Config::connect(Crowd(heard.clone()), connecting).loops(1);
    let crowd = Pool::start(crowd).expect("it starts");
    (0..members).for_each(|_| assert_eq!(talker.hear(), "* member is here"));
    let mut listener = Client(std::io::BufReader::new(talker.0.get_ref().try_clone().expect("a copy")));
    let (told, hears) = mpsc::sync_channel(1);
    let began = Instant::now();
    let said = std::thread::scope(|scope| {
        // Lines that are not read would hold the room up.
        scope.spawn(move || while listener.hear() != "talker: end" {});
        let talks = scope.spawn(|| talk(&mut talker, members, &heard, &told));
        for upgrade in 0..upgrades {
            hears.recv_timeout(PATIENCE).expect("lines are said");
            let next = take_over(place, &address.to_string(), 1 + upgrade % 3);
            room.join().expect("all of the room moved");
            room = next;
        }
        drop(hears);
        talks.join().expect("no panic")
    });
    let all = || heard.ended.lock().expect("no panic").len() == members;
    assert!(crowd.wait(PATIENCE, |_| all()), "{:?} of {said} lines each, {:#?}", heard.lines, crowd.status());
    let rate = said as f64 / began.elapsed().as_secs_f64();
    println!("{members} members heard {said} lines through {upgrades} upgrades, {rate:.0} lines a second");
    assert!(heard.ended.lock().expect("no panic").iter().all(|lines| *lines == said), "{said} lines");
    assert_eq!((heard.lost.load(SeqCst), crowd.status().counts.panics, room.status().counts.notes_dropped), (0, 0, 0));
}
