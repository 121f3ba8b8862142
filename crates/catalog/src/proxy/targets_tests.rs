use super::*;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

fn target(text: &str) -> Target {
    text.parse().expect(text)
}

/// Targets at 10.0.0.1, 10.0.0.2 and so on, with this behind their addresses.
fn targets(balance: Balance, options: &[&str]) -> Targets {
    let all = options.iter().enumerate().map(|(number, options)| target(&format!("10.0.0.{}:1{options}", number + 1)));
    Targets::new(all.collect(), balance, Known::default())
}

/// Returns how many of these clients each target gets; clients leave at once where `stay` is false.
fn spread(targets: &Targets, clients: usize, stay: bool) -> Vec<usize> {
    let (now, mut got, mut places) = (Instant::now(), vec![0; targets.len()], Vec::new());
    for client in 0..clients {
        let peer = Ipv4Addr::from(0x0a01_0000 + u32::try_from(client).expect("few"));
        let place = targets.take(Some(peer.into()), &[], now).expect("a target");
        got[place.number.expect("it is among them")] += 1;
        places.extend(stay.then_some(place));
    }
    got
}

fn number(place: Result<Place, NoPlace>) -> Option<usize> {
    place.ok()?.number
}

#[test]
fn a_target_is_written_with_options() {
    for text in [
        "10.0.0.1:6379",
        "10.0.0.1:6379,weight=3",
        "unix:/run/x.sock,weight=0",
        "[::1]:5,backup",
        "[::1]:5,weight=2,limit=7,backup",
        "[::1]:5,sni=db.example,sni=*.db.example,alpn=h2",
    ] {
        assert_eq!(target(text).to_string(), text);
    }
    for (text, why) in [
        (
            "10.0.0.1:6379,wieght=3",
            "unknown `wieght=3` behind 10.0.0.1:6379: there are weight=N, limit=N, backup, sni=NAME, alpn=NAME",
        ),
        ("10.0.0.1:6379,limit=0", "limit=0 is no limit: write how many clients the target may have, 1 or more"),
        ("10.0.0.1:6379,weight=-1", "weight=-1 is no weight: write a number from 0 to 4294967295"),
        ("[::1]:5,sni=", "sni= is no name: write one as in sni=db.example.com, or the end of names as in sni=*.example.com"),
        (
            "[::1]:5,sni=a.*",
            "sni=a.* is no name: write one as in sni=db.example.com, or the end of names as in sni=*.example.com",
        ),
        ("[::1]:5,alpn=", "unknown `alpn=` behind [::1]:5: there are weight=N, limit=N, backup, sni=NAME, alpn=NAME"),
    ] {
        assert_eq!(text.parse::<Target>().expect_err(text), why);
    }
    assert!("nowhere".parse::<Target>().is_err());
}

#[test]
fn clients_are_spread_by_weight() {
    for stay in [true, false] {
        assert_eq!(spread(&targets(Balance::Least, &["", ",weight=3", ",weight=0"]), 400, stay), [100, 300, 0]);
        assert_eq!(spread(&targets(Balance::Rotate, &["", ",weight=3", ",weight=0"]), 400, stay), [100, 300, 0]);
    }
    let by_hash = spread(&targets(Balance::Hash, &["", ",weight=3", ",weight=0"]), 4000, false);
    assert!((900..1100).contains(&by_hash[0]) && by_hash[2] == 0, "{by_hash:?}");
}

#[test]
fn the_target_with_the_fewest_clients_is_due() {
    let targets = targets(Balance::Least, &["", ""]);
    let now = Instant::now();
    let mut places: Vec<Place> = (0..4).map(|_| targets.take(None, &[], now).expect("a target")).collect();
    places.retain(|place| place.number == Some(1));
    assert_eq!(targets.status(now).iter().map(|status| status.open).collect::<Vec<_>>(), [0, 2]);
    let next: Vec<Place> = (0..2).map(|_| targets.take(None, &[], now).expect("a target")).collect();
    assert!(next.iter().all(|place| place.number == Some(0)), "{next:?}");
}

