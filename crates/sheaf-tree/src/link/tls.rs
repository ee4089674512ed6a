//! TLS 1.3 with certificates on both sides, as a state machine: bytes of the application in,
//! records out, and back. It reads and writes nothing but through what it is handed.
use super::Credentials;
use super::credentials::node_name;
use super::records::Records;
use bytes::{Buf, BytesMut};
use rustls::client::UnbufferedClientConnection;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io::{self, IoSlice, Write};
use std::sync::{Arc, OnceLock};

/// Bytes sealed for one write, at most: they are still in the cache when the kernel copies them.
const SEAL_BYTES: usize = 128 << 10;

/// What a node needs to speak TLS with others of its session. Each side is made when it is first used:
/// most nodes only connect.
#[derive(Clone)]
pub struct Keys(Arc<Sides>);

struct Sides {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    own: Arc<SingleCertAndKey>,
    client: OnceLock<Arc<ClientConfig>>,
    server: OnceLock<Arc<ServerConfig>>,
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
        let provider = provider();
        let chain = vec![CertificateDer::from(credentials.cert_der.clone()), ca];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(credentials.key_der.clone()));
        let own = CertifiedKey::from_der(chain, key, &provider).map_err(io::Error::other)?;
        Ok(Self(Arc::new(Sides {
            provider: Arc::new(provider),
            roots: Arc::new(roots),
            own: Arc::new(SingleCertAndKey::from(own)),
            client: OnceLock::new(),
            server: OnceLock::new(),
        })))
    }

    /// The connecting end of a connection to the node `rank`.
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn connect(&self, rank: u32) -> io::Result<Tls> {
        let name = ServerName::try_from(node_name(rank)).map_err(io::Error::other)?;
        let config = once(&self.0.client, || self.0.client())?;
        let end = UnbufferedClientConnection::new(config, name);
        Tls::new(State::Calling(Box::new(end.map_err(io::Error::other)?)))
    }

    /// The listening end.
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn accept(&self) -> io::Result<Tls> {
        let config = once(&self.0.server, || self.0.server())?;
        let end = UnbufferedServerConnection::new(config);
        Tls::new(State::Called(Box::new(end.map_err(io::Error::other)?)))
    }
}

impl Sides {
    fn client(&self) -> Result<ClientConfig, rustls::Error> {
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_cert_resolver(Arc::clone(&self.own) as _);
        // A session's links are made once each: nothing is worth remembering.
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        client.enable_secret_extraction = true;
        Ok(client)
    }

    fn server(&self) -> Result<ServerConfig, rustls::Error> {
        let (roots, provider) = (Arc::clone(&self.roots), Arc::clone(&self.provider));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::clone(&self.own) as _);
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.enable_secret_extraction = true;
        Ok(server)
    }
}

fn once<T>(place: &OnceLock<Arc<T>>, make: impl FnOnce() -> Result<T, rustls::Error>) -> io::Result<Arc<T>> {
    if let Some(made) = place.get() {
        return Ok(Arc::clone(made));
    }
    let made = Arc::new(make().map_err(io::Error::other)?);
    Ok(Arc::clone(place.get_or_init(|| made)))
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
    state: State,
    /// The peer's certificate, once the ends know each other.
    peer: Option<CertificateDer<'static>>,
    /// Sealed, to be sent from `sent` on.
    waiting: Vec<u8>,
    sent: usize,
    /// What has come and is not a whole message.
    unread: BytesMut,
}

enum State {
    Calling(Box<UnbufferedClientConnection>),
    Called(Box<UnbufferedServerConnection>),
    /// The ends know each other.
    Open(Box<Records>),
    /// The handshake has failed.
    Over,
}

impl Tls {
    fn new(state: State) -> io::Result<Self> {
        let (waiting, unread) = (Vec::new(), BytesMut::new());
        let mut tls = Self { state, peer: None, waiting, sent: 0, unread };
        // Who calls has something to say at once.
        tls.shake(&mut BytesMut::new())?;
        Ok(tls)
    }

