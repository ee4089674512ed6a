//! Real processes on this machine, each node starting its own children.
use super::family::{Family, Kin};
use super::spawn::fork;
use super::{Carrier, LaunchError, Options, Program, assignment, config};
use crate::driver::Shared;
use crate::filter::Registry;
use crate::network::Network;
use crate::proto::frame::{self, HEADER_BYTES, Header, Kind};
use crate::proto::{self, control::Hello, control::PROTOCOL_VERSION};
use crate::topology::Topology;
use rustc_hash::FxHashMap;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sheaf_core::Errno;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// How long a child may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts every node of `topology` but the root as a process of its own; the root is here.
///
/// Returns at once: streams may be opened before everything runs. A process that cannot be
/// started counts as lost, with the cause.
///
/// # Errors
/// When not even a socket can be made.
pub async fn processes(
    topology: &Topology,
    registry: &Registry,
    options: &Options,
    program: &Program,
) -> Result<Network, LaunchError> {
    let shared = Shared::new();
    shared.run(|core, _| {
        core.add_node(config(topology.root(), options.tuning, options.depth), registry.clone());
        core.nodes[0].set_identity(&topology.root().host(), std::process::id());
    });
    let family = start_children(&shared, topology, options.depth, options, program)?;
    shared.with_node(0, proto::Node::tell_ready);
    Ok(Network::new(shared, topology.leaves_len(), Some(Box::new(family))))
}

/// Starts the children of the root of `topology`, which is node 0 here.
pub(super) fn start_children(
    shared: &Arc<Shared>,
    topology: &Topology,
    depth: u32,
    options: &Options,
    program: &Program,
) -> io::Result<Family> {
    // Each level waits longer than the one below it takes.
    let patience = Duration::from_millis(500) + Duration::from_millis(250) * topology.depth();
    let mut family = Family { kin: Vec::new(), patience };
    let mut gate = match program.carrier {
        Carrier::Unix => None,
        Carrier::Tcp if topology.root().children().len() > 0 => Some(Gate::open()?),
        Carrier::Tcp => None,
    };
    for (link, child) in topology.root().children().enumerate() {
        let frame = assignment(topology, child.rank(), depth + 1, options, program);
        shared.with_node(0, |node| node.send_first(link, frame));
        let is_leaf = child.leaf_index().is_some();
        let started = match &mut gate {
            None => start_over_pair(shared, link, program, is_leaf),
            Some(gate) => gate.start(link, program, is_leaf),
        };
        match started {
            Ok(kin) => family.kin.push(kin),
            Err(error) => shared.run(|core, now| {
                let cause = format!("its process cannot be started: {error}");
                core.nodes[0].child_dead(now, link, Errno::from_io(&error), &cause);
                core.touch(0);
            }),
        }
    }
    if let Some(gate) = gate {
        tokio::spawn(gate.admit(Arc::downgrade(shared)));
    }
    Ok(family)
}

fn start_over_pair(shared: &Arc<Shared>, link: usize, program: &Program, is_leaf: bool) -> io::Result<Kin> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let kin = fork(program, is_leaf, theirs)?;
    shared.attach(0, link, ours, Some(kin.autopsy()))?;
    Ok(kin)
}

/// Where children on TCP connect to: loopback, one token each.
struct Gate {
    listener: TcpListener,
    address: SocketAddr,
    expected: FxHashMap<[u8; 16], (usize, Kin)>,
}

