//! The reference: what a pool is expected to be after each step. It knows of each connection its generation and whether it must
//! still answer, and which steps make sense. It touches nothing.

use crate::policies::{By, CLOSED, Policy};
use crate::service::Origin;
use sockdrawer::Model;
use std::ops::RangeInclusive;

/// No more connections than this at once, served or waiting.
const MAX_CLIENTS: usize = 8;
/// Addresses that may be listened on.
pub(crate) const PLACES: usize = 3;
/// Number of bytes of a flood: more than the high-water mark and the kernel's buffers together.
const FLOOD: usize = 300_000;

/// Intake of connections, by the pool or at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    Open,
    Suspended,
    Refusing,
}

/// A place that is listened on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Number of the place.
    pub(crate) number: usize,
    /// A place that comes again is another.
    pub(crate) name: u64,
    pub(crate) limit: Option<usize>,
    pub(crate) intake: Intake,
}

impl Place {
    fn new(number: usize, name: u64) -> Place {
        Place { number, name, limit: None, intake: Intake::Open }
    }
}

/// Served connections that a step means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom {
    All,
    /// Connections of generations before the one in force.
    Old,
    /// Connections of the generation in force.
    New,
    /// A single served connection, by its place, counted around.
    One(usize),
}

/// Step of a case. Connections are named by their place among the served ones, counted around.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Start,
    Stop,
    /// Connect to the n-th address that is listened on.
    Connect(usize),
    /// Connect to an address that is not listened on, or not any more.
    ConnectNowhere,
    Close(usize),
    /// A client that waits in the kernel goes away.
    CloseWaiting,
    /// A request, whole or the rest of one, and its answer, after what was not read yet.
    Check(usize),
    /// The first bytes of a request.
    Half(usize),
    /// A long answer that is not read yet.
    Flood(usize),
    /// Another service: another type, another version.
    Protocol,
    /// Change to other settings under one service.
    Settings,
    /// Another service together with what the system refuses.
    Refused,
    /// Loops, or processes in their place.
    Loops(usize),
    Listen,
    Unlisten(usize),
    /// An address goes, another comes, in one change.
    Replace(usize),
    /// Change to new sockets at an address that stays.
    Renew(usize),
    /// Policy above the limits, and the part that decides it.
    Admission(Policy, By),
    Limit(Option<usize>),
    /// The limit of an address.
    LimitAt(usize, Option<usize>),
    Intake(Intake),
    IntakeAt(usize, Intake),
    Adopt(Whom),
    Purge(Whom),
    Drain(Whom),
    Kill(usize),
    Notify(Whom),
    /// A note by the handle of one.
    Speak(usize),
    /// Notes by the handles of all that are gone.
    SpeakToGone,
    /// A loop, or process, counted around.
    Crash(usize),
    /// Another pool takes over, as a new build of a program does.
    Upgrade,
    /// Another pool is about to, and dies before it does.
    GivenUpUpgrade,
}

/// A connection that must answer.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) name: u64,
    /// The name of the place where it came in.
    pub(crate) place: u64,
    pub(crate) origin: Origin,
    pub(crate) sum: u64,
    /// The first bytes of a request were sent.
    pub(crate) half: bool,
    /// Bytes that it was sent and has not read.
    pub(crate) owed: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// Lane of the case; cases of other lanes run meanwhile.
    pub(crate) lane: u8,
    pub(crate) model: Model,
    pub(crate) running: bool,
    pub(crate) version: u32,
    pub(crate) generation: u32,
    pub(crate) loops: usize,
    pub(crate) limit: Option<usize>,
    pub(crate) policy: Policy,
    pub(crate) by: By,
    pub(crate) intake: Intake,
    /// Places that are listened on, in order.
    pub(crate) places: Vec<Place>,
    pub(crate) served: Vec<Served>,
    /// Connections in the kernel's queue, all of them at one place.
    pub(crate) waiting: usize,
    /// Place at which clients wait, as it is, or was when it was removed.
    pub(crate) waiting_at: Place,
    /// Clients wait at sockets that are on their way out.
    pub(crate) orphaned: bool,
    /// The most that may lie in the queue and are gone already.
    pub(crate) ghosts: usize,
    /// Connections that waited and are to be turned away by this step.
    pub(crate) turned_away: usize,
    /// Bytes that the clients to be turned away are told.
    pub(crate) farewell: &'static [u8],
    pub(crate) restarts: usize,
    /// Number of connections ever served and of places ever listened on: the next name.
    pub(crate) names: u64,
}

