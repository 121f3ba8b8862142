//! The messages of clients that hear each other, counted by sender: each client has to hear all that was published since it subscribed, once
//! and in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of a message is the sender's times this, and the message's count.
const SENDER: u64 = 1_000_000_000;
/// The time in which a message reaches the server, and from it all others, while no process changes.
pub(crate) const ARRIVES: Duration = Duration::from_millis(500);
/// The number of the first sender of the check before a trial, and how many it has.
const EARLY: usize = 1_000_000;
pub(crate) const CHECKS: usize = 2;
const SPAN: Duration = Duration::from_millis(250);

/// The counts of the messages of a sender, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// Messages published.
    pub published: u64,
    /// Messages heard, by whichever client.
    pub heard: u64,
    /// Messages that a client had to hear and did not.
    pub lost: u64,
    /// Messages that a client did not hear and need not have: they were published while a process was killed, from the start of its replacement until one
    /// process served alone, and the connection of the sender or of the client had come in this time, so that the two may have been in different processes.
    pub beside_kills: u64,
    /// Messages that a client heard once more.
    pub doubled: u64,
    /// Messages that a client heard after a later one of its sender.
    pub out_of_order: u64,
}

impl Delivered {
    /// Returns whether nothing was lost, doubled or out of order.
    pub fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.out_of_order == 0
    }

    /// Describes what went wrong; None: nothing did.
    pub(crate) fn faults(&self) -> Option<String> {
        let Delivered { lost, doubled, out_of_order, .. } = self;
        (!self.is_clean()).then(|| format!("{lost} messages lost, {doubled} doubled, {out_of_order} out of order"))
    }
}

impl AddAssign for Delivered {
    fn add_assign(&mut self, other: Delivered) {
        self.published += other.published;
        self.heard += other.heard;
        self.lost += other.lost;
        self.beside_kills += other.beside_kills;
        self.doubled += other.doubled;
        self.out_of_order += other.out_of_order;
    }
}

impl fmt::Display for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Delivered { published, heard, lost, beside_kills, doubled, out_of_order } = self;
        write!(f, "{published} published, {heard} heard, {lost} lost, {doubled} doubled, {out_of_order} out of order")?;
        match beside_kills {
            0 => Ok(()),
            count => write!(f, ", {count} lost beside kills"),
        }
    }
}

/// The messages that were lost, but for those beside kills, and those that came twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Numbers of lost messages, by the change in which they were published; 0 is the time before the first.
    pub by_change: BTreeMap<u64, u64>,
    /// Numbers of messages that came twice, in this way.
    pub doubled: BTreeMap<u64, u64>,
    /// Messages that a client which is there at the end had to hear, and none of these has heard.
    pub unheard: u64,
    /// Changes of whose messages at least half were heard by none of these.
    pub deaf: BTreeSet<u64>,
    /// Clients that are there at the end.
    pub hearers: usize,
    /// Clients among these that lack a message.
    pub lacking: usize,
}

/// A connection that publishes.
#[derive(Debug, Default)]
struct Sender {
    counts: Delivered,
    /// The highest count of a message that any client heard.
    known: u64,
    is_gone: bool,
    /// The span in which the connection came.
    came: usize,
    /// The first count of each span in which it published, with the span.
    firsts: Vec<(u64, usize)>,
}

impl Sender {
    /// Returns the span in which a message was published.
    fn span_of(&self, count: u64) -> usize {
        let after = self.firsts.partition_point(|(first, _)| *first <= count);
        self.firsts[..after].last().map_or(0, |(_, span)| *span)
    }

    /// Returns the last message that was published before this span.
    fn before(&self, span: usize) -> u64 {
        let later = self.firsts.iter().find(|(_, of)| *of >= span);
        later.map_or(self.counts.published, |(first, _)| first - 1)
    }
}

/// A part of the time of a change, or of that after it: all that is published in one is published within [`SPAN`] of its beginning.
#[derive(Clone, Copy, Debug)]
struct Span {
    began: Instant,
    /// The change, from 1 on; 0 before the first.
    change: u64,
    /// A process was killed, and another was beside it.
    is_kill: bool,
}

/// All spans of a trial until now. A message that was published long enough before a change began, or before now where none is under way, has arrived.
#[derive(Debug)]
struct Spans {
    all: Vec<Span>,
    /// The time since which no change is under way.
    calm: Option<Instant>,
    /// The first span whose messages may have been on their way when the last change began.
    unsettled: usize,
    /// Changes in which a process was killed, each with the span that was the first unsettled one when it began.
    kills: Vec<(u64, usize)>,
}

