//! The reference: what a pool is expected to be after each step. It knows of each connection its generation and whether it must
//! still answer, and which steps make sense. It touches nothing.

use crate::service::Origin;
use sockdrawer::Model;

/// No more connections than this at once, served or waiting.
const MOST_CLIENTS: usize = 8;
/// Addresses that may be listened on.
pub(crate) const PLACES: usize = 3;
/// Bytes of a flood: more than the high-water mark and the kernel's buffers together.
const FLOOD: usize = 300_000;

/// What happens above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Wait,
    Fin,
    Bytes,
}

/// Which served connections a step means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom {
    All,
    /// Those of generations before the one in force.
    Old,
    /// Those of the generation in force.
    New,
    /// One of them, counted around.
    One(usize),
}

/// One step. Connections are named by their place among the served ones, counted around.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Start,
    Stop,
    /// To the n-th address that is listened on.
    Connect(usize),
    /// To an address that is not, or not any more.
    ConnectNowhere,
    Close(usize),
    /// One that waits in the kernel goes away.
    CloseWaiting,
    /// A request, whole or the rest of one, and its answer, after what was not read yet.
    Check(usize),
    /// The first bytes of a request.
    Half(usize),
    /// A long answer that is not read yet.
    Flood(usize),
    /// Another service: another type, another version.
    Protocol,
    /// Other settings under the same service.
    Settings,
    /// Another service together with what the system refuses.
    Refused,
    /// Loops, or processes in their place.
    Loops(usize),
    Listen,
    Unlisten(usize),
    /// An address goes, another comes, in one change.
    Replace(usize),
    Admission(Policy),
    Limit(Option<usize>),
    Suspend,
    Resume,
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
}

/// A connection that must answer.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) name: u64,
    pub(crate) origin: Origin,
    pub(crate) sum: u64,
    /// The first bytes of a request were sent.
    pub(crate) half: bool,
    /// Bytes that it was sent and has not read.
    pub(crate) owed: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) model: Model,
    pub(crate) running: bool,
    pub(crate) version: u32,
    pub(crate) generation: u32,
    pub(crate) loops: usize,
    pub(crate) limit: Option<usize>,
    pub(crate) policy: Policy,
    pub(crate) suspended: bool,
    /// Places that are listened on, in order.
    pub(crate) places: Vec<usize>,
    pub(crate) served: Vec<Served>,
    /// Connections in the kernel's queue, all of them at one place.
    pub(crate) waiting: usize,
    pub(crate) waiting_at: usize,
    /// The place where they wait was removed.
    pub(crate) orphaned: bool,
    /// The most that may lie in the queue and are gone already.
    pub(crate) ghosts: usize,
    /// Connections that waited and are to be turned away by this step.
    pub(crate) turned_away: usize,
    pub(crate) restarts: usize,
    /// How many were ever served: the next name.
    pub(crate) names: u64,
}

