//! The session's certificate authority, and what it gives each node. Everything lives in memory
//! and ends with the session.
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
};
use rcgen::{KeyPair, KeyUsagePurpose};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Names of nodes in certificates end in this; no resolver is ever asked for them.
const DOMAIN: &str = "sheaf.internal";

/// What proves over TLS which node of a session somebody is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Certificate of the session's authority.
    pub ca_der: Vec<u8>,
    /// The node's own certificate, signed by the authority; its only name is [`node_name`].
    pub cert_der: Vec<u8>,
    /// The private key of that certificate (PKCS #8).
    pub key_der: Vec<u8>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// [`fingerprint`] of the authority.
    #[must_use]
    pub fn authority_fingerprint(&self) -> String {
        fingerprint(&self.ca_der)
    }
}

/// The name in the certificate of the node `rank`.
#[must_use]
pub fn node_name(rank: u32) -> String {
    format!("n{rank}.{DOMAIN}")
}

/// What names an authority to people and scripts: BLAKE3 of its certificate (DER), in hexadecimal.
#[must_use]
pub fn fingerprint(ca_der: &[u8]) -> String {
    blake3::hash(ca_der).to_hex().to_string()
}

/// The certificate authority of one session.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes one.
    ///
    /// # Errors
    /// When keys cannot be made.
    pub fn new() -> io::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "sheaf session");
        // Clocks of hosts differ, and some are wrong by years; a session's keys end with it.
        let issuer = CertifiedIssuer::self_signed(params, key()?).map_err(io::Error::other)?;
        Ok(Self { issuer })
    }

    /// Its certificate.
    #[must_use]
    pub fn certificate_der(&self) -> &[u8] {
        self.issuer.der()
    }

    /// [`fingerprint`] of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(self.certificate_der())
    }

    /// Makes key and certificate of the node `rank`.
    ///
    /// # Errors
    /// When keys cannot be made.
    pub fn issue(&self, rank: u32) -> io::Result<Credentials> {
        let mut params = CertificateParams::new(vec![node_name(rank)]).map_err(io::Error::other)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, node_name(rank));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A node listens to its children and connects to its ancestors.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = key()?;
        let cert = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        Ok(Credentials {
            ca_der: self.certificate_der().to_vec(),
            cert_der: cert.der().to_vec(),
            key_der: key.serialize_der(),
        })
    }
}

fn key() -> io::Result<KeyPair> {
    KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let authority = Authority::new().unwrap();
        let credentials = authority.issue(17).unwrap();
        assert_eq!(format!("{authority:?}"), "Authority { .. }");
        assert_eq!(format!("{credentials:?}"), "Credentials { .. }");
        assert_eq!(credentials.authority_fingerprint(), authority.fingerprint());
        assert_eq!(authority.fingerprint().len(), 64);
    }

    #[test]
    fn two_sessions_have_nothing_in_common() {
        let (one, other) = (Authority::new().unwrap(), Authority::new().unwrap());
        assert_ne!(one.fingerprint(), other.fingerprint());
        let (a, b) = (one.issue(1).unwrap(), one.issue(1).unwrap());
        assert_ne!(a.key_der, b.key_der);
    }
}
