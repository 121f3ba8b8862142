//! What is done with results: thresholds on their numbers, a directory for each run, a page to look at, comparisons.

mod figure;
mod threshold;

pub(crate) use figure::bytes;
pub use figure::{Figure, Measure};
pub use threshold::{BadThreshold, Threshold};
