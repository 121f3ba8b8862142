//! End of a socket, as the loop that watches it tells it to the pool that has it.

use crate::gone::Gone;
use crate::stats::Reason;
use sockdrawer::blocking::WatchEvent;
use std::sync::{Mutex, MutexGuard};

/// Meeting point of two that come in any order: what happened to a socket, and the way to tell it.
#[derive(Default)]
pub(super) struct Watch(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    change: Option<WatchEvent>,
    gone: Option<Gone>,
}

impl Watch {
    /// Notes the first change of the socket; those that follow say no more.
    pub(super) fn hear(&self, change: WatchEvent) {
        let mut heard = self.lock();
        let first = *heard.change.get_or_insert(change);
        tell(first, heard.gone.take(), heard);
    }

    /// Takes the way to tell the pool of the change, which may have happened already.
    pub(super) fn tells(&self, gone: Gone) {
        let mut heard = self.lock();
        match heard.change {
            Some(change) => tell(change, Some(gone), heard),
            None => heard.gone = Some(gone),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().expect("nothing that panics is done under the lock")
    }
}

/// Tells the pool, whose lock may be held by a thread that waits for this one: without it.
fn tell(change: WatchEvent, gone: Option<Gone>, heard: MutexGuard<'_, Heard>) {
    drop(heard);
    if let Some(gone) = gone {
        gone.tell(match change {
            WatchEvent::Moving => Reason::Moved,
            WatchEvent::Draining => Reason::Unneeded,
            _ => Reason::PeerEnded,
        });
    }
}
