//! Use of results: thresholds on their numbers, a directory for each run, a page to look at, comparisons.

mod compare;
mod directory;
mod files;
mod log;
mod page;
mod recorded;

pub use crate::figure::{Figure, Measure};
pub use crate::threshold::{BadThreshold, Threshold};
pub use compare::{Comparison, NoComparison, Row, Side, Spread};
pub use directory::{Directory, PageDirectory, show};
pub use files::DirectoryError;
pub use page::{Gap, Gaps};
pub use recorded::Recorded;

#[cfg(test)]
mod json_schema;
#[cfg(test)]
mod reference;