#[test]
fn a_hash_moves_only_the_share_of_a_target_that_goes() {
    let (three, two) = (targets(Balance::Hash, &["", "", ""]), targets(Balance::Hash, &["", ""]));
    let now = Instant::now();
    let mut moved = [0; 3];
    for client in 0..3000 {
        let peer = Some(Ipv4Addr::from(0x0a01_0000 + client).into());
        let (before, after) = (number(three.take(peer, &[], now)), number(two.take(peer, &[], now)));
        assert_eq!(before, number(three.take(peer, &[], now)), "a peer gets its target again");
        assert!(before == after || before == Some(2), "{before:?} {after:?}");
        moved[before.expect("a target")] += 1;
    }
    assert!(moved.iter().all(|share| (900..1100).contains(share)), "{moved:?}");
    let mapped = "::ffff:10.1.0.7".parse().expect("an address");
    assert_eq!(number(three.take(Some(mapped), &[], now)), number(three.take(Some(Ipv4Addr::new(10, 1, 0, 7).into()), &[], now)));
}

#[test]
fn a_target_that_fails_is_left_out_longer_each_time_and_tried_by_one() {
    let targets = targets(Balance::Rotate, &["", ""]);
    let mut now = Instant::now();
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let tries = std::iter::repeat_with(|| targets.take(None, &[], now).expect("a target")).take(4);
        let failing: Vec<Place> = tries.filter(|place| place.number == Some(0)).collect();
        pauses.push(failing[0].failed(now, 111).expect("its turn").as_secs());
        assert!(pauses.len() == 1 || failing.len() == 1, "one client tries it: {failing:?}");
        let left_out = targets.status(now)[0].left_out.expect("it failed");
        assert!((0..4).all(|_| number(targets.take(None, &[], now + left_out / 2)) == Some(1)));
        now += left_out;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    let back = std::iter::repeat_with(|| targets.take(None, &[], now).expect("a target")).find(|place| place.number == Some(0));
    assert!(back.expect("its pause is over").succeeded(now, Duration::ZERO));
    assert_eq!((targets.status(now)[0].failures, targets.status(now)[0].left_out), (0, None));
}

#[test]
fn connects_that_fail_at_once_double_the_pause_once() {
    let (targets, now) = (targets(Balance::Least, &[""]), Instant::now());
    let at = |millis| now + Duration::from_millis(millis);
    let take = |millis| targets.take(None, &[], at(millis)).expect("the last one is never left out");
    let burst: Vec<Place> = (0..60).map(take).collect();
    let pauses: Vec<Duration> = burst.iter().zip(500..).filter_map(|(place, millis)| place.failed(at(millis), 110)).collect();
    assert_eq!((pauses, targets.status(at(559))[0].left_out), (vec![Duration::from_secs(1)], Some(Duration::from_millis(941))));
    assert_eq!(targets.status(at(560))[0].failures, 1);
    // They began in its pause, as it is the last one; and after it.
    assert!((600..900).all(|millis| take(millis).failed(at(millis + 1), 110).is_none()));
    assert_eq!(take(1500).failed(at(1600), 110), Some(Duration::from_secs(2)));
}

#[test]
fn a_client_goes_to_the_targets_whose_name_fits_best() {
    let all = [
        "",
        ",sni=db.example",
        ",sni=*.example,weight=3",
        ",sni=*.example",
        ",sni=*.a.example",
        ",sni=db.example,alpn=h2",
        ",alpn=acme",
    ];
    let targets = targets(Balance::Rotate, &all);
    assert!(targets.ask_clients());
    let fit = |name: &str, offers: &str| {
        let name = (!name.is_empty()).then(|| name.to_owned());
        let asks = ClientHello { name, protocols: offers.split_whitespace().map(|offer| offer.as_bytes().to_vec()).collect() };
        let not = targets.elsewhere(&asks);
        (0..all.len()).filter(|number| !not.contains(number)).collect::<Vec<_>>()
    };
    assert_eq!(fit("db.example", ""), [1]);
    assert_eq!(fit("db.example.", "h3"), [1], "a dot at the end names it, too");
    assert_eq!(fit("db.example", "h2 h3"), [5]);
    assert_eq!(fit("www.example", "h2"), [2, 3]);
    assert_eq!(fit("www.a.example", ""), [4]);
    assert_eq!(fit("a.example", ""), [2, 3]);
    for other in ["example", "notexample", "", "example.com"] {
        assert_eq!(fit(other, ""), [0], "{other}");
    }
    assert_eq!(fit("", "h2 acme"), [6]);
    // Each of the two gets its share, though many clients go elsewhere meanwhile.
    let (now, mut got) = (Instant::now(), [0; 7]);
    let not = targets.elsewhere(&ClientHello { name: Some("www.example".to_owned()), ..ClientHello::default() });
    for _ in 0..400 {
        for not in [&[1, 2, 3, 4, 5, 6][..], &not, &[1, 2, 3, 4, 5, 6]] {
            got[targets.take(None, not, now).expect("a place").number.expect("it is named")] += 1;
        }
    }
    assert_eq!(got, [800, 0, 300, 100, 0, 0, 0]);
    let named = Targets::new(vec![target("10.0.0.1:1,sni=a")], Balance::Least, Known::default());
    assert_eq!(named.elsewhere(&ClientHello::default()), [0], "no target is for it");
}