impl Default for Spans {
    fn default() -> Spans {
        let mut spans = Spans { all: Vec::new(), calm: Some(Instant::now()), unsettled: 0, kills: Vec::new() };
        spans.begin(0);
        spans
    }
}

impl Spans {
    fn begin(&mut self, change: u64) {
        self.all.push(Span { began: Instant::now(), change, is_kill: false });
    }

    fn last(&self) -> usize {
        self.all.len() - 1
    }

    fn change_of(&self, span: usize) -> u64 {
        self.all[span].change
    }

    /// Returns the span of a message that is published now.
    fn now(&mut self) -> usize {
        let Span { began, change, .. } = self.all[self.last()];
        if began.elapsed() >= SPAN {
            self.begin(change);
        }
        self.last()
    }

    /// Returns the first span whose messages may be on their way.
    fn unsettled(&self) -> usize {
        if self.calm.is_none_or(|since| since.elapsed() < ARRIVES) {
            return self.unsettled;
        }
        self.all.partition_point(|span| span.began.elapsed() >= SPAN + ARRIVES)
    }

    /// Returns the first span whose messages a connection need not have sent or heard that ends now. One of a killed process may be seen to end until the end of
    /// the next change, on a busy machine; one that came later was not that process's.
    fn unsettled_at_end(&self, came: usize) -> usize {
        let (came, now) = (self.change_of(came), self.change_of(self.last()));
        let may_be_its = |(change, _): &&(u64, usize)| came <= *change && now <= change + 1;
        let of_kills = self.kills.iter().rev().take(2).filter(may_be_its).map(|(_, from)| *from).min();
        of_kills.map_or(self.unsettled(), |from| from.min(self.unsettled()))
    }

    fn change_begins(&mut self) {
        (self.unsettled, self.calm) = (self.unsettled(), None);
        self.begin(self.change_of(self.last()) + 1);
    }

    fn change_ends(&mut self, killed: bool) {
        let change = self.change_of(self.last());
        self.all.iter_mut().rev().take_while(|span| span.change == change).for_each(|span| span.is_kill = killed);
        self.calm = Some(Instant::now());
        self.kills.extend(killed.then_some((change, self.unsettled)));
        self.begin(change);
    }

    /// Returns whether both are of the time of one kill.
    fn are_beside_a_kill(&self, one: usize, other: usize) -> bool {
        let [one, other] = [self.all[one], self.all[other]];
        one.is_kill && other.is_kill && one.change == other.change
    }
}

/// A message that a client did not hear.
#[derive(Clone, Copy, Debug)]
struct Lost {
    sender: usize,
    listener: usize,
    count: u64,
}

/// The messages of a sender as a client hears them.
#[derive(Clone, Debug)]
struct Stream {
    /// The first count that the client has to hear.
    first: u64,
    next: u64,
    missing: BTreeSet<u64>,
}

impl Stream {
    fn after(count: u64) -> Stream {
        Stream { first: count + 1, next: count + 1, missing: BTreeSet::new() }
    }

    fn has(&self, count: u64) -> bool {
        (self.first..self.next).contains(&count) && !self.missing.contains(&count)
    }

    fn lacks(&self, last: u64) -> impl Iterator<Item = u64> {
        self.missing.iter().copied().chain(self.next..last + 1)
    }
}

#[derive(Debug, Default)]
struct Book {
    senders: Vec<Sender>,
    /// The messages that each connection heard, by sender. A connection has one number, as a sender and as a listener.
    listening: BTreeMap<usize, Vec<Stream>>,
    /// A client heard a message of its own: the server sends them to their sender too.
    echoes: bool,
    /// Nothing more is to be published.
    is_quiet: bool,
    spans: Spans,
    /// Messages that are certain not to come any more.
    lost: Vec<Lost>,
    /// Numbers of messages that came twice, by the change in which they were published.
    doubled: BTreeMap<u64, u64>,
}

impl Book {
    /// Returns the last message of a sender that each client must have heard: all of one that is there; of one that is gone those that came to any
    /// client, or had the time to, because nothing tells how many of the others reached the server.
    fn last(sender: &Sender) -> u64 {
        if sender.is_gone { sender.known } else { sender.counts.published }
    }

