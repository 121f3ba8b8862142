//! Checks that protocols make of what their pools connect to: where one has found something else, its pool begins a new generation.

use crate::certificates;
use crate::failure::Failure;
use crate::operator::{Operator, spawn, wait_for_takeover};
use crate::protocol::Checked;
use crate::revisions::{CHECKS, Cause};
use sockdrawer::Behaviour;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Time between two looks whether a check is due.
const TICK: Duration = Duration::from_millis(100);
/// A pool without a check is asked again after this: a reload may give it one.
const NONE: Checked = Checked { again: Duration::from_secs(1), news: None };
/// A check that has not ended after so long is made again: it may have panicked.
const AT_MOST: Duration = Duration::from_secs(60);

/// Has checks made for as long as the program runs, if a protocol has some.
pub(crate) fn begin(operator: &Arc<Operator>) -> Result<(), Failure> {
    if !operator.server.known.protocols.iter().any(|protocol| protocol.checks.is_some()) {
        return Ok(());
    }
    let operator = Arc::downgrade(operator);
    spawn("checks", move || follow(&operator))
}

/// Makes the checks that are due. A check may take long: each has a thread of its own, so that none is late for another.
fn follow(operator: &Weak<Operator>) {
    wait_for_takeover(operator);
    let (tells, results): (_, Receiver<(String, Checked)>) = channel();
    let mut due: HashMap<String, Instant> = HashMap::new();
    loop {
        let result = results.recv_timeout(TICK);
        let Some(now) = operator.upgrade() else { return };
        let is_main = now.server.hub.manager.is_main();
        if let Ok((name, Checked { again, news })) = result {
            if let Some(news) = news.filter(|_| is_main) {
                now.server.hub.checked(&name, &news);
                certificates::look(&now, Cause { what: CHECKS, by: "its pools" });
            }
            due.insert(name, Instant::now() + again);
        }
        if !is_main {
            // The pools are the new build's to check.
            continue;
        }
        let state = now.server.state();
        due.retain(|name, _| state.document.pools.contains_key(name));
        for (name, pool) in &state.document.pools {
            let checks = now.server.known.protocol(pool.protocol).and_then(|protocol| protocol.checks.clone());
            let Some(checks) = checks.filter(|_| due.get(name).is_none_or(|due| *due <= Instant::now())) else { continue };
            due.insert(name.clone(), Instant::now() + AT_MOST);
            let client = state.tls.get(name).and_then(|tls| tls.client.clone());
            let (name, values, tells) = (name.clone(), pool.values.clone(), tells.clone());
            let check = move || {
                let layered = |behaviour: Behaviour| match &client {
                    Some(client) => behaviour.layered(client.clone()),
                    None => behaviour,
                };
                let checked = checks(&values, &layered).unwrap_or(NONE);
                // The program has ended meanwhile, if nothing takes it.
                let _ = tells.send((name, checked));
            };
            // A thread that cannot be had now is asked for again.
            let _ = spawn("check", check);
        }
    }
}
