//! The cost of lines that arrive in pieces: the bytes that are searched are counted, with a driver and on a pool.

use super::*;
use crate::layer::{Filter, Filtering, Layer, Progress, Refused};
use crate::protocol::input_searched;
use crate::{Config, Model, Pool};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Answers each line with its length and how many bytes were searched for all lines so far, on this thread. A line `work` runs a job,
/// `wait` holds input back until the next note or timer.
struct Counting;

impl Service for Counting {
    type Protocol = Counting;
    fn open(&self, _peer: &Peer) -> Counting {
        Counting
    }
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Counting, CannotRestore> {
        Ok(Counting)
    }
}

impl Protocol for Counting {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            match line {
                b"work" => return Step::Work(Job::new(|| ())),
                b"wait" => {
                    cx.pause();
                    return Step::Continue;
                }
                line => writeln!(cx.out(), "{} {}", line.len(), input_searched()),
            }
        }
        cx.send(b".");
        Step::Continue
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.resume();
        Step::Continue
    }
    fn notified(&mut self, _note: Note, cx: &mut Context<'_>) -> Step {
        cx.resume();
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

/// Returns the bytes that `call` makes a driver search.
fn searched(call: impl FnOnce()) -> usize {
    let before = input_searched();
    call();
    input_searched() - before
}

#[test]
fn a_line_in_pieces_is_searched_once() {
    const LENGTH: usize = 64 * 1024 - 1;
    let mut connection = Driver::open(Counting);
    let line = [vec![b'x'; LENGTH], b"\n".to_vec()].concat();
    assert_eq!(searched(|| connection.receive_split(&line)), LENGTH + 1);
    assert!(connection.sent().starts_with(&vec![b'.'; LENGTH]), "no piece was a line");
    connection.receive_split(&[b'x'; LENGTH + 1]);
    assert_eq!(connection.closed(), None, "as much as may be kept");
    connection.receive(b"x");
    assert_eq!(connection.closed(), Some(Closed::TooLong), "the bound is what it was");
}

#[test]
fn lines_come_out_whole_wherever_they_are_cut() {
    let text = b"\none\r\n\r\ntw\ro\n\n\r\r\nthree\r\n";
    let expected: Vec<usize> = vec![0, 3, 0, 4, 0, 1, 5];
    let lengths = |sent: Vec<u8>| -> Vec<usize> {
        let text = String::from_utf8(sent).expect("text").replace('.', "");
        text.lines().map(|line| line.split(' ').next().expect("a length").parse().expect("a number")).collect()
    };
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let mut connection = Driver::open(Counting);
            let counted = searched(|| {
                [&text[..first], &text[first..second], &text[second..]].into_iter().for_each(|piece| connection.receive(piece));
            });
            assert_eq!((lengths(connection.sent()), counted), (expected.clone(), text.len()), "cut at {first} and {second}");
        }
    }
    let mut connection = Driver::open(Counting);
    connection.receive_split(text);
    assert_eq!(lengths(connection.sent()), expected);
}

#[test]
fn input_that_was_held_back_or_changed_hands_is_searched_as_far_as_it_must_be() {
    let mut connection = Driver::open(Counting);
    connection.receive(b"work\nab");
    connection.receive(b"c");
    assert_eq!(connection.sent(), b"", "it waits for the job");
    connection.run_job();
    assert_eq!((connection.sent(), connection.kept()), (b".".to_vec(), &b"abc"[..]));
    let mut moved = connection.save_and_restore(Counting).expect("it moves");
    assert_eq!(searched(|| moved.receive(b"def\nwait\ng\n")), 9, "the part before is known, what is held back is not searched");
    assert!(moved.sent().starts_with(b"6 "));
    assert_eq!(searched(|| moved.notify(Note::value(()))), 2);
    assert!(moved.sent().starts_with(b"1 "));
}

/// Wire bytes are the plain ones.
struct Transparent {
    established: bool,
}

struct Transparently;

impl Filtering for Transparently {
    type Filter = Transparent;
    fn filter(&self, _peer: &Peer) -> Transparent {
        Transparent { established: false }
    }
}

impl Filter for Transparent {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, _back: &mut Output) -> Result<Progress, Refused> {
        if !std::mem::replace(&mut self.established, true) {
            return Ok(Progress::Established(None));
        }
        if wire.is_empty() {
            return Ok(Progress::NeedMore);
        }
        plain.extend(wire.take_all().iter());
        Ok(Progress::Plain)
    }
    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        wire.push(plain);
    }
    fn goodbye(&mut self, _wire: &mut Output) {}
}

#[test]
fn a_line_in_pieces_is_searched_once_under_a_layer_too() {
    let mut connection = Driver::open(Layer::new(Transparently, Counting));
    assert_eq!(searched(|| connection.receive_split(&[b"x".repeat(1000), b"\n".to_vec()].concat())), 1001);
    assert!(connection.sent().starts_with(&[b'.'; 1000]));
    assert_eq!(searched(|| connection.receive(b"abc\nwait\nde")), 9);
    assert_eq!(searched(|| connection.notify(Note::value(()))), 2, "the rest was held back");
    assert_eq!(searched(|| connection.receive(b"f\n")), 2);
}

/// Sends a line over a connection, one byte at a time, each answered before the next is sent: each is read for itself.
fn costs_on(model: Model) {
    const LENGTH: usize = 3000;
    let pool = Pool::start(Config::accept(Counting).model(model).listen("127.0.0.1:0"));
    let pool = pool.expect("the pool starts");
    let mut stream = TcpStream::connect(pool.addresses()[0].to_string()).expect("it listens");
    stream.set_nodelay(true).expect("a TCP socket");
    let mut counted = Vec::new();
    for _ in 0..2 {
        for _ in 0..LENGTH {
            stream.write_all(b"x").expect("it stands");
            stream.read_exact(&mut [0]).expect("a dot");
        }
        stream.write_all(b"\n").expect("it stands");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n.") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            answer.extend(byte);
        }
        let answer = String::from_utf8(answer).expect("text");
        let (length, searched) = answer.trim_end_matches("\n.").split_once(' ').expect("two numbers");
        assert_eq!(length, LENGTH.to_string());
        counted.push(searched.parse::<usize>().expect("a number"));
    }
    assert_eq!(counted[1] - counted[0], LENGTH + 1, "{model:?}");
    drop(stream);
    pool.shutdown(crate::Drain::within(Duration::from_secs(5)));
}

#[test]
fn a_pool_searches_a_line_in_pieces_once() {
    [Model::Loops, Model::Threads, Model::Single].into_iter().for_each(costs_on);
}
