//! The chat example over real sockets.

mod crowd;
#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../examples/chat.rs"]
mod example;

use sockdrawer::{Address, Error, Pool, Upgrade};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// A failing test ends by this; a passing one never waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

struct Client(BufReader<TcpStream>);

impl Client {
    /// Returns a client that is in the room: its own arrival was told.
    fn enter(room: &Pool, name: &str) -> Client {
        let addresses = room.addresses();
        let [Address::Tcp(address)] = addresses.as_slice() else { panic!("one TCP address, not {addresses:?}") };
        let stream = TcpStream::connect(address).expect("the room accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out above 0");
        let mut client = Client(BufReader::new(stream));
        client.say(name);
        assert_eq!(client.hear(), format!("* {name} is here"));
        client
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("the room reads");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the room speaks");
        line.trim_end().to_owned()
    }
}

fn room() -> Pool {
    Pool::start(example::config("127.0.0.1:0").loops(2)).expect("a free port")
}

#[test]
fn who_is_in_the_room_hears_who_comes_what_is_said_and_who_leaves() {
    let room = room();
    let mut ann = Client::enter(&room, "ann");
    let mut bob = Client::enter(&room, "bob");
    assert_eq!(ann.hear(), "* bob is here");
    bob.say("one\ntwo");
    for guest in [&mut ann, &mut bob] {
        assert_eq!((guest.hear(), guest.hear()), ("bob: one".to_owned(), "bob: two".to_owned()));
    }
    drop(bob);
    assert_eq!(ann.hear(), "* bob has left");
}

#[test]
fn all_hear_the_lines_of_many_in_one_order() {
    let room = room();
    let mut guests: Vec<Client> = (0..4).map(|number| Client::enter(&room, &format!("guest {number}"))).collect();
    for round in 0..50 {
        guests.iter_mut().for_each(|guest| guest.say(&round.to_string()));
    }
    let heard: Vec<Vec<String>> = guests
        .iter_mut()
        .map(|guest| std::iter::repeat_with(|| guest.hear()).filter(|line| !line.starts_with('*')).take(200).collect())
        .collect();
    for other in &heard[1..] {
        assert_eq!(*other, heard[0]);
    }
}

#[test]
fn a_guest_who_does_not_read_is_shown_out_and_holds_up_no_other() {
    let room = room();
    let deaf = Client::enter(&room, "deaf");
    let mut ann = Client::enter(&room, "ann");
    let line = "x".repeat(32 * 1024);
    let own = format!("ann: {line}");
    let mut said = 0;
    let heard = loop {
        ann.say(&line);
        let heard = ann.hear();
        if heard != own {
            break heard;
        }
        said += 1;
        assert!(said < 4096, "128 MiB are kept for a guest who does not read");
    };
    assert_eq!(heard, "* deaf has left");
    assert_eq!(room.status().counts.overflow, 1);
    drop(deaf);
}

/// Starts a build that has the room.
fn serve(place: &Path, address: &str, loops: usize) -> Pool {
    try_serve(place, address, loops).expect("it takes over")
}

/// Starts a new build of the room, which takes over; the build before it may refuse.
fn try_serve(place: &Path, address: &str, loops: usize) -> Result<Pool, Error> {
    let upgrade = Upgrade::at(place).replaces("any").stand_by(Duration::ZERO).begin()?;
    let room = upgrade.start("chat", example::config(address).loops(loops))?;
    upgrade.ready()?;
    Ok(room)
}

/// Says its lines, each once the one before it was heard, and returns all that it has heard by the end.
fn talk(mut guest: Client, name: usize, lines: usize, all: usize) -> Vec<String> {
    let mut heard = Vec::new();
    for line in 0..lines {
        guest.say(&line.to_string());
        let own = format!("{name}: {line}");
        while heard.last() != Some(&own) {
            heard.push(guest.hear());
        }
    }
    heard.extend(std::iter::repeat_with(|| guest.hear()).take(all.saturating_sub(heard.len())));
    heard
}

#[test]
fn upgrades_go_unnoticed_in_the_room() {
    const GUESTS: usize = 8;
    const LINES: usize = 1500;
    let place = std::env::temp_dir().join(format!("sockdrawer-chat-{}", std::process::id()));
    let _ = std::fs::remove_file(&place);
    let mut room = serve(&place, "127.0.0.1:0", 2);
    let address = room.addresses()[0].to_string();
    let mut guests: Vec<Client> = (0..GUESTS).map(|name| Client::enter(&room, &name.to_string())).collect();
    for (name, guest) in guests.iter_mut().enumerate() {
        (name + 1..GUESTS).for_each(|later| assert_eq!(guest.hear(), format!("* {later} is here")));
    }
    let talk = |(name, guest)| std::thread::spawn(move || talk(guest, name, LINES, GUESTS * LINES));
    let talks: Vec<JoinHandle<Vec<String>>> = guests.into_iter().enumerate().map(talk).collect();
    let mut upgrades = 0;
    while !talks.iter().all(JoinHandle::is_finished) {
        let next = serve(&place, &address, 1 + upgrades % 3);
        room.join().expect("all of the room moved");
        (room, upgrades) = (next, upgrades + 1);
    }
    let heard: Vec<Vec<String>> = talks.into_iter().map(|talk| talk.join().expect("it heard all")).collect();
    assert_eq!(heard[0].len(), GUESTS * LINES, "nobody comes or leaves");
    assert!(heard.iter().all(|other| *other == heard[0]), "one order");
    assert!(upgrades > 3, "{upgrades}");
    let _ = std::fs::remove_file(&place);
}

#[test]
fn a_crowd_hears_a_line_each_millisecond_through_upgrades_once_and_in_order() {
    let place = std::env::temp_dir().join(format!("sockdrawer-chat-crowd-{}", std::process::id()));
    let _ = std::fs::remove_file(&place);
    let (members, upgrades) = if std::env::var_os("SOCKDRAWER_LONG").is_some() { (1000, 50) } else { (100, 5) };
    crowd::hears_all(&place, members, upgrades);
    let _ = std::fs::remove_file(&place);
}
