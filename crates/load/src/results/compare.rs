//! Two sets of results beside each other.

use super::files::{DirectoryError, PLAN, RESULT, SERIES};
use crate::figure::Figure;
use crate::numbers::median;
use crate::threshold::{Judgement, Threshold, is_outside_spread, percent_change};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Figures that are compared, in this order.
const FIGURES: [&str; 18] = [
    "connections.peak",
    "failed",
    "lost",
    "rate",
    "mean",
    "p50",
    "p90",
    "p95",
    "p99",
    "p999",
    "max",
    "connect.p50",
    "connect.p99",
    "lag.p99",
    "server.cpu_us_per_operation",
    "server.cpu_us_per_accept",
    "server.bytes_per_connection",
    "server.kernel_bytes_per_connection",
];

/// A run that is compared.
#[derive(Clone, Debug, PartialEq)]
struct ComparedRun {
    path: PathBuf,
    result: Value,
    plan: Option<String>,
}

/// Side of a comparison: a run, or several of one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    runs: Vec<ComparedRun>,
    /// Directories of runs that were ended before they had a result.
    interrupted: Vec<PathBuf>,
}

/// Reason why two sides are not compared.
#[derive(Debug)]
pub enum NoComparison {
    /// The directory of a run cannot be read.
    Unreadable(DirectoryError),
    /// The runs measured different things.
    Different(String),
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The number of this form.
    pub schema: u32,
    /// Name of the workload on both sides: what the connections did.
    pub workload: String,
    /// The runs of the two sides.
    pub runs: [Vec<PathBuf>; 2],
    /// Differences of the runs besides the figures, runs that were left out, and figures that not all runs of a side measured: a line
    /// each.
    pub notes: Vec<String>,
    /// Thresholds for the second side, or for the change.
    pub thresholds: Vec<Judgement>,
    /// The figures that one side has at least.
    pub figures: Vec<Row>,
}

/// A figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the figure, as for thresholds.
    pub name: &'static str,
    /// Figure on the first side; None where a run did not measure it.
    pub before: Option<Spread>,
    /// Figure on the second side; None where a run did not measure it.
    pub after: Option<Spread>,
    /// The change of the median in percent of the first; None where it was 0 or nothing was measured.
    pub change_percent: Option<f64>,
    /// True where no run of one side lies among those of the other. None where there is one run on each side: how far apart two equal runs are is not
    /// known then.
    pub is_outside_spread: Option<bool>,
}

/// Measurements of the runs of a side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Side {
    /// Reads the runs that `text` names: directories of runs, files of results, or directories that have runs in them; commas between them.
    ///
    /// # Errors
    /// When one of them has no result.
    pub fn read(text: &str) -> Result<Side, NoComparison> {
        let mut side = Side { runs: Vec::new(), interrupted: Vec::new() };
        for path in text.split(',') {
            side.add(Path::new(path)).map_err(NoComparison::Unreadable)?;
        }
        Ok(side)
    }

    fn add(&mut self, path: &Path) -> Result<(), DirectoryError> {
        let unreadable = |reason: &str| DirectoryError::Unreadable(path.to_owned(), reason.to_owned());
        if !path.is_dir() {
            return self.add_run(path, path);
        }
        if path.join(RESULT).exists() {
            return self.add_run(path, &path.join(RESULT));
        }
        if path.join(SERIES).exists() {
            return Err(unreadable("the run was ended before it had a result"));
        }
        let entries = fs::read_dir(path).map_err(|error| unreadable(&error.to_string()))?;
        let mut runs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        runs.sort();
        let before = self.runs.len();
        for run in runs {
            if run.join(RESULT).exists() {
                self.add_run(&run, &run.join(RESULT))?;
            } else if run.join(SERIES).exists() {
                self.interrupted.push(run);
            }
        }
        if self.runs.len() == before { Err(unreadable("there is no result, and no directory with one")) } else { Ok(()) }
    }

    fn add_run(&mut self, path: &Path, file: &Path) -> Result<(), DirectoryError> {
        let unreadable = |reason: String| DirectoryError::Unreadable(file.to_owned(), reason);
        let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
        let result: Value = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        if result["schema"].is_null() || result["workload"].as_str().is_none() {
            return Err(unreadable("it is no result of load: it has no schema and no workload".to_owned()));
        }
        let plan = fs::read_to_string(file.with_file_name(PLAN)).ok();
        self.runs.push(ComparedRun { path: path.to_owned(), result, plan });
        Ok(())
    }

    fn results(&self) -> Vec<Value> {
        self.runs.iter().map(|run| run.result.clone()).collect()
    }

    /// Returns the figure of each run; none where one of them did not measure it: the others would stand for it.
    fn values(&self, figure: &Figure) -> Vec<f64> {
        self.runs.iter().map(|run| figure.of(&run.result)).collect::<Option<_>>().unwrap_or_default()
    }

    /// Returns which figures some of the runs alone measured: a line for each number of runs that did not.
    fn not_measured(&self, name: &str) -> Vec<String> {
        let mut figures: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for figure in FIGURES.iter().filter_map(|name| Figure::named(name)) {
            let without = self.runs.iter().filter(|run| figure.of(&run.result).is_none()).count();
            if (1..self.runs.len()).contains(&without) {
                figures.entry(without).or_default().push(figure.name);
            }
        }
        let all = self.runs.len();
        let line = |(without, names): (usize, Vec<&str>)| {
            format!("not measured in {without} of {all} runs of {name}: {}", names.join(", "))
        };
        figures.into_iter().map(line).collect()
    }

    fn spread(&self, figure: &Figure) -> Option<Spread> {
        let values = self.values(figure);
        let (min, max) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Spread { median: median(values)?, min, max })
    }
}

