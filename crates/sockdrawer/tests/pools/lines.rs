//! Lines and messages over a socket, in pieces of one byte and in bursts.

use crate::common::{PATIENCE, assert_empty, connect, in_time, read, read_all, start};
use sockdrawer::codec::{Codec, Lines, Prefixed};
use sockdrawer::{Config, Context, Input, Job, JobResult, Model, Peer, Protocol, Service, Step};
use std::io::Write;

const MODELS: [Model; 3] = [Model::Loops, Model::Threads, Model::Single];

/// Service that answers each line with the number of the line and what it says. `work` runs a job between two lines, `bye` ends.
struct Numbering;

struct Numbered(u64);

impl Service for Numbering {
    type Protocol = Numbered;
    fn open(&self, _peer: &Peer) -> Numbered {
        Numbered(0)
    }
}

impl Protocol for Numbered {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(line) = input.line() {
            self.0 += 1;
            writeln!(cx.out(), "{} {}", self.0, line.escape_ascii());
            match line {
                b"work" => return Step::Work(Job::new(|| ())),
                b"bye" => return Step::Close,
                _ => {}
            }
        }
        Step::Continue
    }
    fn job_done(&mut self, _result: JobResult, cx: &mut Context<'_>) -> Step {
        cx.send(b"done\n");
        Step::Continue
    }
}

#[test]
fn lines_come_out_whole_with_a_byte_in_each_write() {
    let text = b"one\r\n\n\r\nt\rwo\nwork\nwork\r\nth\xffree\r\r\nbye\n";
    let answers = "1 one\n2 \n3 \n4 t\\rwo\n5 work\ndone\n6 work\ndone\n7 th\\xffree\\r\n8 bye\n";
    for model in MODELS {
        in_time(move || {
            let (pool, at) = start(Config::accept(Numbering).model(model));
            for split in [true, false] {
                let mut stream = connect(at);
                let pieces: Vec<&[u8]> = if split { text.chunks(1).collect() } else { vec![text] };
                pieces.into_iter().for_each(|piece| stream.write_all(piece).expect("it reads"));
                let seen = read_all(&mut stream).expect("an orderly end");
                assert_eq!(String::from_utf8_lossy(&seen), answers, "{model:?}, split: {split}");
            }
            assert_empty(&pool);
        });
    }
}

#[test]
fn what_is_kept_of_a_line_is_bounded() {
    for model in MODELS {
        in_time(move || {
            let mut config = Config::accept(Numbering).model(model);
            config.settings.max_partial = 10;
            let (pool, at) = start(config);
            let mut stream = connect(at);
            for _ in 0..2 {
                stream.write_all(b"0123456789").expect("it reads");
                stream.write_all(b"\n").expect("it reads");
            }
            assert_eq!(read(&mut stream, 26).as_deref(), Some(&b"1 0123456789\n2 0123456789\n"[..]));
            stream.write_all(b"01234567890").expect("it reads");
            assert!(read_all(&mut stream).is_err(), "a reset");
            assert!(pool.wait(PATIENCE, |status| status.counts.too_long == 1), "{model:?}");
            assert_empty(&pool);
        });
    }
}

/// Messages in, lines out: both ready codecs.
struct Translating;

struct Translated {
    messages: Prefixed,
    lines: Lines,
}

impl Service for Translating {
    type Protocol = Translated;
    fn open(&self, _peer: &Peer) -> Translated {
        Translated { messages: Prefixed::up_to(1000), lines: Lines::up_to(1000) }
    }
}

impl Protocol for Translated {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(message) = input.decode(&mut self.messages) {
            match message {
                Ok(message) => self.lines.encode(message, cx.out()),
                Err(error) => {
                    writeln!(cx.out(), "{error}");
                    return Step::Close;
                }
            }
        }
        Step::Continue
    }
}

#[test]
fn messages_come_out_whole_with_a_byte_in_each_write() {
    for model in MODELS {
        in_time(move || {
            let (pool, at) = start(Config::accept(Translating).model(model));
            let long = "x".repeat(1000);
            let messages = ["one", "", &long, "two"].map(|text| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat());
            let all = [messages.concat(), u32::MAX.to_be_bytes().to_vec()].concat();
            for pieces in [1, all.len()] {
                let mut stream = connect(at);
                all.chunks(pieces).for_each(|piece| stream.write_all(piece).expect("it reads"));
                let seen = String::from_utf8(read_all(&mut stream).expect("an orderly end")).expect("text");
                let error = "a message of 4294967295 bytes or more, at most 1000 are allowed";
                assert_eq!(seen, format!("one\n\n{long}\ntwo\n{error}\n"), "{model:?}, pieces of {pieces}");
            }
            assert_empty(&pool);
        });
    }
}