    /// Whether the ends do not know each other yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        !matches!(self.state, State::Open(_))
    }

    /// Whether the peer's certificate is that of the node `rank`.
    #[must_use]
    pub fn peer_is(&self, rank: u32) -> bool {
        let Some(certificate) = &self.peer else { return false };
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
        self.sent < self.waiting.len()
    }

    /// Writes sealed bytes; returns how many.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn send(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        let count = to.write(&self.waiting[self.sent..])?;
        self.sent += count;
        if !self.has_sealed() {
            self.waiting.clear();
            self.sent = 0;
        }
        Ok(count)
    }

    /// Seals bytes of the application, as many as are worth a write; returns how many it took.
    ///
    /// # Errors
    /// When the ends do not know each other.
    pub fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let State::Open(records) = &mut self.state else { return Err(io::ErrorKind::NotConnected.into()) };
        records.seal(pieces, SEAL_BYTES, &mut self.waiting)
    }

    /// Seals into `room` from here on, which the cache still has, until it is given back.
    pub(crate) fn take_room(&mut self, room: &mut Vec<u8>) {
        if self.waiting.capacity() == 0 {
            self.waiting = std::mem::take(room);
        }
    }

    /// Gives back what it has sealed into, once that has been sent.
    pub(crate) fn give_room(&mut self, room: &mut Vec<u8>) {
        if self.waiting.capacity() > 0 && !self.has_sealed() {
            *room = std::mem::take(&mut self.waiting);
        }
    }

    /// Takes in sealed bytes and appends what they hold to `into`.
    ///
    /// # Errors
    /// When they are not what the peer sealed, or the peer has ended the connection.
    pub fn open(&mut self, sealed: &[u8], into: &mut BytesMut) -> io::Result<()> {
        self.unread.extend_from_slice(sealed);
        if !matches!(self.state, State::Open(_)) {
            self.shake(into)?;
        }
        if matches!(self.state, State::Open(_)) && !self.unread.is_empty() {
            let sealed = self.unread.split();
            into.extend_from_slice(&sealed);
            let rest = self.open_in_place(into, sealed.len())?;
            self.unread = into.split_off(into.len() - rest);
        }
        Ok(())
    }

    /// Opens what is whole among the last `sealed` of `bytes`; what it holds takes its place. Returns how
    /// many bytes at the end are still sealed.
    ///
    /// # Errors
    /// When they are not what the peer sealed, or the peer has ended the connection.
    pub(crate) fn open_in_place(&mut self, bytes: &mut BytesMut, sealed: usize) -> io::Result<usize> {
        match &mut self.state {
            State::Open(records) => records.open(bytes, sealed),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// What has come of a record whose rest has not.
    pub(crate) fn take_unread(&mut self) -> BytesMut {
        std::mem::take(&mut self.unread)
    }

    /// Goes on with the handshake, as far as what has come allows.
    fn shake(&mut self, into: &mut BytesMut) -> io::Result<()> {
        loop {
            let (waiting, unread) = (&mut self.waiting, &mut self.unread);
            let (discard, next) = match &mut self.state {
                State::Calling(end) => step(end.process_tls_records(unread), waiting, into),
                State::Called(end) => step(end.process_tls_records(unread), waiting, into),
                State::Open(_) => return Ok(()),
                State::Over => return Err(io::ErrorKind::NotConnected.into()),
            };
            self.unread.advance(discard);
            match next {
                Ok(Next::Step) => {}
                Ok(Next::Wait) => return Ok(()),
                Ok(Next::Open) => return self.get_to_know(),
                Err(error) => {
                    self.say_why();
                    self.state = State::Over;
                    return Err(error);
                }
            }
        }
    }

    /// The handshake is over: keeps the keys and who the peer is.
    fn get_to_know(&mut self) -> io::Result<()> {
        let peer = |certificates: Option<&[CertificateDer<'static>]>| certificates?.first().cloned();
        let records = match std::mem::replace(&mut self.state, State::Over) {
            State::Calling(end) => {
                self.peer = peer(end.peer_certificates());
                let (secrets, later) = end.dangerous_into_kernel_connection().map_err(io::Error::other)?;
                Records::new(secrets, later).map(Box::new)
            }
            State::Called(end) => {
                self.peer = peer(end.peer_certificates());
                let (secrets, later) = end.dangerous_into_kernel_connection().map_err(io::Error::other)?;
                Records::new(secrets, later).map(Box::new)
            }
            State::Open(records) => Ok(records),
            State::Over => Err(io::ErrorKind::NotConnected.into()),
        };
        self.state = State::Open(records?);
        Ok(())
    }

    /// Leaves for the peer why the handshake has failed.
    fn say_why(&mut self) {
        let (waiting, nothing) = (&mut self.waiting, &mut BytesMut::new());
        let _ = match &mut self.state {
            State::Calling(end) => step(end.process_tls_records(&mut []), waiting, nothing),
            State::Called(end) => step(end.process_tls_records(&mut []), waiting, nothing),
            State::Open(_) | State::Over => return,
        };
    }
}

/// What a handshake wants next.
enum Next {
    Step,
    Wait,
    Open,
}

/// Does what the library asks for; returns also how much of what has come it wants no more.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    waiting: &mut Vec<u8>,
    into: &mut BytesMut,
) -> (usize, io::Result<Next>) {
    let mut discard = status.discard;
    let next = match status.state {
        Ok(ConnectionState::EncodeTlsData(mut message)) => encode(&mut message, waiting),
        Ok(ConnectionState::TransmitTlsData(message)) => {
            // It waits, and is sent before all that follows.
            message.done();
            Ok(Next::Step)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Next::Wait),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Next::Open),
        Ok(ConnectionState::ReadTraffic(mut records)) => loop {
            match records.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    into.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Err(io::Error::other(error)),
                None => break Ok(Next::Step),
            }
        },
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(io::Error::other(error)),
    };
    (discard, next)
}

