//! A deny list that is changed while the pool runs, in place of the default admission policy.
//!
//! ```text
//! cargo run --example admission
//! ```

use sockdrawer::{
    Config, Context, Drain, Input, Peer, Pool, Protocol, Service, Step,
    admission::{Admission, AfterAccept, NewPeer, Reject},
};
use std::collections::HashSet;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

/// Turns these addresses away.
struct DenyList(HashSet<IpAddr>);

impl Admission for DenyList {
    fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
        let denied = peer.address.is_some_and(|address| self.0.contains(&address.ip()));
        if denied { AfterAccept::Reject(Reject::text("not you\n")) } else { AfterAccept::Keep }
    }
}

/// Greets and closes.
struct Greeting;

impl Service for Greeting {
    type Protocol = Greeting;
    fn open(&self, _peer: &Peer) -> Greeting {
        Greeting
    }
}

impl Protocol for Greeting {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"welcome\n");
        Step::Close
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::start(Config::accept(Greeting).listen("127.0.0.1:0"))?;
    let at = pool.addresses()[0].to_string();
    println!("before: {:?}", answer(&at)?);
    // From here on no client of this machine comes in. Those that are connected stay.
    let denied = HashSet::from([IpAddr::from(Ipv4Addr::LOCALHOST)]);
    pool.reconfigure(pool.config().admission(DenyList(denied)))?;
    println!("denied: {:?}", answer(&at)?);
    pool.reconfigure(pool.config().admission(DenyList(HashSet::new())))?;
    println!("after: {:?}", answer(&at)?);
    pool.shutdown(Drain::within(Duration::from_secs(5)));
    Ok(())
}

fn answer(at: &str) -> std::io::Result<String> {
    let mut answer = String::new();
    TcpStream::connect(at)?.read_to_string(&mut answer)?;
    Ok(answer)
}
