//! Blocking code, a thread for each client: lines come back in capitals. A drain ends a client between two reads.
use sockdrawer::{
    Behaviour, Config, Model, Pool,
    blocking::{Connection, Wakeup},
};
use std::io::{self, Read, Write};

fn shout(connection: &mut Connection) -> io::Result<()> {
    let mut bytes = [0; 4096];
    while connection.wait()? == Wakeup::Input {
        let count = connection.read(&mut bytes)?;
        if count == 0 {
            break;
        }
        bytes[..count].make_ascii_uppercase();
        connection.write_all(&bytes[..count])?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::accept(Behaviour::blocking(shout)).model(Model::Threads).listen("127.0.0.1:9000");
    Ok(Pool::start(config)?.join()?)
}