    /// Returns what a client lacks of each sender.
    fn lacks(&self, listener: usize, streams: &[Stream]) -> impl Iterator<Item = Lost> {
        let due = move |number: &usize| *number != listener || self.echoes;
        (0..self.senders.len()).filter(due).flat_map(move |sender| {
            let last = Book::last(&self.senders[sender]);
            // A sender that came after this client, and of which it heard nothing, has no stream yet.
            let stream = streams.get(sender).cloned().unwrap_or_else(|| Stream::after(0));
            let counts: Vec<u64> = stream.lacks(last).collect();
            counts.into_iter().map(move |count| Lost { sender, listener, count })
        })
    }

    /// Returns numbers of messages by the change in which they were published.
    fn published(&self) -> BTreeMap<u64, u64> {
        let mut all = BTreeMap::new();
        for sender in &self.senders {
            let ends = sender.firsts.iter().skip(1).map(|(first, _)| *first).chain([sender.counts.published + 1]);
            for ((first, span), end) in sender.firsts.iter().zip(ends) {
                *all.entry(self.spans.change_of(*span)).or_default() += end - first;
            }
        }
        all
    }

    /// Returns whether a message need not have come.
    fn is_beside_a_kill(&self, lost: &Lost) -> bool {
        let sender = &self.senders[lost.sender];
        let published = sender.span_of(lost.count);
        [sender.came, self.senders[lost.listener].came].into_iter().any(|came| self.spans.are_beside_a_kill(published, came))
    }

    fn heard(&mut self, listener: usize, number: usize, count: u64) {
        // Before it has subscribed for certain, a message may come or not.
        let Some(streams) = self.listening.get_mut(&listener) else { return };
        let sender = &mut self.senders[number];
        sender.counts.heard += 1;
        sender.known = sender.known.max(count);
        self.echoes |= number == listener;
        if streams.len() <= number {
            streams.resize(number + 1, Stream::after(0));
        }
        let stream = &mut streams[number];
        if count >= stream.next {
            stream.missing.extend(stream.next..count);
            stream.next = count + 1;
        } else if stream.missing.remove(&count) {
            sender.counts.out_of_order += 1;
        } else if count >= stream.first {
            sender.counts.doubled += 1;
            let change = self.spans.change_of(sender.span_of(count));
            *self.doubled.entry(change).or_default() += 1;
        }
    }
}

/// The book of all messages.
#[derive(Debug, Default)]
pub struct Deliveries {
    book: Mutex<Book>,
    /// The number of the first sender.
    first: usize,
}

