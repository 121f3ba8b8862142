//! Clients that another process runs: one of this machine, this program started again, or one of another. It ends when this one does,
//! because its input ends then.

use super::clock::Clock;
use super::frames::{Account, AgentHello, Aim, Clients, Examined, Request, ServerSeen, StartPart, State, Told, Word};
use super::link::{Link, LinkEnded};
use super::serving::CHILD;
use crate::cgroup::Throttling;
use crate::moment;
use crate::numbers::float;
use crate::orders::Order;
use crate::part::AgentPart;
use crate::plan::{Plan, part};
use crate::stop::Stop;
use crate::workload::{Numbers, Operations, Tally};
use sockdrawer::{Address, Error};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Maximum time for a program to start, and for its pool.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time for an account: an agent that is busy for longer is added up the next time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time for all to answer at the end: to close many connections takes long.
const ANSWERS_AT_LAST: Duration = Duration::from_secs(60);
/// Time between two looks at a stop, and at the time, while an agent is awaited.
const SLICE: Duration = Duration::from_millis(50);
/// Number of measurements of a clock before a run begins: the best of so many, one after the other, is near the truth.
const FIRST_BEATS: u32 = 8;
/// Time after which an agent that gives no sign of life is lost: it is asked for one each half second.
const SILENT_FOR: Duration = Duration::from_millis(2_500);

/// Agent in another process.
pub(crate) struct Remote {
    name: String,
    link: Link,
    hello: Option<AgentHello>,
    clock: Option<Clock>,
    /// Number of measurements of the clock.
    beats: u32,
    /// Time for which this process has listened since it heard something of it; and when it listened last.
    silence: Duration,
    listened: Instant,
    /// The agent has said something: silence means that it is gone.
    has_begun: bool,
    state: State,
    /// Account that it gave and that was not taken yet.
    account: Account,
    /// The part of the connections that it was asked for.
    share: f64,
    /// Connections that it was told to have besides its equal part; None: it was told to have none.
    more: Option<isize>,
    /// Sum of all that it said.
    total: Tally,
    ready: Option<Result<(), String>>,
    begun: Option<Result<(), String>>,
    /// It was asked for an account and has not answered.
    asked: bool,
    /// Number of aims that it was told.
    aims: u32,
    settled: bool,
    /// Answer about a server that it looked at.
    seen: Option<ServerSeen>,
    /// Findings of it about its machine.
    examined: Option<Examined>,
    /// The CPU time that it had used at the last sample.
    cpu: Duration,
    /// It was started, and has not said that the run is over for it.
    is_busy: bool,
    /// Reason why it is gone, or takes no part in the run.
    lost: Option<String>,
    is_gone: bool,
    /// End of the program that it was, or that it was reached by.
    ended: LinkEnded,
}

impl Remote {
    pub(super) fn new(name: String, link: Link) -> Remote {
        Remote {
            name,
            link,
            hello: None,
            clock: None,
            beats: 0,
            silence: Duration::ZERO,
            listened: Instant::now(),
            has_begun: false,
            state: State::default(),
            account: Account::default(),
            share: 0.0,
            more: Some(0),
            total: Tally::default(),
            ready: None,
            begun: None,
            asked: false,
            aims: 0,
            settled: false,
            seen: None,
            examined: None,
            cpu: Duration::ZERO,
            is_busy: false,
            lost: None,
            is_gone: false,
            ended: LinkEnded::default(),
        }
    }

