//! Orders of waiters, and changes between them while they wait.

use crate::common::{A, Bench, ms, quiet};
use sockdrawer_lease::engine::WaiterId;
use sockdrawer_lease::{Error, Policy, Request, Settings};

fn bench(policy: Policy) -> Bench {
    Bench::new(Settings { max: 1, policy, ..quiet() })
}

impl Bench {
    fn wait_as(&mut self, at: u64, key: u64, priority: u8) -> WaiterId {
        let request = Request { key, priority, ..Request::from(self.at(at + 10_000)) };
        self.request(at, A, request)
    }

    /// Serves all that wait for the only connection, and returns them in order.
    fn serve_all(&mut self, at: u64, leased: sockdrawer_lease::engine::Leased<u32>) -> Vec<WaiterId> {
        let (mut order, mut next) = (Vec::new(), Some(leased));
        while let Some(leased) = next.take() {
            self.give(at, leased);
            for (waiter, result) in self.woken() {
                order.push(waiter);
                next = Some(result.expect("served"));
            }
        }
        order
    }
}

#[test]
fn keys_take_turns_and_each_is_served_in_its_own_order() {
    let mut bench = bench(Policy::Fair);
    let leased = bench.lease_new(0, A, 1);
    let greedy: Vec<_> = (1..5).map(|at| bench.wait_as(at, 7, 0)).collect();
    let [modest, other] = [bench.wait_as(5, 3, 0), bench.wait_as(6, 9, 0)];
    let again = bench.wait_as(7, 9, 0);
    assert_eq!(bench.serve_all(8, leased), [modest, greedy[0], other, greedy[1], again, greedy[2], greedy[3]]);
}

#[test]
fn a_key_that_comes_back_at_once_waits_for_the_turns_of_the_others() {
    let mut bench = bench(Policy::Fair);
    let mut leased = bench.lease_new(0, A, 1);
    (1..4).for_each(|at| _ = bench.wait_as(at, 8, 0));
    let mut order = Vec::new();
    for at in 4..9 {
        let single = bench.wait_as(at, 2, 0);
        bench.give(at, leased);
        let (waiter, result) = bench.woken().pop().expect("woken");
        order.push(waiter == single);
        leased = result.expect("served");
        if waiter != single {
            bench.engine.cancel(bench.at(at), single);
        }
    }
    assert_eq!(order, [true, false, true, false, true]);
}

#[test]
fn the_highest_priority_is_served_first_and_equals_in_order() {
    let mut bench = bench(Policy::Priority);
    let leased = bench.lease_new(0, A, 1);
    let waiters: Vec<_> = [0, 255, 3, 3].into_iter().zip(1..).map(|(priority, at)| bench.wait_as(at, 0, priority)).collect();
    assert_eq!(bench.serve_all(5, leased), [waiters[1], waiters[2], waiters[3], waiters[0]]);
}

#[test]
fn the_youngest_is_served_first_once_the_oldest_has_waited_for_too_long() {
    let mut bench = bench(Policy::AdaptiveLifo { after: ms(100) });
    let leased = bench.lease_new(0, A, 1);
    let waiters: Vec<_> = (1..5).map(|at| bench.wait(at, A)).collect();
    bench.give(100, leased);
    let (first, result) = bench.woken().pop().expect("woken");
    // The first is served in time; then the others have waited for too long.
    let order = bench.serve_all(104, result.expect("served"));
    assert_eq!((first, order), (waiters[0], vec![waiters[3], waiters[2], waiters[1]]));
}

#[test]
fn a_policy_changes_while_they_wait_and_they_stay() {
    let mut bench = bench(Policy::Fifo);
    let leased = bench.lease_new(0, A, 1);
    let low: Vec<_> = (1..3).map(|at| bench.wait_as(at, 0, 1)).collect();
    let high = bench.wait_as(3, 0, 2);
    bench.engine.set(bench.at(4), Settings { max: 1, policy: Policy::Priority, ..quiet() });
    bench.give(5, leased);
    let (first, result) = bench.woken().pop().expect("woken");
    bench.engine.set(bench.at(6), Settings { max: 1, ..quiet() });
    let last = bench.wait_as(7, 0, 9);
    let order = bench.serve_all(8, result.expect("served"));
    assert_eq!((first, order), (high, vec![low[0], low[1], last]));
}

#[test]
fn codel_drops_nobody_for_whom_a_connect_is_on_its_way() {
    let policy = Policy::CoDel { target: ms(5), interval: ms(20) };
    let mut bench = Bench::new(Settings { max: 2, policy, ..quiet() });
    let waiters: Vec<_> = (0..3).map(|_| bench.wait(0, A)).collect();
    let connects = bench.jobs();
    bench.engine.handle_timeout(bench.at(90));
    assert!(bench.actions().is_empty());
    // They took 100 ms, and serve two of them: the third is dropped then.
    for (number, job) in (0..).zip(connects) {
        bench.engine.done(bench.at(100), job, Ok(number));
    }
    let woken = bench.woken();
    assert!(
        matches!(&woken[..], [(_, Ok(_)), (_, Ok(_)), (third, Err(Error::Dropped { .. }))] if *third == waiters[2]),
        "{woken:?}"
    );
}

#[test]
fn codel_counts_no_time_in_which_the_pool_is_suspended() {
    let policy = Policy::CoDel { target: ms(5), interval: ms(20) };
    let settings = Settings { max: 1, policy, ..quiet() };
    let mut bench = Bench::new(settings);
    let _leased = bench.lease_new(0, A, 1);
    bench.engine.suspend(bench.at(1));
    bench.wait(2, A);
    bench.engine.handle_timeout(bench.at(1000));
    bench.engine.resume(bench.at(1000));
    bench.engine.handle_timeout(bench.at(1019));
    assert!(bench.actions().is_empty());
    bench.engine.handle_timeout(bench.at(1020));
    assert!(matches!(bench.woken()[..], [(_, Err(Error::Dropped { .. }))]));
}
