//! Runs the suite under every model, and holds what a model refuses against the table of refusals.

use crate::Test;
use crate::bench::{Bench, Outcome};
use crate::common::in_time;
use libtest_mimic::{Arguments, Trial};
use sockdrawer::{Error, Model};

/// Tests at once: most of their time is waiting, and deadlines of 50 ms are among what is tried.
const THREADS: usize = 4;

/// Runs what the command line asks for.
pub(crate) fn run(tests: &[Test], refusals: &[(Model, &str, &'static str)]) -> ! {
    let trials = Model::ALL.into_iter().flat_map(|model| {
        tests.iter().map(move |&(test, run)| {
            let refused = refusals.iter().find(|(of, part, _)| *of == model && format!("{model}::{test}").contains(part));
            let refused = refused.map(|(.., words)| *words);
            let trial = Trial::test(format!("{model}::{test}"), move || {
                in_time(move || judge(run(&Bench { model }), refused));
                Ok(())
            });
            trial.with_kind(if refused.is_some() { "refused" } else { "" })
        })
    });
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    libtest_mimic::run(&arguments, trials.collect()).exit()
}

/// Asserts that a model neither refuses what it is to do nor does what it is known to refuse.
fn judge(outcome: Outcome, refused: Option<&str>) {
    match (outcome, refused) {
        (Ok(()), None) => {}
        (Ok(()), Some(words)) => panic!("the table of refusals says that it cannot {words}"),
        (Err(error @ Error::NotInModel { .. }), Some(words)) if error.to_string().contains(words) => {}
        (Err(error), _) => panic!("not in the table of refusals: {error}"),
    }
}
