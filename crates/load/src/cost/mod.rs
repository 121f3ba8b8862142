//! What a run costs its two ends in CPU time. Where the server is in this process, its threads are told from the client's; where it
//! is another process of this machine, that process is found by its listening socket; elsewhere the cost is not known.

mod listening;
mod processes;
mod threads;

use processes::Process;
use sockdrawer::Address;
use std::collections::BTreeMap;
use std::time::Duration;
use threads::Threads;
pub(crate) use threads::own as own_time;
pub(crate) use threads::process_time;

/// CPU time of both ends; None where it cannot be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) client: Option<Duration>,
    pub(crate) server: Option<Duration>,
}

/// Who is watched, and what each had used when that began. Everything in this process that is not the server is the client: two runs
/// at once in one process are counted together.
#[derive(Debug)]
pub(crate) struct Watch {
    server: Server,
    /// CPU time of this process.
    before: Duration,
}

#[derive(Debug)]
enum Server {
    Here(Threads),
    There {
        targets: Vec<Address>,
        before: BTreeMap<u32, Process>,
    },
    /// Not told from the client.
    Mixed,
    /// Not known.
    Elsewhere,
}

impl Watch {
    /// A server in this process that `start` starts, before anything of the client.
    pub(crate) fn here<T, E>(start: impl FnOnce() -> Result<T, E>) -> Result<(T, Watch), E> {
        let others = threads::ids();
        let started = start()?;
        let server = Threads::new(&others).map_or(Server::Mixed, Server::Here);
        Ok((started, Watch { server, before: process_time() }))
    }

    /// Servers that have been there before.
    pub(crate) fn there(targets: &[Address]) -> Watch {
        let server = match processes::of(targets) {
            Some(before) => Server::There { targets: targets.to_vec(), before },
            None => Server::Elsewhere,
        };
        Watch { server, before: process_time() }
    }

    /// What was used since. `ended` is the time of threads of the client that are not there any more.
    pub(crate) fn cost(&self, ended: Duration) -> Cost {
        let total = process_time().saturating_sub(self.before);
        match &self.server {
            Server::Here(threads) => {
                // Threads of the server that ended are in no table any more, but in the whole.
                let client = threads.of_others().map(|client| (client + ended).min(total));
                Cost { client, server: client.map(|client| total - client) }
            }
            Server::There { targets, before } => {
                let server = processes::of(targets).and_then(|now| processes::since(before, &now));
                Cost { client: Some(total), server }
            }
            Server::Mixed => Cost::default(),
            Server::Elsewhere => Cost { client: Some(total), server: None },
        }
    }
}
