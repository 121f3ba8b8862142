//! Messages of groups: each is taken from the inbox once, and all members get it.

use super::Connections;
use crate::behaviour::Callback;
use crate::event_loop::inbox::Message;
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::Tail;
use crate::protocol::{GroupMembers, Note, Urgency};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum bytes of messages of one group that follow each other and are delivered together: each member is sent them by one call.
const BYTES_AT_ONCE: usize = 64 * 1024;
/// Minimum number of members for which a message is copied once, so that the loops do not count references to it in one place of memory.
const COPIED_FOR: usize = 16;

/// Delivers a message of a group, and those that follow it in the inbox.
pub(in crate::event_loop) fn published(
    connections: &mut Connections,
    group: &Arc<GroupMembers>,
    first: Arc<[u8]>,
    urgency: Urgency,
    unread: &mut VecDeque<Message>,
) {
    let (mut bytes, mut messages) = (first.len(), vec![first]);
    while let Some(Message::Published(of, next, as_urgent)) = unread.front() {
        bytes += next.len();
        if !Arc::ptr_eq(of, group) || *as_urgent != urgency || bytes > BYTES_AT_ONCE {
            break;
        }
        if let Some(Message::Published(_, next, _)) = unread.pop_front() {
            messages.push(next);
        }
    }
    let Some(tokens) = connections.streams.groups.members(group) else { return };
    if tokens.len() >= COPIED_FOR {
        messages.iter_mut().for_each(|message| *message = Arc::from(&message[..]));
    }
    for token in tokens {
        deliver(connections, token, &messages, urgency);
    }
}

/// Calls a member for each message, and sends what it appends by one call.
fn deliver(connections: &mut Connections, token: u64, messages: &[Arc<[u8]>], urgency: Urgency) {
    let streams = &mut connections.streams;
    let Some(slot) = streams.slots.with_protocol(token) else { return };
    let held = !streams.slots.at(slot).may_receive();
    let mut left = messages.iter();
    while connections.streams.slots.at(slot).is_open()
        && !connections.streams.slots.at(slot).flags.any(Flags::FULL)
        && let Some(message) = left.next()
    {
        connections.streams.io.counters.notes().add(1);
        let answer = connections.dispatch(slot, Callback::Notified(&mut Some(Note::Bytes(message.clone()))));
        connections.act(slot, answer, Tail::Unknown, left.len() > 0);
        if !connections.streams.slots.at(slot).has_protocol() {
            return;
        }
    }
    if connections.streams.send(slot, false) {
        connections.input_goes_on(slot, held);
        connections.streams.settle(slot, false);
    }
    left.for_each(|message| connections.note(token, Note::Bytes(message.clone()), urgency));
}
