//! Connections that vanish in any way leave nothing behind: no descriptor, no seat, no permit.

mod common;

use common::{Random, assert_empty, connect, descriptors, echoes, reset, start};
use sockdrawer::{Config, Context, Input, Job, JobResult, Peer, Protocol, Service, Step};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// Messages of 8 bytes: `echo....` comes back, `work....` comes back from a worker, `wait....` by a timer, `huge....` brings
/// more than any buffer holds. Anything else ends the connection.
struct Messages;

impl Service for Messages {
    type Protocol = Messages;
    fn open(&self, _peer: &Peer) -> Messages {
        Messages
    }
}

impl Protocol for Messages {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let Some(message) = input.bytes().first_chunk::<8>().copied() else { return Step::Continue };
        input.take(8);
        match &message[..4] {
            b"echo" => cx.send(&message),
            b"work" => {
                return Step::Work(Job::new(move || {
                    std::thread::yield_now();
                    message
                }));
            }
            b"wait" => cx.set_timer(Duration::from_millis(1)),
            b"huge" => cx.send(&[0; 300_000]),
            _ => return if message[0] & 1 == 0 { Step::Close } else { Step::Abort },
        }
        Step::Continue
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        cx.send(&result.take::<[u8; 8]>().expect("the job does not panic"));
        Step::Continue
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"........");
        cx.set_timer(Duration::from_millis(1));
        Step::Continue
    }
}

/// Comes and goes in one of several ways.
fn vanish(at: SocketAddr, random: &mut Random) {
    let mut stream = connect(at);
    let sent = match random.below(7) {
        0 => stream.write_all(&random.below(u64::MAX).to_le_bytes()),
        1 => stream.write_all(b"echo"),
        2 => stream.write_all(b"echo1234echo1234ec"),
        3 => stream.write_all(b"work1234work1234"),
        4 => stream.write_all(b"wait1234"),
        5 => stream.write_all(b"huge1234"),
        _ => Ok(()),
    };
    sent.expect("the first bytes of a connection can always be sent");
    if random.below(2) == 0 { reset(stream) } else { drop(stream) }
}

#[test]
fn connections_that_vanish_leave_nothing_behind() {
    let (pool, at) = start(Config::accept(Messages).loops(2).workers(1).limit(500));
    let before = descriptors();
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            scope.spawn(move || {
                let mut random = Random(seed);
                (0..2500).for_each(|_| vanish(at, &mut random));
            });
        }
    });
    let all_came = pool.wait(common::PATIENCE, |status| {
        // A connection whose reset is there before it was accepted is not accepted at all, or is and counts.
        status.listeners.iter().all(|listener| listener.queued == 0)
    });
    assert!(all_came, "{:#?}", pool.status());
    assert_empty(&pool);
    let counts = pool.status().counts;
    assert_eq!(counts.accepted, counts.closed);
    assert!(counts.accepted >= 9000, "{counts:#?}");
    assert_eq!(descriptors(), before);
    assert!(echoes(&mut connect(at), b"echo5678"));
}
