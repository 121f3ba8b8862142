//! Applies a change and tests from outside whether it is in force.

use super::full::Full;
use super::kernel;
use super::kind::{Kind, Way};
use super::limit::queued;
use super::probe::{EchoProbe, Met, Says};
use super::scene::Scene;
use super::schedule::{Planned, another};
use super::served::Dish;
use crate::{Group, PATIENCE, Seen};
use sockdrawer::{
    Address, Config, Endpoint, Keepalive, Selector, SocketOptions,
    observe::{ConnectionStatus, Readiness},
};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// The time in which an applied change must show.
pub(crate) const SHOWS_WITHIN: Duration = Duration::from_secs(2);
/// The maximum time for which a suspended server is watched: until all clients of the churn wait in its queue.
const SUSPENDED: Duration = Duration::from_millis(10);
/// The second listen address. No client connects from it, so that no client's port can occupy its port.
const SECOND_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 1);

/// Connects that end under each change before the next begins. A change under which no connection ended proves nothing.
const CONNECTS_PER_CHANGE: u64 = 20;
/// The timeout of these connects. If the load is lower, the verdict says so.
const LOAD_WITHIN: Duration = Duration::from_secs(1);

/// Reason why a change counts as not made: the server refused it, or it did not show. One line.
pub(crate) type Unseen = String;

/// Applies changes to a scene.
pub(crate) struct Changer<'a> {
    pub(crate) scene: &'a Scene,
    dish: Dish,
    probes: u64,
    /// Churn connections that had ended when the change in force began.
    connects_before: u64,
    /// The counts of the clients during each kind of change.
    pub(crate) seen: [Seen; Kind::ALL.len()],
    /// Connections that were asked to end.
    pub(crate) asked: [u64; Kind::ALL.len()],
    /// Requests under way when their connections were asked to end.
    pub(crate) at_drains: u64,
    /// The times that the changes of each kind took to apply.
    pub(crate) took: [Vec<Duration>; Kind::ALL.len()],
    /// The times that the reconfigurations took.
    pub(crate) reloads: Vec<Duration>,
}

