//! Tests of the rules of a connection, one for each.

use super::*;
use crate::protocol::{CannotRestore, CannotSave, NotifyError, Saved, Saver, State};
use std::sync::{Arc, Mutex};

mod lines;
mod timers;

/// Takes 4-byte commands and tells what happened, in one word each. `jobs` runs, `wait` waits, `more` sends 100 bytes.
#[derive(Default)]
struct Script {
    commands: u64,
    /// Version of the state from which it was restored.
    version: u32,
    seen: Arc<Mutex<Vec<&'static str>>>,
}

struct Scripted;

impl Service for Scripted {
    type Protocol = Script;
    fn open(&self, _peer: &Peer) -> Script {
        Script::default()
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Script, CannotRestore> {
        Ok(Script { commands: from.u64()?, version: from.version(), seen: Arc::default() })
    }
    fn state(&self) -> State {
        State::of("script", 3)
    }
    fn local(&self) -> Box<Local> {
        Box::new(0_u32)
    }
}

impl Script {
    fn saw(&self, word: &'static str) {
        self.seen.lock().expect("no test panics while it holds this").push(word);
    }
}

impl Protocol for Script {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(command) = input.bytes().first_chunk::<4>().copied() {
            input.take(4);
            self.commands += 1;
            *cx.local::<u32>().expect("Scripted::local made it") += 1;
            match &command {
                b"jobs" => return Step::Work(Job::new(|| 7_u32)),
                b"bomb" => return Step::Work(Job::new(|| -> u32 { panic!("asked to") })),
                b"wait" => {
                    cx.pause();
                    return Step::Continue;
                }
                b"more" => cx.send(&[b'+'; 100]),
                b"tick" => cx.set_timer(Duration::from_secs(2)),
                b"stop" => cx.clear_timer(),
                b"self" => cx.handle().notify(Note::value("myself")).expect("the inbox has room"),
                b"name" => cx.tag("me"),
                b"nest" => cx.nested(&mut Output::default(), |cx| {
                    cx.tag("inner");
                    cx.report("from within");
                }),
                b"fins" => return Step::EndOutput,
                b"clos" => {
                    cx.send(b"bye");
                    return Step::Close;
                }
                b"abor" => {
                    cx.send(b"lost");
                    return Step::Abort;
                }
                b"boom" => panic!("asked to"),
                other => cx.send(other),
            }
        }
        Step::Continue
    }
    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"<end>");
        Step::Close
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"<time>");
        Step::Continue
    }
    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        match result.take::<u32>() {
            Ok(value) => cx.send(format!("<{value}>").as_bytes()),
            Err(error) => cx.send(format!("<{error}>").as_bytes()),
        }
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        match note.take::<&'static str>() {
            Ok("work") => return Step::Work(Job::new(|| 8_u32)),
            Ok("hold") => cx.pause(),
            Ok(word) => {
                cx.resume();
                cx.send(word.as_bytes());
            }
            Err(note) => cx.send(note.bytes().expect("a note of bytes")),
        }
        Step::Continue
    }
    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"<room>");
        Step::Continue
    }
    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        assert!(cx.draining(), "draining is known in draining");
        cx.send(b"<drain>");
        Step::Continue
    }
    fn restored(&mut self, _cx: &mut Context<'_>) -> Step {
        self.saw("restored");
        Step::Continue
    }
    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        self.saw(if why == Closed::Adopted { "adopted" } else { "closed" });
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.commands);
        Ok(())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.saw("dropped");
    }
}

fn open() -> Driver<Scripted> {
    Driver::open(Scripted)
}

fn open_limited(limits: Bounds) -> Driver<Scripted> {
    Driver::open_with(Scripted, peer(Side::Accepted, Duration::ZERO), limits)
}

#[test]
fn untaken_input_comes_again_with_what_follows() {
    let mut connection = open();
    connection.receive(b"abcdef");
    assert_eq!((connection.sent(), connection.kept()), (b"abcd".to_vec(), &b"ef"[..]));
    connection.receive_split(b"ghij");
    assert_eq!((connection.sent(), connection.kept()), (b"efgh".to_vec(), &b"ij"[..]));
    assert_eq!(connection.local::<u32>(), Some(&mut 2));
}

