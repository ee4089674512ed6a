//! The view: a directory with all hosts in it.
//!
//! ```text
//! POINT            a small file system of its own (as root), or a directory
//! ├── hosts
//! │   ├── here     a link to the directory of this host, if it is one of the hosts
//! │   ├── n1       mounted by FUSE: the files of n1
//! │   ├── n2       …
//! │   └── SELF     this host: its export itself, bound there (as root), or a link to it
//! ├── all          mounted by FUSE: the merge of all, for who has mounted it
//! └── groups       mounted by FUSE: groups of files, for who has mounted it
//! ```
//! A view can also be one directory of one host: then it is one FUSE mount.
use crate::all::AllView;
use crate::fuse::{MountError, MountOptions, Mounted, Remote, ViewForbids, end_hanging, unmount};
use crate::groups::GroupsView;
use crate::own::{OwnFiles, OwnMount};
use rustix::mount::{MountFlags, UnmountFlags};
use sheaf_core::Errno;
use sheaf_file::{VIEW_SOURCE, VIEW_TYPE};
use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

mod bound;

use bound::bind;

/// Where hosts are, the merge of all, and groups.
const HOSTS: &str = "hosts";
const ALL: &str = "all";
const GROUPS: &str = "groups";
/// The link to this host's own files, among those of the hosts.
const HERE: &str = "here";
/// What the sources of mounts begin with that are parts of a view.
pub(crate) const PART: &str = "sheaf:";

/// A host of a view.
pub enum ViewHost<R> {
    /// Its files are asked for.
    Remote(Arc<R>),
    /// It is this one, and exports this directory.
    Own(PathBuf),
}

/// What is in a view.
pub struct ViewParts<R> {
    /// Hosts, by their names.
    pub hosts: Vec<(String, ViewHost<R>)>,
    /// The merge of all.
    pub all: AllView,
    /// Groups.
    pub groups: GroupsView,
}

