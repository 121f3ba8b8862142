//! The options of WebSocket at the connecting end.

use crate::outcome::Failure;
use crate::values::{Field, Path, Target};
use crate::workload::first_given;
use clap::Args;
use sockdrawer_load::WebSocket;
use std::fmt;

/// The WebSocket that carries the protocol, and fields of requests.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "HTTP and WebSocket")]
pub(crate) struct WebSocketArguments {
    /// A field of the requests' heads, such as 'Accept: text/html'; may be repeated.
    ///
    /// Takes the place of Host, User-Agent, Connection or Content-Length, which requests have by themselves.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<Field>,
    /// Speak by WebSocket, which is asked for at this path, as a URL such as ws://HOST:PORT/PATH says too.
    ///
    /// Each question is a message, and so is its answer; not for http. What you wrote yourself, by --send, goes as text where it is UTF-8.
    /// See [load by WebSocket](../guide/websocket.md#load-and-trials).
    #[arg(long, value_name = "PATH")]
    pub(crate) websocket: Option<Path>,
    /// The subprotocols of the WebSocket to offer, the preferred first: mqtt.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) subprotocol: Vec<String>,
}

impl WebSocketArguments {
    /// Returns the first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given([
            ("--header", !self.header.is_empty()),
            ("--websocket", self.websocket.is_some()),
            ("--subprotocol", !self.subprotocol.is_empty()),
        ])
    }

    /// Returns true where clients of these targets speak WebSocket.
    pub(crate) fn speaks(&self, targets: &[&Target]) -> bool {
        self.websocket.is_some() || targets.iter().filter_map(|target| target.url.as_ref()).any(|url| url.websocket)
    }

    /// Returns the WebSocket that is asked for; `text`: messages go as text. None: clients speak no WebSocket. `usage` tells a mistake of the command line.
    ///
    /// # Errors
    /// When options do not go together.
    pub(crate) fn websocket(
        &self,
        targets: &[&Target],
        text: bool,
        usage: fn(&dyn fmt::Display) -> Failure,
    ) -> Result<Option<WebSocket>, Failure> {
        if !self.speaks(targets) {
            return match self.subprotocol.first() {
                None => Ok(None),
                Some(_) => Err(usage(&"--subprotocol is an option of WebSocket: write ws://, or add --websocket PATH")),
            };
        }
        let mut urls = targets.iter().filter_map(|target| target.url.as_ref());
        let named = self.header.iter().find_map(|field| field.value_of("Host")).map(str::to_owned);
        let (host, path) = match (urls.next(), &self.websocket, targets) {
            (Some(_), Some(_), _) => {
                return Err(usage(&"--websocket and a URL exclude each other: both say what is asked for"));
            }
            (Some(url), None, _) if urls.any(|other| (&other.host, &other.path) != (&url.host, &url.path)) => {
                return Err(usage(&"the URLs have several hosts or paths: use addresses, --websocket PATH and -H 'Host: NAME'"));
            }
            (Some(url), None, _) => (named.unwrap_or_else(|| url.host.clone()), url.path.clone()),
            (None, Some(path), [target, ..]) => {
                let host = named.or_else(|| {
                    target.addresses.first().map(|address| match address {
                        sockdrawer::Address::Tcp(address) => address.to_string(),
                        _ => "localhost".to_owned(),
                    })
                });
                (host.unwrap_or_default(), path.clone())
            }
            (None, ..) => {
                let why =
                    "--websocket: the server inside this program speaks none: name a target, such as one of sockdrawer serve ws";
                return Err(usage(&why));
            }
        };
        let fields = self.header.iter().filter(|field| field.value_of("Host").is_none()).map(|field| field.0.clone());
        Ok(Some(WebSocket { host, path: path.0, fields: fields.collect(), subprotocols: self.subprotocol.clone(), text }))
    }
}
