//! Certificates that are renewed while the program runs, and names that have other addresses: a new generation of their pools.

use crate::failure::Failure;
use crate::listen::sets;
use crate::operator::{Operator, spawn, wait_for_takeover};
use crate::revisions::Cause;
use crate::tls::{PoolTls, content};
use crate::watched::Watched;
use std::sync::{Arc, Weak};

/// Changes pools when their files, or what their protocols find elsewhere, have changed, for as long as the program runs.
pub(crate) fn watch(operator: &Arc<Operator>) -> Result<(), Failure> {
    let (watched, operator) = (operator.server.watched.clone(), Arc::downgrade(operator));
    spawn("certificates", move || follow(&watched, &operator))
}

fn follow(watched: &Watched, operator: &Weak<Operator>) {
    wait_for_takeover(operator);
    loop {
        let Some(now) = operator.upgrade() else { return };
        let state = now.server.state();
        // The pools of a process that was replaced are the new build's to change.
        if !state.tls.is_empty() && now.server.hub.manager.is_main() {
            // A link may lead elsewhere by now. What changes from here on is told, what changed before is seen.
            watched.add(&state.document);
            let differs = |(name, tls): (&String, &PoolTls)| {
                state.document.pools.get(name).is_some_and(|pool| {
                    let protocol = now.server.known.protocol(pool.protocol);
                    let found = || protocol.and_then(|protocol| protocol.look(&pool.values));
                    tls.content != content(&sets(&pool.values))
                        || tls.found.is_some_and(|old| found().is_some_and(|new| new != old))
                })
            };
            if state.refused_files.is_some() || state.tls.iter().any(differs) {
                look(&now, Cause { what: "certificates", by: "its files" });
            }
        }
        drop((now, state));
        watched.wait();
    }
}

/// Changes the pools whose files have another content, or whose protocols find something else. A failure is told once, not at each look, and so is its
/// end.
pub(crate) fn look(operator: &Operator, cause: Cause<'_>) {
    let server = &operator.server;
    let before = server.state().refused_files;
    let result = server.change(|state| Ok((*state.document).clone()), None, false, cause);
    let refused = result.as_ref().err().map(ToString::to_string);
    server.note_refused_files(refused.clone());
    let is_news = match &result {
        Ok(changed) => changed.committed || before.is_some(),
        Err(_) => before != refused,
    };
    if is_news {
        operator.told(cause, &result);
    }
}
