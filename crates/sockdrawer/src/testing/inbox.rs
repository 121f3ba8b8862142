//! The inbox of a connection under test.

use crate::protocol::{GroupMembers, Membership, Note, NotifyError, Post, Report, Sender, Tag, Urgency, Waiter};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Notes sent through handles and groups, until the test delivers them.
pub(super) struct TestInbox {
    capacity: usize,
    state: Mutex<TestInboxState>,
}

#[derive(Default)]
struct TestInboxState {
    notes: VecDeque<Note>,
    waiters: Vec<Waiter>,
    groups: Vec<Arc<GroupMembers>>,
    /// The connection was told of room elsewhere.
    has_room: bool,
    /// News that the groups are still to be told.
    told: Vec<(Arc<GroupMembers>, Told)>,
    /// The connection has ended.
    gone: bool,
    /// The tag of the connection; empty if it has none.
    tag: Option<Tag>,
}

/// News of a connection for a group.
enum Told {
    Joined,
    /// The connection joins, and was a member before.
    Again,
    Left,
}

impl TestInbox {
    pub(super) fn new(capacity: usize) -> TestInbox {
        TestInbox { capacity, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, TestInboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self, tag: Tag) {
        self.lock().tag = Some(tag);
    }

    pub(super) fn tag(&self) -> Tag {
        self.lock().tag.clone().unwrap_or_default()
    }

    pub(super) fn take(&self) -> VecDeque<Note> {
        let (notes, waiters) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.notes), std::mem::take(&mut state.waiters))
        };
        waiters.into_iter().for_each(|(sender, token)| sender.room(token));
        notes
    }

    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.gone = true;
        let left = std::mem::take(&mut state.groups);
        state.told.extend(left.into_iter().map(|group| (group, Told::Left)));
        drop(state);
        self.tell_groups();
    }

    /// Tells groups of the connection's memberships, as a loop does behind the callback.
    pub(super) fn tell_groups(&self) {
        let (told, own) = (std::mem::take(&mut self.lock().told), std::ptr::from_ref(self).cast());
        for (group, told) in told {
            match told {
                Told::Joined => group.joined(own),
                Told::Again => group.left(own, false),
                Told::Left => group.left(own, true),
            }
        }
    }

    /// Returns true where the connection was told of room since the last call.
    pub(super) fn take_room(&self) -> bool {
        std::mem::take(&mut self.lock().has_room)
    }

    fn put(&self, note: Note, sender: Option<&Waiter>) -> bool {
        let mut state = self.lock();
        state.notes.push_back(note);
        let full = state.notes.len() >= self.capacity;
        if full && let Some(sender) = sender {
            state.waiters.push(sender.clone());
        }
        full
    }
}

impl Sender for TestInbox {
    fn room(&self, _token: u64) {
        self.lock().has_room = true;
    }
}

impl Post for TestInbox {
    fn post(&self, _token: u64, note: Note, _urgency: Urgency) -> Result<(), NotifyError> {
        if !self.has_room(None) {
            return Err(NotifyError::Full(note));
        }
        self.put(note, None);
        Ok(())
    }

    fn push(&self, _token: u64, note: Note, sender: Option<&Waiter>) -> bool {
        self.put(note, sender)
    }

    fn publish(&self, to: &Arc<GroupMembers>, bytes: &Arc<[u8]>, _urgency: Urgency, sender: Option<&Waiter>) -> Option<bool> {
        let is_member = self.lock().groups.iter().any(|group| Arc::ptr_eq(group, to));
        Some(is_member && self.put(Note::Bytes(bytes.clone()), sender))
    }

    fn change(&self, _token: u64, group: &Arc<GroupMembers>, change: Membership) {
        // Outside of the group's lock, which the caller holds: the group is told when the test looks at notes, or the connection ends.
        let mut state = self.lock();
        let at = state.groups.iter().position(|of| Arc::ptr_eq(of, group));
        match (change, at) {
            (Membership::Joined, None) => {
                state.groups.push(group.clone());
                state.told.push((group.clone(), Told::Joined));
            }
            (Membership::Joined, Some(_)) => state.told.push((group.clone(), Told::Again)),
            (Membership::Left, Some(at)) => {
                state.groups.swap_remove(at);
                state.told.push((group.clone(), Told::Left));
            }
            (Membership::Left, None) => {}
        }
    }

    fn give(&self, _token: u64) {}

    fn is_gone(&self, _token: u64) -> bool {
        self.lock().gone
    }

    fn has_room(&self, sender: Option<Waiter>) -> bool {
        let mut state = self.lock();
        let has_room = state.notes.len() < self.capacity;
        if !has_room && let Some(sender) = sender {
            state.waiters.push(sender);
        }
        has_room
    }

    fn tag(&self, _token: u64, tag: Tag) -> bool {
        self.name(tag);
        true
    }

    /// Drops the report: there is no observer.
    fn report(&self, _token: u64, _report: Report) -> bool {
        true
    }
}
