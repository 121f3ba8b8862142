//! The connections of a run, and a pool of each process that keeps the books of them in the place of serving them.

use super::schedule::{NEW, OLD, World};
use crate::admission::AcceptState;
use crate::config::{Config, Listening, Model, Part};
use crate::error::Error;
use crate::event_loop::connections::moving::{ListenerStates, Offered, Reading, SendOffer};
use crate::gather::ReplyTo;
use crate::ipc::messages::Held;
use crate::ipc::record::{Record, Restored};
use crate::ipc::yours::Yours;
use crate::listen::socket::ListenSocket;
use crate::listen::state::ListenerState;
use crate::net::Address;
use crate::observe::{Event, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::pool::behind::Behind;
use crate::pool::manager::Manager;
use crate::pool::members::Visit;
use crate::pool::moving::{FrozenBy, Holder, Movable};
use crate::pool::plan::Applied;
use crate::pool::request::{Reply, Request};
use crate::pool::{Inherited, ListeningSockets};
use crate::protocol::{Connect, State, Told};
use crate::sys::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections of one offer.
const SLICE: usize = 2;
/// Pools of each process. Those of both move together, or none.
pub(super) const POOLS: u64 = 2;

/// Returns the pool of a connection.
fn pool_of(id: u64) -> u64 {
    id % POOLS
}

/// A connection as one process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    No,
    /// The connection acts.
    Acts,
    Frozen {
        offered: bool,
    },
    /// Restored from a copy of this age.
    Restored(u64),
    /// The connection was served to its end.
    Served,
}

/// A connection: how often its state changed, and as each process has it.
#[derive(Clone, Copy, Debug)]
struct Connection {
    changes: u64,
    here: [Here; 2],
}

/// The books of a run.
pub(super) struct Books {
    /// The connections share what is carried, and move together.
    together: bool,
    connections: BTreeMap<u64, Connection>,
    /// True where a pool accepts, for each process and each pool.
    accepts: [[bool; POOLS as usize]; 2],
    killed: [bool; 2],
    /// The new process has said that it stands.
    pub(super) settled: bool,
    /// The new process may have a copy of what they share.
    pub(super) carried: bool,
    /// The new process has changed what both listen at.
    changed: bool,
    /// The end of each: why it does not take over, or goes on.
    returned: [Option<Option<String>>; 2],
    wrong: Option<String>,
}

impl Books {
    pub(super) fn new(connections: u64, together: bool) -> Books {
        let connection = Connection { changes: 0, here: [Here::Acts, Here::No] };
        Books {
            together,
            connections: (1..=connections).map(|id| (id, connection)).collect(),
            accepts: [[true; POOLS as usize], [false; POOLS as usize]],
            killed: [false; 2],
            settled: false,
            carried: false,
            changed: false,
            returned: [None, None],
            wrong: None,
        }
    }

    /// Notes the first thing that is wrong, which ends the run.
    pub(super) fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    pub(super) fn is_over(&self) -> bool {
        self.wrong.is_some()
    }

    pub(super) fn died(&mut self, side: usize) {
        self.killed[side] = true;
    }

    pub(super) fn returned(&mut self, side: usize, refused: Option<String>) {
        self.returned[side] = Some(refused);
    }

    fn lives(&self, side: usize) -> bool {
        !self.killed[side]
    }

    /// Has a connection act from now on: its state is another one with each act.
    fn acts(&mut self, side: usize, id: u64) {
        let (other, lives) = (1 - side, self.lives(1 - side));
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.here[side] = Here::Acts;
        connection.changes += 1;
        if lives && connection.here[other] == Here::Acts {
            self.wrong(format!("connection {id} acts in both processes"));
        }
        if self.together && side == OLD && self.carried && lives && self.returned[NEW].is_none() {
            self.wrong(format!("connection {id} changes what the new process has an old copy of"));
        }
    }

