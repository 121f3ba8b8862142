//! Serves one protocol in one loop, and nothing else: the server whose system calls and instructions `ci/gates` counts. It is built within a minute, as
//! the whole program, optimised as it is shipped, is not.
//!
//! `cargo run -p sockdrawer-catalog --example counted -- ping 127.0.0.1:9000`
use sockdrawer::{Config, Pool};
use sockdrawer_catalog::acks::{AckPattern, Acks};
use sockdrawer_catalog::http::{Http, MAX_HEAD};
use sockdrawer_catalog::ping::Ping;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, address] = &words[..] else { return Err("usage: counted ping|http|acks ADDRESS".into()) };
    let mut config = match protocol.as_str() {
        "ping" => Config::accept(Ping),
        "http" => Config::accept(Http::default()),
        "acks" => Config::accept(Acks { pattern: AckPattern::Read }),
        other => return Err(format!("no protocol {other}: there are ping, http and acks").into()),
    };
    config.settings.max_partial = MAX_HEAD;
    let pool = Pool::start(config.loops(1).listen(address.as_str()))?;
    println!("listening on {}", pool.addresses()[0]);
    Ok(pool.join()?)
}
