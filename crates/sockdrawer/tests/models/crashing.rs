//! A failure in one place stays there.

use crate::bench::{Bench, Client, Outcome};
use crate::common::{PATIENCE, connect_from, read_all, turned_away};
use crate::services::{At, frame};
use sockdrawer::testing::crash_loop;
use sockdrawer::{Drain, Error, Pool, Selector, restarting::Restarts};
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

/// Brings a connection to where it panics, and sees its end.
fn provoke(pool: &Pool, address: SocketAddr, at: At) -> Outcome {
    if let At::Open | At::Opened = at {
        let end = turned_away(at.source(), address).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset), "{at:?}");
        return Ok(());
    }
    let mut client = Client(connect_from(at.source(), address));
    client.order(b'b', at as u32);
    match at {
        At::Open | At::Opened => unreachable!("its end was seen"),
        At::Received => client.order(b'v', 0),
        At::Finished => client.finish(),
        At::Timeout => client.order(b't', 1),
        At::Done => client.order(b'j', 0),
        At::Writable => {
            let before = pool.status().counts.bytes_out;
            client.order(b'w', 20_000_000);
            // Not read until the first send has returned: a fast reader could take all of it meanwhile, and nothing would be kept.
            assert!(pool.wait(PATIENCE, |status| status.counts.bytes_out > before), "{:#?}", pool.status());
        }
        At::Closed | At::Drop => client.order(b'r', 0),
        At::Notified => {
            assert_eq!(client.version(), 1);
            pool.notify(&Selector::Peers(at.source().into(), 32), frame(b'n', 0))?;
        }
        At::Draining => {
            assert_eq!(client.version(), 1);
            pool.drain(&Selector::Peers(at.source().into(), 32), Drain::within(PATIENCE));
        }
    }
    let end = read_all(&mut client.0).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset), "{at:?}");
    Ok(())
}

pub(crate) fn a_panic_ends_one_connection(bench: &Bench) -> Outcome {
    let (pool, address) = bench.start(bench.actor())?;
    let mut others: Vec<Client> = (1..bench.crowd(8)).map(|_| Client::served(address)).collect();
    let notes = bench.reaches_connections(&pool).is_ok();
    // Where no notes are brought there is no panic of one.
    for (before, at) in At::ALL.into_iter().filter(|at| notes || *at != At::Notified).enumerate() {
        provoke(&pool, address, at)?;
        let gone = pool.wait(PATIENCE, |status| status.connections == others.len() && status.counts.panics == before as u64 + 1);
        assert!(gone, "{at:?}: {:#?}", pool.status());
        others.iter_mut().for_each(|other| assert_eq!(other.ask(b'j', 1), (b'j', 2), "{at:?}"));
        Client::served(address).end();
    }
    assert_eq!(pool.status().restarts, 0);
    Ok(())
}

pub(crate) fn a_dead_part_is_replaced(bench: &Bench) -> Outcome {
    let (pool, address) = bench.start(bench.actor())?;
    let mut kept = Client::served(address);
    assert!(crash_loop(&pool, 0));
    assert!(pool.wait(PATIENCE, |status| status.restarts == 1), "{:#?}", pool.status());
    for _ in 0..20 {
        let mut client = Client(connect_from([127, 0, 0, 1].into(), address));
        // It may have waited in the kernel for the part that died.
        assert_eq!(client.version(), 1);
        if !bench.side_by_side() {
            client.end();
        }
    }
    // It lived or died with the part it was in; nothing else happened to it.
    match kept.0.write_all(&frame(b'a', 1)) {
        Ok(()) => {
            // Where it lives it answers, and ends when its peer does.
            let _ = kept.0.shutdown(Shutdown::Write);
            drop(read_all(&mut kept.0));
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}"),
    }
    Ok(())
}

pub(crate) fn too_many_deaths_end_the_pool(bench: &Bench) -> Outcome {
    let mut config = bench.actor();
    config = config.restarts(Restarts { max: 2, within: Duration::from_secs(3600), ..Restarts::default() });
    let (pool, address) = bench.start(config)?;
    Client::served(address).end();
    for deaths in 1..=3 {
        assert!(crash_loop(&pool, 0), "death {deaths}");
        assert!(pool.wait(PATIENCE, |status| status.restarts >= deaths || deaths == 3), "{:#?}", pool.status());
    }
    match pool.join() {
        Err(Error::Stopped { reason }) => assert!(reason.contains("died too often"), "{reason}"),
        ended => panic!("{ended:?}"),
    }
    std::net::TcpStream::connect(address).expect_err("nobody listens");
    Ok(())
}