impl Comparison {
    /// Compares the second side with the first.
    ///
    /// # Errors
    /// When the runs are of different workloads, or their results of different forms.
    pub fn of(before: &Side, after: &Side, thresholds: &[Threshold]) -> Result<Comparison, NoComparison> {
        let all = || before.runs.iter().chain(&after.runs);
        for key in ["schema", "workload"] {
            let values: BTreeSet<String> = all().map(|run| run.result[key].to_string()).collect();
            if values.len() > 1 {
                let values = values.into_iter().collect::<Vec<_>>().join(" and ");
                return Err(NoComparison::Different(format!(
                    "the runs differ in their {key}, {values}: compare runs of the same"
                )));
            }
        }
        let figures = FIGURES.iter().filter_map(|name| Row::of(&Figure::named(name)?, before, after)).collect();
        let (results_before, results_after) = (before.results(), after.results());
        let judge = |threshold: &Threshold| threshold.check_change(&results_before, &results_after);
        Ok(Comparison {
            schema: 1,
            workload: after.runs.first().and_then(|run| run.result["workload"].as_str()).unwrap_or_default().to_owned(),
            runs: [before, after].map(|side| side.runs.iter().map(|run| run.path.clone()).collect()),
            notes: notes(before, after),
            thresholds: thresholds.iter().map(judge).collect(),
            figures,
        })
    }
}

impl Row {
    fn of(figure: &Figure, before: &Side, after: &Side) -> Option<Row> {
        let is_outside = is_outside_spread(&before.values(figure), &after.values(figure));
        let (before, after) = (before.spread(figure), after.spread(figure));
        before.or(after)?;
        let both = before.zip(after);
        let change = both.map(|(before, after)| percent_change(before.median, after.median));
        Some(Row {
            name: figure.name,
            before,
            after,
            change_percent: change.filter(|change| change.is_finite()),
            is_outside_spread: is_outside,
        })
    }
}

/// Returns the differences of the runs besides what was measured. The seed chooses bytes and moments, which differ from run to run anyway.
fn notes(before: &Side, after: &Side) -> Vec<String> {
    let all: Vec<&ComparedRun> = before.runs.iter().chain(&after.runs).collect();
    let mut notes = differences("machine", all.iter().map(|run| machine(run)));
    let plans: Vec<_> = all.iter().filter_map(|run| run.plan.as_deref().map(settings)).collect();
    if plans.len() < all.len() {
        notes.push(format!("the plan is not known of {} of {} runs", all.len() - plans.len(), all.len()));
    }
    notes.extend(differences("plan", plans.into_iter()));
    let interrupted = before.interrupted.iter().chain(&after.interrupted);
    notes.extend(interrupted.map(|path| format!("{} has no result: it was interrupted, and is left out", path.display())));
    notes.extend(before.not_measured("A").into_iter().chain(after.not_measured("B")));
    notes
}

fn machine(run: &ComparedRun) -> BTreeMap<String, String> {
    let fields = run.result["machine"].as_object();
    fields.into_iter().flatten().map(|(key, value)| (key.clone(), value.to_string())).collect()
}

fn settings(plan: &str) -> BTreeMap<String, String> {
    let settings = plan.lines().filter_map(|line| line.split_once('='));
    settings.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).filter(|(key, _)| key != "seed").collect()
}

