//! Async handlers that give their connections back: they move with what the handler knew, and go on where they cannot.

use super::common::{PATIENCE, any_port, connect, read_all};
use super::place::{Place, moved};
use sockdrawer::observe::Event;
use sockdrawer::tasks::{Connection, Handler};
use sockdrawer::{Behaviour, CannotRestore, CannotSave, Config, Drain, Group, Model, Pool, Saved, Saver, Selector, State};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Answers each line by the number of its build, of lines so far, and the line. `later` is answered after a while, and `rest` gives the connection
/// back at once. What is published comes as a line, too.
struct Counts {
    build: u8,
    version: u32,
    room: Group,
}

#[derive(Default)]
struct Counted {
    lines: u64,
    /// A part of a line.
    begun: Vec<u8>,
}

impl Counts {
    async fn answer(&self, connection: &mut Connection, counted: &mut Counted) -> std::io::Result<bool> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut counted.begun)).into_owned();
        counted.lines += 1;
        if line == "later" {
            // waits because: a new build comes meanwhile
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        connection.write_all(format!("{} {} {line}\n", self.build, counted.lines).as_bytes()).await?;
        Ok(line != "rest")
    }
}

impl Handler for Counts {
    type State = Counted;

    async fn serve(&self, mut connection: Connection, state: Option<Counted>) -> Option<(Connection, Counted)> {
        let (mut counted, info) = (state.unwrap_or_default(), connection.info().clone());
        info.handle().join(&self.room);
        loop {
            tokio::select! {
                byte = connection.read_u8() => match byte.ok()? {
                    b'\n' if !self.answer(&mut connection, &mut counted).await.ok()? => return Some((connection, counted)),
                    b'\n' => {}
                    byte => counted.begun.push(byte),
                },
                note = info.note() => connection.write_all(note?.bytes()?).await.ok()?,
                () = info.draining() => {
                    connection.write_all(b"bye\n").await.ok()?;
                    return None;
                }
                () = info.moving() => return Some((connection, counted)),
            }
        }
    }

    fn state(&self) -> State {
        State::of("counts", self.version)
    }

    fn save(&self, counted: &Counted, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(counted.lines);
        to.bytes(&counted.begun);
        Ok(())
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<Counted, CannotRestore> {
        Ok(Counted { lines: from.u64()?, begun: from.bytes()?.to_vec() })
    }
}

fn build(build: u8, version: u32) -> (Config, Group) {
    let room = Group::new();
    let counts = Counts { build, version, room: room.clone() };
    (Config::accept(Behaviour::handler(counts)).model(Model::Tasks).loops(2).listen(any_port()), room)
}

/// A client, and the number of lines that it has sent.
struct Client(BufReader<TcpStream>, u64);

impl Client {
    fn new(at: std::net::SocketAddr) -> Client {
        Client(BufReader::new(connect(at)), 0)
    }

    fn hears(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it stands");
        line
    }

    fn says(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("it stands");
    }

    /// Returns the number of the build that answers; all lines before were counted.
    fn asks(&mut self, line: &str) -> u8 {
        self.says(&format!("{line}\n"));
        self.answered(line)
    }

    fn answered(&mut self, line: &str) -> u8 {
        self.1 += 1;
        let answer = self.hears();
        let (build, rest) = answer.split_once(' ').unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(rest, format!("{} {line}\n", self.1));
        build.parse().expect("a number")
    }
}

#[test]
fn connections_of_handlers_move_with_their_state_whatever_they_do() {
    let place = Place::new("handlers");
    let (config, room) = build(1, 1);
    let (mut pool, at) = place.serve(config);
    let mut room = room;
    let over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let over = over.clone();
            std::thread::spawn(move || {
                let mut client = Client::new(at);
                let mut last = 1;
                while !over.load(Ordering::Relaxed) {
                    let build = client.asks("busy");
                    assert!(build >= last, "it does not go back");
                    last = build;
                }
                (client, last)
            })
        })
        .collect();
    let [mut idle, mut half, mut slow] = [(); 3].map(|()| Client::new(at));
    assert_eq!((idle.asks("one"), half.asks("one"), slow.asks("one")), (1, 1, 1));
    for number in 2..=6 {
        half.says("in two ");
        slow.says("later\n");
        let (config, next) = build(number, 1);
        let config = config.listeners(|listeners| listeners[0].address = sockdrawer::Address::Tcp(at));
        let (new, _) = place.serve(config);
        moved(&pool, &new, 7);
        assert_eq!(idle.asks("two"), number);
        half.says("parts\n");
        assert_eq!(half.answered("in two parts"), number);
        assert_eq!(slow.answered("later"), number - 1, "it was under way");
        (pool, room) = (new, next);
        assert_eq!(slow.asks("after"), number);
    }
    over.store(true, Ordering::Relaxed);
    let clients: Vec<_> = busy.into_iter().map(|thread| thread.join().expect("nothing is lost")).collect();
    for (mut client, _) in clients {
        assert_eq!(client.asks("last"), 6);
    }
    room.publish(&b"news\n"[..]).expect("there is room");
    assert_eq!(idle.hears(), "news\n", "it has joined again");
}

