//! `--threshold`: from its text to what is judged, and from the judgements to the exit code.

use crate::names;
use crate::outcome::{Exit, Failure};
use crate::values::BadValue;
use crate::workload::usage;
use sockdrawer_catalog::http::Page;
use sockdrawer_load::results::{BadThreshold, Figure, Threshold};
use sockdrawer_load::{Judgement, Plan, Report, Workload};

/// The exit of a run that was made, and whose result is not what `--threshold` asks for.
pub(crate) const MISSED: Exit = Exit::Own(99);

/// Reads the value of the option; a name that no result has is told with the closest that it has.
pub(crate) fn parse(text: &str) -> Result<Threshold, BadValue> {
    text.parse().map_err(|error| match error {
        BadThreshold::UnknownName(name) => names::unknown_of_many("name", &name, Figure::names().collect()),
        BadThreshold::Malformed(reason) => BadValue(reason),
    })
}

/// Reads a threshold for a single run, which has nothing to have changed from.
pub(crate) fn parse_for_one(text: &str) -> Result<Threshold, BadValue> {
    let threshold = parse(text)?;
    if threshold.is_change() {
        return Err(BadValue("a change is one between two runs: leave the sign out here, or use compare".to_owned()));
    }
    Ok(threshold)
}

/// Refuses a threshold on a page that the run does not ask for: it would be missed for want of a measurement.
pub(crate) fn have_their_pages(thresholds: &[Threshold], plan: &Plan) -> Result<(), Failure> {
    let pages: &[Page] = if let Workload::Http(wanted) = &plan.workload { &wanted.pages } else { &[] };
    let is_asked = |path: &str| pages.iter().any(|page| page.path == path);
    let Some(threshold) = thresholds.iter().find(|threshold| threshold.page().is_some_and(|path| !is_asked(path))) else {
        return Ok(());
    };
    let paths: Vec<&str> = pages.iter().map(|page| page.path.as_str()).collect();
    let there = if paths.is_empty() { "http alone has pages".to_owned() } else { format!("it asks for {}", paths.join(", ")) };
    Err(usage(format_args!("--threshold {threshold}: the run has no such page: {there}")))
}

/// Writes into the result what it says to the thresholds.
pub(crate) fn judge(thresholds: &[Threshold], report: &mut Report) -> Result<(), Failure> {
    let result = serde_json::to_value(&*report).map_err(Failure::not_json)?;
    report.thresholds = thresholds.iter().map(|threshold| threshold.check(&result)).collect();
    Ok(())
}

/// Returns the exit by the thresholds: None without them; where there are some, they alone decide.
pub(crate) fn verdict(judgements: &[Judgement]) -> Option<Exit> {
    let kept = judgements.iter().all(|judgement| judgement.ok);
    (!judgements.is_empty()).then_some(if kept { Exit::Ok } else { MISSED })
}

/// Returns all names, those of times by their parts, as the end of a help has them.
pub(crate) fn known() -> String {
    let of_operations = Figure::SHORT.iter().filter(|(short, name)| name.strip_prefix("operation.") == Some(*short));
    let of_times: Vec<&str> = of_operations.map(|(short, _)| *short).collect();
    let groups = Figure::ALL.iter().filter_map(|figure| figure.name.strip_suffix(".p99")).filter(|group| *group != "operation");
    let groups: Vec<&str> = groups.collect();
    let is_time = |name: &str| of_times.iter().any(|time| name == *time || name.ends_with(&format!(".{time}")));
    let others: Vec<&str> = Figure::names().filter(|name| !is_time(name)).collect();
    let (times, groups, others) = (of_times.join(", "), groups.join(".p99, "), others.join(", "));
    format!(
        "Names of --threshold:\n  {times}: times of operations; of others {groups}.p99 and the like\n  \
         {others}\n  http: /PAGE.p99, /PAGE.first_byte.p99 and the like, /PAGE.ok, /PAGE.failed, /PAGE.rate"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_told_with_the_closest() {
        let BadValue(reason) = parse("opration.p99<5ms").expect_err("no such name");
        let told = "unknown name `opration.p99`: the closest are operation.p99, operation.p90, operation.p95; the help ends with all of them";
        assert_eq!(reason, told);
    }

    #[test]
    fn a_single_run_has_no_change() {
        assert!(parse("p99<+10%").is_ok());
        parse_for_one("p99<+10%").expect_err("a change of what?");
        assert!(parse_for_one("p99<10ms").is_ok());
    }

    #[test]
    fn thresholds_alone_decide_where_there_are_any() {
        let judgement = |ok| Judgement { expr: "p99<5ms".to_owned(), value: Some(4_000.0), ok, within_spread: false };
        assert_eq!(verdict(&[]), None);
        assert_eq!(verdict(&[judgement(true), judgement(true)]), Some(Exit::Ok));
        assert_eq!(verdict(&[judgement(true), judgement(false)]), Some(MISSED));
    }
}
