//! Part of each agent of another machine in a run, beside the whole.

use crate::machine::Machine;
use crate::numbers::{thousands, time};
use crate::workload::{Latencies, Operations};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Part of an agent of another machine in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AgentPart {
    /// Name of the agent.
    pub name: String,
    /// Machine of the agent.
    pub machine: Option<Machine>,
    /// The part of the connections that it was asked for, from 0 to 1.
    pub share: f64,
    /// Reason why it was lost; null: it was there to the end.
    pub lost: Option<String>,
    /// Connections that it established.
    pub established: u64,
    /// Connects of it that failed.
    pub failed: u64,
    /// Established connections that were lost, with the agent itself or before.
    pub lost_connections: u64,
    /// Operations of its connections.
    pub operations: Operations,
    /// Times that its connects and operations took. `lag` is how late it was itself.
    pub latency_us: Latencies,
    /// CPU time of its processes.
    pub cpu_seconds: f64,
    /// The part of its machine's CPUs that its processes used, from 0 to 1.
    pub cpu: f64,
    /// Memory of its processes at the end.
    pub rss_bytes: u64,
    /// Seconds by which its monotonic clock is ahead of this machine's; it is corrected for.
    pub clock_ahead_seconds: Option<f64>,
    /// The shortest way there and back; the clock is measured to half of it.
    pub round_trip_us: Option<f64>,
}

/// A table of them for people; nothing where there is none.
pub(crate) struct Parts<'a>(pub(crate) &'a [AgentPart]);

impl fmt::Display for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(
            f,
            "\nagents       {:<12} {:>11} {:>12} {:>7} {:>8} {:>8} {:>5}",
            "", "connections", "operations", "failed", "p99", "late p99", "CPU"
        )?;
        let figure = |microseconds: Option<f64>| microseconds.map_or_else(|| "-".to_owned(), time);
        for part in self.0 {
            let AgentPart { name, established, operations, latency_us, .. } = part;
            let failed = part.failed + part.lost_connections + operations.failed;
            write!(
                f,
                "\n  {name:<23} {:>11} {:>12} {:>7} {:>8} {:>8} {:>3.0} %",
                thousands(*established),
                thousands(operations.ok),
                thousands(failed),
                figure(latency_us.operation.p99),
                figure(latency_us.lag.p99),
                100.0 * part.cpu
            )?;
        }
        for part in self.0 {
            if let Some(why) = &part.lost {
                let share = 100.0 * part.share;
                write!(f, "\nagent lost   {}, which had {share:.0} % of the connections: {why}", part.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn part(name: &str, lost: Option<&str>) -> AgentPart {
        AgentPart {
            name: name.to_owned(),
            machine: None,
            share: 0.25,
            lost: lost.map(str::to_owned),
            established: 16_667,
            failed: 1,
            lost_connections: 2,
            operations: Operations { ok: 48_550, failed: 3, per_second: 1.0 },
            latency_us: Latencies::default(),
            cpu_seconds: 2.0,
            cpu: 0.1,
            rss_bytes: 0,
            clock_ahead_seconds: None,
            round_trip_us: None,
        }
    }

    #[test]
    fn each_has_a_row_and_a_lost_one_its_share() {
        let text = Parts(&[part("a", None), part("b", Some("it was killed"))]).to_string();
        let expected = "
agents                    connections   operations  failed      p99 late p99   CPU
  a                            16,667       48,550       6        -        -  10 %
  b                            16,667       48,550       6        -        -  10 %
agent lost   b, which had 25 % of the connections: it was killed";
        assert_eq!(text, expected);
        assert_eq!(Parts(&[]).to_string(), "");
    }
}
