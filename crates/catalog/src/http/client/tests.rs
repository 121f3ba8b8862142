//! Tests of the client: answers, ends and silence.

use super::*;
use crate::http::Http;
use crate::meter::Failure;
use sockdrawer::Side;
use sockdrawer::testing::{Driver, late_peer};

const TIMEOUT: Duration = Duration::from_secs(30);
const LAG: Duration = Duration::from_millis(5);
const CONNECT: Duration = Duration::from_micros(70);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab";

#[derive(Debug, Default)]
struct Book {
    lags: Vec<Duration>,
    visited: Vec<Visited>,
    failures: Vec<Failure>,
    missed: Vec<usize>,
    renewed: Vec<bool>,
    ends: Vec<End>,
}

impl Meter for Book {
    fn connected(&mut self, _took: Duration) {}
    fn operation(&mut self, _scheduled: Instant, _sent: Instant, _now: Instant) {
        panic!("visited() tells it");
    }
    fn failed(&mut self, phase: Phase, errno: Option<i32>) {
        self.failures.push((phase, errno));
    }
    fn closed(&mut self, end: End) {
        self.ends.push(end);
    }
}

impl VisitMeter for Book {
    fn begun(&mut self, _due: Instant, lag: Duration) {
        self.lags.push(lag);
    }
    fn visited(&mut self, visited: &Visited) {
        self.visited.push(*visited);
    }
    fn missed(&mut self, page: usize) {
        self.missed.push(page);
    }
    fn renewed(&mut self, announced: bool) {
        self.renewed.push(announced);
    }
}

fn page(path: &str, weight: u32, exact: bool) -> Page {
    Page { path: path.to_owned(), weight, exact }
}

fn visits(manner: Manner) -> Visits {
    Visits { pages: vec![page("/a", 1, false)], request: Request::default(), manner, timeout: TIMEOUT, seed: 7 }
}

type Client = super::Client<fn() -> Book>;

fn client(visits: Visits) -> Client {
    Client::new(visits, Book::default)
}

fn open(visits: Visits) -> Driver<Client> {
    Driver::open_with(client(visits), late_peer(Side::Connected, LAG, CONNECT), sockdrawer::testing::Bounds::default())
}

fn once(close: Close) -> Driver<Client> {
    open(visits(Manner::Once(close)))
}

fn kept(most: u64) -> Driver<Client> {
    every(Duration::ZERO, Budget::Shared(Arc::new(AtomicU64::new(most))))
}

fn every(interval: Duration, budget: Budget) -> Driver<Client> {
    open(visits(Manner::KeepAlive { budget, interval: interval.into() }))
}

fn book(connection: &mut Driver<Client>) -> &mut Book {
    connection.local().expect("the client's meter")
}

/// Number of requests that were answered well, the failures, and how the connection ended.
type Outcome = (usize, Vec<Failure>, Vec<End>);

fn outcome(connection: &mut Driver<Client>) -> Outcome {
    let book = book(connection);
    let missed = book.failures.len();
    assert_eq!(book.missed, vec![0; missed], "each failure of a request is told with its page");
    (book.visited.len(), book.failures.clone(), book.ends.clone())
}

#[test]
fn the_whole_way_is_measured() {
    let mut connection = once(Close::Server);
    let request = String::from_utf8(connection.sent()).expect("text");
    assert!(request.starts_with("GET /a HTTP/1.1\r\nHost: 192.0.2.1:1\r\n"), "{request}");
    assert!(request.ends_with("\r\nConnection: close\r\n\r\n"), "{request}");
    let sent = connection.now();
    connection.advance(Duration::from_millis(2));
    connection.receive(&OK[..7]);
    connection.advance(Duration::from_millis(3));
    connection.receive(&OK[7..]);
    assert_eq!(book(&mut connection).visited, [], "the server's end belongs to it");
    connection.advance(Duration::from_millis(4));
    connection.finish();
    let ms = |count| sent + Duration::from_millis(count);
    let visited = Visited {
        page: 0,
        scheduled: sent - CONNECT - LAG,
        began: sent - CONNECT,
        connect: Some(CONNECT),
        sent,
        first_byte: ms(2),
        ended: ms(9),
        bytes: OK.len() as u64,
        body: 2,
        status: 200,
        as_first: true,
    };
    let told = book(&mut connection);
    assert_eq!((&told.visited[..], &told.lags[..]), (&[visited][..], &[LAG][..]));
    assert_eq!((outcome(&mut connection).2, connection.closed()), (vec![End::Complete], Some(Closed::Orderly)));
}

