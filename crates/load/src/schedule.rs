//! Number of connections that there are to be at each moment: a plan's stages, as they come and as people change them.

use crate::agent::Aim;
use crate::numbers::float;
use crate::plan::{Plan, Stage};
use std::time::Duration;

/// Time between two steps in which the number of connections that are replaced all the time follows the slope of a stage.
const STEP: Duration = Duration::from_millis(200);

/// Place of a run in its stages. Times are since its first connect.
#[derive(Debug)]
pub(crate) struct StageClock {
    stages: Vec<Stage>,
    /// Number of the stage after the one under way.
    next: usize,
    /// The stage under way: its connections at its begin and at its end, since when and until when.
    from: usize,
    to: usize,
    began: Duration,
    /// Moment at which the stage under way ends; None: none is under way.
    ends: Option<Duration>,
    /// Connects per second where no stage has a rate.
    rate: Option<f64>,
    /// Connections are replaced all the time: a rate of connects would be that of their operations, so their number goes up and down in
    /// steps, the last of which was at this moment. Others are made, and ended, at the rate of the slope.
    stepped: Option<Duration>,
}

impl StageClock {
    pub(crate) fn new(plan: &Plan) -> StageClock {
        let (from, to) = if plan.stages.is_empty() { (plan.connections, plan.connections) } else { (0, 0) };
        let (stages, rate) = (plan.stages.clone(), plan.connect_rate);
        let stepped = plan.renews().then_some(Duration::ZERO);
        let mut schedule = StageClock { stages, next: 0, from, to, began: Duration::ZERO, ends: None, rate, stepped };
        schedule.enter(Duration::ZERO);
        schedule
    }

    /// Begins the next stage, if there is one.
    fn enter(&mut self, at: Duration) {
        self.from = self.target(at);
        self.began = at;
        self.stepped = self.stepped.and(Some(at));
        self.ends = None;
        if let Some(Stage { time, connections }) = self.stages.get(self.next) {
            self.to = *connections;
            self.ends = Some(at + *time);
            self.next += 1;
        } else {
            self.to = self.from;
        }
    }

    /// Returns the aim until the next change.
    pub(crate) fn aim(&self) -> Aim {
        if let Some(at) = self.stepped {
            // There are none before the first stage, and a pool that has none makes none.
            let least = usize::from(self.to > self.from);
            return Aim { connections: self.target(at + STEP).max(least), rate: self.rate };
        }
        let time = self.ends.map_or(Duration::ZERO, |ends| ends - self.began).as_secs_f64();
        let rate = match self.from.abs_diff(self.to) {
            0 => self.rate,
            _ if time == 0.0 => self.rate,
            way => Some(float(way as u64) / time),
        };
        Aim { connections: self.to, rate }
    }

    /// Goes on to the stage that is due. Returns true where there is something else to aim for.
    pub(crate) fn step(&mut self, at: Duration) -> bool {
        let mut changed = false;
        while let Some(ends) = self.ends.filter(|ends| *ends <= at) {
            self.enter(ends);
            changed = true;
        }
        if self.is_ramping() && self.stepped.is_some_and(|before| at >= before + STEP) {
            self.stepped = Some(at);
            changed = true;
        }
        changed
    }

    /// Skips the rest of the stage under way.
    pub(crate) fn skip(&mut self, at: Duration) {
        self.enter(at);
    }

    /// Sets the number of connections from now on, until the next stage begins.
    pub(crate) fn set(&mut self, connections: usize) {
        (self.from, self.to) = (connections, connections);
    }

    /// Shifts the stage under way by this time.
    pub(crate) fn shift(&mut self, by: Duration) {
        self.began += by;
        self.ends = self.ends.map(|ends| ends + by);
    }

    /// Returns the number of connections that there are to be at this moment.
    pub(crate) fn target(&self, at: Duration) -> usize {
        let Some(ends) = self.ends.filter(|ends| at < *ends && *ends > self.began) else { return self.to };
        let part = at.saturating_sub(self.began).as_secs_f64() / (ends - self.began).as_secs_f64();
        let way = whole(part * float(self.from.abs_diff(self.to) as u64));
        if self.to >= self.from { self.from + way } else { self.from - way }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ends.is_none()
    }

    /// Returns true where the stage under way makes connections more or fewer.
    pub(crate) fn is_ramping(&self) -> bool {
        self.ends.is_some() && self.from != self.to
    }

    /// Returns when the last stage ends; once it has, that was always so.
    pub(crate) fn ends_all(&self) -> Duration {
        let left = self.stages.iter().skip(self.next).map(|stage| stage.time).sum::<Duration>();
        self.ends.map_or(Duration::ZERO, |ends| ends + left)
    }

