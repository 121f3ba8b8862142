//! The seam to rustls: its handshake, until the keys of the connection are known. No other file names rustls's connections, so that another
//! version of rustls, whose unbuffered API differs, changes this file.

mod capture;
mod explain;
pub(crate) mod trusted;

pub(crate) use capture::{KeyCapture, tell_server_name};

use crate::record::{Aead, Cipher, Direction, Version};
use crate::session::{End, Session, TakesTickets};
use crate::{Handshake, HandshakeKind, Protocol};
use capture::Captured;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedConnectionCommon, UnbufferedStatus};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion, ServerConfig, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use sockdrawer::layer::Refused;
use sockdrawer::{Input, Output};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

/// The first byte of a record, its type.
const KINDS: RangeInclusive<u8> = 20..=23;

/// A connection that is not established yet.
pub(crate) struct Pending {
    connection: Connection,
    captured: Captured,
    /// Number of wire bytes that were offered to rustls, whole records: what follows the handshake is not rustls's.
    offered: usize,
}

enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// Result of one call of rustls.
enum Turn {
    /// The handshake goes on at once.
    Again,
    /// The handshake needs another record.
    Blocked,
    Done,
}

impl Pending {
    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Pending, Refused> {
        let connection = UnbufferedServerConnection::new(config).map_err(|error| explain::refused(&error))?;
        Ok(Pending { connection: Connection::Server(connection), captured: Captured::default(), offered: 0 })
    }

    pub(crate) fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Pending, Refused> {
        let connection = UnbufferedClientConnection::new(config, name).map_err(|error| explain::refused(&error))?;
        Ok(Pending { connection: Connection::Client(connection), captured: Captured::default(), offered: 0 })
    }

    /// Goes on with the handshake as far as the wire bytes allow. Returns whether it is complete. After an error, `back` has the alert.
    pub(crate) fn advance(&mut self, wire: &mut Input<'_>, back: &mut Output) -> Result<bool, Refused> {
        loop {
            match self.turn(wire, back) {
                Ok(Turn::Done) => return Ok(true),
                Ok(Turn::Again) => {}
                Ok(Turn::Blocked) if self.offer_record(wire.bytes()) => {}
                Ok(Turn::Blocked) => return Ok(false),
                Err(error) => {
                    // It has an alert to say, and looks at no more bytes until that is said. Then it would: it panics where it failed before.
                    while self.wants_write() && self.turn(wire, back).is_ok() {}
                    return Err(explain::refused(&error));
                }
            }
        }
    }

    /// Offers rustls one more record, if that is whole.
    fn offer_record(&mut self, wire: &[u8]) -> bool {
        let whole = next_record(&wire[self.offered..]);
        self.offered += whole.unwrap_or_default();
        whole.is_some()
    }

    fn turn(&mut self, wire: &mut Input<'_>, back: &mut Output) -> Result<Turn, rustls::Error> {
        let offered = &mut wire.bytes_mut()[..self.offered];
        self.captured.listen();
        let (taken, turn) = match &mut self.connection {
            Connection::Server(connection) => act(connection.process_tls_records(offered), back),
            Connection::Client(connection) => act(connection.process_tls_records(offered), back),
        };
        self.captured.take();
        wire.take(taken);
        self.offered -= taken;
        Ok(match turn? {
            // Half a round trip earlier a server could send, but may not receive yet.
            Turn::Done if self.is_handshaking() => Turn::Blocked,
            turn => turn,
        })
    }

    fn wants_write(&self) -> bool {
        match &self.connection {
            Connection::Server(connection) => connection.wants_write(),
            Connection::Client(connection) => connection.wants_write(),
        }
    }

    fn is_handshaking(&self) -> bool {
        match &self.connection {
            Connection::Server(connection) => connection.is_handshaking(),
            Connection::Client(connection) => connection.is_handshaking(),
        }
    }

    /// Returns the established connection, and what was agreed on.
    pub(crate) fn finish(self) -> Result<(Session, Handshake), Refused> {
        let refused = |error| explain::refused(&error);
        match self.connection {
            Connection::Server(connection) => {
                let handshake = agreed(&connection, self.captured.server_name.clone());
                let suite = connection.negotiated_cipher_suite();
                let (secrets, _) = connection.dangerous_into_kernel_connection().map_err(refused)?;
                let session = session(suite, secrets, &self.captured, End::Server, None)?;
                Ok((session, handshake))
            }
            Connection::Client(connection) => {
                let handshake = agreed(&connection, None);
                let suite = connection.negotiated_cipher_suite();
                let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(refused)?;
                let tickets =
                    (handshake.protocol == Protocol::Tls13).then(|| Box::new(TicketTaker(kernel)) as Box<dyn TakesTickets>);
                let session = session(suite, secrets, &self.captured, End::Client, tickets)?;
                Ok((session, handshake))
            }
        }
    }
}