impl Reference {
    pub(crate) fn new(model: Model, lane: u8) -> Reference {
        Reference {
            lane,
            model,
            running: true,
            version: 1,
            generation: 1,
            loops: if model == Model::Threads { 1 } else { 2 },
            limit: Some(3),
            policy: Policy::Wait,
            by: By::Limits,
            intake: Intake::Open,
            places: vec![Place::new(0, 0)],
            served: Vec::new(),
            waiting: 0,
            waiting_at: Place::new(0, 0),
            orphaned: false,
            ghosts: 0,
            turned_away: 0,
            farewell: b"",
            restarts: 0,
            names: 0,
        }
    }

    /// Returns how many connections were let in at a place.
    pub(crate) fn served_at(&self, place: &Place) -> usize {
        self.served.iter().filter(|one| one.place == place.name).count()
    }

    /// Returns how many connections a pool may count at a place: a loop that waits for a permit of the pool may have one of the
    /// place.
    pub(crate) fn may_count(&self, place: &Place) -> RangeInclusive<usize> {
        let here = self.served_at(place);
        let waiting = if self.waiting_at.name == place.name { self.waiting + self.ghosts } else { 0 };
        here..=here + waiting
    }

    /// Returns how many more connections may be let in at a place.
    fn free_at(&self, place: &Place) -> usize {
        let free = |limit: Option<usize>, taken| limit.map_or(usize::MAX, |limit| limit.saturating_sub(taken));
        free(self.limit, self.served.len()).min(free(place.limit, self.served_at(place)))
    }

    /// Returns true where no connection is taken at a place.
    fn is_shut(&self, place: &Place) -> bool {
        self.intake == Intake::Suspended || place.intake == Intake::Suspended
    }

    /// Returns true where all connections are turned away at a place that is not shut.
    fn refuses(&self, place: &Place) -> bool {
        self.intake == Intake::Refusing || place.intake == Intake::Refusing
    }

    /// Returns the place where clients wait, as it is now.
    fn waiting_place(&self) -> Place {
        let now = self.places.iter().find(|place| place.name == self.waiting_at.name);
        *now.unwrap_or(&self.waiting_at)
    }

    /// Its place among the served, whatever number was drawn.
    pub(crate) fn nth(&self, number: usize) -> usize {
        number % self.served.len()
    }

    /// Returns the n-th of the places that are listened on, counted around.
    pub(crate) fn place(&self, number: usize) -> Place {
        self.places[number % self.places.len()]
    }

    /// Returns the n-th place, to be changed.
    fn place_mut(&mut self, number: usize) -> &mut Place {
        let count = self.places.len();
        &mut self.places[number % count]
    }

    fn takes(&self, whom: Whom, place: usize) -> bool {
        match whom {
            Whom::All => true,
            Whom::Old => self.served[place].origin.generation < self.generation,
            Whom::New => self.served[place].origin.generation == self.generation,
            Whom::One(number) => place == self.nth(number),
        }
    }

    /// Returns the places of the connections that are meant.
    pub(crate) fn meant(&self, whom: Whom) -> Vec<usize> {
        (0..self.served.len()).filter(|place| self.takes(whom, *place)).collect()
    }

    /// Returns the generations with connections, and the one in force.
    pub(crate) fn generations(&self) -> Vec<(u32, usize)> {
        let count = |id: u32| self.served.iter().filter(|one| one.origin.generation == id).count();
        (1..=self.generation).map(|id| (id, count(id))).filter(|(id, count)| *count > 0 || *id == self.generation).collect()
    }

    /// Returns the version and the generation that answer new connections.
    pub(crate) fn origin(&self) -> Origin {
        Origin { version: self.version, generation: self.generation }
    }

    /// Returns true where the pool can be changed to this number of loops.
    pub(crate) fn has_loops(&self, loops: usize) -> bool {
        loops == 1 || loops > 1 && self.model != Model::Threads
    }

    /// Returns true where the model has such a policy: processes share neither code nor the count of each peer.
    pub(crate) fn has_policy(&self, by: By) -> bool {
        self.model != Model::Prefork || matches!(by, By::Limits | By::Rate)
    }

