//! Messages between a pool and its helper processes. Both ends are the same program, so there is no older version to understand; a helper of another
//! one refuses to start.

use crate::admission::AcceptState;
use crate::admission::Limits;
use crate::config::{Config, Model, Part, Restarts, Settings};
use crate::event_loop::connections::moving::ListenerStates;
use crate::ipc::state_level;
use crate::net::Address;
use crate::observe::Event;
use crate::operation::{Drain, Op, Selector};
use crate::pool::request::{Reply, Request};
use crate::protocol::{Recipe, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Version of these messages: the program's version and theirs.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " 3");

/// All that a helper needs to begin. The shared numbers and the event come along, in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) version: String,
    pub(crate) model: Model,
    /// Index of the process among the pool's.
    pub(crate) index: usize,
    /// Maximum of connections that its descriptors allow.
    pub(crate) most: usize,
    pub(crate) generated: Generated,
    pub(crate) tuning: Tuning,
    pub(crate) accept_state: AcceptState,
    /// The pool has an observer; if not, panics are printed.
    pub(crate) observed: bool,
}

/// A generation, as another process builds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Generated {
    pub(crate) id: u32,
    pub(crate) recipe: Recipe,
    pub(crate) settings: Settings,
}

/// The settings that change in place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tuning {
    pub(crate) loops: usize,
    pub(crate) workers: usize,
    pub(crate) stack: usize,
    pub(crate) worker_queue: usize,
    pub(crate) delegates: usize,
    pub(crate) capacity: usize,
    pub(crate) limits: Limits,
    pub(crate) inbox: usize,
    pub(crate) restarts: Restarts,
    pub(crate) stuck_after: Duration,
    pub(crate) spin: Duration,
}

impl Tuning {
    pub(crate) fn of(config: &Config) -> Tuning {
        Tuning {
            loops: config.loops,
            workers: config.workers,
            stack: config.stack,
            worker_queue: config.worker_queue,
            delegates: config.delegates,
            capacity: config.capacity,
            limits: config.limits().cloned().unwrap_or_default(),
            inbox: config.inbox,
            restarts: config.restarts,
            stuck_after: config.stuck_after,
            spin: config.spin,
        }
    }

    pub(crate) fn apply(self, config: &mut Config) {
        let Tuning { loops, workers, stack, worker_queue, capacity, limits, inbox, delegates, restarts, stuck_after, spin } =
            self;
        (config.loops, config.workers, config.stack, config.worker_queue) = (loops, workers, stack, worker_queue);
        (config.capacity, config.inbox, config.delegates) = (capacity, inbox, delegates);
        config.admission = Arc::new(limits);
        (config.restarts, config.stuck_after, config.spin) = (restarts, stuck_after, spin);
    }
}

/// A request to a helper. Each is answered once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperRequest {
    Start(Box<Start>),
    /// Builds a generation; it comes into force with the switch word.
    Prepare(Generated),
    /// The prepared generation will not come.
    Forget,
    /// The switch word was stored.
    Committed,
    Tune(Tuning),
    /// Accept from these sockets of a listener, which come along, in this order.
    Take {
        listener: u64,
        address: Address,
        /// Place of its numbers among the shared ones.
        slot: usize,
        accept_state: AcceptState,
        /// Another program may take the sockets back.
        is_borrowed: bool,
        sockets: Vec<usize>,
    },
    Release {
        listener: u64,
        sockets: Vec<usize>,
    },
    /// Accept what waits at a listener's sockets, then give them up. Answered when that is done.
    Retire {
        listener: u64,
    },
    /// Sets whether connections are taken. A loop that hangs is waited for at most this long.
    AcceptState(AcceptState, Duration),
    /// Sets whether one listener takes connections, and whether its sockets may be taken back by another program. A loop that hangs is waited for at
    /// most this long.
    ListenerAcceptState {
        listener: u64,
        accept_state: AcceptState,
        is_borrowed: bool,
        within: Duration,
    },
    Apply(Op, Selector),
    Status,
    Ask(Request),
    /// Freezes the next connections that can move to a build that reads these states, and sends them.
    Offer {
        #[serde(with = "state_level")]
        reads: State,
        listeners: ListenerStates,
        /// The number of a loop in the upper half, and where that is to begin in the lower.
        from: u64,
    },
    /// Drain all and end. The process is gone soon after the answer.
    Shutdown(Drain),
    /// Ends the part of this number, for tests.
    Crash(Part, usize),
}

