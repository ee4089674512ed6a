//! Strangers who connect and say nothing: whoever belongs to the session gets in all the same.
use crate::recovery::kill_during_sums;
use crate::tree::{DEADLINE, Tree, runtime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use sheaf_testing::sessions::turn;
use sheaf_tree::launch::Carrier;
use sheaf_tree::link::DoorAddress;
use sheaf_tree::{Notice, Tuning};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// As many strangers as the tests have.
pub const STRANGERS: usize = 1200;
/// How often strangers look whether they were sent away.
const LOOK: Duration = Duration::from_millis(5);

/// Strangers that hold connections to a door and say nothing. Who is sent away comes back at once.
pub struct Crowd {
    over: Arc<AtomicBool>,
    came: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// `None`, and a word about it, where this process may not have so many descriptors.
    pub async fn gather(to: SocketAddr, count: usize) -> Option<Self> {
        let wanted = count as u64 * 2 + 1000;
        if !sheaf_testing::home::may_open(wanted) {
            sheaf_testing::skipped(&format!("fewer than {wanted} descriptors are allowed"));
            return None;
        }
        let over = Arc::new(AtomicBool::new(false));
        let came = Arc::new(AtomicUsize::new(0));
        let (stop, counter) = (Arc::clone(&over), Arc::clone(&came));
        let thread = Some(std::thread::spawn(move || hold(to, count, &stop, &counter)));
        let crowd = Self { over, came, thread };
        let deadline = Instant::now() + DEADLINE;
        while crowd.came() < count {
            assert!(Instant::now() < deadline, "{} of {count} strangers are there", crowd.came());
            tokio::time::sleep(LOOK).await;
        }
        Some(crowd)
    }

    /// How many have come so far, each as often as it was sent away.
    pub fn came(&self) -> usize {
        self.came.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Begins to connect, and waits for nothing.
fn begin(to: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    match rustix::net::connect(&fd, &to) {
        // Refused: the session is over.
        Ok(()) | Err(Errno::INPROGRESS | Errno::CONNREFUSED) => fd,
        Err(error) => panic!("{error}"),
    }
}

/// What has become of a stranger's connection.
enum Standing {
    Coming,
    Here,
    /// It was let in, perhaps between two looks, and its connection was closed.
    SentAway,
    /// Nobody listens.
    Refused,
}

fn standing(fd: &OwnedFd) -> Standing {
    let mut polled = [PollFd::new(fd, PollFlags::OUT | PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap();
    let seen = polled[0].revents();
    if seen.is_empty() {
        return Standing::Coming;
    }
    match rustix::net::recv(fd, &mut [0; 16], RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => Standing::Here,
        Ok((_, count)) if count > 0 => panic!("a silent stranger was told something"),
        Err(Errno::CONNREFUSED) => Standing::Refused,
        _ => Standing::SentAway,
    }
}

fn hold(to: SocketAddr, count: usize, over: &AtomicBool, came: &AtomicUsize) {
    let mut strangers: Vec<(OwnedFd, bool)> = (0..count).map(|_| (begin(to), false)).collect();
    while !over.load(Ordering::Relaxed) {
        for (fd, here) in &mut strangers {
            match standing(fd) {
                Standing::Coming => {}
                Standing::Here => {
                    came.fetch_add(usize::from(!std::mem::replace(here, true)), Ordering::Relaxed);
                }
                // A door that is as quick as this loop sends each away before it is looked at.
                Standing::SentAway => {
                    came.fetch_add(usize::from(!*here), Ordering::Relaxed);
                    (*fd, *here) = (begin(to), false);
                }
                Standing::Refused => (*fd, *here) = (begin(to), false),
            }
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Where strangers find the root.
pub fn door_of(tree: &Tree) -> SocketAddr {
    match tree.network.door() {
        Some(DoorAddress::Tcp(all)) => all[0],
        other => panic!("not a TCP door: {other:?}"),
    }
}

/// Kills inner nodes while so many strangers are at the root's door.
fn orphans_find_the_root(strangers: usize) {
    const KILLS: usize = 2;
    let _turn = turn();
    runtime().block_on(async {
        let tree = Tree::start("1x4x16", 64, Carrier::Tls, Tuning::default()).await;
        let stream = tree.sums();
        let Some(crowd) = Crowd::gather(door_of(&tree), strangers).await else { return };
        for victim in tree.inner().into_iter().take(KILLS) {
            let took = kill_during_sums(&tree, &stream, victim).await;
            println!("recovered in {took:?}, strangers came {} times", crowd.came());
        }
        let lost =
            tree.network.notices().into_iter().find(|notice| matches!(notice, Notice::Lost { .. }));
        assert_eq!(lost, None);
        drop(crowd);
        tree.end().await;
    });
}

#[test]
fn orphans_find_the_root_through_a_crowd_of_silent_strangers() {
    orphans_find_the_root(STRANGERS);
}

#[test]
fn orphans_find_the_root_through_a_crowd_that_comes_back() {
    // More than a door lets stay.
    orphans_find_the_root(3 * STRANGERS);
}
