//! Workloads on the command line: the options of each and what they make of it, its words, and its keys in a plan.

mod acks;
mod http;
mod lines;
mod options;
mod round_trips;

pub(crate) use acks::{AcksArguments, ladder, messages};
pub(crate) use http::{Asks, HttpArguments, wanted};
pub(crate) use lines::Lines;
pub(crate) use options::{OperationArguments, first_given, usage};
pub(crate) use round_trips::round_trips;

use sockdrawer_load::{Hello, Plan, Workload};

/// Description of a workload: its words, and its keys in a plan.
pub(crate) trait Told {
    /// Returns words for the work of the connections, which follow `connections`, their number.
    fn words(&self, plan: &Plan, connections: &str) -> String;

    /// Adds its options with their values to a plan.
    fn keys(&self, plan: &Plan, lines: &mut Lines);

    /// Returns true where the seed chooses anything.
    fn has_choices(&self) -> bool {
        false
    }
}

pub(crate) fn told(workload: &Workload) -> &dyn Told {
    match workload {
        Workload::RoundTrips(round_trips) => round_trips,
        Workload::Hello(hello) => hello,
        Workload::Http(wanted) => wanted,
        Workload::Acks(messages) => messages,
    }
}

impl Told for Hello {
    fn words(&self, _plan: &Plan, connections: &str) -> String {
        format!("{connections} at once, one hello operation each, then the next")
    }

    fn keys(&self, _plan: &Plan, _lines: &mut Lines) {}
}
