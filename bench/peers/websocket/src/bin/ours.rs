//! `sockdrawer-websocket`, one loop, with its own settings: pings after 30 s of silence are on. CAPACITY: the connections that it expects.

use bench_websocket::Arguments;
use sockdrawer::layer::Layer;
use sockdrawer::{Config, Group, Pool, Step};
use sockdrawer_tls::{Identity, Server};
use sockdrawer_websocket::{Answer, Message, MessageProtocol, MessageService, Opening, Socket, WebSocket};

struct Echo;

impl MessageService for Echo {
    type Protocol = Echo;

    fn open(&self, _opening: &mut Opening<'_>) -> Result<Echo, Answer> {
        Ok(Echo)
    }
}

impl MessageProtocol for Echo {
    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
        socket.send(message);
        Step::Continue
    }
}

#[derive(Clone, Default)]
struct Room(Group);

impl MessageService for Room {
    type Protocol = Room;

    fn open(&self, _opening: &mut Opening<'_>) -> Result<Room, Answer> {
        Ok(self.clone())
    }
}

impl MessageProtocol for Room {
    fn opened(&mut self, socket: &mut Socket<'_>) -> Step {
        socket.join(&self.0);
        Step::Continue
    }

    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
        socket.publish(&self.0, message);
        Step::Continue
    }
}

fn config(arguments: &Arguments, service: impl sockdrawer::Service) -> Result<Config, Box<dyn std::error::Error>> {
    if arguments.tls()?.is_none() {
        return Ok(Config::accept(service));
    }
    let tls = Server::new([Identity::from_files(&arguments.chain, &arguments.key)?]).build()?;
    Ok(Config::accept(Layer::new(tls, service)))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parsed()?;
    let address = format!("127.0.0.1:{}", arguments.port);
    let config = match arguments.is_room {
        true => config(&arguments, WebSocket::new(Room::default()))?,
        false => config(&arguments, WebSocket::new(Echo))?,
    };
    let mut config = config.listen(address.as_str()).loops(1);
    if let Some(capacity) = std::env::args().nth(6) {
        config = config.capacity(capacity.parse()?);
    }
    Ok(Pool::start(config)?.join()?)
}
