//! Bytes: all arrive, in order and once, whichever side is slow.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::{PATIENCE, Random, connect, read, read_all};
use crate::services::{Actor, Mirror, PERIOD, SIZE, frame, pattern};
use sockdrawer::{Address, Config, Drain, Pool, Settings, connecting::Connecting};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Maximum number of bytes that a loop reads at once.
const READ: u64 = 256 * 1024;

/// Makes one connection to a mirror, sends random bytes there and back until the end, and returns their number.
fn visit(at: SocketAddr, seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut stream = connect(at);
    let bytes: Vec<u8> = (0..=random.below(5000)).map(|_| random.below(256) as u8).collect();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    stream.write_all(first).expect("it stands");
    assert_eq!(read(&mut stream, first.len()).as_deref(), Some(first));
    stream.write_all(second).expect("it stands");
    stream.shutdown(Shutdown::Write).expect("it stands");
    assert_eq!(read_all(&mut stream).expect("an orderly end"), second);
    bytes.len() as u64
}

pub(crate) fn many_clients_get_every_byte(bench: &Bench) -> Outcome {
    const CLIENTS: u64 = 16;
    const VISITS: u64 = 20;
    let (pool, at) = bench.start(bench.config(Mirror))?;
    let sent: u64 = thread::scope(|scope| {
        let client = |client| scope.spawn(move || (1..=VISITS).map(|number| visit(at, client * VISITS + number)).sum::<u64>());
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients.into_iter().map(|client| client.join().expect("every byte came back")).sum()
    });
    assert_settled(&pool);
    let counts = pool.status().counts;
    assert_eq!((counts.accepted, counts.bytes_in, counts.bytes_out), (CLIENTS * VISITS, sent, sent));
    Ok(())
}

pub(crate) fn a_message_may_come_in_any_two_parts(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client::served(at);
    let orders = [frame(b'v', 0), frame(b'a', 7), frame(b'j', 7)].concat();
    let mut came = pool.status().counts.bytes_in;
    for (round, cut) in (1..orders.len()).enumerate() {
        let (first, second) = orders.split_at(cut);
        client.0.write_all(first).expect("it stands");
        came += first.len() as u64;
        assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in >= came), "cut at {cut}");
        client.0.write_all(second).expect("it stands");
        came += second.len() as u64;
        let sum = 7 * (round as u32 + 1);
        assert_eq!([client.answer(), client.answer(), client.answer()], [(b'v', 1), (b'a', sum), (b'j', 8)], "cut at {cut}");
    }
    client.end();
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_client_that_finished_gets_its_answer(bench: &Bench) -> Outcome {
    const SIZE: u32 = 1_000_000;
    let (pool, at) = bench.start(bench.actor())?;
    for orders in [vec![frame(b'w', SIZE)], vec![frame(b'j', 1), frame(b'v', 0), frame(b'w', SIZE)]] {
        let mut client = Client(connect(at));
        client.0.write_all(&orders.concat()).expect("it stands");
        client.finish();
        if orders.len() > 1 {
            assert_eq!([client.answer(), client.answer()], [(b'j', 2), (b'v', 1)]);
        }
        let bytes = client.rest();
        assert_eq!(bytes.len(), SIZE as usize);
        assert!(bytes == pattern(0, bytes.len()));
    }
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_server_that_finished_goes_on_receiving(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client(connect(at));
    client.order(b'f', 3);
    assert_eq!(client.answer(), (b'f', 3));
    assert_eq!(client.rest(), b"");
    for _ in 0..3 {
        client.order(b'k', 0);
    }
    let all = 4 * SIZE as u64;
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == all), "{:#?}", pool.status());
    assert_eq!(pool.status().connections, 1);
    client.finish();
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_slow_reader_gets_everything(bench: &Bench) -> Outcome {
    const MUCH: u32 = 32_000_000;
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client(connect(at));
    client.order(b'w', MUCH);
    client.finish();
    // Sent until the kernel takes no more, and one round of writing after that.
    let mut before = 0;
    let stuck = |sent: u64| sent > 0 && std::mem::replace(&mut before, sent) == sent;
    let mut stuck = stuck;
    assert!(pool.wait(PATIENCE, |status| stuck(status.counts.bytes_out)));
    assert!(pool.status().counts.bytes_out < u64::from(MUCH), "it must not fit into the kernel's buffers");
    let bytes = client.rest();
    assert_eq!(bytes.len(), MUCH as usize);
    assert!(bytes == pattern(0, MUCH as usize));
    assert_settled(&pool);
    assert_eq!(pool.status().counts.bytes_out, u64::from(MUCH));
    Ok(())
}