#[test]
fn too_much_untaken_ends_the_connection() {
    struct Hoard;
    impl Service for Hoard {
        type Protocol = Hoard;
        fn open(&self, _peer: &Peer) -> Hoard {
            Hoard
        }
    }
    impl Protocol for Hoard {
        fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            Step::Continue
        }
    }
    let mut connection = Driver::open(Hoard);
    connection.receive(&[0; 64 * 1024]);
    assert_eq!(connection.closed(), None);
    connection.receive(&[0]);
    assert_eq!(connection.closed(), Some(Closed::TooLong));
}

#[test]
fn received_and_finished_wait_for_the_job_and_all_else_comes() {
    let mut connection = open();
    connection.receive(b"tickjobsabcd");
    connection.receive(b"efgh");
    connection.finish();
    assert!(connection.has_job());
    connection.notify(Note::value("note"));
    connection.advance(Duration::from_secs(2));
    assert_eq!(connection.sent(), b"note<time>");
    connection.run_job();
    assert_eq!((connection.sent(), connection.closed()), (b"<7>abcdefgh<end>".to_vec(), Some(Closed::Orderly)));
}

#[test]
fn what_waits_for_a_job_is_not_too_long() {
    let mut connection = open_limited(Bounds { max_partial: 4, ..Bounds::default() });
    connection.receive(b"jobsabcdefgh");
    connection.run_job();
    assert_eq!((connection.sent(), connection.closed()), (b"<7>abcdefgh".to_vec(), None));
}

#[test]
fn a_job_may_fail() {
    let mut connection = open();
    connection.receive(b"jobs");
    connection.fail_job(JobError::QueueFull);
    connection.receive(b"bomb");
    connection.run_job();
    assert_eq!(connection.sent(), b"<the workers' queue is full><the job panicked>");
}

#[test]
fn a_second_job_is_a_bug_that_ends_the_connection() {
    let mut connection = open();
    connection.receive(b"jobs");
    connection.notify(Note::value("work"));
    assert_eq!(connection.closed(), Some(Closed::Panicked));
}

#[test]
fn the_job_of_a_dead_connection_runs_and_its_result_is_dropped() {
    let mut connection = open();
    connection.receive(b"jobs");
    connection.end(Closed::Killed);
    connection.run_job();
    assert_eq!((connection.sent(), connection.closed()), (vec![], Some(Closed::Killed)));
}

#[test]
fn a_pause_lasts_until_a_callback_resumes() {
    let mut connection = open();
    connection.receive(b"waitabcd");
    connection.receive(b"efgh");
    connection.finish();
    connection.notify(Note::value("hold"));
    connection.notify(Note::Bytes(b"<heard>"[..].into()));
    assert_eq!((connection.sent(), connection.closed()), (b"<heard>".to_vec(), None), "another callback changes nothing");
    connection.notify(Note::value("go"));
    assert_eq!((connection.sent(), connection.closed()), (b"goabcdefgh<end>".to_vec(), Some(Closed::Orderly)));
}

#[test]
fn finished_does_not_wait_for_a_message_that_never_ends() {
    let mut connection = open();
    connection.receive(b"abcdef");
    connection.finish();
    assert_eq!((connection.sent(), connection.closed()), (b"abcd<end>".to_vec(), Some(Closed::Orderly)));
}

#[test]
fn a_panic_in_any_callback_resets_the_connection_and_tells_it() {
    let mut connection = open();
    let seen = connection.protocol().expect("open").seen.clone();
    connection.block_output(true);
    connection.receive(b"moreboom");
    connection.block_output(false);
    assert_eq!((connection.closed(), connection.sent()), (Some(Closed::Panicked), vec![]));
    assert_eq!(*seen.lock().expect("not poisoned"), ["closed", "dropped"]);
}

