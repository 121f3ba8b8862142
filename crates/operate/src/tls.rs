//! TLS of pools: certificates and keys are read from files, which are looked at again when they change.

use crate::setting::{Kind, Setting, Text, Values, Wrong, not_empty, wrong_setting};
use serde::Serialize;
use sockdrawer_tls::{Client, ClientCertificates, Error, Identity, Protocol, Server, ServerOptions, Tickets, Trust};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const FILE: Text = Text { form: "FILE", check: |text| not_empty(text, "the name of a file") };
/// RFC 7301 has a byte for its length.
const PROTOCOL: Text = Text {
    form: "PROTOCOL",
    check: |text| match text.len() {
        1..=255 => Ok(()),
        _ => Err("not a protocol's name of 1 to 255 bytes: write such as http/1.1".to_owned()),
    },
};
const NAME: Text = Text { form: "NAME", check: |text| not_empty(text, "the name of a server") };
const GROUP: &str = "TLS";

pub(crate) const CERTIFICATE: &str = "tls-cert";
const KEY: &str = "tls-key";
const AUTHORITIES: &str = "tls-client-ca";
const CLIENTS: &str = "tls-clients";
const ALPN: &str = "tls-alpn";
const VERSION: &str = "tls-version";
const TIMEOUT: &str = "tls-handshake-timeout";
const WORKERS: &str = "tls-on-workers";
const TICKETS: &str = "tls-tickets";
const KEY_LOG: &str = "tls-key-log";
const IGNORE_EOF: &str = "tls-ignore-eof";

const fn setting(name: &'static str, kind: Kind, help: &'static str, default: &'static str) -> Setting {
    Setting::new(name, kind, help).unless_given(default).group(GROUP)
}

/// Settings that a pool's TLS is made of: with another value a new generation begins.
pub(crate) const SETTINGS: [Setting; 11] = [
    setting(
        CERTIFICATE,
        Kind::List(FILE),
        "Serve TLS with the certificate chain in this file, PEM. With several, the client's name (SNI) chooses, else the first. The files are watched: a change begins a new generation, open connections go on. May be repeated",
        "no TLS",
    ),
    setting(
        KEY,
        Kind::List(FILE),
        "The private key of the certificate at this place among tls-cert, PEM. May be repeated",
        "none",
    ),
    setting(
        AUTHORITIES,
        Kind::Text(FILE),
        "Ask clients for a certificate that an authority in this file signed, PEM; these clients' handshakes are not resumed if it is required",
        "clients are not asked",
    ),
    setting(
        CLIENTS,
        Kind::Choice(&["required", "optional"]),
        "With tls-client-ca: whether a client without a certificate is refused",
        "required",
    ),
    setting(
        ALPN,
        Kind::List(PROTOCOL),
        "A protocol of the application that is agreed on (ALPN), such as http/1.1, the preferred first. May be repeated",
        "none",
    ),
    setting(VERSION, Kind::Choice(&["1.2", "1.3"]), "The lowest version of TLS that is spoken", "1.2"),
    setting(
        TIMEOUT,
        Kind::PositiveTime,
        "The timeout of the TLS handshake; a connection whose handshake is not complete by then is closed",
        "10s",
    ),
    setting(
        WORKERS,
        Kind::Switch,
        "Run TLS handshakes on workers, so that signatures hold up no other connection of a loop; costs more CPU time in all",
        "false",
    ),
    setting(
        IGNORE_EOF,
        Kind::Switch,
        "Take an end without TLS's close_notify for one in order, for clients that never send it; what was cut off on the way then looks whole",
        "false",
    ),
    setting(TICKETS, Kind::Switch, "Give clients tickets by which their next handshake is resumed", "true"),
    setting(
        KEY_LOG,
        Kind::Text(FILE),
        "Append the secrets of all connections to this file, in the form of SSLKEYLOGFILE, for debugging: its readers can read all that is sent",
        "none",
    ),
];

const TO: &str = "tls-to";
const TO_NAME: &str = "tls-to-name";
const TO_CERTIFICATE: &str = "tls-to-cert";
const TO_KEY: &str = "tls-to-key";
const TO_ALPN: &str = "tls-to-alpn";
const TO_IGNORE_EOF: &str = "tls-to-ignore-eof";

