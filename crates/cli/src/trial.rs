//! `sockdrawer trial`: from the command line to a trial, and from its report to a table and the exit code.

use crate::arguments::{self, TrialArguments};
use crate::itself;
use crate::junit::Junit;
use crate::limits;
use crate::load::stop_by_signals;
use crate::outcome::{Exit, Failure};
use crate::print::{self, Output};
use crate::values::chosen_seed;
use sockdrawer::{Address, Model, testing};
use sockdrawer_load::Stop;
use sockdrawer_trial::kinds::{Options, Sabotage, Table, Trial, loopback};
use sockdrawer_trial::{Progress, Until, Verdict};
use std::fmt;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// Time between two rewritings of the line that shows how far the trial is.
const BETWEEN_SHOWINGS: Duration = Duration::from_millis(100);

/// Duration of a trial unless told otherwise.
const LASTS: Duration = Duration::from_secs(10);

/// Runs the trial and tells what it found.
pub(crate) fn run(arguments: TrialArguments) -> Result<Exit, Failure> {
    let mut options = options(&arguments)?;
    let mut output = Output::open(arguments.clients.json)?;
    let mut junit = Junit::open(arguments.clients.junit)?;
    // The network belongs to a thread and those it starts: this comes before any other thread.
    let shared_network = match arguments.listen {
        Some(_) => Some("with --listen the network is shared with others".to_owned()),
        None => testing::private_network().err().map(|error| format!("no network of its own: {error}")),
    };
    options.private_network = shared_network.is_none();
    let stop = Stop::new();
    let signalled = stop_by_signals(&stop)?;
    limits::raise();
    let trial = Trial::start(&options)?;
    output.tell(start(&options))?;
    if let Some(why) = shared_network {
        output.tell(format_args!("the kernel's count of connections is not compared: {why}"))?;
    }
    let mut live = TrialProgress::new(options.until);
    let report = trial.finish(&|within| stop.wait(within), |progress| live.show(progress));
    live.end();
    let mut told = output.tell(Table(&report));
    let (mut verdict, mut json) = (Verdict::of(&report), report.json());
    // A trial with a fault in it shows that fault.
    if options.sabotage.is_none() && !stop.wait(Duration::ZERO) {
        let times = itself::times(options.until);
        let mut live = TrialProgress::new(Until::Changes(times));
        let clients = (options.model, options.connections, options.kept, options.seed);
        let itself = itself::run(times, clients, &|within| stop.wait(within), |progress| live.show(progress));
        live.end();
        verdict = verdict.and(match itself {
            Ok(itself) => {
                told = told.and_then(|()| output.tell(&itself));
                json["program"] = itself.json();
                itself.verdict()
            }
            // The findings of the first part are told all the same.
            Err(failure) => Verdict::Inconclusive(vec![format!("this program was not tried: {failure}")]),
        });
        json["verdict"] = verdict.word().into();
        json["reasons"] = verdict.reasons().into();
    }
    // First what is kept, so that a reader that has gone takes nothing with it; the first that fails is told.
    let written = output.report(&json);
    let kept = junit.trial("trial", report.elapsed.as_secs_f64(), &verdict, &Table(&report).to_string());
    written.and(kept).and(told).and_then(|()| output.tell(verdict.line(&report)))?;
    Ok(signalled.get().map_or_else(|| exit(&verdict), |signal| signal.exit()))
}

pub(crate) fn exit(verdict: &Verdict) -> Exit {
    match verdict {
        Verdict::Good => Exit::Ok,
        Verdict::Bad(_) | Verdict::Inconclusive(_) => Exit::Failed,
    }
}

/// Returns the options that the arguments mean: defaults filled in, and what makes no sense refused.
fn options(arguments: &TrialArguments) -> Result<Options, Failure> {
    let mut options = Options {
        model: tried(arguments.model.unwrap_or_default())?,
        connections: arguments.clients.connections,
        seed: arguments.clients.seed.unwrap_or_else(chosen_seed),
        sabotage: arguments.sabotage.map(sabotage),
        ..Options::default()
    };
    options.kept = match arguments.clients.kept {
        0 => return Err(usage("--kept: at least one, because changes are looked at on kept connections")),
        kept => kept,
    };
    options.listen = match &arguments.listen {
        None => options.listen,
        Some(Address::Tcp(address)) => loopback(*address).map_err(usage)?,
        Some(other) => {
            return Err(usage(format_args!(
                "--listen: the server inside this program tells its clients apart by their IPv4 addresses: write 127.0.0.1:9000, or try a \
                 server of its own: `sockdrawer serve echo -l {other}` and `sockdrawer trial {other} --change COMMAND`"
            )));
        }
    };
    options.until = until(arguments);
    Ok(options)
}

/// Returns when a trial ends.
pub(crate) fn until(arguments: &TrialArguments) -> Until {
    match (arguments.changes, arguments.duration) {
        (Some(changes), _) => Until::Changes(changes),
        (None, Some(time)) => Until::Passed(time),
        (None, None) => Until::Passed(LASTS),
    }
}

/// Returns the model, when a trial can say something about it.
fn tried(model: Model) -> Result<Model, Failure> {
    let refuse = |why: &str| Err(usage(format_args!("--model {model}: {why}: use loops, threads, prefork or tasks")));
    match model {
        Model::Single => refuse("a trial has many connections at once, this model runs one after the other"),
        Model::Fork => {
            refuse("a trial changes connections while they live, this model runs each in a process that no change reaches")
        }
        _ => Ok(model),
    }
}

