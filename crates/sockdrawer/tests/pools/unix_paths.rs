//! Unix sockets: the mode and the owner of their paths, how one takes the path of another while clients connect, and names without a file.

use crate::common::{Echo, PATIENCE, Stops, percentile};
use crate::folder::Folder;
use sockdrawer::changing::How;
use sockdrawer::layer::proxy_header::Accepts;
use sockdrawer::listening::{ListenOptions, Listening};
use sockdrawer::{Address, Config, Drain, Error, Model, Pool};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Clients that connect all the time.
const CLIENTS: usize = 16;

fn with(change: impl FnOnce(&mut ListenOptions)) -> ListenOptions {
    let mut options = ListenOptions::default();
    change(&mut options);
    options
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn at(path: &Path, options: ListenOptions) -> Config {
    Config::accept(Echo).loops(2).listen_with(Address::Unix(path.to_owned()), options)
}

/// Makes one exchange over a connection of its own.
fn visit(path: &Path) -> std::io::Result<()> {
    exchange(&mut UnixStream::connect(path)?)
}

fn exchange(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"ping")?;
    let mut back = [0; 4];
    stream.read_exact(&mut back)?;
    if back == *b"ping" { Ok(()) } else { Err(std::io::Error::other("another answer")) }
}

fn reconfigure(pool: &Pool, change: impl Fn(&mut ListenOptions)) -> Result<sockdrawer::Applied, Error> {
    pool.update(|config| config.listeners(|listeners| change(&mut listeners[0].options)))
}

#[test]
fn a_path_has_the_mode_and_the_owner_that_are_asked_for() {
    let folder = Folder::new("mode");
    let path = folder.path();
    let own = std::fs::metadata(&folder.0).map(|meta| (meta.uid(), meta.gid())).expect("it is there");
    for wanted in [0o600, 0o660, 0o666, 0o777, 0o200] {
        let options = with(|options| {
            (options.mode, options.user, options.group) = (Some(wanted), Some(own.0), Some(own.1));
        });
        let pool = Pool::start(at(&path, options)).expect("they are this user's");
        let meta = std::fs::metadata(&path).expect("it is there");
        assert_eq!((mode(&path), meta.uid(), meta.gid()), (wanted, own.0, own.1));
        visit(&path).expect("it listens");
        drop(pool);
        assert_eq!(folder.names(), [""; 0]);
    }
}

/// Checks owners that are other users, which root alone can set; without the right to, the error says what to do, and no file is
/// left behind.
#[test]
fn an_owner_that_may_not_be_set_is_refused_and_leaves_no_path() {
    let folder = Folder::new("owner");
    let path = folder.path();
    let (user, group) = (4_242, 4_343);
    let options = with(|options| (options.user, options.group) = (Some(user), Some(group)));
    match Pool::start(at(&path, options)) {
        Ok(pool) => {
            let meta = std::fs::metadata(&path).expect("it is there");
            assert_eq!((meta.uid(), meta.gid()), (user, group));
            drop(pool);
        }
        Err(refused) => {
            let told = refused.to_string();
            assert!(told.contains("CAP_CHOWN") && told.contains(&path.display().to_string()), "{told}");
            assert_eq!(told.lines().count(), 1);
        }
    }
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn what_has_no_file_has_no_mode_and_no_owner() {
    let folder = Folder::new("refused");
    let refused = |address: Address, options: ListenOptions| {
        let told = Pool::start(Config::accept(Echo).listen_with(address, options)).expect_err("it is refused").to_string();
        assert_eq!(told.lines().count(), 1, "{told}");
        told
    };
    let tcp: Address = "127.0.0.1:0".parse().expect("an address");
    let name = Address::Abstract(b"sockdrawer-no-mode".to_vec());
    let changes: [fn(&mut ListenOptions); 3] =
        [|options| options.mode = Some(0o600), |options| options.user = Some(0), |options| options.group = Some(0)];
    for change in changes {
        assert!(refused(tcp.clone(), with(change)).contains("127.0.0.1:0 is a TCP address, which has no mode and no owner"));
        assert!(refused(name.clone(), with(change)).contains("unix:@sockdrawer-no-mode is an abstract name, which has no mode"));
    }
    let path = Address::Unix(folder.path());
    assert!(refused(path.clone(), with(|options| options.mode = Some(0o4755))).contains("mode 0o4755"));
    assert!(refused(path.clone(), with(|options| options.user = Some(u32::MAX))).contains("no user and no group"));
    assert!(refused(path, with(|options| options.freebind = true)).contains("for TCP"));
    assert_eq!(folder.names(), [""; 0]);
}

/// Does `change` `times` times, each after some visits, while clients connect all the time; returns what failed.
fn under_churn(path: &Path, times: usize, mut change: impl FnMut(usize)) -> (u64, Vec<String>) {
    let (stop, visits, failures) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if let Err(error) = visit(path) {
                        failures.lock().expect("no panic").push(error.to_string());
                    }
                    visits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for turn in 0..times {
            let before = visits.load(Ordering::Relaxed);
            change(turn);
            let begun = Instant::now();
            while visits.load(Ordering::Relaxed) < before + 20 && begun.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
        }
    });
    (visits.into_inner(), failures.into_inner().expect("no panic"))
}