#[test]
fn a_panic_while_opening_or_closing_is_caught_too() {
    struct Fragile {
        opens: bool,
    }
    impl Service for Fragile {
        type Protocol = Fragile;
        fn open(&self, _peer: &Peer) -> Fragile {
            assert!(self.opens, "asked to");
            Fragile { opens: true }
        }
    }
    impl Protocol for Fragile {
        fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            Step::Close
        }
        fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {
            panic!("asked to");
        }
    }
    assert_eq!(Driver::open(Fragile { opens: false }).closed(), Some(Closed::Panicked));
    let mut connection = Driver::open(Fragile { opens: true });
    connection.receive(b"x");
    assert_eq!(connection.closed(), Some(Closed::Panicked));
}

#[test]
fn close_delivers_and_abort_does_not() {
    let mut connection = open();
    let seen = connection.protocol().expect("open").seen.clone();
    connection.receive(b"abcdclosabcd");
    assert_eq!((connection.sent(), connection.closed()), (b"abcdbye".to_vec(), Some(Closed::Orderly)));
    assert!(connection.finished_sending() && connection.protocol().is_none());
    assert_eq!(*seen.lock().expect("not poisoned"), ["closed", "dropped"]);
    connection.receive(b"abcd");
    assert_eq!(connection.sent(), b"");

    let mut connection = open();
    connection.receive(b"abcdabor");
    assert_eq!((connection.sent(), connection.closed()), (vec![], Some(Closed::Aborted)));
    assert!(!connection.finished_sending());
}

#[test]
fn after_finish_input_still_comes_and_output_is_an_error() {
    let mut connection = open();
    connection.receive(b"fins");
    assert!(connection.finished_sending());
    connection.receive(b"tick");
    assert_eq!((connection.closed(), connection.local::<u32>()), (None, Some(&mut 2)));
    connection.receive(b"abcd");
    assert_eq!(connection.closed(), Some(Closed::Error(EPIPE)));
}

#[test]
fn timers_fire_once_in_their_own_time() {
    let mut connection = open();
    let start = connection.now();
    connection.receive(b"tick");
    assert_eq!(connection.timer(), Some(Duration::from_secs(2)));
    connection.advance(Duration::from_millis(1999));
    assert_eq!(connection.sent(), b"");
    connection.advance(Duration::from_millis(1));
    assert_eq!((connection.sent(), connection.timer()), (b"<time>".to_vec(), None));
    connection.receive(b"tickstop");
    connection.advance(Duration::from_secs(60));
    assert_eq!((connection.sent(), connection.now() - start), (vec![], Duration::from_secs(62)));
}

#[test]
#[should_panic(expected = "due at once")]
fn a_timer_that_would_spin_a_loop_is_found() {
    struct Spin;
    impl Service for Spin {
        type Protocol = Spin;
        fn open(&self, _peer: &Peer) -> Spin {
            Spin
        }
    }
    impl Protocol for Spin {
        fn opened(&mut self, cx: &mut Context<'_>) -> Step {
            cx.set_timer(Duration::ZERO);
            Step::Continue
        }
        fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            Step::Continue
        }
        fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
            self.opened(cx)
        }
    }
    Driver::open(Spin).advance(Duration::ZERO);
}

#[test]
fn notes_of_handles_arrive_in_order_when_delivered_and_a_full_inbox_is_an_error() {
    let mut connection = open_limited(Bounds { inbox: 2, ..Bounds::default() });
    let handle = connection.handle();
    connection.receive(b"self");
    handle.notify(Arc::<[u8]>::from(&b"+bytes"[..])).expect("the inbox has room");
    assert!(matches!(handle.notify(Note::value("third")), Err(NotifyError::Full(_))));
    assert_eq!(connection.sent(), b"");
    assert_eq!((connection.deliver_notes(), connection.sent()), (2, b"myself+bytes".to_vec()));
    connection.end(Closed::Killed);
    handle.notify(Note::value("late")).expect("a handle outlives its connection harmlessly");
    assert_eq!((connection.deliver_notes(), connection.sent()), (1, vec![]));
}

#[test]
fn draining_comes_once_at_a_quiet_point() {
    let mut connection = open();
    connection.receive(b"abcdjob");
    connection.drain();
    connection.receive(b"s");
    connection.drain();
    assert_eq!(connection.sent(), b"abcd");
    connection.run_job();
    assert_eq!(connection.sent(), b"<7><drain>");
    connection.drain();
    connection.receive(b"efgh");
    assert_eq!((connection.sent(), connection.closed()), (b"efgh".to_vec(), None));
}

