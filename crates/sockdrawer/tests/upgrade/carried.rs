//! Connections change what they share: none of that is lost, however slow the next build is.

use super::common::{PATIENCE, address, any_port, connect};
use super::place::{Place, moved};
use sockdrawer::{
    Address, CannotRestore, CannotSave, Config, Context, Drain, Input, Note, Peer, Pool, Protocol, Saved, Saver, Selector,
    Service, State, Step,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than a successor is waited for by connections that move alone.
const SLOW: Duration = Duration::from_millis(1500);
const MEMBERS: usize = 50;

/// Service that gives each number once, to all of its connections together: for `+`, for a note, and for a timer that `t` sets.
struct Numbers {
    last: Arc<Mutex<u64>>,
    /// Called before the first connection is restored.
    restores: Mutex<Option<Act>>,
}

/// Act that takes a build long.
type Act = Box<dyn FnOnce() + Send>;

struct Member(Arc<Mutex<u64>>);

impl Service for Numbers {
    type Protocol = Member;
    fn open(&self, _peer: &Peer) -> Member {
        Member(self.last.clone())
    }
    fn state(&self) -> State {
        State::of("numbers", 1).together()
    }
    fn restore(&self, peer: &Peer, _from: &mut Saved<'_>) -> Result<Member, CannotRestore> {
        if let Some(act) = self.restores.lock().expect("no panic").take() {
            act();
        }
        Ok(self.open(peer))
    }
}

impl Protocol for Member {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        for asked in input.bytes().to_vec() {
            match asked {
                b't' => cx.set_timer(SLOW / 3),
                _ => self.give(cx),
            }
        }
        input.take_all();
        Step::Continue
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.give(cx);
        Step::Continue
    }
    fn notified(&mut self, _note: Note, cx: &mut Context<'_>) -> Step {
        self.give(cx);
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

impl Member {
    fn give(&mut self, cx: &mut Context<'_>) {
        let mut last = self.0.lock().expect("no panic");
        *last += 1;
        cx.send(&last.to_le_bytes());
    }
}

/// Starts a build that acts before it has read what is carried, and before it has restored the first connection.
fn serve(place: &Place, listen: Address, [reads, restores]: [Act; 2]) -> Pool {
    let last = Arc::<Mutex<u64>>::default();
    let (old, new) = (last.clone(), last.clone());
    let upgrade = place.upgrade().begin().expect("it begins");
    let write = move || old.lock().expect("no panic").to_le_bytes().to_vec();
    let read = move |bytes: &[u8]| {
        reads();
        *new.lock().expect("no panic") = u64::from_le_bytes(bytes.try_into().expect("a number"));
    };
    upgrade.carry("numbers", write, read).expect("it has begun");
    let service = Numbers { last, restores: Mutex::new(Some(restores)) };
    let pool = upgrade.start("numbers", Config::accept(service).loops(2).listen(listen)).expect("it starts");
    upgrade.ready().expect("it takes over");
    pool
}

fn nothing() -> Act {
    Box::new(|| ())
}

/// Returns a build, and its members, each with a number.
fn first(place: &Place) -> (Pool, Address, Vec<TcpStream>) {
    let pool = serve(place, any_port(), [nothing(), nothing()]);
    let at = address(&pool);
    let clients: Vec<TcpStream> = (0..MEMBERS).map(|_| connect(at)).collect();
    clients.iter().for_each(|client| client.set_read_timeout(Some(PATIENCE)).expect("a socket"));
    (pool, Address::Tcp(at), clients)
}

fn say(clients: &[TcpStream], what: &[u8]) {
    clients.iter().for_each(|mut client| client.write_all(what).expect("it stands"));
}

fn hear(client: &mut TcpStream) -> u64 {
    let mut number = [0; 8];
    client.read_exact(&mut number).expect("it is answered");
    u64::from_le_bytes(number)
}

/// Makes the new build slow when it reads what is carried, or later, when it restores.
fn slowly(act: impl FnOnce() + Send + 'static, when: &str) -> [Act; 2] {
    let act: Act = Box::new(act);
    if when == "read" { [act, nothing()] } else { [nothing(), act] }
}

#[test]
fn what_connections_that_move_together_have_answered_is_known_to_a_build_that_is_slow() {
    for when in ["read", "restore"] {
        let place = Place::new(&format!("carried-{when}"));
        let (old, at, mut clients) = first(&place);
        say(&clients, b"t+");
        let mut told: Vec<u64> = clients.iter_mut().map(hear).collect();
        let (sender, asks) = (old.clone(), clients.iter().map(|client| client.try_clone().expect("a copy")).collect::<Vec<_>>());
        // The new build has what they share by now: two numbers are asked for, and a third by the timer.
        let slow = move || {
            say(&asks, b"+");
            sender.notify(&Selector::All, *b"x").expect("it is told");
            // waits because: a build that is slow is what is tried.
            std::thread::sleep(SLOW);
        };
        let new = serve(&place, at, slowly(slow, when));
        moved(&old, &new, MEMBERS);
        told.extend(clients.iter_mut().flat_map(|client| [hear(client), hear(client), hear(client)]));
        say(&clients, b"+");
        told.extend(clients.iter_mut().map(hear));
        told.sort_unstable();
        assert_eq!(told, (1..=5 * MEMBERS as u64).collect::<Vec<_>>(), "slow to {when}");
    }
}

#[test]
fn a_shutdown_waits_no_longer_than_it_says_for_connections_that_wait_for_a_slow_build() {
    for when in ["read", "restore"] {
        let place = Place::new(&format!("carried-shutdown-{when}"));
        let (old, at, mut clients) = first(&place);
        say(&clients, b"+");
        clients.iter_mut().for_each(|client| _ = hear(client));
        let (sender, (tells, told)) = (old.clone(), std::sync::mpsc::channel());
        let slow = move || {
            let began = Instant::now();
            sender.shutdown(Drain::within(SLOW));
            tells.send(began.elapsed()).expect("it is waited for");
        };
        let new = serve(&place, at, slowly(slow, when));
        let took = told.recv_timeout(PATIENCE).expect("it ends");
        assert!(took < 2 * SLOW, "{took:?}, slow to {when}");
        assert!(new.wait(PATIENCE, |status| status.connections == 0), "{:#?}", new.status());
        clients.iter_mut().for_each(|client| assert!(!client.read(&mut [0]).is_ok_and(|count| count > 0), "slow to {when}"));
    }
}
