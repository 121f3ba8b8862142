//! A restart policy of one's own: parts that die are replaced after a pause that grows, and the pool gives up when all is in vain.

use sockdrawer::testing::crash;
use sockdrawer::{
    Behaviour, Config, Pool,
    blocking::Connection,
    observe::Event,
    restarting::{Death, Part, Replace, RestartPolicy},
};
use std::error::Error;
use std::io::{Read, Write};
use std::time::Duration;

struct Backoff {
    first: Duration,
    most: u32,
}

impl RestartPolicy for Backoff {
    fn decide(&self, death: &Death<'_>) -> Replace {
        // What happened long ago does not count.
        let recent = death.restarts.iter().filter(|at| death.at.duration_since(**at) < Duration::from_secs(60)).count() as u32;
        match recent {
            0 => Replace::Now,
            few if few < self.most => Replace::After(self.first * 2_u32.pow(few - 1)),
            _ => Replace::GiveUp,
        }
    }
}

fn echo(connection: &mut Connection) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            count => connection.write_all(&buffer[..count])?,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::accept(Behaviour::blocking(echo)).model(sockdrawer::Model::Threads).listen("127.0.0.1:0");
    let config =
        config.restarts(Backoff { first: Duration::from_millis(50), most: 3 }).observer(|event: &Event| println!("{event:?}"));
    let pool = Pool::start(config)?;
    // As a bug would end it, again and again: the last time is too much.
    for deaths in 1..=4 {
        crash(&pool, Part::Loop, 0);
        pool.wait(Duration::from_secs(5), |status| status.restarts == deaths);
    }
    println!("{}", pool.join().expect_err("it gave up"));
    Ok(())
}
