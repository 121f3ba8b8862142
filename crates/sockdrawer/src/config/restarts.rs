//! The default restart policy: a maximum of restarts within a time.

use super::restart_policy::{Death, Replace, RestartPolicy};
use std::time::Duration;

/// The default restart policy: each part is replaced at once, up to a maximum of restarts within a time. At the next death the pool stops
/// accepting, drains and stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Restarts {
    /// Maximum of restarts within the time. Default: 10.
    pub max: usize,
    /// The time in which restarts are counted. Default: 10 s.
    pub within: Duration,
}

/// 10 within 10 s.
impl Default for Restarts {
    fn default() -> Restarts {
        Restarts { max: 10, within: Duration::from_secs(10) }
    }
}

impl RestartPolicy for Restarts {
    fn decide(&self, death: &Death<'_>) -> Replace {
        let recent = death.restarts.iter().filter(|at| death.at.duration_since(**at) < self.within).count();
        if recent >= self.max { Replace::GiveUp } else { Replace::Now }
    }

    fn data(&self) -> Option<Restarts> {
        Some(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Part;
    use std::time::Instant;

    #[test]
    fn only_restarts_within_the_time_count() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let policy = Restarts { max: 2, within: Duration::from_secs(10) };
        let decide = |second, restarts: &[u64]| {
            let restarts: Vec<Instant> = restarts.iter().map(|second| at(*second)).collect();
            policy.decide(&Death { part: Part::Loop, index: Some(0), reason: "a bug", at: at(second), restarts: &restarts })
        };
        assert_eq!((decide(20, &[]), decide(20, &[19])), (Replace::Now, Replace::Now));
        assert_eq!((decide(20, &[11, 19]), decide(20, &[10, 19])), (Replace::GiveUp, Replace::Now));
        let never = Restarts { max: 0, within: Duration::MAX };
        assert_eq!(never.decide(&Death { part: Part::Loop, index: None, reason: "", at: start, restarts: &[] }), Replace::GiveUp);
    }
}
