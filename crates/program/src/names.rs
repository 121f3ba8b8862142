//! Names that are not known, told with the closest one that is.

use crate::values::BadValue;
use sockdrawer_operate::written::{self, closest};

/// Maximum number of names that are all told.
const MANY: usize = 15;

/// Says "unknown KIND `TEXT`", with the known name closest to it, where one is close, and all known ones.
pub fn unknown(kind: &str, text: &str, known: &[&str]) -> BadValue {
    // Names that are far from it help little where there are many.
    if known.len() > MANY && closest(text, known).is_none() {
        return BadValue(format!("unknown {kind} `{text}`: the help names all"));
    }
    BadValue(written::unknown(kind, text, known, MANY))
}
