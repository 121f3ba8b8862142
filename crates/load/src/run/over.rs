//! Reason why a run is over, and how long it was.

use crate::plan::{End, Plan};
use crate::report::Report;
use crate::workload::Tally;
use sockdrawer_catalog::time;
use std::time::Instant;

/// Reason why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The time of the run has passed.
    Time,
    /// There is nothing left to do.
    Done,
    /// A signal or another thread stopped it.
    Interrupted,
    /// A command stopped it.
    Stopped,
    /// No connection was left, and none is replaced.
    NoneLeft,
    /// Each handshake of TLS or WebSocket failed, for a reason that does not change.
    Refused,
    /// An agent was lost, or a process of clients died: the run does not go on without it, or the others have nothing left to do.
    AgentLost,
}

/// Returns why a run is over in which no connection has anything left to do. An agent that is gone has nothing left either, but did
/// not do its part.
pub(super) fn nothing_left(is_done: bool, lost: u32) -> Over {
    match lost {
        _ if !is_done => Over::NoneLeft,
        0 => Over::Done,
        _ => Over::AgentLost,
    }
}

/// Returns in words why a run was over before its plan was.
pub(super) fn ended_early(over: Over, plan: &Plan, report: &Report) -> Option<String> {
    let why = match over {
        Over::Time | Over::Done => return None,
        Over::Interrupted => "interrupted",
        Over::Stopped => "stopped by a command",
        Over::AgentLost if report.agents.is_empty() => "a process of clients died",
        Over::AgentLost => "an agent was lost",
        Over::Refused => "each handshake failed for the same reason",
        Over::NoneLeft if report.connections.established == 0 => "no connect succeeded",
        Over::NoneLeft if plan.has_interval() => "no connection was left, and none is replaced (--reconnect)",
        Over::NoneLeft => "no connection was left, and none is replaced",
    };
    let of = match plan.end {
        End::AfterFirstConnect(time) => format!(" of {}", time::format(time)),
        End::AfterLastConnect(time) => format!("; the plan is {} after the last connect", time::format(time)),
        End::AfterStages => format!(" of {}", time::format(plan.stages.iter().map(|stage| stage.time).sum())),
        End::Never => {
            let ended = report.operations.ok + report.operations.failed;
            plan.operations.map_or_else(String::new, |operations| format!(": {ended} of {operations} operations"))
        }
    };
    Some(format!("{why}, after {:.1} s{of}", report.seconds))
}

/// Returns the time that the counted operations took: to the end of the last one, well or not, when there was nothing left to do; else
/// to the end of the run's time, or to the last operation that was under way then and ended well.
pub(super) fn seconds(start: Instant, end: Instant, over: Over, tally: &Tally) -> f64 {
    let end = match over {
        Over::Done | Over::NoneLeft => tally.ended.unwrap_or(end),
        _ => tally.last.map_or(end, |last| last.max(end)),
    };
    end.saturating_duration_since(start).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_runs_to_the_last_operation_that_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seconds = |over, last: Option<u64>, ended: Option<u64>| {
            let tally = Tally { last: last.map(at), ended: ended.map(at), ..Tally::default() };
            seconds(start, at(10), over, &tally).round()
        };
        assert_eq!(seconds(Over::Time, Some(9), Some(9)), 10.0);
        assert_eq!(seconds(Over::Time, Some(12), Some(15)), 12.0);
        assert_eq!(seconds(Over::Time, None, None), 10.0);
        assert_eq!(seconds(Over::Done, Some(9), Some(9)), 9.0);
        assert_eq!(seconds(Over::Done, Some(1), Some(9)), 9.0, "what failed took its time, too");
        assert_eq!(seconds(Over::Done, None, None), 10.0);
    }
}
