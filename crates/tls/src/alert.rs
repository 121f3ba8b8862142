//! Names of alerts.

/// The name of an alert, as rustls writes it: `UnknownCA`.
pub(crate) fn name(alert: u8) -> String {
    format!("{:?}", rustls::AlertDescription::from(alert))
}
