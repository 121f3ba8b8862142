//! Values as they are written, in files and on command lines: counts, times, rates, sizes and names. An error says what is wrong and shows a
//! right one.

use sockdrawer_catalog::count::{self, scaled};
use sockdrawer_catalog::time;
use std::time::Duration;

/// Reads a count, 0 included: `0`, `250`, `10k`, `1.5m`.
///
/// # Errors
/// What to write instead.
pub fn count(text: &str) -> Result<u64, String> {
    count::parse(text).map_err(|_| match text.is_empty() || text.bytes().any(|byte| !byte.is_ascii_digit()) {
        true => "not a count: write a whole number such as 250, 10k or 2m".to_owned(),
        false => format!("too large: at most {}", u64::MAX),
    })
}

/// Reads a length of time, 0 included: `5` and `5s` are seconds, `250us`, `50ms`, `1.5m`, `1h`.
///
/// # Errors
/// What to write instead.
pub fn time(text: &str) -> Result<Duration, String> {
    time::parse(text).map_err(|_| "not a time: write 5 or 5s (seconds), 250us, 50ms, 2m (minutes) or 1h".to_owned())
}

/// Reads a rate per second: `1000`, `10k`, `0.5`, `200/s`.
///
/// # Errors
/// What to write instead.
#[expect(clippy::cast_precision_loss, reason = "a rate of 9,000,000 per second is the most that is exact to a billionth")]
pub fn rate(text: &str) -> Result<f64, String> {
    const BILLION: u64 = 1_000_000_000;
    let units = [("k", 1_000 * BILLION), ("m", 1_000_000 * BILLION), ("", BILLION)];
    match scaled(text.strip_suffix("/s").unwrap_or(text), &units) {
        Some(0) => Err("must be more than 0 per second".to_owned()),
        Some(billionths) => Ok(billionths as f64 / BILLION as f64),
        None => Err("not a rate: write how many per second, such as 500, 10k or 0.5".to_owned()),
    }
}

/// Reads bytes, less than 4 GiB: `64`, `4k`, `1m`; k is 1,024 and m is 1,048,576.
///
/// # Errors
/// What to write instead.
pub fn size(text: &str) -> Result<u32, String> {
    let bytes = scaled(text, &[("k", 1024), ("m", 1024 * 1024), ("", 1)]).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| "not a size below 4096m: write bytes, such as 64, 4k (4,096) or 1m (1,048,576)".to_owned())
}

/// Returns the name that differs least from `text`, when not more than half of it differs.
pub fn closest<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = by_distance(text, known).first().copied()?;
    (distance(&text.to_lowercase(), name) * 2 <= name.chars().count()).then_some(name)
}

fn distance(lower: &str, name: &str) -> usize {
    strsim::damerau_levenshtein(lower, name)
}

/// Returns the known names, the closest first.
fn by_distance<'a>(text: &str, known: &[&'a str]) -> Vec<&'a str> {
    let lower = text.to_lowercase();
    let mut names = known.to_vec();
    names.sort_by_cached_key(|name| distance(&lower, name));
    names
}

/// Says "unknown KIND `TEXT`" with the closest known name, if one is close, and all of them, if there are at most `few`.
pub fn unknown(kind: &str, text: &str, known: &[&str], few: usize) -> String {
    let all = known.join(", ");
    match closest(text, known) {
        Some(name) if (2..=few).contains(&known.len()) => {
            format!("unknown {kind} `{text}`: did you mean `{name}`? There are {all}")
        }
        Some(name) => format!("unknown {kind} `{text}`: did you mean `{name}`?"),
        None if known.len() <= few => format!("unknown {kind} `{text}`: there are {all}"),
        None => format!("unknown {kind} `{text}`: the closest are {}", by_distance(text, known)[..3].join(", ")),
    }
}