impl Deliveries {
    /// Creates the book of the check before the trial: a server may have kept its messages for all that subscribe later, in whose book they are none.
    pub(crate) fn of_check() -> Deliveries {
        Deliveries { first: EARLY, ..Deliveries::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. Returns its number.
    pub(crate) fn comes(&self) -> usize {
        let mut book = self.book();
        let came = book.spans.last();
        book.senders.push(Sender { came, ..Sender::default() });
        book.senders.len() - 1
    }

    /// Says that the next change begins.
    pub(crate) fn next_change(&self) {
        self.book().spans.change_begins();
    }

    /// Says that the change is over: one process serves alone. It has `killed` another.
    pub(crate) fn change_ends(&self, killed: bool) {
        self.book().spans.change_ends(killed);
    }

    /// Returns the number of the message of this count.
    pub(crate) fn number(sender: usize, count: u64) -> u64 {
        (sender as u64 + 1) * SENDER + count
    }

    /// Counts a connection as subscribed: it has to hear all that is published from now on.
    pub(crate) fn subscribes(&self, number: usize) {
        let mut book = self.book();
        let streams = book.senders.iter().map(|sender| Stream::after(sender.counts.published)).collect();
        book.listening.insert(number, streams);
    }

    /// Counts a message as published. Returns its number; None: nothing more is to be published.
    pub(crate) fn publishes(&self, sender: usize) -> Option<u64> {
        let mut book = self.book();
        if book.is_quiet {
            return None;
        }
        let span = book.spans.now();
        let one = &mut book.senders[sender];
        one.counts.published += 1;
        if one.firsts.last().is_none_or(|(_, last)| *last != span) {
            one.firsts.push((one.counts.published, span));
        }
        Some(Deliveries::number(self.first + sender, one.counts.published))
    }

    /// Counts a message as heard by this connection. Returns false if it was not published.
    pub(crate) fn hears(&self, listener: usize, number: u64) -> bool {
        let mut book = self.book();
        let (sender, count) = ((number / SENDER).checked_sub(1).and_then(|sender| usize::try_from(sender).ok()), number % SENDER);
        if self.first == 0 && sender.is_some_and(|sender| (EARLY..EARLY + CHECKS).contains(&sender)) {
            return true;
        }
        let sender = sender.and_then(|sender| sender.checked_sub(self.first));
        let Some(sender) =
            sender.filter(|sender| book.senders.get(*sender).is_some_and(|one| (1..=one.counts.published).contains(&count)))
        else {
            return false;
        };
        book.heard(listener, sender, count);
        true
    }

    /// Counts a connection as ended: messages that it did not hear before later ones are lost, and those that had the time to come.
    pub(crate) fn goes(&self, number: usize) {
        let mut book = self.book();
        let unsettled = book.spans.unsettled_at_end(book.senders[number].came);
        let sender = &mut book.senders[number];
        (sender.is_gone, sender.known) = (true, sender.known.max(sender.before(unsettled)));
        let streams = book.listening.remove(&number).unwrap_or_default();
        for (sender, stream) in streams.into_iter().enumerate() {
            let of = &book.senders[sender];
            // A sender that is gone owes no more than when it went.
            let due = if sender != number || book.echoes { of.before(unsettled).min(Book::last(of)) } else { 0 };
            book.lost.extend(stream.lacks(due).map(|count| Lost { sender, listener: number, count }));
        }
    }

    /// Lets nothing more be published.
    pub(crate) fn be_quiet(&self) {
        self.book().is_quiet = true;
    }

    /// Returns whether all clients heard all that they had to hear until now.
    pub(crate) fn is_complete(&self) -> bool {
        let book = self.book();
        book.listening.iter().all(|(listener, streams)| book.lacks(*listener, streams).next().is_none())
    }

    /// Ends the book: all that the clients lack now is lost, and nothing counts any more.
    pub(crate) fn close(&self) -> Losses {
        let mut book = self.book();
        let mut all: Vec<Lost> = book.listening.iter().flat_map(|(listener, streams)| book.lacks(*listener, streams)).collect();
        all.append(&mut book.lost);
        let listening = std::mem::take(&mut book.listening);
        let was_heard = |sender: usize, count: u64| {
            listening.values().filter_map(|streams| streams.get(sender)).any(|stream| stream.has(count))
        };
        let (mut by_change, mut lacking) = (BTreeMap::new(), BTreeSet::new());
        // Each message is looked for once.
        let (mut looked_for, mut unheard) = (BTreeSet::new(), BTreeMap::<u64, u64>::new());
        for lost in all {
            if book.is_beside_a_kill(&lost) {
                book.senders[lost.sender].counts.beside_kills += 1;
                continue;
            }
            book.senders[lost.sender].counts.lost += 1;
            let change = book.spans.change_of(book.senders[lost.sender].span_of(lost.count));
            *by_change.entry(change).or_default() += 1;
            if listening.contains_key(&lost.listener) {
                lacking.insert(lost.listener);
                if looked_for.insert((lost.sender, lost.count)) && !was_heard(lost.sender, lost.count) {
                    *unheard.entry(change).or_default() += 1;
                }
            }
        }
        let published = book.published();
        let is_deaf =
            |(change, unheard): &(&u64, &u64)| published.get(*change).is_none_or(|published| 2 * *unheard >= *published);
        let deaf = unheard.iter().filter(is_deaf).map(|(change, _)| *change).collect();
        let unheard = unheard.values().sum();
        let doubled = std::mem::take(&mut book.doubled);
        Losses { by_change, doubled, unheard, deaf, hearers: listening.len(), lacking: lacking.len() }
    }

    /// Returns the counts of all senders together.
    pub fn total(all: &[Delivered]) -> Delivered {
        let mut total = Delivered::default();
        all.iter().for_each(|one| total += *one);
        total
    }

    /// Returns the counts of each sender, in the order in which they came. What is lost at the end is among them when the clients have ended.
    pub fn by_sender(&self) -> Vec<Delivered> {
        self.book().senders.iter().map(|sender| sender.counts).collect()
    }
}

#[cfg(test)]
mod tests;
