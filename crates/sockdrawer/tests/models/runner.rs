//! Runs the suite as libtest would, as far as people and scripts can tell, and knows refusals besides.

use crate::Test;
use crate::bench::Bench;
use crate::common::PATIENCE;
use sockdrawer::{Error, Model};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// A test that takes longer hangs. Its thread is left behind.
const TIME_LIMIT: Duration = Duration::from_secs(2 * PATIENCE.as_secs());

/// Most of a test's time is waiting.
const THREADS: usize = 4;

/// libtest's code for failed tests.
const FAILED: u8 = 101;

/// How a test ended.
enum Ending {
    Passed,
    /// The model said so, in this line.
    Refused(String),
    Failed(String),
}

/// What the command line asks for. Options that choose how libtest works change nothing here.
struct Asked {
    filters: Vec<String>,
    skips: Vec<String>,
    exact: bool,
    list: bool,
    ignored: bool,
    /// Tests at once.
    threads: usize,
}

impl Asked {
    fn parse(mut words: impl Iterator<Item = String>) -> Asked {
        let mut asked =
            Asked { filters: Vec::new(), skips: Vec::new(), exact: false, list: false, ignored: false, threads: THREADS };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--exact" => asked.exact = true,
                "--list" => asked.list = true,
                "--ignored" => asked.ignored = true,
                "--skip" => asked.skips.extend(words.next()),
                "--test-threads" => asked.threads = words.next().and_then(|word| word.parse().ok()).unwrap_or(THREADS).max(1),
                "--format" | "--color" | "--logfile" | "-Z" => drop(words.next()),
                option if option.starts_with('-') => {}
                _ => asked.filters.push(word),
            }
        }
        asked
    }

    fn wants(&self, name: &str) -> bool {
        let matches = |part: &String| if self.exact { name == part } else { name.contains(part) };
        // None of these tests is marked as ignored.
        !self.ignored && (self.filters.is_empty() || self.filters.iter().any(matches)) && !self.skips.iter().any(matches)
    }
}

/// Runs what is asked for.
pub(crate) fn run(tests: &[Test], refusals: &[(Model, &str, &str)]) -> ExitCode {
    let asked = Asked::parse(std::env::args().skip(1));
    let all =
        Model::ALL.into_iter().flat_map(|model| tests.iter().map(move |test| (format!("{model}::{}", test.0), model, test.1)));
    let (wanted, others): (Vec<_>, Vec<_>) = all.partition(|(name, ..)| asked.wants(name));
    if asked.list {
        wanted.iter().for_each(|(name, ..)| println!("{name}: test"));
        println!("\n{} tests, 0 benchmarks", wanted.len());
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", wanted.len());
    let next = AtomicUsize::new(0);
    let (failures, refused) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..asked.threads {
            scope.spawn(|| {
                while let Some((name, model, test)) = wanted.get(next.fetch_add(1, Relaxed)) {
                    let known = refusals.iter().find(|(of, part, _)| of == model && name.contains(part));
                    match judged(in_time(name, *model, *test), known.map(|(.., words)| *words)) {
                        Ending::Passed => println!("test {name} ... ok"),
                        Ending::Refused(line) => {
                            refused.fetch_add(1, Relaxed);
                            println!("test {name} ... refused: {line}");
                        }
                        Ending::Failed(why) => {
                            println!("test {name} ... FAILED: {why}");
                            failures.lock().expect("no panic").push(name);
                        }
                    }
                }
            });
        }
    });
    let (failures, refused) = (failures.into_inner().expect("no panic"), refused.into_inner());
    if !failures.is_empty() {
        println!("\nfailures:");
        failures.iter().for_each(|name| println!("    {name}"));
    }
    let (word, failed) = (if failures.is_empty() { "ok" } else { "FAILED" }, failures.len());
    let (passed, filtered) = (wanted.len() - failed - refused, others.len());
    println!("\ntest result: {word}. {passed} passed; {failed} failed; {refused} ignored; 0 measured; {filtered} filtered out\n");
    if failures.is_empty() { ExitCode::SUCCESS } else { FAILED.into() }
}

/// A model may neither refuse what it is to do nor do what it is known to refuse.
fn judged(ending: Ending, expected: Option<&str>) -> Ending {
    match (ending, expected) {
        (Ending::Refused(line), Some(words)) if line.contains(words) => Ending::Refused(line),
        (Ending::Refused(line), _) => Ending::Failed(format!("not in the table of refusals: {line}")),
        (Ending::Passed, Some(words)) => Ending::Failed(format!("the table of refusals says that it cannot {words}")),
        (ending, _) => ending,
    }
}

fn in_time(name: &str, model: Model, test: fn(&Bench) -> Result<(), Error>) -> Ending {
    let (tells, hears) = mpsc::channel();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| test(&Bench { model })));
        // Who waited too long listens no more.
        let _ = tells.send(match ended {
            Ok(Ok(())) => Ending::Passed,
            Ok(Err(error @ Error::NotInModel { .. })) => Ending::Refused(error.to_string()),
            Ok(Err(error)) => Ending::Failed(error.to_string()),
            Err(panic) => Ending::Failed(message(&*panic)),
        });
    });
    match started {
        Ok(_) => hears.recv_timeout(TIME_LIMIT).unwrap_or_else(|_| Ending::Failed(format!("it hangs: {TIME_LIMIT:?} passed"))),
        Err(error) => Ending::Failed(format!("no thread: {error}")),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic").to_owned()
}
