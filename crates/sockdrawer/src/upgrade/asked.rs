//! Operations that a successor asks for, on the connections that stayed here.

use super::NamedPool;
use super::talk::Talk;
use crate::ipc::messages::Said;
use crate::ipc::operations::{Answered, Asked};
use crate::operation::{Op, Outcome};
use crate::sys::Errno;
use std::sync::Arc;

/// Answers that one successor waits for. Each that is not given yet has a share.
#[derive(Default)]
pub(super) struct Owed(Arc<()>);

impl Owed {
    /// Returns true while an operation is under way. It may have ended the last connection, and is answered nevertheless.
    pub(super) fn is_any(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Has an operation done, and answered, on a thread of its own, for it may take long. A note waits for nothing, is not answered, and
    /// keeps its place among what the successor says.
    pub(super) fn answer(&self, asked: Asked, pools: &[NamedPool], talk: &Talk) {
        let (number, talk, share) = (asked.number, talk.clone(), self.0.clone());
        let pool = pools.iter().find(|named| named.name == asked.pool).map(|named| named.pool.clone());
        let reply = move |outcome| {
            let said = talk.say_surely(&Said::Answered(Answered { number, outcome }));
            if said == Err(Errno::TOOBIG) {
                // The successor may be gone.
                let _ = talk.say_surely(&Said::Answered(Answered { number, outcome: Outcome::silent() }));
            }
            drop(share);
        };
        match (asked.op, pool) {
            (_, None) => reply(Outcome::default()),
            (note @ Op::Notify(_), Some(pool)) => _ = pool.apply(note, &asked.selector),
            (op, Some(pool)) => {
                let selector = asked.selector;
                let work = move || reply(pool.apply(op, &selector).unwrap_or_default());
                // Without a thread for it there is no answer: the successor waits no longer than the operation allows.
                let _ = std::thread::Builder::new().name("sockdrawer-asked".to_owned()).spawn(work);
            }
        }
    }
}
