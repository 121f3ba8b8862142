//! What a process does that was started to run clients.

use super::frames::{self, Account, CHILD, Request, State, Told};
use super::here::Here;
use crate::proc::resident_bytes;
use crate::server::process_time;
use crate::stop::Stop;
use std::io::{self, StdoutLock, stdin, stdout};
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Between two words about where it is.
const TELLS_EACH: Duration = Duration::from_millis(100);

/// Runs clients and does not return, when this process was started for that by [`Run::start`](crate::Run::start), which starts the
/// program again when the descriptors of one process are too few. A program calls it first in `main`; without it only runs that need
/// no other process can be started.
pub fn agent() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == CHILD) {
        // Whom there is nobody to tell, ends.
        let _ = run();
        process::exit(0);
    }
}

fn run() -> io::Result<()> {
    let mut to = stdout().lock();
    let Some(Request::Start { plan, targets, aim, processes }) = frames::read(&mut stdin().lock())? else { return Ok(()) };
    sockdrawer::raise_descriptor_limit()?;
    let before = process_time();
    let here = match Here::start(&plan, targets, aim, processes) {
        Ok(here) => here,
        Err(error) => return frames::write(&mut to, &Told::Begun(Err(error.to_string()))),
    };
    frames::write(&mut to, &Told::Begun(Ok(())))?;
    let stop = Stop::new();
    let (sender, requests) = channel();
    let hurry = stop.clone();
    thread::Builder::new().name("requests".to_owned()).spawn(move || listen(&sender, &hurry))?;
    serve(here, &requests, &stop, before, &mut to)
}

/// Passes requests on; the one that cannot wait is done at once. Whoever started this is gone when they end.
fn listen(requests: &Sender<Request>, stop: &Stop) {
    let mut from = stdin().lock();
    while let Ok(Some(request)) = frames::read(&mut from) {
        if let Request::Hurry = request {
            stop.stop();
        } else if requests.send(request).is_err() {
            break;
        }
    }
    process::exit(0);
}

fn serve(mut here: Here, requests: &Receiver<Request>, stop: &Stop, before: Duration, to: &mut StdoutLock<'_>) -> io::Result<()> {
    let mut aims = 0;
    loop {
        match requests.recv_timeout(TELLS_EACH) {
            Ok(Request::Aim(aim)) => {
                aims += 1;
                if let Err(error) = here.aim(aim) {
                    let state = State { aims, stopped: Some(error.to_string()), ..here.state() };
                    return frames::write(to, &Told::State(state));
                }
            }
            Ok(Request::Word(word)) => here.tell(word),
            Ok(Request::Take) => {
                let cpu = process_time().saturating_sub(before);
                let account = Account { cpu, rss_bytes: resident_bytes().unwrap_or(0), ..here.take() };
                frames::write(to, &Told::Account(Box::new(account)))?;
            }
            // Both fail where the pool has given up, which its state says.
            Ok(Request::Halt) => _ = here.halt(),
            Ok(Request::Settle) => {
                let _ = here.settle(stop);
                frames::write(to, &Told::Settled)?;
            }
            Ok(Request::Start { .. } | Request::Hurry) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        frames::write(to, &Told::State(State { aims, ..here.state() }))?;
    }
}
