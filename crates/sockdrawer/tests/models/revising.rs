//! Several changes at once, and how many generations may live.

use crate::bench::{Bench, Client, Outcome};
use crate::common::PATIENCE;
use crate::services::{Actor, frame};
use sockdrawer::{Error, Selector};
use std::sync::Barrier;
use std::thread;

pub(crate) fn a_change_of_an_older_copy_is_refused(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let (first, stale) = (pool.config(), pool.config());
    assert_eq!(pool.status().revision, 1);
    let applied = pool.reconfigure(first.limit(50))?;
    assert_eq!((applied.revision, pool.status().revision), (2, 2));
    pool.reconfigure(pool.config().limit(60))?;
    let refused = pool.reconfigure(stale.clone().behaviour(Actor { version: 2 })).expect_err("it is stale");
    assert!(matches!(refused, Error::Conflict { based_on: 1, current: 3 }), "{refused}");
    let line = "the configuration changed meanwhile: it is based on revision 1, the pool is at 3; take pool.config() again and apply \
                the change to that";
    assert_eq!(refused.to_string(), line);
    assert_eq!((pool.status().generation, pool.status().revision), (1, 3), "nothing was done");
    // Where nothing differs nothing is changed, and what is refused for another reason is no change either.
    assert_eq!(pool.reconfigure(pool.config())?.revision, 3);
    pool.reconfigure(pool.config().loops(0)).expect_err("it would serve no connection");
    assert_eq!(pool.status().revision, 3);
    // Going back on purpose.
    assert_eq!(pool.reconfigure(stale.unconditional())?.revision, 4);
    Client::served(at).end();
    Ok(())
}

pub(crate) fn of_changes_to_one_copy_one_wins(bench: &Bench) -> Outcome {
    const THREADS: usize = 4;
    const ROUNDS: usize = 10;
    let (pool, at) = bench.start(bench.actor())?;
    for round in 0..ROUNDS {
        let (copy, together) = (pool.config(), Barrier::new(THREADS));
        let change = |limit: usize| {
            let wanted = copy.clone().limit(limit);
            together.wait();
            pool.reconfigure(wanted)
        };
        let outcomes: Vec<_> = thread::scope(|scope| {
            let change = &change;
            let threads: Vec<_> = (0..THREADS).map(|one| scope.spawn(move || change(100 + THREADS * round + one))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let based_on = round as u64 + 1;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        for refused in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            assert!(
                matches!(refused, Error::Conflict { based_on: b, current: c } if (*b, *c) == (based_on, based_on + 1)),
                "{refused}"
            );
        }
        let winner = outcomes.iter().position(Result::is_ok).expect("one");
        let limit = Some(100 + THREADS * round + winner);
        assert_eq!((pool.status().revision, pool.config().limit), (based_on + 1, limit));
    }
    Client::served(at).end();
    Ok(())
}

pub(crate) fn updates_of_several_threads_are_all_made(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor().limit(100))?;
    thread::scope(|scope| {
        let add = || {
            for _ in 0..10 {
                pool.update(|config| {
                    let limit = config.limit.expect("there is one");
                    config.limit(limit + 1)
                })
                .expect("it is made sooner or later");
            }
        };
        (0..4).for_each(|_| _ = scope.spawn(add));
    });
    assert_eq!((pool.config().limit, pool.status().revision), (Some(140), 41));
    Client::served(at).end();
    Ok(())
}

pub(crate) fn a_bound_of_generations_is_kept(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor().max_generations(Some(2)))?;
    let mut old = Client::served(at);
    pool.reconfigure(pool.config().behaviour(Actor { version: 2 }))?;
    assert_eq!(pool.status().live_generations(), 2);
    let refused = pool.reconfigure(pool.config().behaviour(Actor { version: 3 })).expect_err("there are two");
    assert!(matches!(refused, Error::TooManyGenerations { live: 2, oldest: 1, connections: 1 }), "{refused}");
    let line = "2 generations live, the oldest holds 1 connection: let them be adopted, drain or purge them";
    assert_eq!(refused.to_string(), line);
    assert_eq!((old.version(), pool.status().generation), (1, 2), "nothing was done, and nobody was ended");
    // A change of the limit needs no new generation, so it is not held up.
    pool.reconfigure(pool.config().limit(50))?;
    let reader = thread::spawn(move || old.rest());
    assert_eq!(pool.purge(&Selector::Before(2), PATIENCE).asked, 1);
    assert_eq!(reader.join().expect("an orderly end"), frame(b'd', 0));
    assert!(pool.wait(PATIENCE, |status| status.live_generations() == 1), "{:#?}", pool.status());
    pool.reconfigure(pool.config().behaviour(Actor { version: 3 }))?;
    let refused = pool.reconfigure(pool.config().max_generations(Some(1))).expect_err("none could follow");
    assert!(matches!(refused, Error::Invalid { setting: "max_generations", .. }), "{refused}");
    pool.reconfigure(pool.config().max_generations(None))?;
    Ok(())
}