/// The settings of TLS of connections that a protocol makes.
pub(crate) const TO_SETTINGS: [Setting; 6] = [
    setting(
        TO,
        Kind::Text(FILE),
        "Speak TLS with what is connected to, and trust the authorities or the certificates in this file, PEM. It is watched, as tls-cert is",
        "no TLS",
    ),
    setting(
        TO_NAME,
        Kind::Text(NAME),
        "With tls-to: the name that certificates have to be for, and that is asked for (SNI)",
        "the IP address that is connected to",
    ),
    setting(TO_CERTIFICATE, Kind::Text(FILE), "With tls-to: the certificate chain to show when it is asked for, PEM", "none"),
    setting(TO_KEY, Kind::Text(FILE), "With tls-to: the private key of tls-to-cert, PEM", "none"),
    setting(
        TO_ALPN,
        Kind::List(PROTOCOL),
        "With tls-to: a protocol of the application that is offered (ALPN), the preferred first. May be repeated",
        "none",
    ),
    setting(
        TO_IGNORE_EOF,
        Kind::Switch,
        "With tls-to: take an end without TLS's close_notify for one in order, for servers that never send it; what was cut off on the way then looks whole",
        "false",
    ),
];

/// The TLS of a pool, as it is in force.
#[derive(Clone, Debug)]
pub(crate) struct PoolTls {
    /// TLS of the connections that its protocol makes.
    pub(crate) client: Option<Client>,
    /// TLS of the pool, and of each of its listeners in order.
    pub(crate) servers: Vec<Option<Server>>,
    pub(crate) certificates: Vec<Certificate>,
    /// Hash of the content of its files, just before they were read.
    pub(crate) content: u64,
    /// The number of what the protocol has found that its settings name elsewhere.
    pub(crate) found: Option<u64>,
}

/// Certificate of a pool.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Certificate {
    pub(crate) file: String,
    /// Moment of its end, in seconds since 1970; None where the certificate does not say it in a form that is known.
    pub(crate) expires: Option<u64>,
    /// Moment from which on it is valid, in seconds since 1970; None where the certificate does not say it in a form that is known.
    #[serde(skip)]
    begins: Option<u64>,
}

impl PoolTls {
    /// Returns a setting of which the other is made otherwise, though its value is what it was, and why.
    pub(crate) fn difference(&self, other: &PoolTls) -> Option<(&'static str, &'static str)> {
        const FILES: &str = "the files have another content";
        let mut servers = self.servers.iter().flatten().zip(other.servers.iter().flatten());
        let mut clients = self.client.iter().zip(&other.client);
        if servers.any(|(one, other)| !one.is_same(other)) {
            return Some((CERTIFICATE, FILES));
        }
        if clients.any(|(one, other)| !one.is_same(other)) {
            return Some((TO, FILES));
        }
        let mut found = self.found.iter().zip(&other.found);
        found.any(|(one, other)| one != other).then_some(("protocol", "other addresses, or other findings of checks"))
    }
}

/// Makes the TLS that the settings of a pool and of its listeners say, in this order; None: no TLS, and nothing was found elsewhere.
pub(crate) fn of(sets: &[Values], tickets: &Tickets, found: Option<u64>) -> Result<Option<PoolTls>, Wrong> {
    let client = client(&sets[0])?;
    let mut all = PoolTls { client, servers: Vec::new(), certificates: Vec::new(), content: content(sets), found };
    for (at, set) in sets.iter().enumerate() {
        let served = server(set, tickets).map_err(|(setting, why)| match at.checked_sub(1) {
            None => (setting, why),
            Some(listener) => ("listen", format!("{}: {}", sets[0].list("listen")[listener], wrong_setting(setting, &why))),
        })?;
        let (server, certificates) = served.unzip();
        all.servers.push(server);
        all.certificates.extend(certificates.into_iter().flatten());
    }
    Ok(Some(all).filter(|all| all.client.is_some() || all.found.is_some() || all.servers.iter().any(Option::is_some)))
}

