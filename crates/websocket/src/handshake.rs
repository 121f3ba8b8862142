//! The handshake of RFC 6455, 4, of either side.

use crate::deflate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use sockdrawer::{Input, Peer};
use sockdrawer_catalog::web::{Answer, Request};
use std::fmt::Write;

const VERSION: &str = "13";
/// Appended to the client's key: RFC 6455, 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A handshake, as the service that decides about it sees it.
#[derive(Debug)]
pub struct Opening<'a> {
    pub(crate) request: &'a Request,
    pub(crate) peer: &'a Peer,
    pub(crate) subprotocol: Option<String>,
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl<'a> Opening<'a> {
    /// Returns the client's request on a server: path, parameters and fields. On a client, returns the server's answer, whose
    /// path is empty.
    pub fn request(&self) -> &'a Request {
        self.request
    }

    /// Returns the other end.
    pub fn peer(&self) -> &'a Peer {
        self.peer
    }

    /// Returns the subprotocols that a client offers, in its order; on a client, the one that the server chose.
    pub fn subprotocols(&self) -> impl Iterator<Item = &'a str> {
        list(self.request, "Sec-WebSocket-Protocol")
    }

    /// Returns the value of a cookie that the client sent.
    pub fn cookie(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.request.fields("Cookie").flat_map(|field| field.split(';')).filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| known.trim() == name).map(|(_, value)| value.trim().trim_matches('"'))
    }

    /// Chooses a subprotocol; on a server, one that the client offers.
    ///
    /// # Panics
    /// When the client does not offer it: it would fail the handshake.
    #[track_caller]
    pub fn choose(&mut self, subprotocol: &str) {
        assert!(self.subprotocols().any(|offered| offered == subprotocol), "the client does not offer {subprotocol:?}");
        self.subprotocol = Some(subprotocol.to_owned());
    }

    /// Adds a field to a server's answer, such as `Set-Cookie`.
    pub fn field(&mut self, name: &'static str, value: impl Into<String>) {
        self.fields.push((name, value.into()));
    }
}

/// Returns the elements of a list that fields of this name hold.
fn list<'a>(request: &'a Request, name: &'static str) -> impl Iterator<Item = &'a str> {
    request.fields(name).flat_map(|field| field.split(',')).map(str::trim).filter(|element| !element.is_empty())
}

/// Returns the extensions that are offered, or were chosen.
pub(crate) fn extensions(request: &Request) -> impl Iterator<Item = &str> {
    list(request, "Sec-WebSocket-Extensions")
}

fn has(request: &Request, name: &'static str, element: &str) -> bool {
    list(request, name).any(|found| found.eq_ignore_ascii_case(element))
}

/// Returns whether a request asks for a WebSocket.
pub(crate) fn is_upgrade(request: &Request) -> bool {
    has(request, "Upgrade", "websocket") && has(request, "Connection", "upgrade")
}

/// Returns the answer to a request that asks for no WebSocket, where there is nothing else.
pub(crate) fn nothing_else() -> Answer {
    asks_for_upgrade(Answer::text(426, "this is a WebSocket: connect by ws:// or wss://\n"))
}

/// Adds what a client needs, as RFC 9110, 7.8, says: the field counts for this connection alone, and no proxy passes it on.
fn asks_for_upgrade(answer: Answer) -> Answer {
    answer.field("Upgrade", "websocket").field("Connection", "Upgrade")
}

/// Returns the key of a request that asks for a WebSocket.
///
/// # Errors
/// An answer that refuses it, where it is not as RFC 6455, 4.2.1, says.
pub(crate) fn key(request: &Request) -> Result<&str, Answer> {
    let wrong = |why: &str| Answer::error(400, format_args!("no handshake of a WebSocket: {why}"));
    if request.method != "GET" || request.wants_head() {
        return Err(wrong("its method is not GET"));
    }
    if request.fields("Host").count() != 1 {
        return Err(wrong("it has no Host, or several"));
    }
    let mut versions = request.fields("Sec-WebSocket-Version");
    if (versions.next(), versions.next()) != (Some(VERSION), None) {
        let refused = Answer::error(426, "the version of the WebSocket is not 13, which is the one that is spoken here");
        return Err(asks_for_upgrade(refused.field("Sec-WebSocket-Version", VERSION)));
    }
    let mut keys = request.fields("Sec-WebSocket-Key");
    match (keys.next(), keys.next()) {
        (Some(key), None) if STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16) => Ok(key),
        _ => Err(wrong("Sec-WebSocket-Key is not 16 bytes in base64, once")),
    }
}

