//! Requests of clients.

use std::io::Write;
use std::net::SocketAddr;

/// The server need not keep the connection, or must: what a request says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The server is to end it after the answer.
    Close,
    /// The connection is to stay.
    KeepAlive,
}

/// Parts of requests besides their path.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Request {
    /// Method, such as `GET`.
    pub method: String,
    /// Lines of the head without their ends, such as `Accept: text/html`. One of these names takes the place of a field that requests have
    /// by themselves: `Host` with the address that the connection goes to, `User-Agent`, `Connection`, `Content-Length`.
    pub fields: Vec<String>,
    /// Body, which follows the head.
    pub body: Vec<u8>,
}

impl Default for Request {
    /// Returns GET, no fields of its own and no body.
    fn default() -> Request {
        Request { method: "GET".to_owned(), fields: Vec::new(), body: Vec::new() }
    }
}

impl Request {
    /// Returns true where answers to the request have no body, whatever their heads say.
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns true where a field of this name was given.
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.split(':').next().is_some_and(|own| own.eq_ignore_ascii_case(name)))
    }

    /// Returns the bytes of the request for `path`. `to` is the server's address; None is a Unix socket.
    pub fn bytes(&self, path: &str, to: Option<SocketAddr>, after: After) -> Vec<u8> {
        let mut request = Vec::new();
        self.for_path(path, after).send(to, |bytes| request.extend_from_slice(bytes));
        request
    }

    /// Returns the request for `path`, to be sent many times.
    pub(super) fn for_path(&self, path: &str, after: After) -> WrittenRequest {
        let start = format!("{} {path} HTTP/1.1\r\n", self.method);
        let mut rest = String::new();
        if !self.has("User-Agent") {
            rest += "User-Agent: sockdrawer\r\n";
        }
        if !self.has("Connection") {
            rest += match after {
                After::Close => "Connection: close\r\n",
                After::KeepAlive => "Connection: keep-alive\r\n",
            };
        }
        // A server waits for the body of these until it is told that there is none.
        let has_body = !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        if has_body && !self.has("Content-Length") {
            rest += &format!("Content-Length: {}\r\n", self.body.len());
        }
        for field in &self.fields {
            rest += field;
            rest += "\r\n";
        }
        rest += "\r\n";
        if self.has("Host") {
            return WrittenRequest { start: [start.as_bytes(), rest.as_bytes(), &self.body].concat(), rest: None };
        }
        WrittenRequest { start: (start + "Host: ").into_bytes(), rest: Some([b"\r\n", rest.as_bytes(), &self.body].concat()) }
    }
}

/// The bytes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenRequest {
    start: Vec<u8>,
    /// Rest of the request, after the address that the connection goes to; None: that is not in the request.
    rest: Option<Vec<u8>>,
}

impl WrittenRequest {
    /// Hands `send` the request, in pieces. `to` is the server's address; None is a Unix socket.
    pub(super) fn send(&self, to: Option<SocketAddr>, mut send: impl FnMut(&[u8])) {
        send(&self.start);
        let Some(rest) = &self.rest else { return };
        match to {
            Some(mut address) => {
                // The zone is this machine's own.
                if let SocketAddr::V6(address) = &mut address {
                    address.set_scope_id(0);
                }
                // The longest IPv6 address with a port has 47 bytes.
                let mut written = [0; 48];
                let mut left = &mut written[..];
                write!(left, "{address}").expect("every address fits");
                let left = left.len();
                send(&written[..48 - left]);
            }
            None => send(b"localhost"),
        }
        send(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(host: Option<&str>, after: After) -> String {
        let to = host.map(|host| host.parse().expect("an address"));
        String::from_utf8(Request::default().bytes("/a?b", to, after)).expect("it is text")
    }

    #[test]
    fn a_request_names_its_host() {
        let request = "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:80\r\nUser-Agent: sockdrawer\r\nConnection: close\r\n\r\n";
        assert_eq!(text(Some("127.0.0.1:80"), After::Close), request);
        let long = "[1111:2222:3333:4444:5555:6666:7777:8888";
        let host = format!("\r\nHost: {long}]:65535\r\n");
        assert!(
            text(Some(&format!("{long}%4294967295]:65535")), After::KeepAlive).contains(&host),
            "a zone is of no interest to others"
        );
        assert!(text(None, After::KeepAlive).contains("\r\nHost: localhost\r\n"));
    }

    #[test]
    fn what_was_given_takes_the_place_of_what_requests_have_by_themselves() {
        let written = |request: &Request| String::from_utf8(request.bytes("/x", None, After::KeepAlive)).expect("it is text");
        let post = Request { method: "POST".to_owned(), body: b"a=1".to_vec(), ..Request::default() };
        let head = "POST /x HTTP/1.1\r\nHost: localhost\r\nUser-Agent: sockdrawer\r\nConnection: keep-alive\r\n";
        assert_eq!(written(&post), format!("{head}Content-Length: 3\r\n\r\na=1"));
        let fields = ["host: a", "USER-AGENT: b", "Connection: c", "content-length: 0", "X: y"].map(str::to_owned).to_vec();
        let own = Request { fields, body: Vec::new(), ..post };
        assert_eq!(
            written(&own),
            "POST /x HTTP/1.1\r\nhost: a\r\nUSER-AGENT: b\r\nConnection: c\r\ncontent-length: 0\r\nX: y\r\n\r\n"
        );
        let none = Request { method: "PUT".to_owned(), ..Request::default() };
        assert!(written(&none).contains("\r\nContent-Length: 0\r\n"), "a server would wait for a body");
        assert!(!written(&Request::default()).contains("Content-Length"));
    }
}