/// Why there is no view.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The directory is not one in which there can be one.
    #[error("{}: {why}", point.display())]
    Point {
        /// Which one.
        point: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A part of it is not there.
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// A view that is mounted. Dropped, it is not there any more.
#[derive(Debug)]
pub struct MountedView {
    point: PathBuf,
    mounts: Vec<Mounted>,
    /// Its own file system, which it has as root.
    own: Option<ViewMark>,
}

impl MountedView {
    /// Mounts it at a directory, which has to be there and empty.
    ///
    /// # Errors
    /// [`ViewError`]; what was mounted before that is taken away again.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new<R: Remote>(
        point: &Path,
        parts: ViewParts<R>,
        forbids: ViewForbids,
    ) -> Result<Self, ViewError> {
        let is_root = rustix::process::geteuid().is_root();
        let failed = |why: String| ViewError::Point { point: point.to_owned(), why };
        let point = check(point).map_err(failed)?;
        if is_root {
            // Nobody else enters before all is in it: beneath what the own host has mounted are other files.
            let (flags, data) = (MountFlags::NOSUID | MountFlags::NODEV, c"mode=700,size=1m");
            rustix::mount::mount(VIEW_SOURCE, &point, "tmpfs", flags, data)
                .map_err(|errno| failed(format!("cannot be mounted at: {}", Errno::from(errno))))?;
        }
        let own = is_root.then(|| mark(&point)).flatten();
        let mut view = Self { point: point.clone(), mounts: Vec::new(), own };
        let own_name = parts.hosts.iter().find(|(_, host)| matches!(host, ViewHost::Own(_)));
        let own_name = own_name.map(|(name, _)| name.clone());
        let has_here = parts.hosts.iter().any(|(name, _)| name == HERE);
        for (name, host) in parts.hosts {
            let at = point.join(HOSTS).join(&name);
            if let (ViewHost::Own(export), false) = (&host, is_root) {
                let made = std::fs::create_dir_all(point.join(HOSTS))
                    .and_then(|()| std::os::unix::fs::symlink(export, &at));
                made.map_err(|error| {
                    failed(format!("{}: {}", at.display(), Errno::from_io(&error)))
                })?;
                continue;
            }
            let source = format!("{PART}{name}");
            let options = MountOptions { source, for_all: is_root, forbids };
            match host {
                ViewHost::Own(export) => {
                    std::fs::create_dir_all(&at)
                        .map_err(Errno::from)
                        .and_then(|()| bind(&export, &at, forbids))
                        .map_err(|errno| failed(format!("{}: {errno}", at.display())))?;
                }
                ViewHost::Remote(remote) => view.mount(remote, at, &options)?,
            }
        }
        if let (Some(name), false) = (own_name, has_here) {
            let here = point.join(HOSTS).join(HERE);
            std::os::unix::fs::symlink(name, &here).map_err(|error| {
                failed(format!("{}: {}", here.display(), Errno::from_io(&error)))
            })?;
        }
        view.mount_own(parts.all, ALL, forbids)?;
        // Groups are the view's, and no files. What is written to their files is refused by them.
        view.mount_own(parts.groups, GROUPS, ViewForbids { writes: false, ..forbids })?;
        if is_root {
            std::fs::set_permissions(&point, Permissions::from_mode(0o755))
                .map_err(|error| failed(Errno::from_io(&error).to_string()))?;
        }
        Ok(view)
    }

    /// Mounts the files of one host at a directory, which has to be there and empty. `source` is what `mount(8)` shows.
    ///
    /// # Errors
    /// [`ViewError`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn of_one<R: Remote>(
        point: &Path,
        source: String,
        remote: Arc<R>,
        forbids: ViewForbids,
    ) -> Result<Self, ViewError> {
        let for_all = rustix::process::geteuid().is_root();
        let failed = |why: String| ViewError::Point { point: point.to_owned(), why };
        let point = check(point).map_err(failed)?;
        let options = MountOptions { source, for_all, forbids };
        let mounts = vec![Mounted::new(remote, &point, &options)?];
        Ok(Self { point, mounts, own: None })
    }

    /// Mounts what this process has itself. It acts for the user who has mounted it, so it refuses all others.
    /// In root's view these see its directory.
    fn mount_own<F: OwnFiles>(
        &mut self,
        files: F,
        name: &str,
        forbids: ViewForbids,
    ) -> Result<(), ViewError> {
        let source = format!("{PART}{name}");
        let for_all = rustix::process::geteuid().is_root();
        let options = MountOptions { source, for_all, forbids };
        self.mount(Arc::new(OwnMount(files)), self.point.join(name), &options)
    }

    fn mount<R: Remote>(
        &mut self,
        remote: Arc<R>,
        at: PathBuf,
        options: &MountOptions,
    ) -> Result<(), ViewError> {
        std::fs::create_dir_all(&at).map_err(|error| {
            let why = format!("{}: {}", at.display(), Errno::from_io(&error));
            ViewError::Point { point: self.point.clone(), why }
        })?;
        self.mounts.push(Mounted::new(remote, &at, options)?);
        Ok(())
    }

    /// Where it is.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Waits until somebody has taken away what is mounted.
    pub async fn ended(&mut self) {
        for mount in &mut self.mounts {
            mount.ended().await;
        }
    }
}

impl Drop for MountedView {
    fn drop(&mut self) {
        // Somebody may have taken it away long ago, while programs were in it, and mounted another.
        let is_own = match self.own {
            Some(own) => mark(&self.point) == Some(own),
            None => self.mounts.is_empty() || !self.mounts.iter().all(Mounted::is_gone),
        };
        if !is_own {
            return self.mounts.iter_mut().for_each(Mounted::leave);
        }
        self.mounts.clear();
        if let Err(error) = clear_away(&self.point) {
            tracing::warn!(point = %self.point.display(), %error, "it stays");
        }
    }
}

/// What tells a file system from others: its number, which is given again when it is gone, and when it was made.
type ViewMark = (u64, Option<SystemTime>);

fn mark(point: &Path) -> Option<ViewMark> {
    std::fs::metadata(point).ok().map(|found| (found.dev(), found.created().ok()))
}

