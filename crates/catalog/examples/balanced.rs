//! A proxy of one's own with the targets, headers and health of `serve proxy`, which a new build takes over with its clients.
//!
//! `cargo run -p sockdrawer-catalog --example balanced -- /tmp/proxy 127.0.0.1:9000 127.0.0.1:6379,weight=2 127.0.0.1:6380`

use sockdrawer::{Config, Upgrade, listening::Listening};
use sockdrawer_catalog::proxy::{Balance, Known, Proxy, ProxyOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, listen, targets @ ..] = &words[..] else { return Err("usage: balanced UPGRADE LISTEN TARGET...".into()) };
    let targets = targets.iter().map(|target| target.parse()).collect::<Result<_, _>>()?;
    let proxy = Proxy::new(ProxyOptions { balance: Balance::Rotate, ..ProxyOptions::to(targets) }, Known::default());
    let upgrade = Upgrade::at(path).version(env!("CARGO_PKG_VERSION")).begin()?;
    // Each client has two connections.
    let config = Config::accept(proxy).limit(2_200).listening(Listening::new(listen.as_str()).limit(1_000));
    let pool = upgrade.start("proxy", config)?;
    upgrade.ready()?;
    Ok(pool.join()?)
}
