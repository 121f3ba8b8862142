//! What clients ask.

use std::io::Write;
use std::net::SocketAddr;

/// The server need not keep the connection, or must: what a request says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The server is to end it after the answer.
    Close,
    /// It is to stay.
    KeepAlive,
}

/// Hands `send` a GET request for `path`, in pieces, with the fields that every server wants. `host` is the server's address; None is
/// a Unix socket.
pub fn get(path: &str, host: Option<SocketAddr>, after: After, mut send: impl FnMut(&[u8])) {
    // The longest IPv6 address with a zone and a port has 64 bytes.
    let mut written = [0; 72];
    let mut rest = &mut written[..];
    let host: &[u8] = match host {
        Some(address) => {
            write!(rest, "{address}").expect("every address fits");
            let left = rest.len();
            &written[..72 - left]
        }
        None => b"localhost",
    };
    send(b"GET ");
    send(path.as_bytes());
    send(b" HTTP/1.1\r\nHost: ");
    send(host);
    send(match after {
        After::Close => b"\r\nUser-Agent: sockdrawer\r\nConnection: close\r\n\r\n",
        After::KeepAlive => b"\r\nUser-Agent: sockdrawer\r\nConnection: keep-alive\r\n\r\n",
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(host: Option<&str>, after: After) -> String {
        let mut text = Vec::new();
        let host = host.map(|host| host.parse().expect("an address"));
        get("/a?b", host, after, |bytes| text.extend_from_slice(bytes));
        String::from_utf8(text).expect("it is text")
    }

    #[test]
    fn a_request_names_its_host() {
        let request = "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:80\r\nUser-Agent: sockdrawer\r\nConnection: close\r\n\r\n";
        assert_eq!(text(Some("127.0.0.1:80"), After::Close), request);
        let long = "[1111:2222:3333:4444:5555:6666:7777:8888%4294967295]:65535";
        assert!(text(Some(long), After::KeepAlive).contains(&format!("\r\nHost: {long}\r\n")));
        assert!(text(None, After::KeepAlive).contains("\r\nHost: localhost\r\n"));
    }
}
