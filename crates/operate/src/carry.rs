//! What goes from one build to the next beside connections: the revision, the configurations before it, what was counted, and the keys of
//! session tickets.

use crate::document::{Document, Format};
use crate::failure::Failure;
use crate::operator::Operator;
use crate::totals::Carried;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sockdrawer::Upgrade;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The name by which both builds know it.
const NAME: &str = "operate";
/// The keys of session tickets, which are secret, go apart from it: as bytes that are wiped after use.
const TICKETS: &str = "operate tls tickets";
/// The form of the bytes: another one is not read.
const VERSION: u32 = 1;
/// Configurations that are carried have at most so many bytes: the oldest are left out.
const MAX_BYTES: usize = 16 * 1024 * 1024;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Bag {
    version: u32,
    revision: u64,
    /// The configurations before, and the one in force.
    documents: Vec<Value>,
    counted: Carried,
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
    let mut left = MAX_BYTES;
    let all = state.history.iter().chain([&state.document]).map(|document| json!(**document));
    let fits = |document: &Value| {
        let fits = left.checked_sub(document.to_string().len());
        left = fits.unwrap_or(0);
        fits.is_some()
    };
    let mut documents: Vec<Value> = all.rev().take_while(fits).collect();
    documents.reverse();
    serde_json::to_vec(&Bag { version: VERSION, revision: state.revision, documents, counted }).unwrap_or_default()
}

/// What this build does not understand is left out: it goes on without.
fn read(operator: &Weak<Operator>, bytes: &[u8]) {
    let (Some(operator), Ok(bag)) = (operator.upgrade(), serde_json::from_slice::<Bag>(bytes)) else { return };
    if bag.version != VERSION {
        return;
    }
    let Bag { revision, documents, counted, .. } = bag;
    let server = &operator.server;
    let current = server.state().document;
    let parse = |document: &Value| {
        let document = operator.parse(&document.to_string(), Format::Json).ok()?;
        // What concerns the whole program is not changed while it runs, by a rollback either.
        Some(Arc::new(Document { program: current.program.clone(), ..document }))
    };
    let mut history: Vec<Arc<Document>> = documents.iter().filter_map(parse).collect();
    // A rollback goes back to another configuration.
    history.pop_if(|last| *last == current);
    let totals = counted.totals();
    server.go_on(revision + 1, history, (totals.changes, totals.failed_changes));
    server.hub.lost.store(totals.events_lost, Ordering::Relaxed);
    if let Some(log) = server.hub.log() {
        log.go_on(totals.lines_dropped, totals.lines_suppressed);
    }
    operator.ledger.read(counted);
}
