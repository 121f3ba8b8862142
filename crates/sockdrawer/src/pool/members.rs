//! Members run the connections of a pool: loops of this process, or other processes that run loops. The control plane is written once, over this
//! trait.

use super::control::{Control, Core, Member, Started};
use super::listeners::ListenerEntry;
use crate::config::{Config, Listening, Part};
use crate::error::Error;
use crate::event_loop::notifier::Notifier;
use crate::gather::Answers;
use crate::limit::limiter::Limiter;
use crate::observe::{Event, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::protocol::{Connect, ConnectFailure, Local, Told};
use crate::sys::{Errno, System};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A visitor of what services made for their loops.
pub(crate) type Visit = Arc<dyn Fn(&mut Local) + Send + Sync>;

/// A change that is being prepared.
pub(crate) struct Changing<'a, M: Members> {
    pub(crate) wanted: &'a Config,
    pub(crate) next: Option<M::Next>,
    pub(crate) started: Started<M>,
}

/// A kind of members. A method that is given the control runs under its lock.
pub(crate) trait Members: Sized + Send + Sync + 'static {
    /// A member that runs.
    type Running: Send;
    /// The state under the lock, beside what every pool has there.
    type State: Send;
    /// A generation that is not in force yet.
    type Next;
    /// The data that a member begins with.
    type Start: Send;
    /// News for the supervisor, beside the end of a member.
    type News: Send;
    /// The answer of a member that gives sockets up.
    type GaveUp: Send;

    /// The kind of part that a member is.
    const PART: Part;
    /// True where every member accepts from an address that has only one socket.
    const SHARE_A_SOCKET: bool;
    /// True where members that die are replaced also while the pool drains.
    const REPLACED_WHILE_DRAINING: bool;
    /// The maximum time that a pool that is dropped waits for its members.
    const STOP_WITHIN: Duration;

    fn system(&self) -> &Arc<dyn System>;
    fn limiter(&self) -> &Arc<Limiter>;
    /// Returns the notifier that rings when something may have changed.
    fn notifier(&self) -> &Notifier;
    /// Tells the pool's observer.
    fn tell(&self, event: &Event);
    /// Returns the user code that this thread is in, if the pool may be waiting for it.
    fn waited_code(&self) -> Option<&'static str>;

    // Starting and changing. All that can fail comes before `commit`.

    /// Returns the number of members that a configuration asks for.
    fn wanted(config: &Config) -> usize;
    /// Checks a change, and returns the limit that it gives. None: the limit is not this pool's matter.
    fn limit(&self, own: &Self::State, wanted: &Config) -> Result<Option<usize>, Error>;
    /// Returns the generations in force or with connections, where it matters: oldest first, and how many they have.
    fn live_generations(core: &Core<Self>, control: &mut Control<Self>, wanted: &Config) -> Vec<(u32, usize)>;
    /// Makes the next generation.
    fn next(&self, control: &Control<Self>, wanted: &Config) -> Result<Self::Next, Error>;
    /// Opens an address, beside those that the pool has and those that the same change adds.
    fn open(
        core: &Core<Self>,
        control: &mut Control<Self>,
        added: &[ListenerEntry],
        asked: (&Config, &Listening),
    ) -> Result<ListenerEntry, Error>;
    /// Changes what members have besides their generation.
    fn tune(core: &Core<Self>, control: &Control<Self>, wanted: &Config) -> Result<(), Error>;
    /// Has each member prepare the next generation, if there is one, also those that this change has started.
    fn prepare(core: &Core<Self>, control: &Control<Self>, change: &Changing<'_, Self>) -> Result<(), Error>;
    /// Undoes what was done for a change that does not come, or a part of it.
    fn undo(core: &Core<Self>, control: &Control<Self>, change: &Changing<'_, Self>);
    /// Commits a change; what every pool has is changed afterwards.
    fn commit(core: &Core<Self>, control: &mut Control<Self>, wanted: &Config, next: Option<Self::Next>, limit: Option<usize>);
    /// Returns the setting whose change waits for members that may be calling a service at that moment.
    fn awaited(_before: &Config, _wanted: &Config) -> Option<&'static str> {
        None
    }
    /// Called when the change is in force, and sockets are where they should be.
    fn committed(_core: &Core<Self>, _control: &Control<Self>, _before: &Config) {}
    /// Has every member take connections, or not, as the control says by now. One that hangs is waited for until then.
    fn pass_accept_state(core: &Core<Self>, control: &mut Control<Self>, until: Instant);
    /// Has every member take connections at these addresses, or not, as their states say by now. One that hangs is waited for at most this long.
    fn pass_listener_accept_states(core: &Core<Self>, control: &Control<Self>, entries: &[&ListenerEntry], within: Duration);

    // Members that come and go.

    /// Returns what the member of this index begins with.
    fn start(core: &Core<Self>, control: &Control<Self>, config: &Config, index: usize) -> Self::Start;
    /// Starts a member; it accepts nothing yet. Without the lock where one is replaced, for it may take its time.
    fn launch(core: &Core<Self>, index: usize, life: u64, start: &Self::Start) -> Result<Self::Running, Error>;
    /// Returns true where a member that began so may become one of the pool's, after the changes that came meanwhile.
    fn is_current(control: &Control<Self>, start: &Self::Start) -> bool;
    /// Makes it one of the pool's.
    fn join(control: &mut Control<Self>, life: u64, running: &Self::Running);
    /// Ends a member that is not wanted. Its end is no death.
    fn dismiss(running: &Self::Running);
    /// Returns a number that another turn changes; None while the member waits for something to do. Asking also wakes the member: a runtime that is
    /// busy with other tasks turns its event loop only when there is something for it.
    fn beat(core: &Core<Self>, index: usize, running: &Self::Running) -> Option<u64>;
    /// Returns true where a member can be given sockets: it has not ended.
    fn can_take(_running: &Self::Running) -> bool {
        true
    }
    /// Returns the time without a turn after which a member is stuck.
    fn patience(config: &Config) -> Duration;
    /// Takes back what a member that has ended had. Returns what is to be told, and whether its end was wanted.
    fn ended(core: &Core<Self>, control: &mut Control<Self>, index: usize, life: u64) -> (Vec<Event>, bool);
    /// Hears of something else.
    fn hear(core: &Arc<Core<Self>>, news: Self::News);
    /// Restarts parts that are no members, such as workers, when their restart is due.
    fn replace_others(_core: &Arc<Core<Self>>) {}
    /// Called when nothing is replaced any more.
    fn gave_up(_core: &Core<Self>) {}
    /// Returns the time between two looks at all members.
    fn look_interval(config: &Config) -> Duration;
    /// Looks after what only these members have.
    fn look(core: &Core<Self>, control: &mut Control<Self>);

    // Sockets.

    /// Offers these sockets of an address to members; whether each took them.
    fn offer(&self, entry: &ListenerEntry, to: &[(&Member<Self>, Vec<usize>)]) -> Vec<bool>;
    /// Takes these sockets from members, that have others accept from them.
    fn release(&self, entry: &ListenerEntry, from: &[(&Member<Self>, Vec<usize>)]);
    /// Sockets are where they should be.
    fn balanced(_core: &Core<Self>, _control: &mut Control<Self>) {}
    /// Has those that hold the sockets of an address accept what waits and then give them up. Each answers when it has, or is
    /// gone.
    fn let_go(core: &Core<Self>, control: &Control<Self>, entry: &ListenerEntry) -> Answers<Self::GaveUp>;

    // Requests of a pool's handle.

    fn apply(core: &Core<Self>, op: Op, selector: &Selector) -> Result<Outcome, Error>;
    /// Visits what is in this process.
    fn visit_locals(_core: &Core<Self>, _visit: Visit) {}
    /// Begins a connect, which only loops of this process do.
    fn connect(_core: &Core<Self>, _connect: Connect, told: Told) {
        let (errno, no_time) = (Errno::OPNOTSUPP.raw_os_error(), Duration::ZERO);
        told(Err(ConnectFailure { target: None, errno, after: no_time, lag: no_time }));
    }
    fn status(core: &Core<Self>) -> Status;
    fn crash(core: &Core<Self>, part: Part, index: usize) -> bool;
    /// Ends the pool, in order: what waits in the kernel is accepted, and all connections are drained. Returns what came of them, and by when the
    /// members are to have ended.
    fn end(core: &Core<Self>, how: Drain) -> (Drained, Instant);
    /// Ends all members, and waits for them until then.
    fn stop(core: &Core<Self>, until: Instant);
}