/// Waits, and counts the calls that say that there is a place.
fn waits(targets: &Targets, tried: &[usize]) -> (Waiting, Arc<AtomicUsize>) {
    let calls = Arc::<AtomicUsize>::default();
    let counts = calls.clone();
    (targets.wait(tried, Instant::now(), move || _ = counts.fetch_add(1, Relaxed)), calls)
}

#[test]
fn a_place_that_comes_free_goes_to_the_client_that_waits_longest() {
    let (targets, now) = (targets(Balance::Least, &[",limit=2", ",limit=1", ",backup"]), Instant::now());
    let take = || targets.take(None, &[], now);
    let mut places: Vec<Place> = (0..3).map(|_| take().expect("a place")).collect();
    assert_eq!(take().expect_err("the backup is for when the others fail"), NoPlace::Full);
    let [first, left, second, only_second] =
        [waits(&targets, &[]), waits(&targets, &[]), waits(&targets, &[]), waits(&targets, &[0])];
    drop(left.0);
    let of_second = places.remove(places.iter().position(|place| place.number == Some(1)).expect("it has one"));
    drop(of_second);
    let place = first.0.place(now).expect("its turn");
    assert_eq!((place.number, first.1.load(Relaxed), second.1.load(Relaxed)), (Some(1), 1, 0));
    assert_eq!(take().expect_err("it went to the one that waits"), NoPlace::Full);
    drop(places.pop());
    assert_eq!(second.0.place(now).expect("its turn").number, Some(0), "and it is dropped at once");
    assert!(only_second.0.place(now).is_none() && left.1.load(Relaxed) == 0);
    drop(place);
    assert_eq!(only_second.0.place(now).expect("its turn").number, Some(1));
    let open = || targets.status(now).iter().map(|status| status.open).collect::<Vec<_>>();
    assert_eq!(open(), [1, 0, 0]);
    // A place that was given and never taken goes on, too.
    let place = targets.take(None, &[0], now).expect("a place");
    let (given, next) = (waits(&targets, &[0]), waits(&targets, &[0]));
    drop(place);
    assert_eq!((given.1.load(Relaxed), next.1.load(Relaxed)), (1, 0));
    drop(given.0);
    assert!(next.0.place(now).is_some());
    drop(places);
    assert_eq!(open(), [0, 0, 0]);
}

#[test]
fn a_target_that_is_back_serves_clients_that_wait() {
    let (targets, now) = (targets(Balance::Least, &[",limit=1", ",limit=2"]), Instant::now());
    let places = [0, 1].map(|number| targets.take(None, &[1 - number], now).expect("a place"));
    places[1].failed(now, 111);
    assert_eq!(targets.take(None, &[], now).expect_err("the other is left out"), NoPlace::Full);
    let (waiting, calls) = waits(&targets, &[]);
    assert_eq!(calls.load(Relaxed), 0);
    assert!(places[1].succeeded(now, Duration::ZERO));
    assert_eq!(waiting.place(now).expect("its turn").number, Some(1));
}