/// The directory of a view, as the system knows it; why there can be none.
fn check(point: &Path) -> Result<PathBuf, String> {
    let said = |error: io::Error| Errno::from_io(&error).to_string();
    let place = point.canonicalize().map_err(said)?;
    let mut entries = place.read_dir().map_err(said)?;
    let there = mounts_below(&place).map_err(said)?;
    if !there.is_empty() {
        let is_view = there.iter().any(|mount| mount.view().as_deref() == Some(&place));
        let remedy = if is_view { ": sheaf umount takes a view away" } else { "" };
        return Err(format!("something is mounted there{remedy}"));
    }
    match entries.next() {
        None => Ok(place),
        Some(Ok(first)) => Err(format!(
            "is not empty: {}: a view needs an empty directory",
            first.file_name().display()
        )),
        Some(Err(error)) => Err(said(error)),
    }
}

/// Why a view is not taken away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeAwayError {
    /// There is none.
    #[error("no view is mounted there")]
    None,
    /// Only a view as a whole is taken away.
    #[error("is a part of the view at {}: sheaf umount {}", .0.display(), .0.display())]
    Part(PathBuf),
    /// It is somebody else's.
    #[error("user {0} has mounted it")]
    Others(u32),
    /// A part of it stays.
    #[error("{0}")]
    Stays(#[from] io::Error),
}

/// Takes a view away that is mounted at a directory; programs that are in it stay, and get errors.
///
/// # Errors
/// [`TakeAwayError`]; whatever is mounted there that is no view stays as it is.
pub fn take_away(point: &Path) -> Result<(), TakeAwayError> {
    let mounts = mounts()?;
    let of_view: Vec<(PathBuf, &MountEntry)> =
        mounts.iter().filter_map(|mount| Some((mount.view()?, mount))).collect();
    // The last one is on top.
    let is_covered = mounts
        .iter()
        .rfind(|mount| mount.point == point)
        .is_some_and(|top| !(top.is_top || top.is_one));
    match of_view.iter().rfind(|(view, _)| view == point) {
        Some(_) if is_covered => Err(TakeAwayError::None),
        Some((_, mount)) => {
            let own = rustix::process::geteuid();
            match mount.user {
                Some(user) if !own.is_root() && user != own.as_raw() => {
                    Err(TakeAwayError::Others(user))
                }
                _ => Ok(clear_away(point)?),
            }
        }
        None => match of_view.iter().rfind(|(view, _)| point.starts_with(view)) {
            Some((view, _)) => Err(TakeAwayError::Part(view.clone())),
            None => Err(TakeAwayError::None),
        },
    }
}

/// Takes away what there is of a view.
fn clear_away(point: &Path) -> io::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    let mut mounts = mounts_below(point)?;
    // In a file system of its own all is the view's; in a directory there may be others.
    let is_one = mounts.iter().any(|mount| mount.is_one && mount.point == point);
    let is_top = mounts.iter().any(|mount| mount.is_top && mount.point == point);
    let has_own = is_root && (is_top || is_one);
    mounts.retain(|mount| has_own || mount.view().as_deref() == Some(point));
    // All that is mounted in it goes with it. The paths of those may lead by a host that is gone.
    let is_taken = |mount: &&MountEntry| !has_own || mount.point == point;
    for mount in mounts.iter().filter(is_taken).rev() {
        let done = match mount.is_fuse {
            true => unmount(&mount.point),
            false => rustix::mount::unmount(&mount.point, UnmountFlags::DETACH).map_err(Into::into),
        };
        // Whoever has mounted it does the same when a part of it is gone.
        let is_there = |mounts: &[MountEntry]| mounts.iter().any(|one| one.point == mount.point);
        if done.is_err() && is_there(&mounts_below(point)?) {
            done?;
        }
    }
    let connections: Vec<u64> =
        mounts.iter().filter(|mount| mount.is_fuse).map(|mount| mount.device).collect();
    end_hanging(&connections);
    if is_one {
        return Ok(());
    }
    // What was made there by a user who is not root.
    let hosts = point.join(HOSTS);
    for entry in hosts.read_dir().into_iter().flatten() {
        let entry = entry?;
        gone(match entry.file_type()?.is_symlink() {
            true => std::fs::remove_file(entry.path()),
            false => std::fs::remove_dir(entry.path()),
        })?;
    }
    for name in [HOSTS, ALL, GROUPS] {
        gone(std::fs::remove_dir(point.join(name)))?;
    }
    Ok(())
}