/// A message from a helper to its pool.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromHelper {
    /// The answer to the request of this number.
    Reply(u64, Reply),
    Event(Event),
}

/// A message from a pool to a helper: the number of a request, and the request.
pub(crate) type ToHelper = (u64, HelperRequest);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::codec;
    use crate::ipc::packets::{PacketSender, Receiver};
    use crate::sys::Errno;
    use crate::sys::passing::{MAX_BYTES, MAX_DESCRIPTORS, packet_pair, send_packet};
    use std::os::fd::{AsFd, BorrowedFd};

    #[test]
    fn a_message_of_any_length_arrives_whole_with_all_its_descriptors() {
        let (one, two) = packet_pair(Duration::from_secs(10)).expect("a pair");
        let event = std::fs::File::open("/dev/null").expect("/dev/null");
        let notes: Arc<[u8]> = vec![7; 3 * MAX_BYTES].into();
        let lots: Vec<BorrowedFd<'_>> = (0..2 * MAX_DESCRIPTORS + 1).map(|_| event.as_fd()).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sender = PacketSender::default();
                let message: ToHelper = (1, HelperRequest::Apply(Op::Notify(notes.clone()), Selector::All));
                sender.send(one.as_fd(), &message, &[], true).expect("sent");
                let sockets = (0..lots.len()).collect();
                let address = "127.0.0.1:9000".parse().expect("an address");
                let message: ToHelper = (
                    2,
                    HelperRequest::Take {
                        listener: 1,
                        address,
                        slot: 0,
                        accept_state: AcceptState::Open,
                        is_borrowed: true,
                        sockets,
                    },
                );
                sender.send(one.as_fd(), &message, &lots, true).expect("sent");
            });
            let mut receiver = Receiver::default();
            let (message, passed) = receiver.receive::<ToHelper>(two.as_fd(), true).expect("no error").expect("a message");
            assert!(
                matches!(message, (1, HelperRequest::Apply(Op::Notify(bytes), _)) if bytes == notes)
                    && passed.is_some_and(|passed| passed.is_empty())
            );
            let (message, passed) = receiver.receive::<ToHelper>(two.as_fd(), true).expect("no error").expect("a message");
            assert!(
                matches!(message, (2, HelperRequest::Take { sockets, .. }) if passed.as_ref().is_some_and(|passed| sockets.len() == passed.len()))
            );
        });
        send_packet(one.as_fd(), b"\xff\xff garbage", &[], true).expect("sent");
        assert!(Receiver::default().receive::<ToHelper>(two.as_fd(), true).is_err());
    }

    #[test]
    fn a_message_that_was_given_up_in_the_middle_is_forgotten() {
        let (one, two) = packet_pair(Duration::from_millis(1)).expect("a pair");
        let (mut sender, mut receiver) = (PacketSender::default(), Receiver::default());
        let long: ToHelper = (1, HelperRequest::Apply(Op::Notify(vec![0; 100 * MAX_BYTES].into()), Selector::All));
        assert_eq!(sender.send(one.as_fd(), &long, &[], true), Err(Errno::AGAIN));
        assert_eq!(receiver.receive::<ToHelper>(two.as_fd(), false).map(|_| ()), Err(Errno::AGAIN));
        sender.send(one.as_fd(), &(2_u64, HelperRequest::Status), &[], true).expect("there is room again");
        let message = receiver.receive::<ToHelper>(two.as_fd(), true).expect("no error").expect("a message").0;
        assert!(matches!(message, (2, HelperRequest::Status)));
        assert_eq!(receiver.partial(), 0);
    }

    #[test]
    fn a_message_whose_descriptors_were_lost_has_none_but_its_words() {
        let (one, two) = packet_pair(Duration::from_secs(10)).expect("a pair");
        let mut packet = [&1_u64.to_le_bytes()[..], &[1, 2]].concat();
        packet.extend(codec::encode(&(1_u64, HelperRequest::Status)).expect("bytes").iter());
        send_packet(one.as_fd(), &packet, &[one.as_fd()], true).expect("sent");
        let (message, passed) = Receiver::default().receive::<ToHelper>(two.as_fd(), true).expect("no error").expect("a message");
        assert!(matches!(message, (1, HelperRequest::Status)) && passed.is_none());
    }
}
