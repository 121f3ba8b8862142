//! The server in this process under TLS, with a certificate that is made for the run.

use sockdrawer::{Behaviour, Error};
use sockdrawer_tls::{Identity, Server};

/// Returns the behaviour under TLS. Clients do not verify its certificate, which no authority signed.
pub(crate) fn server(behaviour: Behaviour, alpn: &[String]) -> Result<Behaviour, Error> {
    let identity = Identity::self_signed("sockdrawer", &["localhost", "127.0.0.1"]);
    let server = identity.and_then(|identity| Server::new([identity]).alpn(alpn.iter().map(String::as_str)).build());
    Ok(behaviour.layered(server.map_err(|error| Error::Stopped { reason: error.to_string() })?))
}
