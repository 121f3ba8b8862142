//! `--junit`: the verdict in the form of XML that CI systems read as results of tests.

use crate::outcome::Failure;
use crate::print::Output;
use crate::values::Destination;
use sockdrawer_load::Report;
use sockdrawer_trial::Verdict;
use std::fmt::Write;
use std::path::PathBuf;

/// A place for the XML, which is opened before the run.
pub(crate) struct Junit(Output);

/// A test, and why it failed if it did.
struct Case {
    name: String,
    failure: Option<String>,
}

impl Junit {
    pub(crate) fn open(to: Option<PathBuf>) -> Result<Junit, Failure> {
        Output::open(to.map(Destination::File)).map(Junit)
    }

    /// Writes a test for each threshold of a run; of a run without thresholds a single one.
    pub(crate) fn load(&mut self, title: &str, report: &Report, is_good: bool) -> Result<(), Failure> {
        let judged = report
            .thresholds
            .iter()
            .map(|judgement| Case { name: judgement.expr.clone(), failure: (!judgement.ok).then(|| judgement.words()) });
        let mut cases: Vec<Case> = judged.collect();
        // An agent that was lost, or an end before its time, is no threshold's.
        if cases.is_empty() || !is_good && cases.iter().all(|case| case.failure.is_none()) {
            cases.push(Case { name: "verdict".to_owned(), failure: (!is_good).then(|| report.verdict()) });
        }
        self.0.write(|| xml(title, report.seconds, &cases, &report.to_string()))
    }

    /// Writes a test of a trial's verdict.
    pub(crate) fn trial(&mut self, title: &str, seconds: f64, verdict: &Verdict, text: &str) -> Result<(), Failure> {
        let failure = match verdict {
            Verdict::Good => None,
            bad => Some(format!("{}: {}", bad.word(), bad.reasons().join("; "))),
        };
        let cases = [Case { name: "nothing is lost".to_owned(), failure }];
        self.0.write(|| xml(title, seconds, &cases, text))
    }
}

fn xml(title: &str, seconds: f64, cases: &[Case], text: &str) -> String {
    let title = escaped(title);
    let (tests, failures) = (cases.len(), cases.iter().filter(|case| case.failure.is_some()).count());
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" time=\"{seconds:.3}\"");
    let mut xml =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"{title}\" {counts}>\n");
    for Case { name, failure } in cases {
        let begin = format!("    <testcase classname=\"{title}\" name=\"{}\" time=\"{seconds:.3}\"", escaped(name));
        let rest = match failure {
            None => "/>".to_owned(),
            Some(why) => format!(">\n      <failure message=\"{0}\">{0}</failure>\n    </testcase>", escaped(why)),
        };
        writeln!(xml, "{begin}{rest}").expect("a String takes what is written to it");
    }
    xml + &format!("    <system-out>{}</system-out>\n  </testsuite>\n</testsuites>", escaped(text))
}

/// Escapes a text for XML 1.0, which has no place for control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(sign),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(sign),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_counted_and_everything_is_text() {
        let case = |name: &str, failure: Option<&str>| Case { name: name.to_owned(), failure: failure.map(str::to_owned) };
        let cases = [case("p99<5ms", Some("7.1 ms")), case("lost==0", None)];
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <testsuites tests=\"2\" failures=\"1\" errors=\"0\" time=\"10.000\">\n  \
            <testsuite name=\"load &quot;a&quot; &amp; b\" tests=\"2\" failures=\"1\" errors=\"0\" time=\"10.000\">\n    \
            <testcase classname=\"load &quot;a&quot; &amp; b\" name=\"p99&lt;5ms\" time=\"10.000\">\n      \
            <failure message=\"7.1 ms\">7.1 ms</failure>\n    </testcase>\n    \
            <testcase classname=\"load &quot;a&quot; &amp; b\" name=\"lost==0\" time=\"10.000\"/>\n    \
            <system-out>one\n\u{fffd}[0m</system-out>\n  </testsuite>\n</testsuites>";
        assert_eq!(xml("load \"a\" & b", 10.0, &cases, "one\n\u{1b}[0m"), expected);
    }
}
