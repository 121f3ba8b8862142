//! State that goes from one build to the next beside connections: the revision, the configurations before it, what was counted, and the keys of
//! session tickets.

use crate::document::{Document, Format};
use crate::failure::Failure;
use crate::metric_family::Numbers;
use crate::operator::Operator;
use crate::revisions::{Cause, Kept, Revision, Revisions};
use crate::totals::Carried;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sockdrawer::Upgrade;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The name by which both builds know it.
const NAME: &str = "operate";
/// The keys of session tickets, which are secret, go apart from it: as bytes that are wiped after use.
const TICKETS: &str = "operate tls tickets";
/// The form of the bytes: another one is not read.
const VERSION: u32 = 2;
/// Revisions that are carried have at most so many bytes, and so have their configurations: the oldest are left out.
const MAX_BYTES: usize = 16 * 1024 * 1024;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Bag {
    version: u32,
    revision: u64,
    /// The configurations before, and the one in force, each with the revision that brought it.
    documents: Vec<(u64, Value)>,
    revisions: Vec<Revision>,
    counted: Carried,
    /// Metrics of the program's own, by the names of their families.
    metrics: BTreeMap<String, Numbers>,
}

/// Has the next build go on where this one stops, and this one where the build before it stopped.
pub(crate) fn over(upgrade: &Upgrade, operator: &Arc<Operator>) -> Result<(), Failure> {
    // The upgrade belongs to the operator.
    let (from, to) = (Arc::downgrade(operator), Arc::downgrade(operator));
    upgrade.carry(NAME, move || write(&from), move |bytes| read(&to, bytes))?;
    let (from, to) = (operator.server.tickets.clone(), operator.server.tickets.clone());
    // Other bytes than those are of another build: clients of that one shake hands in full.
    upgrade.carry(TICKETS, move || from.export().to_vec(), move |bytes| _ = to.go_on(bytes)).map_err(Failure::from)
}

fn write(operator: &Weak<Operator>) -> Vec<u8> {
    let Some(operator) = operator.upgrade() else { return Vec::new() };
    let counted = operator.ledger.write(&operator.server);
    let state = operator.server.state();
    let Revisions { list, kept, brought_by } = state.revisions;
    let current = Kept { revision: brought_by, document: state.document };
    let documents = kept.iter().chain([&current]).map(|kept| (kept.revision, json!(*kept.document)));
    let (documents, revisions) = (newest(documents), newest(list.iter().map(|revision| Revision::clone(revision))));
    let metrics = operator.server.known.metrics.iter().map(|family| (family.name().to_owned(), family.counted())).collect();
    let bag = Bag { version: VERSION, revision: state.revision, documents, revisions, counted, metrics };
    serde_json::to_vec(&bag).unwrap_or_default()
}

/// Keeps as many of the last ones as may be carried.
fn newest<T: Serialize>(all: impl DoubleEndedIterator<Item = T>) -> Vec<T> {
    let mut left = MAX_BYTES;
    let fits = |one: &T| {
        let fits = left.checked_sub(serde_json::to_vec(one).map_or(MAX_BYTES, |bytes| bytes.len()));
        left = fits.unwrap_or(0);
        fits.is_some()
    };
    let mut newest: Vec<T> = all.rev().take_while(fits).collect();
    newest.reverse();
    newest
}

/// Takes over what the build before has sent. What this build does not understand is left out: it goes on without.
fn read(operator: &Weak<Operator>, bytes: &[u8]) {
    let (Some(operator), Ok(bag)) = (operator.upgrade(), serde_json::from_slice::<Bag>(bytes)) else { return };
    if bag.version != VERSION {
        return;
    }
    let Bag { revision, documents, revisions, counted, mut metrics, .. } = bag;
    let server = &operator.server;
    let current = server.state().document;
    // Neither process accepts meanwhile: what a configuration is together is checked where a rollback asks for it.
    let parse = |(revision, document): &(u64, Value)| {
        let document = Document::of_values(&document.to_string(), Format::Json, &server.known).ok()?;
        // Settings of the whole program are not changed while it runs, by a rollback either.
        let document = Arc::new(Document { program: current.program.clone(), ..document });
        Some(Kept { revision: *revision, document })
    };
    let before = Revisions {
        list: revisions.into_iter().map(Arc::new).collect(),
        kept: documents.iter().filter_map(parse).collect(),
        brought_by: revision,
    };
    let totals = counted.totals();
    let by = match operator.version() {
        "" => format!("pid {}", std::process::id()),
        version => format!("pid {}, version {version}", std::process::id()),
    };
    let cause = Cause { what: "upgrade", by: &by };
    server.go_on(revision + 1, before, cause, (totals.changes, totals.failed_changes));
    server.hub.lost.store(totals.events_lost, Ordering::Relaxed);
    if let Some(log) = server.hub.log() {
        log.go_on(totals.lines_dropped, totals.lines_suppressed);
    }
    operator.ledger.read(counted);
    for family in &server.known.metrics {
        family.go_on(metrics.remove(family.name()).unwrap_or_default());
    }
}
