//! The PROXY protocol, versions 1 and 2: a proxy's first bytes say on whose behalf it connects.
//!
//! [`Accepts`] reads the header. Which peers are proxies is said by their addresses and never guessed: a proxy's connection has to begin with a
//! header, and what others send goes to the inner protocol as it is, so that a stranger's header is not believed. From then on the real address
//! is the peer's wherever the pool names one: [`Peer::remote`], lists, selectors, limits per peer and the admission policy, which is
//! asked about the real address instead of the proxy's. It stays so when the connection is adopted or moves in an upgrade.
//!
//! [`Sends`] writes the header, in a pool that connects; [`Header::bytes`] makes it for a protocol that relays by itself.
//!
//! ```
//! use sockdrawer::layer::Layer;
//! use sockdrawer::layer::proxy_header::Accepts;
//! # use sockdrawer::testing::{Bounds, Driver};
//! # use sockdrawer::{Context, Input, Peer, Protocol, Service, Side, Step};
//! # struct WhoAmI;
//! # struct Named(String);
//! # impl Service for WhoAmI {
//! #     type Protocol = Named;
//! #     fn open(&self, peer: &Peer) -> Named {
//! #         Named(format!("{:?}", peer.remote()))
//! #     }
//! # }
//! # impl Protocol for Named {
//! #     fn opened(&mut self, cx: &mut Context<'_>) -> Step {
//! #         cx.send(self.0.as_bytes());
//! #         Step::Continue
//! #     }
//! #     fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
//! #         input.take_all();
//! #         Step::Continue
//! #     }
//! # }
//!
//! let service = Layer::new(Accepts::from(["10.0.0.0/8".parse()?]), WhoAmI);
//! # let proxy = Peer::new(Some(([10, 1, 2, 3], 555).into()), Side::Accepted);
//! # let mut connection = Driver::open_with(service, proxy, Bounds::default());
//! // A connection from 10.1.2.3:
//! connection.receive(b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\r\n");
//! assert_eq!(connection.sent(), b"Some(192.0.2.7:4321)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod header;
mod source;
#[cfg(test)]
mod tests;

pub use header::{Header, UnknownVersion, Version};
pub use source::{Source, UnknownSource};

use super::{Filter, Filtering, Progress, Refused};
use crate::protocol::{CannotRestore, CannotSave, Closing, Input, Output, Peer, Recipe, Saved, Saver, Side, State};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The name of the recipe of [`Accepts`].
pub(crate) const RECIPE: &str = "proxy-header";

/// Accepts headers, of either version, from these peers and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepts {
    sources: Vec<Source>,
    within: Duration,
}

impl Accepts {
    /// Maximum time for the header of a proxy, unless told otherwise: 5 s. A proxy sends it first of all.
    pub const WITHIN: Duration = Duration::from_secs(5);

    /// Accepts connections from these sources only with a header, within [`Accepts::WITHIN`].
    pub fn from(sources: impl IntoIterator<Item = Source>) -> Accepts {
        Accepts { sources: sources.into_iter().collect(), within: Accepts::WITHIN }
    }

    /// Sets how long a header may take; then the connection is aborted.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Accepts {
        self.within = time;
        self
    }

    /// Makes it from the options of its recipe.
    pub(crate) fn from_options(options: &[u8]) -> Result<Accepts, CannotRestore> {
        let mut saved = Saved::new(options);
        let wrong = || CannotRestore::because("the options are not those of a PROXY header's layer");
        let within = Duration::from_nanos(saved.u64()?);
        let texts = std::str::from_utf8(saved.bytes()?).map_err(|_| wrong())?;
        let sources = texts.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().map_err(|_| wrong()));
        Ok(Accepts { sources: sources.collect::<Result<_, _>>()?, within })
    }
}

impl Filtering for Accepts {
    type Filter = HeaderFilter;

    fn filter(&self, peer: &Peer) -> HeaderFilter {
        let expected = peer.side() == Side::Accepted && self.sources.iter().any(|source| source.takes(peer));
        HeaderFilter { stage: if expected { HeaderStage::Expects } else { HeaderStage::sends(&[]) } }
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<HeaderFilter, CannotRestore> {
        HeaderFilter::restore(from)
    }

    fn saves_handshakes(&self) -> bool {
        true
    }

    fn handshake_timeout(&self) -> Duration {
        self.within
    }

    fn state(&self) -> State {
        state()
    }

    fn closing(&self, inner: Closing) -> Closing {
        inner
    }

    fn longest_record(&self) -> usize {
        Header::MAX_V1
    }

    fn learns_peer_address(&self) -> bool {
        true
    }

    fn recipe(&self) -> Option<Recipe> {
        let mut options = Saver::default();
        options.u64(u64::try_from(self.within.as_nanos()).unwrap_or(u64::MAX));
        let sources: Vec<String> = self.sources.iter().map(Source::to_string).collect();
        options.bytes(sources.join(",").as_bytes());
        Some(Recipe { name: RECIPE.to_owned(), options: options.written().to_vec() })
    }
}

/// Returns the name and version of the states of both. The address is not in them, because the loop keeps it.
fn state() -> State {
    State::of(RECIPE, 2)
}

type SourceOf = dyn Fn(&Peer) -> Option<SocketAddr> + Send + Sync;

/// Sends a header first, in a pool that connects.
///
/// ```
/// use sockdrawer::layer::proxy_header::{Sends, Version};
///
/// // On behalf of clients at 192.0.2.1, a port for each target's.
/// let sends = Sends::new(Version::V1).on_behalf_of(|peer| Some(([192, 0, 2, 1], peer.remote()?.port()).into()));
/// # let _ = sends;
/// ```
#[derive(Clone)]
pub struct Sends {
    version: Version,
    source: Arc<SourceOf>,
}

impl fmt::Debug for Sends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sends").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Sends {
    /// Returns a header for connections that the pool makes for itself: `LOCAL`, or `UNKNOWN` in version 1.
    pub fn new(version: Version) -> Sends {
        Sends { version, source: Arc::new(|_| None) }
    }