fn differences(what: &str, of: impl Iterator<Item = BTreeMap<String, String>> + Clone) -> Vec<String> {
    let keys: BTreeSet<String> = of.clone().flat_map(BTreeMap::into_keys).collect();
    let mut found = Vec::new();
    for key in keys {
        let mut values: Vec<String> = Vec::new();
        for map in of.clone() {
            let value = map.get(&key).cloned().unwrap_or_else(|| "nothing".to_owned());
            if !values.contains(&value) {
                values.push(value);
            }
        }
        if values.len() > 1 {
            found.push(format!("the {what} differs in {key}: {}", values.join(", ")));
        }
    }
    found
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for judgement in &self.thresholds {
            writeln!(f, "threshold    {judgement}")?;
        }
        for note in &self.notes {
            writeln!(f, "note         {note}")?;
        }
        let rows: Vec<[String; 5]> = self.figures.iter().map(Row::words).collect();
        for (side, runs) in ["A", "B"].into_iter().zip(&self.runs) {
            match runs.as_slice() {
                [run] => writeln!(f, "{side}            {}", run.display())?,
                runs => writeln!(f, "{side}            {} runs: median and how far the furthest is from it", runs.len())?,
            }
        }
        let spread = if self.figures.iter().any(|row| row.is_outside_spread.is_some()) { "spread" } else { "" };
        let head = [&self.workload, "A", "B", "change", spread].map(str::to_owned);
        let table: Vec<&[String; 5]> = [&head].into_iter().chain(&rows).collect();
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let [name, before, after, change] = [0, 1, 2, 3].map(width);
        for (number, row) in table.iter().enumerate() {
            let line = format!("{:name$}  {:>before$}  {:>after$}  {:>change$}  {}", row[0], row[1], row[2], row[3], row[4]);
            write!(f, "{}{}", if number > 0 { "\n" } else { "" }, line.trim_end())?;
        }
        Ok(())
    }
}

impl Row {
    /// Returns the columns of the table.
    fn words(&self) -> [String; 5] {
        let measure = Figure::named(self.name).map(|figure| figure.measure);
        let number = |value: f64| measure.map_or_else(|| value.to_string(), |measure| measure.words(value));
        let side = |spread: Option<Spread>| match spread {
            None => "-".to_owned(),
            Some(Spread { median, min, max }) if min == max => number(median),
            Some(Spread { median, min, max }) => {
                let furthest = (max - median).max(median - min);
                match percent_change(median, median + furthest) {
                    percent if percent.is_finite() => format!("{} ±{percent:.0}%", number(median)),
                    _ => format!("{} ±{}", number(median), number(furthest)),
                }
            }
        };
        let change = match (self.change_percent, self.before, self.after) {
            (Some(0.0), ..) => "0.0%".to_owned(),
            (Some(change), ..) => format!("{change:+.1}%"),
            (None, Some(before), Some(after)) => format!("+{}", number(after.median - before.median)),
            _ => "-".to_owned(),
        };
        let outside = match self.is_outside_spread {
            Some(true) => "outside",
            Some(false) => "within",
            None => "",
        };
        [self.name.to_owned(), side(self.before), side(self.after), change, outside.to_owned()]
    }
}

