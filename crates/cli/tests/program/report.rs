//! Reports of the program as JSON.

use crate::program::End;
use serde_json::Value;

/// Returns the one object on standard output.
#[track_caller]
pub(crate) fn report(end: &End) -> Value {
    serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:?}"))
}

#[track_caller]
pub(crate) fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number {pointer} in {report}"))
}

#[track_caller]
pub(crate) fn numbers<const N: usize>(report: &Value, pointers: [&str; N]) -> [u64; N] {
    pointers.map(|pointer| number(report, pointer))
}

/// Returns what went wrong and how often, without when.
#[track_caller]
pub(crate) fn errors(report: &Value) -> Value {
    let mut errors = report["errors"].clone();
    for error in errors.as_array_mut().expect("a list") {
        error.as_object_mut().expect("an object").retain(|key, _| !matches!(key.as_str(), "first" | "last"));
    }
    errors
}
