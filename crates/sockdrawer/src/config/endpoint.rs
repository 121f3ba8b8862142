//! Endpoints: a pool accepts connections, at its addresses, or makes them.

use super::Connecting;
use crate::behaviour::Behaviour;
use crate::layer::Filtering;
use crate::net::{Address, AddressError, ListenOptions};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The end of connections at which a pool stands: it accepts them or makes them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Endpoint {
    /// The pool accepts connections.
    Accept {
        /// The addresses to listen at.
        listeners: Vec<Listening>,
        /// Maximum of connections in the accept queue, per listening socket; the kernel cuts it to `net.core.somaxconn`. Default: 4,096.
        backlog: u32,
    },
    /// The pool makes connections.
    Connect(Connecting),
}

/// An address to listen at, with the options and the limit of its sockets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listening {
    /// The address. If [`Listening::new`] was given a text that is no address, an empty Unix path: no pool listens there, and the error of
    /// [`Pool::start`](crate::Pool::start) says what is wrong with the text.
    pub address: Address,
    /// A socket that already listens at this address, from a parent process or systemd. The pool shares it: its owner keeps the `Arc`, and
    /// the socket is closed when the last copy is dropped. Default: none, the pool makes the sockets.
    pub inherited: Option<Arc<OwnedFd>>,
    /// The name that a service manager gave the inherited socket. A process that takes over this one's sockets is told it: see
    /// [`Upgrade::named`](crate::Upgrade::named). Default: none.
    pub name: Option<String>,
    /// Options that the sockets get before they are bound. Changing them replaces the sockets at the address. Default:
    /// [`ListenOptions::default`].
    pub options: ListenOptions,
    /// Maximum of connections at once that were accepted here. Changed in place. Default: none, only the pool's limit counts.
    pub limit: Option<usize>,
    /// Layers around the pool's behaviour for connections that were accepted here: a port under TLS, or behind a proxy, beside a plain one. The
    /// service, limits, jobs and operations of the pool are for both; a [`Service::local`](crate::Service::local) is made for each. Other layers
    /// start a new generation. Default: none. Not under the models `prefork` and `fork`.
    pub layers: Layers,
    /// Sockets of another pool of this process, which the first pool that listens here gets.
    pub(crate) passed_on: Option<Arc<dyn Any + Send + Sync>>,
    /// Reason why the address is empty.
    wrong: Option<AddressError>,
}

impl Listening {
    /// Returns new sockets at this address, with default options and without a limit of their own. A text that is no address is reported when the
    /// pool starts, is planned for or changes: see [`Error::Address`](crate::Error::Address).
    ///
    /// ```
    /// use sockdrawer::listening::Listening;
    /// let admin = Listening::new("127.0.0.1:9001").limit(10);
    /// # let _ = admin;
    /// ```
    pub fn new(address: impl TryInto<Address, Error: Into<AddressError>>) -> Listening {
        let (address, wrong) = Address::or_nowhere(address);
        Listening {
            address,
            inherited: None,
            name: None,
            options: ListenOptions::default(),
            limit: None,
            layers: Layers::default(),
            passed_on: None,
            wrong,
        }
    }

    /// Sets the options that the sockets get before they are bound.
    #[must_use]
    pub fn options(mut self, options: ListenOptions) -> Listening {
        self.options = options;
        self
    }

    /// Sets a socket that already listens at the address: see [`Listening::inherited`](struct@Listening).
    #[must_use]
    pub fn inherited(mut self, socket: Arc<OwnedFd>) -> Listening {
        self.inherited = Some(socket);
        self
    }

    /// Sets the name that a service manager gave the socket: see [`Listening::name`](struct@Listening).
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Listening {
        self.name = Some(name.into());
        self
    }

    /// Sets the maximum of connections at once that were accepted here.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Listening {
        self.limit = Some(limit);
        self
    }

    /// Puts a layer around the pool's behaviour for connections that were accepted here. Layers nest: the last one added is the next to the
    /// socket.
    ///
    /// ```
    /// # use sockdrawer::{Context, Input, Peer, Protocol, Service, Step};
    /// # struct Chat;
    /// # impl Service for Chat { type Protocol = Chat; fn open(&self, _: &Peer) -> Chat { Chat } }
    /// # impl Protocol for Chat { fn received(&mut self, i: &mut Input<'_>, _: &mut Context<'_>) -> Step { i.take_all(); Step::Continue } }
    /// use sockdrawer::layer::proxy_header::{Accepts, Source};
    /// use sockdrawer::{Config, Pool, listening::Listening};
    ///
    /// let proxied = Listening::new("127.0.0.1:0").layered(Accepts::from(["10.0.0.0/8".parse::<Source>()?]));
    /// let pool = Pool::start(Config::accept(Chat).listen("127.0.0.1:0").listening(proxied))?;
    /// # drop(pool);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn layered(mut self, filtering: impl Filtering + Clone) -> Listening {
        self.layers.0.push(Arc::new(move |behaviour: Behaviour| behaviour.layered(filtering.clone())));
        self
    }

    /// Goes on with the sockets of `from`, which [`Pool::give_up`](crate::Pool::give_up) returned, as far as this is the same address with the
    /// same options; its own limit and layers stay.
    #[must_use]
    pub fn goes_on_from(mut self, from: &Listening) -> Listening {
        self.passed_on = from.passed_on.clone().filter(|_| self.is_same_socket(from));
        self
    }

    /// Returns true where both ask for the same sockets.
    fn is_same_socket(&self, other: &Listening) -> bool {
        self.address == other.address && self.options == other.options
    }

    /// Returns the mistake in the text of the address, if it was none.
    pub(crate) fn address_error(&self) -> Option<AddressError> {
        self.address.is_nowhere().then(|| self.wrong.clone().unwrap_or_else(AddressError::nowhere))
    }

    /// Returns true where both describe the same sockets, whatever their limits.
    pub(crate) fn is_same_place(&self, other: &Listening) -> bool {
        self.is_same_socket(other)
            && self.layers.is_empty() == other.layers.is_empty()
            && match (&self.inherited, &other.inherited) {
                (None, None) => true,
                (Some(one), Some(two)) => Arc::ptr_eq(one, two),
                _ => false,
            }
    }
}

impl PartialEq for Listening {
    fn eq(&self, other: &Listening) -> bool {
        self.is_same_place(other) && self.limit == other.limit && self.layers == other.layers
    }
}

/// Layers of a listener: see [`Listening::layers`](struct@Listening). Copies are the same layers.
#[derive(Clone, Default)]
pub struct Layers(Vec<Around>);

type Around = Arc<dyn Fn(Behaviour) -> Behaviour + Send + Sync>;

impl Layers {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn around(&self, behaviour: &Behaviour) -> Behaviour {
        self.0.iter().fold(behaviour.clone(), |within, around| around(within))
    }
}

/// Layers are the same where one is a copy of the other.
impl PartialEq for Layers {
    fn eq(&self, other: &Layers) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(one, two)| Arc::ptr_eq(one, two))
    }
}

/// Prints how many there are.
impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Layers({})", self.0.len())
    }
}