impl fmt::Display for NoComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoComparison::Unreadable(error) => error.fmt(f),
            NoComparison::Different(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for NoComparison {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(name: &str, p99: f64, plan: &str) -> ComparedRun {
        let result = json!({
            "schema": 1,
            "workload": "ping",
            "machine": {"cpus": 2, "kernel": "6.18"},
            "connections": {"failed": 0, "lost": 0},
            "operations": {"failed": 0, "per_second": 1000.0},
            "latency_us": {"operation": {"p99": p99}},
        });
        ComparedRun { path: name.into(), result, plan: Some(plan.to_owned()) }
    }

    fn side(p99: &[f64]) -> Side {
        let plan = |seed: usize| format!("interval = \"5s\"\nseed = {seed}\n");
        let runs = p99.iter().enumerate().map(|(number, p99)| run(&format!("run{number}"), *p99, &plan(number))).collect();
        Side { runs, interrupted: Vec::new() }
    }

    fn row(comparison: &Comparison, name: &str) -> Row {
        comparison.figures.iter().find(|row| row.name == name).cloned().unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn repeated_runs_say_what_a_change_is_worth() {
        let compared = |before: &[f64], after: &[f64]| {
            let comparison = Comparison::of(&side(before), &side(after), &[]).expect("runs of the same");
            let row = row(&comparison, "operation.p99");
            (row.change_percent.map(f64::round), row.is_outside_spread)
        };
        assert_eq!(compared(&[100.0, 104.0, 108.0], &[120.0, 130.0]), (Some(20.0), Some(true)));
        assert_eq!(compared(&[100.0, 104.0, 125.0], &[120.0, 130.0]), (Some(20.0), Some(false)));
        assert_eq!(compared(&[100.0, 110.0], &[90.0]), (Some(-14.0), Some(true)));
        assert_eq!(compared(&[100.0], &[200.0]), (Some(100.0), None), "of one run each, nobody knows");
    }

    #[test]
    fn people_get_a_table() {
        let thresholds = ["p99<+10%".parse().expect("a threshold")];
        let comparison = Comparison::of(&side(&[100.0, 104.0]), &side(&[120.0, 130.0]), &thresholds).expect("runs of the same");
        let expected = "\
threshold    FAILED  p99<+10%: +22.5%
A            2 runs: median and how far the furthest is from it
B            2 runs: median and how far the furthest is from it
ping                              A             B  change  spread
failed                            0             0    0.0%  within
connections.lost                  0             0    0.0%  within
operations.per_second      1000.0/s      1000.0/s    0.0%  within
operation.p99          102.0 us ±2%  125.0 us ±4%  +22.5%  outside";
        assert_eq!(comparison.to_string(), expected);
    }

    #[test]
    fn a_change_within_the_spread_fails_no_threshold() {
        let judged = |before: &[f64], after: &[f64]| {
            let thresholds = ["p99<+10%".parse().expect("a threshold")];
            let comparison = Comparison::of(&side(before), &side(after), &thresholds).expect("runs of the same");
            comparison.thresholds[0].to_string()
        };
        let noise = "ok      p99<+10%: +25.0%, within the spread: no change that these runs show";
        assert_eq!(judged(&[90.0, 100.0, 140.0], &[95.0, 125.0, 150.0]), noise);
        assert_eq!(judged(&[90.0, 100.0, 110.0], &[120.0, 125.0, 150.0]), "FAILED  p99<+10%: +25.0%");
        assert_eq!(judged(&[100.0], &[125.0]), "FAILED  p99<+10%: +25.0%", "one run each has no spread");
        assert_eq!(judged(&[90.0, 100.0], &[95.0, 96.0]), "ok      p99<+10%: +0.5%", "it holds without that");
    }

    #[test]
    fn a_table_of_all_figures_fits_a_terminal() {
        let row = |name| Row {
            name,
            before: Some(Spread { median: 123_456.0, min: 100_000.0, max: 150_000.0 }),
            after: Some(Spread { median: 234_567.0, min: 200_000.0, max: 250_000.0 }),
            change_percent: Some(90.0),
            is_outside_spread: Some(true),
        };
        let figures = FIGURES.iter().filter_map(|name| Some(row(Figure::named(name)?.name))).collect();
        let runs = [vec!["a".into(); 3], vec!["b".into(); 3]];
        let comparison =
            Comparison { schema: 1, workload: "http".to_owned(), runs, notes: Vec::new(), thresholds: Vec::new(), figures };
        let text = comparison.to_string();
        text.lines().for_each(|line| assert!(line.chars().count() <= 86, "{line}"));
    }

    #[test]
    fn what_else_differs_is_told() {
        let (before, mut after) = (side(&[100.0]), side(&[100.0]));
        after.runs[0].plan = Some("interval = \"1s\"\nseed = 9\n".to_owned());
        after.runs[0].result["machine"]["kernel"] = json!("6.19");
        after.interrupted.push("b/run7".into());
        let comparison = Comparison::of(&before, &after, &[]).expect("runs of the same");
        let expected = [
            "the machine differs in kernel: \"6.18\", \"6.19\"",
            "the plan differs in interval: \"5s\", \"1s\"",
            "b/run7 has no result: it was interrupted, and is left out",
        ];
        assert_eq!(comparison.notes, expected);
    }

    #[test]
    fn what_one_of_several_runs_did_not_measure_is_told() {
        let (before, mut after) = (side(&[100.0, 104.0]), side(&[95.0, 96.0, 97.0]));
        for run in &mut after.runs[..2] {
            run.result["latency_us"]["operation"]["p99"] = Value::Null;
        }
        let comparison = Comparison::of(&before, &after, &[]).expect("runs of the same");
        assert_eq!(comparison.notes, ["not measured in 2 of 3 runs of B: operation.p99"]);
        let row = row(&comparison, "operation.p99");
        assert_eq!((row.after, row.change_percent, row.is_outside_spread), (None, None, None));
    }

    #[test]
    fn runs_of_something_else_are_not_compared() {
        for (key, value) in [("workload", json!("echo")), ("schema", json!(2))] {
            let mut after = side(&[100.0]);
            after.runs[0].result[key] = value;
            let refused = Comparison::of(&side(&[100.0]), &after, &[]).expect_err(key);
            assert!(refused.to_string().contains(key), "{refused}");
        }
    }

    #[test]
    fn something_out_of_nothing_has_no_percentage() {
        let mut after = side(&[100.0]);
        after.runs[0].result["connections"]["lost"] = json!(3);
        let comparison = Comparison::of(&side(&[100.0]), &after, &[]).expect("runs of the same");
        let row = row(&comparison, "connections.lost");
        assert_eq!((row.change_percent, row.words()[3].as_str()), (None, "+3"));
    }
}