#[test]
fn this_side_ends_it_after_the_whole_answer_and_not_before() {
    for (close, closed) in [(Close::Fin, Closed::Orderly), (Close::Rst, Closed::Aborted)] {
        let mut connection = once(close);
        assert!(connection.sent().ends_with(b"\r\nConnection: keep-alive\r\n\r\n"), "or the server might be first");
        connection.receive_split(&OK[..OK.len() - 1]);
        assert_eq!(connection.closed(), None);
        connection.receive(&OK[OK.len() - 1..]);
        assert_eq!((outcome(&mut connection), connection.closed()), ((1, vec![], vec![End::Complete]), Some(closed)));
    }
}

#[test]
fn an_answer_without_a_length_ends_with_the_connection() {
    for close in [Close::Server, Close::Fin, Close::Rst] {
        let mut connection = once(close);
        connection.receive(b"HTTP/1.0 200 OK\r\n\r\nall");
        connection.finish();
        assert_eq!(outcome(&mut connection), (1, vec![], vec![End::Complete]), "{close:?}");
        assert_eq!(book(&mut connection).visited[0].body, 3);
    }
}

#[test]
fn both_ends_of_http_understand_each_other() {
    for (path, slow) in [("/test/fast", false), ("/test/slow", true)] {
        let mut connection = open(Visits { pages: vec![page(path, 1, true)], ..visits(Manner::Once(Close::Server)) });
        let mut server = Driver::open(Http { slow_duration: Duration::ZERO, in_worker: true });
        server.receive(&connection.sent());
        if slow {
            server.run_job();
        }
        connection.receive_split(&server.sent());
        connection.finish();
        assert_eq!(outcome(&mut connection), (1, vec![], vec![End::Complete]));
    }
}

