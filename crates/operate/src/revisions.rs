//! The revisions of a configuration: when each came into force, by whom, and what it changed; and the configurations that a rollback goes back to.

use crate::change::{Step, Unchanged};
use crate::document::{Document, PoolDocument};
use crate::setting::Values;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Revisions that are listed, and configurations that are kept for a rollback.
pub(crate) const MAX_REVISIONS: usize = 32;

/// The cause of changes that findings of checks are.
pub(crate) const CHECKS: &str = "checks";

/// The cause of a change: what asks for it, and who.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cause<'a> {
    pub(crate) what: &'a str,
    pub(crate) by: &'a str,
}

/// A change that came into force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Revision {
    pub(crate) revision: u64,
    /// Moment of the revision, in seconds since 1970.
    pub(crate) at: f64,
    pub(crate) what: String,
    pub(crate) by: String,
    /// The revision whose configuration is in force again.
    pub(crate) back_to: Option<u64>,
    pub(crate) plan: Vec<Step>,
}

/// A configuration, and the revision that brought it first.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) revision: u64,
    pub(crate) document: Arc<Document>,
}

/// All that is known of revisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revisions {
    /// The oldest first.
    pub(crate) list: VecDeque<Arc<Revision>>,
    /// Configurations before the one in force, the last one last.
    pub(crate) kept: Vec<Kept>,
    /// The revision that brought the configuration in force first.
    pub(crate) brought_by: u64,
}

impl Revisions {
    pub(crate) fn begin(cause: Cause<'_>) -> Revisions {
        let mut revisions = Revisions { brought_by: 1, ..Revisions::default() };
        revisions.add(1, cause, None, Vec::new());
        revisions
    }

    fn add(&mut self, revision: u64, Cause { what, by }: Cause<'_>, back_to: Option<u64>, plan: Vec<Step>) {
        let at = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
        self.list.push_back(Arc::new(Revision { revision, at, what: what.to_owned(), by: by.to_owned(), back_to, plan }));
        let excess = self.list.len().saturating_sub(MAX_REVISIONS);
        self.list.drain(..excess);
    }

    /// Notes that other files are in force: the configuration is the same. Of findings of checks in a row the last stands: a target that comes and goes
    /// would push all else out of the list.
    pub(crate) fn other_files(&mut self, revision: u64, cause: Cause<'_>, plan: Vec<Step>) {
        if cause.what == CHECKS && self.list.back().is_some_and(|last| last.what == CHECKS && last.revision == revision) {
            self.list.pop_back();
        }
        self.add(revision, cause, None, plan);
    }

    /// Notes a new configuration, and keeps the one before it.
    pub(crate) fn changed(&mut self, revision: u64, cause: Cause<'_>, plan: Vec<Step>, before: Arc<Document>) {
        self.kept.push(Kept { revision: self.brought_by, document: before });
        let excess = self.kept.len().saturating_sub(MAX_REVISIONS);
        self.kept.drain(..excess);
        self.brought_by = revision;
        self.add(revision, cause, None, plan);
    }

    /// Notes that the configuration that was kept last is in force again.
    pub(crate) fn went_back(&mut self, revision: u64, cause: Cause<'_>, plan: Vec<Step>) {
        self.brought_by = self.kept.pop().map_or(self.brought_by, |kept| kept.revision);
        self.add(revision, cause, Some(self.brought_by), plan);
    }

    /// Returns the configuration that a rollback goes back to. `revision` is the one in force.
    pub(crate) fn before(&self, revision: u64) -> Result<&Kept, Unchanged> {
        self.kept.last().ok_or_else(|| {
            let why = match self.brought_by {
                1 => format!("revision {revision} has the configuration of the start: there is none before it"),
                first => format!(
                    "revision {revision} has the configuration of revision {first}, and none before that is kept (the last {MAX_REVISIONS} are)"
                ),
            };
            Unchanged::Refused(format!("{why}; see ctl revisions, and change it by ctl apply"))
        })
    }

    /// Goes on where the process before this one stopped: a new build, and maybe another configuration, is the next revision.
    pub(crate) fn go_on(mut self, revision: u64, cause: Cause<'_>, current: &Document) -> Revisions {
        match self.kept.pop() {
            // A rollback goes back to another configuration.
            Some(last) if *last.document == *current => {
                self.brought_by = last.revision;
                self.add(revision, cause, None, Vec::new());
            }
            Some(Kept { revision: first, document }) => {
                self.brought_by = first;
                let plan = differing(&document, current);
                self.changed(revision, cause, plan, document);
            }
            None => {
                self.brought_by = revision;
                self.add(revision, cause, None, Vec::new());
            }
        }
        self
    }
}

/// The way in which settings change by an upgrade.
const NEW_BUILD: &str = "new build";