#[test]
fn no_place_and_no_client_is_lost_by_threads() {
    let targets = targets(Balance::Least, &[",limit=2", ",limit=3"]);
    let (now, most) = (Instant::now(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..2_000 {
                    let place = targets.take(None, &[], now).unwrap_or_else(|_| {
                        let (wakes, woken) = std::sync::mpsc::channel();
                        // Some give up, at any moment.
                        let waiting = targets.wait(&[], now, move || _ = wakes.send(()));
                        if round % 5 == 0 {
                            drop(waiting);
                            let (wakes, woken) = std::sync::mpsc::channel();
                            let waiting = targets.wait(&[], now, move || _ = wakes.send(()));
                            woken.recv_timeout(Duration::from_secs(60)).expect("a place comes free");
                            return waiting.place(now).expect("it was said");
                        }
                        woken.recv_timeout(Duration::from_secs(60)).expect("a place comes free");
                        waiting.place(now).expect("it was said")
                    });
                    let open: Vec<usize> = targets.status(now).iter().map(|status| status.open).collect();
                    assert!(open[0] <= 2 && open[1] <= 3, "{open:?}");
                    most.fetch_max(open[0] + open[1], Relaxed);
                    // On one core, too, the others come meanwhile.
                    std::thread::yield_now();
                    drop(place);
                }
            });
        }
    });
    assert_eq!(most.load(Relaxed), 5, "all places were used");
    assert!(targets.status(now).iter().all(|status| status.open == 0));
}

/// Each client tries one after the other: were each failure counted, both would be left out for 30 s soon.
#[test]
fn targets_that_all_fail_under_load_are_left_out_no_longer_than_they_were_down() {
    let (targets, began) = (targets(Balance::Least, &["", ""]), Instant::now());
    let (down, mut back) = (Duration::from_secs(2), [None; 2]);
    for millis in (0..6_000).step_by(20) {
        let now = began + Duration::from_millis(millis);
        let mut tried = Vec::new();
        while let Ok(place) = targets.take(None, &tried, now) {
            let number = place.number.expect("a target");
            if now >= began + down {
                place.succeeded(now, Duration::ZERO);
                back[number].get_or_insert(now - began);
                break;
            }
            place.failed(now, 111);
            tried.push(number);
        }
    }
    let [one, other] = back.map(|back| back.expect("both have clients again"));
    assert!(one.min(other) == down && one.max(other) <= 2 * down, "{one:?} and {other:?}");
}

#[test]
fn a_target_that_is_found_to_be_well_is_left_out_no_more() {
    let known = Known::default().of_pool("a");
    let options = ["127.0.0.1:1", "127.0.0.1:2"].map(target);
    let (targets, began) = (Targets::new(options.to_vec(), Balance::Rotate, known.clone()), Instant::now());
    let place = targets.take(None, &[1], began).expect("it has room");
    let (address, pause) = (place.address().clone(), place.failed(began, 111));
    drop(place);
    assert_eq!(known.status(began)[0].left_out, pause);
    assert!(!Known::clone(&known).of_pool("b").is_well(&address, began), "another pool finds out by itself");
    assert!(known.is_well(&address, began) && !known.is_well(&address, began));
    let status = &known.status(began)[0];
    assert_eq!((status.left_out, status.failures, status.failed), (None, 0, 1));
    assert!(targets.take(None, &[1], began).is_ok_and(|place| *place.address() == address));
}

#[test]
fn a_target_that_is_back_gets_its_share_step_by_step() {
    for balance in [Balance::Least, Balance::Rotate] {
        let targets = targets(balance, &["", ""]);
        let mut now = Instant::now();
        let failing = targets.take(None, &[], now).expect("a target");
        now += failing.failed(now, 111).expect("its turn");
        drop(failing);
        let mut busy: Vec<Place> = (0..100).map(|_| targets.take(None, &[0], now).expect("a target")).collect();
        let tries =
            std::iter::repeat_with(|| targets.take(None, &[], now).expect("a target")).find(|place| place.number == Some(0));
        assert!(tries.expect("its pause is over").succeeded(now, Duration::ZERO));
        busy.extend((0..100).map(|_| targets.take(None, &[], now).expect("a target")));
        let share = busy.iter().filter(|place| place.number == Some(0)).count();
        assert!((5..=30).contains(&share), "{balance}: {share} of 100 at once");
        now += super::super::known::SLOW_START;
        busy.extend((0..200).map(|_| targets.take(None, &[], now).expect("a target")));
        let share = busy.iter().filter(|place| place.number == Some(0)).count();
        assert!((100..=210).contains(&share), "{balance}: {share} of 400 then");
    }
}

