//! Strangers at a node's door: they get nothing, and the session goes on at full speed.
use crate::tree::{DEADLINE, Tree, ask, next_sum, runtime};
use sheaf_core::RangeSet;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch::{self, Carrier, Invitation, Program, attach};
use sheaf_tree::link::hello::knock;
use sheaf_tree::link::tls::{Keys, Tls};
use sheaf_tree::link::{Authority, Credentials, DoorAddress, Hello, Refusal, Secret};
use sheaf_tree::service::Services;
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use sheaf_tree::{Network, Notice, Stream, Tuning};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const LEAVES: u32 = 8;
/// How long waves are counted with and without strangers, in turns.
const SLICE: Duration = Duration::from_millis(300);

struct Running {
    network: Network,
    stream: Stream,
}

impl Running {
    async fn start(carrier: Carrier) -> Self {
        let tree = Tree::start("1x2x4", LEAVES, carrier, Tuning::default()).await;
        Self { stream: tree.sums(), network: tree.network }
    }

    /// Waves within one slice; every one of them counts every leaf.
    async fn waves(&self) -> u64 {
        let until = Instant::now() + SLICE;
        let mut count = 0;
        while Instant::now() < until {
            ask(&self.stream).await;
            assert_eq!(next_sum(&self.stream).await, u64::from(LEAVES));
            count += 1;
        }
        count
    }

    fn address(&self) -> SocketAddr {
        match self.network.door() {
            Some(DoorAddress::Tcp(all)) => all[0],
            other => panic!("not a TCP door: {other:?}"),
        }
    }

    fn refused(&self, why: Refusal) -> u64 {
        let counts = self.network.audit();
        counts.refused.iter().find(|(reason, _)| *reason == why).map_or(0, |(_, count)| *count)
    }

    /// Waits until so many have been refused for this reason.
    async fn until_refused(&self, why: Refusal, count: u64) {
        let deadline = Instant::now() + DEADLINE;
        while self.refused(why) < count {
            assert!(Instant::now() < deadline, "{:?}", self.network.audit());
            self.waves().await;
        }
    }
}

/// Reads until the other end closes; what came.
fn rest(mut stream: impl Read) -> Vec<u8> {
    let mut got = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut got);
    got
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Sends plain bytes; what comes back.
fn say(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(to);
    let _ = stream.write_all(bytes);
    rest(stream)
}

/// Knocks with this secret and greets over TLS with these keys; whether anything of the application
/// came back.
fn greet(to: SocketAddr, secret: &Secret, mut tls: Tls, hello: &Hello) -> bool {
    let mut stream = connect(to);
    stream.write_all(&knock(secret)).unwrap();
    let (mut opened, mut said) = (bytes::BytesMut::new(), false);
    let mut buffer = [0; 4096];
    loop {
        if !tls.is_handshaking() && !said {
            said = true;
            tls.seal(&[IoSlice::new(&hello.frame())]).unwrap();
        }
        while tls.has_sealed() {
            if tls.send(&mut stream).is_err() {
                return !opened.is_empty();
            }
        }
        let count = match stream.read(&mut buffer) {
            Ok(count) if count > 0 => count,
            ended => {
                assert!(!matches!(ended, Err(error) if error.kind() == io::ErrorKind::WouldBlock));
                return !opened.is_empty();
            }
        };
        if tls.open(&buffer[..count], &mut opened).is_err() {
            return !opened.is_empty();
        }
    }
}

