//! Sockets that are used, by threads and by tasks.

use crate::server::{LONG, Server, Target, quiet, soon};
use sockdrawer_lease::sockets::{Address, ConnectError, Socket, Sockets};
use sockdrawer_lease::{BoxError, Connect, Error, Pool, Reason, Settings};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

/// Answers each line with itself.
fn answer(reader: impl Read + Send + 'static, mut writer: impl Write + Send + 'static) {
    thread::spawn(move || _ = io::copy(&mut BufReader::new(reader), &mut writer));
}

fn tcp_server() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream.try_clone().expect("a descriptor"), stream);
        }
    });
    Target::Tcp(address)
}

fn unix_server(name: &str) -> Target {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("{name}-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("a free name");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream.try_clone().expect("a descriptor"), stream);
        }
    });
    Target::Abstract(name.into_bytes())
}

fn ask(pool: &Pool<Target, sockdrawer_lease::sockets::Socket>, target: &Target, line: &str) {
    let mut lease = pool.lease(target, soon()).expect("a socket");
    Write::write_all(&mut *lease, line.as_bytes()).expect("room");
    let mut answer = String::new();
    BufRead::read_line(&mut BufReader::new(&mut *lease), &mut answer).expect("an answer");
    assert_eq!(answer, line);
}

async fn ask_async(pool: &Pool<Target, sockdrawer_lease::sockets::Socket>, target: &Target, line: &str) {
    let mut lease = pool.lease_async(target, soon()).await.expect("a socket");
    AsyncWriteExt::write_all(&mut *lease, line.as_bytes()).await.expect("room");
    let mut answer = String::new();
    let mut reader = tokio::io::BufReader::new(&mut *lease);
    AsyncBufReadExt::read_line(&mut reader, &mut answer).await.expect("an answer");
    assert_eq!(answer, line);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn one_socket_serves_threads_and_tasks_of_several_runtimes_in_turn() {
    for target in [tcp_server(), unix_server("lease-uses")] {
        let settings = Settings { max: 1, ..quiet() };
        let pool = Pool::new(Sockets::new().expect("a pool"), settings).expect("a thread");
        for round in 0..3 {
            ask(&pool, &target, &format!("thread {round}\n"));
            runtime().block_on(ask_async(&pool, &target, &format!("task {round}\n")));
        }
        assert_eq!((pool.stats().connecting.count(), pool.status().free), (1, 1));
    }
}

#[test]
fn threads_and_tasks_share_a_few_sockets_in_one_line() {
    let target = tcp_server();
    let pool = Pool::new(Sockets::new().expect("a pool"), Settings { max: 3, ..quiet() }).expect("a thread");
    let runtime = runtime();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (pool, target) = (pool.clone(), target.clone());
            runtime.spawn(async move {
                for round in 0..50 {
                    ask_async(&pool, &target, &format!("task {task} {round}\n")).await;
                }
            })
        })
        .collect();
    thread::scope(|scope| {
        for thread in 0..8 {
            let (pool, target) = (&pool, &target);
            scope.spawn(move || (0..50).for_each(|round| ask(pool, target, &format!("thread {thread} {round}\n"))));
        }
    });
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    let stats = pool.stats();
    assert!(stats.connecting.count() <= 3 && stats.ends.is_empty() && stats.using.count() == 800, "{stats:?}");
}

#[test]
fn async_connects_make_sockets_too() {
    let (target, runtime) = (tcp_server(), runtime());
    let handle = runtime.handle().clone();
    let spawn = move |job| drop(handle.spawn(job));
    let pool = Pool::new_async(Sockets::new().expect("a pool"), spawn, quiet()).expect("a thread");
    runtime.block_on(ask_async(&pool, &target, "hello\n"));
    ask(&pool, &target, "hello\n");
    assert_eq!(pool.stats().connecting.count(), 1);
}

#[test]
fn a_refused_connect_says_where_and_why() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let sockets = Sockets::new().expect("a pool");
    let error = sockets.connect(&Target::Tcp(closed), LONG).expect_err("nothing listens there");
    assert!(
        matches!(&error, ConnectError::Failed { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused),
        "{error}"
    );
    assert!(error.to_string().starts_with(&format!("cannot connect to {closed}: Connection refused")), "{error}");
    let pool = Pool::new(sockets, quiet()).expect("a thread");
    match pool.lease(&Target::Tcp(closed), Instant::now() + Duration::from_millis(200)) {
        Err(Error::TimedOut { last_connect_error: Some(error), .. }) => {
            assert!(error.to_string().contains("Connection refused"), "{error}");
        }
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_socket_whose_sending_side_was_shut_down_is_not_leased_again() {
    let target = tcp_server();
    let pool = Pool::new(Sockets::new().expect("a pool"), quiet()).expect("a thread");
    let mut lease = pool.lease(&target, soon()).expect("a socket");
    lease.finish().expect("it is open");
    drop(lease);
    assert_eq!(pool.status().free, 0);
}

#[test]
fn a_pool_that_ended_connects_no_more_and_says_so() {
    let (target, sockets) = (tcp_server(), Sockets::new().expect("a pool"));
    sockets.pool().shutdown(sockdrawer::Drain::within(Duration::ZERO));
    let error = sockets.connect(&target, LONG).expect_err("the pool has ended");
    assert!(matches!(error, ConnectError::Ended { .. }), "{error}");
}

/// A name that stands for one server, and then for another.
#[derive(Clone)]
struct Named(Sockets, Arc<Mutex<Address>>);

impl Connect for Named {
    type Target = &'static str;
    type Connection = Socket;

    fn connect(&self, _name: &&'static str, timeout: Duration) -> Result<Socket, BoxError> {
        let address = self.1.lock().expect("no panic").clone();
        Ok(self.0.connect(&address, timeout)?)
    }
}

#[test]
fn after_a_target_is_removed_no_lease_has_a_connection_from_before() {
    let (old, new) = (Server::new(), Server::new());
    let named = Named(Sockets::new().expect("a pool"), Arc::new(Mutex::new(old.target())));
    let pool = Pool::new(named.clone(), Settings { max: 4, ..quiet() }).expect("a thread");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The target is in use at every moment.
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let lease = pool.lease(&"primary", soon()).expect("a socket");
                    assert!(lease.target() == &old.target() || lease.target() == &new.target());
                }
            });
        }
        for at in [&new, &old].into_iter().cycle().take(100) {
            *named.1.lock().expect("no panic") = at.target();
            pool.remove_target(&"primary");
            for _ in 0..20 {
                assert_eq!(pool.lease(&"primary", soon()).expect("a socket").target(), &at.target());
            }
        }
        is_over.store(true, SeqCst);
    });
    assert!(pool.stats().ends[&Reason::Unneeded] >= 100);
}
