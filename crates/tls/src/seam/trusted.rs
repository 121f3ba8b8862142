//! The certificates that an end trusts: any, those of authorities, and those that are named themselves. A certificate that is byte for byte one of
//! those trusted is trusted for its names and dates, as curl and OpenSSL have it: `openssl req -x509` makes one that says that it is an
//! authority's, which webpki accepts from no peer. Signatures are verified in any case, as the handshake needs them.

use crate::Error;
use crate::identity::certificates;
use crate::validity::validity;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

type Verified<T> = Result<T, rustls::Error>;

/// Certificates that are trusted, and what verifies those that they signed. Of a client `V` is None where it trusts any server.
#[derive(Debug)]
struct Trusted<V> {
    certificates: Vec<CertificateDer<'static>>,
    signed: V,
}

/// Makes the check of the servers that a client trusts: those with these certificates and those of these authorities, PEM; None: all.
pub(crate) fn servers(pem: Option<&[u8]>) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let Some(pem) = pem else {
        return Ok(Arc::new(Trusted { certificates: Vec::new(), signed: None }));
    };
    let (certificates, mut roots) = (certificates(pem, "the authorities")?, RootCertStore::empty());
    // Some of the system's authorities may be of a form that is not known here.
    let (added, _) = roots.add_parsable_certificates(certificates.iter().cloned());
    if added == 0 {
        return Err(Error::Unusable("none of the authorities can be used".to_owned()));
    }
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), super::provider()).build();
    let signed: Arc<dyn ServerCertVerifier> = signed.map_err(|error| Error::Unusable(error.to_string()))?;
    Ok(Arc::new(Trusted { certificates, signed: Some(signed) }))
}

/// Makes the check of the clients that a server trusts. `are_required`: one without a certificate is refused.
pub(crate) fn clients(pem: &[u8], are_required: bool) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let unusable = |error: &dyn std::fmt::Display| Error::Unusable(error.to_string());
    let (certificates, mut roots) = (certificates(pem, "the authorities of clients")?, RootCertStore::empty());
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| unusable(&error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), super::provider());
    let builder = if are_required { builder } else { builder.allow_unauthenticated() };
    Ok(Arc::new(Trusted { certificates, signed: builder.build().map_err(|error| unusable(&error))? }))
}

impl<V> Trusted<V> {
    /// Returns whether this certificate is one of those that are trusted themselves; fails where it is, and is not valid now.
    fn has(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Verified<bool> {
        if !self.certificates.contains(certificate) {
            return Ok(false);
        }
        let valid = validity(certificate).ok_or(CertificateError::BadEncoding)?;
        match UNIX_EPOCH + Duration::from_secs(now.as_secs()) {
            now if now < valid.start => Err(CertificateError::NotValidYet.into()),
            now if now >= valid.end => Err(CertificateError::Expired.into()),
            _ => Ok(true),
        }
    }
}

impl ServerCertVerifier for Trusted<Option<Arc<dyn ServerCertVerifier>>> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Verified<ServerCertVerified> {
        let Some(signed) = &self.signed else { return Ok(ServerCertVerified::assertion()) };
        if !self.has(end_entity, now)? {
            return signed.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Verified<HandshakeSignatureValid> {
        verify_tls12_signature(message, certificate, signature, &super::provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Verified<HandshakeSignatureValid> {
        verify_tls13_signature(message, certificate, signature, &super::provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        super::provider().signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Trusted<Arc<dyn ClientCertVerifier>> {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Verified<ClientCertVerified> {
        match self.has(end_entity, now)? {
            true => Ok(ClientCertVerified::assertion()),
            false => self.signed.verify_client_cert(end_entity, intermediates, now),
        }
    }

    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Verified<HandshakeSignatureValid> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Verified<HandshakeSignatureValid> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
