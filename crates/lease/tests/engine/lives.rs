//! Ends of connections and their replacements, leases that are held for too long, and the numbers of all that.

use crate::common::{A, Bench, ms, quiet};
use sockdrawer_lease::engine::{Action, Job, Returned};
use sockdrawer_lease::{Event, Reason, Refusal, Request, Settings};

fn aging() -> Settings {
    Settings { lifetime: Some(ms(1000)), lifetime_jitter: 0, ..quiet() }
}

#[test]
fn a_connection_in_use_is_replaced_before_its_end_and_closed_once_the_other_is_there() {
    let mut bench = Bench::new(aging());
    let leased = bench.lease_new(0, A, 1);
    bench.give(949, leased);
    assert!(bench.actions().is_empty());
    let leased = bench.lease(950, A);
    let connect = bench.jobs();
    assert_eq!((leased.connection, connect.len()), (1, 1));
    bench.engine.done(bench.at(960), connect[0], Ok(2));
    bench.give(961, leased);
    assert_eq!(bench.close_all(961), [1]);
    assert_eq!((bench.lease(962, A).connection, bench.engine.stats().ends[&Reason::Renewed]), (2, 1));
}

#[test]
fn free_connections_that_others_will_use_are_no_replacement() {
    let mut bench = Bench::new(aging());
    let leased = bench.lease_new(0, A, 1);
    let young = bench.lease_new(500, A, 2);
    bench.give(900, young);
    bench.give(950, leased);
    let connect = bench.actions();
    let [Action::Run { id, job: Job::Connect(_), .. }] = connect[..] else { panic!("{connect:?}") };
    bench.engine.done(bench.at(960), id, Ok(3));
    assert_eq!(bench.close_all(960), [1]);
    assert_eq!(bench.engine.status().free, 2);
}

#[test]
fn a_connection_of_a_full_pool_lives_to_its_end_and_is_replaced_then() {
    let mut bench = Bench::new(Settings { max: 1, ..aging() });
    let leased = bench.lease_new(0, A, 1);
    bench.give(960, leased);
    let leased = bench.lease(970, A);
    assert!(bench.actions().is_empty(), "there is no room");
    bench.give(1000, leased);
    assert_eq!((bench.close_all(1000), bench.engine.status().connecting), (vec![1], 1));
}

#[test]
fn an_idle_connection_is_replaced_only_where_the_minimum_needs_it() {
    for min_free in [0, 1] {
        let mut bench = Bench::new(Settings { min_free: 1, ..aging() });
        bench.engine.add_target(bench.start, &A);
        let connect = bench.jobs()[0];
        bench.engine.done(bench.start, connect, Ok(1));
        bench.engine.set(bench.at(1), Settings { min_free, ..aging() });
        bench.engine.handle_timeout(bench.at(950));
        let connects = bench.jobs();
        assert_eq!(connects.len(), min_free);
        for connect in connects {
            bench.engine.done(bench.at(951), connect, Ok(3));
            assert_eq!(bench.close_all(951), [1]);
        }
    }
}

#[test]
fn a_smaller_pool_closes_the_oldest_first() {
    let mut bench = Bench::new(quiet());
    let leases: Vec<_> = (0..4).map(|number| bench.lease_new(u64::from(number), A, number)).collect();
    for leased in leases.into_iter().rev() {
        bench.give(10, leased);
    }
    bench.engine.set(bench.at(11), Settings { max: 2, ..quiet() });
    assert_eq!(bench.close_all(11), [0, 1]);
}

#[test]
fn a_lease_that_is_held_for_too_long_is_told_once_with_its_caller() {
    let mut bench = Bench::new(Settings { held_after: Some(ms(100)), ..quiet() });
    bench.engine.observe(true);
    let leased = bench.lease_new_told(0);
    let request = Request::from(bench.at(1));
    bench.give(1, leased);
    let Ok(sockdrawer_lease::engine::Asked::Leased(leased)) = bench.engine.ask(bench.at(1), &A, request) else { panic!() };
    assert_eq!(bench.engine.poll_timeout(), Some(bench.at(101)));
    bench.engine.handle_timeout(bench.at(102));
    let actions = bench.actions();
    let [Action::Tell(Event::Held { target: A, caller, held })] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((*caller, *held), (request.caller, ms(101)));
    assert!(caller.file().ends_with("lives.rs"));
    bench.engine.handle_timeout(bench.at(500));
    bench.give(501, leased);
    assert!(bench.actions().is_empty() && bench.engine.poll_timeout().is_none());
    assert_eq!(bench.engine.stats().held, 1);
}

impl Bench {
    /// Leases a connection that is made for it, and takes the events of that.
    fn lease_new_told(&mut self, at: u64) -> sockdrawer_lease::engine::Leased<u32> {
        self.wait(at, A);
        let job = self.jobs()[0];
        self.engine.done(self.at(at + 1), job, Ok(1));
        let mut actions = self.actions();
        assert!(matches!(actions[0], Action::Tell(Event::Connected { target: A, took }) if took == ms(1)), "{actions:?}");
        let Some(Action::Wake { result: Ok(leased), .. }) = actions.pop() else { panic!("{actions:?}") };
        leased
    }
}

#[test]
fn waits_uses_connects_and_ends_are_counted() {
    let mut bench = Bench::new(Settings { max: 1, ..quiet() });
    let leased = bench.lease_new(0, A, 1);
    let second = bench.wait(1, A);
    let third = bench.wait(2, A);
    bench.engine.cancel(bench.at(3), third);
    bench.give(11, leased);
    let (waiter, result) = bench.woken().pop().expect("woken");
    assert_eq!(waiter, second);
    bench.engine.give_back(bench.at(12), result.expect("leased"), Returned::Broken);
    assert_eq!(bench.close_all(12), [1]);
    assert!(bench.engine.ask(bench.at(13), &A, bench.at(13).into()).is_err());
    let stats = bench.engine.stats();
    assert_eq!((stats.waiting.count(), stats.waiting.max(), stats.using.max()), (2, ms(10), ms(11)));
    assert_eq!((stats.using.count(), stats.connecting.count()), (2, 1));
    assert_eq!(stats.ends.iter().collect::<Vec<_>>(), [(&Reason::Broken, &1)]);
    assert_eq!(stats.refusals.iter().collect::<Vec<_>>(), [(&Refusal::TimedOut, &1), (&Refusal::Cancelled, &1)]);
}