#[test]
fn a_backup_is_for_when_all_others_are_left_out_and_the_last_is_never() {
    let targets = targets(Balance::Least, &["", ",backup"]);
    let now = Instant::now();
    let first = targets.take(None, &[], now).expect("a target");
    assert_eq!(
        (first.number, number(targets.take(None, &[0], now)), number(targets.take(None, &[0, 1], now))),
        (Some(0), Some(1), None)
    );
    first.failed(now, 111);
    let second = targets.take(None, &[], now).expect("a target");
    assert_eq!(second.number, Some(1));
    second.failed(now + Duration::from_millis(1), 111);
    assert_eq!(number(targets.take(None, &[], now + Duration::from_millis(2))), Some(0), "it was tried before the other");
    assert_eq!(number(targets.take(None, &[], now + Duration::from_millis(3))), Some(1), "and now the other was");
}

#[test]
fn a_change_keeps_what_is_known_of_targets_that_stay() {
    let (known, now) = (Known::default(), Instant::now());
    let before = Targets::new(vec![target("10.0.0.1:1"), target("10.0.0.2:1")], Balance::Least, known.clone());
    let (failing, open) = (before.take(None, &[1], now).expect("a target"), before.take(None, &[0], now).expect("a target"));
    failing.failed(now, 111);
    drop(before);
    let after =
        Targets::new(vec![target("10.0.0.3:1"), target("10.0.0.2:1"), target("10.0.0.1:1")], Balance::Least, known.clone());
    let status: Vec<_> = after.status(now).into_iter().map(|status| (status.open, status.failures)).collect();
    assert_eq!(status, [(0, 0), (1, 0), (1, 1)]);
    drop((failing, open));
    assert!(after.status(now).iter().all(|status| status.open == 0));
    // The numbers of targets are told with those that are written now.
    let _planned = Targets::new(vec![target("10.0.0.9:1")], Balance::Least, known.of_pool("other"));
    let kept = after.take(None, &[1, 2], now).expect("a target");
    drop((after, Targets::new(vec![target("10.0.0.1:1")], Balance::Least, known.clone())));
    let after = Targets::new(vec![target("10.0.0.2:1,weight=0"), target("10.0.0.1:1,limit=7")], Balance::Least, known.clone());
    let written: Vec<_> =
        known.status(now).into_iter().map(|one| (one.address.to_string(), one.target.map(|target| target.to_string()))).collect();
    let of = |address: &str| written.iter().find(|one| one.0 == address).and_then(|one| one.1.clone());
    assert_eq!(
        [of("10.0.0.1:1"), of("10.0.0.2:1"), of("10.0.0.3:1")],
        [Some("10.0.0.1:1,limit=7".to_owned()), Some("10.0.0.2:1,weight=0".to_owned()), None]
    );
    drop(kept);
    // The client came with an upgrade from a target that is none any more.
    let place = after.place_of(&target("10.0.0.9:1").address, false);
    assert_eq!((place.number, place.address().to_string()), (None, "10.0.0.9:1".to_owned()));
}

#[test]
fn pools_share_the_places_of_an_address_and_each_finds_out_by_itself_whether_it_is_well() {
    let (known, now) = (Known::default(), Instant::now());
    let of = |pool: &str, options: &str| {
        Targets::new(vec![target(&format!("10.0.0.1:1{options}"))], Balance::Least, known.of_pool(pool))
    };
    let (few, many) = (of("few", ",limit=1"), of("many", ",limit=3"));
    let places: Vec<Place> = (0..3).map(|_| many.take(None, &[], now).expect("a place")).collect();
    assert_eq!((few.take(None, &[], now).err(), many.take(None, &[], now).err()), (Some(NoPlace::Full), Some(NoPlace::Full)));
    // The first that waits may have one client there at most: the second does not wait for that.
    let waiting = [few.wait(&[], now, || {}), many.wait(&[], now, || {})];
    let mut places = places.into_iter();
    drop(places.next());
    assert!(waiting[0].place(now).is_none());
    let given = waiting[1].place(now).expect("its turn");
    assert_eq!(
        (given.number, known.status(now).iter().map(|one| (one.pool.clone(), one.open)).collect::<Vec<_>>()),
        (Some(0), vec![("few".to_owned(), 0), ("many".to_owned(), 3)])
    );
    drop((places, given));
    let first = waiting[0].place(now).expect("the address has no clients");
    first.failed(now, 111);
    assert_eq!([&few, &many].map(|pool| pool.status(now)[0].failures), [1, 0]);
}

