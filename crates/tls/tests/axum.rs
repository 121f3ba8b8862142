//! Async code under TLS, over real sockets: the example of axum, and handlers whose connections move to a new build.

#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../examples/axum_tls.rs"]
mod example;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sockdrawer::tasks::{Connection, Handler};
use sockdrawer::{Address, Behaviour, CannotRestore, CannotSave, Config, Drain, Model, Pool, Saved, Saver, State, Upgrade};
use sockdrawer_tls::{ClientCertificates, Identity, Server, ServerOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(30);

/// Makes an authority's certificate, and what makes others by it.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::new([]).expect("no names");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (parameters.self_signed(&key).expect("a certificate").pem(), Issuer::new(parameters, key))
}

/// Makes a certificate and its key, in PEM.
fn signed(by: &Issuer<'_, KeyPair>, name: &str) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let parameters = CertificateParams::new([name.to_owned()]).expect("a name");
    (parameters.signed_by(&key, by).expect("a certificate").pem(), key.serialize_pem())
}

/// Connects as a client of this certificate, if it has one.
fn client(at: SocketAddr, authority: &str, certificate: Option<(&str, &str)>) -> StreamOwned<ClientConnection, TcpStream> {
    let certificates = |pem: &str| vec![CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")];
    let mut roots = RootCertStore::empty();
    certificates(authority).into_iter().for_each(|root| roots.add(root).expect("an authority"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let builder = builder.with_root_certificates(roots);
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            builder.with_client_auth_cert(certificates(chain), key).expect("they go together")
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().expect("a name")).expect("a client");
    let stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    StreamOwned::new(connection, stream)
}

/// Returns what the app answers a client of this certificate, if it has one.
fn asked(at: SocketAddr, authority: &str, certificate: Option<(&str, &str)>) -> String {
    let mut stream = client(at, authority, certificate);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it stands");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an orderly end");
    answer.split_once("\r\n\r\n").expect("an answer").1.to_owned()
}

/// Makes a server for this name, and the certificate of its authority.
fn server() -> (String, ServerOptions) {
    let (root, issuer) = authority();
    let (chain, key) = signed(&issuer, "localhost");
    let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).expect("they go together");
    (root, Server::new([identity]).alpn(["http/1.1"]))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn at(pool: &Pool) -> SocketAddr {
    pool.addresses()[0].to_string().parse().expect("an address of TCP")
}

#[test]
fn a_handler_knows_what_was_agreed_on() {
    let ((root, tls), (clients, issuer)) = (server(), authority());
    let client = signed(&issuer, "a client");
    let tls = tls.client_authorities(clients, ClientCertificates::Optional).build().expect("a server");
    let pool = Pool::start(example::config(Behaviour::listener(), tls, "127.0.0.1:0")).expect("it starts");
    let (runtime, at) = (runtime(), at(&pool));
    let served = runtime.spawn(example::serve(pool.listener()));
    let agreed = "Tls13, TLS13_AES_256_GCM_SHA384, ALPN Some(\"http/1.1\"), server name Some(\"localhost\")";
    assert_eq!(asked(at, &root, None), format!("{agreed}, certificates sent: 0\n"));
    assert_eq!(asked(at, &root, Some((&client.0, &client.1))), format!("{agreed}, certificates sent: 1\n"));
    pool.shutdown(Drain::within(PATIENCE));
    runtime.block_on(served).expect("no panic").expect("it never fails");
}

/// The listener stays, and so does the app that takes connections from it.
#[test]
fn a_certificate_changes_under_an_app() {
    let (listener, runtime) = (Behaviour::listener(), runtime());
    let [(root, tls), (other_root, other)] = [server(), server()];
    let config = example::config(listener.clone(), tls.build().expect("a server"), "127.0.0.1:0");
    let pool = Pool::start(config).expect("it starts");
    let served = runtime.spawn(example::serve(pool.listener()));
    assert!(asked(at(&pool), &root, None).starts_with("Tls13"));
    let other = other.build().expect("a server");
    pool.update(|config| config.behaviour(listener.clone().layered(other.clone()))).expect("it changes");
    // The old generation ends, and what it had of the queue with it.
    assert!(pool.wait(PATIENCE, |status| status.generations.len() == 1), "{:?}", pool.status());
    for _ in 0..3 {
        assert!(asked(at(&pool), &other_root, None).starts_with("Tls13"));
    }
    assert!(!served.is_finished());
    pool.shutdown(Drain::within(PATIENCE));
    runtime.block_on(served).expect("no panic").expect("it never fails");
}

/// Answers each byte by the number of its build and the count of bytes.
struct Counter(u8);

impl Handler for Counter {
    type State = u8;

    async fn serve(&self, mut connection: Connection, state: Option<u8>) -> Option<(Connection, u8)> {
        let (mut count, info) = (state.unwrap_or(0), connection.info().clone());
        loop {
            tokio::select! {
                byte = connection.read_u8() => {
                    byte.ok()?;
                    count += 1;
                    connection.write_all(&[self.0, count]).await.ok()?;
                }
                () = info.moving() => return Some((connection, count)),
            }
        }
    }

    fn state(&self) -> State {
        State::of("counter", 1)
    }

    fn save(&self, count: &u8, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64((*count).into());
        Ok(())
    }

    fn restore(&self, from: &mut Saved<'_>) -> Result<u8, CannotRestore> {
        Ok(from.u64()? as u8)
    }
}

#[test]
fn a_handlers_connection_moves_with_its_keys() {
    let path = std::env::temp_dir().join(format!("sockdrawer-handler-{}", std::process::id()));
    let (root, tls) = server();
    let tls = tls.build().expect("a server");
    let build = |number: u8, listen: Address| {
        let upgrade = Upgrade::at(&path).replaces("any").stand_by(Duration::ZERO).begin().expect("it begins");
        let behaviour = Behaviour::handler(Counter(number)).layered(tls.clone());
        let config = Config::accept(behaviour).model(Model::Tasks).loops(1).listen(listen);
        let pool = upgrade.start("counter", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        (upgrade, pool)
    };
    let (mut upgrade, mut pool) = build(1, Address::Tcp(([127, 0, 0, 1], 0).into()));
    let at = at(&pool);
    let mut client = client(at, &root, None);
    let mut count = 0;
    for number in 1..=6 {
        if number > 1 {
            let (next, new) = build(number, Address::Tcp(at));
            assert!(pool.join().is_ok(), "it was replaced");
            (upgrade, pool) = (next, new);
        }
        for _ in 0..10 {
            count += 1;
            client.write_all(b"x").expect("it stands");
            let mut answer = [0; 2];
            client.read_exact(&mut answer).expect("an answer");
            assert_eq!(answer, [number, count]);
        }
    }
    assert_eq!(pool.status().counts.moved_in, 5);
    drop(client);
    pool.shutdown(Drain::within(PATIENCE));
    drop(upgrade);
    let _ = std::fs::remove_file(path);
}
