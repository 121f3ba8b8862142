//! Words for alerts.

use rustls::AlertDescription;

/// Returns the name of an alert, as rustls writes it, and what the peer most likely means.
pub(crate) fn words(alert: u8) -> String {
    let alert = AlertDescription::from(alert);
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