#[test]
fn what_is_published_meanwhile_reaches_a_connection_that_is_given_back() {
    let place = Place::new("handlers-notes");
    let (config, room) = build(1, 1);
    let (pool, at) = place.serve(config);
    let mut client = Client::new(at);
    assert_eq!(client.asks("one"), 1);
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    let publisher = std::thread::spawn(move || {
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            room.publish(format!("note {sent}\n").into_bytes()).expect("there is room");
            sent += 1;
            // waits because: a rate that the client keeps up with
            std::thread::sleep(Duration::from_micros(500));
        }
        sent
    });
    let (config, _room) = build(2, 1);
    let config = config.listeners(|listeners| listeners[0].address = sockdrawer::Address::Tcp(at));
    let (new, _) = place.serve(config);
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 1), "{:#?}", new.status());
    over.store(true, Ordering::Relaxed);
    let sent = publisher.join().expect("it publishes");
    assert!(pool.join().is_ok());
    client.says("last\n");
    let mut heard = 0;
    loop {
        let line = client.hears();
        match line.strip_prefix("note ") {
            Some(number) => {
                assert_eq!(number.trim().parse(), Ok(heard), "in order, each once");
                heard += 1;
            }
            None => break assert_eq!(line, "2 2 last\n"),
        }
    }
    assert!(heard > 0 && heard <= sent, "{heard} of {sent}");
}

#[test]
fn connections_whose_state_the_new_build_does_not_read_go_on_in_the_old_one() {
    let place = Place::new("handlers-stay");
    let (old, at) = place.serve(build(1, 1).0);
    let mut client = Client::new(at);
    assert_eq!(client.asks("one"), 1);
    let (config, _room) = build(2, 7);
    let (tells, told) = std::sync::mpsc::channel();
    let config = config.observer(move |event: &Event| {
        if let Event::ServesAlone = event {
            tells.send(()).expect("it is waited for");
        }
    });
    let (new, _) = place.serve(config.listeners(|listeners| listeners[0].address = sockdrawer::Address::Tcp(at)));
    assert_eq!((client.asks("two"), Client::new(at).asks("one")), (1, 2));
    assert!(told.try_recv().is_err(), "one is there");
    assert_eq!(new.drain(&Selector::All, Drain::within(PATIENCE)).cut, 0);
    assert_eq!(client.hears(), "bye\n");
    told.recv_timeout(PATIENCE).expect("none is there");
    assert!(old.join().is_ok());
    assert!(told.try_recv().is_err(), "it was told");
}

#[test]
fn a_connection_that_is_given_back_without_need_goes_on_with_all_that_comes() {
    let place = Place::new("handlers-rest");
    let (config, room) = build(1, 1);
    let (pool, at): (Pool, _) = place.serve(config);
    let mut client = Client::new(at);
    assert_eq!(client.asks("rest"), 1);
    assert_eq!(client.asks("rest"), 1, "by input");
    room.publish(&b"a note\n"[..]).expect("there is room");
    assert_eq!(client.hears(), "a note\n");
    assert_eq!(client.asks("rest"), 1);
    // By its timer: only a connection of a task is delegated.
    let delegated = || pool.connections(&Selector::All)[0].state == sockdrawer::observe::ConnectionState::Delegated;
    assert!(pool.wait(PATIENCE, |_| delegated()));
    assert_eq!(client.asks("rest"), 1);
    assert_eq!(pool.drain(&Selector::All, Drain::within(PATIENCE)).cut, 0);
    assert_eq!(client.hears(), "bye\n");
    assert_eq!(read_all(client.0.get_mut()).expect("an end in order"), b"");
}
