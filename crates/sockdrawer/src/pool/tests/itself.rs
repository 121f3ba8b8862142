//! Connects to a port of this machine where no socket listens, from the range in which that port is.

use super::{Echo, LONG};
use crate::config::{Config, Connecting};
use crate::pool::Pool;
use crate::sys::faulty::Faulty;
use crate::sys::{Errno, private_network};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

const ATTEMPTS: u64 = 1_000;

/// Has a pool try to connect [`ATTEMPTS`] times. Returns how often it connected and how often it failed.
fn connect(target: SocketAddr, system: Arc<Faulty>) -> (u64, u64) {
    let connecting = Connecting::to([target]).keep(1).total(ATTEMPTS);
    let mut config = Config::connect(Echo, connecting).loops(1);
    config.system = system;
    let pool = Pool::start(config).expect("starts");
    assert!(pool.wait(LONG, |status| status.counts.connected + status.counts.connect_failed == ATTEMPTS));
    let counts = pool.status().counts;
    (counts.connected, counts.connect_failed)
}

#[test]
fn a_connection_to_itself_is_a_refusal_and_the_server_can_bind_again() {
    let tested = std::thread::spawn(|| {
        if private_network().is_err() {
            // This user may have no network of its own.
            return;
        }
        let ports = "/proc/sys/net/ipv4/ip_local_port_range";
        std::fs::write(ports, "20000 20003").expect("the network is ours");
        // Without ranges the even ones are tried first.
        let target: SocketAddr = ([127, 0, 0, 1], 20_002).into();
        for has_ranges in [true, false] {
            let system = Arc::new(Faulty::default());
            if !has_ranges {
                // As before Linux 6.3: any port may be the one.
                system.fail_always("limit_ports", Errno::NOPROTOOPT);
            }
            assert_eq!(connect(target, system), (0, ATTEMPTS));
            let server = TcpListener::bind(target);
            assert!(server.is_ok(), "with ranges: {has_ranges}: {server:?}");
        }
    });
    tested.join().expect("no panic");
}
