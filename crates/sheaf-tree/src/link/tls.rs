//! TLS 1.3 with certificates on both sides, as a state machine: bytes of the application in,
//! records out, and back. It reads and writes nothing but through what it is handed.
use super::Credentials;
use super::credentials::node_name;
use bytes::BytesMut;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;

/// Sealed bytes that wait in a connection at most (and a record more).
const SEALED_BYTES_MAX: usize = 512 << 10;

/// What a node needs to speak TLS with others of its session.
#[derive(Clone)]
pub struct Keys {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Keys {
    /// From a node's credentials.
    ///
    /// # Errors
    /// When they make no sense.
    pub fn new(credentials: &Credentials) -> io::Result<Self> {
        let ca = CertificateDer::from(credentials.ca_der.clone());
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone()).map_err(io::Error::other)?;
        let roots = Arc::new(roots);
        let provider = Arc::new(provider());
        let chain = || vec![CertificateDer::from(credentials.cert_der.clone()), ca.clone()];
        let key = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(credentials.key_der.clone()));

        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain(), key())
            .map_err(io::Error::other)?;
        // A session's links are made once each: nothing is worth remembering.
        client.resumption = Resumption::disabled();
        client.enable_sni = false;

        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(io::Error::other)?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain(), key())
            .map_err(io::Error::other)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The connecting end of a connection to the node `rank`.
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn connect(&self, rank: u32) -> io::Result<Tls> {
        let name = ServerName::try_from(node_name(rank)).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(&self.client), name);
        Ok(Tls::new(connection.map_err(io::Error::other)?.into()))
    }

    /// The listening end.
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn accept(&self) -> io::Result<Tls> {
        let connection = ServerConnection::new(Arc::clone(&self.server));
        Ok(Tls::new(connection.map_err(io::Error::other)?.into()))
    }
}

/// One key exchange, and the two ciphers that every machine does well.
fn provider() -> CryptoProvider {
    use ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256};
    CryptoProvider {
        cipher_suites: vec![TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    }
}

/// One end of a connection.
pub struct Tls {
    connection: Connection,
}

impl Tls {
    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SEALED_BYTES_MAX));
        Self { connection }
    }

    /// Whether the ends do not know each other yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the peer's certificate is that of the node `rank`.
    #[must_use]
    pub fn peer_is(&self, rank: u32) -> bool {
        let Some(certificate) = self.connection.peer_certificates().and_then(<[_]>::first) else {
            return false;
        };
        let (Ok(parsed), Ok(name)) =
            (ParsedCertificate::try_from(certificate), ServerName::try_from(node_name(rank)))
        else {
            return false;
        };
        verify_server_name(&parsed, &name).is_ok()
    }

    /// Whether sealed bytes wait to be sent.
    #[must_use]
    pub fn has_sealed(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes sealed bytes; returns how many.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn send(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        self.connection.write_tls(to)
    }

    /// Seals bytes of the application; returns how many it took.
    ///
    /// # Errors
    /// When the connection is over.
    pub fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(pieces)
    }

    /// Takes in sealed bytes and appends what they hold to `into`.
    ///
    /// # Errors
    /// When they are not what the peer sealed, or the peer has ended the connection.
    pub fn open(&mut self, mut sealed: &[u8], into: &mut BytesMut) -> io::Result<()> {
        while !sealed.is_empty() {
            if self.connection.read_tls(&mut sealed)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.connection.process_new_packets().map_err(io::Error::other)?;
            self.opened(into)?;
        }
        Ok(())
    }

    /// Appends what has been opened and not been taken yet to `into`.
    ///
    /// # Errors
    /// None but those of a bug in the library.
    pub fn opened(&mut self, into: &mut BytesMut) -> io::Result<()> {
        let mut reader = self.connection.reader();
        loop {
            let count = match reader.fill_buf() {
                Ok(piece) => {
                    into.extend_from_slice(piece);
                    piece.len()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            if count == 0 {
                return Ok(());
            }
            reader.consume(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Authority;

    /// Carries what one end has to say to the other.
    fn carry(from: &mut Tls, to: &mut Tls, into: &mut BytesMut) -> io::Result<()> {
        let mut wire = Vec::new();
        while from.has_sealed() {
            from.send(&mut wire)?;
        }
        to.open(&wire, into)
    }

    fn shake(one: &mut Tls, other: &mut Tls) -> io::Result<()> {
        const FLIGHTS_MAX: usize = 8;
        let mut nothing = BytesMut::new();
        for _ in 0..FLIGHTS_MAX {
            carry(one, other, &mut nothing)?;
            carry(other, one, &mut nothing)?;
        }
        assert!(nothing.is_empty());
        Ok(())
    }

    #[test]
    fn both_ends_know_who_the_other_is_and_bytes_come_out_as_they_went_in() {
        let authority = Authority::new().unwrap();
        let (child, parent) = (authority.issue(9).unwrap(), authority.issue(2).unwrap());
        let mut one = Keys::new(&child).unwrap().connect(2).unwrap();
        let mut other = Keys::new(&parent).unwrap().accept().unwrap();
        shake(&mut one, &mut other).unwrap();
        assert!(!one.is_handshaking() && !other.is_handshaking());
        assert!(one.peer_is(2) && other.peer_is(9) && !other.peer_is(90) && !other.peer_is(2));

        let content: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
        let (mut sent, mut got) = (0, BytesMut::new());
        while sent < content.len() {
            let (a, b) = content[sent..].split_at((content.len() - sent) / 3);
            sent += one.seal(&[IoSlice::new(a), IoSlice::new(b)]).unwrap();
            carry(&mut one, &mut other, &mut got).unwrap();
        }
        assert_eq!(&got[..], &content[..]);
    }

    #[test]
    fn another_session_and_another_node_are_refused() {
        let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
        let keys = |authority: &Authority, rank| Keys::new(&authority.issue(rank).unwrap()).unwrap();
        let mut one = keys(&theirs, 9).connect(2).unwrap();
        let mut other = keys(&ours, 2).accept().unwrap();
        assert!(shake(&mut one, &mut other).is_err(), "a stranger listens");
        let mut one = keys(&ours, 9).connect(2).unwrap();
        let mut other = keys(&ours, 3).accept().unwrap();
        assert!(shake(&mut one, &mut other).is_err(), "another node listens");
    }
}
