//! The server in this process under TLS, with a certificate that is made for the run.

use rcgen::{CertificateParams, KeyPair};
use sockdrawer::{Behaviour, Error};
use sockdrawer_tls::{Identity, Server};

/// The behaviour under TLS. Clients do not verify its certificate, which no authority signed.
pub(crate) fn server(behaviour: Behaviour, alpn: &[String]) -> Result<Behaviour, Error> {
    let wrong =
        |why: &dyn std::fmt::Display| Error::Stopped { reason: format!("no certificate could be made for the server: {why}") };
    let key = KeyPair::generate().map_err(|error| wrong(&error))?;
    let parameters = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).map_err(|error| wrong(&error))?;
    let certificate = parameters.self_signed(&key).map_err(|error| wrong(&error))?;
    let identity = Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes());
    let identity = identity.map_err(|error| wrong(&error))?;
    let server = Server::new([identity]).alpn(alpn.iter().map(String::as_str)).build().map_err(|error| wrong(&error))?;
    Ok(behaviour.layered(server))
}