fn replaced_under_churn(name: &str, model: Model) {
    let folder = Folder::new(name);
    let path = folder.path();
    let pool = Pool::start(at(&path, ListenOptions::default()).model(model)).expect("the path is free");
    let mut kept = UnixStream::connect(&path).expect("it listens");
    exchange(&mut kept).expect("it answers");
    let mut took = Vec::new();
    let (visits, failures) = under_churn(&path, 200, |turn| {
        let wanted = if turn % 2 == 0 { 0o600 } else { 0o666 };
        let applied = reconfigure(&pool, |options| options.mode = Some(wanted)).expect("the path is the pool's");
        assert!(applied.plan.has(How::NewSocket), "{}", applied.plan);
        assert_eq!(mode(&path), wanted);
        exchange(&mut kept).expect("connections that are there stay");
        took.push(applied.took);
    });
    assert!(visits > 4_000, "{visits}");
    assert_eq!(failures, [""; 0], "of {visits} visits");
    println!("{visits} visits; a replacement: p50 {:?}, p99 {:?}", percentile(&mut took, 0.5), percentile(&mut took, 0.99));
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    assert_eq!(folder.names(), ["socket"], "nothing is left beside it");
    assert!(
        matches!(Pool::start(at(&path, ListenOptions::default())), Err(Error::AddressInUse(_))),
        "a second program is refused"
    );
    let accepted = pool.status().counts.accepted;
    assert!(accepted > visits, "{accepted} accepted, {visits} visits and one that stays");
    pool.shutdown(Drain::within(PATIENCE));
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn in_the_model_loops_no_client_notices_that_a_path_is_passed_on() {
    replaced_under_churn("passed-on-loops", Model::Loops);
}

#[test]
fn in_the_model_threads_no_client_notices_that_a_path_is_passed_on() {
    replaced_under_churn("passed-on-threads", Model::Threads);
}

#[test]
fn a_path_that_was_removed_is_there_again_after_a_replacement() {
    let folder = Folder::new("again");
    let path = folder.path();
    let pool = Pool::start(at(&path, ListenOptions::default())).expect("the path is free");
    std::fs::remove_file(&path).expect("it is there");
    reconfigure(&pool, |options| options.mode = Some(0o600)).expect("the path is free");
    visit(&path).expect("it listens");
    // A path that a program that died left there is no obstacle, and a socket that listens is left alone.
    std::fs::remove_file(&path).expect("it is there");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("it is free"));
    reconfigure(&pool, |options| options.mode = Some(0o660)).expect("nothing listens there");
    visit(&path).expect("it listens");
    std::fs::remove_file(&path).expect("it is there");
    let other = Pool::start(at(&path, ListenOptions::default())).expect("it is free");
    let refused = reconfigure(&pool, |options| options.mode = Some(0o600));
    assert!(matches!(&refused, Err(Error::AddressInUse(Address::Unix(at))) if *at == path), "{refused:?}");
    assert_eq!(folder.names(), ["socket"]);
    drop(pool);
    visit(&path).expect("it is the other's");
    drop(other);
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_change_that_fails_gives_the_paths_back() {
    let folder = Folder::new("back");
    let paths = [folder.0.join("one"), folder.0.join("two")];
    let config = paths.iter().fold(Config::accept(Echo).loops(1), |config, path| config.listen(Address::Unix(path.clone())));
    let pool = Pool::start(config).expect("the paths are free");
    let inodes = || paths.each_ref().map(|path| std::fs::metadata(path).expect("it is there").ino());
    let before = inodes();
    // A second name for a socket is of another program; to change the first would be well.
    let in_the_way = Folder::new("in-the-way");
    std::fs::rename(&paths[1], in_the_way.path()).expect("it is there");
    std::fs::write(&paths[1], "a file").expect("writable");
    let change =
        |config: Config| config.listeners(|listeners| listeners.iter_mut().for_each(|one| one.options.mode = Some(0o600)));
    let (visits, failures) = under_churn(&paths[0], 20, |_| {
        let refused = pool.update(change).expect_err("a file is in the way").to_string();
        assert!(refused.contains("a file that is no socket has this path") && refused.contains(paths[1].to_str().expect("text")));
    });
    assert_eq!(failures, [""; 0], "of {visits} visits");
    assert_eq!(std::fs::read(&paths[1]).expect("it is there"), b"a file");
    std::fs::rename(in_the_way.path(), &paths[1]).expect("it is there");
    assert_eq!(inodes(), before);
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    assert_eq!(folder.names().len(), 2, "{:?}", folder.names());
    pool.update(change).expect("both are the pool's");
    paths.iter().for_each(|path| visit(path).expect("it listens"));
    drop(pool);
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_layer_of_its_own_comes_to_a_path_without_a_moment_in_which_it_is_absent() {
    let folder = Folder::new("own");
    let path = folder.path();
    let pool = Pool::start(at(&path, ListenOptions::default())).expect("the path is free");
    let (visits, failures) = under_churn(&path, 10, |turn| {
        let place = Listening::new(Address::Unix(path.clone()));
        let place = if turn % 2 == 0 { place.layered(Accepts::from([])) } else { place };
        pool.update(|config| config.listeners(|listeners| *listeners = vec![place.clone()])).expect("the path is the pool's");
    });
    assert_eq!(failures, [""; 0], "of {visits} visits");
}

#[test]
fn the_longest_path_that_an_address_can_have_is_passed_on() {
    let folder = Folder::new("long");
    let room = 107 - folder.0.as_os_str().len() - 1;
    let path = folder.0.join("s".repeat(room));
    let pool = Pool::start(at(&path, ListenOptions::default())).expect("the path is free");
    reconfigure(&pool, |options| options.mode = Some(0o600)).expect("there is a name beside it");
    visit(&path).expect("it listens");
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0));
    assert_eq!(folder.names().len(), 1);
    drop(pool);
    // A folder with so long a name that only a short name fits into it.
    let deep = folder.0.join("d".repeat(room - 3));
    std::fs::create_dir(&deep).expect("writable");
    let path = deep.join("s");
    let pool = Pool::start(at(&path, ListenOptions::default())).expect("the path is free");
    let refused = reconfigure(&pool, |options| options.mode = Some(0o600)).expect_err("no name fits").to_string();
    assert!(refused.contains("File name too long") && refused.contains("107 bytes"), "{refused}");
    visit(&path).expect("it goes on");
}