    /// Returns when the stage under way ends.
    pub(crate) fn ends(&self) -> Option<Duration> {
        self.ends
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of what was a usize")]
fn whole(count: f64) -> usize {
    count.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Hello, Workload};

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn schedule(stages: &[(u64, usize)]) -> StageClock {
        let stages = stages.iter().map(|(time, connections)| Stage { time: at(*time), connections: *connections }).collect();
        let ping = Workload::ping(Duration::from_secs(1));
        StageClock::new(&Plan { stages, connections: 100, connect_rate: Some(7.0), ..Plan::new(ping) })
    }

    #[test]
    fn the_number_of_short_connections_follows_a_slope_in_steps() {
        let stages = [(10, 100), (5, 0)].map(|(time, connections)| Stage { time: at(time), connections }).to_vec();
        let mut schedule = StageClock::new(&Plan { stages, connections: 100, ..Plan::new(Workload::Hello(Hello)) });
        let ms = Duration::from_millis;
        let aim = |connections| Aim { connections, rate: None };
        assert_eq!(schedule.aim(), aim(2), "that of the end of the step");
        assert!(!schedule.step(ms(199)) && schedule.step(ms(1_000)));
        assert_eq!(schedule.aim(), aim(12));
        assert!(!schedule.step(ms(1_100)) && schedule.step(at(10)));
        assert_eq!(schedule.aim(), aim(96), "down again");
        assert!(schedule.step(at(15)) && !schedule.step(at(16)));
        assert_eq!((schedule.aim(), schedule.is_over()), (aim(0), true));
    }

    #[test]
    fn a_slow_slope_begins_with_one() {
        let stages = vec![Stage { time: at(60), connections: 1 }];
        let schedule = StageClock::new(&Plan { stages, connections: 1, ..Plan::new(Workload::Hello(Hello)) });
        assert_eq!(schedule.aim().connections, 1);
    }

    #[test]
    fn without_stages_all_are_wanted_from_the_first_moment() {
        let mut schedule = schedule(&[]);
        assert_eq!((schedule.aim(), schedule.is_over()), (Aim { connections: 100, rate: Some(7.0) }, true));
        assert!(!schedule.step(at(100)));
        schedule.set(20);
        assert_eq!((schedule.aim(), schedule.target(at(3))), (Aim { connections: 20, rate: Some(7.0) }, 20));
    }

    #[test]
    fn stages_are_ramps_one_after_the_other() {
        let mut schedule = schedule(&[(10, 100), (5, 100), (20, 0)]);
        assert_eq!(schedule.aim(), Aim { connections: 100, rate: Some(10.0) });
        assert_eq!([0, 5, 9].map(|second| schedule.target(at(second))), [0, 50, 90]);
        assert!(!schedule.step(at(9)) && schedule.step(at(10)));
        assert_eq!((schedule.aim(), schedule.target(at(12))), (Aim { connections: 100, rate: Some(7.0) }, 100));
        assert_eq!((schedule.is_ramping(), schedule.ends_all()), (false, at(35)));
        assert!(schedule.step(at(16)), "a second late, the next ends when it would have");
        assert_eq!((schedule.aim(), schedule.ends()), (Aim { connections: 0, rate: Some(5.0) }, Some(at(35))));
        assert_eq!((schedule.target(at(25)), schedule.is_ramping()), (50, true));
        assert!(!schedule.is_over() && schedule.step(at(35)) && schedule.is_over());
        assert!(!schedule.is_ramping() && schedule.ends_all() <= at(35));
        assert_eq!(schedule.target(at(99)), 0);
    }

    #[test]
    fn a_stage_may_take_no_time() {
        let mut schedule = schedule(&[(0, 50), (10, 150)]);
        assert_eq!(schedule.aim(), Aim { connections: 50, rate: Some(7.0) });
        assert!(schedule.step(at(0)));
        assert_eq!(schedule.aim(), Aim { connections: 150, rate: Some(10.0) });
    }

    #[test]
    fn people_may_skip_a_stage_or_change_it() {
        let mut schedule = schedule(&[(10, 100), (10, 10)]);
        schedule.skip(at(5));
        assert_eq!((schedule.aim(), schedule.ends()), (Aim { connections: 10, rate: Some(4.0) }, Some(at(15))));
        schedule.set(70);
        assert_eq!((schedule.target(at(6)), schedule.aim()), (70, Aim { connections: 70, rate: Some(7.0) }));
        schedule.skip(at(7));
        assert_eq!((schedule.is_over(), schedule.target(at(8))), (true, 70));
    }

    #[test]
    fn a_pause_is_no_part_of_a_stage() {
        let mut schedule = schedule(&[(10, 100), (10, 0)]);
        schedule.shift(at(30));
        assert_eq!((schedule.target(at(35)), schedule.ends(), schedule.aim().rate), (50, Some(at(40)), Some(10.0)));
        assert!(!schedule.step(at(39)) && schedule.step(at(40)));
        assert_eq!(schedule.ends(), Some(at(50)));
    }
}
