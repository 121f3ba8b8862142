//! Two builds share listening sockets and paths while the old one stands by. Where the new one dies then, the old one finds all of it as it left it.

use super::kills::kill_with_helpers;
use super::place::Place;
use super::sums::{build, message};
use crate::common::{PATIENCE, Player, any_port, hear, play, read_all, role, say};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sockdrawer::listening::ListenOptions;
use sockdrawer::observe::Event;
use sockdrawer::{Address, Config, Drain, Model, Selector, Upgrade};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// The queue of the old build's Unix socket has room for one more than this.
const BACKLOG: u32 = 3;

/// Runs a build with a TCP port, another and a Unix path, which does as it is told.
fn serve(role: &str) {
    let [place, path, first, second, number, model] = role.split(' ').collect::<Vec<_>>().try_into().expect("six words");
    let number: u8 = number.parse().expect("a number");
    let model = if model == "prefork" { Model::Prefork } else { Model::Loops };
    let (mut options, is_old) = (ListenOptions::default(), number == 1);
    options.mode = Some(if is_old { 0o600 } else { 0o666 });
    let (tells, told) = mpsc::channel();
    let mut config = Config::accept(build(number)).model(model).loops(2).observer(move |event: &Event| {
        if let Event::TakenBack = event {
            tells.send(()).expect("it is waited for");
        }
    });
    config = config.backlog(if is_old { BACKLOG } else { 100 }).settings(|settings| {
        settings.options.receive_buffer = (!is_old).then_some(4096);
    });
    let at = |port: &str| Address::Tcp(port.parse().expect("an address"));
    config = config.listen(at(first)).listen(at(second)).listen_with(Address::Unix(path.into()), options);
    let upgrade = Upgrade::at(place).replaces("any").stand_by(PATIENCE);
    // Shorter than the old build stands by.
    let upgrade = upgrade.stays(Duration::from_millis(50), Drain::within(PATIENCE)).begin().expect("it begins");
    let pool = upgrade.start("sums", config).expect("it starts");
    upgrade.ready().expect("it takes over");
    say(&pool.addresses().iter().map(Address::to_string).collect::<Vec<_>>().join(" "));
    while let Some(order) = hear() {
        let answer = match &*order {
            "suspend" => {
                pool.suspend();
                "suspended".to_owned()
            }
            "resume" => {
                pool.resume();
                "resumed".to_owned()
            }
            "readiness" => format!("{:?}", pool.status().readiness),
            // The port and the path, and another mode where they stay.
            "remove" => match pool.update(|config| config.listeners(|listeners| listeners.truncate(1))) {
                Ok(applied) => applied.plan.to_string(),
                Err(error) => error.to_string(),
            },
            "replace" => match pool.update(|config| config.listeners(|listeners| listeners[2].options.mode = Some(0o644))) {
                Ok(applied) => applied.plan.to_string(),
                Err(error) => error.to_string(),
            },
            "taken back?" => told.recv_timeout(PATIENCE).map_or_else(|error| error.to_string(), |()| "taken back".to_owned()),
            "end" => break,
            order => {
                let peer: SocketAddr = order.strip_prefix("buffer ").and_then(|peer| peer.parse().ok()).expect("a peer");
                // The newest: one that ends may have had this port at the other address.
                let one = pool.connections(&Selector::All).into_iter().rfind(|one| one.peer == Some(peer)).expect("listed");
                pool.options(one.id).and_then(|options| options.receive_buffer).expect("it can be read").to_string()
            }
        };
        say(&answer);
    }
    // No shutdown: it ends as a program does whose main returns an error.
}

/// Place where both builds listen.
struct Scene {
    place: Place,
    path: Place,
    model: Model,
}

impl Scene {
    fn new(name: &str, model: Model) -> Scene {
        let at = |what: &str| Place::new(&format!("shared-{what}-{name}"));
        Scene { place: at("place"), path: at("path"), model }
    }

    fn role(&self, [first, second]: [&str; 2], number: u8) -> String {
        format!("{} {} {first} {second} {number} {}", self.place.0.display(), self.path.0.display(), self.model)
    }

    fn mode(&self) -> Option<u32> {
        std::fs::metadata(&self.path.0).ok().map(|meta| meta.mode() & 0o777)
    }

    /// Returns which builds answer at the ports and the path.
    fn builds(&self, ports: [&str; 2]) -> Vec<Result<u8, String>> {
        let tcp = ports
            .map(|port| TcpStream::connect(port).and_then(|client| client.set_read_timeout(Some(PATIENCE)).and(asked(client))));
        let unix =
            UnixStream::connect(&self.path.0).and_then(|client| client.set_read_timeout(Some(PATIENCE)).and(asked(client)));
        tcp.into_iter().chain([unix]).map(|build| build.map_err(|error| error.to_string())).collect()
    }
}

