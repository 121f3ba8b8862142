//! The sockets that share one port, in the kernel's order: that of their listen(); when one stops, the last takes its place. This
//! is kept in mind because a program that sends connections to some of them names places.

use super::socket::ListenSocket;
use crate::net::ListenOptions;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::sys::System;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// The groups of one address: more than one where sockets with other options replace them.
#[derive(Default)]
pub(crate) struct PortGroups(Mutex<Vec<PortGroup>>);

/// The sockets of an address that belong to one listener.
#[derive(Clone)]
pub(crate) struct SocketsOfListener {
    groups: Arc<PortGroups>,
    options: ListenOptions,
    ids: Vec<u64>,
}

struct PortGroup {
    /// Options of one of its sockets; see [`ListenOptions::same_group`].
    options: ListenOptions,
    order: Order<Weak<ListenSocket>>,
}

/// Members by place. Pure.
struct Order<S> {
    members: Vec<PortMember<S>>,
    next: u64,
}

struct PortMember<S> {
    id: u64,
    retiring: bool,
    socket: S,
}

impl<S> Order<S> {
    fn join(&mut self, socket: S) -> u64 {
        self.next += 1;
        self.members.push(PortMember { id: self.next, retiring: false, socket });
        self.next
    }

    fn place(&self, id: u64) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    fn retire(&mut self, id: u64) {
        self.members.iter_mut().filter(|member| member.id == id).for_each(|member| member.retiring = true);
    }

    /// Returns the places of the sockets that stay.
    fn staying(&self) -> Vec<Range<usize>> {
        self.staying_below(self.members.len())
    }

    /// Returns the places of the sockets that stay, and are still at that place when `id` is gone.
    fn staying_without(&self, id: u64) -> Vec<Range<usize>> {
        let last = self.members.len().saturating_sub(1);
        self.staying_below(if self.place(id) == Some(last) { last + 1 } else { last })
    }

    fn staying_below(&self, end: usize) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for place in (0..end).filter(|place| !self.members[*place].retiring) {
            match ranges.last_mut() {
                Some(range) if range.end == place => range.end += 1,
                _ => ranges.push(place..place + 1),
            }
        }
        ranges
    }

    fn remove(&mut self, id: u64) {
        if let Some(place) = self.place(id) {
            self.members.swap_remove(place);
        }
    }

    fn has_retiring(&self) -> bool {
        self.members.iter().any(|member| member.retiring)
    }
}

impl PortGroup {
    fn socket_where(&self, wanted: impl Fn(&PortMember<Weak<ListenSocket>>) -> bool) -> Option<Arc<ListenSocket>> {
        self.order.members.iter().filter(|member| wanted(member)).find_map(|member| member.socket.upgrade())
    }

    /// Sends new connections to these places. Where the system does not let us, retiring members turn them away.
    fn steer(&mut self, system: &dyn System, to: &[Range<usize>]) {
        let Some(any) = self.socket_where(|_| true) else { return };
        if !to.is_empty() && system.steer(any.fd(), to).is_ok() {
            return;
        }
        // An older program may name places that are others' by now. There may be none.
        let _ = system.unsteer(any.fd());
        for member in self.order.members.iter().filter(|member| member.retiring) {
            if let Some(socket) = member.socket.upgrade() {
                // Where this is refused too, the sockets are still emptied before they close.
                let _ = system.turn_away(socket.fd());
            }
        }
    }

    fn close(&mut self, system: &dyn System, id: u64, socket: &ListenSocket) {
        let kept = self.order.staying_without(id);
        // Where one alone stays and moves, there is no place to name before and after: the retiring turn away the connections that the kernel
        // sends them in that moment.
        if !kept.is_empty() {
            self.steer(system, &kept);
        }
        // This fails only for a socket that does not listen any more.
        let _ = system.stop_listening(socket.fd());
        self.order.remove(id);
        if self.order.has_retiring() {
            let staying = self.order.staying();
            self.steer(system, &staying);
        } else if let Some(any) = self.socket_where(|_| true) {
            // This fails where there is no program.
            let _ = system.unsteer(any.fd());
        }
    }
}

/// Holds an address's groups as they are, from before sockets begin to listen until they are members here too: if another stopped
/// in between, the kernel would give its place to one of them.
pub(crate) struct Joining<'a> {
    groups: &'a Arc<PortGroups>,
    all: MutexGuard<'a, Vec<PortGroup>>,
}