    /// Names the peer on whose behalf a connection is, given the target that was connected to; None: for the pool itself.
    #[must_use]
    pub fn on_behalf_of(mut self, source: impl Fn(&Peer) -> Option<SocketAddr> + Send + Sync + 'static) -> Sends {
        self.source = Arc::new(source);
        self
    }
}

impl Filtering for Sends {
    type Filter = HeaderFilter;

    /// Makes the filter of a connection. Nothing is sent on one that was accepted.
    fn filter(&self, peer: &Peer) -> HeaderFilter {
        if peer.side() == Side::Accepted {
            return HeaderFilter { stage: HeaderStage::sends(&[]) };
        }
        let header = (self.source)(peer).map_or(Header::Local, |source| {
            // A Unix socket has no such address.
            let nowhere: IpAddr = if source.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            Header::proxied(source, peer.remote().unwrap_or(SocketAddr::new(nowhere, 0)))
        });
        HeaderFilter { stage: HeaderStage::sends(&header.bytes(self.version)) }
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<HeaderFilter, CannotRestore> {
        HeaderFilter::restore(from)
    }

    fn state(&self) -> State {
        state()
    }

    fn closing(&self, inner: Closing) -> Closing {
        inner
    }
}

/// The state of a connection whose first bytes are, or may be, a header.
#[derive(Debug)]
pub struct HeaderFilter {
    stage: HeaderStage,
}

#[derive(Debug)]
enum HeaderStage {
    Expects,
    /// This number of bytes of the header is left, of which nothing is to be learned.
    Skips(usize, Option<SocketAddr>),
    /// The header that is to be sent; input is plain.
    Sends(Box<[u8]>),
    Open,
}

/// A stage as it is saved.
#[derive(Serialize, Deserialize)]
enum Written {
    Expects,
    Skips(u64, Option<SocketAddr>),
    Open,
}

impl HeaderFilter {
    fn restore(from: &mut Saved<'_>) -> Result<HeaderFilter, CannotRestore> {
        let stage = match from.value()? {
            Written::Expects => HeaderStage::Expects,
            Written::Skips(left, source) => HeaderStage::Skips(left.try_into().unwrap_or(usize::MAX), source),
            Written::Open => HeaderStage::Open,
        };
        Ok(HeaderFilter { stage })
    }
}

impl HeaderStage {
    fn sends(bytes: &[u8]) -> HeaderStage {
        HeaderStage::Sends(bytes.into())
    }
}

impl Filter for HeaderFilter {
    fn start(&mut self, wire: &mut Output) {
        if let HeaderStage::Sends(bytes) = &self.stage {
            wire.push(bytes);
        }
    }

    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, _back: &mut Output) -> Result<Progress, Refused> {
        if let HeaderStage::Expects = self.stage {
            let Some((header, length)) = Header::parse(wire.bytes())? else { return Ok(Progress::NeedMore) };
            self.stage = HeaderStage::Skips(length, header.source());
        }
        match &mut self.stage {
            HeaderStage::Skips(left, source) => {
                let here = wire.bytes().len().min(*left);
                wire.take(here);
                *left -= here;
                if *left > 0 {
                    return Ok(Progress::NeedMore);
                }
                let source = *source;
                self.stage = HeaderStage::Open;
                Ok(Progress::Established(source))
            }
            HeaderStage::Sends(_) => {
                self.stage = HeaderStage::Open;
                Ok(Progress::Established(None))
            }
            HeaderStage::Expects | HeaderStage::Open if wire.is_empty() => Ok(Progress::NeedMore),
            HeaderStage::Expects | HeaderStage::Open => {
                plain.extend_from_slice(wire.take_all());
                Ok(Progress::Plain)
            }
        }
    }

    fn passes(&self) -> bool {
        matches!(self.stage, HeaderStage::Open)
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        wire.push(plain);
    }

    fn goodbye(&mut self, _wire: &mut Output) {}

    /// Saves the stage. The part of a header that was not taken is input of the connection, which goes along.
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.value(&match &self.stage {
            HeaderStage::Expects => Written::Expects,
            HeaderStage::Skips(left, source) => Written::Skips(*left as u64, *source),
            HeaderStage::Open => Written::Open,
            HeaderStage::Sends(_) => return Err(CannotSave::because("its header was not sent")),
        })
    }
}
