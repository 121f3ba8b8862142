//! One line for each way in which a handshake fails: what, why, what to do.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};
use sockdrawer::layer::Refused;

pub(super) fn refused(error: &Error) -> Refused {
    Refused::because(line(error))
}

fn line(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => format!("the peer's certificate {}", certificate(error)),
        Error::NoCertificatesPresented => "the client sent no certificate, and one is required".to_owned(),
        Error::AlertReceived(refusal) => format!("the peer refused the handshake with the TLS alert {}", alert(*refusal)),
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
            // Each is printed as `DnsName("localhost")`.
            let names = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name)).collect::<Vec<_>>().join(", ");
            format!("is for {names}, not for {}", expected.to_str())
        }
        CertificateError::BadSignature => {
            "has a signature that is not of the trusted authority with that name: was the authority made anew?".to_owned()
        }
        other => format!("is refused: {other}"),
    }
}

/// Its name, and what the peer most likely means.
pub(super) fn alert(alert: AlertDescription) -> String {
    format!("{alert:?}{}", hint(alert))
}

fn hint(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA => ": it does not trust the authority of this end's certificate",
        AlertDescription::CertificateExpired => ": this end's certificate has expired, or is not valid yet",
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => ": it does not accept this end's certificate",
        AlertDescription::DecryptError => ": it found a signature of this end's certificate wrong",
        AlertDescription::CertificateRequired => ": it requires a client certificate",
        AlertDescription::ProtocolVersion => ": it speaks other versions of TLS",
        AlertDescription::HandshakeFailure => ": it found nothing that both ends speak, or requires a client certificate",
        AlertDescription::NoApplicationProtocol => ": it speaks none of the protocols that were offered (ALPN)",
        AlertDescription::UnrecognisedName => ": it does not know the name that was asked for (SNI)",
        _ => "",
    }
}