    /// Returns true where this step makes sense now, and its outcome is certain.
    pub(crate) fn allows(&self, step: &Step) -> bool {
        if !self.running {
            return matches!(step, Step::Start | Step::ConnectNowhere);
        }
        match *step {
            Step::Start => false,
            // Without permits no client that waits can be served before the end.
            Step::Stop => self.waiting + self.ghosts == 0 || self.serves_at_the_end(),
            Step::Connect(number) => self.may_connect(number),
            Step::ConnectNowhere => !self.orphaned && self.places.len() < PLACES,
            Step::CloseWaiting => self.waiting > 0 && self.policy == Policy::Wait,
            Step::Close(_) | Step::Check(_) | Step::Kill(_) | Step::Crash(_) if self.served.is_empty() => false,
            Step::Half(number) => !self.served.is_empty() && !self.served[self.nth(number)].half,
            Step::Flood(number) => !self.served.is_empty() && !self.served[self.nth(number)].half && self.owes_nothing(number),
            Step::Listen => !self.orphaned && self.places.len() < PLACES,
            Step::Unlisten(number) => self.places.len() > 1 && self.may_remove(number),
            Step::Replace(number) => self.places.len() < PLACES && self.may_remove(number),
            Step::Renew(number) => self.may_remove(number),
            // A connection that is gone takes a permit for a moment, and with it another's chance.
            Step::Admission(policy, _) => policy == Policy::Wait || self.ghosts == 0,
            Step::Intake(intake) => self.intake != intake,
            Step::IntakeAt(number, intake) => self.place(number).intake != intake,
            Step::Adopt(Whom::One(_)) | Step::Purge(Whom::One(_)) | Step::Drain(Whom::One(_)) | Step::Notify(Whom::One(_)) => {
                !self.served.is_empty()
            }
            // A client that is served meanwhile may be meant, too, or not.
            Step::Purge(Whom::All | Whom::New) | Step::Drain(Whom::All | Whom::New) => self.waiting == 0,
            // Where connections live in other processes, so do their handles.
            Step::Speak(_) => !self.served.is_empty() && self.model != Model::Prefork,
            Step::SpeakToGone => self.model != Model::Prefork,
            // A socket that retires has to be empty first, and a pool without permits does not start.
            Step::Upgrade | Step::GivenUpUpgrade => !self.orphaned && self.limit != Some(0),
            _ => true,
        }
    }

    fn owes_nothing(&self, number: usize) -> bool {
        self.served[self.nth(number)].owed == 0
    }

    /// Returns true where all clients that wait now are served before the pool ends.
    fn serves_at_the_end(&self) -> bool {
        let at = self.waiting_place();
        self.limit != Some(0) && at.limit != Some(0) && self.policy == Policy::Wait && !self.refuses(&at)
    }

    /// Returns true where a client may connect: clients wait at one place only, so that it is certain which are served when that
    /// place is removed.
    fn may_connect(&self, number: usize) -> bool {
        let place = self.place(number);
        let without_room = self.free_at(&place) == 0 && self.policy == Policy::Wait && !self.refuses(&place);
        let would_wait = self.is_shut(&place) || without_room;
        let other_place = self.waiting + self.ghosts > 0 && (self.orphaned || self.waiting_at.name != place.name);
        self.served.len() + self.waiting < MAX_CLIENTS && !(would_wait && other_place)
    }

    fn may_remove(&self, number: usize) -> bool {
        let elsewhere = self.waiting + self.ghosts == 0 || self.waiting_at.name != self.place(number).name;
        !self.orphaned && (self.policy == Policy::Wait || elsewhere)
    }

    /// Returns the state that the step leaves behind.
    pub(crate) fn after(mut self, step: &Step) -> Reference {
        self.turned_away = 0;
        match *step {
            Step::Start => {
                let (model, lane, names) = (self.model, self.lane, self.names);
                self = Reference { names, ..Reference::new(model, lane) };
            }
            Step::Stop => self.stop(),
            Step::Connect(number) => self.connect(number),
            Step::Close(number) | Step::Kill(number) => _ = self.served.remove(self.nth(number)),
            Step::CloseWaiting => {
                self.waiting -= 1;
                self.ghosts += 1;
            }
            Step::Check(number) => self.check(number),
            Step::Half(number) => self.one(number).half = true,
            Step::Flood(number) => self.one(number).owed = FLOOD,
            Step::Protocol => {
                self.version += 1;
                self.generation += 1;
            }
            Step::Settings => self.generation += 1,
            Step::Loops(loops) if self.has_loops(loops) => self.loops = loops,
            Step::Listen => self.listen(),
            Step::Unlisten(number) => self.unlisten(self.place(number)),
            Step::Replace(number) => {
                let place = self.place(number);
                self.listen();
                self.unlisten(place);
            }
            Step::Renew(number) => self.retire(self.place(number)),
            Step::Admission(policy, by) if self.has_policy(by) => (self.policy, self.by) = (policy, by),
            Step::Limit(limit) => self.limit = limit,
            Step::LimitAt(number, limit) if limit != Some(0) => self.place_mut(number).limit = limit,
            Step::Intake(intake) => self.intake = intake,
            Step::IntakeAt(number, intake) => self.place_mut(number).intake = intake,
            Step::Adopt(whom) => self.adopt(whom),
            Step::Purge(whom) | Step::Drain(whom) => self.end(whom),
            Step::Crash(_) => {
                self.served.clear();
                self.restarts += 1;
            }
            // A note comes after what was sent before it, which is read with it.
            Step::Notify(whom) => self.meant(whom).into_iter().for_each(|place| self.served[place].owed = 0),
            Step::Speak(number) => self.one(number).owed = 0,
            Step::Upgrade => self.upgrade(),
            Step::ConnectNowhere | Step::Refused | Step::Loops(_) | Step::SpeakToGone | Step::GivenUpUpgrade => {}
            Step::Admission(..) | Step::LimitAt(..) => {}
        }
        self.promote();
        self
    }

