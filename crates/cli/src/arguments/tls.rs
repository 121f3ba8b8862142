//! The options of TLS at the connecting end.

use crate::outcome::Failure;
use crate::values::{BadValue, Target};
use crate::workload::first_given;
use clap::Args;
use sockdrawer_load::{PemFile, Tls, TlsVersion, Trust};
use std::fmt;
use std::path::PathBuf;

/// What clients speak below the protocol.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArguments {
    /// Speak TLS to the server, as a URL of https or wss says too; load's own server gets a certificate for the run.
    ///
    /// See [load under TLS](../guide/tls-load.md).
    #[arg(long)]
    pub(crate) tls: bool,
    /// The authorities that may have signed the server's certificate, PEM [default: those of the system, or of SSL_CERT_FILE].
    ///
    /// Not with --insecure.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,
    /// Accept any certificate of the server.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The name to ask for (SNI) and that the certificate must be for [default: the host of TARGET].
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// The application's protocols to offer (ALPN), the preferred first: http/1.1.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = protocol)]
    pub(crate) alpn: Vec<String>,
    /// The only version to speak: 1.2 or 1.3 [default: both].
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(crate) tls_version: Option<TlsVersion>,
    /// The client's certificate chain, PEM, for servers that ask for one.
    ///
    /// With --key.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of --cert, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// A full handshake on each connection [default: resumed by the tickets of earlier connections].
    #[arg(long)]
    pub(crate) no_resume: bool,
}

fn version(text: &str) -> Result<TlsVersion, BadValue> {
    match text {
        "1.2" => Ok(TlsVersion::Tls12),
        "1.3" => Ok(TlsVersion::Tls13),
        _ => Err(BadValue("not a version of TLS that is spoken here: write 1.2 or 1.3".to_owned())),
    }
}

/// Parses the name of a protocol: RFC 7301 has a byte for its length.
fn protocol(text: &str) -> Result<String, BadValue> {
    match text.len() {
        1..=255 => Ok(text.to_owned()),
        _ => Err(BadValue("not a protocol's name of 1 to 255 bytes: write such as http/1.1".to_owned())),
    }
}

impl TlsArguments {
    /// Returns true where any of the options was given.
    pub(crate) fn given(&self) -> bool {
        self.tls || self.first_given().is_some()
    }

    /// Returns the first option that was given, but for --tls.
    fn first_given(&self) -> Option<&'static str> {
        first_given([
            ("--ca", self.ca.is_some()),
            ("--insecure", self.insecure),
            ("--sni", self.sni.is_some()),
            ("--alpn", !self.alpn.is_empty()),
            ("--tls-version", self.tls_version.is_some()),
            ("--cert", self.cert.is_some()),
            ("--no-resume", self.no_resume),
        ])
    }

    /// Returns the TLS that the options ask for, with files read; None: no TLS. `usage` tells a mistake of the command line.
    ///
    /// # Errors
    /// When options do not go together, or a file has not what it should have.
    pub(crate) fn tls(&self, targets: &[&Target], usage: fn(&dyn fmt::Display) -> Failure) -> Result<Option<Tls>, Failure> {
        let schemes: Vec<bool> = targets.iter().filter_map(|target| target.url.as_ref()).map(|url| url.tls).collect();
        if !self.tls && !schemes.contains(&true) {
            return match self.first_given() {
                None => Ok(None),
                Some(option) => Err(usage(&format_args!("{option} is an option of TLS: add --tls, or write https:// or wss://"))),
            };
        }
        if schemes.contains(&false) {
            return Err(usage(&"a URL of http or ws under TLS: write https:// or wss:// in each URL"));
        }
        let mut tls = Tls::new(self.trust(targets, usage)?);
        tls.name = self.name(targets, usage)?;
        tls.alpn.clone_from(&self.alpn);
        (tls.version, tls.resumes) = (self.tls_version, !self.no_resume);
        let read = |path| PemFile::read(path).map_err(|error| usage(&error));
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            tls.identity = Some((read(cert)?, read(key)?));
        }
        tls.client().map_err(|error| usage(&error))?;
        Ok(Some(tls))
    }

    fn trust(&self, targets: &[&Target], usage: fn(&dyn fmt::Display) -> Failure) -> Result<Trust, Failure> {
        match &self.ca {
            Some(_) if targets.is_empty() => {
                Err(usage(&"--ca: the certificate of the server inside this program is made for the run: leave it out"))
            }
            Some(ca) => PemFile::read(ca).map(Trust::Authorities).map_err(|error| usage(&format_args!("--ca: {error}"))),
            None if self.insecure || targets.is_empty() => Ok(Trust::Anybody),
            None => Trust::system().map_err(|error| usage(&format_args!("{error}; or --ca FILE, or --insecure"))),
        }
    }

    /// Returns the name that all targets have.
    fn name(&self, targets: &[&Target], usage: fn(&dyn fmt::Display) -> Failure) -> Result<Option<String>, Failure> {
        if self.sni.is_some() {
            return Ok(self.sni.clone());
        }
        let Some((first, others)) = targets.split_first() else { return Ok(None) };
        match others.iter().all(|other| other.name == first.name) {
            true => Ok(first.name.clone()),
            false => Err(usage(&"TLS to targets of several names: say by --sni which one their certificates are for")),
        }
    }
}
