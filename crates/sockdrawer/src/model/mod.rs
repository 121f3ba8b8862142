//! WHO RUNS THE FLOW: one file for each model.

pub(crate) mod loops;
