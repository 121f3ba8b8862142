//! A deadline bounds the call, and nothing that was cut off is called ended: what the pool says is held against what clients saw.

use crate::bench::{Bench, Client, Outcome};
use crate::common::{PATIENCE, connect, read_all};
use crate::services::{Mute, SIZE, frame, pattern};
use sockdrawer::layer::proxy_header::Accepts;
use sockdrawer::{Behaviour, Drain, Drained, Model, Pool, Selector};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Number of bytes that is more than the kernel takes for a peer that does not read.
const MUCH: usize = 10_000_000;
/// A slow reader takes so much at a time, then pauses. A hundred of them leave the machine time for others.
const PIECE: usize = 32 * 1024;
const PAUSE: Duration = Duration::from_millis(20);

/// Behaviour of a peer while its connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// It reads nothing of what it asked for until the pool has said how the end went.
    Deaf,
    Slow,
    Idle,
}

/// End of a connection, as its peer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// Every byte, and then the end.
    Whole,
    Reset,
}

type End = fn(&Pool, Duration) -> Drained;

pub(crate) fn a_shutdown_keeps_its_deadline(bench: &Bench) -> Outcome {
    keeps_its_deadline(bench, |pool, within| pool.shutdown(Drain::within(within)))
}

pub(crate) fn a_drain_keeps_its_deadline(bench: &Bench) -> Outcome {
    keeps_its_deadline(bench, |pool, within| pool.drain(&Selector::All, Drain::within(within)))
}

pub(crate) fn a_purge_keeps_its_deadline(bench: &Bench) -> Outcome {
    keeps_its_deadline(bench, |pool, within| pool.purge(&Selector::All, within))
}

pub(crate) fn connections_that_wait_at_the_deadline_are_reset_and_counted(bench: &Bench) -> Outcome {
    const WAITING: usize = 5;
    let (pool, at) = bench.start(bench.actor().limit(1))?;
    let mut stays = Client::served(at);
    stays.order(b'k', 0);
    assert_eq!(stays.version(), 1);
    let mut waiting: Vec<Client> = (0..WAITING).map(|_| Client(connect(at))).collect();
    waiting.iter_mut().for_each(|client| client.order(b'v', 0));
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == WAITING));
    let began = Instant::now();
    let drained = pool.shutdown(Drain::within(Duration::from_millis(300)));
    let took = began.elapsed();
    let reset = waiting.iter_mut().map(is_reset).filter(|reset| *reset).count();
    assert_eq!(reset, WAITING);
    // Where a helper has no CPU at the deadline, only what it holds is known, and that is cut with it; so are the connections of
    // a process that has no CPU.
    let is_late = (drained.asked, drained.cut) == (1, 1) || drained.cut == WAITING + 1;
    if !is_late || !matches!(bench.model, Model::Fork | Model::Prefork) {
        assert_eq!(drained, Drained { asked: WAITING + 1, ended: 1, cut: WAITING, silent: 0 });
        assert_eq!(stays.rest(), b"");
    }
    assert!(took < Duration::from_secs(10), "{took:?}");
    Ok(())
}

/// Checks this in the model, and under a layer, which has what its protocol did not take.
pub(crate) fn who_asked_and_got_no_answer_was_cut(bench: &Bench) -> Outcome {
    let layered = || Behaviour::from(Mute).layered(Accepts::from([]));
    for behaviour in [Mute.into(), layered()] {
        for begun in [true, false] {
            let all = [b'c', b'k', b'l', b't', b's'];
            let crowds: Vec<&[u8]> = if bench.side_by_side() { vec![&all] } else { all.chunks(1).collect() };
            for letters in crowds {
                drained_alone(bench, behaviour.clone(), letters, begun)?;
            }
        }
    }
    Ok(())
}

/// Drains clients of [`Mute`] which said these letters, and then a part of another frame, or nothing more.
fn drained_alone(bench: &Bench, behaviour: Behaviour, letters: &[u8], begun: bool) -> Outcome {
    let (pool, at) = bench.start(bench.config(behaviour))?;
    let clients = letters.iter().map(|letter| {
        let mut client = Client(connect(at));
        assert_eq!(client.ask(*letter, 0).0, *letter);
        client.0.write_all(&frame(b'c', 1)[..if begun { SIZE - 1 } else { 0 }]).expect("it stands");
        (*letter, client)
    });
    let mut clients: Vec<_> = clients.collect();
    let each = (SIZE + if begun { SIZE - 1 } else { 0 }) as u64;
    let came = each * letters.len() as u64;
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == came), "{:#?}", pool.status());
    let drained = pool.shutdown(Drain::within(Duration::from_millis(500)));
    let mut reset = 0;
    for (letter, client) in &mut clients {
        let said = if *letter == b's' { frame(b'd', 0).to_vec() } else { Vec::new() };
        let is_owed = begun && *letter != b's';
        match read_all(&mut client.0) {
            Ok(rest) => assert!(is_owed || rest == said, "{}", char::from(*letter)),
            Err(_) => reset += 1,
        }
    }
    let owed = if begun { letters.iter().filter(|letter| **letter != b's').count() } else { 0 };
    assert_eq!(drained.asked, letters.len());
    assert!(drained.cut >= owed && drained.cut >= reset, "{owed} were owed, {reset} were reset: {drained:?}");
    // Whose loop has no CPU at the deadline counts as cut without it, and a process of that kind is killed; of the others each was counted by
    // its loop, and reset.
    let (counted, has_processes) = (pool.status().counts.cut as usize, matches!(bench.model, Model::Fork | Model::Prefork));
    // Where a loop had no CPU at the deadline, its peer may have had the end before the reset: that is no error of a read, and the socket has it.
    let until = Instant::now() + PATIENCE;
    while reset < counted && !has_processes && Instant::now() < until {
        let errors = clients.iter().filter_map(|(_, client)| client.0.take_error().ok()?);
        reset += errors.count();
        thread::yield_now();
    }
    assert!(reset >= counted || has_processes, "{counted} were counted, {reset} were reset: {drained:?}");
    Ok(())
}