pub(crate) fn a_flood_is_held_back_and_harms_nobody(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.config(Mirror))?;
    let mut flood = connect(at);
    // A flood that is not held back ends by what the kernel can hold, long before this.
    flood.set_write_timeout(Some(Duration::from_millis(300))).expect("not zero");
    let mut sent = 0;
    let block = pattern(0, PERIOD * 256);
    loop {
        match flood.write(&block[sent % PERIOD..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("the flood is held back, not ended: {error}"),
        }
    }
    let counts = pool.status().counts;
    let kept = counts.bytes_in - counts.bytes_out;
    let most = Settings::default().high_water as u64 + 2 * READ;
    assert!(kept <= most, "{kept} bytes are kept for a client that does not read");
    let other = thread::spawn(move || visit(at, 1));
    if bench.side_by_side() {
        other.join().expect("the other is served");
        assert_all_come_back(flood, sent);
    } else {
        assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
        assert_all_come_back(flood, sent);
        other.join().expect("the other is served afterwards");
    }
    assert_settled(&pool);
    Ok(())
}

fn assert_all_come_back(mut flood: std::net::TcpStream, sent: usize) {
    flood.shutdown(Shutdown::Write).expect("it stands");
    let bytes = read_all(&mut flood).expect("an orderly end");
    assert_eq!(bytes.len(), sent);
    assert!(bytes == pattern(0, bytes.len()));
}

pub(crate) fn a_unix_socket_serves(bench: &Bench) -> Outcome {
    let name = format!("sockdrawer-models-{}-{}", std::process::id(), bench.model);
    let path = std::env::temp_dir().join(name);
    let pool = Pool::start(bench.config(Mirror).listen(Address::Unix(path.clone())))?;
    for round in 0..10 {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.write_all(&[round; 100]).expect("it stands");
        stream.shutdown(Shutdown::Write).expect("it stands");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an orderly end");
        assert_eq!(bytes, [round; 100]);
    }
    assert_settled(&pool);
    assert_eq!(pool.status().counts.accepted, 10);
    pool.shutdown(Drain::within(PATIENCE));
    assert!(!path.exists(), "the path goes with the pool");
    Ok(())
}

pub(crate) fn a_pool_that_connects(bench: &Bench) -> Outcome {
    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let connecting = Connecting::to([target.local_addr().expect("bound")]).keep(bench.crowd(3)).total(6);
    let pool = Pool::start(bench.of_model(Config::connect(Actor { version: 1 }, connecting)))?;
    for _ in 0..6 {
        let (stream, _) = target.accept().expect("the pool connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let mut client = Client(stream);
        assert_eq!([client.version(), client.ask(b'a', 4).1], [1, 4]);
        client.end();
    }
    let ended = pool.wait(PATIENCE, |status| status.connections == 0 && status.counts.closed == 6);
    let counts = pool.status().counts;
    assert!(ended && (counts.connected, counts.connects, counts.accepted) == (6, 6, 0), "{counts:#?}");
    Ok(())
}

pub(crate) fn counters_add_up(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    for _ in 0..5 {
        let mut client = Client::served(at);
        assert_eq!([client.ask(b'j', 1), client.ask(b'j', 2), client.ask(b'p', 0)], [(b'j', 2), (b'j', 3), (b'!', 0)]);
        client.order(b'w', 10_000);
        read(&mut client.0, 10_000).expect("ten thousand");
        client.end();
    }
    let mut broken = Client::served(at);
    broken.order(b'b', 2);
    broken.order(b'v', 0);
    broken.0.read(&mut [0]).expect_err("a panic is a reset");
    assert_settled(&pool);
    let status = pool.status();
    let counts = status.counts;
    let frames = |count: u64| count * SIZE as u64;
    assert_eq!((counts.accepted, counts.closed, counts.panics), (6, 6, 1));
    assert_eq!((counts.jobs, counts.job_panics, counts.jobs_refused), (15, 5, 0));
    assert_eq!((counts.bytes_in, counts.bytes_out), (frames(5 * 5 + 3), 5 * (frames(4) + 10_000) + frames(1)));
    assert_eq!((counts.connects, counts.rejected, counts.errors, counts.too_long, counts.adopted), (0, 0, 0, 0, 0));
    assert_eq!((status.restarts, status.jobs_waiting, status.listeners[0].queued), (0, 0, 0));
    assert_eq!(status.generation, 1);
    Ok(())
}