fn abstract_stream(name: &[u8]) -> std::io::Result<UnixStream> {
    use std::os::linux::net::SocketAddrExt;
    UnixStream::connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)
}

#[test]
fn an_abstract_name_is_one_servers_alone_and_leaves_no_file() {
    let name = format!("sockdrawer-abstract-{}", std::process::id()).into_bytes();
    let address = Address::Abstract(name.clone());
    let pool = Pool::start(Config::accept(Echo).loops(1).listen(address.clone())).expect("the name is free");
    exchange(&mut abstract_stream(&name).expect("it listens")).expect("it answers");
    let second = Pool::start(Config::accept(Echo).loops(1).listen(address.clone()));
    assert!(matches!(&second, Err(Error::AddressInUse(at)) if *at == address), "{second:?}");
    let own = Listening::new(address.clone()).layered(Accepts::from([]));
    let refused =
        pool.update(|config| config.listeners(|listeners| *listeners = vec![own.clone()])).expect_err("no second socket");
    assert!(refused.to_string().contains("remove it, and add it after that"), "{refused}");
    exchange(&mut abstract_stream(&name).expect("it listens still")).expect("it answers");
    pool.shutdown(Drain::within(Duration::ZERO));
    assert!(abstract_stream(&name).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused));
    drop(Pool::start(Config::accept(Echo).loops(1).listen(address)).expect("the name is free again"));
}