impl<'a> Changer<'a> {
    pub(crate) fn new(scene: &'a Scene) -> Changer<'a> {
        let took = std::array::from_fn(|_| Vec::new());
        let (seen, asked) = ([Seen::default(); Kind::ALL.len()], [0; Kind::ALL.len()]);
        Changer { scene, dish: Dish::Plain, probes: 0, connects_before: 0, seen, asked, took, at_drains: 0, reloads: Vec::new() }
    }

    /// Attributes what the clients see from now on to `kind`.
    pub(crate) fn begin(&mut self, kind: Kind) {
        self.close_row();
        self.scene.tally.begin(kind.index());
        self.connects_before = self.scene.tally.total().connects;
    }

    /// Attributes what the clients saw until now to the change in force.
    pub(crate) fn close_row(&mut self) {
        let row = &mut self.seen[self.scene.tally.change()];
        *row = row.plus(&self.scene.tally.next());
    }

    /// Waits until enough connects have ended since the change in force began.
    pub(crate) fn await_load(&self) {
        let (tally, wanted) = (&self.scene.tally, self.connects_before + CONNECTS_PER_CHANGE);
        self.scene.churn.wait(LOAD_WITHIN, |_| tally.total().connects >= wanted);
    }

    /// Applies `planned` and tests whether it is in force.
    pub(crate) fn apply(&mut self, planned: Planned) -> Result<(), Unseen> {
        let Planned { kind, value } = planned;
        self.begin(kind);
        let took = match kind {
            Kind::Protocol => self.protocol(value),
            Kind::Settings => self.settings(value),
            Kind::AcceptedOptions => self.accepted_options(value),
            Kind::LiveOptions => self.live_options(value),
            Kind::Backlog | Kind::Loops | Kind::Workers | Kind::Limit | Kind::Capacity => self.number(kind, value),
            Kind::LimitBelow => self.limit_below(),
            Kind::Admission => self.admission(value),
            Kind::AddAddress => self.add_address(),
            Kind::RemoveAddress => self.remove_address(),
            Kind::ReplaceAddress => self.replace_address(),
            Kind::Suspend => self.suspend(),
            Kind::Adopt => self.adopt(),
            Kind::Crash => self.crash(),
            Kind::Notify => self.notify(),
            Kind::Drain => self.drain(value),
            Kind::Purge => self.purge(),
            Kind::Kill => self.kill(value),
            Kind::Upgrade => self.upgrade(),
            Kind::Certificate => self.scene.secure.change(),
            Kind::Targets => self.scene.targets.change(value),
            Kind::Sabotage => unreachable!("no schedule has it: see sabotage.rs"),
        }?;
        self.took[kind.index()].push(took);
        Ok(())
    }

    /// Upgrades the server to one that is like the one before it.
    pub(super) fn upgrade(&mut self) -> Result<Duration, Unseen> {
        let old = self.scene.server();
        let kept = old.connections(&Group::Kept.selector()).len();
        self.probes += 1;
        let full = Full::send(self.scene.address, self.probes, &self.scene.tally);
        let full = full.map_err(|error| format!("a client that does not read: {error}"))?;
        let begun = Instant::now();
        let new = self.scene.place.serve(old.config()).map_err(|error| error.to_string())?;
        let took = begun.elapsed();
        self.scene.put_server(new.clone());
        full.read().map_err(|error| format!("a client that did not read before: {error}"))?;
        // A connection moves between two of its jobs: on a busy machine that takes some rounds. Those left would end with the old handle.
        if !old.wait(4 * PATIENCE, |status| matches!(status.readiness, Readiness::Stopped(_))) {
            return Err(format!("{} connections stayed in the server before", old.connections(&Selector::All).len()));
        }
        let has = new.connections(&Group::Kept.selector()).len();
        if has < kept { Err(format!("the new server has {has} of {kept} kept connections")) } else { Ok(took) }
    }

    fn protocol(&mut self, value: u64) -> Result<Duration, Unseen> {
        self.dish = another(&Dish::SOUND, self.dish, value);
        let behaviour = self.dish.behaviour(&self.scene.props);
        let took = self.reconfigure(Kind::Protocol, |config| config.behaviour = behaviour)?;
        self.newest()?;
        Ok(took)
    }

    fn settings(&mut self, value: u64) -> Result<Duration, Unseen> {
        const KIB: usize = 1024;
        // Always more than a client has under way.
        let choices = [(32 * KIB, 8 * KIB, 16 * KIB), (64 * KIB, 16 * KIB, 64 * KIB), (128 * KIB, 32 * KIB, 32 * KIB)];
        let settings = self.scene.server().config().settings;
        let current = (settings.high_water, settings.low_water, settings.max_partial);
        let chosen = another(&choices, current, value);
        let took = self.reconfigure(Kind::Settings, |config| {
            (config.settings.high_water, config.settings.low_water, config.settings.max_partial) = chosen;
        })?;
        self.newest()?;
        Ok(took)
    }

    fn accepted_options(&mut self, value: u64) -> Result<Duration, Unseen> {
        let mut wanted = self.scene.server().config().settings.options;
        vary(&mut wanted, value);
        let took = self.reconfigure(Kind::AcceptedOptions, |config| config.settings.options = wanted)?;
        let server = self.scene.server();
        self.look(|connection| {
            let real = server.options(connection.id).ok_or("the probe's options cannot be read")?;
            same_options(&wanted, &real)
        })?;
        Ok(took)
    }

    /// Sets new options: they come with a new generation; `apply_options` sets them on live connections.
    fn live_options(&mut self, value: u64) -> Result<Duration, Unseen> {
        let mut wanted = self.scene.server().config().settings.options;
        vary(&mut wanted, value);
        self.reconfigure(Kind::AcceptedOptions, |config| config.settings.options = wanted)?;
        let server = &self.scene.server();
        let kept = server.connections(&Group::Kept.selector());
        let begun = Instant::now();
        let applied = server.apply_options(&Group::Kept.selector());
        let took = begun.elapsed();
        self.reached(kept.len(), applied)?;
        // A single connection is read, because each reading is a question to a loop.
        let chosen = usize::try_from(value % kept.len().max(1) as u64).expect("less than the number of connections");
        let Some(id) = kept.get(chosen).map(|connection| connection.id) else { return Ok(took) };
        match server.options(id) {
            Some(real) => same_options(&wanted, &real)?,
            // The connection was lost meanwhile: its client counts it.
            None if server.connections(&Selector::Id(id)).is_empty() => {}
            None => return Err("a kept connection's options cannot be read".to_owned()),
        }
        Ok(took)
    }

    fn number(&mut self, kind: Kind, value: u64) -> Result<Duration, Unseen> {
        let server = self.scene.server();
        let (config, ample) = (server.config(), self.scene.ample);
        let before = server.status().generation;
        let (took, seen) = match kind {
            Kind::Loops => {
                let loops = another(&[1, 2, 3], config.loops, value);
                let took = self.reconfigure(kind, |config| config.loops = loops)?;
                // Per process, in models that have processes.
                let active = |status: &sockdrawer::observe::Status| status.loops.iter().filter(|one| one.active).count();
                (took, server.wait(SHOWS_WITHIN, |status| active(status) == loops * status.processes.len().max(1)))
            }
            Kind::Workers => {
                let workers = another(&[0, 1, 2, 3], config.workers, value);
                let took = self.reconfigure(kind, |config| config.workers = workers)?;
                (took, server.wait(SHOWS_WITHIN, |status| status.workers == workers * status.processes.len().max(1)))
            }
            Kind::Limit => {
                let limit = another(&[ample, ample + 10, ample + 20], config.limit.unwrap_or(0), value);
                let took = self.reconfigure(kind, |config| config.limit = Some(limit))?;
                (took, server.status().limit == limit)
            }
            Kind::Capacity => {
                let capacity = another(&[16, 64, 256, 1024], config.capacity, value);
                (self.reconfigure(kind, |config| config.capacity = capacity)?, true)
            }
            _ => {
                let wanted = another(&[256, 1024, 4096], backlog(&config), value);
                (self.reconfigure(kind, |config| set_backlog(config, wanted))?, true)
            }
        };
        if !seen {
            return Err(format!("the status does not show it after {SHOWS_WITHIN:?}"));
        }
        let after = server.status().generation;
        if after != before {
            return Err(format!("generation {before} became {after}, for a change that is made in place"));
        }
        self.newest()?;
        Ok(took)
    }

    fn second_address(&self) -> Address {
        Address::Tcp(SocketAddrV4::new(SECOND_ADDRESS, self.scene.address.port()).into())
    }

    fn add_address(&mut self) -> Result<Duration, Unseen> {
        let second = self.second_address();
        let took = self.reconfigure(Kind::AddAddress, |config| *config = config.clone().listen(second.clone()))?;
        match self.meet(&second, Says::Hello)? {
            Met::Echo => Ok(took),
            met => Err(format!("the added address gave {met}")),
        }
    }

    fn remove_address(&mut self) -> Result<Duration, Unseen> {
        let second = self.second_address();
        let took = self.reconfigure(Kind::RemoveAddress, |config| forget(config, &second))?;
        // A client that connects while the sockets retire has to try again later.
        let gone = |status: &sockdrawer::observe::Status| {
            status.retiring == 0 && status.listeners.iter().all(|listener| listener.address != second)
        };
        if !self.scene.server().wait(SHOWS_WITHIN, gone) {
            return Err(format!("the removed address is still in the status after {SHOWS_WITHIN:?}"));
        }
        match self.meet(&second, Says::Hello)? {
            Met::Refused(errno) if is(errno, io::ErrorKind::ConnectionRefused) => Ok(took),
            met => Err(format!("the removed address gave {met}")),
        }
    }

    /// Replaces the sockets of the address to which the churn connects, by a change of a bind-time option that has no effect on the
    /// loopback.
    fn replace_address(&mut self) -> Result<Duration, Unseen> {
        let address = self.scene.address;
        let before = kernel::listening(address);
        let took = self.reconfigure(Kind::ReplaceAddress, |config| {
            if let Endpoint::Accept { listeners, .. } = &mut config.endpoint {
                listeners[0].options.freebind ^= true;
            }
        })?;
        if let Some((before, after)) = before.zip(kernel::listening(address))
            && after.is_subset(&before)
        {
            return Err("no other socket listens there afterwards".to_owned());
        }
        self.newest()?;
        Ok(took)
    }

    fn suspend(&mut self) -> Result<Duration, Unseen> {
        let server = &self.scene.server();
        let begun = Instant::now();
        server.suspend();
        let suspending = begun.elapsed();
        let status = server.status();
        let before = status.counts.accepted;
        let all = self.scene.all_churn();
        server.wait(SUSPENDED, |status| status.counts.accepted != before || queued(status) >= all);
        let accepted = server.status().counts.accepted != before;
        let begun = Instant::now();
        server.resume();
        let took = suspending + begun.elapsed();
        if accepted || status.readiness != Readiness::Suspended {
            return Err("a suspended server accepted a connection, or does not say that it is suspended".to_owned());
        }
        match server.wait(SHOWS_WITHIN, |status| status.counts.accepted > before) {
            true => Ok(took),
            false => Err(format!("nothing was accepted for {SHOWS_WITHIN:?} after resume")),
        }
    }

    fn adopt(&mut self) -> Result<Duration, Unseen> {
        // Without an old generation there would be no connection to move.
        self.protocol(0)?;
        let server = &self.scene.server();
        let begun = Instant::now();
        let adopted = server.adopt(&Selector::All);
        let took = begun.elapsed();
        let newest = server.status().generation;
        let kept = server.connections(&Group::Kept.selector());
        let behind = kept.iter().filter(|connection| connection.generation != newest).count();
        if behind > 0 || adopted.moved < kept.len() {
            let (moved, all) = (adopted.moved, kept.len());
            return Err(format!("{moved} connections moved, {behind} of {all} kept ones do not have the newest generation"));
        }
        Ok(took)
    }

    fn crash(&mut self) -> Result<Duration, Unseen> {
        let server = self.scene.server();
        let before = server.status().counts.panics;
        let crashing = Dish::Crashing.behaviour(&self.scene.props);
        let took = self.reconfigure(Kind::Crash, |config| config.behaviour = crashing)?;
        self.dish = Dish::Crashing;
        let main = Address::Tcp(self.scene.address.into());
        match self.meet(&main, Says::Marker)? {
            Met::Broken(errno) if is(errno, io::ErrorKind::ConnectionReset) => {}
            met => return Err(format!("the probe that made the service panic got {met}")),
        }
        self.newest()?;
        match server.status().counts.panics - before {
            1 => Ok(took),
            panics => Err(format!("{panics} panics were counted, one was made")),
        }
    }

    fn notify(&mut self) -> Result<Duration, Unseen> {
        let server = &self.scene.server();
        let kept = server.connections(&Group::Kept.selector()).len();
        let before = server.status().counts;
        let begun = Instant::now();
        server.notify(&Group::Kept.selector(), *b"a note").map_err(|error| error.to_string())?;
        let took = begun.elapsed();
        let brought = |counts: &sockdrawer::observe::Counts| {
            let brought = counts.notes + counts.notes_dropped - before.notes - before.notes_dropped;
            usize::try_from(brought).unwrap_or(usize::MAX)
        };
        // A lost kept connection gets no note; its client counts the loss.
        let still = server.connections(&Group::Kept.selector()).len();
        server.wait(SHOWS_WITHIN, |status| brought(&status.counts) >= still);
        self.reached(kept, brought(&server.status().counts))?;
        Ok(took)
    }

    /// Checks that of `kept` connections all that are still open were reached.
    fn reached(&self, kept: usize, reached: usize) -> Result<(), Unseen> {
        let still = self.scene.server().connections(&Group::Kept.selector()).len();
        if (still..=kept).contains(&reached) {
            return Ok(());
        }
        Err(format!("{reached} kept connections were reached, there were {kept} and are {still}"))
    }

    /// Changes the server's configuration and checks the pool's own answer: the plan that it applied is carried out as this kind of change
    /// should be, and a second plan is empty.
    pub(crate) fn reconfigure(&mut self, kind: Kind, change: impl FnOnce(&mut Config)) -> Result<Duration, Unseen> {
        let server = &self.scene.server();
        let mut wanted = server.config();
        change(&mut wanted);
        let begun = Instant::now();
        let applied = server.reconfigure(wanted.clone()).map_err(|error| error.to_string())?;
        let took = begun.elapsed();
        self.reloads.push(took);
        let Way::Configured(how) = kind.way() else { return Ok(took) };
        if applied.plan.changes.is_empty() || applied.plan.changes.iter().any(|change| change.how != how) {
            return Err(format!("carried out as \"{}\", not as \"{how}\"", applied.plan));
        }
        let left = server.plan(&wanted).map_err(|error| error.to_string())?;
        if left.changes.is_empty() { Ok(took) } else { Err(format!("left to change afterwards: {left}")) }
    }

    /// Checks that a connection made now belongs to the newest generation and gets its echo.
    pub(super) fn newest(&mut self) -> Result<(), Unseen> {
        self.look(|_| Ok(()))
    }

    /// Checks that a connection made now belongs to the newest generation and gets its echo, and makes the check `also`.
    fn look(&mut self, also: impl FnOnce(&ConnectionStatus) -> Result<(), Unseen>) -> Result<(), Unseen> {
        let scene = self.scene;
        let generation = scene.server().status().generation;
        let probe = self.probe(&Address::Tcp(scene.address.into()), Says::Hello)?;
        let met = probe.met();
        let seen = match (met, probe.on(&scene.server())) {
            (Met::Echo, Some(connection)) if connection.generation == generation => also(&connection),
            (Met::Echo, Some(connection)) => {
                Err(format!("a connection made afterwards has generation {}, not {generation}", connection.generation))
            }
            (Met::Echo, None) => Err("the server does not list a connection that got its echo".to_owned()),
            (met, _) => Err(format!("a connection made afterwards got {met}")),
        };
        probe.end();
        seen
    }

    fn meet(&mut self, target: &Address, says: Says) -> Result<Met, Unseen> {
        let probe = self.probe(target, says)?;
        let met = probe.met();
        probe.end();
        Ok(met)
    }

    fn probe(&mut self, target: &Address, says: Says) -> Result<EchoProbe, Unseen> {
        self.probes += 1;
        let cannot = |error| format!("no probe could be sent: {error}");
        EchoProbe::send(target, self.probes, says, &self.scene.tally).map_err(cannot)
    }
}

fn is(errno: i32, kind: io::ErrorKind) -> bool {
    io::Error::from_raw_os_error(errno).kind() == kind
}

/// Removes `address` from the listeners.
fn forget(config: &mut Config, address: &Address) {
    if let Endpoint::Accept { listeners, .. } = &mut config.endpoint {
        listeners.retain(|listening| listening.address != *address);
    }
}

fn backlog(config: &Config) -> u32 {
    match config.endpoint {
        Endpoint::Accept { backlog, .. } => backlog,
        _ => unreachable!("the server accepts"),
    }
}

fn set_backlog(config: &mut Config, wanted: u32) {
    if let Endpoint::Accept { backlog, .. } = &mut config.endpoint {
        *backlog = wanted;
    }
}

/// Options that differ from the current ones, of those that the kernel returns as they were set. (It doubles the buffers' sizes.)
fn vary(options: &mut SocketOptions, value: u64) {
    let seconds = |shift: u32, least: u64, count: u64| least + (value >> shift) % count;
    let idles: Vec<u64> = (30..90).collect();
    let idle = another(&idles, options.keepalive.map_or(0, |keepalive| keepalive.idle.as_secs()), value >> 32);
    options.nodelay = value & 1 == 0;
    options.keepalive = Some(Keepalive {
        idle: Duration::from_secs(idle),
        interval: Duration::from_secs(seconds(8, 5, 15)),
        probes: if value & 2 == 0 { 4 } else { 7 },
    });
    options.user_timeout = Some(Duration::from_secs(seconds(16, 20, 40)));
}

fn same_options(wanted: &SocketOptions, real: &SocketOptions) -> Result<(), Unseen> {
    let told = |options: &SocketOptions| (options.nodelay, options.keepalive, options.user_timeout);
    if told(wanted) == told(real) { Ok(()) } else { Err(format!("the kernel has {real:?}, not {wanted:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varied_options_always_differ() {
        let mut options = SocketOptions::default();
        for value in (0..10_000).map(crate::mix) {
            let before = options;
            vary(&mut options, value);
            same_options(&before, &options).expect_err("they differ");
            same_options(&options, &options).expect("they are the same");
        }
    }
}
