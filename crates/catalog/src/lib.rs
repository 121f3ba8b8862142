//! Ready protocols, both ends: [`echo`], [`hello`], [`ping`], [`http`], [`acks`], [`proxy`]; and the client's end of any other, [`dialogue`]. The program, the tests and the benchmarks use
//! them, and they are meant to be read: each is a state machine of a page.
//!
//! The servers are services for a pool's accept side. The clients run on its connect side and report what they measure to a
//! [`Meter`](meter::Meter), one for each loop, so that measuring takes no lock.
//!
//! ```
//! use sockdrawer::testing::Driver;
//! use sockdrawer_catalog::ping::Ping;
//!
//! let mut connection = Driver::open(Ping);
//! connection.receive(b"PingPi");
//! assert_eq!(connection.sent(), b"Pong");
//! ```

pub mod acks;
pub mod count;
pub mod dialogue;
pub mod echo;
pub mod escapes;
pub mod hello;
pub mod http;
pub mod meter;
mod numbers;
pub mod openmetrics;
mod pace;
pub mod ping;
pub mod proxy;
pub mod time;
pub mod web;

use sockdrawer::{Behaviour, Build};

pub use pace::{Answer, Ask, Asking, Budget, Client, Interval, Pace};

/// The servers, by the names of their recipes: what a program whose pools run in other processes tells
/// [`sockdrawer::processes`].
pub const RECIPES: [(&str, Build); 6] = [
    (echo::Echo::NAME, |options| Ok(echo::Echo::from_options(options)?.behaviour())),
    (hello::Hello::NAME, |options| Ok(hello::Hello::from_options(options)?.behaviour())),
    (ping::Ping::NAME, |options| Ok(ping::Ping::from_options(options)?.behaviour())),
    (http::Http::NAME, |options| Ok(http::Http::from_options(options)?.behaviour())),
    (acks::Acks::NAME, |options| Ok(acks::Acks::from_options(options)?.behaviour())),
    (proxy::Proxy::NAME, |options| Ok(proxy::Proxy::from_options(options)?.behaviour())),
];

macro_rules! behaviours {
    ($($service:ty),*) => {
        $(impl $service {
            /// Returns the behaviour that a pool runs. Does what `into` does, but is compiled in this crate: a program that is compiled for size
            /// calls it, and its connections run as fast.
            #[must_use]
            pub fn behaviour(self) -> Behaviour {
                self.into()
            }
        })*
    };
}

behaviours!(echo::Echo, hello::Hello, ping::Ping, http::Http, acks::Acks, proxy::Proxy);

/// The options of a recipe are not those of the service that its name stands for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{options}` are not options of `{service}`")]
pub struct WrongOptions {
    service: &'static str,
    options: String,
}

impl WrongOptions {
    fn new(service: &'static str, options: &[u8]) -> WrongOptions {
        WrongOptions { service, options: String::from_utf8_lossy(options).into_owned() }
    }

    /// Checks the options of a service that has none.
    fn unless_empty(service: &'static str, options: &[u8]) -> Result<(), WrongOptions> {
        if options.is_empty() { Ok(()) } else { Err(WrongOptions::new(service, options)) }
    }
}

/// Returns the recipe of the service registered as `name`.
fn recipe(name: &str, options: impl Into<Vec<u8>>) -> Option<sockdrawer::Recipe> {
    Some(sockdrawer::Recipe { name: name.to_owned(), options: options.into() })
}