/// It is not there any more, whoever has removed it.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Something that is mounted.
struct MountEntry {
    id: u64,
    /// What it is mounted on.
    above: u64,
    point: PathBuf,
    device: u64,
    is_fuse: bool,
    /// The file system of a view of root's.
    is_top: bool,
    /// A view of one directory.
    is_one: bool,
    /// Who has mounted it, as far as that is said.
    user: Option<u32>,
}

impl MountEntry {
    /// Where the view is that this is of.
    fn view(&self) -> Option<PathBuf> {
        if self.is_top || self.is_one {
            return Some(self.point.clone());
        }
        let above = self.point.parent().filter(|_| self.is_fuse)?;
        let is_named = |path: &Path, name: &str| path.file_name().is_some_and(|one| one == name);
        if is_named(above, HOSTS) {
            return above.parent().map(Path::to_owned);
        }
        let is_part = is_named(&self.point, ALL) || is_named(&self.point, GROUPS);
        is_part.then(|| above.to_owned())
    }
}

/// All that is mounted, in the order in which it was.
fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(listed(&std::fs::read("/proc/self/mountinfo")?))
}

fn listed(mountinfo: &[u8]) -> Vec<MountEntry> {
    let lines = mountinfo.split(|byte| *byte == b'\n').filter_map(|line| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let number = |at: usize| str::from_utf8(words.get(at)?).ok()?.parse().ok();
        let behind = words.iter().position(|word| *word == b"-")? + 1;
        let word = |at: usize| words.get(behind + at).copied().unwrap_or_default();
        let (kind, source) = (word(0), word(1));
        let options = str::from_utf8(word(2)).unwrap_or_default();
        let is_fuse = kind == VIEW_TYPE.as_bytes();
        let is_top = kind == b"tmpfs" && source == VIEW_SOURCE.as_bytes();
        let user = options.split(',').find_map(|option| option.strip_prefix("user_id="));
        Some(MountEntry {
            id: number(0)?,
            above: number(1)?,
            point: PathBuf::from(unescaped(words.get(4)?)),
            device: device_number(words.get(2)?).unwrap_or(0),
            is_fuse,
            is_top,
            is_one: is_fuse && !source.starts_with(PART.as_bytes()),
            user: if is_top { Some(0) } else { user.and_then(|user| user.parse().ok()) },
        })
    });
    lines.collect()
}

/// A device's number, as the kernel lists it.
fn device_number(text: &[u8]) -> Option<u64> {
    let (major, minor) = str::from_utf8(text).ok()?.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A part of a view that is mounted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOfView {
    /// The view.
    pub view: PathBuf,
    /// Where the part is, such as `hosts/n1`.
    pub part: PathBuf,
    /// The user who has mounted it.
    pub user: u32,
}

/// The parts of all views that are mounted here by FUSE, except file systems below exports.
///
/// # Errors
/// When the system does not list its mounts.
pub fn mounts_of_views() -> io::Result<Vec<MountOfView>> {
    let mounts = mounts()?.into_iter().filter(|mount| mount.is_fuse);
    let of_view = |mount: MountEntry| {
        let view = mount.view()?;
        let part = mount.point.strip_prefix(&view).ok()?.to_owned();
        Some(MountOfView { view, part, user: mount.user? })
    };
    Ok(mounts.filter_map(of_view).collect())
}

/// What is mounted at a directory and below it.
fn mounts_below(point: &Path) -> io::Result<Vec<MountEntry>> {
    let mut found = mounts()?;
    found.retain(|mount| mount.point.starts_with(point));
    Ok(found)
}

/// A path as the kernel lists it: with spaces and the like in octal digits.
pub(crate) fn unescaped(text: &[u8]) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let number = digits.and_then(|digits| str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn paths_are_read_as_the_kernel_lists_them() {
        assert_eq!(unescaped(br"/a\040b\134c"), OsStr::from_bytes(b"/a b\\c"));
        assert_eq!(unescaped(br"/a\04"), OsStr::from_bytes(br"/a\04"));
    }
}
