//! What is done with results: thresholds on their numbers, a directory for each run, a page to look at, comparisons.

mod compare;
mod directory;
mod figure;
mod log;
mod page;
mod recorded;
mod threshold;

pub use compare::{Comparison, NoComparison, Row, Side, Spread};
pub use directory::{Directory, DirectoryError, show};
pub(crate) use figure::bytes;
pub use figure::{Figure, Measure};
pub use recorded::Recorded;
pub use threshold::{BadThreshold, Threshold};

#[cfg(test)]
mod reference;
