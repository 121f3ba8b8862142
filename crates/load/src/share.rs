//! What of a run each of several processes does, and how many there are.

use crate::numbers::float;
use crate::plan::{Plan, Processes};

/// Descriptors of a process that are no connections.
pub(crate) const OTHERS: usize = 256;
/// More are no help to a machine of any size.
const MOST_PROCESSES: usize = 1_000;

impl Plan {
    /// How many processes run the clients besides this one; 0: this one does.
    ///
    /// Both ends of a server in this process are connections of it.
    pub fn processes(&self, descriptors: usize) -> usize {
        let room = descriptors.saturating_sub(OTHERS).max(1);
        let ends = if self.targets.is_empty() { 2 } else { 1 };
        match self.processes {
            Processes::Exactly(processes) => processes as usize,
            Processes::Auto if self.connections.saturating_mul(ends) <= room => 0,
            Processes::Auto => self.connections.div_ceil(room).min(MOST_PROCESSES),
        }
    }

    /// What one of so many agents does. Stages are told as they come.
    pub(crate) fn part(&self, number: usize, of: usize) -> Plan {
        let mut plan = self.clone();
        plan.connections = part(self.connections, number, of);
        plan.operations = self.operations.map(|operations| {
            let (all, number, of) = (operations, number as u64, of as u64);
            all / of + u64::from(number < all % of)
        });
        plan.connect_rate = self.connect_rate.map(|rate| rate / float(of as u64));
        if let crate::Workload::Http(wanted) = &mut plan.workload {
            wanted.rate = wanted.rate.map(|rate| rate / float(of as u64));
        }
        plan.stages.clear();
        plan.seed = self.seed.wrapping_add(number as u64);
        // Each begins with another source, so that few connects of them meet.
        if !plan.sources.is_empty() {
            let first = number % plan.sources.len();
            plan.sources.rotate_left(first);
        }
        plan
    }
}

pub(crate) fn part(whole: usize, number: usize, of: usize) -> usize {
    whole / of + usize::from(number < whole % of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::{Stage, Workload};
    use std::time::Duration;

    #[test]
    fn parts_add_up() {
        let whole = Plan {
            connections: 11,
            operations: Some(7),
            connect_rate: Some(90.0),
            stages: vec![Stage { time: Duration::from_secs(1), connections: 11 }],
            ..plan(Workload::Hello)
        };
        let parts: Vec<Plan> = (0..3).map(|number| whole.part(number, 3)).collect();
        assert_eq!(parts.iter().map(|part| part.connections).collect::<Vec<_>>(), [4, 4, 3]);
        assert_eq!(parts.iter().map(|part| part.operations).collect::<Vec<_>>(), [Some(3), Some(2), Some(2)]);
        assert!(parts.iter().all(|part| part.connect_rate == Some(30.0) && part.stages.is_empty()));
        assert_eq!((0..3).map(|number| part(5, number, 3)).sum::<usize>(), 5);
    }

    #[test]
    fn descriptors_decide_how_many_processes_there_are() {
        let to = |targets: &[&str], connections| Plan {
            targets: targets.iter().map(|target| target.parse().expect("an address")).collect(),
            connections,
            ..plan(Workload::Hello)
        };
        let far = |connections| to(&["127.0.0.1:9"], connections).processes(1_256);
        assert_eq!([far(1), far(1_000), far(1_001), far(5_000)], [0, 0, 2, 5]);
        let here = |connections| to(&[], connections).processes(1_256);
        assert_eq!([here(500), here(501), here(1_000)], [0, 1, 1], "a server in this process has the other ends");
        let exactly = Plan { processes: Processes::Exactly(3), ..plan(Workload::Hello) };
        assert_eq!(exactly.processes(1_256), 3);
    }
}
