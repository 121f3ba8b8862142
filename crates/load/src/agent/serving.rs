//! Work of an agent: it runs clients as it is told, until its input ends.

use super::frames::{self, Account, Aim, Clients, Examined, GREETING, Look, Request, ServerSeen, StartPart, State, Told};
use super::{Agents, program};
use crate::budget::{Budget, Need};
use crate::cgroup::{Limits, Quota};
use crate::doctor::{Ask, examine};
use crate::machine::Machine;
use crate::moment;
use crate::proc::resident_bytes;
use crate::server::{Watch, process_time};
use crate::stop::Stop;
use sockdrawer::{Address, Error};
use std::io::{self, Read, Write, stdin, stdout};
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The argument by which a program knows that it was started to run clients. It is not for people.
pub(super) const CHILD: &str = "--clients-of-load";
/// Time between two words about where it is.
const TELLS_EACH: Duration = Duration::from_millis(100);
/// Time after which an agent of another machine that hears nothing is alone: its connections end with it.
const ALONE_AFTER: Duration = Duration::from_secs(30);

/// Runs clients and does not return, when this process was started for that by [`Run::start`](crate::Run::start), which starts the
/// program again when the descriptors of one process are too few. A program calls it first in `main`; without it only runs that need
/// no other process can be started.
pub fn agent() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == CHILD) {
        // An agent that cannot tell anything ends.
        let _ = serve(stdin(), stdout(), false);
        process::exit(0);
    }
}

/// Runs clients for a program of another machine, which started this one by ssh and speaks by standard input and output. Returns when
/// that program is gone, or has no more to ask; ends the process if nothing is heard of it for 30 s.
///
/// # Errors
/// When standard output is closed.
pub fn agent_on_stdio() -> io::Result<()> {
    // Should the ssh server end, so does an agent that was stopped. Without it, only a process that runs ends by the end of its input.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    serve(stdin(), stdout(), true)
}

/// The side of an agent that tells.
#[derive(Clone)]
struct Output(Arc<Mutex<Box<dyn Write + Send>>>);

impl Output {
    fn tell(&self, told: &Told) -> io::Result<()> {
        frames::write(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), told)
    }
}

/// A request, and what ends the run that it belongs to.
type Asked = (Request, Stop);

/// Does as it is told from there, until that ends.
pub(super) fn serve(from: impl Read + Send + 'static, mut to: impl Write + Send + 'static, is_elsewhere: bool) -> io::Result<()> {
    to.write_all(GREETING)?;
    let output = Output(Arc::new(Mutex::new(Box::new(to))));
    let heard = Arc::new(Mutex::new(Instant::now()));
    let (sender, requests) = channel();
    let (answers, hears) = (output.clone(), heard.clone());
    thread::Builder::new().name("requests".to_owned()).spawn(move || {
        listen(from, &sender, &answers, &hears);
        // Whatever goes on: the run belongs to a program that is gone.
        process::exit(0);
    })?;
    if is_elsewhere {
        thread::Builder::new().name("alone".to_owned()).spawn(move || end_alone(&heard))?;
        output.tell(&Told::Hello(Box::new(program::hello(Machine::this()))))?;
    }
    sockdrawer::raise_descriptor_limit()?;
    while let Ok((request, stop)) = requests.recv() {
        match request {
            Request::Start(start) => run(*start, &stop, &requests, &output)?,
            Request::Watch { targets, processes } => watch(&targets, &processes, &requests, &output)?,
            Request::Examine { target, connections } => {
                let findings = examine(&Ask { target, connections, process: None });
                let json = serde_json::to_string(&findings).unwrap_or_default();
                output.tell(&Told::Examined(Examined { ok: findings.ok, text: findings.to_string(), json }))?;
            }
            Request::Over => output.tell(&Told::Over)?,
            // Requests of a run that has ended are late.
            _ => {}
        }
    }
    Ok(())
}

fn end_alone(heard: &Mutex<Instant>) {
    loop {
        let until = *heard.lock().unwrap_or_else(PoisonError::into_inner) + ALONE_AFTER;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            process::exit(1);
        }
        thread::sleep(left);
    }
}

