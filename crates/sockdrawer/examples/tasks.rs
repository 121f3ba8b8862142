//! Whatever a client sends comes back: an async handler, one task for each connection.
use sockdrawer::tasks::{Connection, Info};
use sockdrawer::{Behaviour, Config, Error, Model, Pool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn echo(mut connection: Connection, info: Info) {
    let mut bytes = [0; 4096];
    loop {
        let read = tokio::select! {
            read = connection.read(&mut bytes) => read.unwrap_or(0),
            () = info.draining() => 0,
        };
        if read == 0 || connection.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

fn main() -> Result<(), Error> {
    let address = "127.0.0.1:9000";
    Pool::start(Config::accept(Behaviour::task(echo)).model(Model::Tasks).listen(address))?.join()
}
