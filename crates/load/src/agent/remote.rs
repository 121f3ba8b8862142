//! Clients of another process: this program, started again and spoken to by its standard input and output. It ends when this one
//! does, because its input ends then.

use super::frames::{self, Account, Aim, CHILD, Request, State, Told, Word};
use crate::plan::Plan;
use crate::stop::Stop;
use crate::workload::Numbers;
use sockdrawer::{Address, Error};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// For a program to start, and for its pool.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// Whoever is busy for longer is added up the next time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// At the end, all must have answered: to close many connections takes long.
const ANSWERS_AT_LAST: Duration = Duration::from_secs(60);
/// Between two looks at a stop while ends are awaited.
const SLICE: Duration = Duration::from_millis(50);

/// Such a process.
pub(crate) struct Remote {
    process: Child,
    to: Option<ChildStdin>,
    from: Receiver<Told>,
    state: State,
    /// What it said and nobody took yet.
    account: Account,
    /// All that it said.
    numbers: Numbers,
    begun: Option<Result<(), String>>,
    /// It was asked for an account and has not answered.
    asked: bool,
    /// How many aims it was told.
    aims: u32,
    settled: bool,
    lost: bool,
}

impl Remote {
    /// Starts one; [`Remote::begun`] tells whether its clients began.
    pub(super) fn start(plan: &Plan, targets: &[Address], aim: Aim, processes: usize) -> Result<Remote, Error> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sockdrawer").arg(CHILD).stdin(Stdio::piped()).stdout(Stdio::piped());
        // What is typed at the terminal is for the one that reports.
        command.process_group(0);
        let mut process = command.spawn().map_err(|error| cannot_start(&error))?;
        let (told, from) = channel();
        if let Some(output) = process.stdout.take() {
            let reader = thread::Builder::new().name("agent".to_owned());
            reader.spawn(move || listen(output, &told)).map_err(|error| cannot_start(&error))?;
        }
        let mut remote = Remote {
            to: process.stdin.take(),
            process,
            from,
            state: State::default(),
            account: Account::default(),
            numbers: Numbers::default(),
            begun: None,
            asked: false,
            aims: 0,
            settled: false,
            lost: false,
        };
        remote.ask(&Request::Start { plan: Box::new(plan.clone()), targets: targets.to_vec(), aim, processes });
        Ok(remote)
    }

    /// Waits until its clients have begun.
    pub(super) fn begun(&mut self) -> Result<(), Error> {
        self.listen_until(Instant::now() + BEGINS_WITHIN, |remote| remote.begun.is_some());
        match self.begun.take() {
            Some(Ok(())) => Ok(()),
            Some(Err(reason)) => Err(Error::Stopped { reason: format!("a process of clients did not begin: {reason}") }),
            None => Err(Error::Stopped { reason: "a process of clients said nothing when it was started".to_owned() }),
        }
    }

    fn ask(&mut self, request: &Request) {
        let written = self.to.as_mut().map(|to| frames::write(to, request));
        if !matches!(written, Some(Ok(()))) {
            self.lose();
        }
    }

    /// It is gone, and nobody asked it to be: so are its connections.
    fn lose(&mut self) {
        if std::mem::replace(&mut self.lost, true) {
            return;
        }
        while let Ok(told) = self.from.try_recv() {
            self.hear(told);
        }
        let Numbers { established, lost, closed, .. } = self.numbers;
        self.account.tally.numbers.lost += established.saturating_sub(lost + closed);
        let State { connects, .. } = self.state;
        self.state = State { connects, settled: connects, made: true, spent: true, ..State::default() };
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    pub(super) fn aim(&mut self, aim: Aim) {
        self.aims += 1;
        self.ask(&Request::Aim(aim));
        self.state.made = self.lost;
    }

    pub(super) fn tell(&mut self, word: Word) {
        self.ask(&Request::Word(word));
    }

    /// As it said last: a tenth of a second ago, or longer while it is asked for something else.
    pub(super) fn state(&mut self) -> &State {
        self.listen_until(Instant::now(), |_| false);
        &self.state
    }

    /// Takes what it said until then, or until `enough`.
    fn listen_until(&mut self, until: Instant, enough: impl Fn(&Remote) -> bool) {
        while !self.lost && !enough(self) {
            match self.from.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(told) => self.hear(told),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => self.lose(),
            }
        }
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Begun(begun) => self.begun = Some(begun),
            Told::State(state) => {
                // What it said before it heard of the last aim is about the aim before.
                let made = state.made && state.aims == self.aims;
                self.state = State { made, ..state };
            }
            Told::Account(account) => {
                self.numbers.add(&account.tally.numbers);
                self.account.tally.add(&account.tally);
                let Account { cpu, rss_bytes, grown_bytes, .. } = *account;
                self.account = Account { tally: std::mem::take(&mut self.account.tally), cpu, rss_bytes, grown_bytes };
                self.asked = false;
            }
            Told::Settled => self.settled = true,
        }
    }

    /// What came of all since the last time. One that does not answer in time is not waited for again, until the last time: then it is
    /// lost.
    pub(super) fn take_all(remotes: &mut [Remote], last: bool) -> Account {
        let within = if last { ANSWERS_AT_LAST } else { ANSWERS_WITHIN };
        let (mut sum, until) = (Account::default(), Instant::now() + within);
        if last {
            // What it still has to answer was asked before its end.
            remotes.iter_mut().for_each(|remote| remote.listen_until(until, |remote| !remote.asked));
        }
        let asked: Vec<bool> = remotes.iter_mut().map(|remote| remote.ask_for_account() || last).collect();
        for (remote, asked) in remotes.iter_mut().zip(asked) {
            remote.listen_until(if asked { until } else { Instant::now() }, |remote| !remote.asked && asked);
            if last && remote.asked {
                remote.lose();
            }
            sum.tally.add(&std::mem::take(&mut remote.account.tally));
            sum.cpu += remote.account.cpu;
            if !remote.lost {
                sum.rss_bytes += remote.account.rss_bytes;
                sum.grown_bytes += remote.account.grown_bytes;
            }
        }
        sum
    }

    /// Unless it has one to give already.
    fn ask_for_account(&mut self) -> bool {
        let asks = !std::mem::replace(&mut self.asked, true);
        if asks {
            self.ask(&Request::Take);
        }
        asks
    }

    pub(super) fn halt(&mut self) {
        self.ask(&Request::Halt);
    }

    /// The end of the connects and of the operations under way, in all of them. One that does not say so in `time`
    /// is stuck, and lost.
    pub(crate) fn settle_all(remotes: &mut [Remote], stop: &Stop, time: Duration) {
        remotes.iter_mut().for_each(|remote| remote.ask(&Request::Settle));
        let (until, mut hurried) = (Instant::now() + time, false);
        for number in 0..remotes.len() {
            while !remotes[number].settled && !remotes[number].lost {
                if !hurried && stop.is_set() {
                    hurried = true;
                    remotes.iter_mut().for_each(|remote| remote.ask(&Request::Hurry));
                }
                if Instant::now() >= until {
                    remotes[number].lose();
                }
                remotes[number].listen_until(Instant::now() + SLICE, |remote| remote.settled);
            }
        }
    }
}

impl Drop for Remote {
    /// All that it knew was asked for.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Until the process ends, or says what is no message of ours.
fn listen(mut output: ChildStdout, told: &Sender<Told>) {
    while let Ok(Some(message)) = frames::read(&mut output) {
        if told.send(message).is_err() {
            return;
        }
    }
}

fn cannot_start(error: &io::Error) -> Error {
    Error::Stopped { reason: format!("cannot start a process for clients: {error}") }
}
