//! Operations on connections that stayed in a predecessor. What a build does not know is not done there, and counts as silent.

use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Maximum depth of a selector that is sent: what reads messages refuses deeper ones unanswered.
const MAX_NESTED: usize = 32;

/// An operation on what stayed of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The answer has it, too.
    pub(crate) number: u64,
    pub(crate) pool: String,
    pub(crate) selector: Selector,
    pub(crate) op: Op,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) number: u64,
    pub(crate) outcome: Outcome,
}

impl Asked {
    /// Returns the message for an operation. None: it is not for another process.
    pub(crate) fn of(pool: &str, op: &Op, selector: &Selector) -> Option<Asked> {
        let op = match op {
            Op::Adopt => return None,
            // A notice is for the end of a pool.
            Op::Drain(how) => Op::Drain(Drain { notice: Duration::ZERO, ..*how }),
            op => op.clone(),
        };
        Some(Asked { number: 0, pool: pool.to_owned(), selector: elsewhere(selector, MAX_NESTED)?, op })
    }

    pub(crate) fn numbered(self, number: u64) -> Asked {
        Asked { number, ..self }
    }
}

/// Returns a selector as it is meant in another process: generations of two processes have nothing to do with each other, and what stayed there is
/// older than all of this one's. None: it is nested too deeply.
fn elsewhere(selector: &Selector, depth: usize) -> Option<Selector> {
    let depth = depth.checked_sub(1)?;
    let all = |parts: &[Selector]| parts.iter().map(|part| elsewhere(part, depth)).collect::<Option<_>>();
    Some(match selector {
        Selector::Before(_) => Selector::All,
        Selector::Generation(_) => Selector::Any(Vec::new()),
        Selector::Not(other) => Selector::Not(Box::new(elsewhere(other, depth)?)),
        Selector::Every(parts) => Selector::Every(all(parts)?),
        Selector::Any(parts) => Selector::Any(all(parts)?),
        other => other.clone(),
    })
}

impl Answered {
    /// Returns the outcome, with no numbers beyond what can be: those of several processes are added up. A generation of the other process is none
    /// here.
    pub(crate) fn believed(self) -> Outcome {
        let count = |of: usize| of.min(u32::MAX as usize);
        let Outcome { done, mut list, next, options, drained, silent, connections: _, adopted: _ } = self.outcome;
        list.iter_mut().for_each(|one| one.generation = 0);
        Outcome {
            done: count(done),
            list,
            next,
            options,
            drained: Drained::of((count(drained.ended), count(drained.cut))),
            silent: count(silent),
            ..Outcome::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::codec::{decode, encode};
    use crate::net::Address;
    use crate::observe::{ConnectionState, ConnectionStatus};
    use crate::operation::{Adopted, Page};
    use crate::protocol::{ConnectionId, Side};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn heard(op: &Op, selector: &Selector) -> Option<Asked> {
        let asked = Asked::of("pool", op, selector)?.numbered(7);
        decode(&encode(&asked).expect("it is written")).ok()
    }

    #[test]
    fn every_operation_arrives_but_one() {
        let drain = Drain { rate: Some(0.5), max_connections: Some(0), ..Drain::within(Duration::from_nanos(5)) };
        let ops = [
            Op::Count,
            Op::List(Page { from: u64::MAX, most: usize::MAX }),
            Op::Kill,
            Op::Tag(String::new()),
            Op::Notify([0, 255, 7][..].into()),
            Op::SetOptions(crate::net::SocketOptions::default()),
            Op::Options,
            Op::Drain(drain),
            Op::Purge(Duration::MAX),
        ];
        for op in ops {
            let wanted = Asked { number: 7, pool: "pool".to_owned(), selector: Selector::All, op: op.clone() };
            assert_eq!(heard(&op, &Selector::All), Some(wanted));
        }
        assert!(Asked::of("pool", &Op::Adopt, &Selector::All).is_none());
        let noticed = heard(&Op::Drain(drain.notice(Duration::from_secs(1))), &Selector::All).expect("it arrives");
        assert_eq!(noticed.op, Op::Drain(drain));
    }

    #[test]
    fn every_selector_arrives_but_those_of_generations() {
        let (none, red) = (Selector::Any(Vec::new()), Selector::tag("red"));
        let same = [
            Selector::All,
            Selector::Id(ConnectionId(u64::MAX)),
            Selector::Peers("::1".parse().expect("an address"), 128),
            Selector::OlderThan(Duration::from_millis(1500)),
            Selector::tag(""),
            Selector::Listener("unix:/run/a socket".parse().expect("an address")),
            Selector::Listener(Address::Unix(OsStr::from_bytes(b"/run/\xff").into())),
            !red.clone(),
            (!red.clone()).and(Selector::All).or(red.clone()),
        ];
        let others = [
            (Selector::Before(3), Selector::All),
            (Selector::Generation(3), none.clone()),
            (red.clone().and(!Selector::Generation(3)), red.clone().and(!none)),
        ];
        for (said, wanted) in same.into_iter().map(|one| (one.clone(), one)).chain(others) {
            assert_eq!(heard(&Op::Count, &said).map(|asked| asked.selector), Some(wanted), "{said:?}");
        }
        let nest: [fn(Selector) -> Selector; 2] = [|one| Selector::Every(vec![one]), |one| Selector::Not(Box::new(one))];
        for nest in nest {
            let nested = |depth| (0..depth).fold(red.clone(), |inner, _| nest(inner));
            let deepest = nested(MAX_NESTED - 1);
            assert_eq!(heard(&Op::Count, &deepest).map(|asked| asked.selector), Some(deepest));
            assert!(Asked::of("pool", &Op::Count, &nested(MAX_NESTED)).is_none());
            let read: Result<Selector, _> = decode(&encode(&nested(200)).expect("it is written"));
            assert!(read.is_err(), "what is nested deeply is not read");
        }
    }

    #[test]
    fn an_outcome_is_believed_no_more_than_can_be() {
        let status = ConnectionStatus {
            id: ConnectionId(9),
            generation: 3,
            peer: Some("[::1]:80".parse().expect("an address")),
            listener: Some("127.0.0.1:9000".parse().expect("an address")),
            side: Side::Accepted,
            age: Duration::from_millis(5),
            bytes_in: 6,
            bytes_out: u64::MAX,
            state: ConnectionState::Idle,
            draining: true,
            tag: Some("red".to_owned()),
        };
        let outcome = Outcome {
            done: usize::MAX,
            connections: 5,
            list: vec![status],
            next: Some(6),
            adopted: Adopted { moved: 1, ..Adopted::default() },
            drained: Drained { asked: usize::MAX, ended: usize::MAX, cut: usize::MAX, ..Drained::default() },
            silent: usize::MAX,
            ..Outcome::default()
        };
        let answered: Answered = decode(&encode(&Answered { number: 8, outcome }).expect("it is written")).expect("it is read");
        assert_eq!(answered.number, 8);
        let mut sum = answered.clone().believed();
        sum += answered.believed();
        assert_eq!((sum.connections, sum.adopted.moved, sum.next, sum.list[0].generation), (0, 0, Some(6), 0));
        assert_eq!((sum.done, sum.silent), (2 * u32::MAX as usize, 2 * u32::MAX as usize));
    }
}
