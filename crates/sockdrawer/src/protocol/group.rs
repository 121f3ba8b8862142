//! Groups: what is published to a group reaches each of its connections, by one message to each loop.

use super::note::{Post, Urgency, Waiter, wait_for_room};
use super::{Note, NotifyError};
use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Connections that get what is published: the subscribers of a topic, the players of a match, the guests of a room. A connection
/// [joins](crate::Context::join) and [leaves](crate::Context::leave); its end is a leave. Each member's
/// [`Protocol::notified`](crate::Protocol::notified) gets each message as bytes, and all members get the messages in one order.
///
/// Nothing that is published is lost. Each loop is handed a message once, however many of its connections are members. A callback that
/// [publishes](crate::Context::publish) faster than the loops deliver has its connection's input held back; a member that does not read ends once
/// [`Settings::max_unsent`](crate::Settings::max_unsent) bytes wait for it.
///
/// A callback other than `received` is not held: members that publish what they are notified of fill the memory.
///
/// A group is of one process: under [`Model::Prefork`](crate::Model::Prefork) and [`Model::Fork`](crate::Model::Fork) each process has its own. An
/// upgrade takes no members along: [`Protocol::restored`](crate::Protocol::restored) joins again.
///
/// ```
/// use sockdrawer::{Context, Group, Input, Note, Peer, Protocol, Service, Step};
///
/// /// Each line that a client sends goes to all.
/// #[derive(Clone, Default)]
/// struct Room(Group);
///
/// impl Service for Room {
///     type Protocol = Room;
///     fn open(&self, _peer: &Peer) -> Room {
///         self.clone()
///     }
/// }
/// impl Protocol for Room {
///     fn opened(&mut self, cx: &mut Context<'_>) -> Step {
///         cx.join(&self.0);
///         Step::Continue
///     }
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
///         cx.publish(&self.0, input.bytes());
///         input.take_all();
///         Step::Continue
///     }
///     fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
///         cx.send(note.bytes().unwrap_or_default());
///         Step::Continue
///     }
/// }
/// ```
#[derive(Clone, Default)]
pub struct Group(pub(crate) Arc<GroupMembers>);

/// The loops that have members of a group, and how many.
#[derive(Default)]
pub(crate) struct GroupMembers(Mutex<Vec<OfLoop>>);

struct OfLoop {
    post: Arc<dyn Post>,
    /// Members, and joins that the loop has not come to.
    refs: usize,
    members: usize,
}

/// A change of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Joined,
    Left,
}

impl Group {
    /// Returns a group without members.
    pub fn new() -> Group {
        Group::default()
    }

    /// Returns the number of members. A connection that joins in a callback counts when its loop comes to its next message.
    pub fn len(&self) -> usize {
        lock(&self.0.0).iter().map(|of| of.members).sum()
    }

    /// Returns true where the group has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Publishes these bytes to all members, without blocking. For a thread of your own; a callback uses
    /// [`Context::publish`](crate::Context::publish), which cannot fail.
    ///
    /// # Errors
    /// When the inbox of a loop with members is full; then no member gets the message, and the error carries it.
    pub fn publish(&self, bytes: impl Into<Arc<[u8]>>) -> Result<(), NotifyError> {
        self.try_publish(bytes.into(), Urgency::Delivered)
    }

    /// Publishes as [`Group::publish`] does, and waits for room where there is none: see
    /// [`Handle::notify_within`](crate::Handle::notify_within).
    ///
    /// # Errors
    /// When there is no room within this time; the error carries the message.
    pub fn publish_within(&self, bytes: impl Into<Arc<[u8]>>, time: Duration) -> Result<(), NotifyError> {
        let (bytes, until) = (bytes.into(), Instant::now().checked_add(time));
        while let Err(full) = self.try_publish(bytes.clone(), Urgency::Delivered) {
            let inboxes: Vec<_> = lock(&self.0.0).iter().map(|of| of.post.clone()).collect();
            if !wait_for_room(inboxes.iter(), until) {
                return Err(full);
            }
        }
        Ok(())
    }

    /// Offers these bytes to all members: those that are above their high-water mark do without. For what is stale soon; see
    /// [`Handle::offer`](crate::Handle::offer).
    ///
    /// # Errors
    /// When the inbox of a loop with members is full; then no member gets the message, and the error carries it.
    pub fn offer(&self, bytes: impl Into<Arc<[u8]>>) -> Result<(), NotifyError> {
        self.try_publish(bytes.into(), Urgency::Offered)
    }

