//! Upgrades of pools that connect, and of pools that serve one connection at a time.

use super::common::{PATIENCE, any_port};
use super::place::{Place, config, many_sums, moved};
use super::sums::{add, build};
use sockdrawer::{Address, Config, Drain, Model, connecting::Connecting};
use std::net::{TcpListener, TcpStream};

#[test]
fn connections_that_were_made_go_on_and_none_is_made_twice() {
    for total in [None, Some(12)] {
        let target = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = Address::Tcp(target.local_addr().expect("its address"));
        let connects = |number, total: Option<u64>| {
            let mut connecting = Connecting::to([&at]).keep(10);
            connecting.total = total;
            Config::connect(build(number), connecting).loops(2)
        };
        let place = Place::new(&format!("connects-{}", total.is_some()));
        let serve = |number| {
            let upgrade = place.upgrade().begin().expect("it begins");
            let pool = upgrade.start("sums", connects(number, total)).expect("it starts");
            upgrade.ready().expect("it takes over");
            pool
        };
        let old = serve(1);
        let mut peers: Vec<TcpStream> = (0..10).map(|_| target.accept().expect("it connects").0).collect();
        peers.iter_mut().for_each(|peer| assert_eq!(add(peer, 1), (1, 1)));
        let new = serve(2);
        moved_out(&old, &new);
        peers.iter_mut().for_each(|peer| assert_eq!(add(peer, 1), (2, 2)));
        assert_eq!((new.status().connections, new.status().counts.connected), (10, 10), "there are enough");
        // Those that end are replaced, up to the total.
        drop(peers.split_off(4));
        peers.extend((0..total.map_or(6, |total| total - 10)).map(|_| target.accept().expect("another").0));
        peers.iter_mut().skip(4).for_each(|peer| assert_eq!(add(peer, 3), (2, 3)));
        let open = peers.len();
        assert!(new.wait(PATIENCE, |status| status.connections == open), "{:#?}", new.status());
        target.set_nonblocking(true).expect("a listener");
        assert!(target.accept().is_err(), "no more of them");
        drop(peers);
        new.shutdown(Drain::within(PATIENCE));
    }
}

fn moved_out(old: &sockdrawer::Pool, new: &sockdrawer::Pool) {
    assert!(old.join().is_ok());
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 10), "{:#?}", new.status());
}

#[test]
fn one_at_a_time_it_stays_in_both() {
    let place = Place::new("single");
    let single = |number| config(build(number)).loops(1).model(Model::Single);
    let (old, at) = place.serve(single(1).listen(any_port()));
    let mut first = many_sums(at, 1).remove(0);
    let mut second = TcpStream::connect(at).expect("it waits");
    let (new, _) = place.serve(single(2).listen(Address::Tcp(at)));
    moved(&old, &new, 1);
    assert_eq!(add(&mut first, 1), (2, 2));
    assert_eq!(new.status().connections, 1);
    drop(first);
    assert_eq!(add(&mut second, 1), (2, 1));
}
