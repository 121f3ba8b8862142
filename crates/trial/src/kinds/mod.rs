//! A trial by kinds of change: server and clients are in one process, every kind of change is applied to the server again and again, and
//! all losses that a client could see are counted: connects, kept connections, bytes. A server that loses none is good.
//!
//! This module prints nothing. Clients are pools that connect; the trial knows their connections by their source addresses.

mod absent;
mod admission;
mod beside;
mod certificate;
mod change;
mod ending;
mod full;
mod kept;
mod kernel;
mod kind;
mod ledger;
mod limit;
mod options;
mod place;
mod probe;
mod quiet;
mod report;
mod requests;
mod sabotage;
mod scene;
mod schedule;
mod served;
mod table;
mod targets;
mod verdict;

#[cfg(test)]
mod tests;

pub use kind::{Kind, Way};
pub use options::{NotLoopback, Options, Sabotage, loopback};
pub use quiet::Undisturbed;
pub use report::{Books, Latency, Report, Row};
pub use served::RECIPES;
pub use table::Table;

use crate::{Group, Progress, Stopped, Until};
use change::Changer;
use quiet::Quiet;
use scene::Scene;
use schedule::Schedule;
use sockdrawer::Error;
use std::time::{Duration, Instant};

/// A trial whose server and clients run.
pub struct Trial<'a> {
    options: &'a Options,
    scene: Scene,
}

impl<'a> Trial<'a> {
    /// Starts the server and its clients.
    ///
    /// # Errors
    /// When the server or the clients cannot be started.
    pub fn start(options: &'a Options) -> Result<Trial<'a>, Error> {
        Ok(Trial { options, scene: Scene::start(options)? })
    }

    /// Applies changes until the end. `progress` is called after each, on this thread; `stop` ends the trial after the current change.
    /// Failures are part of the report.
    pub fn finish(self, stop: Stopped<'_>, progress: impl FnMut(&Progress)) -> Report {
        finish(self.options, self.scene, stop, progress)
    }
}

fn finish(options: &Options, scene: Scene, stop: Stopped<'_>, mut progress: impl FnMut(&Progress)) -> Report {
    let mut changer = Changer::new(&scene);
    let mut unseen: Vec<(Kind, String)> = Vec::new();
    let mut note = |kind: Kind, seen: Result<(), String>| {
        if let Err(why) = seen
            && unseen.iter().all(|(other, _)| *other != kind)
        {
            unseen.push((kind, why));
        }
    };
    let (begun, mut quiet) = (Instant::now(), Quiet::new(options.until));
    let mut changes = 0;
    for planned in Schedule::new(options.seed, &scene.absent) {
        let ended = match options.until {
            Until::Changes(most) => changes >= most,
            Until::Passed(time) => begun.elapsed() >= time,
        };
        if ended || stop(Duration::ZERO) {
            break;
        }
        quiet.when_due(&scene.tally);
        note(planned.kind, changer.apply(planned));
        changer.await_load();
        changes += 1;
        if let Some(sabotage) = options.sabotage.filter(|_| changes % sabotage::EVERY == 0) {
            note(Kind::Sabotage, changer.sabotage(sabotage));
            changer.await_load();
        }
        progress(&Progress { elapsed: begun.elapsed(), changes, seen: scene.tally.total() });
    }
    quiet.measure(&scene.tally);
    let (elapsed, undisturbed) = (begun.elapsed().saturating_sub(quiet.measured.elapsed), quiet.measured);
    changer.close_row();
    let Changer { took, reloads, asked, at_drains, mut seen, .. } = changer;
    let (tally, absent) = (scene.tally.clone(), scene.absent.clone());
    let books = scene.stop();
    seen[tally.change()] = seen[tally.change()].plus(&tally.next());
    let row = |kind: Kind| {
        let took = &took[kind.index()];
        let (times, apply) = (took.len() as u64, Latency::of(took));
        Row { kind, times, apply, seen: seen[kind.index()], asked: asked[kind.index()] }
    };
    Report {
        model: options.model,
        absent,
        seed: options.seed,
        until: options.until,
        interrupted: stop(Duration::ZERO),
        elapsed,
        undisturbed,
        changes,
        rows: Kind::ALL.map(row).to_vec(),
        reload: Latency::of(&reloads),
        echoes: tally.exchanges(Group::Kept) + tally.exchanges(Group::Second),
        answers: tally.exchanges(Group::Requests),
        at_drains,
        failures: tally.failures(),
        unseen,
        books,
    }
}