/// Returns the steps from the configuration of one build to that of the next, which began with it.
fn differing(from: &Document, to: &Document) -> Vec<Step> {
    let mut steps: Vec<_> = differing_values(None, &from.program, &to.program).collect();
    let names: BTreeSet<_> = from.pools.keys().chain(to.pools.keys()).collect();
    for name in names {
        match (from.pools.get(name), to.pools.get(name)) {
            (Some(from), Some(to)) => {
                if from.protocol != to.protocol {
                    steps.push(Step::new(name, "protocol", NEW_BUILD, format!("{} to {}", from.protocol, to.protocol)));
                }
                steps.extend(differing_values(Some(name), &from.values, &to.values));
            }
            (None, Some(PoolDocument { protocol, .. })) => steps.push(Step::new(name, "pool", "start", *protocol)),
            (Some(PoolDocument { protocol, .. }), None) => steps.push(Step::new(name, "pool", "end", *protocol)),
            (None, None) => {}
        }
    }
    steps
}

/// Returns the steps from the settings of a pool, or of the whole program, to those in the next build.
fn differing_values(pool: Option<&str>, from: &Values, to: &Values) -> impl Iterator<Item = Step> {
    let step = move |(setting, detail): (&str, String)| Step {
        pool: pool.map(str::to_owned),
        setting: setting.to_owned(),
        how: NEW_BUILD.into(),
        detail,
    };
    from.changes(to).map(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Value;

    const CAUSE: Cause<'_> = Cause { what: "change", by: "a test" };

    /// Makes a configuration with a pool of this limit.
    fn document(limit: u64) -> Arc<Document> {
        let values = Values { set: [("limit", Value::Count(limit))].into(), ..Values::default() };
        let pools = [("web".to_owned(), PoolDocument { protocol: "echo", values })].into();
        Arc::new(Document { pools, ..Document::default() })
    }

    #[test]
    fn as_many_are_kept_as_are_promised_and_the_bottom_is_told_by_its_number() {
        let mut revisions = Revisions::begin(CAUSE);
        let most = MAX_REVISIONS as u64;
        (2..=most + 3).for_each(|revision| revisions.changed(revision, CAUSE, Vec::new(), document(revision - 1)));
        assert_eq!((revisions.list.len(), revisions.kept.len()), (MAX_REVISIONS, MAX_REVISIONS));
        for back in 0..most {
            let to = revisions.before(most + 3 + back).expect("it is kept").revision;
            revisions.went_back(most + 4 + back, CAUSE, Vec::new());
            assert_eq!((to, revisions.list.back().and_then(|last| last.back_to)), (most + 2 - back, Some(most + 2 - back)));
        }
        let why = revisions.before(2 * most + 3).expect_err("no more is kept").to_string();
        assert!(
            why.starts_with("revision 67 has the configuration of revision 3, and none before that is kept (the last 32 are)"),
            "{why}"
        );
    }

    #[test]
    fn a_target_that_comes_and_goes_has_one_line() {
        let mut revisions = Revisions::begin(CAUSE);
        revisions.changed(2, CAUSE, Vec::new(), document(1));
        let checks = Cause { what: CHECKS, by: "its pools" };
        (0..100).for_each(|_| revisions.other_files(2, checks, Vec::new()));
        revisions.other_files(2, Cause { what: "files", by: "a watch" }, Vec::new());
        revisions.other_files(2, checks, Vec::new());
        let list: Vec<(u64, &str)> = revisions.list.iter().map(|one| (one.revision, &*one.what)).collect();
        assert_eq!(list, [(1, "change"), (2, "change"), (2, CHECKS), (2, "files"), (2, CHECKS)]);
    }

    #[test]
    fn a_new_build_goes_on_and_says_what_it_changed() {
        let kept = |revision| Kept { revision, document: document(revision) };
        let before = || Revisions { kept: vec![kept(1), kept(4)], brought_by: 7, ..Revisions::begin(CAUSE) };
        let same = before().go_on(8, CAUSE, &document(4));
        assert_eq!((same.brought_by, same.kept.len(), same.list[1].plan.as_slice()), (4, 1, [].as_slice()));
        let other = before().go_on(8, CAUSE, &document(5));
        assert_eq!((other.brought_by, other.kept.len()), (8, 2));
        assert_eq!(other.list[1].plan, [Step::new("web", "limit", "new build", "4 to 5")]);
        let mut stays = Document::clone(&document(4));
        stays.program.set.insert("stays", Value::Time(std::time::Duration::from_secs(3)));
        let whole = &before().go_on(8, CAUSE, &stays).list[1].plan[0];
        assert_eq!((&whole.pool, &*whole.setting, &*whole.detail), (&None, "stays", "unset to 3s"));
        let lost = Revisions::default().go_on(8, CAUSE, &document(5));
        assert!(lost.before(8).is_err_and(|why| why.to_string().contains("of revision 8, and none before that is kept")));
    }
}