    /// Starts another process of this machine.
    pub(super) fn process(number: usize) -> Result<Remote, Error> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sockdrawer").arg(CHILD);
        let link = Link::start(command, false)
            .map_err(|error| Error::Stopped { reason: format!("cannot start a process for clients: {error}") })?;
        Ok(Remote::new(format!("process {}", number + 1), link))
    }

    /// Begins a run in all of them, at one moment, and waits until they have begun. What fails is lost.
    pub(super) fn begin_all(
        remotes: &mut [Remote],
        run: (&Plan, &[Address], Aim),
        clients: Clients,
        moment: impl FnOnce(&[Remote]) -> Result<Instant, Error>,
    ) -> Result<Instant, Error> {
        let of = remotes.len();
        remotes.iter_mut().enumerate().for_each(|(number, remote)| remote.prepare(run, (number, of), clients));
        remotes.iter_mut().for_each(Remote::answers_ready);
        let at = moment(remotes)?;
        remotes.iter_mut().for_each(|remote| remote.go(at));
        remotes.iter_mut().for_each(Remote::answers_begun);
        Ok(at)
    }

    /// Asks it to prepare its part of a run.
    pub(super) fn prepare(
        &mut self,
        (plan, targets, aim): (&Plan, &[Address], Aim),
        (number, of): (usize, usize),
        clients: Clients,
    ) {
        self.forget();
        self.is_busy = true;
        let part = plan.part(number, of);
        self.share = float(part.connections as u64) / float(plan.connections.max(1) as u64);
        let start = StartPart { plan: part, targets: targets.to_vec(), aim: aim.part(number, of), clients };
        self.ask(Request::Start(Box::new(start)));
    }

    pub(super) fn answers_ready(&mut self) {
        self.answers(|remote| &mut remote.ready, "it said nothing when it was asked to prepare a run");
    }

    /// Asks it to begin what it prepared at this moment.
    pub(super) fn go(&mut self, at: Instant) {
        let there = self.clock.map_or_else(|| moment::since_boot(at), |clock| clock.there(at));
        self.ask(Request::Go(there));
    }

    pub(super) fn answers_begun(&mut self) {
        self.answers(|remote| &mut remote.begun, "it said nothing when it was asked to begin");
    }

    /// Waits for an answer of the agent. One that says nothing is lost.
    fn answers(&mut self, answer: fn(&mut Remote) -> &mut Option<Result<(), String>>, silent: &str) {
        if self.lost.is_some() {
            return;
        }
        self.listen_until(Instant::now() + BEGINS_WITHIN, |remote| answer(remote).is_some());
        match answer(self).take() {
            Some(Ok(())) => {}
            Some(Err(reason)) => self.leave_out(reason),
            // Gone while it was listened to, with a better reason, or silent.
            None => self.lose(Some(silent.to_owned())),
        }
    }

    /// Forgets the run before: nothing of it is of the next.
    fn forget(&mut self) {
        if !self.is_gone {
            self.lost = None;
            self.listen_until(Instant::now() + BEGINS_WITHIN, |remote| !remote.is_busy);
            if self.is_busy {
                self.lose(Some("it did not end the run before".to_owned()));
            }
        }
        self.state = State::default();
        (self.account, self.total) = Default::default();
        (self.ready, self.begun, self.more) = (None, None, Some(0));
        (self.asked, self.settled, self.aims, self.cpu) = (false, false, 0, Duration::ZERO);
    }

    /// Waits for its first words, and until its clock is measured; None: it is gone, or says nothing.
    pub(super) fn hello(&mut self, within: Duration) -> Option<AgentHello> {
        self.listen_until(Instant::now() + within, |remote| remote.beats >= FIRST_BEATS);
        self.hello.clone().filter(|_| self.lost.is_none())
    }

    /// Asks it for something. One that is gone does not answer, which is noticed then.
    fn ask(&mut self, request: Request) {
        if self.lost.is_none() && !self.link.ask(request) {
            self.lose(None);
        }
    }

    /// Leaves the agent out of this run; it may take part in the next.
    fn leave_out(&mut self, why: String) {
        self.ask(Request::Over);
        self.lost.get_or_insert(why);
        self.state = State { made: true, spent: true, ..State::default() };
    }

    /// Loses the agent, which is gone though nothing asked it to be: so are its connections. What it said until then counts.
    pub(super) fn lose(&mut self, why: Option<String>) {
        if std::mem::replace(&mut self.is_gone, true) {
            return;
        }
        while let Ok((arrived, told)) = self.link.from.try_recv() {
            self.hear(arrived, told);
        }
        self.ended = self.link.cut(why.is_none());
        self.lost.get_or_insert_with(|| why.unwrap_or_else(|| self.ended.to_string()));
        let Numbers { established, lost, closed, .. } = self.total.numbers;
        self.account.tally.numbers.lost += established.saturating_sub(lost + closed);
        self.total.numbers.lost = established.saturating_sub(closed);
        let State { connects, .. } = self.state;
        self.state = State { connects, settled: connects, made: true, spent: true, ..State::default() };
    }

    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    pub(super) fn ended(&self) -> &LinkEnded {
        &self.ended
    }

    /// Replaces an agent that was lost: takes its part.
    pub(super) fn replaces(&mut self, lost: &Remote) {
        self.more = lost.more;
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its name, the CPUs of its machine, how far its clock is from this one, and how far away it is, in words.
    pub(super) fn words(&self) -> String {
        let (ahead, away) = self.clock.map_or((0.0, 0.0), |clock| (clock.ahead.seconds(), clock.round_trip.as_secs_f64()));
        format!("{} ({} CPUs, clock {:+.2} ms, {:.2} ms away)", self.name, self.cpus(), ahead * 1e3, away * 1e3)
    }

    /// Returns what the agent did in a run that took this time.
    pub(super) fn part(&self, seconds: f64) -> AgentPart {
        let Tally { numbers, .. } = &self.total;
        let cpu = self.account.cpu.as_secs_f64();
        AgentPart {
            name: self.name.clone(),
            share: self.share,
            lost: self.lost.clone(),
            established: numbers.established,
            failed: numbers.failed,
            lost_connections: numbers.lost,
            operations: Operations {
                ok: numbers.operations_ok,
                failed: numbers.operations_failed,
                per_second: if seconds > 0.0 { float(numbers.operations_ok) / seconds } else { 0.0 },
            },
            latency_us: self.total.latencies(),
            cpu_seconds: cpu,
            cpu: if seconds > 0.0 { cpu / seconds / float(self.cpus() as u64) } else { 0.0 },
            machine: self.hello.as_ref().map(|hello| hello.machine.clone()),
            rss_bytes: self.account.rss_bytes,
            clock_ahead_seconds: self.clock.map(|clock| clock.ahead.seconds()),
            round_trip_us: self.clock.map(|clock| clock.round_trip.as_secs_f64() * 1e6),
        }
    }

    pub(super) fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// Aims for a number of connections in all of them, in equal parts but for what one was told alone.
    pub(super) fn aim_all(remotes: &mut [Remote], aim: Aim) {
        let (of, parts) = (remotes.len(), Remote::parts(remotes, aim.connections));
        for (number, (remote, connections)) in remotes.iter_mut().zip(parts).enumerate() {
            remote.aim(Aim { connections, ..aim.part(number, of) });
        }
    }

    /// Returns the number of connections of each, of `all` that there are to be.
    pub(super) fn parts(remotes: &[Remote], all: usize) -> Vec<usize> {
        shares(all, &remotes.iter().map(|remote| remote.more).collect::<Vec<_>>())
    }

    /// Changes what it has besides its equal part, by an order to it alone, when it has `has` connections. Returns by how much.
    pub(super) fn change(&mut self, order: Order, has: usize) -> isize {
        let signed = |count: usize| isize::try_from(count).unwrap_or(isize::MAX);
        let by = match order {
            Order::More(count) => signed(count),
            Order::Fewer(count) => -signed(count.min(has)),
            _ => -signed(has),
        };
        // An agent that was stopped has no part in what all have.
        self.more = if order == Order::Stop { None } else { Some(self.more.unwrap_or(0).saturating_add(by)) };
        by
    }

    fn aim(&mut self, aim: Aim) {
        self.aims += 1;
        self.ask(Request::Aim(aim));
        self.state.made = self.lost.is_some();
    }

    pub(super) fn tell(&mut self, word: Word) {
        self.ask(Request::Word(word));
    }

    /// Returns the state as the agent said last: a tenth of a second ago, or longer while it is asked for something else.
    pub(super) fn state(&mut self) -> &State {
        self.listen_until(Instant::now(), |_| false);
        &self.state
    }

    /// Takes what it said until then, or until `enough`.
    fn listen_until(&mut self, until: Instant, enough: impl Fn(&mut Remote) -> bool) {
        while self.lost.is_none() && !enough(self) {
            let left = until.saturating_duration_since(Instant::now());
            let heard = self.link.from.recv_timeout(left.min(SLICE));
            // Time in which this process was stopped, or did something else, is no silence.
            self.silence += self.listened.elapsed().min(2 * SLICE);
            self.listened = Instant::now();
            match heard {
                Ok((arrived, told)) => self.hear(arrived, told),
                Err(RecvTimeoutError::Disconnected) => self.lose(None),
                Err(RecvTimeoutError::Timeout) if self.has_begun && self.silence >= SILENT_FOR => {
                    self.lose(Some(format!("nothing was heard of it for {:.1} s", SILENT_FOR.as_secs_f64())));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn hear(&mut self, arrived: Duration, told: Told) {
        (self.silence, self.has_begun) = (Duration::ZERO, true);
        match told {
            Told::Hello(hello) => {
                self.hello = Some(*hello);
                self.ask(Request::Beat(moment::now()));
            }
            // Another process of this machine has this clock.
            Told::Beat { sent, heard, answered } if self.hello.is_some() => {
                self.clock = Some(Clock::measured(sent, heard, answered, arrived).or(self.clock));
                self.beats += 1;
                if self.beats < FIRST_BEATS {
                    self.ask(Request::Beat(moment::now()));
                }
            }
            Told::Beat { .. } => {}
            Told::Ready(ready) => self.ready = Some(ready),
            Told::Begun(begun) => {
                // A run that was not begun was never ready: this is the reason for those that wait for it.
                self.ready.get_or_insert_with(|| begun.clone());
                self.begun = Some(begun);
            }
            Told::State(state) => {
                // A state from before the agent heard of the last aim is about the aim before.
                let made = state.made && state.aims == self.aims;
                self.state = State { made, ..state };
            }
            Told::Account(account) => {
                let Account { mut tally, .. } = *account;
                if let Some(clock) = self.clock {
                    tally.correct(clock.ahead);
                }
                self.total.add(&tally);
                self.account.tally.add(&tally);
                self.account = Account { tally: std::mem::take(&mut self.account.tally), ..*account };
                self.asked = false;
            }
            Told::Settled => self.settled = true,
            Told::Seen(seen) => self.seen = Some(seen),
            Told::Examined(findings) => self.examined = Some(findings),
            Told::Over => self.is_busy = false,
        }
    }

    /// Returns the results of all since the last time. One that does not answer in time is not waited for again, until the last time: then it is
    /// lost.
    pub(super) fn take_all(remotes: &mut [Remote], last: bool) -> Account {
        let within = if last { ANSWERS_AT_LAST } else { ANSWERS_WITHIN };
        let (mut sum, until) = (Account::default(), Instant::now() + within);
        if last {
            // An answer that is still owed was asked before the end.
            remotes.iter_mut().for_each(|remote| remote.listen_until(until, |remote| !remote.asked));
        }
        let asked: Vec<bool> = remotes.iter_mut().map(|remote| remote.ask_for_account(last) || last).collect();
        for (remote, asked) in remotes.iter_mut().zip(asked) {
            remote.listen_until(if asked { until } else { Instant::now() }, |remote| !remote.asked && asked);
            if last && remote.asked {
                remote.lose(Some("it did not say what came of its connections".to_owned()));
            }
            sum.tally.add(&std::mem::take(&mut remote.account.tally));
            sum.cpu += remote.account.cpu;
            if remote.lost.is_none() {
                sum.rss_bytes += remote.account.rss_bytes;
                sum.grown_bytes += remote.account.grown_bytes;
            }
        }
        sum
    }

    /// Unless it has one to give already.
    fn ask_for_account(&mut self, last: bool) -> bool {
        let asks = self.lost.is_none() && !std::mem::replace(&mut self.asked, true);
        if asks {
            self.ask(Request::Take { last });
        }
        asks
    }

    /// Asks it to look at a server, and waits for what it sees; None: it does not answer, or is gone.
    pub(super) fn look(&mut self, request: Request) -> Option<ServerSeen> {
        self.seen = None;
        self.ask(request);
        self.listen_until(Instant::now() + ANSWERS_WITHIN, |remote| remote.seen.is_some());
        self.seen.take()
    }

    /// Asks it what `connections` connections need beside what its machine has. It answers after a connect to the target.
    pub(super) fn examine(
        remotes: &mut [Remote],
        target: Option<&Address>,
        connections: usize,
    ) -> Vec<(String, Result<Examined, String>)> {
        let of = remotes.len();
        for (number, remote) in remotes.iter_mut().enumerate() {
            remote.ask(Request::Examine { target: target.cloned(), connections: part(connections, number, of) });
        }
        let until = Instant::now() + BEGINS_WITHIN;
        let found = remotes.iter_mut().map(|remote| {
            remote.listen_until(until, |remote| remote.examined.is_some());
            let why = remote.lost.clone().unwrap_or_else(|| "it did not say what it found".to_owned());
            (remote.name.clone(), remote.examined.take().ok_or(why))
        });
        found.collect()
    }

    /// Returns the part of its machine's CPUs that it used since the sample before, `seconds` ago.
    pub(super) fn busy(&mut self, seconds: f64) -> f64 {
        let used = self.account.cpu.saturating_sub(std::mem::replace(&mut self.cpu, self.account.cpu));
        used.as_secs_f64() / seconds / float(self.cpus() as u64)
    }

    /// Returns how often its quota stopped it.
    pub(super) fn throttled(&self) -> Option<&Throttling> {
        self.account.throttled.as_ref()
    }

    pub(super) fn cpus(&self) -> usize {
        self.hello.as_ref().map_or(1, |hello| hello.machine.cpus.max(1))
    }

    pub(super) fn halt(&mut self) {
        self.ask(Request::Halt);
    }

    /// Releases the agent: the run is over.
    pub(super) fn release(&mut self) {
        self.ask(Request::Over);
    }

    /// Waits for the end of the connects and of the operations under way, in all of them. One that does not say so in `time` is stuck, and lost.
    pub(super) fn settle_all(remotes: &mut [Remote], stop: &Stop, time: Duration) {
        remotes.iter_mut().for_each(|remote| remote.ask(Request::Settle));
        let (until, mut hurried) = (Instant::now() + time, false);
        for number in 0..remotes.len() {
            while !remotes[number].settled && remotes[number].lost.is_none() {
                if !hurried && stop.is_set() {
                    hurried = true;
                    remotes.iter_mut().for_each(|remote| remote.ask(Request::Hurry));
                }
                if Instant::now() >= until {
                    remotes[number].lose(Some("it did not end what was under way".to_owned()));
                }
                remotes[number].listen_until(Instant::now() + SLICE, |remote| remote.settled);
            }
        }
    }
}

/// Parts of a whole: equal ones, and more or fewer in each, but none below nothing. None has no part.
fn shares(all: usize, more: &[Option<isize>]) -> Vec<usize> {
    let mut parts = vec![0; more.len()];
    let mut taking: Vec<(usize, isize)> = more.iter().enumerate().filter_map(|(number, more)| Some((number, (*more)?))).collect();
    loop {
        let of = isize::try_from(taking.len()).unwrap_or(isize::MAX);
        let equal = isize::try_from(all).unwrap_or(isize::MAX) - taking.iter().map(|(_, more)| more).sum::<isize>();
        let part = |place: usize, more: isize| {
            let first = isize::try_from(place).is_ok_and(|place| place < equal.rem_euclid(of));
            equal.div_euclid(of) + isize::from(first) + more
        };
        let count = taking.len();
        let all_parts: Vec<isize> = taking.iter().enumerate().map(|(place, (_, more))| part(place, *more)).collect();
        let mut left = all_parts.iter();
        // An agent with less than none has none, and the others share what it is short of.
        taking.retain(|_| left.next().is_some_and(|part| *part >= 0));
        if taking.len() == count {
            for ((number, _), part) in taking.iter().zip(all_parts) {
                parts[*number] = part.unsigned_abs();
            }
            return parts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_whatever_one_was_told_alone() {
        assert_eq!(shares(11, &[Some(0); 3]), [4, 4, 3]);
        assert_eq!(shares(390, &[Some(0), Some(60), Some(0)]), [110, 170, 110]);
        assert_eq!(shares(280, &[Some(0), Some(60), None]), [110, 170, 0]);
        assert_eq!(shares(200, &[Some(0), Some(60), None]), [70, 130, 0]);
        assert_eq!(shares(20, &[Some(0), Some(60), Some(-5)]), [0, 20, 0]);
        assert_eq!(shares(0, &[Some(7), Some(-7)]), [0, 0]);
        assert_eq!(shares(5, &[None, None]), [0, 0]);
        for all in 0..200 {
            assert_eq!(shares(all, &[Some(31), Some(-40), Some(3), Some(0)]).iter().sum::<usize>(), all);
        }
    }
}