fn encode<Data>(message: &mut EncodeTlsData<'_, Data>, waiting: &mut Vec<u8>) -> io::Result<Next> {
    let start = waiting.len();
    if let Err(EncodeError::InsufficientSize(too_small)) = message.encode(&mut []) {
        waiting.resize(start + too_small.required_size, 0);
        message.encode(&mut waiting[start..]).map_err(io::Error::other)?;
    }
    Ok(Next::Step)
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

    #[test]
    fn keys_change_under_way_in_both_directions() {
        let authority = Authority::new().unwrap();
        let (child, parent) = (authority.issue(9).unwrap(), authority.issue(2).unwrap());
        let mut one = Keys::new(&child).unwrap().connect(2).unwrap();
        let mut other = Keys::new(&parent).unwrap().accept().unwrap();
        shake(&mut one, &mut other).unwrap();
        for tls in [&mut one, &mut other] {
            let State::Open(records) = &mut tls.state else { panic!("they know each other") };
            records.set_records_per_key(3);
        }
        for round in 0..20u8 {
            let content = vec![round; 50_000];
            for _ in 0..2 {
                assert_eq!(one.seal(&[IoSlice::new(&content)]).unwrap(), content.len());
                let mut got = BytesMut::new();
                carry(&mut one, &mut other, &mut got).unwrap();
                assert_eq!(got, content);
                std::mem::swap(&mut one, &mut other);
            }
        }
    }

    #[test]
    fn what_was_changed_or_comes_twice_is_refused_and_bytes_one_by_one_are_taken() {
        let authority = Authority::new().unwrap();
        let (child, parent) = (authority.issue(9).unwrap(), authority.issue(2).unwrap());
        let mut one = Keys::new(&child).unwrap().connect(2).unwrap();
        let mut other = Keys::new(&parent).unwrap().accept().unwrap();
        shake(&mut one, &mut other).unwrap();
        let mut sealed = |content: &[u8]| {
            one.seal(&[IoSlice::new(content)]).unwrap();
            let mut wire = Vec::new();
            while one.has_sealed() {
                one.send(&mut wire).unwrap();
            }
            wire
        };
        let mut got = BytesMut::new();
        let first = sealed(b"first");
        for byte in &first {
            other.open(std::slice::from_ref(byte), &mut got).unwrap();
        }
        assert_eq!(&got[..], b"first");
        let mut second = sealed(b"second");
        second[7] ^= 1;
        assert!(other.open(&second, &mut got).is_err());
        assert!(other.open(&first, &mut got).is_err(), "it comes again");
        assert_eq!(&got[..], b"first", "nothing sealed is taken for content");
    }
}
