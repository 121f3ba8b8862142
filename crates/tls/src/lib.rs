//! TLS for [sockdrawer](https://docs.rs/sockdrawer), both ends: a [layer](sockdrawer::layer) around any service.
//!
//! The handshake is that of [rustls](https://docs.rs/rustls), with ring. Once it is complete, the connection goes on with a record layer of its
//! own: an idle connection has its keys and no buffer, and its state can be saved, so that it lives through
//! [`Pool::adopt`](sockdrawer::Pool::adopt) and an upgrade of the program.
//!
//! ```no_run
//! use sockdrawer::{Config, Pool, layer::Layer};
//! use sockdrawer_tls::{Identity, Server};
//! # use sockdrawer::{Context, Input, Peer, Protocol, Service, Step};
//! # struct Echo;
//! # impl Service for Echo {
//! #     type Protocol = Echo;
//! #     fn open(&self, _peer: &Peer) -> Echo {
//! #         Echo
//! #     }
//! # }
//! # impl Protocol for Echo {
//! #     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
//! #         cx.send(input.take_all());
//! #         Step::Continue
//! #     }
//! # }
//!
//! let identity = Identity::from_files("chain.pem", "key.pem")?;
//! let tls = Server::new([identity]).build()?;
//! let pool = Pool::start(Config::accept(Layer::new(tls, Echo)).listen("127.0.0.1:8443"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A new certificate is a new service, as any change of a pool is: `Pool::reconfigure` with another `Server`. Connections that are open keep
//! theirs, and none is closed.

mod alert;
mod client;
mod error;
mod filter;
mod handshake;
#[cfg(any(test, fuzzing))]
mod hostile;
mod identity;
mod options;
mod recipe;
mod record;
mod seam;
mod server;
mod session;
mod tickets;
mod validity;

pub use client::{Client, ClientEnd, ClientOptions, Trust};
pub use error::Error;
pub use filter::TlsFilter;
pub use handshake::{Handshake, HandshakeDone, Protocol};
pub use identity::{Identity, read_pem};
pub use options::Options;
pub use server::{ClientCertificates, Server, ServerEnd, ServerOptions};
pub use sockdrawer::layer::HandshakeKind;

/// The layer, for programs whose pools run in other processes: give it to [`sockdrawer::layers`] before `sockdrawer::processes`.
pub const RECIPE: (&str, sockdrawer::BuildLayer) = ("tls", recipe::build);
pub use tickets::Tickets;

/// Takes the bytes of a hostile peer, for the fuzz target `tls`.
#[cfg(fuzzing)]
pub fn take_bytes(input: &[u8]) {
    hostile::check(input);
}

#[cfg(test)]
mod tests;
