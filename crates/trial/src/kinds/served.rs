//! The services of the server under trial: echoes with different types and sizes of state, which adopt each other's connections.

use super::ledger::Ledger;
use super::requests;
use crate::Group;
use sockdrawer::{
    Behaviour, Build, CannotRestore, CannotSave, Context, Input, Job, JobResult, Peer, Protocol, Recipe, Saved, Saver, Service,
    State, Step,
};
use std::error::Error;
use std::io;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The marker at which [`Crashing`] panics. Only the probe for this change sends it: other clients send random bytes.
pub(crate) const MARKER: &[u8; 16] = b"please panic now";

/// The service that the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dish {
    Plain,
    Counted,
    Worked,
    Crashing,
}

impl Dish {
    /// The services that survive every input.
    pub(crate) const SOUND: [Dish; 3] = [Dish::Plain, Dish::Counted, Dish::Worked];

    pub(crate) fn behaviour(self, props: &Props) -> Behaviour {
        match self {
            Dish::Plain => Served::<Plain>::new(props).into(),
            Dish::Counted => Served::<CountingEcho>::new(props).into(),
            Dish::Worked => Served::<Worked>::new(props).into(),
            Dish::Crashing => Served::<Crashing>::new(props).into(),
        }
    }
}

/// The services that the server under trial runs, by the names of their recipes: for models that run them in other processes.
pub const RECIPES: [(&str, Build); 4] = [
    (Plain::NAME, build::<Plain>),
    (CountingEcho::NAME, build::<CountingEcho>),
    (Worked::NAME, build::<Worked>),
    (Crashing::NAME, build::<Crashing>),
];

fn build<F: Flavour>(options: &[u8]) -> Result<Behaviour, Box<dyn Error + Send + Sync>> {
    Ok(Served::<F>::new(&Props::from_options(options)?).into())
}

/// The state that all services of a trial share. All processes share the ledger, and each has a leak of its own.
#[derive(Clone)]
pub(crate) struct Props {
    pub(crate) leak: Option<Arc<Leak>>,
    pub(crate) ledger: Arc<Ledger>,
}

impl Props {
    pub(crate) fn new(leaks: bool) -> io::Result<Props> {
        Ok(Props { leak: leaks.then(Arc::default), ledger: Arc::new(Ledger::new()?) })
    }

    /// Returns the options for [`Props::from_options`]: a letter for the leak, then the path of the ledger.
    pub(super) fn options(&self) -> Vec<u8> {
        let leak = if self.leak.is_some() { "l" } else { "-" };
        format!("{leak}{}", self.ledger.path()).into_bytes()
    }

    pub(super) fn from_options(options: &[u8]) -> io::Result<Props> {
        let (leak, path) = options.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let path = std::str::from_utf8(path).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Props { leak: (*leak == b'l').then(Arc::default), ledger: Arc::new(Ledger::at(path)?) })
    }
}

/// The sabotage `lose-byte`: one input in so many, of kept connections, loses its first byte.
#[derive(Debug, Default)]
pub(crate) struct Leak(AtomicU64);

impl Leak {
    const EVERY: u64 = 200;

    fn now(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) % Leak::EVERY == Leak::EVERY - 1
    }
}

/// Manner in which an echo answers. Each is a type of its own, so that a change of protocol is a change of type and of the state's size.
pub(crate) trait Flavour: Default + Send + 'static {
    /// The name of the recipe.
    const NAME: &str;

    fn answer(&mut self, group: Option<Group>, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step;
}

/// Echo that answers at once.
#[derive(Default)]
pub(crate) struct Plain;

/// Echo that answers at once, with a larger state.
#[derive(Default)]
pub(crate) struct CountingEcho {
    /// The number of inputs by the power of two of their length.
    sizes: [u32; 17],
}

/// Echo that answers by jobs, piece by piece; kept connections at once, because a connection is not adopted while its job runs, and probes, of which
/// some have much to be sent.
#[derive(Default)]
pub(crate) struct Worked;

/// Echo that answers at once, but for [`MARKER`].
#[derive(Default)]
pub(crate) struct Crashing;