/// Passes requests on; those that cannot wait are done at once.
fn listen(mut from: impl Read, requests: &Sender<Asked>, output: &Output, heard: &Mutex<Instant>) {
    let mut stop = Stop::new();
    while let Ok(Some(request)) = frames::read(&mut from) {
        let now = moment::now();
        *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let passed_on = match request {
            Request::Beat(sent) => output.tell(&Told::Beat { sent, heard: now, answered: moment::now() }).is_ok(),
            Request::Hurry => {
                stop.stop();
                true
            }
            request => {
                if let Request::Start(_) = request {
                    stop = Stop::new();
                }
                requests.send((request, stop.clone())).is_ok()
            }
        };
        if !passed_on {
            return;
        }
    }
}

/// Carries out a run, from its start to its end.
fn run(start: StartPart, stop: &Stop, requests: &Receiver<Asked>, output: &Output) -> io::Result<()> {
    let StartPart { plan, targets, aim, clients } = start;
    let (before, quota) = (process_time(), Limits::own().cpu);
    let mut most = None;
    if let Clients::Processes { force: false } = clients {
        let budget = Budget::of(&plan);
        if let Some(wall) = budget.lacking().map(Need::wall) {
            return output.tell(&Told::Ready(Err(format!("{}: {}", wall.why, wall.remedy))));
        }
        most = budget.rate;
    }
    let slower = |aim: Aim| Aim { rate: most.map(|most| aim.rate.map_or(most, |rate| rate.min(most))).or(aim.rate), ..aim };
    let mut given_up = false;
    let started = Agents::start(&plan, &targets, slower(aim), clients, || {
        output.tell(&Told::Ready(Ok(()))).map_err(|error| lost(&error))?;
        match requests.recv() {
            Ok((Request::Go(at), _)) => moment::at(at).ok_or_else(|| lost(&"a moment before the clock began")),
            _ => {
                given_up = true;
                Err(lost(&"the run was given up before it began"))
            }
        }
    });
    let mut agents = match started {
        Ok(agents) => agents,
        Err(_) if given_up => return output.tell(&Told::Over),
        Err(error) => return output.tell(&Told::Begun(Err(error.to_string()))),
    };
    output.tell(&Told::Begun(Ok(())))?;
    let mut aims = 0;
    loop {
        match requests.recv_timeout(TELLS_EACH).map(|(request, _)| request) {
            Ok(Request::Aim(aim)) => {
                aims += 1;
                if let Err(error) = agents.aim(slower(aim)) {
                    let state = State { aims, stopped: Some(error.to_string()), ..agents.state() };
                    return output.tell(&Told::State(state));
                }
            }
            Ok(Request::Word(word)) => agents.tell(word),
            Ok(Request::Take { last }) => {
                let account = agents.take(last);
                let cpu = process_time().saturating_sub(before) + account.cpu;
                let rss_bytes = resident_bytes().unwrap_or(0) + account.rss_bytes;
                let throttled = quota.as_ref().map(Quota::since);
                output.tell(&Told::Account(Box::new(Account { cpu, rss_bytes, throttled, ..account })))?;
            }
            // Both fail where the pool has given up, which its state says.
            Ok(Request::Halt) => _ = agents.halt(),
            Ok(Request::Settle) => {
                let _ = agents.settle(&plan, stop);
                output.tell(&Told::Settled)?;
            }
            Ok(Request::Over) => {
                agents.release();
                return output.tell(&Told::Over);
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        output.tell(&Told::State(State { aims, ..agents.state() }))?;
    }
}

/// Looks at a server of this machine, from before a run to its end.
fn watch(targets: &[Address], processes: &[u32], requests: &Receiver<Asked>, output: &Output) -> io::Result<()> {
    let mut watch = Watch::there(targets, processes);
    let mut seen = ServerSeen::Weighed;
    loop {
        output.tell(&Told::Seen(seen))?;
        seen = loop {
            match requests.recv() {
                Ok((Request::Look(Look::Sample { standing, done }), _)) => {
                    break ServerSeen::Sample(watch.sample(standing, done));
                }
                Ok((Request::Look(Look::Weigh { standing }), _)) => {
                    watch.weigh(standing);
                    break ServerSeen::Weighed;
                }
                Ok((Request::Look(Look::End { operations }), _)) => {
                    let (_, server) = watch.end(Duration::ZERO, operations);
                    return output.tell(&Told::Seen(ServerSeen::End(server)));
                }
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        };
    }
}

fn lost(why: &impl ToString) -> Error {
    Error::Stopped { reason: why.to_string() }
}
