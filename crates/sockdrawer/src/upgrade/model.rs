//! A model of the conversation between two processes that checks the code of both sides exhaustively: each call of either side may fail with each
//! errno, be delayed, or find the other process stopped or killed, up to a number of faults in one run. All runs are tried, one after the other.
//!
//! What must hold in each: a connection acts in one process at a time, and never on from an old copy; not both processes accept; nothing waits for
//! ever; and nothing is lost but what a killed process had.

mod books;
mod schedule;

use super::before::Before;
use super::handing_over::Conversation;
use super::meeting::Meeting;
use super::pools::Pools;
use super::taking_over::Predecessor;
use super::talk::Talk;
use super::{Consent, MeetingPlace, NamedPool};
use crate::ipc::messages::{FORMATS, Hello};
use crate::operation::Drain;
use crate::sync::Mutex;
use books::{Fake, POOLS};
use schedule::{End, KILLED, NEW, OLD, World};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Number of connections: two slices of one pool, one of the other.
const CONNECTIONS: u64 = 5;

/// The environment variable that has the maximum of faults in one run, for `ci/long`.
const FAULTS: &str = "SOCKDRAWER_FAULTS";
/// The environment variable that has the number of runs with three faults at random. All triples would be more than an hour of CPU, and a state that
/// was seen cannot be left out: it is on the stacks of two threads that run the code itself.
const TRIPLES: &str = "SOCKDRAWER_TRIPLES";

fn named(world: &Arc<World>, side: usize, together: bool) -> Vec<NamedPool> {
    let one = |pool| NamedPool {
        name: format!("pool {pool}"),
        pool: Arc::new(Fake::new(world, side, pool, together)),
        given_up: Vec::new(),
    };
    (0..POOLS).map(one).collect()
}

/// Runs the old process. Returns why it goes on.
fn hand_over(world: &Arc<World>, together: bool) -> Option<String> {
    let socket: Arc<OwnedFd> = Arc::new(std::fs::File::open("/dev/null").expect("/dev/null").into());
    let place = Arc::new(MeetingPlace(Mutex::new(Some(socket.clone()))));
    let meeting = Meeting {
        path: std::path::PathBuf::new(),
        place,
        version: String::new(),
        pools: Arc::new(Pools::default()),
        before: Arc::new(Before::default()),
        carries: Vec::new(),
        stays: None,
        ends: Drain::within(Duration::from_secs(30)),
        turns_within: Duration::from_secs(5),
        asked: Consent::default(),
    };
    let talk = Talk::over(End { world: world.clone(), side: OLD });
    let (lowest_format, highest_format) = FORMATS;
    let greeted = talk.answer(Some(Duration::from_secs(1)));
    greeted.ok()?;
    let hello = Hello { lowest_format, highest_format, version: String::new(), within: 30_000, replaces: None };
    Conversation::new(talk, 1, &meeting, named(world, OLD, together), socket, None).hold(&hello)
}

/// Runs the new process. Returns why it does not take over.
fn take_over(world: &Arc<World>, together: bool) -> Option<String> {
    let talk = Talk::over(End { world: world.clone(), side: NEW });
    let until = talk.now() + Duration::from_secs(30);
    let met = match Predecessor::greet(talk.clone(), "", Some("any"), until) {
        Ok(Some((predecessor, _))) => Ok(predecessor),
        Ok(None) => Err("it is gone".to_owned()),
        Err(reason) => Err(reason),
    };
    let settles = Duration::from_secs(5);
    let taken_over = met.and_then(|predecessor| {
        let now = talk.now();
        drop(talk);
        Ok((predecessor.take_over(&named(world, NEW, together), &mut [], Arc::new(Before::default()))?, now + settles))
    });
    match taken_over {
        Ok((arrivals, settles)) => {
            arrivals.receive(settles);
            None
        }
        Err(reason) => Some(reason),
    }
}

/// Runs once, with the choices of this script. Returns what is wrong with the run, and what it chose of how many.
fn run(script: &[usize], faults: usize, kinds: schedule::Kinds, together: bool) -> (Option<String>, Vec<(usize, usize)>) {
    let world = Arc::new(World::new(script, faults, kinds, CONNECTIONS, together));
    std::thread::scope(|scope| {
        for side in [OLD, NEW] {
            let world = &world;
            scope.spawn(move || {
                let act = || if side == OLD { hand_over(world, together) } else { take_over(world, together) };
                world.begin(side);
                let came = catch_unwind(AssertUnwindSafe(act));
                world.finish(side, came.map_err(|panic| panic.downcast_ref::<&str>().is_some_and(|what| *what == KILLED)));
            });
        }
    });
    world.judged()
}

/// Tries all runs. Returns how many there were.
fn explore(faults: usize, kinds: schedule::Kinds, together: bool) -> usize {
    let (mut script, mut runs) = (Vec::new(), 0);
    loop {
        let (wrong, mut taken) = run(&script, faults, kinds, together);
        runs += 1;
        if let Some(wrong) = wrong {
            let told: Vec<_> = run(&taken.iter().map(|(choice, _)| *choice).collect::<Vec<_>>(), faults, kinds, together).1;
            panic!("{wrong}\nafter {runs} runs, together: {together}, choices {taken:?} {}", told.len());
        }
        while taken.last().is_some_and(|(choice, options)| choice + 1 == *options) {
            taken.pop();
        }
        let Some((last, _)) = taken.last_mut() else { return runs };
        *last += 1;
        script = taken.into_iter().map(|(choice, _)| choice).collect();
    }
}

/// Tries this many runs with three faults that each stand anywhere. Returns in how many of them all three came to pass.
fn explore_at_random(runs: usize, together: bool) -> usize {
    let calls = run(&[], 3, schedule::Kinds::All, together).1.len();
    // Xorshift, from a seed that is the same each time.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |most: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % most as u64) as usize
    };
    let mut whole = 0;
    for _ in 0..runs {
        let mut script = vec![0; calls];
        (0..3).for_each(|_| script[below(calls)] = 1 + below(16));
        let (wrong, taken) = run(&script, 3, schedule::Kinds::All, together);
        if let Some(wrong) = wrong {
            panic!("{wrong}\ntogether: {together}, choices {taken:?}");
        }
        whole += usize::from(taken.iter().filter(|(choice, _)| *choice > 0).count() == 3);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_failure_of_a_call_gives_a_connection_two_owners_or_none() {
        let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<usize>().ok());
        let (most, triples) = (number(FAULTS).unwrap_or(1), number(TRIPLES).unwrap_or(200));
        for together in [false, true] {
            let runs = explore(1, schedule::Kinds::All, together);
            println!("together: {together}, one fault of each kind: {runs} runs");
            for faults in 2..=most {
                let runs = explore(faults, schedule::Kinds::Classes, together);
                println!("together: {together}, {faults} faults: {runs} runs");
            }
            let whole = explore_at_random(triples, together);
            println!("together: {together}, three faults at random: {triples} runs, in {whole} of them all three");
        }
    }
}
