//! Recipe from which another process of this program builds an equal end of TLS: models that run connections in processes of their own.

use crate::{Client, ClientCertificates, ClientOptions, Identity, Options, Protocol, Server, ServerOptions, Tickets, Trust};
use sockdrawer::{Behaviour, CannotRestore, Saved, Saver};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const NAME: &str = "tls";

/// The first number of a recipe: the end that it is of.
const SERVER: u64 = 0;
const CLIENT: u64 = 1;

type Wrong = Box<dyn std::error::Error + Send + Sync>;

/// Returns the options, with the keys: secret, as are those of any recipe. An observer stays behind.
pub(crate) fn of_server(options: &ServerOptions) -> Vec<u8> {
    let mut to = Saver::default();
    to.u64(SERVER);
    write_identities(&options.end.identities, &mut to);
    let clients = options.end.clients.as_ref();
    to.bytes(clients.map_or(&[], |(pem, _)| pem));
    to.u64(clients.is_some_and(|(_, certificates)| *certificates == ClientCertificates::Required).into());
    to.bytes(options.end.tickets.as_ref().map(Tickets::export).as_ref().map_or(&[], |keys| keys));
    write_common(options, &mut to);
    to.written().to_vec()
}

/// Returns the options of a client, with the keys: secret. Tickets are each process's own.
pub(crate) fn of_client(options: &ClientOptions) -> Vec<u8> {
    let mut to = Saver::default();
    to.u64(CLIENT);
    write_identities(options.end.identity.as_slice(), &mut to);
    let authorities = match &options.end.trust {
        Trust::Authorities(pem) => Some(pem),
        Trust::Anybody => None,
    };
    to.u64(authorities.is_some().into());
    to.bytes(authorities.map_or(&[], |pem| pem));
    to.bytes(options.end.name.as_deref().unwrap_or_default().as_bytes());
    to.u64(options.end.resumes.into());
    write_common(options, &mut to);
    to.written().to_vec()
}

fn write_identities(identities: &[Identity], to: &mut Saver) {
    to.u64(identities.len() as u64);
    for identity in identities {
        to.bytes(&identity.pem.chain);
        to.bytes(&identity.pem.key);
    }
}

fn write_common<End>(options: &Options<End>, to: &mut Saver) {
    for version in [Protocol::Tls12, Protocol::Tls13] {
        to.u64(options.versions.contains(&version).into());
    }
    to.u64(options.alpn.len() as u64);
    options.alpn.iter().for_each(|protocol| to.bytes(protocol));
    to.u64(u64::try_from(options.handshake_timeout.as_millis()).unwrap_or(u64::MAX));
    to.u64(options.on_workers.into());
    to.u64(options.ignores_eof.into());
    to.bytes(options.key_log.as_ref().map_or(&[], |path| path.as_os_str().as_bytes()));
}

fn read_identities(from: &mut Saved<'_>) -> Result<Vec<Identity>, Wrong> {
    (0..from.u64()?).map(|_| Ok(Identity::from_pem(from.bytes()?, from.bytes()?)?)).collect()
}

fn read_common<End>(options: Options<End>, from: &mut Saved<'_>) -> Result<Options<End>, Wrong> {
    let versions = match (from.u64()?, from.u64()?) {
        (0, _) => Protocol::Tls13..=Protocol::Tls13,
        (_, 0) => Protocol::Tls12..=Protocol::Tls12,
        _ => Protocol::Tls12..=Protocol::Tls13,
    };
    let alpn: Result<Vec<Vec<u8>>, CannotRestore> = (0..from.u64()?).map(|_| from.bytes().map(<[u8]>::to_vec)).collect();
    let (timeout, on_workers, ignores_eof, key_log) = (from.u64()?, from.u64()? != 0, from.u64()? != 0, from.bytes()?);
    let key_log = (!key_log.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(key_log.to_vec())));
    let options = options.versions(versions).alpn(alpn?).handshake_timeout(Duration::from_millis(timeout));
    Ok(options.on_workers(on_workers).ignore_unexpected_eof(ignores_eof).key_log(key_log))
}

fn server(mut from: Saved<'_>) -> Result<Server, Wrong> {
    let identities = read_identities(&mut from)?;
    let (authorities, is_required) = (from.bytes()?.to_vec(), from.u64()? != 0);
    let certificates = if is_required { ClientCertificates::Required } else { ClientCertificates::Optional };
    let mut options = Server::new(identities).tickets(Tickets::import(from.bytes()?));
    if !authorities.is_empty() {
        options = options.client_authorities(authorities, certificates);
    }
    Ok(read_common(options, &mut from)?.build()?)
}

fn client(mut from: Saved<'_>) -> Result<Client, Wrong> {
    let identity = read_identities(&mut from)?.pop();
    let (has_authorities, pem) = (from.u64()? != 0, from.bytes()?.to_vec());
    let mut options = Client::new(if has_authorities { Trust::Authorities(pem) } else { Trust::Anybody });
    if let Some(identity) = identity {
        options = options.identity(identity);
    }
    let name = String::from_utf8_lossy(from.bytes()?).into_owned();
    if !name.is_empty() {
        options = options.name(name);
    }
    options = options.resumes(from.u64()? != 0);
    Ok(read_common(options, &mut from)?.build()?)
}

/// Puts an end of TLS that another process of this program described around a behaviour: what `sockdrawer::layers` is given under the name `tls`.
///
/// # Errors
/// When `options` are not those of an end of this version, or it cannot be built.
pub(crate) fn build(behaviour: Behaviour, options: &[u8]) -> Result<Behaviour, Wrong> {
    let mut from = Saved::new(options);
    match from.u64()? {
        SERVER => Ok(behaviour.layered(server(from)?)),
        CLIENT => Ok(behaviour.layered(client(from)?)),
        other => Err(format!("{other} is no end of TLS").into()),
    }
}