#[test]
fn every_way_to_fail_is_told_apart() {
    let failed = |close, answer: &[u8], end: fn(&mut Driver<Client>)| {
        let mut connection = once(close);
        connection.receive(answer);
        end(&mut connection);
        let (good, failures, ends) = outcome(&mut connection);
        assert_eq!((good, failures.len(), ends.len()), (0, 1, 1), "{failures:?} {ends:?}");
        (failures[0], ends[0])
    };
    let silent: fn(&mut Driver<Client>) = |connection| connection.advance(TIMEOUT);
    let finish: fn(&mut Driver<Client>) = Driver::finish;
    let reset: fn(&mut Driver<Client>) = |connection| connection.end(Closed::Error(104));
    let nothing: fn(&mut Driver<Client>) = |_| {};
    assert_eq!(failed(Close::Server, b"", silent), ((Phase::Answer, TIMED_OUT), End::Failed));
    assert_eq!(failed(Close::Server, OK, silent), ((Phase::End, TIMED_OUT), End::Failed));
    assert_eq!(failed(Close::Server, b"", finish), ((Phase::Answer, None), End::Lost));
    assert_eq!(failed(Close::Server, &OK[..9], finish), ((Phase::Cut, None), End::Lost));
    assert_eq!(failed(Close::Server, &OK[..OK.len() - 1], finish), ((Phase::Cut, None), End::Lost));
    assert_eq!(failed(Close::Server, b"", reset), ((Phase::Answer, Some(104)), End::Lost));
    assert_eq!(failed(Close::Server, OK, reset), ((Phase::End, Some(104)), End::Lost));
    assert_eq!(failed(Close::Server, b"SSH", nothing), ((Phase::Format, None), End::Failed), "no more is awaited");
    assert_eq!(failed(Close::Server, &[OK, b"x"].concat(), nothing), ((Phase::Verify, None), End::Failed));
    assert_eq!(failed(Close::Server, b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", finish).0, (Phase::Status, Some(404)));
    assert_eq!(failed(Close::Rst, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", nothing).0, (Phase::Status, Some(500)));
    let mut late = once(Close::Server);
    late.receive(OK);
    late.receive(b"x");
    assert_eq!(outcome(&mut late), (0, vec![(Phase::Verify, None)], vec![End::Failed]));
}

#[test]
fn a_failed_answer_is_one_failure_however_its_connection_ends() {
    for end in [Closed::Error(104), Closed::Error(110)] {
        let mut connection = once(Close::Server);
        connection.receive(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
        connection.end(end);
        assert_eq!(outcome(&mut connection), (0, vec![(Phase::Status, Some(503))], vec![End::Complete]));
    }
}

#[test]
fn a_body_that_is_not_as_long_as_the_first_one_is_told() {
    let client = client(visits(Manner::Once(Close::Fin)));
    let course = client.course.clone();
    assert!(course.is_as_long(0, 0) && course.is_as_long(0, 0) && !course.is_as_long(0, 1));
    let mut connection = Driver::open(client);
    connection.receive(OK);
    assert_eq!(outcome(&mut connection), (1, vec![], vec![End::Complete]));
    assert!(!book(&mut connection).visited[0].as_first);
}

#[test]
fn answers_to_head_have_no_bodies() {
    let request = Request { method: "HEAD".to_owned(), ..Request::default() };
    let mut connection = open(Visits { request, ..visits(Manner::Once(Close::Fin)) });
    assert!(connection.sent().starts_with(b"HEAD /a HTTP/1.1\r\n"));
    connection.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    assert_eq!(outcome(&mut connection), (1, vec![], vec![End::Complete]));
}

#[test]
fn a_kept_connection_with_an_interval_asks_on_schedule_and_measures_from_when_it_was_due() {
    const SECOND: Duration = Duration::from_secs(1);
    let mut connection = every(SECOND, Budget::Unlimited);
    assert_eq!(connection.sent(), b"", "it begins at a random point");
    let first = connection.timer().expect("the first request is due");
    assert!(first < SECOND);
    connection.advance(first);
    let due = connection.now();
    assert!(connection.sent().starts_with(b"GET /a"));
    connection.advance(SECOND / 4);
    connection.receive(OK);
    assert_eq!(connection.timer(), Some(SECOND * 3 / 4));
    connection.advance(SECOND * 3 / 4);
    // This answer is so late that the next two requests are: each is measured from when it was due.
    connection.advance(SECOND * 5 / 2);
    (0..3).for_each(|_| connection.receive(OK));
    let took: Vec<Duration> = book(&mut connection).visited.iter().map(|visited| visited.ended - visited.scheduled).collect();
    assert_eq!(took, [SECOND / 4, SECOND * 5 / 2, SECOND * 3 / 2, SECOND / 2]);
    let visited = &book(&mut connection).visited;
    assert_eq!((visited[0].scheduled, visited[1].scheduled), (due, due + SECOND));
    assert_eq!(connection.timer(), Some(SECOND / 2), "it has caught up");
}

#[test]
fn the_schedule_of_a_connection_that_ends_goes_on_in_the_next() {
    const SECOND: Duration = Duration::from_secs(1);
    let client = client(visits(Manner::KeepAlive { budget: Budget::Unlimited, interval: SECOND.into() }));
    let course = client.course.clone();
    let mut connection = Driver::open(client);
    connection.advance(connection.timer().expect("the first request is due"));
    let due = connection.now();
    connection.receive(LAST);
    connection.finish();
    let next = || Driver::open(super::Client { course: course.clone(), meter: Book::default as fn() -> Book });
    let scheduled = |next: &Driver<Client>| next.timer() == Some((due + SECOND).saturating_duration_since(next.now()));
    let mut second = next();
    assert!(scheduled(&second));
    second.drain();
    assert!(second.closed().is_some() && !scheduled(&next()), "one that is asked to end is not replaced");
}

#[test]
fn a_kept_connection_rests_while_requests_are_suspended() {
    let interval = Interval::new(Duration::ZERO);
    let mut connection = open(visits(Manner::KeepAlive { budget: Budget::Unlimited, interval: interval.clone() }));
    connection.sent();
    interval.suspend();
    connection.receive(OK);
    assert_eq!((connection.sent(), connection.timer()), (vec![], None));
    interval.resume();
    connection.notify(&b""[..]);
    assert!(connection.sent().starts_with(b"GET /a"));
}

#[test]
fn an_exact_page_takes_no_other_bytes() {
    let exact = || Visits { pages: vec![page("/test/fast", 1, true)], ..visits(Manner::Once(Close::Fin)) };
    let mut connection = open(exact());
    connection.receive(b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(outcome(&mut connection), (0, vec![(Phase::Verify, None)], vec![End::Complete]));
    let mut connection = open(exact());
    connection.receive_split(ANSWER);
    assert_eq!(outcome(&mut connection), (1, vec![], vec![End::Complete]));
}

#[test]
fn a_kept_connection_asks_until_the_budget_is_spent_and_then_rests() {
    let mut connection = kept(3);
    for _ in 0..3 {
        assert!(connection.sent().ends_with(b"\r\nConnection: keep-alive\r\n\r\n"));
        connection.advance(Duration::from_millis(1));
        connection.receive_split(OK);
    }
    assert_eq!((connection.sent(), connection.closed(), connection.timer()), (vec![], None, None));
    let visited = &book(&mut connection).visited;
    assert_eq!(visited.iter().filter(|visited| visited.connect.is_some()).count(), 1, "connecting is part of the first");
    assert!(visited[1..].iter().all(|visited| visited.ended - visited.scheduled == Duration::from_millis(1)), "{visited:?}");
    connection.drain();
    assert_eq!(outcome(&mut connection), (3, vec![], vec![End::Stopped]));
}

#[test]
fn a_kept_connection_survives_a_bad_status() {
    let mut connection = kept(2);
    connection.receive(b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nab");
    connection.receive(OK);
    assert_eq!(outcome(&mut connection), (1, vec![(Phase::Status, Some(404))], vec![]));
}

#[test]
fn a_server_that_ends_a_kept_connection_after_an_answer_is_no_failure() {
    let mut announced = kept(5);
    announced.receive(OK);
    announced.sent();
    announced.receive(LAST);
    assert_eq!(announced.sent(), b"", "it does not ask again where it would not be heard");
    announced.finish();
    assert_eq!(outcome(&mut announced), (2, vec![], vec![End::Complete]));
    assert_eq!(book(&mut announced).renewed, [true]);
    for gone in [false, true] {
        let left = Arc::new(AtomicU64::new(5));
        let mut unannounced = every(Duration::ZERO, Budget::Shared(left.clone()));
        unannounced.receive(OK);
        if gone {
            unannounced.end(Closed::Error(32))
        } else {
            unannounced.finish()
        }
        assert_eq!(outcome(&mut unannounced), (1, vec![], vec![End::Complete]));
        assert_eq!((&book(&mut unannounced).renewed[..], left.load(Ordering::Relaxed)), (&[false][..], 4));
    }
}

/// RFC 9110, 15.5.9, and RFC 9112, 9.2.
#[test]
fn what_a_server_says_to_a_connection_at_rest_is_no_answer() {
    const TIMEOUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let left = Arc::new(AtomicU64::new(5));
    let mut asked = every(Duration::ZERO, Budget::Shared(left.clone()));
    asked.receive(OK);
    asked.receive(TIMEOUT);
    assert_eq!(outcome(&mut asked), (1, vec![], vec![End::Complete]));
    assert_eq!((&book(&mut asked).renewed[..], left.load(Ordering::Relaxed)), (&[false][..], 4), "it is asked again");
    for said in [TIMEOUT, b"H"] {
        let mut rests = every(Duration::from_secs(1), Budget::Unlimited);
        rests.advance(rests.timer().expect("the first request is due"));
        rests.receive(OK);
        rests.receive(said);
        assert_eq!(outcome(&mut rests), (1, vec![], vec![End::Complete]));
        assert_eq!(book(&mut rests).renewed, [false]);
    }
    // It says so of the request itself, or before any.
    let mut first = kept(5);
    first.receive(TIMEOUT);
    assert_eq!(outcome(&mut first), (0, vec![(Phase::Status, Some(408))], vec![]));
    let mut unasked = every(Duration::from_secs(1), Budget::Unlimited);
    unasked.receive(b"220 mail");
    assert_eq!((book(&mut unasked).failures.clone(), unasked.closed()), (vec![(Phase::Format, None)], Some(Closed::Aborted)));
}

#[test]
fn another_protocol_is_told_at_once() {
    for mut connection in [kept(2), once(Close::Server), once(Close::Fin)] {
        connection.receive(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nhello");
        assert_eq!(outcome(&mut connection), (0, vec![(Phase::Status, Some(101))], vec![End::Complete]));
    }
}

/// RFC 9112, 9.8: TLS without close_notify, of which the layer makes an abort.
#[test]
fn an_answer_is_whole_however_tls_ends() {
    let mut awaited = once(Close::Server);
    awaited.receive(OK);
    awaited.end(Closed::Aborted);
    assert_eq!(outcome(&mut awaited), (1, vec![], vec![End::Complete]));
    let mut announced = kept(5);
    announced.receive(LAST);
    announced.end(Closed::Aborted);
    assert_eq!(outcome(&mut announced), (1, vec![], vec![End::Complete]));
    let mut asked = kept(5);
    asked.receive(OK);
    asked.end(Closed::Aborted);
    assert_eq!((outcome(&mut asked), &book(&mut asked).renewed[..]), ((1, vec![], vec![End::Complete]), &[false][..]));
    for part in [&OK[..OK.len() - 1], b"HTTP/1.1 200 OK\r\n\r\nall"] {
        let mut cut = once(Close::Fin);
        cut.receive(part);
        cut.end(Closed::Aborted);
        assert_eq!(outcome(&mut cut), (0, vec![(Phase::Answer, Some(71))], vec![End::Lost]), "bytes may be missing");
    }
}

#[test]
fn a_kept_connection_that_ends_within_an_answer_or_before_the_first_is_lost() {
    let mut within = kept(5);
    within.receive(OK);
    within.receive(&OK[..1]);
    within.finish();
    assert_eq!(outcome(&mut within), (1, vec![(Phase::Cut, None)], vec![End::Lost]));
    let mut first = kept(5);
    first.finish();
    assert_eq!(outcome(&mut first), (0, vec![(Phase::Answer, None)], vec![End::Lost]));
    let mut reset = kept(5);
    reset.receive(OK);
    reset.end(Closed::Error(104));
    assert_eq!(outcome(&mut reset), (1, vec![(Phase::Answer, Some(104))], vec![End::Lost]));
}

#[test]
fn a_kept_connection_that_ends_at_rest_is_lost_before_its_first_answer_and_renewed_after_it() {
    let mut unused = every(TIMEOUT, Budget::Unlimited);
    unused.finish();
    let book = book(&mut unused);
    assert_eq!((&book.failures[..], &book.missed[..], &book.ends[..]), (&[(Phase::Unused, None)][..], &[][..], &[End::Lost][..]));
    let mut used = every(TIMEOUT, Budget::Unlimited);
    used.advance(used.timer().expect("the first request is due"));
    used.receive(OK);
    used.finish();
    assert_eq!(outcome(&mut used), (1, vec![], vec![End::Complete]));
    assert_eq!(self::book(&mut used).renewed, [false]);
}

#[test]
fn a_request_under_way_is_answered_before_a_drain_and_missed_after_a_purge() {
    let interval = Interval::new(Duration::ZERO);
    for manner in [Manner::Once(Close::Server), Manner::KeepAlive { budget: Budget::Unlimited, interval }] {
        let mut drained = open(visits(manner));
        drained.drain();
        drained.receive(LAST);
        drained.finish();
        assert_eq!(outcome(&mut drained).0, 1);
        assert!(drained.closed().is_some());
    }
    let mut purged = once(Close::Server);
    purged.drain();
    purged.end(Closed::Purged);
    let book = book(&mut purged);
    assert_eq!((&book.failures[..], &book.missed[..], &book.ends[..]), (&[][..], &[0][..], &[End::CutOff][..]));
}

#[test]
fn pages_are_chosen_by_weight_and_seed() {
    let chosen = |seed| {
        let pages = vec![page("/a", 9, false), page("/b", 0, false), page("/c", 1, false)];
        let client = client(Visits { pages, seed, ..visits(Manner::Once(Close::Server)) });
        let chosen: Vec<usize> = (0..10_000).map(|_| client.course.choose()).collect();
        chosen
    };
    let one = chosen(1);
    let count = |page| one.iter().filter(|chosen| **chosen == page).count();
    assert_eq!(count(1), 0);
    assert!((900..1100).contains(&count(2)), "{}", count(2));
    assert_eq!(one, chosen(1));
    assert_ne!(one, chosen(2));
}
