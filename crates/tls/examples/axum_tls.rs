//! An axum app under TLS, which tells each client what was agreed on: `axum_tls CHAIN KEY`, which are files of PEM. To try it:
//!
//!     openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out chain.pem -subj /CN=localhost
//!     cargo run -p sockdrawer-tls --example axum_tls chain.pem key.pem
//!     curl --insecure https://localhost:9443/
use axum::{Router, extract::ConnectInfo, routing::get};
use sockdrawer::tasks::{Info, Listener};
use sockdrawer::{Behaviour, Config, Model, Pool};
use sockdrawer_tls::{Handshake, Identity, Server};

type Problem = Box<dyn std::error::Error>;

async fn agreed(ConnectInfo(info): ConnectInfo<Info>) -> String {
    let Some(tls) = info.peer().fact::<Handshake>() else { return "nothing, this is no TLS\n".to_owned() };
    let alpn = tls.alpn.as_deref().map(String::from_utf8_lossy);
    let certificates = tls.peer_certificates.len();
    format!(
        "{:?}, {}, ALPN {alpn:?}, server name {:?}, certificates sent: {certificates}\n",
        tls.protocol, tls.suite, tls.server_name
    )
}

/// A change of the certificate is `pool.update` with a clone of this listener under another server: the app stays.
pub(crate) fn config(listener: Behaviour, tls: Server, address: &str) -> Config {
    Config::accept(listener.layered(tls)).model(Model::Tasks).listen(address)
}

pub(crate) async fn serve(listener: Listener) -> std::io::Result<()> {
    let (ended, app) = (listener.ended(), Router::new().route("/", get(agreed)));
    axum::serve(listener, app.into_make_service_with_connect_info::<Info>()).with_graceful_shutdown(ended).await
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [chain, key] = &words[..] else { return Err("usage: axum_tls CHAIN KEY".into()) };
    let tls = Server::new([Identity::from_files(chain, key)?]).alpn(["http/1.1"]).build()?;
    let pool = Pool::start(config(Behaviour::listener(), tls, "127.0.0.1:9443"))?;
    Ok(serve(pool.listener()).await?)
}
