//! Commands for the results of runs.

use crate::thresholds;
use crate::values::Destination;
use clap::Args;
use sockdrawer_load::results::Threshold;
use std::path::PathBuf;

/// `sockdrawer report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// The directory of a run, made by load --out.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// `sockdrawer compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// The first runs: a directory of load --out or a result, several with commas between, or a directory that has runs in it.
    #[arg(value_name = "RUN")]
    pub(crate) before: String,
    /// The runs to compare with the first.
    #[arg(value_name = "RUN")]
    pub(crate) after: String,
    /// A condition on the second runs, or on the change; the exit code is 99 if it fails: p99<50ms, operation.p99<+10%, lost<=+0;
    /// may be repeated.
    #[arg(long, value_name = "EXPR", value_parser = thresholds::parse)]
    pub(crate) threshold: Vec<Threshold>,
    /// Write the comparison as JSON to a file, or to standard output with -.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
}
