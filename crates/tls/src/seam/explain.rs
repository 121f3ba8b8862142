//! Explanations of failures: a line for each way in which a handshake fails, with what failed, why, and what to do.

use rustls::{CertificateError, Error, HandshakeType, InvalidMessage, PeerIncompatible};
use sockdrawer::layer::Refused;

pub(super) fn refused(error: &Error) -> Refused {
    Refused::because(line(error))
}

fn line(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => format!("the peer's certificate {}", certificate(error)),
        Error::NoCertificatesPresented => "the client sent no certificate, and one is required".to_owned(),
        Error::AlertReceived(refusal) => {
            format!("the peer refused the handshake with the TLS alert {}", crate::alert::words(u8::from(*refusal)))
        }
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13 | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "the server speaks none of the TLS versions that are allowed here".to_owned(),
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => "the client speaks none of the TLS versions that are allowed here".to_owned(),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            "both ends have no TLS cipher suite in common".to_owned()
        }
        Error::NoApplicationProtocol => "the client offers none of the protocols that are spoken here (ALPN)".to_owned(),
        Error::InappropriateHandshakeMessage { expect_types, got_type: HandshakeType::ClientHello }
            if expect_types.contains(&HandshakeType::ServerHello) =>
        {
            "the peer does not speak TLS: it sends back what it is sent".to_owned()
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "the peer does not speak TLS".to_owned()
        }
        other => format!("the TLS handshake failed: {other}"),
    }
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; is the clock of this machine right?".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "is signed by no trusted authority: it is self-signed, or its authority has to be named".to_owned()
        }
        CertificateError::NotValidForName => "is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            // Each is printed as `DnsName("localhost")` or `IpAddress(127.0.0.1)`.
            let name = |name: &String| name.split_once('(').map_or(&**name, |(_, name)| name.trim_matches(['"', ')'])).to_owned();
            let (names, expected) = (presented.iter().map(name).collect::<Vec<_>>().join(", "), expected.to_str());
            if names.is_empty() {
                return format!("names no host (subjectAltName; a CN is not looked at), and is asked for {expected}");
            }
            format!("is for {names}, not for {expected}")
        }
        CertificateError::BadSignature => {
            "has a signature that is not of the trusted authority with that name: was the authority made anew?".to_owned()
        }
        // A word of webpki, which it has no type for here: certificates that were signed by themselves for a test are often such.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is an authority's, as `openssl req -x509` makes it: trust this very certificate, or let it sign one".to_owned()
        }
        other => format!("is refused: {other}"),
    }
}
