//! The way from hosts to this machine over TCP: a listener where a root would have one, and what
//! hosts do to try it.
use super::{Finding, RootListener};
use crate::exit::Stop;
use anyhow::{Context, Result};
use sheaf_records::{Area, Severity};
use sheaf_session::Config;
use sheaf_session::config::LinkChoice;
use sheaf_tree::launch::new_mark;
use sheaf_tree::link::anywhere;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// How long a host tries, as a node does that has ssh to fall back to.
const REACH_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest answer of a listener that is read.
const TOKEN_BYTES_MAX: u64 = 64;

/// Listens where the root of this configuration would. Returns nothing if no host connects to a
/// root of it, and a finding if that place is not to be had.
pub fn listen(config: &Config) -> Result<Option<(RootListener, TcpListener)>, Finding> {
    if config.link() == Some(LinkChoice::Ssh) {
        return Ok(None);
    }
    let at = config.cluster.listen.as_ref().map(|listen| listen.value);
    let at = at.unwrap_or_else(|| SocketAddr::new(anywhere(), 0));
    let bound = match config.cluster.ports.as_ref().map(|ports| ports.value) {
        None => TcpListener::bind(at),
        Some(ports) => ports
            .iter()
            .map(|port| TcpListener::bind((at.ip(), port)))
            .find(|bound| !matches!(bound, Err(error) if error.kind() == std::io::ErrorKind::AddrInUse))
            .unwrap_or_else(|| Err(std::io::ErrorKind::AddrInUse.into())),
    };
    let listening = bound.and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?.port(), new_mark()?, listener))
    });
    let (port, token, listener) = listening.map_err(|error| {
        let ports = config.cluster.ports.as_ref().map(|ports| format!(", ports {}", ports.value));
        let place = format!("{}{}", at.ip(), ports.unwrap_or_default());
        let text = format!("a root cannot listen at {place}: {error}");
        Finding::new(Severity::Problem, Area::Ports, text).mended_by(
            "correct the settings listen and ports, or end what has these ports: ss -ltnp",
        )
    })?;
    let address = (!at.ip().is_unspecified()).then(|| at.ip().to_string());
    let is_needed = config.link() == Some(LinkChoice::Tls);
    Ok(Some((RootListener { address, port, token, is_needed }, listener)))
}

/// Sends the token to each host that connects, until it is dropped.
pub async fn answer(listener: TcpListener, token: &str) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        match listener.accept().await {
            // The few bytes fit into the buffers of a new connection.
            Ok((mut stream, _)) => drop(stream.write_all(token.as_bytes()).await),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// On a host: connects to a root's machine, and returns what is sent there.
pub fn reach(address: IpAddr, port: u16) -> Result<String> {
    let unreached = |error: std::io::Error| {
        Stop::unreachable(format!("cannot connect to {}: {error}", SocketAddr::new(address, port)))
    };
    let stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), REACH_TIMEOUT)
        .map_err(unreached)?;
    stream.set_read_timeout(Some(REACH_TIMEOUT)).context("cannot set a timeout")?;
    let mut token = Vec::new();
    stream.take(TOKEN_BYTES_MAX).read_to_end(&mut token).map_err(unreached)?;
    Ok(String::from_utf8_lossy(&token).into_owned())
}