/// A greeting with a length of 4 GiB.
fn huge() -> Vec<u8> {
    let mut frame = Hello::new(&Secret::random().unwrap(), 3, "n3", true).frame().to_vec();
    frame[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    frame
}

#[test]
fn strangers_get_nothing_over_tls() {
    runtime().block_on(async {
        let running = Running::start(Carrier::Tls).await;
        let (to, accepted) = (running.address(), running.network.audit().accepted);
        let stranger = std::sync::Arc::new(Authority::new().unwrap());
        let attack = move || {
            for bytes in
                [b"GET / HTTP/1.0\r\n\r\n".to_vec(), huge(), vec![0x16; 70_000], Vec::new()]
            {
                // An alert of TLS may come back, and no more than that.
                let mut stream = connect(to);
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                assert!(rest(stream).len() < 64);
            }
            let keys = Keys::new(&stranger.issue(3).unwrap()).unwrap();
            let secret = Secret::random().unwrap();
            let hello = Hello::new(&secret, 3, "n3", true);
            assert!(!greet(to, &secret, keys.connect(0).unwrap(), &hello));
        };
        let (mut quiet, mut attacked) = (0, 0);
        const TURNS: usize = 4;
        for _ in 0..TURNS {
            quiet += running.waves().await;
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let (stopped, attack) = (std::sync::Arc::clone(&stop), attack.clone());
            let attacker = std::thread::spawn(move || {
                while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    attack();
                }
            });
            attacked += running.waves().await;
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            while !attacker.is_finished() {
                running.waves().await;
            }
            attacker.join().unwrap();
        }
        running.until_refused(Refusal::Greeting, 2 * TURNS as u64).await;
        running.until_refused(Refusal::Token, TURNS as u64).await;
        running.until_refused(Refusal::Left, TURNS as u64).await;
        assert_eq!(running.network.audit().accepted, accepted, "nobody got in");
        // The attacker takes a share of the processors, and no more.
        assert!(attacked * 8 > quiet, "{attacked} waves with strangers, {quiet} without");
        running.network.shutdown().await;
    });
}

#[test]
fn member_cannot_speak_for_another_and_wrong_tokens_are_refused() {
    runtime().block_on(async {
        let running = Running::start(Carrier::Tcp).await;
        let to = running.address();
        let accepted = running.network.audit().accepted;
        let secret = Secret::random().unwrap();
        let wrong = Hello::new(&secret, 3, "n3", true);
        let mut old = wrong.clone();
        old.version += 1;
        let strangers = tokio::task::spawn_blocking(move || {
            // A greeting that was recorded in another session, an old program, a huge length.
            [wrong.frame().to_vec(), old.frame().to_vec(), huge()].map(|bytes| say(to, &bytes))
        });
        assert_eq!(strangers.await.unwrap(), [const { Vec::<u8>::new() }; 3], "nobody is answered");
        running.until_refused(Refusal::Token, 1).await;
        running.until_refused(Refusal::Version, 1).await;
        running.until_refused(Refusal::Greeting, 1).await;
        assert_eq!(running.network.audit().accepted, accepted);
        running.network.shutdown().await;
    });
}

fn own_keys(invited: &Invitation) -> Keys {
    Keys::new(invited.credentials.as_ref().unwrap()).unwrap()
}

/// Starts a session of n1 and n2, to which somebody comes who knocks as n1, which was invited, and
/// goes on as `guest`; it is told nothing, and refused because of `why`. Gives the root.
async fn refused_guest(guest: fn(&Invitation) -> (Keys, Hello), why: Refusal) -> Network {
    let names: Names = ["n1", "n2"].into_iter().collect();
    let topology =
        Topology::build(&Spec::parse("flat").unwrap(), "root", names, Placement::LeafHosts)
            .unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_sheaf").into(), vec!["serve".to_owned()]);
    let (services, options) =
        (Services::new(Registry::with_builtins()), launch::Options::default());
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let started = launch::attached(&topology, &services, &options, &program, at, DEADLINE).await;
    let (network, desk) = started.unwrap();
    let (token, at) = (desk.issue(1).unwrap(), desk.address().unwrap());
    let stranger = tokio::task::spawn_blocking(move || {
        let invited = attach::enrol(&at.to_string(), &token, "n1").unwrap().remove(0);
        let DoorAddress::Tcp(to) = &invited.ancestors[0].address else { panic!("not TCP") };
        let (keys, hello) = guest(&invited);
        greet(to[0], &invited.secret, keys.connect(0).unwrap(), &hello)
    });
    assert!(!stranger.await.unwrap(), "it is told nothing");
    let counts = || network.audit().refused.into_iter().find(|(counted, _)| *counted == why);
    let deadline = Instant::now() + DEADLINE;
    while counts().is_none_or(|(_, count)| count == 0) {
        assert!(Instant::now() < deadline, "{:?}", network.audit());
        tokio::task::yield_now().await;
    }
    assert_eq!(network.audit().accepted, 0);
    network
}