/// Returns the answer to a key.
pub(crate) fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

/// Returns the head with which a server opens a WebSocket.
pub(crate) fn answer(key: &str, opening: &Opening<'_>) -> String {
    let mut head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n",
        accept(key)
    );
    if let Some(chosen) = &opening.subprotocol {
        push(&mut head, "Sec-WebSocket-Protocol", chosen);
    }
    opening.fields.iter().for_each(|(name, value)| push(&mut head, name, value));
    head + "\r\n"
}

fn push(head: &mut String, name: &str, value: &str) {
    // A value with a line end would be another field.
    let value: String = value.chars().filter(|sign| !sign.is_control()).collect();
    write!(head, "{name}: {value}\r\n").expect("a text takes all");
}

/// The request of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) host: String,
    pub(crate) target: String,
    /// Subprotocols that are offered; on the accepting side of a layer, the ones that are spoken.
    pub(crate) subprotocols: Vec<String>,
    pub(crate) fields: Vec<(String, String)>,
    /// Compression is offered.
    pub(crate) deflates: bool,
}

impl Asked {
    /// Asks by a URL such as `ws://example.org:8080/chat?room=1`.
    pub(crate) fn by(url: &str) -> Option<Asked> {
        let rest = url.strip_prefix("ws://").or_else(|| url.strip_prefix("wss://"))?;
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, target) = rest.split_at(end);
        let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || host.contains('@') || !is_visible(rest) {
            return None;
        }
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Some(Asked { host: host.to_owned(), target, ..Asked::default() })
    }

    /// Returns the request with this key.
    pub(crate) fn request(&self, key: &str) -> String {
        let Asked { host, target, subprotocols, fields, deflates } = self;
        let mut head = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: {VERSION}\r\n\
             Sec-WebSocket-Key: {key}\r\n"
        );
        if !subprotocols.is_empty() {
            push(&mut head, "Sec-WebSocket-Protocol", &subprotocols.join(", "));
        }
        if *deflates {
            push(&mut head, "Sec-WebSocket-Extensions", deflate::OFFER);
        }
        fields.iter().for_each(|(name, value)| push(&mut head, name, value));
        head + "\r\n"
    }

    /// Takes the server's answer to this key; None while it is not whole.
    ///
    /// # Errors
    /// Why it opens no WebSocket.
    pub(crate) fn answered(&self, key: &str, input: &mut Input<'_>) -> Result<Option<Request>, String> {
        let Some((status, answer)) = Request::read_answer(input)? else { return Ok(None) };
        self.check(&answer, status, key)?;
        Ok(Some(answer))
    }

    fn check(&self, answer: &Request, status: u16, key: &str) -> Result<(), String> {
        if status != 101 {
            return Err(format!("the server refused the WebSocket with status {status}"));
        }
        if !is_upgrade(answer) {
            return Err("the server switched to another protocol than WebSocket".to_owned());
        }
        let mut accepted = answer.fields("Sec-WebSocket-Accept");
        if (accepted.next(), accepted.next()) != (Some(accept(key).as_str()), None) {
            return Err("the server answered another key than was sent".to_owned());
        }
        if deflate::chosen(extensions(answer))?.is_some() && !self.deflates {
            return Err("the server chose an extension that was not offered".to_owned());
        }
        let mut chosen = list(answer, "Sec-WebSocket-Protocol");
        match (chosen.next(), chosen.next()) {
            (None, _) => Ok(()),
            (Some(one), None) if self.subprotocols.iter().any(|offered| offered == one) => Ok(()),
            _ => Err("the server chose a subprotocol that was not offered".to_owned()),
        }
    }
}

/// Makes a fresh key of a client.
pub(crate) fn new_key() -> String {
    let mut bytes = [0; 16];
    crate::mask::fill(&mut bytes);
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn urls_are_hosts_and_targets_or_refused() {
        for (url, host, target) in [
            ("ws://example.org", "example.org", "/"),
            ("wss://[::1]:9000?x=1", "[::1]:9000", "/?x=1"),
            ("ws://h/chat?room=a%20b#part", "h", "/chat?room=a%20b"),
        ] {
            let asked = Asked::by(url).expect(url);
            assert_eq!((asked.host.as_str(), asked.target.as_str()), (host, target));
        }
        for url in ["http://h/", "ws://", "ws:///x", "ws://h/a b", "ws://h/\r\nX: y", "ws://user@h/", "h"] {
            assert!(Asked::by(url).is_none(), "{url}");
        }
    }
}