fn sabotage(named: arguments::Sabotage) -> Sabotage {
    match named {
        arguments::Sabotage::Reopen => Sabotage::Reopen,
        arguments::Sabotage::DropQueue => Sabotage::DropQueue,
        arguments::Sabotage::LoseByte => Sabotage::LoseByte,
        arguments::Sabotage::CloseKept => Sabotage::CloseKept,
    }
}

pub(crate) fn usage(line: impl fmt::Display) -> Failure {
    Failure::usage_of("sockdrawer trial", line)
}

/// Returns the line a trial starts with.
fn start(options: &Options) -> String {
    let Options { model, connections, kept, seed, .. } = options;
    let until = match options.until {
        Until::Changes(changes) => format!("{changes} changes"),
        Until::Passed(time) => format!("changes for {time:?}"),
    };
    let sabotage = options.sabotage.map_or_else(String::new, |sabotage| format!(", sabotage {}", sabotage.name()));
    let clients = format!("{connections} clients that come and go and {kept} that stay");
    format!("trial: {until}, model {model}, under {clients}{sabotage}, seed {seed}")
}

/// Display of how far the trial is: one line on a terminal, nothing elsewhere.
pub(crate) struct TrialProgress {
    on_terminal: bool,
    until: Until,
    /// True where the trial allows that idle connections are closed: these are not lost.
    idle_close: bool,
    shown: Option<Duration>,
}

impl TrialProgress {
    pub(crate) fn new(until: Until) -> TrialProgress {
        TrialProgress { on_terminal: stderr().is_terminal(), until, idle_close: false, shown: None }
    }

    pub(crate) fn allowing(self, idle_close: bool) -> TrialProgress {
        TrialProgress { idle_close, ..self }
    }

    pub(crate) fn show(&mut self, progress: &Progress) {
        let due = self.shown.map_or(Duration::ZERO, |shown| shown + BETWEEN_SHOWINGS);
        if self.on_terminal && progress.elapsed >= due {
            self.shown = Some(progress.elapsed);
            print::rewrite(self.line(progress));
        }
    }

    fn line(&self, progress: &Progress) -> String {
        let (seconds, seen) = (progress.elapsed.as_secs_f64(), progress.seen);
        let of = match self.until {
            Until::Changes(changes) => format!("{}/{changes} changes, {seconds:.1} s", progress.changes),
            Until::Passed(time) => format!("{seconds:.1}/{:.0} s, {} changes", time.as_secs_f64(), progress.changes),
        };
        let (connects, failed, lost, wrong) =
            (seen.connects, seen.failed(), seen.lost_unless_allowed(self.idle_close), seen.wrong_bytes);
        format!("{of}, {connects} connects, {failed} failed, {lost} lost, {wrong} wrong bytes")
    }

    /// Ends the display: what follows takes the line's place.
    pub(crate) fn end(self) {
        if self.shown.is_some() {
            print::rewrite("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Command;
    use crate::usage::Parsed;
    use sockdrawer_trial::Seen;

    fn parsed(words: &str) -> Result<Options, Failure> {
        let all = ["sockdrawer", "trial"].into_iter().chain(words.split_whitespace()).map(Into::into);
        match crate::usage::parse(all)? {
            Some(Parsed::Own(Command::Trial(arguments))) => options(&arguments),
            other => panic!("not a trial: {other:?}"),
        }
    }

    #[test]
    fn a_trial_lasts_ten_seconds_unless_told_otherwise() {
        assert_eq!(parsed("").expect("all has defaults").until, Until::Passed(Duration::from_secs(10)));
        assert_eq!(parsed("--seconds 2").expect("a time").until, Until::Passed(Duration::from_secs(2)));
        assert_eq!(parsed("--changes 1k").expect("a count").until, Until::Changes(1_000));
        let both = parsed("--changes 5 --seconds 2").expect_err("one of them");
        assert_eq!(both.exit, Exit::Usage);
    }

    #[test]
    fn a_seed_is_taken_as_it_is() {
        let given = parsed("--seed 7 --sabotage lose-byte --listen 127.0.0.1:9000").expect("all of it");
        assert_eq!((given.seed, given.sabotage, given.listen.port()), (7, Some(Sabotage::LoseByte), 9000));
        assert_eq!((given.model, parsed("--model threads").expect("a model").model), (Model::Loops, Model::Threads));
    }

    #[test]
    fn what_a_trial_cannot_use_is_refused() {
        for words in [
            "--kept 0",
            "--listen [::1]:9000",
            "--listen unix:/tmp/x",
            "--listen 0.0.0.0:9000",
            "--sabotage all",
            "--model single",
            "--model fork",
        ] {
            assert_eq!(parsed(words).expect_err(words).exit, Exit::Usage, "{words}");
        }
    }

    #[test]
    fn progress_is_one_line() {
        let mut seen = Seen::default();
        seen.connects = 5;
        let progress = Progress { elapsed: Duration::from_millis(1500), changes: 30, seen };
        let line =
            TrialProgress { on_terminal: true, until: Until::Passed(Duration::from_secs(10)), idle_close: false, shown: None }
                .line(&progress);
        assert_eq!(line, "1.5/10 s, 30 changes, 5 connects, 0 failed, 0 lost, 0 wrong bytes");
        let line = TrialProgress { on_terminal: true, until: Until::Changes(50), idle_close: false, shown: None }.line(&progress);
        assert_eq!(line, "30/50 changes, 1.5 s, 5 connects, 0 failed, 0 lost, 0 wrong bytes");
    }

    #[test]
    fn only_a_good_verdict_is_a_success() {
        assert_eq!(exit(&Verdict::Good), Exit::Ok);
        assert_eq!(exit(&Verdict::Bad(vec![])), Exit::Failed);
        assert_eq!(exit(&Verdict::Inconclusive(vec![])), Exit::Failed);
    }
}