fn echo(input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
    cx.send(input.bytes());
    input.take_all();
    Step::Continue
}

impl Flavour for Plain {
    const NAME: &str = "trial-plain";

    fn answer(&mut self, _group: Option<Group>, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        echo(input, cx)
    }
}

impl Flavour for CountingEcho {
    const NAME: &str = "trial-counted";

    fn answer(&mut self, _group: Option<Group>, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let power = input.bytes().len().checked_ilog2().unwrap_or(0);
        let slot = usize::try_from(power).map_or(16, |power| power.min(16));
        self.sizes[slot] = self.sizes[slot].wrapping_add(1);
        echo(input, cx)
    }
}

/// Bytes that a job carries; a job of up to 96 bytes costs no allocation.
struct Piece {
    bytes: [u8; Piece::SIZE],
    used: u8,
}

impl Piece {
    const SIZE: usize = 80;
}

impl Flavour for Worked {
    const NAME: &str = "trial-worked";

    fn answer(&mut self, group: Option<Group>, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if matches!(group, Some(Group::Kept | Group::Probe)) {
            return echo(input, cx);
        }
        let used = input.bytes().len().min(Piece::SIZE);
        let mut piece = Piece { bytes: [0; Piece::SIZE], used: u8::try_from(used).expect("a piece is short") };
        piece.bytes[..used].copy_from_slice(&input.bytes()[..used]);
        input.take(used);
        Step::Work(Job::new(move || piece))
    }
}

impl Flavour for Crashing {
    const NAME: &str = "trial-crashing";

    fn answer(&mut self, _group: Option<Group>, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes().starts_with(MARKER) {
            // A panic on purpose, without the hook that would print it.
            resume_unwind(Box::new("a panic that the trial asked for"));
        }
        echo(input, cx)
    }
}

/// The service of a flavour of echo.
pub(crate) struct Served<F> {
    props: Props,
    flavour: PhantomData<fn() -> F>,
}

impl<F> Served<F> {
    pub(super) fn new(props: &Props) -> Served<F> {
        Served { props: props.clone(), flavour: PhantomData }
    }

    fn connection(&self, peer: &Peer, inputs: u64) -> Connection<F>
    where
        F: Default,
    {
        let group = Group::of(peer.remote());
        let leak = self.props.leak.clone().filter(|_| group == Some(Group::Kept));
        let ledger = Some(self.props.ledger.clone()).filter(|_| group == Some(Group::Requests));
        Connection { flavour: F::default(), group, leak, ledger, inputs }
    }
}

impl<F: Flavour> Service for Served<F> {
    type Protocol = Connection<F>;

    fn open(&self, peer: &Peer) -> Connection<F> {
        self.connection(peer, 0)
    }

    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Connection<F>, CannotRestore> {
        Ok(self.connection(peer, from.u64()?))
    }

    fn state(&self) -> State {
        State::of("trial", 1)
    }

    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: F::NAME.to_owned(), options: self.props.options() })
    }
}

/// A connection of [`Served`].
pub(crate) struct Connection<F> {
    flavour: F,
    group: Option<Group>,
    leak: Option<Arc<Leak>>,
    /// Ledger for connections that send requests.
    ledger: Option<Arc<Ledger>>,
    /// Callbacks with input so far, of all services that had this connection.
    inputs: u64,
}

impl<F: Flavour> Protocol for Connection<F> {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.inputs += 1;
        if let Some(ledger) = &self.ledger {
            return requests::work(ledger, input);
        }
        if input.bytes().len() > 1 && self.leak.as_ref().is_some_and(|leak| leak.now()) {
            input.take(1);
        }
        self.flavour.answer(self.group, input, cx)
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        if let Some(ledger) = &self.ledger {
            return requests::answer(ledger, result, cx);
        }
        match result.take::<Piece>() {
            Ok(piece) => {
                cx.send(&piece.bytes[..usize::from(piece.used)]);
                Step::Continue
            }
            // The client sees a reset, as for any failure of the server.
            Err(_) => Step::Abort,
        }
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.inputs);
        Ok(())
    }
}
