//! One line for each way in which a handshake fails: what, why, what to do.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use sockdrawer::layer::Refused;

pub(super) fn refused(error: &Error) -> Refused {
    Refused::because(line(error))
}

fn line(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => format!("the peer's certificate {}", certificate(error)),
        Error::NoCertificatesPresented => "the client sent no certificate, and one is required".to_owned(),
        Error::AlertReceived(alert) => format!("the peer refused the handshake with the TLS alert {alert:?}{}", hint(*alert)),
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
            format!("is for {}, not for {}", presented.join(", "), expected.to_str())
        }
        // A word of webpki, which it has no type for here: certificates that were signed by themselves for a test are often such.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is an authority's (CA:TRUE), which is no certificate of a server: let it sign one".to_owned()
        }
        other => format!("is refused: {other}"),
    }
}

/// What the peer most likely means.
fn hint(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA => ": it does not trust the authority of this end's certificate",
        AlertDescription::CertificateExpired => ": this end's certificate has expired",
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => ": it does not accept this end's certificate",
        AlertDescription::CertificateRequired => ": it requires a client certificate",
        AlertDescription::ProtocolVersion => ": it speaks other versions of TLS",
        AlertDescription::HandshakeFailure => ": it found nothing that both ends speak, or requires a client certificate",
        AlertDescription::NoApplicationProtocol => ": it speaks none of the protocols that were offered (ALPN)",
        AlertDescription::UnrecognisedName => ": it does not know the name that was asked for (SNI)",
        _ => "",
    }
}
