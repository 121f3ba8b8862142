//! Sample after sample of a server, and what they say together.

use super::family::Family;
use super::fit::LeastSquares;
use super::listening::{self, accept_queues};
use super::network::{self, Network};
use super::processes::{self, duration};
use super::sample::{Server, ServerSample};
use super::{family, sockets};
use crate::numbers::float;
use crate::workload::Numbers;
use rustix::param::page_size;
use sockdrawer::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Minimum number of connections of which growth is told: with fewer, what a server takes for other reasons weighs more.
pub(crate) const LEAST_CONNECTIONS: u64 = 1_000;
/// CPU time that accepts and operations are told apart by: it is counted in 10 ms.
const LEAST_CPU: Duration = Duration::from_secs(1);

/// Whose samples they are.
#[derive(Debug)]
pub(super) enum Who {
    /// Threads of this process, by their folders.
    Threads(Vec<String>),
    /// Processes, and all that they started.
    Processes(Vec<u32>),
    Unknown,
}

#[derive(Debug)]
pub(super) struct Follow {
    who: Who,
    /// Processes that are none of these.
    others: BTreeSet<u32>,
    targets: Vec<Address>,
    /// The server listens in this network.
    is_here: bool,
    began: Start,
    last: Instant,
    cpu: Duration,
    network: Option<(Instant, Network)>,
    switches: BTreeMap<String, u64>,
    sample: ServerSample,
    done: Numbers,
    /// Moments at which memory may be asked for again, and processes.
    memory_due: Instant,
    processes_due: Instant,
    largest: Option<MemoryGrowth>,
    /// True where memory was looked at for the last time.
    weighed: bool,
    fit: LeastSquares,
    fitted: Duration,
}

/// Measurements when it began.
#[derive(Debug)]
struct Start {
    network: Option<Network>,
    pss: Option<u64>,
    sockets: Option<u64>,
}

/// While the most connections stood.
#[derive(Clone, Copy, Debug)]
struct MemoryGrowth {
    standing: u64,
    user: Option<u64>,
    kernel: Option<u64>,
}

/// Returns the pause after a look that took this time: looks take at most 1 % of a core.
fn rest(took: Duration) -> Duration {
    100 * took
}

/// Returns the pause after a look at memory. Memory is asked for less often, at 0.1 % of a core or every 10 s: the kernel counts it for milliseconds,
/// for which requests wait where clients share the CPU, and 1 % of the time is their p99.
fn memory_rest(took: Duration) -> Duration {
    (1_000 * took).min(Duration::from_secs(10)).max(rest(took))
}

impl Follow {
    pub(super) fn new(who: Who, targets: Vec<Address>) -> Follow {
        let now = Instant::now();
        let mut follow = Follow {
            began: Start { network: None, pss: None, sockets: sockets::bytes() },
            is_here: targets.iter().any(|target| listening::sockets(target).is_some()),
            who,
            others: BTreeSet::new(),
            targets,
            last: now,
            cpu: Duration::ZERO,
            network: None,
            switches: BTreeMap::new(),
            sample: ServerSample::default(),
            done: Numbers::default(),
            memory_due: now,
            processes_due: now,
            largest: None,
            weighed: false,
            fit: LeastSquares::default(),
            fitted: Duration::ZERO,
        };
        follow.look(now, None);
        // The first look is no reason to wait with the second: a short run has no other.
        (follow.memory_due, follow.processes_due) = (now, now);
        follow.began.pss = follow.sample.pss_bytes;
        follow.began.network = follow.network.map(|(_, network)| network);
        follow
    }

    /// Takes a sample. `cpu` is that of threads of this process.
    pub(super) fn sample(&mut self, standing: u64, done: Numbers, cpu: Option<Duration>) -> Option<ServerSample> {
        let now = Instant::now();
        if matches!(self.who, Who::Unknown) {
            self.see_network(now, network::read(None));
            return None;
        }
        let fresh = now >= self.memory_due;
        let before = std::mem::replace(&mut self.done, done);
        let since = now.saturating_duration_since(self.last).as_secs_f64().max(1e-3);
        if let Some(used) = self.look(now, cpu) {
            self.sample.cpu = Some(used.as_secs_f64() / since);
            self.fitted += used;
            let grown = |now: u64, before: u64| float(now.saturating_sub(before));
            self.fit.add(
                grown(done.established, before.established),
                grown(done.operations_ok, before.operations_ok),
                used.as_secs_f64() * 1e6,
            );
        } else {
            // Not asked: what came meanwhile belongs to the next stretch.
            self.done = before;
        }
        if fresh && !self.weighed {
            self.note_growth(standing);
        }
        Some(self.sample)
    }