fn is_reset(client: &mut Client) -> bool {
    client.0.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Checks the deadline; in a long run with as many peers as the promise is about, and on a machine that has nothing else to do.
fn keeps_its_deadline(bench: &Bench, end: End) -> Outcome {
    let long = std::env::var_os("SOCKDRAWER_LONG").is_some();
    let times: &[u64] = if long { &[0, 1000, 5000] } else { &[0, 300] };
    // Two CPUs need longer to wake three hundred processes and to end half of them.
    let most = if bench.model == Model::Fork { 200 } else { 100 };
    let (each, late) = if long { (100, Duration::from_millis(most)) } else { (3, Duration::from_secs(10)) };
    let all = [Peer::Deaf, Peer::Slow, Peer::Idle];
    let crowds: Vec<Vec<Peer>> = if bench.side_by_side() {
        vec![all.into_iter().flat_map(|peer| vec![peer; each]).collect()]
    } else {
        all.into_iter().map(|peer| vec![peer]).collect()
    };
    for within in times.iter().map(|time| Duration::from_millis(*time)) {
        for peers in &crowds {
            let (pool, at) = bench.start(bench.actor())?;
            let (drained, took, seen) = ended(&pool, at, peers, within, end);
            let cut = seen.iter().filter(|seen| **seen == Seen::Reset).count();
            println!("{}: {} peers within {within:?}: {drained:?} after {took:?}", bench.model, peers.len());
            assert_eq!(
                (drained.asked, drained.ended + drained.cut),
                (peers.len(), peers.len()),
                "within {within:?}: {drained:?}"
            );
            assert!(took <= within + late, "{took:?} for {within:?}");
            // A loop that has no CPU at the deadline counts as if it had cut all of its connections, though it ends some of them in order.
            assert!(drained.cut == cut || !long && drained.cut > cut, "within {within:?}: {drained:?}, and {cut} were reset");
            let counted = |told: u64| (cut as u64..=drained.cut as u64).contains(&told);
            assert!(pool.wait(PATIENCE, |status| counted(status.counts.cut)), "{drained:?}: {:#?}", pool.status().counts);
        }
    }
    Ok(())
}

/// Ends the connections of these peers and returns what the pool says, how long that took, and what each peer saw.
fn ended(pool: &Pool, at: SocketAddr, peers: &[Peer], within: Duration, end: End) -> (Drained, Duration, Vec<Seen>) {
    let (ready, over) = (Barrier::new(peers.len() + 1), Barrier::new(peers.len() + 1));
    thread::scope(|scope| {
        let (ready, over) = (&ready, &over);
        let clients: Vec<_> = peers.iter().map(|peer| scope.spawn(move || watch(*peer, at, ready, over))).collect();
        ready.wait();
        let began = Instant::now();
        let drained = end(pool, within);
        let took = began.elapsed();
        over.wait();
        (drained, took, clients.into_iter().map(|client| client.join().expect("whole, or a reset")).collect())
    })
}

fn watch(peer: Peer, at: SocketAddr, ready: &Barrier, over: &Barrier) -> Seen {
    let mut client = Client(connect(at));
    assert_eq!(client.version(), 1);
    if peer != Peer::Idle {
        client.order(b'w', MUCH as u32);
        // The answer has begun.
        client.0.peek(&mut [0]).expect("an answer");
    }
    ready.wait();
    let expected = if peer == Peer::Idle { 0 } else { MUCH };
    match peer {
        Peer::Deaf => {
            over.wait();
            read_to_the_end(client, expected, Duration::ZERO)
        }
        Peer::Slow => {
            let seen = read_to_the_end(client, expected, PAUSE);
            over.wait();
            seen
        }
        Peer::Idle => {
            let seen = read_to_the_end(client, expected, Duration::ZERO);
            over.wait();
            seen
        }
    }
}

/// Reads, with pauses: all of the pattern, the protocol's goodbye if it had time for one, and the end; or a reset.
fn read_to_the_end(mut client: Client, expected: usize, pause: Duration) -> Seen {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
    client.0.set_read_timeout(Some(PATIENCE)).expect("not zero");
    loop {
        match client.0.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Seen::Reset,
            Err(error) => panic!("{error} after {} bytes", bytes.len()),
        }
        if !pause.is_zero() {
            // waits because: a slow reader is one that does so
            thread::sleep(pause);
        }
    }
    assert!(bytes.len() >= expected, "an orderly end after {} of {expected} bytes", bytes.len());
    let (written, goodbye) = bytes.split_at(expected);
    assert!(written == pattern(0, written.len()));
    assert!(goodbye.is_empty() || goodbye == frame(b'd', 0), "{goodbye:?}");
    Seen::Whole
}