#[test]
fn certificate_of_another_rank_is_refused_and_counted() {
    runtime().block_on(async {
        // It is of this session, has a key of its authority, and claims to be its sister.
        let sister = |invited: &Invitation| {
            (own_keys(invited), Hello::new(&invited.secret, invited.rank + 1, "n2", false))
        };
        refused_guest(sister, Refusal::Rank).await.shutdown().await;
    });
}

#[test]
fn knock_that_was_overheard_leads_no_further_than_the_handshake() {
    runtime().block_on(async {
        let forger = |invited: &Invitation| {
            // It trusts the session, and has made its certificate itself.
            let own = Authority::new().unwrap().issue(invited.rank).unwrap();
            let ca_der = invited.credentials.as_ref().unwrap().ca_der.clone();
            let keys = Keys::new(&Credentials { ca_der, ..own }).unwrap();
            (keys, Hello::new(&invited.secret, invited.rank, "n1", false))
        };
        refused_guest(forger, Refusal::Handshake).await.shutdown().await;
    });
}

#[test]
fn server_started_for_another_host_is_refused_and_its_leaf_lost() {
    runtime().block_on(async {
        let other = |invited: &Invitation| {
            (own_keys(invited), Hello::new(&invited.secret, invited.rank, "n2", false))
        };
        let network = refused_guest(other, Refusal::Name).await;
        let lost = network.notices().into_iter().find_map(|notice| match notice {
            Notice::Lost { leaves, cause, .. } => Some((leaves, cause)),
            _ => None,
        });
        let (leaves, cause) = lost.expect("a notice of the loss");
        assert_eq!(leaves, RangeSet::from_range(0, 1));
        assert_eq!(cause, "it was started for n2, and the tree has n1 there");
        network.shutdown().await;
    });
}

#[test]
fn thousand_idle_connections_and_a_slow_one_go_by_themselves() {
    const IDLE: usize = 1000;
    if !sheaf_testing::home::may_open(3000) {
        sheaf_testing::skipped("fewer than 3000 descriptors are allowed");
        return;
    }
    runtime().block_on(async {
        let running = Running::start(Carrier::Tls).await;
        let to = running.address();
        let connected =
            tokio::task::spawn_blocking(move || (0..IDLE).map(|_| connect(to)).collect());
        let idle: Vec<TcpStream> = connected.await.unwrap();
        // It says one byte at a time, for ever.
        let slow = std::thread::spawn(move || {
            let mut slow = connect(to);
            slow.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            loop {
                if slow.write_all(b"s").is_err() {
                    return;
                }
                match slow.read(&mut [0; 64]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
        });
        let deadline = Instant::now() + DEADLINE;
        while !slow.is_finished() || running.network.audit().refused_total() < IDLE as u64 + 1 {
            assert!(Instant::now() < deadline, "{:?}", running.network.audit());
            assert!(running.waves().await > 0);
        }
        slow.join().unwrap();
        for stream in idle {
            assert_eq!(rest(stream), b"", "an idle connection is told nothing");
        }
        running.network.shutdown().await;
    });
}

#[test]
fn abstract_socket_answers_nobody_without_the_token() {
    runtime().block_on(async {
        let running = Running::start(Carrier::Unix).await;
        let Some(DoorAddress::Abstract(name)) = running.network.door() else { panic!("no door") };
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let stranger = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect_addr(&address).unwrap();
            stream
                .write_all(&Hello::new(&Secret::random().unwrap(), 3, "n3", true).frame())
                .unwrap();
            rest(stream)
        });
        assert_eq!(stranger.await.unwrap(), b"");
        running.until_refused(Refusal::Token, 1).await;
        assert_eq!(running.network.audit().accepted, 0);
        running.network.shutdown().await;
    });
}