#[test]
fn above_high_water_input_waits_until_the_peer_has_read() {
    let mut connection = open_limited(Bounds { high_water: 150, low_water: 60, ..Bounds::default() });
    connection.block_output(true);
    connection.receive(b"more");
    connection.receive(b"more");
    connection.receive(b"abcd");
    connection.finish();
    assert_eq!((connection.backlog(), connection.sent()), (200, vec![]));
    connection.read_backlog(140);
    assert_eq!((connection.backlog(), connection.sent()), (60, vec![b'+'; 140]));
    connection.read_backlog(1);
    connection.block_output(false);
    let sent = connection.sent();
    assert_eq!(&sent[60..], b"<room>abcd<end>");
    assert_eq!(connection.closed(), Some(Closed::Orderly));
}

#[test]
fn adopted_state_goes_on_with_input_timer_and_output_untouched() {
    let mut connection = open();
    let seen = connection.protocol().expect("open").seen.clone();
    connection.block_output(true);
    connection.receive(b"tickabcdef");
    let mut connection = connection.save_and_restore(Scripted).expect("a script can be saved");
    assert_eq!(*seen.lock().expect("not poisoned"), ["adopted", "dropped"]);
    let script = connection.protocol().expect("open");
    assert_eq!((script.version, &script.seen.lock().expect("not poisoned")[..]), (3, &["restored"][..]));
    assert_eq!((connection.closed(), connection.timer()), (None, Some(Duration::from_secs(2))));
    connection.block_output(false);
    connection.receive(b"gh");
    assert_eq!(connection.sent(), b"abcdefgh");
    assert_eq!(connection.protocol().map(|script| script.commands), Some(3));
}

#[test]
fn input_that_was_paused_stays_so_when_the_protocol_is_restored() {
    let mut connection = open();
    connection.receive(b"wait");
    let mut connection = connection.save_and_restore(Scripted).expect("a script can be saved");
    connection.receive(b"abcd");
    assert_eq!(connection.sent(), b"");
    connection.notify(Note::value("note"));
    assert_eq!(connection.sent(), b"noteabcd");
}

#[test]
fn a_connection_with_a_job_or_an_unknown_state_stays_where_it_is() {
    struct Other;
    impl Service for Other {
        type Protocol = Script;
        fn open(&self, _peer: &Peer) -> Script {
            Script::default()
        }
    }
    let mut connection = open();
    connection.receive(b"jobs");
    let NotMoved { mut connection, why } = connection.save_and_restore(Scripted).expect_err("a job runs");
    assert_eq!(why, "a job runs");
    connection.run_job();
    let stayed = connection.save_and_restore(Other).expect_err("Other restores nothing");
    assert_eq!(stayed.to_string(), "the connection does not move: its service does not restore states");
    let stayed = stayed.connection.upgrade(Other).expect_err("it declares no state");
    assert_eq!(stayed.why, "the new service declares no state");
    let mut connection = stayed.connection;
    connection.receive(b"abcd");
    assert_eq!((connection.sent(), connection.closed()), (b"<7>abcd".to_vec(), None));
}

#[test]
fn the_last_tag_counts_whoever_set_it() {
    let mut connection = Driver::open(Scripted);
    assert_eq!(connection.tag(), "");
    connection.receive(b"name");
    assert_eq!(connection.tag(), "me");
    // Tags and reports of an inner protocol are those of the connection.
    connection.receive(b"nestmore");
    assert_eq!(connection.tag(), "inner");
    connection.receive(b"nestname");
    assert_eq!(connection.tag(), "me");
    assert_eq!(connection.reports(), ["from within", "from within"], "the tag of the outer one hides no report");
    assert!(connection.handle().tag("somebody"));
    assert_eq!(connection.tag(), "somebody");
    let connection = connection.save_and_restore(Scripted).expect("it can be saved");
    assert_eq!(connection.tag(), "somebody");
    assert!(connection.handle().tag(""));
    assert_eq!(connection.tag(), "");
}