impl Reference {
    pub(crate) fn new(model: Model) -> Reference {
        Reference {
            model,
            running: true,
            version: 1,
            generation: 1,
            loops: if model == Model::Threads { 1 } else { 2 },
            limit: Some(3),
            policy: Policy::Wait,
            suspended: false,
            places: vec![0],
            served: Vec::new(),
            waiting: 0,
            waiting_at: 0,
            orphaned: false,
            ghosts: 0,
            turned_away: 0,
            restarts: 0,
            names: 0,
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.served.len()))
    }

    /// Its place among the served, whatever number was drawn.
    pub(crate) fn nth(&self, number: usize) -> usize {
        number % self.served.len()
    }

    /// The n-th of the places that are listened on, counted around.
    pub(crate) fn place(&self, number: usize) -> usize {
        self.places[number % self.places.len()]
    }

    fn takes(&self, whom: Whom, place: usize) -> bool {
        match whom {
            Whom::All => true,
            Whom::Old => self.served[place].origin.generation < self.generation,
            Whom::New => self.served[place].origin.generation == self.generation,
            Whom::One(number) => place == self.nth(number),
        }
    }

    /// The places of those that are meant.
    pub(crate) fn meant(&self, whom: Whom) -> Vec<usize> {
        (0..self.served.len()).filter(|place| self.takes(whom, *place)).collect()
    }

    /// The generations with connections, and the one in force.
    pub(crate) fn generations(&self) -> Vec<(u32, usize)> {
        let count = |id: u32| self.served.iter().filter(|one| one.origin.generation == id).count();
        (1..=self.generation).map(|id| (id, count(id))).filter(|(id, count)| *count > 0 || *id == self.generation).collect()
    }

    /// Who answers new connections.
    pub(crate) fn origin(&self) -> Origin {
        Origin { version: self.version, generation: self.generation }
    }

    /// Whether loops can be changed to this number.
    pub(crate) fn has_loops(&self, loops: usize) -> bool {
        loops == 1 || loops > 1 && self.model != Model::Threads
    }

    /// Whether this step makes sense now, and its outcome is certain.
    pub(crate) fn allows(&self, step: &Step) -> bool {
        if !self.running {
            return matches!(step, Step::Start | Step::ConnectNowhere);
        }
        match *step {
            Step::Start => false,
            // Without permits nobody who waits can be served before the end.
            Step::Stop => self.waiting + self.ghosts == 0 || self.limit != Some(0) && self.policy == Policy::Wait,
            Step::Connect(number) => self.may_connect(number),
            Step::ConnectNowhere => !self.orphaned && self.places.len() < PLACES,
            Step::CloseWaiting => self.waiting > 0 && self.policy == Policy::Wait,
            Step::Close(_) | Step::Check(_) | Step::Kill(_) | Step::Crash(_) if self.served.is_empty() => false,
            // What waits at a removed address belongs to loops.
            Step::Crash(_) => !self.orphaned,
            Step::Half(number) => !self.served.is_empty() && !self.served[self.nth(number)].half,
            Step::Flood(number) => !self.served.is_empty() && !self.served[self.nth(number)].half && self.owes_nothing(number),
            Step::Listen => !self.orphaned && self.places.len() < PLACES,
            Step::Unlisten(number) => self.places.len() > 1 && self.may_remove(number),
            Step::Replace(number) => self.places.len() < PLACES && self.may_remove(number),
            // A connection that is gone takes a permit for a moment, and with it another's chance.
            Step::Admission(policy) => policy == Policy::Wait || self.ghosts == 0 && !(self.suspended && self.orphaned),
            Step::Suspend => !self.suspended,
            Step::Resume => self.suspended,
            Step::Adopt(Whom::One(_)) | Step::Purge(Whom::One(_)) | Step::Drain(Whom::One(_)) | Step::Notify(Whom::One(_)) => {
                !self.served.is_empty()
            }
            // Who is served meanwhile may be meant, too, or not.
            Step::Purge(Whom::All | Whom::New) | Step::Drain(Whom::All | Whom::New) => self.waiting == 0,
            // Where connections live in other processes, so do their handles.
            Step::Speak(_) => !self.served.is_empty() && self.model != Model::Prefork,
            Step::SpeakToGone => self.model != Model::Prefork,
            _ => true,
        }
    }

    fn owes_nothing(&self, number: usize) -> bool {
        self.served[self.nth(number)].owed == 0
    }

    /// Who waits does so at one place only: it is certain then who is served when that place is removed.
    fn may_connect(&self, number: usize) -> bool {
        let place = self.place(number);
        let would_wait = self.suspended || self.free() == 0 && self.policy == Policy::Wait;
        let other_place = self.waiting + self.ghosts > 0 && (self.orphaned || self.waiting_at != place);
        self.served.len() + self.waiting < MOST_CLIENTS && !(would_wait && other_place)
    }

    fn may_remove(&self, number: usize) -> bool {
        let place = self.place(number);
        !self.orphaned && (self.policy == Policy::Wait || self.waiting + self.ghosts == 0 || self.waiting_at != place)
    }

    /// What the step leaves behind.
    pub(crate) fn after(mut self, step: &Step) -> Reference {
        self.turned_away = 0;
        match *step {
            Step::Start => {
                let (model, names) = (self.model, self.names);
                self = Reference { names, ..Reference::new(model) };
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
            Step::Admission(policy) => self.policy = policy,
            Step::Limit(limit) => self.limit = limit,
            Step::Suspend => self.suspended = true,
            Step::Resume => self.suspended = false,
            Step::Adopt(whom) => self.adopt(whom),
            Step::Purge(whom) | Step::Drain(whom) => self.end(whom),
            Step::Crash(_) => {
                self.served.clear();
                self.restarts += 1;
            }
            // A note comes after what was sent before it, which is read with it.
            Step::Notify(whom) => self.meant(whom).into_iter().for_each(|place| self.served[place].owed = 0),
            Step::Speak(number) => self.one(number).owed = 0,
            Step::ConnectNowhere | Step::Refused | Step::Loops(_) | Step::SpeakToGone => {}
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

    /// It waits first; whether it stays so, [`Reference::promote`] says.
    fn connect(&mut self, number: usize) {
        let place = self.place(number);
        if self.waiting + self.ghosts == 0 {
            self.waiting_at = place;
        }
        if !self.suspended && (self.free() > 0 || self.policy != Policy::Wait) {
            // Others may wait elsewhere, for a reason of theirs.
            if self.free() > 0 { self.serve(1) } else { self.turned_away = 1 }
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
        let free = (0..PLACES).find(|place| !self.places.contains(place)).expect("one is free");
        self.places.push(free);
    }

    /// Who waits there is served, also while the pool is suspended, as soon as there are permits.
    fn unlisten(&mut self, place: usize) {
        self.places.retain(|other| *other != place);
        self.orphaned = self.waiting_at == place && self.waiting + self.ghosts > 0;
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

    /// Serves who may be served now and turns away who may not wait.
    fn promote(&mut self) {
        if !self.running || self.suspended && !self.orphaned {
            return;
        }
        let served = self.free().min(self.waiting);
        self.waiting -= served;
        self.serve(served);
        if self.policy != Policy::Wait {
            self.turned_away += std::mem::take(&mut self.waiting);
        }
        if self.free() > 0 || self.policy != Policy::Wait {
            self.ghosts = 0;
        }
        self.orphaned &= self.waiting + self.ghosts > 0;
    }

    fn serve(&mut self, count: usize) {
        for _ in 0..count {
            self.names += 1;
            let origin = self.origin();
            self.served.push(Served { name: self.names, origin, sum: 0, half: false, owed: 0 });
        }
    }
}