/// Returns which build answers.
fn asked(mut client: impl Read + Write) -> std::io::Result<u8> {
    let mut told = [0; 6];
    client.write_all(&message(b'a', 1))?;
    client.read_exact(&mut told)?;
    Ok(told[1])
}

/// Returns how many connections the queue of a Unix socket takes that nothing is accepted from.
fn room(path: &Path) -> usize {
    let address = SocketAddrUnix::new(path).expect("a path");
    let mut waiting: Vec<OwnedFd> = Vec::new();
    loop {
        let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).expect("a socket");
        match connect(&client, &address) {
            Ok(()) => waiting.push(client),
            Err(Errno::AGAIN) => return waiting.len(),
            Err(errno) => panic!("{errno}"),
        }
    }
}

fn ask(player: &mut Player, what: &str) -> String {
    player.tell(what);
    player.hear()
}

/// Returns the receive buffer of a connection that comes now.
fn buffer_of(player: &mut Player, port: &str) -> String {
    let client = TcpStream::connect(port).expect("it listens");
    asked(&client).expect("it is served");
    ask(player, &format!("buffer {}", client.local_addr().expect("it is bound")))
}

/// Runs, in the test of this name, two builds that differ in all that they share; the new one dies while the old one stands by.
pub(crate) fn what_the_next_build_wants(name: &str, model: Model) {
    if let Some(role) = role() {
        return serve(&role);
    }
    for ends in ["killed", "changed and killed", "ended by itself"] {
        let scene = Scene::new(&format!("{model}"), model);
        let any = any_port().to_string();
        let mut old = play(name, &scene.role([&any, &any], 1));
        let addresses = old.hear();
        let ports: Vec<&str> = addresses.split(' ').take(2).collect();
        let ports = [ports[0], ports[1]];
        assert_eq!(scene.builds(ports), [Ok(1), Ok(1), Ok(1)]);
        let buffer = buffer_of(&mut old, ports[0]);
        let mut stays = TcpStream::connect(ports[0]).expect("it listens");
        stays.write_all(&message(b's', 0)).expect("it stands");
        asked(&stays).expect("it is served");
        let mut new = play(name, &scene.role(ports, 2));
        new.hear();
        assert_eq!(read_all(&mut stays).expect("an orderly end"), b"", "it may stay no longer");
        assert_eq!(scene.builds(ports), [Ok(2), Ok(2), Ok(2)], "{ends}");
        assert_ne!(buffer_of(&mut new, ports[0]), buffer, "its own connections have its options: {ends}");
        if ends == "changed and killed" {
            let refused = ask(&mut new, "replace");
            assert!(refused.contains("the process before it stands by"), "{refused}");
            let removed = ask(&mut new, "remove");
            assert!(removed.contains("stop listening on"), "{removed}");
            assert_eq!(scene.builds(ports), [Ok(2), Ok(2), Ok(2)], "they go once the other one stands by no more");
        }
        assert_eq!(scene.mode(), Some(0o600), "{ends}: the path is the old build's still");
        if ends == "ended by itself" {
            new.tell("end");
            let errors = new.errors();
            assert!(new.0.wait().is_ok_and(|status| status.success()), "{errors}");
        } else {
            kill_with_helpers(new.id());
        }
        assert_eq!(ask(&mut old, "taken back?"), "taken back", "{ends}");
        assert_eq!((scene.mode(), scene.builds(ports)), (Some(0o600), vec![Ok(1), Ok(1), Ok(1)]), "{ends}");
        assert_eq!(buffer_of(&mut old, ports[0]), buffer, "{ends}");
        ask(&mut old, "suspend");
        assert_eq!(room(&scene.path.0), BACKLOG as usize + 1, "{ends}");
        // Both go on as before: the next build may come, and finds it suspended.
        let mut next = play(name, &scene.role(ports, 3));
        next.hear();
        assert_eq!(ask(&mut next, "readiness"), "Suspended");
        kill_with_helpers(next.id());
        assert_eq!((ask(&mut old, "taken back?"), ask(&mut old, "readiness")), ("taken back".to_owned(), "Suspended".to_owned()));
        ask(&mut old, "resume");
        assert_eq!(scene.builds(ports), [Ok(1), Ok(1), Ok(1)], "{ends}");
    }
}
