//! TLS of the enrolment: the server proves that it is of the session, by its authority's
//! certificate, of which the client knows the fingerprint. The client has no certificate yet.
use super::Timed;
use crate::link::{Credentials, credentials};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use std::io;
use std::sync::Arc;

const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What the server of the enrolment shows.
pub(super) fn server(own: &Credentials) -> io::Result<Arc<ServerConfig>> {
    let chain = vec![own.cert_der.clone().into(), own.ca_der.clone().into()];
    let key = PrivatePkcs8KeyDer::from(own.key_der.clone()).into();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map(|builder| builder.with_no_client_auth())
        .and_then(|builder| builder.with_single_cert(chain, key));
    config.map(Arc::new).map_err(io::Error::other)
}

pub(super) fn accept(
    config: &Arc<ServerConfig>,
    stream: Timed,
) -> io::Result<StreamOwned<ServerConnection, Timed>> {
    let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Connects to a server of the authority with this fingerprint. The error has a [`rustls::Error`]
/// in it when the other end is somebody else.
pub(super) fn connect(
    authority: &str,
    stream: Timed,
) -> io::Result<StreamOwned<ClientConnection, Timed>> {
    let verifier = Arc::new(Pinned { authority: authority.to_owned(), provider: provider() });
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let name = server_name().map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// The root's name.
fn server_name() -> Result<ServerName<'static>, Error> {
    let name = ServerName::try_from(credentials::node_name(0));
    name.map_err(|_| Error::General("the root's name is no name".to_owned()))
}

/// Accepts what the authority with this fingerprint has signed, and nothing else.
#[derive(Debug)]
struct Pinned {
    authority: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let pinned =
            intermediates.iter().find(|cert| credentials::fingerprint(cert) == self.authority);
        let mut roots = RootCertStore::empty();
        roots.add(pinned.ok_or_else(unknown)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&self.provider),
        );
        let verifier = verifier.build().map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // Only TLS 1.3 is offered.
        Err(Error::PeerIncompatible(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
