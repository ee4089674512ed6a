//! TLS 1.3 with certificates on both sides, as a state machine: bytes of the application in,
//! records out, and back. It reads and writes nothing but through what it is handed.
use super::Credentials;
use super::credentials::node_name;
use bytes::BytesMut;
use rustls::client::UnbufferedClientConnection;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus, WriteTraffic};
use rustls::unbuffered::{EncodeError, EncodeTlsData, EncryptError};
use rustls::{ClientConfig, CommonState, RootCertStore, ServerConfig};
use std::io::{self, IoSlice, Write};
use std::sync::{Arc, OnceLock};

/// Bytes sealed for one write, at most: they are still in the cache when the kernel copies them.
const SEAL_BYTES: usize = 128 << 10;
/// What one record holds, at most.
const RECORD_BYTES: usize = 16 << 10;

/// What a node needs to speak TLS with others of its session. Each side is made when it is first
/// used: most nodes only connect.
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
        Tls::new(TlsEnd::Calling(Box::new(end.map_err(io::Error::other)?)))
    }

    /// The listening end.
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn accept(&self) -> io::Result<Tls> {
        let config = once(&self.0.server, || self.0.server())?;
        let end = UnbufferedServerConnection::new(config);
        Tls::new(TlsEnd::Called(Box::new(end.map_err(io::Error::other)?)))
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
        Ok(server)
    }
}

fn once<T>(
    place: &OnceLock<Arc<T>>,
    make: impl FnOnce() -> Result<T, rustls::Error>,
) -> io::Result<Arc<T>> {
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
    end: TlsEnd,
    sealed: Sealed,
    /// What has come of a record whose rest has not.
    unread: Vec<u8>,
}

enum TlsEnd {
    Calling(Box<UnbufferedClientConnection>),
    Called(Box<UnbufferedServerConnection>),
    /// Something was wrong: nothing else is believed.
    Over,
}

/// Sealed bytes that wait to be sent, in a room that keeps its length.
#[derive(Default)]
struct Sealed {
    room: Vec<u8>,
    from: usize,
    to: usize,
}

impl Tls {
    fn new(end: TlsEnd) -> io::Result<Self> {
        let mut tls = Self { end, sealed: Sealed::default(), unread: Vec::new() };
        // Who calls has something to say at once.
        tls.go_on(&mut [], &[], &mut BytesMut::new())?;
        Ok(tls)
    }

    fn state(&self) -> Option<&CommonState> {
        match &self.end {
            TlsEnd::Calling(end) => Some(end),
            TlsEnd::Called(end) => Some(end),
            TlsEnd::Over => None,
        }
    }

