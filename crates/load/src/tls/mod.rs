//! TLS between the clients and the server: what a plan says of it, the layer of the clients, and what came of the handshakes.

mod client;
mod own;

pub(crate) use client::Secured;
pub(crate) use own::server;

use serde::{Deserialize, Serialize};
use sockdrawer_tls::{Client, ClientOptions, Error, Identity, Protocol};
use std::fmt;
use std::path::{Path, PathBuf};
use zeroize::Zeroize;

/// The clients speak TLS. It goes to other processes and machines, so it has what files have in them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tls {
    /// The servers that are trusted.
    pub trust: Trust,
    /// The name that servers must have a certificate for, and that they are asked for (SNI); None: the target's address.
    pub name: Option<String>,
    /// The application's protocols (ALPN) that are offered.
    pub alpn: Vec<String>,
    /// The only version that is spoken; None: 1.2 and 1.3.
    pub version: Option<TlsVersion>,
    /// The certificate chain and the key for servers that ask clients for one, PEM.
    pub identity: Option<(PemFile, PemFile)>,
    /// True where a connection resumes by the tickets of those before it in its process; else each has a full handshake.
    pub resumes: bool,
}

/// The servers that clients trust.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Trust {
    /// Servers that the authorities of the system signed: this is its file of them.
    System(PemFile),
    /// Servers that these authorities signed, PEM.
    Authorities(PemFile),
    /// All servers.
    Anybody,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    /// 1.2, RFC 5246.
    Tls12,
    /// 1.3, RFC 8446.
    Tls13,
}

/// A file of certificates or a key: where it is, and what is in it, which may be secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PemFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl PemFile {
    /// Reads it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: impl Into<PathBuf>) -> Result<PemFile, Error> {
        let path = path.into();
        let bytes = std::mem::take(&mut *sockdrawer_tls::read_pem(&path)?);
        Ok(PemFile { path, bytes })
    }

    /// Returns the path from which it was read.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Overwrites the bytes: they may be a key.
impl Drop for PemFile {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// Prints the path and nothing of the contents.
impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PemFile").field(&self.path).finish()
    }
}

/// Paths where distributions have the authorities of the system, the first that is there: Debian, Fedora, openSUSE, Alpine and BSDs.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl Trust {
    /// Reads the authorities of the system: of the file that the environment variable `SSL_CERT_FILE` names, else of the distribution's.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn system() -> Result<Trust, Error> {
        let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let path = named.or_else(|| BUNDLES.iter().map(PathBuf::from).find(|path| path.exists()));
        let none = || {
            Error::Unusable(
                "this system has no file of authorities that is known: name one, or install ca-certificates".to_owned(),
            )
        };
        PemFile::read(path.ok_or_else(none)?).map(Trust::System)
    }
}

impl Tls {
    /// Creates the settings of TLS with servers of this trust, and nothing special.
    pub fn new(trust: Trust) -> Tls {
        Tls { trust, name: None, alpn: Vec::new(), version: None, identity: None, resumes: true }
    }

    /// Returns the client that is made of it, before the first connect.
    ///
    /// # Errors
    /// When a file has not what it should have, or the name is none.
    pub fn client(&self) -> Result<Client, Error> {
        self.options()?.build().map_err(|error| match (error, &self.trust) {
            (Error::Pem { why, .. }, Trust::System(file) | Trust::Authorities(file)) => {
                Error::Pem { source_name: file.path.display().to_string(), why }
            }
            (error, _) => error,
        })
    }

    fn options(&self) -> Result<ClientOptions, Error> {
        let trust = match &self.trust {
            Trust::System(file) | Trust::Authorities(file) => sockdrawer_tls::Trust::Authorities(file.bytes.clone()),
            Trust::Anybody => sockdrawer_tls::Trust::Anybody,
        };
        let versions = match self.version {
            None => Protocol::Tls12..=Protocol::Tls13,
            Some(TlsVersion::Tls12) => Protocol::Tls12..=Protocol::Tls12,
            Some(TlsVersion::Tls13) => Protocol::Tls13..=Protocol::Tls13,
        };
        let mut options = Client::new(trust).alpn(self.alpn.iter().map(String::as_str)).versions(versions).resumes(self.resumes);
        if let Some(name) = &self.name {
            options = options.name(name);
        }
        if let Some((chain, key)) = &self.identity {
            let [chain_name, key_name] = [chain, key].map(|file| file.path.to_string_lossy());
            options = options.identity(Identity::from_named_pem((&chain.bytes, &chain_name), (&key.bytes, &key_name))?);
        }
        Ok(options)
    }
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsVersion::Tls12 => "1.2",
            TlsVersion::Tls13 => "1.3",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_prints_no_key() {
        let path = std::env::temp_dir().join(format!("sockdrawer-key-{}", std::process::id()));
        std::fs::write(&path, "secret").expect("a file");
        let file = PemFile::read(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it was written");
        let mut tls = Tls::new(Trust::Anybody);
        tls.identity = Some((file.clone(), file));
        let printed = format!("{tls:?}");
        let bytes = format!("{:?}", b"secret");
        assert!(!printed.contains("secret") && !printed.contains(&bytes[1..bytes.len() - 1]), "{printed}");
        assert!(printed.contains("sockdrawer-key"), "{printed}");
    }
}
