//! Children that are born by fork, before their parent has a runtime or any thread.
//!
//! A started program costs a millisecond before its first line: it is loaded, linked and set up. Of
//! the nodes of one machine only the root's children pay that. Whoever learns its place while it
//! still has a single thread forks its children, which know theirs by then, and they fork theirs:
//! each goes on as a process that was started, with a link of its own and nothing of what is its
//! parent's or a sibling's.
use super::family::Kin;
use super::plan::Station;
use crate::launch::join::serve::{Placed, Uplink};
use crate::launch::{Carrier, Options, Program, Starter};
use crate::link::Ancestor;
use crate::link::door::Door;
use crate::topology::NodeRef;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;
use std::io;
use std::os::fd::OwnedFd;

/// What a node has forked, as it hands it over to its runtime.
pub(in crate::launch) struct Brood {
    /// The children know where it is.
    pub door: Door,
    /// One for each child, in their order: `None` for those that are to be started another way.
    pub children: Vec<Option<io::Result<Newborn>>>,
}

/// A child that was forked.
pub(in crate::launch) struct Newborn {
    pub kin: Kin,
    /// The link to it, unless it connects to the door.
    pub link: Option<OwnedFd>,
}

/// Forks the children of `placed`, and in each of them its own. Returns once in every process that
/// there is then, with what is that process's.
///
/// # Errors
/// When there is no door for children, or a child cannot use what it was born with. That one is not
/// born is for its parent to tell, and costs nobody else.
pub(in crate::launch) fn bear(mut placed: Placed) -> io::Result<Placed> {
    loop {
        if placed.topology.root().children().len() == 0 || !bears(&placed.station) || !is_alone() {
            return Ok(placed);
        }
        learn_in_advance();
        let door = placed.station.open_door()?;
        match fork_each(&placed, door) {
            BroodFamily::Parent(brood) => return Ok(Placed { brood: Some(brood), ..placed }),
            BroodFamily::Child(child) => {
                // A process group of its own: the terminal's Ctrl-C is for the root, which ends the
                // others.
                rustix::process::setpgid(None, None)?;
                placed = placed.into_child(child)?;
            }
        }
    }
}

/// Does once what each child would do again: to find out what the processor can do takes a while in
/// a virtual machine.
fn learn_in_advance() {
    let _ = blake3::hash(&[]);
}

/// Whether this node has children that are processes of this machine, and start with it.
fn bears(station: &Station) -> bool {
    matches!(station.program.starter, Starter::Fork) && !station.late
}

/// Whether a child is what this process is: the same program, with the same rights.
fn is_alike(program: &Program, child: NodeRef<'_>) -> bool {
    child.leaf_index().is_none() || (program.leaf.is_none() && !program.sudo)
}

/// Whether this process has one thread. (Where that cannot be seen, children are started.)
pub(in crate::launch) fn is_alone() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Who goes on.
enum BroodFamily {
    Parent(Brood),
    Child(BroodChild),
}

/// What a child has from its parent.
struct BroodChild {
    rank: u32,
    link: Option<OwnedFd>,
    ancestors: Vec<Ancestor>,
}

fn fork_each(placed: &Placed, door: Door) -> BroodFamily {
    let station = &placed.station;
    let ancestors = station.ancestors_below(&door);
    let mut brood = Brood { door, children: Vec::new() };
    for child in placed.topology.root().children() {
        if station.program.is_guest(child) {
            continue;
        }
        if !is_alike(&station.program, child) {
            brood.children.push(None);
            continue;
        }
        match fork_one(station.program.carrier) {
            Ok(Twin::Parent(newborn)) => brood.children.push(Some(Ok(newborn))),
            Ok(Twin::Child(link)) => {
                // The door, and the links to those born before, are the parent's.
                drop(brood);
                return BroodFamily::Child(BroodChild { rank: child.rank(), link, ancestors });
            }
            Err(error) => brood.children.push(Some(Err(error))),
        }
    }
    BroodFamily::Parent(brood)
}

/// One of the two that there are after a fork.
enum Twin {
    Parent(Newborn),
    Child(Option<OwnedFd>),
}

fn fork_one(carrier: Carrier) -> io::Result<Twin> {
    let (ours, theirs) = match carrier {
        Carrier::Unix => {
            let pair =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            (Some(pair.0), Some(pair.1))
        }
        Carrier::Tcp | Carrier::Tls | Carrier::Auto | Carrier::Ssh => (None, None),
    };
    Ok(match fork()? {
        Some(pid) => Twin::Parent(Newborn { kin: Kin::new(pid), link: ours }),
        None => Twin::Child(theirs),
    })
}

/// Gives the child's number in the parent, and `None` in the child.
#[allow(unsafe_code)]
pub(in crate::launch) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: this process has one thread (the caller has looked, `is_alone`, and starts none), so
    // that no lock is held and nothing is half done by somebody who is missing in the child.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Pid::from_raw(pid))
}

impl Placed {
    /// What the child is to know, from what its parent knows; all that is the parent's is let go.
    fn into_child(self, child: BroodChild) -> io::Result<Self> {
        let Self { topology: above, station, options, .. } = self;
        let topology = above.subtree(child.rank).ok_or(io::ErrorKind::NotFound)?;
        let siblings = above.root().children().len() as u32 - 1;
        let options = Options { depth: options.depth + 1, ..options };
        let station = station.of_child(&topology, child.ancestors)?;
        let link = child.link.map_or(Uplink::Door, |link| Uplink::Open(link.into()));
        Ok(Self { link, topology, station, options, siblings, brood: None })
    }
}
