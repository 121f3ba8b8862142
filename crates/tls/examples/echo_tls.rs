//! Sends back every byte that a client sends, by TLS: `echo_tls CHAIN KEY`, which are files of PEM. To try it:
//!
//!     openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out chain.pem -subj /CN=localhost
//!     cargo run -p sockdrawer-tls --example echo_tls chain.pem key.pem
//!     openssl s_client -connect 127.0.0.1:9443
use sockdrawer::layer::Layer;
use sockdrawer::{Config, Context, Input, Peer, Pool, Protocol, Service, Step};
use sockdrawer_tls::{Identity, Server};

struct Echo;
impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
}
impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.take_all());
        Step::Continue
    }
}
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [chain, key] = &words[..] else { return Err("usage: echo CHAIN KEY".into()) };
    let tls = Server::new([Identity::from_files(chain, key)?]).build()?;
    Ok(Pool::start(Config::accept(Layer::new(tls, Echo)).listen("127.0.0.1:9443"))?.join()?)
}