    fn one(&mut self, number: usize) -> &mut Served {
        let place = self.nth(number);
        &mut self.served[place]
    }

    fn stop(&mut self) {
        self.running = false;
        self.served.clear();
        (self.waiting, self.ghosts, self.orphaned) = (0, 0, false);
    }

    /// Adds a connection that waits first; [`Reference::promote`] says whether it stays so.
    fn connect(&mut self, number: usize) {
        let place = self.place(number);
        if self.waiting + self.ghosts == 0 {
            self.waiting_at = place;
        }
        if self.is_shut(&place) {
            self.waiting += 1;
        } else if self.refuses(&place) {
            (self.turned_away, self.farewell) = (1, CLOSED);
        } else if self.free_at(&place) > 0 {
            // Others may wait elsewhere, for a reason of theirs.
            self.serve(1, place);
        } else if self.policy != Policy::Wait {
            (self.turned_away, self.farewell) = (1, self.policy.farewell());
        } else {
            self.waiting += 1;
        }
    }

    fn check(&mut self, number: usize) {
        let one = self.one(number);
        one.sum += 1;
        one.half = false;
        one.owed = 0;
    }

    fn listen(&mut self) {
        let is_free = |number: &usize| self.places.iter().all(|place| place.number != *number);
        let free = (0..PLACES).find(is_free).expect("one is free");
        self.names += 1;
        self.places.push(Place::new(free, self.names));
    }

    fn unlisten(&mut self, place: Place) {
        self.retire(place);
        self.places.retain(|other| other.name != place.name);
    }

    /// Retires a place: clients that wait there are served, also while the pool or the place is suspended, as soon as there are
    /// permits.
    fn retire(&mut self, place: Place) {
        if self.waiting_at.name == place.name && self.waiting + self.ghosts > 0 {
            (self.waiting_at, self.orphaned) = (place, true);
        }
    }

    fn adopt(&mut self, whom: Whom) {
        for place in self.meant(whom) {
            self.served[place].origin = self.origin();
        }
    }

    fn end(&mut self, whom: Whom) {
        let meant = self.meant(whom);
        let mut place = 0;
        self.served.retain(|_| {
            place += 1;
            !meant.contains(&(place - 1))
        });
    }

    /// The next pool has the configuration of the one before it, and what is suspended or refuses does so there; generations and restarts begin anew.
    fn upgrade(&mut self) {
        (self.generation, self.restarts) = (1, 0);
        let origin = self.origin();
        self.served.iter_mut().for_each(|one| one.origin = origin);
    }

    /// Serves the clients that may be served now and turns away those that may not wait.
    fn promote(&mut self) {
        let at = self.waiting_place();
        if !self.running || !self.orphaned && self.is_shut(&at) {
            return;
        }
        let refused = self.refuses(&at);
        if !refused {
            let served = self.free_at(&at).min(self.waiting);
            self.waiting -= served;
            self.serve(served, at);
        }
        if refused || self.policy != Policy::Wait {
            if self.waiting > 0 {
                self.farewell = if refused { CLOSED } else { self.policy.farewell() };
            }
            self.turned_away += std::mem::take(&mut self.waiting);
            self.ghosts = 0;
        }
        if self.free_at(&at) > 0 {
            self.ghosts = 0;
        }
        self.orphaned &= self.waiting + self.ghosts > 0;
    }

    fn serve(&mut self, count: usize, at: Place) {
        for _ in 0..count {
            self.names += 1;
            let (origin, place) = (self.origin(), at.name);
            self.served.push(Served { name: self.names, place, origin, sum: 0, half: false, owed: 0 });
        }
    }
}