impl PortGroups {
    pub(crate) fn lease(groups: &Arc<PortGroups>) -> Joining<'_> {
        Joining { groups, all: lock(&groups.0) }
    }
}

impl Joining<'_> {
    /// Returns a new member set, in the order in which they began to listen.
    pub(crate) fn join(&mut self, options: &ListenOptions, sockets: &[Arc<ListenSocket>]) -> SocketsOfListener {
        let Joining { groups, all } = self;
        let at = all.iter().position(|group| group.options.same_group(options)).unwrap_or_else(|| {
            let order = Order { members: Vec::new(), next: 0 };
            all.push(PortGroup { options: options.clone(), order });
            all.len() - 1
        });
        let ids = sockets.iter().map(|socket| all[at].order.join(Arc::downgrade(socket))).collect();
        SocketsOfListener { groups: groups.clone(), options: options.clone(), ids }
    }
}

impl SocketsOfListener {
    pub(crate) fn groups(&self) -> &Arc<PortGroups> {
        &self.groups
    }

    fn with<T>(&self, work: impl FnOnce(&mut PortGroup) -> T) -> Option<T> {
        let mut all = lock(&self.groups.0);
        all.iter_mut().find(|group| group.options.same_group(&self.options)).map(work)
    }

    /// Keeps new connections from these sockets: others of the group get them, and where there are none, no socket does.
    pub(crate) fn retire(&self, system: &dyn System) {
        self.with(|group| {
            self.ids.iter().for_each(|id| group.order.retire(*id));
            let staying = group.order.staying();
            group.steer(system, &staying);
        });
    }

    /// Closes them, as far as no other process has them, without a word to connections that wait there: the last one first, so that none moves.
    pub(crate) fn leave(&self, sockets: &mut Vec<Arc<ListenSocket>>) {
        self.with(|group| {
            for id in self.ids.iter().rev() {
                drop(sockets.pop());
                group.order.remove(*id);
            }
        });
    }

    /// Ends the listening of its socket `index`, for all processes that have it.
    pub(crate) fn close(&self, system: &dyn System, index: usize, socket: &ListenSocket) {
        self.with(|group| group.close(system, self.ids[index], socket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(members: usize) -> Order<()> {
        let mut order = Order { members: Vec::new(), next: 0 };
        (0..members).for_each(|_| _ = order.join(()));
        order
    }

    fn places(ranges: &[Range<usize>]) -> Vec<usize> {
        ranges.iter().cloned().flatten().collect()
    }

    #[test]
    fn those_that_stay_are_named_by_their_places() {
        let mut order = order(6);
        assert_eq!(places(&order.staying()), [0, 1, 2, 3, 4, 5]);
        [1, 2, 5].into_iter().for_each(|id| order.retire(id));
        assert_eq!(order.staying(), [2..4, 5..6]);
        order.remove(1);
        assert_eq!(order.staying(), [0..1, 2..4], "the last took the place of the first");
    }

    #[test]
    fn no_place_named_around_a_close_is_ever_that_of_a_retiring_or_missing_member() {
        for (old, new) in [(1, 1), (1, 16), (16, 16), (16, 1), (3, 5), (16, 24)] {
            // A member is closed in any order, also with others that retire beside it.
            for stride in [1, 3, 7] {
                let mut order = order(old);
                let first: Vec<u64> = order.members.iter().map(|member| member.id).collect();
                (0..new).for_each(|_| _ = order.join(()));
                first.iter().for_each(|id| order.retire(*id));
                for turn in 0..old {
                    let id = first[turn * stride % old.max(1)];
                    let Some(_) = order.place(id) else { continue };
                    let named = places(&order.staying_without(id));
                    assert!(named.iter().all(|place| !order.members[*place].retiring));
                    order.remove(id);
                    assert!(named.iter().all(|place| order.members.get(*place).is_some_and(|member| !member.retiring)));
                    assert!(new == 1 || !named.is_empty(), "{old} {new}");
                }
            }
        }
    }

    #[test]
    fn overlapping_retirements_leave_only_the_newest() {
        let mut order = order(2);
        (1..=2).for_each(|id| order.retire(id));
        (0..2).for_each(|_| _ = order.join(()));
        (3..=4).for_each(|id| order.retire(id));
        (0..2).for_each(|_| _ = order.join(()));
        for id in [3, 1, 4, 2] {
            assert!(order.has_retiring());
            order.remove(id);
        }
        assert!(!order.has_retiring());
        assert_eq!(places(&order.staying()), [0, 1]);
    }
}
