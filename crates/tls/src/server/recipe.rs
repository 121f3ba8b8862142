//! From what another process of this program builds an equal server: models that run connections in processes of their own.

use super::{ClientCertificates, Server, ServerOptions};
use crate::{Identity, Protocol, Tickets};
use sockdrawer::{Behaviour, CannotRestore, Saved, Saver};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const NAME: &str = "tls";

/// The options, with the keys: secret, as are those of any recipe. An observer stays behind.
pub(super) fn write(options: &ServerOptions) -> Vec<u8> {
    let mut to = Saver::default();
    to.u64(options.end.identities.len() as u64);
    for identity in &options.end.identities {
        to.bytes(&identity.pem.chain);
        to.bytes(&identity.pem.key);
    }
    for version in [Protocol::Tls12, Protocol::Tls13] {
        to.u64(options.versions.contains(&version).into());
    }
    to.u64(options.alpn.len() as u64);
    options.alpn.iter().for_each(|protocol| to.bytes(protocol));
    let clients = options.end.clients.as_ref();
    to.bytes(clients.map_or(&[], |(pem, _)| pem));
    to.u64(clients.is_some_and(|(_, certificates)| *certificates == ClientCertificates::Required).into());
    to.bytes(options.end.tickets.as_ref().map(Tickets::export).as_ref().map_or(&[], |keys| keys));
    to.u64(u64::try_from(options.handshake_timeout.as_millis()).unwrap_or(u64::MAX));
    to.u64(options.on_workers.into());
    to.bytes(options.key_log.as_ref().map_or(&[], |path| path.as_os_str().as_bytes()));
    to.written().to_vec()
}

fn read(options: &[u8]) -> Result<ServerOptions, Box<dyn std::error::Error + Send + Sync>> {
    let mut from = Saved::new(options);
    let mut identities = Vec::new();
    for _ in 0..from.u64()? {
        identities.push(Identity::from_pem(from.bytes()?, from.bytes()?)?);
    }
    let versions = match (from.u64()?, from.u64()?) {
        (0, _) => Protocol::Tls13..=Protocol::Tls13,
        (_, 0) => Protocol::Tls12..=Protocol::Tls12,
        _ => Protocol::Tls12..=Protocol::Tls13,
    };
    let alpn: Result<Vec<Vec<u8>>, CannotRestore> = (0..from.u64()?).map(|_| from.bytes().map(<[u8]>::to_vec)).collect();
    let (authorities, is_required) = (from.bytes()?.to_vec(), from.u64()? != 0);
    let certificates = if is_required { ClientCertificates::Required } else { ClientCertificates::Optional };
    let (tickets, timeout, on_workers, key_log) = (from.bytes()?, from.u64()?, from.u64()? != 0, from.bytes()?);
    let mut options = Server::new(identities).versions(versions).alpn(alpn?).tickets(Tickets::import(tickets));
    options = options.handshake_timeout(Duration::from_millis(timeout)).on_workers(on_workers);
    if !authorities.is_empty() {
        options = options.client_authorities(authorities, certificates);
    }
    let key_log = (!key_log.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(key_log.to_vec())));
    Ok(options.key_log(key_log))
}

/// Puts a [`Server`] that another process of this program described around a behaviour: what `sockdrawer::layers` is given under the name `tls`.
///
/// # Errors
/// When `options` are not those of a server of this version, or it cannot be built.
pub(crate) fn build(behaviour: Behaviour, options: &[u8]) -> Result<Behaviour, Box<dyn std::error::Error + Send + Sync>> {
    Ok(behaviour.layered(read(options)?.build()?))
}
