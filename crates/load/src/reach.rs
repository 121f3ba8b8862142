//! The address that is used, of those that a name has.

use crate::server::{accepts, is_here};
use sockdrawer::Address;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::{Duration, Instant};

/// Time from one attempt to the next, where the one before has no answer yet: RFC 8305, section 5.
const NEXT: Duration = Duration::from_millis(250);
/// The timeout of all attempts.
const WITHIN: Duration = Duration::from_secs(5);

/// Chooses the first of these addresses at which a server accepts, as a browser does; the first of all where none does. Each that is tried gets
/// one connection, which ends at once; at this machine the kernel's list of listening sockets is looked at before. One address is not tried.
///
/// # Panics
/// When there is none.
pub fn reachable(addresses: &[Address]) -> &Address {
    if addresses.len() == 1 {
        return &addresses[0];
    }
    let ((sender, came), until) = (channel(), Instant::now() + WITHIN);
    let mut left = addresses.iter().enumerate();
    let mut under_way = 0;
    loop {
        let wait = match left.next() {
            Some((at, address)) => {
                let (sender, address) = (sender.clone(), address.clone());
                // The thread may outlive this call: then nothing receives what it sends.
                spawn(move || sender.send((at, is_reached(&address))));
                under_way += 1;
                NEXT
            }
            None if under_way == 0 => return &addresses[0],
            None => until.saturating_duration_since(Instant::now()),
        };
        match came.recv_timeout(wait) {
            Ok((at, true)) => return &addresses[at],
            Ok((_, false)) => under_way -= 1,
            Err(_) if Instant::now() >= until => return &addresses[0],
            Err(_) => {}
        }
    }
}

fn is_reached(address: &Address) -> bool {
    match address {
        address if is_here(address) && accepts(address) => true,
        Address::Tcp(address) => TcpStream::connect_timeout(address, WITHIN).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_first_that_accepts_is_used_and_is_not_connected_to_at_this_machine() {
        // Nothing listens there, and the kernel chooses no such port for others.
        let gone = "127.0.96.1:9".parse().expect("an address");
        let (one, other) = (TcpListener::bind("127.0.0.2:0").expect("a port"), TcpListener::bind("127.0.0.3:0").expect("a port"));
        let [one, other] = [one, other].map(|listener| {
            listener.set_nonblocking(true).expect("a socket");
            (Address::Tcp(listener.local_addr().expect("bound")), listener)
        });
        let gone = Address::Tcp(gone);
        assert_eq!(reachable(&[gone.clone(), one.0.clone(), other.0.clone()]), &one.0);
        assert_eq!(reachable(&[gone.clone(), other.0.clone()]), &other.0);
        assert_eq!(reachable(&[gone.clone(), gone.clone()]), &gone);
        assert_eq!(reachable(std::slice::from_ref(&gone)), &gone);
        for (_, listener) in [one, other] {
            assert_eq!(listener.accept().expect_err("no connection").kind(), std::io::ErrorKind::WouldBlock);
        }
    }
}
