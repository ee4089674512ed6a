//! Encryption of what goes to a server.
use super::PostgresUrl;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What verifies the server of a URL, by its certificates or the system's.
pub(super) fn connector(url: &PostgresUrl) -> Result<MakeRustlsConnect, String> {
    static BY_SYSTEM: OnceLock<RootCertStore> = OnceLock::new();
    let roots = match &url.root_certificates {
        // They take their time.
        _ if url.config.get_ssl_mode() == SslMode::Disable => RootCertStore::empty(),
        Some(file) => read(file)?,
        None => BY_SYSTEM.get_or_init(system).clone(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // One that cannot be read believes in nobody: that is what a server's user is told.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn read(file: &Path) -> Result<RootCertStore, String> {
    let place = file.display();
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file);
    for certificate in certificates.map_err(|error| format!("{place}: {error} (sslrootcert)"))? {
        let certificate = certificate.map_err(|error| format!("{place}: {error} (sslrootcert)"))?;
        roots.add(certificate).map_err(|error| format!("{place}: {error} (sslrootcert)"))?;
    }
    if roots.is_empty() {
        return Err(format!("{place}: has no certificate (sslrootcert)"));
    }
    Ok(roots)
}