#[test]
fn threads_that_take_places_at_once_all_get_one() {
    let targets = targets(Balance::Least, &["", "", ",weight=2"]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    drop(targets.take(None, &[], Instant::now()).expect("a target"));
                }
            });
        }
    });
    assert!(targets.status(Instant::now()).iter().all(|status| status.open == 0));
}

/// Returns the targets of the next build, which has taken over from this one.
fn taken_over(known: &Known, options: &str) -> (Known, Targets) {
    let next = Known::default();
    let targets = Targets::new(vec![target(&format!("10.0.0.1:1{options}"))], Balance::Least, next.clone());
    next.take_over(&known.hand_over());
    (next, targets)
}

#[test]
fn a_limit_holds_for_this_process_and_the_next_build_together() {
    let (known, now) = (Known::default(), Instant::now());
    let before = Targets::new(vec![target("10.0.0.1:1,limit=3")], Balance::Least, known.clone());
    let mut places = [(); 2].map(|()| before.take(None, &[], now).expect("a place"));
    let (next, after) = taken_over(&known, ",limit=3");
    // The place that is left is the next build's to give; none is free here.
    assert_eq!(before.take(None, &[], now).expect_err("it is handed over"), NoPlace::Full);
    let waiting = before.wait(&[], now, || {});
    let own = after.take(None, &[], now).expect("the third place");
    assert_eq!(after.take(None, &[], now).expect_err("two are taken elsewhere"), NoPlace::Full);
    // A client moves, with its place: no other client gets one by that. A state that is restored, and whose client does not come, has no place to
    // give.
    drop(after.place_of(&target("10.0.0.1:1").address, true));
    assert!(after.take(None, &[], now).is_err());
    let mut moved = after.place_of(&target("10.0.0.1:1").address, true);
    moved.arrived();
    places[0].moved();
    let [moves, stays] = places;
    drop(moves);
    assert!(waiting.place(now).is_none() && after.take(None, &[], now).is_err());
    // A place that a client gives up here goes to one that waits here.
    drop(stays);
    let given = waiting.place(now).expect("its turn");
    let late = after.wait(&[], now, || {});
    drop(given);
    assert!(late.place(now).is_none(), "it is not known there yet");
    next.serves_alone();
    assert!(late.place(now).is_some());
    drop((moved, own, late));
    assert_eq!(after.status(now)[0].open, 0);
    let all = [(); 3].map(|()| after.take(None, &[], now).expect("all are free"));
    assert!(after.take(None, &[], now).is_err());
    drop(all);
}

#[test]
fn places_come_back_from_a_next_build_that_has_died() {
    let (known, now) = (Known::default(), Instant::now());
    let before = Targets::new(vec![target("10.0.0.1:1,limit=2")], Balance::Least, known.clone());
    let mut place = before.take(None, &[], now).expect("a place");
    let _ = known.hand_over();
    place.moved();
    drop(place);
    assert!(before.take(None, &[], now).is_err());
    let waiting = before.wait(&[], now, || {});
    known.take_back();
    let places = (waiting.place(now).expect("its turn"), before.take(None, &[], now).expect("a place"));
    assert!(before.take(None, &[], now).is_err(), "there are two");
    drop(places);
    known.take_back();
    // A client that was to move, and did not, gives its place up as before.
    let mut place = before.take(None, &[], now).expect("a place");
    place.moved();
    drop(place);
    assert!([(); 2].map(|()| before.take(None, &[], now)).iter().all(Result::is_ok));
}