/// Returns the length of the first record, if that is whole. What is no record is offered to rustls as it is, which says what is wrong with it.
pub(crate) fn next_record(wire: &[u8]) -> Option<usize> {
    let [kind, _, _, high, low] = wire.first_chunk::<5>()?;
    let length = 5 + usize::from(u16::from_be_bytes([*high, *low]));
    let is_record = KINDS.contains(kind) && length <= 5 + (1 << 14) + 2048;
    if is_record { (wire.len() >= length).then_some(length) } else { Some(wire.len()) }
}

/// Returns whether these bytes, too few for a record's header, cannot become one: a peer that says `ping` would wait for its answer.
pub(crate) fn is_no_record(wire: &[u8]) -> bool {
    wire.len() < crate::record::HEADER && wire.first().is_some_and(|kind| !KINDS.contains(kind))
}

/// Does what rustls asks for in one state. Returns how many bytes it has taken, after an error too.
fn act<Data>(status: UnbufferedStatus<'_, '_, Data>, back: &mut Output) -> (usize, Result<Turn, rustls::Error>) {
    let UnbufferedStatus { discard, state, .. } = status;
    (discard, state.and_then(|state| act_in(state, back)))
}

fn act_in<Data>(state: ConnectionState<'_, '_, Data>, back: &mut Output) -> Result<Turn, rustls::Error> {
    Ok(match state {
        ConnectionState::EncodeTlsData(mut data) => {
            if let Err(rustls::unbuffered::EncodeError::InsufficientSize(needed)) = data.encode(&mut []) {
                let mut record = vec![0; needed.required_size];
                data.encode(&mut record).map_err(|error| rustls::Error::General(error.to_string()))?;
                back.push(&record);
            }
            Turn::Again
        }
        ConnectionState::TransmitTlsData(sent) => {
            sent.done();
            Turn::Again
        }
        ConnectionState::BlockedHandshake => Turn::Blocked,
        ConnectionState::WriteTraffic(_) => Turn::Done,
        // It was offered no record beyond the handshake, so the peer sent what it may not send yet.
        _ => return Err(rustls::PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into()),
    })
}

fn agreed<Data>(connection: &UnbufferedConnectionCommon<Data>, server_name: Option<String>) -> Handshake {
    let is_13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    let kind = match connection.handshake_kind() {
        Some(rustls::HandshakeKind::Resumed) => HandshakeKind::Resumed,
        _ => HandshakeKind::Full,
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite())).unwrap_or_default();
    let certificates = connection.peer_certificates().unwrap_or_default();
    Handshake {
        protocol: if is_13 { Protocol::Tls13 } else { Protocol::Tls12 },
        kind,
        suite,
        server_name,
        alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
        peer_certificates: certificates.iter().map(|certificate| certificate.to_vec()).collect(),
    }
}

fn session(
    suite: Option<SupportedCipherSuite>,
    secrets: ExtractedSecrets,
    captured: &Captured,
    end: End,
    tickets: Option<Box<dyn TakesTickets>>,
) -> Result<Session, Refused> {
    let version = match suite {
        Some(SupportedCipherSuite::Tls13(_)) => Version::Tls13,
        Some(SupportedCipherSuite::Tls12(_)) => Version::Tls12,
        None => return Err(Refused::because("a TLS handshake without a cipher suite")),
    };
    let (client, server) = match version {
        Version::Tls13 => captured.both().ok_or_else(|| Refused::because("a TLS handshake without traffic secrets"))?,
        Version::Tls12 => (&[][..], &[][..]),
    };
    let (mine, theirs) = if end == End::Client { (client, server) } else { (server, client) };
    let (aead, sends) = direction(secrets.tx, mine)?;
    let (_, receives) = direction(secrets.rx, theirs)?;
    Ok(Session::new(Cipher { version, aead }, end, sends, receives, tickets))
}

fn direction((sequence, secrets): (u64, ConnectionTrafficSecrets), secret: &[u8]) -> Result<(Aead, Direction), Refused> {
    let (aead, key, iv) = match &secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Aead::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Aead::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Aead::Chacha20Poly1305, key, iv),
        _ => return Err(Refused::because("a TLS cipher suite that the record layer does not know")),
    };
    let iv = iv.as_ref().try_into().map_err(|_| Refused::because("a TLS cipher suite with another length of nonces"))?;
    Ok((aead, Direction::new(key.as_ref(), iv, secret, sequence)))
}

/// Gives a client's tickets to rustls, which resumes by them.
struct TicketTaker(KernelConnection<ClientConnectionData>);

impl TakesTickets for TicketTaker {
    fn take(&mut self, ticket: &[u8]) -> Result<(), Refused> {
        self.0.handle_new_session_ticket(ticket).map_err(|error| explain::refused(&error))
    }
}

impl std::fmt::Debug for TicketTaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketTaker")
    }
}

/// Returns the cryptography that TLS uses: ring.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    #[cfg(test)]
    if let Some(only) = crate::tests::provider_of_one_suite() {
        return only;
    }
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// Returns the versions of a range.
pub(crate) fn versions(range: &RangeInclusive<Protocol>) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
    let from = if range.contains(&Protocol::Tls13) { 0 } else { 1 };
    let to = if range.contains(&Protocol::Tls12) { 2 } else { 1 };
    ALL.get(from..to).unwrap_or_default()
}