    fn was_not_sent(&mut self, side: usize, id: u64) {
        match self.together {
            true => self.set(side, id, Here::Frozen { offered: false }),
            false => self.acts(side, id),
        }
    }

    fn thaw(&mut self, (side, pool): (usize, u64)) {
        for id in self.of((side, pool), |here| matches!(here, Here::Frozen { .. })) {
            self.acts(side, id);
        }
    }

    fn of(&self, (side, pool): (usize, u64), is: impl Fn(Here) -> bool) -> Vec<u64> {
        let of_pool = self.connections.iter().filter(|(id, _)| pool_of(**id) == pool);
        of_pool.filter(|(_, one)| is(one.here[side])).map(|(id, _)| *id).collect()
    }

    fn set(&mut self, side: usize, id: u64, here: Here) {
        self.connections.get_mut(&id).expect("it is known").here[side] = here;
    }

    fn accept(&mut self, (side, pool): (usize, u64)) {
        self.accepts[side][pool as usize] = true;
        if self.accepts[1 - side][pool as usize] && self.lives(1 - side) {
            self.wrong(format!("both processes accept for pool {pool}"));
        }
    }

    /// Returns what is wrong at the end of a run.
    pub(super) fn judge(&mut self) -> Option<String> {
        for pool in 0..POOLS as usize {
            let accepts = [OLD, NEW].map(|side| self.accepts[side][pool] && self.lives(side));
            if accepts == [false; 2] && self.lives(OLD) && (self.lives(NEW) || !self.settled) {
                self.wrong(format!("no process accepts for pool {pool}, and the old one lives"));
            }
        }
        for (id, Connection { here, .. }) in self.connections.clone() {
            let has = |side: usize| self.lives(side) && matches!(here[side], Here::Acts | Here::Served);
            let lost_with =
                [OLD, NEW].into_iter().any(|side| !self.lives(side) && matches!(here[side], Here::Acts | Here::Served));
            // A killed process had what it had not offered, or offered to nobody that lives.
            let was_frozen = !self.lives(OLD) && matches!(here[OLD], Here::Frozen { .. });
            let was_coming = !self.lives(NEW) && matches!(here[NEW], Here::Restored(_) | Here::No) && here[OLD] == Here::No;
            if !has(OLD) && !has(NEW) && !lost_with && !was_frozen && !was_coming {
                self.wrong(format!("connection {id} is lost: {here:?}"));
            }
            if matches!(here[OLD], Here::Frozen { .. }) && self.lives(OLD) {
                self.wrong(format!("connection {id} is frozen for ever"));
            }
        }
        let wrong = self.wrong.take();
        wrong.map(|wrong| format!("{wrong}; killed {:?}, returned {:?}, {:?}", self.killed, self.returned, self.connections))
    }
}

/// A pool that keeps books.
pub(super) struct Fake {
    world: Arc<World>,
    side: usize,
    pool: u64,
    together: bool,
    holder: Arc<FakeHolder>,
}

impl Fake {
    pub(super) fn new(world: &Arc<World>, side: usize, pool: u64, together: bool) -> Fake {
        let holder = Arc::new(FakeHolder { world: world.clone(), side, pool });
        Fake { world: world.clone(), side, pool, together, holder }
    }
}

struct FakeHolder {
    world: Arc<World>,
    side: usize,
    pool: u64,
}

impl Holder for FakeHolder {
    fn offer(&self, _: &Reading, from: u64, send: SendOffer) -> Result<Offered, Errno> {
        let mut records = Vec::new();
        let next = {
            let books = &mut self.world.state().books;
            let can_go = |here| matches!(here, Here::Acts | Here::Frozen { offered: false });
            let mut ids = books.of((self.side, self.pool), can_go).into_iter().filter(|id| *id >= from);
            for id in ids.by_ref().take(SLICE) {
                let mut record = Record::default();
                (record.id, record.bytes_in) = (id, books.connections[&id].changes);
                records.push(record);
            }
            ids.next()
        };
        for record in &records {
            self.world.state().books.set(self.side, record.id, Here::Frozen { offered: true });
        }
        let offered = Offered { count: records.len(), next, ..Offered::default() };
        if !records.is_empty() {
            let ids: Vec<u64> = records.iter().map(|record| record.id).collect();
            send(records, next, &[])
                .inspect_err(|_| ids.iter().for_each(|id| self.world.state().books.was_not_sent(self.side, *id)))?;
        }
        Ok(offered)
    }

