//! What a forking helper has asked its children, and what it owes the pool for it. A child answers itself, or by its end; one that
//! does neither in time is killed.

use super::helper::other;
use super::wire::{FromHelper, Receiver, Reply, Request, Sender, ToHelper};
use crate::clock::deadline;
use crate::net::SocketOptions;
use crate::observe::{ConnectionState, ConnectionStatus};
use crate::pool::drain::{Drain, Drained, Moments, shuffle};
use crate::pool::handle::Adopted;
use crate::pool::selector::Selector;
use crate::protocol::{Tag, tag};
use crate::sys::{Errno, Events, Interest, Kernel, System, fork};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A child that was told to end at once, or a program that was told to end, has so long for it.
const KILL_AFTER: Duration = Duration::from_millis(200);
/// A child that does not say in this time that it has done what it was doing is listed as it was last seen.
const STUCK_AFTER: Duration = Duration::from_millis(200);
/// A child that does not do what it is asked in this time, because it is busy or stuck, is left out of the answer. Shorter than
/// what the pool waits for the answer of all.
const LEFT_OUT_AFTER: Duration = Duration::from_secs(2);
/// Beyond the time that a purge gives, for a child's own lingering.
const PURGE_MORE: Duration = Duration::from_secs(5);

/// All that is open between a helper and its children.
pub(super) struct Questions {
    /// Readable when a child has said something.
    watch: OwnedFd,
    /// Ends towards children that have come.
    homes: HashMap<u32, Home>,
    /// What was to be said to those that have not come yet.
    unsaid: HashMap<u32, Vec<ToHelper>>,
    open: HashMap<u64, Question>,
    draining: HashSet<u32>,
    /// What children said last of their connections, and to which question. Programs say nothing, and are called something all the
    /// same.
    said: HashMap<u32, (u64, ConnectionStatus)>,
    tags: HashMap<u32, Tag>,
    /// Children that have gone on under another generation, not yet noted.
    moved: Vec<u32>,
    /// What is done to a child that is still there then.
    deadlines: Vec<(Instant, u32, Then)>,
    /// The question that is the pool's last, and how it drains.
    last: Option<(u64, Drain)>,
}

struct Home {
    socket: OwnedFd,
    sender: Sender,
    receiver: Receiver,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    /// Ask it to end for this question; a drain asks one after the other.
    Ask(u64, Drain),
    /// Wait no longer for answers to this question.
    GiveUp(u64),
    /// Send a signal, because its time is over.
    Signal(i32),
}

#[derive(Default)]
struct Question {
    left: HashSet<u32>,
    kind: Kind,
    /// A listener's queue must be accepted first.
    listener: bool,
    /// Children whose time was over.
    forced: HashSet<u32>,
    asked: HashSet<u32>,
    /// What children that are to end have said of it. They count when they are gone: until then they are listed.
    last_words: HashMap<u32, Reply>,
    drained: Drained,
    count: usize,
    options: Option<SocketOptions>,
    adopted: Adopted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    Drain,
    End,
    Adopt,
    #[default]
    Count,
    Options,
    Done,
}

impl Question {
    fn reply(self) -> Reply {
        match self.kind {
            Kind::Drain => Reply::Drained(self.drained),
            Kind::Adopt => Reply::Adopted(self.adopted),
            Kind::End | Kind::Count => Reply::Count(self.count),
            Kind::Options => Reply::Options(self.options),
            Kind::Done => Reply::Done,
        }
    }

    /// A child's word, or its end.
    fn heard(&mut self, pid: u32, reply: Option<Reply>) {
        let reply = match (self.kind, reply) {
            (Kind::Drain | Kind::End, Some(word)) => {
                self.last_words.insert(pid, word);
                return;
            }
            (_, reply) => reply.or_else(|| self.last_words.remove(&pid)),
        };
        if !self.left.remove(&pid) {
            return;
        }
        match (self.kind, reply) {
            (Kind::Drain, Some(Reply::Drained(drained))) => self.drained = [self.drained, drained].into_iter().sum(),
            (Kind::Drain, _) => {
                let purged = usize::from(self.forced.contains(&pid));
                let drained = Drained { asked: 1, ended: 1 - purged, cut: purged };
                self.drained = [self.drained, drained].into_iter().sum();
            }
            (_, Some(Reply::Adopted(adopted))) => self.adopted = [std::mem::take(&mut self.adopted), adopted].into_iter().sum(),
            (_, Some(Reply::Count(count))) => self.count += count,
            (_, Some(Reply::Options(options))) => self.options = options,
            // It is gone: that is what was asked for.
            (Kind::End, None) => self.count += 1,
            _ => {}
        }
    }
}