#[test]
fn what_is_known_of_a_target_goes_along_and_what_is_not_understood_does_not() {
    let (known, now) = (Known::default(), Instant::now());
    let of = |known: &Known| Targets::new(vec![target("10.0.0.1:1"), target("10.0.0.2:1")], Balance::Least, known.of_pool("web"));
    let before = of(&known);
    let failing = before.take(None, &[1], now).expect("a target");
    failing.succeeded(now, Duration::ZERO);
    failing.failed(now, 111);
    drop(failing);
    let bytes = known.hand_over();
    let next = Known::default();
    let after = of(&next);
    next.take_over(&bytes);
    let [is, was] = [&after, &before].map(|targets| targets.status(Instant::now()));
    assert_eq!((is[0].failures, is[0].last_error, is[0].connects, is[0].failed), (1, Some(111), 1, 1));
    assert!(is[0].left_out.is_some() && is[0].left_out <= Some(Duration::from_secs(1)), "{is:?} {was:?}");
    assert_eq!(number(after.take(None, &[], now)), Some(1), "it is left out here, too");
    for bytes in [&b""[..], b"nonsense", &[2, 0, 0, 0, 0, 0, 0, 0, 9], &bytes[..bytes.len() - 1]] {
        let next = Known::default();
        let after = of(&next);
        next.take_over(bytes);
        assert_eq!(after.status(now).iter().map(|one| one.failures).sum::<u32>(), 0);
    }
}

#[test]
fn of_clients_that_come_from_another_process_the_one_that_has_waited_longest_is_first() {
    let (targets, now) = (targets(Balance::Least, &[",limit=1"]), Instant::now());
    let place = targets.take(None, &[], now).expect("a place");
    let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).expect("the clock goes back so far");
    let [new, older, oldest] = [now, ago(1), ago(2)].map(|since| targets.wait(&[], since, || {}));
    drop(place);
    for waiting in [oldest, older, new] {
        assert!(waiting.place(now).is_some());
    }
}

#[test]
fn clients_that_wait_have_the_limits_and_the_targets_of_a_change() {
    let (known, now) = (Known::default(), Instant::now());
    let of =
        |pool: &str, all: &[&str]| Targets::new(all.iter().map(|one| target(one)).collect(), Balance::Least, known.of_pool(pool));
    let few = of("db", &["10.0.0.1:1,limit=1", "10.0.0.2:1,sni=a,limit=1", "10.0.0.3:1,backup"]);
    let places = [few.take(None, &[1], now).expect("a place"), few.take(None, &[0, 2], now).expect("a place")];
    let waiting = [(); 3].map(|()| few.wait(&[1], now, || {}));
    let named = few.wait(&[0, 2], now, || {});
    let has = |waiting: &Waiting| waiting.place(now).map(|place| (place.number, place.address().to_string(), place));
    let is_at = |waiting: &Waiting, address: &str| {
        let (number, at, place) = has(waiting).unwrap_or_else(|| panic!("none has a place at {address}"));
        assert_eq!((number, &*at), (None, address));
        place
    };
    // There is one place more, and another pool whose name begins alike has nothing to do with it.
    let _other = of("dbs", &["10.0.0.1:1,limit=9"]);
    let more = of("db", &["10.0.0.1:1,limit=2", "10.0.0.2:1,sni=a,limit=1", "10.0.0.3:1,backup"]);
    assert!(has(&waiting[0]).is_none(), "it is not in force");
    known.changed();
    let first = is_at(&waiting[0], "10.0.0.1:1");
    assert!(has(&waiting[1]).is_none() && has(&named).is_none(), "there was one");
    // A target more: the first client of the change says it.
    drop(more);
    let another = of("db", &["10.0.0.1:1,limit=2", "10.0.0.2:1,sni=a,limit=2", "10.0.0.3:1,backup", "10.0.0.4:1,limit=1"]);
    let late = another.take(None, &[1], now).err();
    assert_eq!(late, Some(NoPlace::Full), "those that waited were first");
    let second = is_at(&waiting[1], "10.0.0.4:1");
    let of_name = is_at(&named, "10.0.0.2:1");
    let waits = || known.status(now).iter().map(|one| one.waiting).collect::<Vec<_>>();
    assert_eq!(waits(), [1, 0, 0, 1, 0], "one, at two targets");
    // No target is for it any more: it waits for those that were.
    let none = of("db", &["10.0.0.9:1,sni=b"]);
    known.changed();
    assert!(has(&waiting[2]).is_none());
    drop(first);
    assert!(has(&waiting[2]).is_some());
    drop((waiting, named, places, second, of_name, another, none, few));
    assert_eq!(waits().iter().sum::<usize>(), 0);
}