/// Makes the end of TLS of connections that a protocol makes.
fn client(values: &Values) -> Result<Option<Client>, Wrong> {
    let Some(file) = values.text(TO) else {
        let stray = TO_SETTINGS.iter().map(|setting| setting.name).find(|name| values.has(name));
        return stray.map_or(Ok(None), |name| Err((name, format!("is for {TO}, which is not set: set it too"))));
    };
    is_file(TO, file)?;
    let pem = sockdrawer_tls::read_pem(Path::new(file)).map_err(|error| (TO, error.to_string()))?;
    let mut options = Client::new(Trust::Authorities(pem.to_vec()));
    if let Some(name) = values.text(TO_NAME) {
        options = options.name(name);
    }
    match (values.text(TO_CERTIFICATE), values.text(TO_KEY)) {
        (Some(chain), Some(key)) => {
            is_file(TO_CERTIFICATE, chain)?;
            is_file(TO_KEY, key)?;
            options = options.identity(Identity::from_files(chain, key).map_err(|error| (TO_CERTIFICATE, error.to_string()))?);
        }
        (Some(_), None) => return Err((TO_CERTIFICATE, format!("needs its key: set {TO_KEY} too"))),
        (None, Some(_)) => return Err((TO_KEY, format!("is of a certificate: set {TO_CERTIFICATE} too"))),
        (None, None) => {}
    }
    let options = options.ignore_unexpected_eof(values.switch(TO_IGNORE_EOF) == Some(true));
    let options = options.alpn(values.list(TO_ALPN).iter().map(|protocol| protocol.as_bytes().to_vec()));
    options.build().map(Some).map_err(|error| match error {
        Error::Pem { why, .. } => (TO, format!("{file}: {why}")),
        _ => (TO_NAME, error.to_string()),
    })
}

/// Returns the server of a pool or of a listener, and its certificates.
fn server(values: &Values, tickets: &Tickets) -> Result<Option<(Server, Vec<Certificate>)>, Wrong> {
    let (chains, keys) = (values.list(CERTIFICATE), values.list(KEY));
    if chains.is_empty() {
        let stray = SETTINGS.iter().map(|setting| setting.name).find(|name| values.has(name));
        return stray.map_or(Ok(None), |name| Err((name, format!("is for TLS: set {CERTIFICATE} and {KEY} too"))));
    }
    if chains.len() != keys.len() {
        let (certificates, keys) = (chains.len(), keys.len());
        return Err((KEY, format!("is needed once for each {CERTIFICATE}: certificates: {certificates}, keys: {keys}")));
    }
    let mut identities = Vec::new();
    for (chain, key) in chains.iter().zip(keys) {
        is_file(CERTIFICATE, chain)?;
        is_file(KEY, key)?;
        let identity = Identity::from_files(chain, key).map_err(|error| error.to_string());
        let setting = |why: &str| if why.starts_with(&format!("{key}: ")) { KEY } else { CERTIFICATE };
        identities.push(identity.map_err(|why| (setting(&why), why))?);
    }
    let certificates = chains.iter().zip(&identities).map(|(file, identity)| {
        let seconds = |at: Option<SystemTime>| Some(at?.duration_since(UNIX_EPOCH).ok()?.as_secs());
        Certificate { file: file.clone(), expires: seconds(identity.expires()), begins: seconds(identity.begins()) }
    });
    let certificates = certificates.collect();
    let options = options(values, Server::new(identities), tickets)?;
    let server = options.build().map_err(|error| match error {
        // The certificates and keys have been read.
        Error::File { .. } => (KEY_LOG, error.to_string()),
        Error::Pem { why, .. } => (AUTHORITIES, format!("{}: {why}", values.text(AUTHORITIES).unwrap_or_default())),
        _ => (CERTIFICATE, error.to_string()),
    })?;
    Ok(Some((server, certificates)))
}

