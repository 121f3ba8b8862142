//! A certificate chain with its key.

use crate::Error;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use zeroize::Zeroizing;

/// A certificate chain and its private key: who one end of a connection is.
#[derive(Clone)]
pub struct Identity {
    pub(crate) certified: Arc<CertifiedKey>,
    /// Text as it was read: another process reads it again.
    pub(crate) pem: Arc<Pem>,
}

#[derive(PartialEq, Eq)]
pub(crate) struct Pem {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Zeroizing<Vec<u8>>,
}

/// Neither certificates nor keys are printed.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.certified.cert.len()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads PEM files: the chain, its own certificate first, and the key in PKCS#8, PKCS#1 or SEC1 form.
    ///
    /// # Errors
    /// When a file cannot be read, has no certificate or no key, or the key is not the certificate's.
    pub fn from_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Identity, Error> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        Identity::read(&read_pem(chain)?, &chain.display().to_string(), &read_pem(key)?, &key.display().to_string())
    }

    /// Takes PEM texts, as [`Identity::from_files`].
    ///
    /// # Errors
    /// When there is no certificate or no key, or the key is not the certificate's.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Identity, Error> {
        Identity::from_named_pem((chain, "the certificate chain"), (key, "the key"))
    }

    /// Takes PEM texts with what mistakes call them, such as the files that they were read from.
    ///
    /// # Errors
    /// As those of [`Identity::from_pem`].
    pub fn from_named_pem(chain: (&[u8], &str), key: (&[u8], &str)) -> Result<Identity, Error> {
        Identity::read(chain.0, chain.1, key.0, key.1)
    }

    /// Makes a key, and a certificate of this common name for these DNS names and addresses that it signs itself: for tests and runs in
    /// which both ends are one's own. It does not expire before the year 4096.
    ///
    /// # Errors
    /// When a name is none, or there is no randomness.
    #[cfg(feature = "self-signed")]
    pub fn self_signed(common_name: &str, names: &[&str]) -> Result<Identity, Error> {
        use rcgen::{CertificateParams, DnType, KeyPair};
        let unusable = |error: rcgen::Error| Error::Unusable(format!("no certificate could be made: {error}"));
        let key = KeyPair::generate().map_err(unusable)?;
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut parameters = CertificateParams::new(names).map_err(unusable)?;
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        let certificate = parameters.self_signed(&key).map_err(unusable)?;
        Identity::from_pem(certificate.pem().as_bytes(), Zeroizing::new(key.serialize_pem()).as_bytes())
    }

    /// Returns the certificate chain as PEM.
    pub fn chain_pem(&self) -> &[u8] {
        &self.pem.chain
    }

    /// Returns the certificates of the chain as DER, its own first.
    pub fn certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.certified.cert.iter().map(|certificate| &certificate[..])
    }

    /// Returns when its certificate begins to be valid; None where that cannot be read.
    pub fn begins(&self) -> Option<SystemTime> {
        Some(crate::validity::validity(self.certified.cert.first()?)?.start)
    }

    /// Returns when its certificate expires; None where that cannot be read.
    pub fn expires(&self) -> Option<SystemTime> {
        Some(crate::validity::validity(self.certified.cert.first()?)?.end)
    }

    fn read(chain: &[u8], chain_name: &str, key: &[u8], key_name: &str) -> Result<Identity, Error> {
        let pem = Arc::new(Pem { chain: chain.to_vec(), key: Zeroizing::new(key.to_vec()) });
        let chain = certificates(chain, chain_name)?;
        let wrong = |why: String| Error::Pem { source_name: key_name.to_owned(), why };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(no_key(key, &error)))?;
        let key = Zeroizing::new(key);
        let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| wrong(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(Identity { certified: Arc::new(certified), pem })
            }
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err(wrong(format!("it is not the key of the certificate in {chain_name}")))
            }
            Err(error) => Err(Error::Pem { source_name: chain_name.to_owned(), why: error.to_string() }),
        }
    }
}

/// Returns the reason why there is no key in this text.
fn no_key(pem: &[u8], error: &pem::Error) -> String {
    let text = std::str::from_utf8(pem).unwrap_or_default();
    if text.contains("ENCRYPTED") {
        "the key is encrypted: decrypt it into a file that its user alone may read (openssl pkey -in FILE -out FILE)".to_owned()
    } else if text.contains("BEGIN CERTIFICATE") {
        "it has a certificate and no key: name the file of the private key".to_owned()
    } else {
        format!("there is no private key in PEM form: {error}")
    }
}

/// Maximum length of a file of certificates or a key, in bytes: ten times the file of all authorities that browsers trust.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// Reads a file of certificates or a key, which is wiped after use.
///
/// # Errors
/// When it cannot be read, or is longer than 4 MiB.
pub fn read_pem(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    // As long as all that may come: where it grows, the bytes that it had would stay in memory.
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len().min(MAX_FILE) as usize;
        let mut bytes = Zeroizing::new(Vec::with_capacity(length + 1));
        file.by_ref().take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let bytes = read.map_err(|error| Error::unreadable(path, &error))?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= MAX_FILE => Ok(bytes),
        _ => Err(Error::File {
            path: path.to_owned(),
            why: "it is longer than 4 MiB: name a file of certificates, or a key".to_owned(),
        }),
    }
}

pub(crate) fn certificates(pem: &[u8], source_name: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |why: String| Error::Pem { source_name: source_name.to_owned(), why };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| wrong(format!("there is no certificate in PEM form: {error}")))?;
    let has_key = || std::str::from_utf8(pem).is_ok_and(|text| text.contains("PRIVATE KEY-----"));
    match certificates.is_empty() {
        true if has_key() => Err(wrong("it has a key and no certificate: name the file of the certificate".to_owned())),
        true => Err(wrong("there is no certificate in PEM form".to_owned())),
        false => Ok(certificates),
    }
}
