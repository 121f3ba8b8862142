//! Hooks of a program that is operated in this process: they are told of each moment, may refuse some, and reach its pools.

use sockdrawer::observe::Readiness;
use sockdrawer::upgrade::Replace;
use sockdrawer::{Config, Context, Input, Peer, Service, Step, Upgrade};
use sockdrawer_operate::client::Client;
use sockdrawer_operate::{Format, Kind, Moment, Operated, Protocol, Setting};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A failing test ends by this; a passing one never waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const ROOMS: Setting = Setting::new("rooms", Kind::Count(1), "How many rooms there may be");

struct Silent;

impl Service for Silent {
    type Protocol = Silent;
    fn open(&self, _peer: &Peer) -> Silent {
        Silent
    }
}

impl sockdrawer::Protocol for Silent {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
}

/// A folder with a configuration, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Folder(std::env::temp_dir().join(format!("sockdrawer-hooks-{name}-{}", std::process::id())));
        std::fs::create_dir_all(&folder.0).expect("a folder");
        folder
    }

    fn configuration(&self, rooms: u32, limit: u32) -> String {
        let [control, upgrade] = ["c.sock", "u.sock"].map(|name| self.0.join(name).display().to_string());
        format!(
            "control = \"{control}\"\nupgrade = \"{upgrade}\"\nlog = \"none\"\nrooms = {rooms}\n\
             [pool.chat]\nprotocol = \"silent\"\nlisten = \"127.0.0.1:0\"\nlimit = {limit}\n"
        )
    }

    fn write(&self, configuration: &str) -> PathBuf {
        let file = self.0.join("c.toml");
        std::fs::write(&file, configuration).expect("a file");
        file
    }

    fn operated(&self) -> Operated {
        let file = self.write(&self.configuration(2, 100));
        let silent = Protocol::new("silent", "says nothing", |_| Ok(Config::accept(Silent).loops(1)));
        Operated::new(file).protocol(silent).setting(ROOMS).rule(|document| {
            let (rooms, limit) = (document.program.count("rooms"), document.pools["chat"].values.count("limit"));
            let has_room = rooms.zip(limit).is_none_or(|(rooms, limit)| limit <= rooms * 50);
            if has_room { Ok(()) } else { Err("pool.chat.limit: more than 50 for each room: add rooms".to_owned()) }
        })
    }

    fn upgrade(&self) -> PathBuf {
        self.0.join("u.sock")
    }

    fn post(&self, path: &str) -> (u16, String) {
        let mut client = Client::at(self.0.join("c.sock"));
        let answer = client.send("POST", path, &[], b"").expect("it answers");
        (answer.status, answer.text().expect("text"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind, either.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn next(moments: &Receiver<Moment>) -> Moment {
    moments.recv_timeout(PATIENCE).expect("it is told")
}

#[test]
fn hooks_hear_of_each_moment_and_reach_the_pools_of_their_program() {
    let folder = Folder::new("life");
    let (told, moments): (Sender<Moment>, Receiver<Moment>) = channel();
    let (serving, pools) = channel();
    let too_many = folder.configuration(3, 151);
    let operated = folder.operated().hook(move |moment, running| {
        let pool = running.pool("chat").expect("it runs");
        match moment {
            Moment::Started => {
                assert_eq!(running.document().program.count("rooms"), Some(2));
                serving.send(pool).expect("it is awaited");
            }
            Moment::Changed => {
                assert_eq!((pool.status().limit, running.document().program.count("rooms")), (150, Some(3)));
                let refused = running.apply(&too_many, Format::Toml).expect_err("a rule forbids it");
                assert_eq!(refused, ["8:9: pool.chat.limit: more than 50 for each room: add rooms"]);
                // Settings of the program that a configuration leaves out stay as they are, for rules too.
                let refused = running.apply(&too_many.replace("rooms = 3\n", ""), Format::Toml).expect_err("a rule forbids it");
                assert_eq!(refused, ["7:9: pool.chat.limit: more than 50 for each room: add rooms"]);
            }
            Moment::Upgrading => {
                told.send(moment.clone()).expect("it is heard");
                return Err("not at night".to_owned());
            }
            _ => {}
        }
        told.send(moment.clone()).expect("it is heard");
        Ok(())
    });
    let running = std::thread::spawn(|| operated.run());
    assert_eq!(next(&moments), Moment::Started);
    // Nothing can be changed before the hooks of the start are done.
    let pool = pools.recv_timeout(PATIENCE).expect("it runs");
    assert!(pool.wait(PATIENCE, |status| status.readiness == Readiness::Serving));
    folder.write(&folder.configuration(3, 150));
    let (status, why) = folder.post("/reload");
    assert_eq!(status, 200, "{why}");
    assert_eq!(next(&moments), Moment::Changed);
    let (status, why) = folder.post("/upgrade");
    assert!(status >= 400 && why.contains("a hook refuses it: not at night"), "{status}: {why}");
    assert_eq!(next(&moments), Moment::Upgrading);
    // As another program asks, such as `chat upgrade PATH`, and as a build does that was started by hand.
    let refused = Replace::at(folder.upgrade()).command(["/bin/false"]).run(|_| {}).expect_err("the hook refuses it");
    assert!(refused.to_string().contains("a hook refuses it: not at night"), "{refused}");
    assert_eq!(next(&moments), Moment::Upgrading);
    let refused = Upgrade::at(folder.upgrade()).replaces("any").begin().expect_err("the hook refuses it");
    assert!(refused.to_string().contains("a hook refuses it: not at night"), "{refused}");
    assert_eq!(next(&moments), Moment::Upgrading);
    assert_eq!(folder.post("/stop").0, 200);
    assert_eq!(next(&moments), Moment::Draining);
    let Moment::Drained(drained) = next(&moments) else { panic!("the end is told with its counts") };
    assert_eq!(drained.cut, 0);
    assert_eq!(running.join().expect("no panic"), Ok(()));
}

#[test]
fn a_hook_that_fails_at_the_start_ends_the_program_before_it_serves() {
    let folder = Folder::new("refused");
    let failure = folder.operated().hook(|_, _| Err("no database".to_owned())).run().expect_err("it may not start");
    assert_eq!((failure.line.as_str(), failure.exit_code()), ("a hook refuses the start: no database", 1));
}

#[test]
fn a_hook_of_the_start_does_not_hold_up_the_end() {
    let folder = Folder::new("slow");
    let (told, moments) = channel();
    let operated = folder.operated().hook(move |moment, running| {
        told.send(moment.clone()).expect("it is heard");
        if *moment == Moment::Started {
            running.pool("chat").expect("it runs").join().map_err(|error| error.to_string())?;
        }
        Ok(())
    });
    // With an upgrade nothing is answered before all stands.
    folder.write(&folder.configuration(2, 100).replace(&folder.upgrade().display().to_string(), "none"));
    let running = std::thread::spawn(|| operated.run());
    assert_eq!(next(&moments), Moment::Started);
    assert_eq!(folder.post("/stop").0, 200);
    assert_eq!(next(&moments), Moment::Draining);
    assert!(matches!(next(&moments), Moment::Drained(_)));
    assert_eq!(running.join().expect("no panic"), Ok(()));
}

#[test]
fn state_that_connections_share_goes_to_the_next_build() {
    for is_asked in [true, false] {
        state_goes_to_the_next_build(is_asked);
    }
}

/// Checks that state goes to the next build. `is_asked`: the program has a control socket, a pool of its own.
fn state_goes_to_the_next_build(is_asked: bool) {
    let folder = Folder::new(&format!("carry-{is_asked}"));
    let (told, moments) = channel();
    let operated = folder.operated().carry("topics", || b"news 7".to_vec(), |_| panic!("no build is before it"));
    let operated = operated.hook(move |moment, _| {
        told.send(moment.clone()).expect("it is heard");
        Ok(())
    });
    let configuration = folder.configuration(2, 100);
    folder.write(if is_asked { &configuration } else { configuration.split_once('\n').expect("a line").1 });
    let running = std::thread::spawn(|| operated.run());
    assert_eq!(next(&moments), Moment::Started);
    let next_build = Upgrade::at(folder.upgrade()).replaces("any").stand_by(Duration::ZERO).begin().expect("it begins");
    assert_eq!(next(&moments), Moment::Upgrading);
    let (carried, topics) = channel();
    let read = move |bytes: &[u8]| carried.send(bytes.to_vec()).expect("it is awaited");
    next_build.carry("topics", Vec::new, read).expect("it has begun");
    let pool = next_build.start("chat", Config::accept(Silent).loops(1).listen("127.0.0.1:0")).expect("it starts");
    next_build.ready().expect("it takes over");
    assert_eq!(topics.recv_timeout(PATIENCE).expect("it is carried"), b"news 7");
    assert_eq!(next(&moments), Moment::Replaced);
    running.join().expect("no panic").expect("it was replaced");
    assert_eq!(moments.try_iter().collect::<Vec<_>>(), [], "each pool tells it, and it is one moment");
    drop(pool);
}

#[test]
fn a_request_during_the_start_waits_for_the_pools() {
    let folder = Folder::new("start");
    // With an upgrade nothing is answered before all stands.
    let configuration = folder.configuration(2, 100).replace(&folder.upgrade().display().to_string(), "none");
    let (file, control) = (folder.write(&configuration), folder.0.join("c.sock"));
    let (reached, starting) = channel();
    let (go, may_start) = channel::<()>();
    let may_start = Mutex::new(may_start);
    let silent = Protocol::new("silent", "says nothing", move |_| {
        // The check of the configuration comes before that socket, the start after it.
        if control.exists() {
            let _ = reached.send(());
            let _ = may_start.lock().expect("no panic").recv();
        }
        Ok(Config::accept(Silent).loops(1))
    });
    let running = std::thread::spawn(|| Operated::new(file).protocol(silent).setting(ROOMS).run());
    starting.recv_timeout(PATIENCE).expect("it starts");
    std::thread::scope(|scope| {
        let (answered, answer) = channel();
        let asked = &folder;
        scope.spawn(move || answered.send(asked.post("/suspend")));
        assert!(answer.recv_timeout(Duration::from_millis(200)).is_err(), "no pool is there to be suspended");
        drop(go);
        let (status, text) = answer.recv_timeout(PATIENCE).expect("an answer");
        assert!(status == 200 && text.contains("chat"), "{status}: {text}");
    });
    assert_eq!(folder.post("/stop").0, 200);
    assert_eq!(running.join().expect("no panic"), Ok(()));
}