    fn ask(&self, request: Request, _: Vec<OwnedFd>, reply: ReplyTo<Reply>) {
        reply.answer(match request {
            Request::LetGo(restored) => Reply::LetGo(self.let_those_go(&restored)),
            Request::Restore(records) => {
                let books = &mut self.world.state().books;
                records.iter().for_each(|record| books.set(self.side, record.id, Here::Restored(record.bytes_in)));
                Reply::Restored(Restored { ids: records.iter().map(|record| record.id).collect(), reasons: Vec::new() })
            }
            Request::Seat { yours, .. } => {
                self.seat_those(&yours.ids);
                Reply::Seated(yours.ids.iter().map(|_| None).collect())
            }
            _ => Reply::Done,
        });
    }
}

impl FakeHolder {
    fn let_those_go(&self, restored: &[u64]) -> Yours {
        let books = &mut self.world.state().books;
        let is_offered = |here| here == Here::Frozen { offered: true };
        let gone: Vec<u64> =
            books.of((self.side, self.pool), is_offered).into_iter().filter(|id| restored.contains(id)).collect();
        gone.iter().for_each(|id| books.set(self.side, *id, Here::No));
        books.thaw((self.side, self.pool));
        Yours { ids: gone, ..Yours::default() }
    }

    fn seat_those(&self, ids: &[u64]) {
        let books = &mut self.world.state().books;
        let restored = books.of((self.side, self.pool), |here| matches!(here, Here::Restored(_)));
        for id in &restored {
            let Here::Restored(changes) = books.connections[id].here[self.side] else { continue };
            if !ids.contains(id) {
                books.set(self.side, *id, Here::No);
                continue;
            }
            if changes != books.connections[id].changes {
                books.wrong(format!("connection {id} goes on from an old copy"));
            }
            books.acts(self.side, *id);
        }
    }
}

impl Movable for Fake {
    fn tell_event(&self, _: &Event) {}

    fn listening_sockets(&self) -> Vec<ListeningSockets<Arc<ListenSocket>>> {
        Vec::new()
    }

    fn listens(&self) -> bool {
        true
    }

    fn listener_states(&self) -> ListenerStates {
        Arc::new([])
    }

    fn state(&self) -> State {
        if self.together { State::of("fake", 1).together() } else { State::of("fake", 1) }
    }

    fn limit(&self) -> u64 {
        100
    }

    fn holders(&self) -> Vec<Arc<dyn Holder>> {
        vec![self.holder.clone()]
    }

    fn revision(&self) -> u64 {
        1
    }

    fn held(&self) -> u64 {
        self.world.state().books.of((self.side, self.pool), |here| matches!(here, Here::Acts | Here::Frozen { .. })).len() as u64
    }

    fn what_is_held(&self, name: &str, _: bool) -> Held {
        Held { name: name.to_owned(), connections: self.held(), ..Held::default() }
    }

    fn turns(&self, _: Duration) -> bool {
        true
    }

    fn is_running(&self) -> bool {
        true
    }

    fn wait_for_retired(&self, _: Duration) -> bool {
        true
    }

    fn plan_to_move(&self, _: &State, _: Option<Duration>) -> (u64, BTreeMap<String, u64>) {
        (self.held(), BTreeMap::new())
    }

    fn stay_as_it_is(&self, _: u64) -> bool {
        true
    }

