//! The steps from the configuration in force to another, of all pools together.

use super::{Reconfigured, Server, State, drain_of};
use crate::change::{REFUSED, Step, Unchanged};
use crate::document::{Document, Places, PoolDocument};
use crate::moves::{self, Move, Wanted};
use crate::pool_settings::in_files;
use crate::setting::{Wrong, from_to};
use crate::tls::{CERTIFICATE, PoolTls};
use sockdrawer::changing::{Change, How};
use sockdrawer::{Config, Pool};
use sockdrawer_catalog::time;
use std::collections::{BTreeMap, BTreeSet};

/// Plan of a change, and what it does to each of the pools.
#[derive(Default)]
pub(super) struct Work {
    pub(super) plan: Vec<Step>,
    pub(super) start: Vec<(String, Config)>,
    pub(super) change: Vec<(String, Pool, Config)>,
    pub(super) end: Vec<(String, Pool)>,
    pub(super) tls: BTreeMap<String, PoolTls>,
    pub(super) moves: Vec<Move>,
    pub(super) places: Places,
}

impl Work {
    fn wanted(&self) -> Vec<Wanted<'_>> {
        let change = self.change.iter().map(|(name, pool, config)| (name, Some(config), Some(pool)));
        let start = self.start.iter().map(|(name, config)| (name, Some(config), None));
        let end = self.end.iter().map(|(name, pool)| (name, None, Some(pool)));
        change.chain(start).chain(end).map(|(name, config, running)| Wanted { name, config, running }).collect()
    }
}

impl Server {
    /// Returns all steps, and what they need.
    pub(super) fn plan(&self, state: &State, wanted: &Document) -> Result<Work, Unchanged> {
        let mut work = Work { places: wanted.places.clone(), ..Work::default() };
        work.plan.extend(state.document.program.changes(&wanted.program).map(|(name, from_to)| {
            let is_its_own = self.known.settings.iter().any(|setting| setting.name == name);
            let (how, detail) = if is_its_own {
                (Step::how(How::InPlace), from_to)
            } else {
                (REFUSED, format!("{from_to}, not while the program runs"))
            };
            Step { pool: None, setting: name.to_owned(), how: how.into(), detail }
        }));
        let mut all_outside = BTreeMap::new();
        for (name, to) in &wanted.pools {
            let wrong = |wrong: Wrong| Unchanged::Wrong(vec![self.named(&wanted.places, name, &wrong)]);
            let tls = match state.pools.get(name).zip(state.document.pools.get(name)) {
                None => {
                    let (config, tls) = self.configure(to).map_err(wrong)?;
                    work.start.push((name.clone(), config));
                    tls
                }
                Some((pool, from)) => {
                    let old = state.tls.get(name);
                    let reconfigured = self.reconfigure((from, to), (pool, old)).map_err(wrong)?;
                    let Reconfigured { config, tls, outside } = reconfigured;
                    all_outside.extend(outside.map(|outside| (name, outside)));
                    work.change.push((name.clone(), pool.clone(), config));
                    tls
                }
            };
            work.tls.extend(tls.map(|tls| (name.clone(), tls)));
        }
        let ends = state.pools.iter().filter(|(name, _)| !wanted.pools.contains_key(*name));
        work.end = ends.map(|(name, pool)| (name.clone(), pool.clone())).collect();
        work.moves = moves::between(&work.wanted());
        let mut steps = Vec::new();
        for (name, pool, config) in &work.change {
            let documents = (&state.document.pools[name], &wanted.pools[name]);
            let config = moves::without(&work.moves, name, config.clone());
            let refused = |error| Unchanged::Refused(self.refused(&work.places, name, &error));
            let changes = pool.plan(&config).map_err(refused)?.changes;
            steps.extend(moves::steps(&work.moves, name));
            steps.extend(self.steps(name, documents, (&changes, all_outside.get(&name).copied())));
        }
        for (name, _) in &work.start {
            let PoolDocument { protocol, values } = &wanted.pools[name];
            steps.push(Step::new(name, "pool", "start", format!("{protocol} at {}", values.list("listen").join(" "))));
            steps.extend(moves::steps(&work.moves, name));
        }
        for (name, pool) in &work.end {
            let within = time::format(drain_of(&state.document, name).deadline);
            let detail = format!("{} connections, drained within {within}", pool.status().connections);
            steps.extend(moves::steps(&work.moves, name));
            steps.push(Step::new(name, "pool", "end", detail));
        }
        work.plan.extend(steps);
        Ok(work)
    }

    /// Returns the steps of a pool that runs, in the words of files: one for each setting.
    fn steps(
        &self,
        name: &str,
        (from, to): (&PoolDocument, &PoolDocument),
        (changes, outside): (&[Change], Option<(&'static str, &'static str)>),
    ) -> Vec<Step> {
        let values = |setting: &str| [from, to].map(|one| one.values.set.get(setting));
        let [old, new] = values("listen");
        let are_same_layers = old == new && outside.is_none_or(|(setting, _)| setting != CERTIFICATE);
        let mut steps = Vec::new();
        for Change { setting, how, detail, .. } in changes {
            let how = Step::how(*how);
            match *setting {
                "behaviour" if outside.is_some() => {
                    steps.extend(outside.map(|(setting, why)| Step::new(name, setting, how, why)))
                }
                "behaviour" => {
                    if from.protocol != to.protocol {
                        steps.push(Step::new(name, "protocol", how, format!("{} to {}", from.protocol, to.protocol)));
                    }
                    let of = [from, to].into_iter().filter_map(|one| self.known.protocol(one.protocol));
                    for differs in of.flat_map(|protocol| protocol.differing(&from.values, &to.values)) {
                        let [from, to] = values(differs);
                        steps.push(Step::new(name, differs, how, from_to(from, to)));
                    }
                }
                // They are made anew with the protocol, and are what they were.
                "listeners.layers" if are_same_layers => {}
                other => {
                    let setting = in_files(other).unwrap_or(other);
                    let [from, to] = values(setting);
                    let in_words = if from == to || setting == "listen" { detail.clone() } else { from_to(from, to) };
                    steps.push(Step::new(name, setting, how, in_words));
                }
            }
        }
        // Settings that are no part of the pool's own configuration.
        let of_drains = |(setting, _): &(&str, String)| ["drain", "drain-rate", "notice"].contains(setting);
        let changed = from.values.changes(&to.values).filter(of_drains);
        steps.extend(changed.map(|(setting, detail)| Step::new(name, setting, "in place", detail)));
        // A protocol may look at a setting of the pool.
        let mut told = BTreeSet::new();
        steps.retain(|step| step.setting == "listen" || told.insert(step.setting.clone()));
        steps
    }

    /// Asks the system for what a change needs, and changes nothing.
    pub(super) fn rehearse(&self, state: &State, work: &Work) -> Result<(), Unchanged> {
        let changed = work.change.iter().map(|(name, pool, config)| (name, Some(pool), config));
        for (name, running, config) in changed.chain(work.start.iter().map(|(name, config)| (name, None, config))) {
            let refused = |error| Unchanged::Refused(self.refused(&work.places, name, &error));
            let Some(config) = moves::new_alone(state.pools.values(), running, config) else { continue };
            Pool::rehearse(&config).map_err(refused)?;
        }
        Ok(())
    }
}