    fn try_publish(&self, bytes: Arc<[u8]>, urgency: Urgency) -> Result<(), NotifyError> {
        let mut loops = lock(&self.0.0);
        if !loops.iter().all(|of| of.post.has_room(None)) {
            return Err(NotifyError::Full(Note::Bytes(bytes)));
        }
        // Another sender may have filled an inbox since: no thread waits for that one.
        self.hand_over(&mut loops, &bytes, urgency, None);
        Ok(())
    }

    /// Publishes from a callback. True where an inbox is full: the sender is told when there is room.
    pub(crate) fn push(&self, bytes: &Arc<[u8]>, sender: Option<&Waiter>) -> bool {
        self.hand_over(&mut lock(&self.0.0), bytes, Urgency::Delivered, sender)
    }

    /// Hands a message to each loop, under the lock: all members get the messages in one order.
    fn hand_over(&self, loops: &mut Vec<OfLoop>, bytes: &Arc<[u8]>, urgency: Urgency, sender: Option<&Waiter>) -> bool {
        let mut full = false;
        loops.retain(|of| match of.post.publish(&self.0, bytes, urgency, sender) {
            Some(is_full) => {
                full |= is_full;
                true
            }
            None => false,
        });
        full
    }

    /// Adds a connection of this loop to the group, from here on in the order of what is published.
    pub(crate) fn join(&self, post: &Arc<dyn Post>, token: u64) {
        let mut loops = lock(&self.0.0);
        match loops.iter_mut().find(|of| Arc::ptr_eq(&of.post, post)) {
            Some(of) => of.refs += 1,
            None => loops.push(OfLoop { post: post.clone(), refs: 1, members: 0 }),
        }
        post.change(token, &self.0, Membership::Joined);
    }

    /// Removes a connection of this loop from the group, from here on.
    pub(crate) fn leave(&self, post: &Arc<dyn Post>, token: u64) {
        let _loops = lock(&self.0.0);
        post.change(token, &self.0, Membership::Left);
    }
}

impl GroupMembers {
    /// Notes that a connection of this loop has become a member.
    pub(crate) fn joined(&self, post: *const ()) {
        if let Some(of) = lock(&self.0).iter_mut().find(|of| of.is(post)) {
            of.members += 1;
        }
    }

    /// Notes that a connection of this loop is a member no more, or that its join changes nothing.
    pub(crate) fn left(&self, post: *const (), was_member: bool) {
        let mut loops = lock(&self.0);
        let Some(at) = loops.iter().position(|of| of.is(post)) else { return };
        loops[at].refs -= 1;
        loops[at].members -= usize::from(was_member);
        if loops[at].refs == 0 {
            loops.swap_remove(at);
        }
    }
}

impl OfLoop {
    /// Returns true where this is the loop with that inbox, by its address.
    fn is(&self, post: *const ()) -> bool {
        Arc::as_ptr(&self.post).cast() == post
    }
}

/// A group is itself alone, whatever members it has.
impl PartialEq for GroupMembers {
    fn eq(&self, other: &GroupMembers) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for GroupMembers {}

impl Hash for GroupMembers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).addr().hash(state);
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group({} members)", self.len())
    }
}

/// Groups by name, for topics that clients name: one without members takes no memory for long.
#[derive(Clone, Debug, Default)]
pub struct Groups(Arc<Mutex<GroupsByName>>);

#[derive(Debug, Default)]
struct GroupsByName {
    groups: HashMap<Box<[u8]>, Weak<GroupMembers>>,
    /// Number of names at which those without members are dropped.
    tidies_at: usize,
}

impl Groups {
    /// Returns the group of this name, which exists from now on, to join it.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Group {
        let GroupsByName { groups, tidies_at } = &mut *lock(&self.0);
        if let Some(members) = groups.get(name.as_ref()).and_then(Weak::upgrade) {
            return Group(members);
        }
        if groups.len() >= *tidies_at {
            groups.retain(|_, members| members.strong_count() > 0);
            *tidies_at = 64.max(2 * groups.len());
        }
        let group = Group::new();
        groups.insert(name.as_ref().into(), Arc::downgrade(&group.0));
        group
    }

    /// Returns the names of all groups with members, and how many each has, in no order.
    pub fn list(&self) -> Vec<(Box<[u8]>, usize)> {
        let groups = lock(&self.0).groups.clone();
        let with_members = groups.into_iter().filter_map(|(name, members)| Some((name, Group(members.upgrade()?).len())));
        with_members.filter(|(_, members)| *members > 0).collect()
    }

    /// Returns the group of this name, if it has members or is held by a [`Group`], to publish to it.
    pub fn find(&self, name: impl AsRef<[u8]>) -> Option<Group> {
        lock(&self.0).groups.get(name.as_ref()).and_then(Weak::upgrade).map(Group)
    }
}

impl std::fmt::Debug for GroupMembers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupMembers").finish_non_exhaustive()
    }
}