    fn hand_over_at(&self, _: &[String], _: u64, _: Duration) -> bool {
        true
    }

    fn listen_too(&self, _: Inherited) -> Result<(), Error> {
        Ok(())
    }

    fn hand_over(&self, _: Duration) -> bool {
        self.world.state().books.accepts[self.side][self.pool as usize] = false;
        true
    }

    fn take_back(&self) {
        let books = &mut self.world.state().books;
        if books.changed {
            books.wrong("the old process takes back what the new one has changed".to_owned());
        }
        books.accept((self.side, self.pool));
    }

    fn freeze(&self, _: &State, _: Instant) -> Vec<FrozenBy> {
        let books = &mut self.world.state().books;
        for id in books.of((self.side, self.pool), |here| here == Here::Acts) {
            books.set(self.side, id, Here::Frozen { offered: false });
        }
        Vec::new()
    }

    fn gathers(&self) -> bool {
        self.together
    }

    fn thaw(&self, _: bool) {
        self.world.state().books.thaw((self.side, self.pool));
    }

    fn forget_handed_over(&self) {}

    fn wait_for_none(&self, _: Option<Instant>) -> bool {
        let books = &mut self.world.state().books;
        books
            .of((self.side, self.pool), |here| here == Here::Acts)
            .into_iter()
            .for_each(|id| books.set(self.side, id, Here::Served));
        true
    }

    fn end_with_successor(&self, _: Drain) {}

    fn end_handed_over(&self) {}

    fn go_on(&self, _: &Held) {}

    fn open(&self) {
        self.world.state().books.accept((self.side, self.pool));
    }

    fn take_for_good(&self) {
        self.world.state().books.changed |= self.side == NEW;
    }

    fn takers(&self) -> Vec<Arc<dyn Holder>> {
        self.holders()
    }

    fn occupied(&self, _: &Held) -> Vec<(Arc<ListenerState>, u64)> {
        Vec::new()
    }

    fn count_predecessor(&self, _: &Held) {}

    fn count_no_more_elsewhere(&self) {}

    fn elsewhere(&self) -> Option<u64> {
        None
    }

    fn release(&self, _: u64) {}
    fn hold(&self, _: u64) {}

    fn follow(&self, _: Arc<dyn Behind>) {}

    fn bring(&self, _: Op, _: &Selector) {}

    fn listen_no_more_at(&self, _: &[Address]) {}
}

/// A conversation asks none of this.
impl Manager for Fake {
    fn config(&self) -> Config {
        unreachable!()
    }

    fn unlocked(&self) -> Option<(Model, Vec<Address>)> {
        None
    }

    fn addresses(&self) -> Vec<Address> {
        Vec::new()
    }

    fn reconfigure(&self, _: Config) -> Result<Applied, Error> {
        unreachable!()
    }

    fn pass_on(&self, _: &Address) -> Result<Listening, Error> {
        unreachable!()
    }

    fn set_accept_state(&self, _: &AcceptState) {}

    fn set_listener_accept_state(&self, _: &Address, _: &AcceptState) -> Result<(), Error> {
        unreachable!()
    }

    fn apply(&self, _: Op, _: &Selector) -> Result<Outcome, Error> {
        unreachable!()
    }

    fn visit_locals(&self, _: Visit) {}

    fn connect(&self, _: Connect, _: Told) {}

    fn status(&self) -> Status {
        unreachable!()
    }

    fn wait(&self, _: Duration, _: &mut dyn FnMut(&Status) -> bool) -> bool {
        unreachable!()
    }

    fn shutdown(&self, _: Drain, _: &str) -> Drained {
        unreachable!()
    }

    fn join(&self) -> Result<(), Error> {
        unreachable!()
    }

    fn stop(&self, _: &str) {}

    fn waited_code(&self) -> Option<&'static str> {
        None
    }

    fn crash(&self, _: Part, _: usize) -> bool {
        false
    }
}
