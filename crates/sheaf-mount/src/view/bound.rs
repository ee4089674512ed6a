//! The own host's export in a view of root's: the directory itself, bound there, with each file system that is
//! mounted below it.
//!
//! ```text
//! /srv            bound at hosts/SELF
//! /srv/data       a file system: bound at hosts/SELF/data
//! /srv/data/old   another, read-only: so it is there
//! ```
//! Without these a view would have what is beneath them, with the rights of the file system above. Each is bound by
//! itself and made a slave before the next: it follows what is mounted and taken away at the place itself, and what
//! is taken away with the view is taken away nowhere else. What cannot be bound, or hangs, is covered.
use super::{MountEntry, mounts};
use crate::fuse::ViewForbids;
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, MountPropagationFlags};
use sheaf_core::Errno;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long one file system may take: one of a server that is gone may take for ever.
const BIND_MAX: Duration = Duration::from_secs(2);

/// Has an export at another place as well.
pub(super) fn bind(export: &Path, at: &Path, forbids: ViewForbids) -> Result<(), Errno> {
    bind_one(export, at, forbids)?;
    let mounts = mounts().map_err(|error| Errno::from_io(&error))?;
    for place in below(&mounts, export) {
        let Ok(rest) = place.strip_prefix(export) else { continue };
        let (from, to) = (place.clone(), at.join(rest));
        let (told, done) = mpsc::channel();
        let begun = std::thread::Builder::new().spawn(move || {
            let _ = told.send(bind_one(&from, &to, forbids));
        });
        let bound = match begun.map(|_| done.recv_timeout(BIND_MAX)) {
            Ok(Ok(bound)) => bound,
            Ok(Err(_)) => Err(Errno::TIMEDOUT),
            Err(error) => Err(Errno::from_io(&error)),
        };
        if let Err(errno) = bound {
            tracing::warn!(place = %place.display(), %errno, "this file system is not in the view");
            cover(&at.join(rest))?;
        }
    }
    Ok(())
}

/// One file system, or a directory of one; what is not done there takes a second step.
fn bind_one(from: &Path, to: &Path, forbids: ViewForbids) -> Result<(), Errno> {
    rustix::mount::mount_bind(from, to)?;
    rustix::mount::mount_change(to, MountPropagationFlags::DOWNSTREAM)?;
    if forbids != ViewForbids::default() {
        // They are set anew, so what is forbidden where the directory is would not be here.
        let flags = flags_of(to)? | forbids.flags();
        rustix::mount::mount_remount(to, MountFlags::BIND | flags, c"")?;
    }
    Ok(())
}

/// Has nothing at a place, where what is beneath it is not to be seen.
fn cover(place: &Path) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    match rustix::mount::mount("none", place, "tmpfs", flags, c"mode=0,size=4k") {
        Err(rustix::io::Errno::NOTDIR) => Ok(rustix::mount::mount_bind("/dev/null", place)?),
        // Then nothing is beneath it.
        Err(rustix::io::Errno::NOENT) => Ok(()),
        covered => Ok(covered?),
    }
}

/// How what is mounted at a place is mounted.
fn flags_of(at: &Path) -> rustix::io::Result<MountFlags> {
    let found = rustix::fs::statvfs(at)?.f_flag;
    let pairs = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let set = pairs.into_iter().filter(|(flag, _)| found.contains(*flag));
    Ok(set.map(|(_, flag)| flag).collect())
}

/// Where something is mounted below a directory that can be seen there and is no part of a view, what is above
/// before what is below.
fn below(mounts: &[MountEntry], directory: &Path) -> Vec<PathBuf> {
    let views = mounts.iter().filter(|of| of.is_top || of.is_fuse);
    let views: Vec<&Path> = views.map(|of| &*of.point).collect();
    let is_meant = |of: &&MountEntry| {
        of.point.starts_with(directory)
            && of.point != directory
            && !views.iter().any(|view| of.point.starts_with(view))
            && is_seen(mounts, of)
    };
    let mut places: Vec<PathBuf> =
        mounts.iter().filter(is_meant).map(|of| of.point.clone()).collect();
    places.sort();
    places.dedup();
    places
}

/// Whether nothing is mounted over something, nor over a directory on the way to it.
fn is_seen(mounts: &[MountEntry], of: &MountEntry) -> bool {
    let mut of = of;
    if mounts.iter().any(|other| other.above == of.id && other.point == of.point) {
        return false;
    }
    // The topmost is on one that is not listed, or on itself.
    for _ in 0..mounts.len() {
        let beside = mounts.iter().filter(|other| other.above == of.above && other.id != of.id);
        if beside.into_iter().any(|other| of.point.starts_with(&other.point)) {
            return false;
        }
        match mounts.iter().find(|above| above.id == of.above && above.id != of.id) {
            Some(above) => of = above,
            None => break,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::listed;
    use super::*;
    use sheaf_file::VIEW_SOURCE;

    #[test]
    fn file_systems_that_can_be_seen_are_bound_in_order() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 8:2 / /srv rw - ext4 /dev/sdb rw
3 2 8:3 / /srv/data/old rw - ext4 /dev/sdc ro
4 2 8:4 / /srv/data rw shared:1 - tmpfs none rw
5 4 8:5 / /srv/data/a\\040b rw - ext4 /dev/sdd rw
6 2 8:6 / /srv/two rw - ext4 /dev/sde rw
7 6 8:7 / /srv/two rw - ext4 /dev/sdf rw
8 7 8:8 / /srv/two/x rw - ext4 /dev/sdg rw
9 6 8:9 / /srv/two/hidden rw - ext4 /dev/sdh rw
10 1 8:10 / /srv2 rw - ext4 /dev/sdi rw
11 2 0:50 / /srv/view rw - tmpfs sheaf rw
12 11 0:51 / /srv/view/hosts/n1 rw - fuse.sheaf sheaf:n1 rw
13 11 8:2 / /srv/view/hosts/n2 rw - ext4 /dev/sdb rw
14 2 0:52 / /srv/one rw - fuse.sheaf n1:/ rw
broken
";
        let text = String::from_utf8_lossy(text)
            .replace("tmpfs sheaf rw", &format!("tmpfs {VIEW_SOURCE} rw"));
        let found = below(&listed(text.as_bytes()), Path::new("/srv"));
        let expected = ["/srv/data", "/srv/data/a b", "/srv/two", "/srv/two/x"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
