//! Orders that a run obeys while it goes on: of its stages, of people, and of those that search.

use super::{Run, SECOND};
use crate::agent::{Agents, Word};
use crate::orders::Order;
use crate::report::Action;
use sockdrawer::Error;
use std::time::Duration;

impl Run<'_> {
    /// Goes on to the stage that is due, and does as it was told. Returns true where the run is over.
    pub(super) fn obey(&mut self) -> Result<bool, Error> {
        let orders = self.orders.take();
        // In this order: a stop of this process comes before the order to go on.
        let now = self.look_at_clock();
        let mut changed = self.suspended.is_none() && self.schedule.step(now);
        for (agent, order) in orders {
            if let Some(name) = agent {
                changed |= self.obey_agent(&name, order, now);
                continue;
            }
            let target = self.schedule.target(self.suspended.unwrap_or(now));
            let mut what = order.to_string();
            let wanted = match order {
                Order::More(count) => Some(target.saturating_add(count)),
                Order::Fewer(count) => Some(target.saturating_sub(count)),
                Order::Connections(count) => Some(count),
                _ => None,
            };
            if let Some(wanted) = wanted {
                self.schedule.set(wanted);
            }
            match order {
                Order::NextStage => self.schedule.skip(now),
                Order::Interval(interval) => {
                    self.agents.tell(Word::Interval(interval));
                    self.due.set_interval(interval);
                }
                Order::Suspend => {
                    self.suspended.get_or_insert(now);
                    self.agents.tell(Word::Suspend);
                }
                Order::Resume => {
                    let since = self.suspended.take().unwrap_or(now);
                    self.schedule.shift(now.saturating_sub(since));
                    self.agents.tell(Word::Resume);
                }
                // The signal may be told a moment after the look that found the gap.
                Order::Continued if now.saturating_sub(self.gap.0) < SECOND && !self.gap.1.is_zero() => {
                    what += &format!(" for {:.1} s", std::mem::take(&mut self.gap).1.as_secs_f64());
                }
                Order::Continued => continue,
                _ => {}
            }
            self.actions.push(Action { at: now.as_secs_f64(), what });
            if order == Order::Stop {
                return Ok(true);
            }
            changed |= wanted.is_some() || order == Order::NextStage;
        }
        if changed {
            self.aim()?;
        }
        Ok(false)
    }

    /// Does as it was told for one agent. Returns true where there is something else to aim for.
    fn obey_agent(&mut self, name: &str, order: Order, now: Duration) -> bool {
        self.actions.push(Action { at: now.as_secs_f64(), what: format!("agent {name}: {order}") });
        let Agents::Hosts(hosts) = &mut self.agents else { return false };
        let word = match order {
            Order::Interval(interval) => Word::Interval(interval),
            Order::Suspend => Word::Suspend,
            Order::Resume => Word::Resume,
            order => {
                let target = self.schedule.target(self.suspended.unwrap_or(now));
                self.schedule.set(hosts.change(name, order, target));
                return true;
            }
        };
        hosts.tell(name, word);
        false
    }

    /// Tells all agents how many connections there are to be.
    pub(super) fn aim(&mut self) -> Result<(), Error> {
        let aim = self.schedule.aim();
        let before = std::mem::replace(&mut self.aimed, aim.connections as u64);
        self.wanted += self.aimed.saturating_sub(before);
        self.due.change();
        self.agents.aim(aim)
    }
}
