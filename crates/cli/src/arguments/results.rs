//! Commands about runs that are over.

use crate::thresholds;
use crate::values::Destination;
use clap::Args;
use sockdrawer_load::results::Threshold;
use std::path::PathBuf;

/// `sockdrawer report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// The directory of a run, which load --out made.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// `sockdrawer compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// The first runs: a directory of load --out or a result, several with commas between, or a directory that has runs in it.
    #[arg(value_name = "RUN")]
    pub(crate) before: String,
    /// The runs that are compared with them.
    #[arg(value_name = "RUN")]
    pub(crate) after: String,
    /// What the second must be, or how much it may change, or the program ends with 99: p99<50ms, operation.p99<+10%, lost<=+0;
    /// repeat it for more.
    #[arg(long, value_name = "EXPR", value_parser = thresholds::parse)]
    pub(crate) threshold: Vec<Threshold>,
    /// Write the comparison as JSON to a file, or to standard output with -.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
}
