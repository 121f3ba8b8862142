//! Settings of a pool as a program writes them: addresses as text, the number that a connect pool keeps, settings by a closure;
//! and the errors where they are wrong.

use crate::common::*;
use sockdrawer::changing::How;
use sockdrawer::connecting::{Connecting, Late};
use sockdrawer::listening::{ListenOptions, Listening};
use sockdrawer::{Address, AddressError, Config, Drain, Endpoint, Error, Model, Pool};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

const NO_PORT: &str = "listeners: the address \"127.0.0.1\" has no port: write HOST:PORT, such as 127.0.0.1:9000";

fn refused(config: Config) -> String {
    let error = Pool::start(config).expect_err("it is refused");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error.to_string()
}

#[test]
fn every_form_of_an_address_is_listened_at() {
    let free: SocketAddr = ([127, 0, 0, 1], 0).into();
    let name = format!("unix:@sockdrawer-configuring-{}", std::process::id());
    let any = Address::Tcp(free);
    let config = Config::accept(Echo)
        .listen("127.0.0.1:0")
        .listen(String::from("127.0.0.2:0"))
        .listen(&name)
        .listen(free)
        .listen(&any)
        .listen(any)
        .listening(Listening::new("localhost:0").limit(3).options(ListenOptions::default()))
        .listen_with("[::1]:0", ListenOptions::default());
    let held = TcpListener::bind(free).expect("a free port");
    let at = held.local_addr().expect("bound");
    let pool = Pool::start(config.inherit(at, Arc::new(held.into()))).expect("it starts");
    assert_eq!(pool.addresses().len(), 9, "{:?}", pool.addresses());
    assert!(echoes(&mut connect(at), b"inherited"));
    let serves = Pool::serve(Echo, free).expect("it starts");
    assert!(echoes(&mut connect(address(&serves)), b"served"));
}

#[test]
fn a_wrong_address_is_told_by_the_first_that_could_use_it() {
    let wrong = || Config::accept(Echo).listen("127.0.0.1:0").listen("127.0.0.1").listen("*:80");
    assert_eq!(refused(wrong()), NO_PORT, "the first of two");
    assert!(matches!(
        Pool::start(wrong()),
        Err(Error::Address { setting: "listeners", source: AddressError::NoPort(text) }) if text == "127.0.0.1"
    ));
    assert_eq!(refused(Config::accept(Echo).listening(Listening::new("127.0.0.1").limit(1))), NO_PORT);
    assert_eq!(refused(Config::accept(Echo).listen_with("127.0.0.1", ListenOptions::default())), NO_PORT);
    assert_eq!(Pool::serve(Echo, "127.0.0.1").expect_err("no port").to_string(), NO_PORT);
    let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
    assert_eq!(refused(Config::accept(Echo).inherit("127.0.0.1", Arc::new(held.into()))), NO_PORT);
    // An empty path is no address either, wherever it comes from.
    let empty = refused(Config::accept(Echo).listen(Address::Unix("".into())));
    assert!(empty.starts_with("listeners: the address \"unix:\" is empty"), "{empty}");
    // Other errors are reported after this one.
    assert_eq!(refused(wrong().loops(0)), NO_PORT);
}

#[test]
fn a_wrong_address_changes_nothing_in_a_running_pool() {
    let (pool, at) = start(Config::accept(Echo).loops(1));
    let wanted = pool.config().limit(7).listen("127.0.0.1");
    assert_eq!(pool.plan(&wanted).expect_err("no port").to_string(), NO_PORT);
    assert_eq!(pool.reconfigure(wanted.clone()).expect_err("no port").to_string(), NO_PORT);
    assert_eq!(pool.update(|config| config.listen("127.0.0.1")).expect_err("no port").to_string(), NO_PORT);
    assert_eq!((pool.status().revision, pool.addresses()), (1, vec![Address::Tcp(at)]));
    // Also where the change is refused anyway.
    assert_eq!(pool.plan(&wanted.clone().model(Model::Threads)).expect_err("no port").to_string(), NO_PORT);
    // Put right, it is applied.
    let mut right = wanted;
    let Endpoint::Accept { listeners, .. } = &mut right.endpoint else { unreachable!("it accepts") };
    listeners[1].address = "127.0.0.2:0".parse().expect("an address");
    assert!(pool.plan(&right).expect("it makes sense").has(How::NewSocket));
    pool.reconfigure(right).expect("it is right now");
    assert_eq!((pool.status().limit, pool.addresses().len()), (7, 2));
}

