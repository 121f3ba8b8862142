//! Whether a pool accepts connections or makes them, and where it listens.

use super::Connecting;
use crate::behaviour::{Behaviour, IntoBehaviour};
use crate::net::{Address, AddressError, ListenOptions};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Whether a pool accepts connections or makes them.
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
    /// What runs the connections that were accepted here, for a second port with another protocol: the limits, jobs and operations of the pool
    /// are for both. Another behaviour starts a new generation. Default: none, the pool's behaviour. A [`Service`](crate::Service) only, and
    /// not under the models `prefork` and `fork`. In an upgrade these connections stay in the old process.
    pub behaviour: Option<Behaviour>,
    /// Why the address is empty.
    wrong: Option<AddressError>,
}

impl Listening {
    /// New sockets at this address, with default options and without a limit of their own. A text that is no address is reported when the
    /// pool starts, is planned for or changes: see [`Error::Address`](crate::Error::Address).
    ///
    /// ```
    /// use sockdrawer::listening::Listening;
    /// let admin = Listening::new("127.0.0.1:9001").limit(10);
    /// # let _ = admin;
    /// ```
    pub fn new(address: impl TryInto<Address, Error: Into<AddressError>>) -> Listening {
        let (address, wrong) = Address::or_nowhere(address);
        Listening { address, inherited: None, name: None, options: ListenOptions::default(), limit: None, behaviour: None, wrong }
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

    /// Maximum of connections at once that were accepted here.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Listening {
        self.limit = Some(limit);
        self
    }

    /// Sets what runs the connections that were accepted here: see [`Listening::behaviour`](struct@Listening).
    ///
    /// ```
    /// # use sockdrawer::{Context, Input, Peer, Protocol, Service, Step};
    /// # struct Chat;
    /// # struct Admin;
    /// # impl Service for Chat { type Protocol = Chat; fn open(&self, _: &Peer) -> Chat { Chat } }
    /// # impl Protocol for Chat { fn received(&mut self, i: &mut Input<'_>, _: &mut Context<'_>) -> Step { i.take_all(); Step::Continue } }
    /// # impl Service for Admin { type Protocol = Admin; fn open(&self, _: &Peer) -> Admin { Admin } }
    /// # impl Protocol for Admin { fn received(&mut self, i: &mut Input<'_>, _: &mut Context<'_>) -> Step { i.take_all(); Step::Continue } }
    /// use sockdrawer::{Config, Pool, listening::Listening};
    ///
    /// let admin = Listening::new("127.0.0.1:0").behaviour(Admin).limit(10);
    /// let pool = Pool::start(Config::accept(Chat).listen("127.0.0.1:0").listening(admin))?;
    /// # drop(pool);
    /// # Ok::<(), sockdrawer::Error>(())
    /// ```
    #[must_use]
    pub fn behaviour(mut self, behaviour: impl IntoBehaviour) -> Listening {
        self.behaviour = Some(behaviour.into_behaviour());
        self
    }

    /// What is wrong with the text of the address, if it was none.
    pub(crate) fn address_error(&self) -> Option<AddressError> {
        self.address.is_nowhere().then(|| self.wrong.clone().unwrap_or_else(AddressError::nowhere))
    }

    pub(crate) fn has_same_behaviour(&self, other: &Listening) -> bool {
        match (&self.behaviour, &other.behaviour) {
            (None, None) => true,
            (Some(one), Some(two)) => one.is_same(two),
            _ => false,
        }
    }

    /// Whether both describe the same sockets, whatever their limits.
    pub(crate) fn is_same_place(&self, other: &Listening) -> bool {
        self.address == other.address
            && self.options == other.options
            && self.behaviour.is_some() == other.behaviour.is_some()
            && match (&self.inherited, &other.inherited) {
                (None, None) => true,
                (Some(one), Some(two)) => Arc::ptr_eq(one, two),
                _ => false,
            }
    }
}

impl PartialEq for Listening {
    fn eq(&self, other: &Listening) -> bool {
        self.is_same_place(other) && self.limit == other.limit && self.has_same_behaviour(other)
    }
}