    /// Whether the ends do not know each other yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.state().is_none_or(CommonState::is_handshaking)
    }

    /// Whether the peer's certificate is that of the node `rank`.
    #[must_use]
    pub fn peer_is(&self, rank: u32) -> bool {
        let certificates = self.state().and_then(CommonState::peer_certificates);
        let Some(certificate) = certificates.and_then(<[_]>::first) else { return false };
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
        self.sealed.from < self.sealed.to
    }

    /// Writes sealed bytes; returns how many.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn send(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        let sealed = &mut self.sealed;
        let count = to.write(&sealed.room[sealed.from..sealed.to])?;
        sealed.from += count;
        if sealed.from == sealed.to {
            (sealed.from, sealed.to) = (0, 0);
        }
        Ok(count)
    }

    /// Seals bytes of the application, as many as are worth a write; returns how many it took.
    ///
    /// # Errors
    /// When the ends do not know each other.
    pub fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_handshaking() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut nothing = BytesMut::new();
        let taken = self.go_on_with_unread(pieces, &mut nothing)?;
        // What came was opened when it came.
        if nothing.is_empty() { Ok(taken) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Seals into `room` from here on, which the cache still has, until it is given back.
    pub(crate) fn take_room(&mut self, room: &mut Vec<u8>) {
        if self.sealed.room.is_empty() {
            self.sealed.room = std::mem::take(room);
        }
    }

    /// Gives back what it has sealed into, once that has been sent.
    pub(crate) fn give_room(&mut self, room: &mut Vec<u8>) {
        if !self.has_sealed() {
            let own = std::mem::take(&mut self.sealed.room);
            if own.len() > room.len() {
                *room = own;
            }
        }
    }

    /// Takes in sealed bytes and appends what they hold to `into`.
    ///
    /// # Errors
    /// When they are not what the peer sealed, or the peer has ended the connection.
    pub fn open(&mut self, sealed: &[u8], into: &mut BytesMut) -> io::Result<()> {
        self.unread.extend_from_slice(sealed);
        self.go_on_with_unread(&[], into).map(drop)
    }

    /// The same for bytes that `read` puts into what it is handed of `room`, which has to be longer
    /// than a record; returns how many they were.
    ///
    /// # Errors
    /// Those of [`Self::open`] and of `read`.
    pub(crate) fn open_from(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
        room: &mut [u8],
        into: &mut BytesMut,
    ) -> io::Result<usize> {
        let Some((begun, free)) = room.split_at_mut_checked(self.unread.len()) else {
            return Err(io::Error::other("a message without end"));
        };
        let count = read(free)?;
        begun.copy_from_slice(&self.unread);
        let come = begun.len() + count;
        let (done, _) = self.go_on(&mut room[..come], &[], into)?;
        self.unread.clear();
        self.unread.extend_from_slice(&room[done..come]);
        Ok(count)
    }

    fn go_on_with_unread(
        &mut self,
        pieces: &[IoSlice<'_>],
        into: &mut BytesMut,
    ) -> io::Result<usize> {
        let mut came = std::mem::take(&mut self.unread);
        let (done, taken) = self.go_on(&mut came, pieces, into)?;
        came.drain(..done);
        self.unread = came;
        Ok(taken)
    }

    /// Goes on as far as what has come allows, and seals `pieces`. Returns how much of what has
    /// come it wants no more, and how much it has sealed.
    fn go_on(
        &mut self,
        came: &mut [u8],
        pieces: &[IoSlice<'_>],
        into: &mut BytesMut,
    ) -> io::Result<(usize, usize)> {
        let mut done = 0;
        loop {
            let (count, next) = self.step(&mut came[done..], pieces, into)?;
            done += count;
            match next {
                Ok(Next::Step) => {}
                Ok(Next::Wait(taken)) => return Ok((done, taken)),
                Err(error) => {
                    // Leaves for the peer why, where the library says it; nothing else is taken
                    // from the peer.
                    let _ = self.step(&mut came[done..], &[], &mut BytesMut::new());
                    self.end = TlsEnd::Over;
                    return Err(error);
                }
            }
        }
    }

    fn step(
        &mut self,
        came: &mut [u8],
        pieces: &[IoSlice<'_>],
        into: &mut BytesMut,
    ) -> io::Result<(usize, io::Result<Next>)> {
        match &mut self.end {
            TlsEnd::Calling(end) => {
                Ok(step(end.process_tls_records(came), pieces, &mut self.sealed, into))
            }
            TlsEnd::Called(end) => {
                Ok(step(end.process_tls_records(came), pieces, &mut self.sealed, into))
            }
            TlsEnd::Over => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// What the library wants next.
enum Next {
    Step,
    /// Nothing until more has come; it has sealed so much.
    Wait(usize),
}

/// Does what the library asks for; returns also how much of what has come it wants no more.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    pieces: &[IoSlice<'_>],
    sealed: &mut Sealed,
    into: &mut BytesMut,
) -> (usize, io::Result<Next>) {
    let mut discard = status.discard;
    let next = match status.state {
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            sealed.encode(&mut message).map(|()| Next::Step)
        }
        Ok(ConnectionState::TransmitTlsData(message)) => {
            // It waits, and is sent before all that follows.
            message.done();
            Ok(Next::Step)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Next::Wait(0)),
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            sealed.seal(&mut traffic, pieces).map(Next::Wait)
        }
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
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
        Ok(_) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(io::Error::other(error)),
    };
    (discard, next)
}

impl Sealed {
    /// Appends records with what is in `pieces`, but of no more than [`SEAL_BYTES`]; returns of how
    /// many.
    fn seal<Data>(
        &mut self,
        traffic: &mut WriteTraffic<'_, Data>,
        pieces: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let (mut taken, mut joined) = (0, Vec::new());
        for piece in pieces {
            let piece = &piece[..piece.len().min(SEAL_BYTES - taken)];
            taken += piece.len();
            // Small pieces share a record; others are sealed from where they lie.
            if joined.len() + piece.len() > RECORD_BYTES {
                self.encrypt(traffic, &joined)?;
                joined.clear();
            }
            if piece.len() < RECORD_BYTES {
                joined.extend_from_slice(piece);
            } else {
                self.encrypt(traffic, piece)?;
            }
        }
        self.encrypt(traffic, &joined)?;
        Ok(taken)
    }

    fn encrypt<Data>(
        &mut self,
        traffic: &mut WriteTraffic<'_, Data>,
        content: &[u8],
    ) -> io::Result<()> {
        loop {
            match traffic.encrypt(content, &mut self.room[self.to..]) {
                Ok(count) => {
                    self.to += count;
                    return Ok(());
                }
                Err(EncryptError::InsufficientSize(short)) => self.grow(short.required_size),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn encode<Data>(&mut self, message: &mut EncodeTlsData<'_, Data>) -> io::Result<()> {
        loop {
            match message.encode(&mut self.room[self.to..]) {
                Ok(count) => {
                    self.to += count;
                    return Ok(());
                }
                Err(EncodeError::InsufficientSize(short)) => self.grow(short.required_size),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn grow(&mut self, by: usize) {
        self.room.resize(self.to + by, 0);
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
    fn tls_ends_know_each_other_and_bytes_come_out_as_they_went_in() {
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
        let keys =
            |authority: &Authority, rank| Keys::new(&authority.issue(rank).unwrap()).unwrap();
        let mut one = keys(&theirs, 9).connect(2).unwrap();
        let mut other = keys(&ours, 2).accept().unwrap();
        assert!(shake(&mut one, &mut other).is_err(), "a stranger listens");
        let mut one = keys(&ours, 9).connect(2).unwrap();
        let mut other = keys(&ours, 3).accept().unwrap();
        assert!(shake(&mut one, &mut other).is_err(), "another node listens");
    }

    /// From here on `tls` has another key, and asks the peer for another one.
    fn change_key(tls: &mut Tls) {
        fn refresh<Data>(status: UnbufferedStatus<'_, '_, Data>) {
            let Ok(ConnectionState::WriteTraffic(traffic)) = status.state else {
                panic!("it is not open")
            };
            traffic.refresh_traffic_keys().unwrap();
        }
        match &mut tls.end {
            TlsEnd::Calling(end) => refresh(end.process_tls_records(&mut [])),
            TlsEnd::Called(end) => refresh(end.process_tls_records(&mut [])),
            TlsEnd::Over => panic!("it is over"),
        }
    }

    #[test]
    fn keys_change_under_way_in_both_directions() {
        let authority = Authority::new().unwrap();
        let (child, parent) = (authority.issue(9).unwrap(), authority.issue(2).unwrap());
        let mut one = Keys::new(&child).unwrap().connect(2).unwrap();
        let mut other = Keys::new(&parent).unwrap().accept().unwrap();
        shake(&mut one, &mut other).unwrap();
        for round in 0..20u8 {
            let content = vec![round; 50_000];
            for _ in 0..2 {
                change_key(&mut one);
                assert_eq!(one.seal(&[IoSlice::new(&content)]).unwrap(), content.len());
                let mut got = BytesMut::new();
                carry(&mut one, &mut other, &mut got).unwrap();
                assert_eq!(got, content);
                std::mem::swap(&mut one, &mut other);
            }
        }
    }

    #[test]
    fn tls_accepts_split_records_and_rejects_altered_or_replayed() {
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