#[test]
fn a_plan_says_what_is_wrong_and_what_is_refused() {
    let (pool, _) = start(Config::accept(Echo).loops(1));
    let error = pool.plan(&pool.config().loops(0)).expect_err("no loops");
    assert!(matches!(error, Error::Invalid { setting: "loops", .. }), "{error}");
    let plan = pool.plan(&pool.config().model(Model::Threads)).expect("a plan");
    assert!(plan.has(How::Refused), "{plan}");
}

#[test]
fn a_wrong_target_is_told() {
    let to = |targets: [&str; 3]| Config::connect(Echo, Connecting::to(targets).keep(1));
    assert_eq!(
        refused(to(["127.0.0.1:9000", "127.0.0.1:http", "*:1"])),
        "connecting.targets: the port \"http\" of \"127.0.0.1:http\" is not a number: write one from 0 to 65535"
    );
    let none = Connecting::to([] as [Address; 0]).keep(1);
    assert!(refused(Config::connect(Echo, none)).starts_with("connecting.targets: there is no target"));
}

#[test]
fn a_connect_pool_says_how_many_connections_it_keeps() {
    let to = || Connecting::to(["127.0.0.1:9"]);
    assert_eq!(
        refused(Config::connect(Echo, to())),
        "connecting.keep: a pool that connects keeps a number of connections: write how many, as in Connecting::to(targets).keep(32)"
    );
    assert_eq!(
        refused(Config::connect(Echo, to().keep(0))),
        "connecting.keep: a pool that keeps 0 connections connects to nothing: use at least 1, or suspend the pool"
    );
    assert_eq!(
        refused(Config::connect(Echo, to().keep(8)).limit(32)),
        "limit: a pool that connects has no limit, it keeps a number of connections: write Connecting::to(targets).keep(32)"
    );
    let error = Pool::start(Config::connect(Echo, to().keep(usize::MAX))).expect_err("so many descriptors are nowhere");
    let Error::LimitTooHigh { setting: "connecting.keep", asked: usize::MAX, allowed, fits, .. } = error else {
        panic!("{error}")
    };
    assert!(fits < allowed);
    let line = error.to_string();
    assert!(line.starts_with("keeping 18446744073709551615 connections needs"), "{line}");
    assert!(line.ends_with("raise `ulimit -n` or keep fewer") && line.lines().count() == 1, "{line}");
}

#[test]
fn a_running_connect_pool_keeps_more_or_fewer() {
    let (server, at) = start(Config::accept(Echo).loops(1));
    let pool = Pool::start(Config::connect(Echo, Connecting::to([at]).keep(3)).loops(2)).expect("it starts");
    let keep = |count| pool.update(|config| config.connecting(|connecting| connecting.keep = Some(count)));
    let kept = |count| {
        assert!(pool.wait(PATIENCE, |status| status.connections == count), "{:?}", pool.status());
        assert!(server.wait(PATIENCE, |status| status.connections == count), "{:?}", server.status());
    };
    kept(3);
    let applied = keep(5).expect("more");
    assert_eq!(applied.plan.to_string(), "connecting.keep: in place (3 to 5)");
    kept(5);
    // Fewer end none, and those that end are not replaced until there are fewer.
    keep(2).expect("fewer");
    assert_eq!((pool.status().limit, pool.status().connections), (2, 5));
    let one = |server: &Pool| server.connections(&sockdrawer::Selector::All)[0].id;
    server.kill(&sockdrawer::Selector::Id(one(&server)));
    kept(4);
    keep(0).expect("none in place of those that end");
    server.kill(&sockdrawer::Selector::All);
    kept(0);
    keep(1).expect("again");
    kept(1);
    // A refused change leaves the number as it was.
    let limited = pool.update(|config| config.limit(9)).expect_err("it has no limit");
    assert!(matches!(limited, Error::Invalid { setting: "limit", .. }), "{limited}");
    let unsaid = pool.update(|config| config.connecting(|connecting| connecting.keep = None)).expect_err("how many?");
    assert!(matches!(unsaid, Error::Invalid { setting: "connecting.keep", .. }), "{unsaid}");
    let all = keep(usize::MAX).expect_err("so many descriptors are nowhere");
    assert!(matches!(all, Error::LimitTooHigh { setting: "connecting.keep", .. }), "{all}");
    assert_eq!((pool.status().limit, pool.status().connections), (1, 1));
    pool.shutdown(Drain::within(PATIENCE));
}

