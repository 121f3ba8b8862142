//! Certificates that are renewed while the program runs: a new generation of their pools.

use crate::change::Unchanged;
use crate::failure::Failure;
use crate::operator::{Operator, spawn};
use crate::watched::Watched;
use std::sync::{Arc, Weak};

/// Changes pools with TLS when their files have changed, for as long as the program runs.
pub(crate) fn watch(operator: &Arc<Operator>) -> Result<(), Failure> {
    let (watched, operator) = (operator.server.watched.clone(), Arc::downgrade(operator));
    spawn("certificates", move || follow(&watched, &operator))
}

fn follow(watched: &Watched, operator: &Weak<Operator>) {
    let mut last_failure = None;
    loop {
        let Some(now) = operator.upgrade() else { return };
        let state = now.server.state();
        if !state.tls.is_empty() {
            // A link may lead elsewhere by now. What changes from here on is told, what changed before is seen.
            watched.add(&state.document);
            look(&now, &mut last_failure);
        }
        drop((now, state));
        watched.wait();
    }
}

/// Changes the pools whose files have another content. A failure is told once, and not each minute.
fn look(operator: &Operator, last_failure: &mut Option<Unchanged>) {
    let result = operator.server.change(|state| Ok((*state.document).clone()), None, false);
    let failure = match &result {
        Ok(changed) if !changed.committed => None,
        Ok(_) => {
            operator.told("its files", "certificates", &result);
            None
        }
        Err(why) => {
            if last_failure.as_ref() != Some(why) {
                operator.told("its files", "certificates", &result);
            }
            Some(why.clone())
        }
    };
    *last_failure = failure;
}