    /// Looks at the memory once more, whenever it was due, while `standing` connections stand.
    pub(super) fn weigh(&mut self, standing: u64) {
        let family = if let Who::Processes(roots) = &self.who { family::of(roots, &mut self.others) } else { Family::new() };
        self.see_kernel_memory();
        self.see_memory(&family);
        self.note_growth(standing);
        self.weighed = true;
    }

    /// Notes the growth with the most connections so far, the last of equal ones: memory of what stands for long is memory that is needed.
    fn note_growth(&mut self, standing: u64) {
        if self.largest.is_none_or(|largest| standing >= largest.standing) {
            let user = self.sample.pss_bytes.zip(self.began.pss).map(|(now, before)| now.saturating_sub(before));
            self.largest = Some(MemoryGrowth { standing, user, kernel: self.sample.socket_bytes });
        }
    }

    fn see_kernel_memory(&mut self) {
        self.sample.socket_bytes = sockets::bytes().zip(self.began.sockets).map(|(now, before)| now.saturating_sub(before));
    }

    fn see_memory(&mut self, family: &Family) {
        self.sample.pss_bytes = family::proportional_bytes(family).filter(|_| !family.is_empty());
        self.sample.descriptors_left = family::descriptors_left(family);
    }

    /// Reads what is due. Returns the CPU time since the last look, where it was asked for.
    fn look(&mut self, now: Instant, cpu: Option<Duration>) -> Option<Duration> {
        let named = if let Who::Processes(roots) = &self.who { roots.first().copied() } else { None };
        self.see_network(now, network::read(named.filter(|_| !self.is_here)));
        let queues = accept_queues(&self.targets);
        self.sample.queued = (!queues.is_empty()).then(|| queues.iter().map(|queue| u64::from(queue.waiting)).sum());
        let fresh = now >= self.memory_due;
        if fresh {
            self.see_kernel_memory();
            self.memory_due = now + memory_rest(now.elapsed());
        }
        let used = match &self.who {
            Who::Threads(tasks) => {
                let switches = family::switches(tasks.iter().map(String::as_str));
                self.see_switches(now, switches);
                cpu.map(|cpu| cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu)))
            }
            Who::Processes(roots) if fresh || now >= self.processes_due => {
                let roots = roots.clone();
                self.see_processes(now, &roots, fresh)
            }
            _ => return None,
        };
        self.last = now;
        used
    }

    fn see_processes(&mut self, now: Instant, roots: &[u32], with_memory: bool) -> Option<Duration> {
        let mut family = family::of(roots, &mut self.others);
        if family.is_empty() && self.is_here {
            // It ended: another one may listen in its place.
            let roots = processes::owners(&self.targets).map(|(owners, _)| owners).unwrap_or_default();
            self.others.clear();
            family = family::of(&roots, &mut self.others);
            self.who = Who::Processes(roots);
        }
        let tasks = family::tasks(&family);
        self.see_switches(now, family::switches(tasks.iter().map(String::as_str)));
        self.sample.processes = u32::try_from(family.len()).unwrap_or(u32::MAX);
        let pages: u64 = family.values().map(|stat| stat.pages).sum();
        self.sample.rss_bytes = (!family.is_empty()).then_some(pages * page_size() as u64);
        self.processes_due = now + rest(now.elapsed());
        if with_memory {
            let begun = Instant::now();
            self.see_memory(&family);
            self.memory_due = self.memory_due.max(now + memory_rest(begun.elapsed()));
        }
        let cpu = duration(family.values().map(|stat| stat.ticks + stat.waited_for).sum());
        // A process that ended without being waited for takes its time along.
        Some(cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu)))
    }

    /// Counts switches since the last look. Threads that ended take their count along; new ones began at 0.
    fn see_switches(&mut self, now: Instant, switches: BTreeMap<String, u64>) {
        let since = now.saturating_duration_since(self.last).as_secs_f64();
        let before = |task: &String| self.switches.get(task).copied().unwrap_or(0);
        let more: u64 = switches.iter().map(|(task, count)| count.saturating_sub(before(task))).sum();
        self.sample.context_switches_per_second = (since > 0.0).then(|| float(more) / since);
        self.switches = switches;
    }

    fn see_network(&mut self, now: Instant, network: Option<Network>) {
        let last = network.zip(self.network).map(|(network, (at, before))| (now - at, network.since(&before)));
        let rate = |value: fn(&Network) -> u64| {
            let (since, grown) = last.as_ref().filter(|(since, _)| !since.is_zero())?;
            Some(float(value(grown)) / since.as_secs_f64())
        };
        self.sample.packets_in = rate(|network| network.packets_in);
        self.sample.packets_out = rate(|network| network.packets_out);
        self.sample.bits_in = rate(|network| 8 * network.bytes_in);
        self.sample.bits_out = rate(|network| 8 * network.bytes_out);
        self.sample.listen_overflows = network.zip(self.began.network).map(|(now, before)| now.since(&before).overflows);
        // The last counts of a process that has ended are kept.
        self.network = network.map(|network| (now, network)).or(self.network);
    }

    /// Returns the part of the segments that was sent again, of all that this network sent.
    pub(super) fn sent_again(&self) -> Option<f64> {
        let sent = self.network?.1.since(&self.began.network?);
        (sent.packets_out > 0).then(|| float(sent.sent_again) / float(sent.packets_out))
    }

    /// Returns the costs of a connection, and of an operation.
    pub(super) fn figures(&self, cpu: Option<Duration>, operations: u64) -> Server {
        let growth = self.largest.filter(|largest| largest.standing >= LEAST_CONNECTIONS);
        let each = |bytes: fn(&MemoryGrowth) -> Option<u64>| {
            growth.and_then(|growth| Some(float(bytes(&growth)?) / float(growth.standing)))
        };
        let costs = self.fit.solve().filter(|_| self.fitted >= LEAST_CPU);
        let all = cpu.filter(|_| operations > 0).map(|cpu| cpu.as_secs_f64() * 1e6 / float(operations));
        let known = self.is_here || !matches!(self.who, Who::Unknown);
        let counted = self.network.zip(self.began.network).filter(|_| known).map(|((_, now), before)| now.since(&before));
        Server {
            cpu_seconds: cpu.map(|cpu| cpu.as_secs_f64()),
            bytes_per_connection: each(|growth| growth.user),
            kernel_bytes_per_connection: each(|growth| growth.kernel),
            cpu_us_per_operation: costs.map(|costs| costs.operation).or(all),
            cpu_us_per_accept: costs.map(|costs| costs.accept),
            listen_overflows: counted.map(|counted| counted.overflows),
            listen_drops: counted.map(|counted| counted.drops),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_followed_until_it_ends() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat is everywhere");
        let mut follow = Follow::new(Who::Processes(vec![child.id()]), Vec::new());
        let sample = follow.sample(0, Numbers::default(), None).expect("it is there");
        assert!(sample.rss_bytes > Some(0) && sample.pss_bytes > Some(0) && sample.pss_bytes <= sample.rss_bytes, "{sample:?}");
        assert!(sample.descriptors_left > Some(0) && sample.cpu >= Some(0.0) && sample.processes == 1, "{sample:?}");
        assert!(sample.packets_in.is_some() && sample.bits_out.is_some() && sample.queued.is_none(), "{sample:?}");
        child.kill().and_then(|()| child.wait()).expect("it can be ended");
        // Looks that take long are due again.
        (follow.memory_due, follow.processes_due) = (Instant::now(), Instant::now());
        let sample = follow.sample(0, Numbers::default(), None).expect("it was there");
        assert_eq!((sample.processes, sample.rss_bytes, sample.pss_bytes), (0, None, None), "{sample:?}");
    }

    #[test]
    fn of_a_server_elsewhere_nothing_is_told_but_what_this_network_sent() {
        let mut follow = Follow::new(Who::Unknown, vec!["192.0.2.1:80".parse().expect("an address")]);
        assert_eq!(follow.sample(0, Numbers::default(), None), None);
        assert_eq!(follow.figures(None, 5), Server::default());
    }

    #[test]
    fn growth_is_that_while_the_most_stood_and_of_many_only() {
        let mut follow = Follow::new(Who::Unknown, Vec::new());
        let grown = |standing| Some(MemoryGrowth { standing, user: Some(100_000), kernel: Some(7_800_000) });
        follow.largest = grown(999);
        assert_eq!(follow.figures(None, 0).bytes_per_connection, None);
        follow.largest = grown(1_000);
        let figures = follow.figures(Some(Duration::from_secs(2)), 1_000_000);
        assert_eq!((figures.bytes_per_connection, figures.kernel_bytes_per_connection), (Some(100.0), Some(7_800.0)));
        assert_eq!((figures.cpu_us_per_operation, figures.cpu_us_per_accept), (Some(2.0), None));
    }
}