impl Gate {
    fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener, expected: FxHashMap::default() })
    }

    fn start(&mut self, link: usize, program: &Program, is_leaf: bool) -> io::Result<Kin> {
        let (theirs, mut ours) = io::pipe()?;
        let kin = fork(program, is_leaf, theirs.into())?;
        let mut token = [0; 16];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
        let mut hello = self.address.to_string().into_bytes();
        hello.push(b'\n');
        ours.write_all(&hello)?;
        ours.write_all(&token)?;
        self.expected.insert(token, (link, kin.clone()));
        Ok(kin)
    }

    /// Lets the expected children in until all have come or their time is over.
    async fn admit(mut self, shared: Weak<Shared>) {
        let everyone = self.admit_all(&shared);
        let _late = tokio::time::timeout(CONNECT_TIMEOUT, everyone).await;
        for (_, (link, _)) in self.expected.drain() {
            let Some(shared) = shared.upgrade() else { return };
            shared.run(|core, now| {
                core.nodes[0].child_dead(now, link, Errno::TIMEDOUT, "its process did not connect");
                core.touch(0);
            });
        }
    }

    async fn admit_all(&mut self, shared: &Weak<Shared>) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let mut greetings = tokio::task::JoinSet::new();
        while !self.expected.is_empty() {
            tokio::select! {
                connection = listener.accept() => {
                    let (stream, _) = connection?;
                    greetings.spawn(tokio::time::timeout(HELLO_TIMEOUT, greet(stream)));
                }
                Some(greeting) = greetings.join_next() => {
                    let Ok(Ok(Ok((token, stream)))) = greeting else {
                        tracing::warn!("a connection that is not a child of ours was dropped");
                        continue;
                    };
                    let Some((link, kin)) = self.expected.remove(&token) else {
                        tracing::warn!("a connection with a wrong token was dropped");
                        continue;
                    };
                    let Some(shared) = shared.upgrade() else { return Ok(()) };
                    stream.set_nodelay(true)?;
                    shared.attach(0, link, OwnedFd::from(stream.into_std()?), Some(kin.autopsy()))?;
                }
            }
        }
        Ok(())
    }
}

/// Reads who connects.
async fn greet(mut stream: tokio::net::TcpStream) -> io::Result<([u8; 16], tokio::net::TcpStream)> {
    const HELLO_BYTES_MAX: usize = 64;
    let wrong = || io::Error::other("not a child's greeting");
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).await?;
    let header = Header::parse(&head).ok().flatten().ok_or_else(wrong)?;
    if header.kind != Kind::Hello || header.body_len as usize > HELLO_BYTES_MAX {
        return Err(wrong());
    }
    let mut body = vec![0; header.body_len as usize];
    stream.read_exact(&mut body).await?;
    let hello: Hello = proto::control::decode(Kind::Hello, &body).map_err(|_| wrong())?;
    if hello.version != PROTOCOL_VERSION {
        return Err(wrong());
    }
    Ok((hello.token, stream))
}

/// A child's way to its parent: its standard input is the link, or says where the parent listens.
pub(super) fn connect(stdin: OwnedFd) -> io::Result<OwnedFd> {
    use rustix::fs::{FileType, fstat};
    if FileType::from_raw_mode(fstat(&stdin)?.st_mode) == FileType::Socket {
        return Ok(stdin);
    }
    let mut invitation = Vec::new();
    std::fs::File::from(stdin).take(128).read_to_end(&mut invitation)?;
    let not_invited = || io::Error::other("standard input is not a link of a Sheaf session");
    let end = invitation.iter().position(|&byte| byte == b'\n').ok_or_else(not_invited)?;
    let address: SocketAddr = std::str::from_utf8(&invitation[..end])
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(not_invited)?;
    let token = <[u8; 16]>::try_from(&invitation[end + 1..]).map_err(|_| not_invited())?;
    let mut stream = std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    let hello = Hello { version: PROTOCOL_VERSION, session: [0; 16], rank: u32::MAX, token };
    stream.write_all(&proto::control::hello(&hello))?;
    Ok(OwnedFd::from(stream))
}

/// Reads the first frame of a link, blocking, at most `limit`.
pub(super) fn read_first(link: &OwnedFd, limit: Duration) -> io::Result<(Header, Vec<u8>)> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    set_socket_timeout(link, Timeout::Recv, Some(limit))?;
    let mut link = std::fs::File::from(link.try_clone()?);
    let mut head = [0; HEADER_BYTES];
    link.read_exact(&mut head)?;
    let header = Header::parse(&head).map_err(|violation| wrong(violation.to_string()))?;
    let header = header.ok_or_else(|| wrong("no frame".to_owned()))?;
    let mut body = vec![0; header.body_len as usize];
    link.read_exact(&mut body)?;
    Ok((header, body))
}

const _: () = assert!(frame::BODY_BYTES_MAX < u32::MAX as usize);