/// Tells one content of a pool's files, or why one cannot be read, from another.
pub(crate) fn content(sets: &[Values]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for file in files(sets).into_iter().filter(|file| file.is_file()) {
        file.hash(&mut hasher);
        match sockdrawer_tls::read_pem(&file) {
            Ok(bytes) => bytes.hash(&mut hasher),
            Err(error) => error.to_string().hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// Checks that a file that is read again later is a regular one: a pipe has nothing then, and to open one may wait for ever.
fn is_file(setting: &'static str, file: &str) -> Result<(), Wrong> {
    match std::fs::metadata(file) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => {
            Err((setting, format!("{file}: it is no regular file, and is read again while the program runs: name one that is")))
        }
        Err(error) => Err((setting, Error::unreadable(file, &error).to_string())),
    }
}

fn options(values: &Values, mut options: ServerOptions, tickets: &Tickets) -> Result<ServerOptions, Wrong> {
    if let Some(file) = values.text(AUTHORITIES) {
        is_file(AUTHORITIES, file)?;
        let pem = sockdrawer_tls::read_pem(Path::new(file)).map_err(|error| (AUTHORITIES, error.to_string()))?;
        let optional = values.text(CLIENTS) == Some("optional");
        options = options
            .client_authorities(&pem[..], if optional { ClientCertificates::Optional } else { ClientCertificates::Required });
    } else if values.has(CLIENTS) {
        return Err((CLIENTS, format!("is for {AUTHORITIES}, which is not set: set it too")));
    }
    if values.text(VERSION) == Some("1.3") {
        options = options.versions(Protocol::Tls13..=Protocol::Tls13);
    }
    if let Some(timeout) = values.time(TIMEOUT) {
        options = options.handshake_timeout(timeout);
    }
    let with_tickets = values.switch(TICKETS) != Some(false);
    let options = options.alpn(values.list(ALPN).iter().map(|protocol| protocol.as_bytes().to_vec()));
    let options = options.on_workers(values.switch(WORKERS) == Some(true)).tickets(with_tickets.then(|| tickets.clone()));
    let options = options.ignore_unexpected_eof(values.switch(IGNORE_EOF) == Some(true));
    Ok(options.key_log(values.text(KEY_LOG).map(PathBuf::from)))
}

/// Returns the files of certificates, keys and authorities, of a pool and of its listeners.
pub(crate) fn files(sets: &[Values]) -> Vec<PathBuf> {
    let of = |set: &Values| -> Vec<PathBuf> {
        let lists = [CERTIFICATE, KEY].into_iter().flat_map(|name| set.list(name));
        let single = [AUTHORITIES, TO, TO_CERTIFICATE, TO_KEY].into_iter().filter_map(|name| set.text(name));
        lists.map(String::as_str).chain(single).map(PathBuf::from).collect()
    };
    sets.iter().flat_map(of).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns why clients refuse one of these certificates today, in a line.
pub(crate) fn refused_now(certificates: &[Certificate]) -> Option<String> {
    let now = now();
    let why = |Certificate { file, expires, begins }: &Certificate| match (begins, expires) {
        (_, Some(expires)) if *expires < now => Some(format!("{file}: it has expired: clients would refuse it; renew it")),
        (Some(begins), _) if *begins > now => {
            Some(format!("{file}: it is not valid yet: clients would refuse it; wait, or set the clock of this machine right"))
        }
        _ => None,
    };
    certificates.iter().find_map(why)
}

/// Returns a line about a certificate that is not valid now, or will expire within two weeks.
pub(crate) fn expiring(certificates: &[Certificate]) -> Option<String> {
    const SOON: u64 = 14 * 24 * 60 * 60;
    if let Some(early) = certificates.iter().find(|one| one.begins.is_some_and(|begins| begins > now())) {
        let file = &early.file;
        return Some(format!(
            "the certificate in {file} is not valid yet: clients will refuse it; is the clock of this machine right?"
        ));
    }
    let first = certificates.iter().filter(|certificate| certificate.expires.is_some()).min_by_key(|one| one.expires)?;
    let expires = first.expires?;
    match expires.checked_sub(now()) {
        None => Some(format!("the certificate in {} has expired: clients will refuse it; renew it", first.file)),
        Some(left) if left < SOON => {
            let days = left / (24 * 60 * 60);
            Some(format!("the certificate in {} expires in {days} days: renew it", first.file))
        }
        Some(_) => None,
    }
}