impl Questions {
    pub(super) fn new() -> Result<Questions, Errno> {
        Ok(Questions {
            watch: Kernel.epoll()?,
            homes: HashMap::new(),
            unsaid: HashMap::new(),
            open: HashMap::new(),
            draining: HashSet::new(),
            said: HashMap::new(),
            tags: HashMap::new(),
            moved: Vec::new(),
            deadlines: Vec::new(),
            last: None,
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn is_draining(&self, pid: u32) -> bool {
        self.draining.contains(&pid)
    }

    /// What a connection is doing, by what its child said to this question.
    pub(super) fn state(&self, pid: u32, number: u64) -> Option<ConnectionState> {
        self.said.get(&pid).filter(|(to, _)| *to == number).map(|(_, said)| said.state)
    }

    /// What a connection is called, as far as is known.
    pub(super) fn tag_of(&self, pid: u32) -> Option<&str> {
        self.tags.get(&pid).map(|tag| &**tag)
    }

    /// Calls a program's connection so.
    pub(super) fn tag_program(&mut self, pid: u32, tag: Tag) {
        if tag.is_empty() {
            self.tags.remove(&pid);
        } else {
            self.tags.insert(pid, tag);
        }
    }

    /// When there is something to do next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.deadlines.iter().map(|(at, ..)| *at).min()
    }

    /// A child came. One that is not known has ended already, or is none of ours.
    pub(super) fn met(&mut self, pid: u32, socket: OwnedFd, known: bool) {
        let unsaid = self.unsaid.remove(&pid).unwrap_or_default();
        let interest = Interest { read: true, write: false };
        if !known || Kernel.watch(self.watch.as_fd(), socket.as_fd(), u64::from(pid), interest).is_err() {
            return;
        }
        self.homes.insert(pid, Home { socket, sender: Sender::default(), receiver: Receiver::default() });
        for (number, request) in unsaid {
            let _ = self.say(pid, number, request);
        }
    }

    /// Says it now, or as soon as the child has come.
    fn say(&mut self, pid: u32, number: u64, request: Request) -> Result<(), Errno> {
        match self.homes.get_mut(&pid) {
            // Never waiting for a child: one that does not read is slower than those who speak to it.
            Some(home) => home.sender.send(home.socket.as_fd(), &(number, request), &[], false),
            None => {
                self.unsaid.entry(pid).or_default().push((number, request));
                Ok(())
            }
        }
    }

    /// Asks those that are meant. Programs do not listen; they have signals.
    pub(super) fn ask(&mut self, number: u64, request: &Request, meant: Vec<u32>, programs: &[u32]) {
        match request {
            Request::Drain(_, how) => self.drain(number, *how, meant, programs),
            Request::Notify(_, bytes) => {
                let mut question = Question { kind: Kind::Done, ..Question::default() };
                let listen = meant.into_iter().filter(|pid| !programs.contains(pid));
                let full = listen.filter(|pid| {
                    let note = Request::Notify(Selector::All, bytes.clone());
                    self.say(*pid, number, note) == Err(Errno::AGAIN)
                });
                question.count = full.count();
                self.open.insert(number, question);
            }
            Request::Purge(_, within) => {
                self.end_each(number, meant, programs, *within, || Request::Purge(Selector::All, *within))
            }
            Request::Kill(_) => self.end_each(number, meant, &[], Duration::ZERO, || Request::Kill(Selector::All)),
            Request::Tag(_, text) => {
                let listen: Vec<u32> = meant.iter().copied().filter(|pid| !programs.contains(pid)).collect();
                self.ask_each(number, Kind::Count, listen, || Request::Tag(Selector::All, text.clone()));
                if let Some(question) = self.open.get_mut(&number) {
                    question.count = programs.len();
                }
                programs.iter().for_each(|pid| self.tag_program(*pid, tag(text)));
            }
            Request::SetOptions(_, options) => {
                let listen = meant.into_iter().filter(|pid| !programs.contains(pid)).collect();
                self.ask_each(number, Kind::Count, listen, || Request::SetOptions(Selector::All, *options));
            }
            Request::AdoptTo(generated) => {
                let adopted = Adopted { stayed: programs.len(), ..Adopted::default() };
                let listen = meant.into_iter().filter(|pid| !programs.contains(pid)).collect();
                self.ask_each(number, Kind::Adopt, listen, || Request::AdoptTo(generated.clone()));
                if let Some(question) = self.open.get_mut(&number) {
                    question.adopted = adopted;
                }
            }
            Request::Options(id) => self.ask_each(number, Kind::Options, meant, || Request::Options(*id)),
            // What they are doing, when they have done what they were doing. One that is stuck is not waited for.
            _ => {
                let listen = meant.into_iter().filter(|pid| !programs.contains(pid)).collect();
                self.ask_each(number, Kind::Done, listen, || Request::List(Selector::All));
                self.deadlines.push((deadline(Instant::now(), STUCK_AFTER), 0, Then::GiveUp(number)));
            }
        }
    }

    fn ask_each(&mut self, number: u64, kind: Kind, meant: Vec<u32>, request: impl Fn() -> Request) {
        for pid in &meant {
            // Who cannot be told answers by its end.
            let _ = self.say(*pid, number, request());
        }
        self.deadlines.push((deadline(Instant::now(), LEFT_OUT_AFTER), 0, Then::GiveUp(number)));
        self.open.insert(number, Question { kind, left: meant.into_iter().collect(), ..Question::default() });
    }

    /// Ends those that are meant: they are told, and killed if they are there for much longer.
    fn end_each(&mut self, number: u64, meant: Vec<u32>, programs: &[u32], within: Duration, request: impl Fn() -> Request) {
        let now = Instant::now();
        let kill = if within.is_zero() { KILL_AFTER } else { within.saturating_add(PURGE_MORE) };
        for pid in &meant {
            self.draining.insert(*pid);
            if programs.contains(pid) {
                self.deadlines.push((now, *pid, Then::Signal(fork::SIGTERM)));
                self.deadlines.push((deadline(now, within), *pid, Then::Signal(fork::SIGKILL)));
            } else {
                self.deadlines.push((deadline(now, kill), *pid, Then::Signal(fork::SIGKILL)));
            }
        }
        let programs: HashSet<u32> = programs.iter().copied().collect();
        for pid in meant.iter().filter(|pid| !programs.contains(pid)) {
            let _ = self.say(*pid, number, request());
        }
        self.open.insert(number, Question { kind: Kind::End, left: meant.into_iter().collect(), ..Question::default() });
    }

    /// Asks to end, in random order at the rate, and remembers until when.
    fn drain(&mut self, number: u64, how: Drain, mut meant: Vec<u32>, programs: &[u32]) {
        shuffle(&mut meant);
        if let Some(most) = how.at_most {
            meant.retain(|pid| !self.draining.contains(pid));
            meant.truncate(most);
        }
        let now = Instant::now();
        let until = deadline(now, how.deadline);
        let mut moments = Moments::at(how.rate.unwrap_or_default(), now);
        let mut turns: Vec<(u32, Instant)> = meant.into_iter().map(|pid| (pid, moments.next().min(until))).collect();
        if how.at_most.is_some() {
            // Who has no turn in time stays; who has one is nobody else's to choose.
            turns.retain(|(_, asked)| *asked < until);
            self.draining.extend(turns.iter().map(|(pid, _)| *pid));
        }
        for (pid, asked) in &turns {
            let left = Drain::within(until.saturating_duration_since(*asked));
            if programs.contains(pid) {
                self.draining.insert(*pid);
                self.deadlines.push((until, *pid, Then::Signal(fork::SIGTERM)));
            } else {
                self.deadlines.push((*asked, *pid, Then::Ask(number, left)));
            }
            self.deadlines.push((deadline(until, PURGE_MORE + PURGE_MORE), *pid, Then::Signal(fork::SIGKILL)));
        }
        let question = self.open.entry(number).or_insert_with(|| Question { kind: Kind::Drain, ..Question::default() });
        question.left.extend(turns.iter().map(|(pid, _)| *pid));
        question.asked.extend(turns.iter().map(|(pid, _)| *pid));
    }

    /// The pool's last question.
    pub(super) fn end(&mut self, number: u64, how: Drain, all: Vec<u32>, programs: &[u32]) {
        self.last = Some((number, how));
        let question = Question { kind: Kind::Drain, listener: true, ..Question::default() };
        self.open.insert(number, question);
        self.drain(number, how, all, programs);
    }

    /// How those are asked that come in while all end.
    pub(super) fn last_drain(&self) -> Option<Drain> {
        self.last.map(|(_, how)| Drain { rate: None, ..how })
    }

    pub(super) fn was_last(&self, number: u64) -> bool {
        self.last.is_some_and(|(last, _)| last == number)
    }

    pub(super) fn drain_more(&mut self, all: Vec<u32>, how: Drain, programs: &[u32]) {
        let Some((number, _)) = self.last else { return };
        let Some(question) = self.open.get(&number) else { return };
        let new: Vec<u32> = all.into_iter().filter(|pid| !question.asked.contains(pid)).collect();
        if !new.is_empty() {
            self.drain(number, how, new, programs);
        }
    }

    /// Children that have gone on under the newest generation since this was asked last.
    pub(super) fn moved(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.moved)
    }

    pub(super) fn wait_for_listener(&mut self, number: u64) {
        self.open.insert(number, Question { kind: Kind::Done, listener: true, ..Question::default() });
    }

    pub(super) fn retired(&mut self, number: u64) {
        if let Some(question) = self.open.get_mut(&number) {
            question.listener = false;
        }
    }

    /// Reads what children have said.
    pub(super) fn listen(&mut self) {
        let mut events = Events::with_capacity(64);
        // It fails for a bad descriptor or pointer only.
        let _ = Kernel.wait(self.watch.as_fd(), &mut events, Some(Duration::ZERO));
        for index in 0..events.len() {
            let pid = events.get(index).token as u32;
            self.hear(pid);
        }
    }

    fn hear(&mut self, pid: u32) {
        let Some(home) = self.homes.get_mut(&pid) else { return };
        loop {
            match home.receiver.receive_now::<FromHelper>(home.socket.as_fd()) {
                Ok(Some((FromHelper::Reply(number, reply), _))) => {
                    match &reply {
                        Reply::Adopted(Adopted { moved: 1, .. }) => self.moved.push(pid),
                        Reply::List(list) => {
                            if let Some(status) = list.first() {
                                match status.tag.as_deref() {
                                    Some(text) => _ = self.tags.insert(pid, tag(text)),
                                    None => _ = self.tags.remove(&pid),
                                }
                                self.said.insert(pid, (number, status.clone()));
                            }
                        }
                        _ => {}
                    }
                    if let Some(question) = self.open.get_mut(&number) {
                        question.heard(pid, Some(reply));
                    }
                }
                Ok(Some((FromHelper::Event(_), _))) => {}
                Err(Errno::AGAIN) => return,
                // It is gone, or about to be, which is heard otherwise.
                Ok(None) | Err(_) => {
                    self.homes.remove(&pid);
                    return;
                }
            }
        }
    }

    /// A child has ended. What it said before is read first.
    pub(super) fn ended(&mut self, pid: u32) {
        self.hear(pid);
        self.homes.remove(&pid);
        self.unsaid.remove(&pid);
        self.draining.remove(&pid);
        self.said.remove(&pid);
        self.tags.remove(&pid);
        self.deadlines.retain(|(_, of, _)| *of != pid);
        self.open.values_mut().for_each(|question| question.heard(pid, None));
    }

    /// Does what is due.
    pub(super) fn go_on(&mut self, signal: impl Fn(u32, i32)) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        let due: Vec<_> = self.deadlines.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, pid, then) in due {
            match then {
                Then::Ask(number, how) => {
                    self.draining.insert(pid);
                    let _ = self.say(pid, number, Request::Drain(Selector::All, how));
                }
                Then::GiveUp(number) => {
                    if let Some(question) = self.open.get_mut(&number) {
                        question.adopted.stayed += question.left.drain().count();
                    }
                }
                Then::Signal(number) => {
                    self.open.values_mut().for_each(|question| _ = question.forced.insert(pid));
                    signal(pid, number);
                }
            }
        }
    }

    /// Questions that need wait for nobody any more. The last one waits until no permit is `taken`.
    pub(super) fn answered(&mut self, taken: usize) -> Vec<(u64, Reply)> {
        let last = self.last.map(|(number, _)| number);
        let over = |number: &u64, question: &mut Question| {
            question.left.is_empty() && !question.listener && (Some(*number) != last || taken == 0)
        };
        let over = self.open.extract_if(over).map(|(number, question)| {
            let full = question.kind == Kind::Done && question.count > 0;
            (
                number,
                if full { Reply::Refused(other("a connection's process does not read its notes")) } else { question.reply() },
            )
        });
        over.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_end_has_ended_when_it_is_gone() {
        let ended = Drained { asked: 1, ended: 1, cut: 0 };
        let purged = Drained { asked: 1, ended: 0, cut: 1 };
        for (kind, word) in [(Kind::Drain, Reply::Drained(purged)), (Kind::End, Reply::Count(0))] {
            let mut question = Question { kind, left: HashSet::from([7, 8]), ..Question::default() };
            question.heard(7, Some(word));
            assert_eq!(question.left.len(), 2, "it is listed still");
            question.heard(7, None);
            question.heard(8, None);
            assert!(question.left.is_empty());
            match question.reply() {
                Reply::Drained(drained) => assert_eq!(drained, [ended, purged].into_iter().sum()),
                reply => assert!(matches!(reply, Reply::Count(1)), "{reply:?}"),
            }
        }
        let mut question = Question { kind: Kind::Count, left: HashSet::from([7]), ..Question::default() };
        question.heard(7, Some(Reply::Count(1)));
        assert!(question.left.is_empty(), "an answer is all that was asked for");
    }
}