#[test]
fn each_setting_has_a_method() {
    let config = Config::accept(Echo)
        .settings(|settings| settings.high_water = 1 << 20)
        .settings(|settings| settings.idle = Some(Duration::from_secs(9)))
        .inbox(1)
        .worker_queue(2)
        .stuck_after(Duration::from_secs(3))
        .backlog(4);
    assert_eq!((config.settings.high_water, config.settings.idle), (1 << 20, Some(Duration::from_secs(9))));
    assert_eq!((config.inbox, config.worker_queue, config.stuck_after), (1, 2, Duration::from_secs(3)));
    assert!(matches!(config.endpoint, Endpoint::Accept { backlog: 4, .. }));
    let connecting = Connecting::to(["127.0.0.1:1"])
        .keep(2)
        .sources([[127, 0, 0, 2].into()])
        .local_ports(3, 4)
        .total(5)
        .rate(6.0)
        .late(Late::MakeUp)
        .timeout(Duration::from_secs(7));
    assert_eq!((connecting.keep, connecting.total, connecting.rate), (Some(2), Some(5), Some(6.0)));
    assert_eq!((connecting.local_ports, connecting.late), (Some((3, 4)), Late::MakeUp));
    assert_eq!((connecting.sources.len(), connecting.timeout), (1, Duration::from_secs(7)));
}

#[test]
fn what_belongs_to_the_other_end_panics() {
    let connects = || Config::connect(Echo, Connecting::to(["127.0.0.1:1"]).keep(1));
    let accepts = || Config::accept(Echo);
    let panics = |remedy: &str, call: &dyn Fn() -> Config| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).expect_err(remedy);
        assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains(remedy)), "{remedy}");
    };
    panics("use Config::accept", &|| connects().listen("127.0.0.1:0"));
    panics("use Config::accept", &|| connects().backlog(1));
    panics("use Config::connect", &|| accepts().connecting(|_| ()));
}

#[test]
fn what_a_program_holds_prints_in_short() {
    let config = Config::accept(Echo).listen("127.0.0.1:0").limit(7);
    let text = format!("{config:?}");
    for part in ["Protocol(", "Echo)", "127.0.0.1:0", "limit: Some(7)", "inbox: 65536", "high_water: 65536", "Restarts"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(text.len() < 2000, "{} bytes: {text}", text.len());
    let (pool, at) = start(Config::accept(Echo));
    // Its supervisor may have it locked for a moment.
    let shown = format!("Pool {{ model: Loops, addresses: [\"{at}\"], .. }}");
    assert!(pool.wait(PATIENCE, |_| format!("{pool:?}") == shown), "{pool:?}");
    // Not even an observer waits, which is called while the pool is locked.
    let (tell, told) = std::sync::mpsc::channel();
    let printed = pool.clone();
    let observer = move |_: &sockdrawer::observe::Event| drop(tell.send(format!("{printed:?}")));
    pool.update(move |config| config.observer(observer.clone())).expect("another observer");
    pool.update(|config| config.behaviour(Echo)).expect("another generation");
    assert_eq!(told.recv_timeout(PATIENCE).expect("it is told"), "Pool { .. }");
    pool.shutdown(Drain::within(PATIENCE));
    let error = "127.0.0.1".parse::<Address>().expect_err("no port");
    assert_eq!(format!("{error:?}"), error.to_string(), "main prints errors by Debug");
}

/// Checks that an idle timeout is refused there: it would bound nothing, and half a request would stay open for ever.
#[test]
fn an_idle_timeout_is_refused_where_the_loop_does_not_see_what_is_read() {
    let refused = |behaviour: sockdrawer::Behaviour, model: Model, instead: &str| {
        let config = Config::accept(behaviour).model(model).listen("127.0.0.1:0");
        assert!(Pool::check(&config).is_ok(), "{model} without it");
        let config = config.settings(|settings| settings.idle = Some(Duration::from_secs(9)));
        match Pool::check(&config) {
            Err(Error::Invalid { setting: "settings.idle", reason }) => assert!(reason.contains(instead), "{reason}"),
            other => panic!("{model}: {other:?}"),
        }
    };
    refused(sockdrawer::Behaviour::blocking(|_| Ok(())), Model::Threads, "give its reads a timeout");
    #[cfg(feature = "processes")]
    refused(sockdrawer::Behaviour::exec("cat", ["-u"]), Model::Fork, "bound its reads there");
    #[cfg(feature = "tokio")]
    {
        refused(sockdrawer::Behaviour::task(|_, _| async {}), Model::Tasks, "tokio::time::timeout");
        refused(sockdrawer::Behaviour::listener(), Model::Tasks, "sockdrawer_hyper::Timeouts");
    }
}
