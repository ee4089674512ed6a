//! Two processes and one socket between them, without Sheaf: what its links from host to host are
//! measured against. Both ends block; with `tls` they use rustls as it comes, with the version, the
//! cipher and the certificates on both sides that Sheaf's links have.
//!
//!     barelink unix|tcp|tls [--rounds N] [--bytes N] [--runs N]
//!
//! One line of JSON: the median of exchanges of 4 KiB there and back, and of the seconds in which
//! so many bytes went one way and were acknowledged.
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

const EXCHANGE_BYTES: usize = 4096;
/// What is written and read at once. Of 64 KiB to 1 MiB this is the fastest on all three.
const PIECE_BYTES: usize = 256 << 10;
const WARM_UP: usize = 50;

type Error = Box<dyn std::error::Error>;

/// The way both ends speak.
trait Link: Read + Write {}
impl<T: Read + Write> Link for T {}

struct Options {
    kind: String,
    rounds: usize,
    bytes: usize,
    runs: usize,
}

fn options() -> Result<Options, Error> {
    let mut words = std::env::args().skip(1);
    let kind = words.next().ok_or("unix, tcp or tls?")?;
    let mut options = Options { kind, rounds: 1000, bytes: 64 << 20, runs: 1 };
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let value = value.parse()?;
        match &*name {
            "--rounds" => options.rounds = value,
            "--bytes" => options.bytes = value,
            "--runs" => options.runs = value,
            _ => return Err(format!("{name}?").into()),
        }
    }
    Ok(options)
}

/// The numbers from here on that the far end is told: what comes, and what it answers.
fn order(link: &mut dyn Link, take: usize, give: usize) -> std::io::Result<()> {
    link.write_all(&[take.to_le_bytes(), give.to_le_bytes()].concat())?;
    link.flush()
}

fn take(link: &mut dyn Link, mut count: usize, buffer: &mut [u8]) -> std::io::Result<()> {
    while count > 0 {
        let room = count.min(buffer.len());
        match link.read(&mut buffer[..room])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            got => count -= got,
        }
    }
    Ok(())
}

/// The far end: takes and gives as it is told, until the other goes.
fn serve(link: &mut dyn Link) -> std::io::Result<()> {
    let (mut words, mut buffer) = ([0; 24], vec![0; PIECE_BYTES]);
    let word = |words: &[u8; 24], at: usize| {
        usize::from_le_bytes(words[8 * at..8 * at + 8].try_into().expect("eight bytes"))
    };
    while link.read_exact(&mut words[..16]).is_ok() {
        let (come, give) = (word(&words, 0), word(&words, 1));
        if come == 0 {
            // So many exchanges.
            for _ in 0..give {
                link.read_exact(&mut buffer[..EXCHANGE_BYTES])?;
                link.write_all(&buffer[..EXCHANGE_BYTES])?;
                link.flush()?;
            }
            continue;
        }
        take(link, come, &mut buffer)?;
        link.write_all(&buffer[..give])?;
        link.flush()?;
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn measure(link: &mut dyn Link, options: &Options) -> std::io::Result<()> {
    let mut buffer = vec![0x5a; PIECE_BYTES];
    order(link, 0, options.rounds + WARM_UP)?;
    let mut trips = Vec::new();
    for round in 0..options.rounds + WARM_UP {
        let begun = Instant::now();
        link.write_all(&buffer[..EXCHANGE_BYTES])?;
        link.flush()?;
        link.read_exact(&mut buffer[..EXCHANGE_BYTES])?;
        if round >= WARM_UP {
            trips.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    // As any content does, it lies in memory: it is not the same piece again and again.
    let (content, mut bulk) = (vec![0x5a; options.bytes], Vec::new());
    for _ in 0..options.runs {
        order(link, options.bytes, 8)?;
        let begun = Instant::now();
        for piece in content.chunks(PIECE_BYTES) {
            link.write_all(piece)?;
        }
        link.flush()?;
        link.read_exact(&mut buffer[..8])?;
        bulk.push(begun.elapsed().as_secs_f64());
    }
    let (trip, bulk) = (median(trips), median(bulk));
    println!("{{\"median_us\":{trip},\"bulk_s\":{bulk},\"bytes\":{}}}", options.bytes);
    Ok(())
}

fn provider() -> Arc<CryptoProvider> {
    use ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256};
    Arc::new(CryptoProvider {
        cipher_suites: vec![TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    })
}

/// Both sides' settings, for certificates of one authority.
fn settings() -> Result<(ClientConfig, ServerConfig), Error> {
    let ca_key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let mut ca = rcgen::CertificateParams::new(Vec::<String>::new())?;
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key)?;
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let mut roots = RootCertStore::empty();
    roots.add(ca_cert.der().clone())?;
    let roots = Arc::new(roots);
    let own = |name: &str| -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let cert = rcgen::CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &issuer)?;
        let der = PrivateKeyDer::try_from(key.serialize_der())?;
        Ok((vec![cert.der().clone()], der))
    };
    let (chain, key) = own("a")?;
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(Arc::clone(&roots))
        .with_client_auth_cert(chain, key)?;
    client.enable_sni = false;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build()?;
    let (chain, key) = own("b")?;
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    server.send_tls13_tickets = 0;
    Ok((client, server))
}

/// Another process that serves the other end; gives this one.
fn apart(far: impl FnOnce() -> Result<(), Error>) {
    // SAFETY: there is one thread so far, so the child may do what the parent may.
    if unsafe { libc::fork() } == 0 {
        let well = far().is_ok();
        std::process::exit(i32::from(!well));
    }
}

fn main() -> Result<(), Error> {
    let options = options()?;
    if options.kind == "unix" {
        let (mut near, mut far) = UnixStream::pair()?;
        apart(|| {
            // The end that it has no business with would keep it from noticing the other's end.
            // SAFETY: nothing else of this process uses that descriptor.
            unsafe { libc::close(std::os::fd::AsRawFd::as_raw_fd(&near)) };
            Ok(serve(&mut far)?)
        });
        drop(far);
        return Ok(measure(&mut near, &options)?);
    }
    let (client, server) = settings()?;
    let door = TcpListener::bind("127.0.0.1:0")?;
    let (address, sealed) = (door.local_addr()?, options.kind == "tls");
    apart(|| {
        let (mut far, _) = door.accept()?;
        far.set_nodelay(true)?;
        if !sealed {
            return Ok(serve(&mut far)?);
        }
        let end = ServerConnection::new(Arc::new(server))?;
        Ok(serve(&mut rustls::StreamOwned::new(end, far))?)
    });
    let mut near = TcpStream::connect(address)?;
    near.set_nodelay(true)?;
    if !sealed {
        return Ok(measure(&mut near, &options)?);
    }
    let end = ClientConnection::new(Arc::new(client), ServerName::try_from("b")?)?;
    Ok(measure(&mut rustls::StreamOwned::new(end, near), &options)?)
}
