//! The directory that files are fetched into. No link in it is followed.
use super::FetchShared;
use super::durable::WrittenFileSystems;
use super::parts::PartMaker;
use super::same::{FileIs, is_given};
use crate::catalog::ArchivedDirectory;
use crate::left::LeftAttributes;
use crate::pack::member::{MemberAttributes, MemberKind, Xattrs};
use crate::path::ArchivePath;
use crate::save::source::xattrs_of;
use crate::walk::names;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, Timestamps, XattrFlags,
};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno as SysErrno;
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata, Timestamp};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Access control lists, of a file and for what is made in a directory.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Whether what is made in a directory inherits a list.
pub(super) fn hands_acl_down(directory: &OwnedFd) -> Result<bool, Errno> {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    match rustix::fs::getxattr(&path, OsStr::from_bytes(ACLS[1]), &mut [0u8; 256][..]) {
        Ok(bytes) => Ok(bytes > 0),
        // A list that has no room in the buffer is one all the same.
        Err(rustix::io::Errno::RANGE) => Ok(true),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(of(errno)),
    }
}

/// The extended attribute of a directory that was made and is not done.
const HELD: &str = "user.sheaf.unfinished";

/// The modes that the system takes away from what is made.
fn umask() -> u32 {
    const USUAL: u32 = 0o022;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let said = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    said.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(USUAL)
}

pub(super) struct FetchTarget {
    base: OwnedFd,
    /// It was made, by this or by one that was broken off.
    pub is_new: bool,
    /// The mode that it would be made with, where it is its maker's alone until it has attributes of its own.
    own_mode: Option<u32>,
    is_settled: AtomicBool,
    is_root: bool,
    uid: u32,
    gid: u32,
    /// Who gives names to what is not whole yet.
    pub maker: PartMaker,
    /// What is to be synced.
    pub written: WrittenFileSystems,
}

/// What is put in a directory.
pub(super) enum PutFile {
    /// It was written.
    Written,
    /// The same was there.
    Same,
    /// What was there is newer.
    Newer,
}

impl FetchTarget {
    /// A directory that is made if it is not there. A link that takes its place then is not followed.
    /// One that is to have the attributes of a directory is its maker's alone until then, and what it is says so to who
    /// goes on where this is broken off.
    pub fn make(path: &Path, is_held: bool) -> Result<Self, Errno> {
        let usual = Mode::from_raw_mode(0o777);
        let mode = if is_held { Mode::RWXU } else { usual };
        let made = sheaf_file::make_directories(path, (usual, mode))?;
        let mut target = match made {
            Some(made) => Self { is_new: true, ..Self::of(made.into_descriptor()) },
            None => Self::open(path)?,
        };
        if is_held {
            target.hold()?;
        }
        Ok(target)
    }

    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(of)?;
        Ok(Self::of(base))
    }

    /// A directory that is open.
    pub fn of(base: OwnedFd) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (maker, written) = (PartMaker::new(), WrittenFileSystems::default());
        Self {
            base,
            is_new: false,
            own_mode: None,
            is_settled: AtomicBool::new(false),
            is_root,
            uid,
            gid,
            maker,
            written,
        }
    }

    /// The mode that it has without attributes of what is in it.
    pub fn base_mode(&self) -> Result<u32, Errno> {
        match self.own_mode {
            Some(mode) => Ok(mode),
            None => Ok(rustix::fs::fstat(&self.base).map_err(of)?.st_mode & 0o7777),
        }
    }

    fn by_link(&self) -> String {
        format!("/proc/self/fd/{}", self.base.as_raw_fd())
    }

    fn hold(&mut self) -> Result<(), Errno> {
        if self.is_new {
            // Where there are no attributes, who goes on takes it for one that was there, and it stays private.
            let _ = rustix::fs::setxattr(self.by_link(), HELD, b"1", XattrFlags::CREATE);
        } else {
            let is_held = rustix::fs::getxattr(self.by_link(), HELD, &mut [0_u8; 8][..]).is_ok();
            let owner = rustix::fs::fstat(&self.base).map_err(of)?.st_uid;
            self.is_new = is_held && owner == self.uid;
        }
        self.own_mode = self.is_new.then(|| 0o777 & !umask());
        Ok(())
    }

    /// The target has the attributes that it is to have.
    pub fn settled(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    /// Ends that, where it has got no attributes: because nothing is in it (it is at `to`), or there are none of the
    /// top of an archive.
    pub fn let_go(&self, to: &Path, is_top: bool) -> Result<(), Errno> {
        let Some(own_mode) = self.own_mode else { return Ok(()) };
        if !self.is_settled.load(Ordering::Relaxed) {
            if rustix::fs::rmdir(to).is_ok() {
                return Ok(());
            }
            if is_top {
                let mode = Mode::from_raw_mode(own_mode);
                rustix::fs::chmodat(CWD, self.by_link(), mode, AtFlags::empty()).map_err(of)?;
            }
        }
        match rustix::fs::removexattr(self.by_link(), HELD) {
            Ok(()) | Err(SysErrno::NODATA | SysErrno::NOTSUP | SysErrno::PERM) => Ok(()),
            Err(errno) => Err(of(errno)),
        }
    }

    /// A directory below, whose path may be longer than the system takes.
    pub fn directory(&self, path: &ArchivePath) -> Result<OwnedFd, Errno> {
        names::open_beneath(self.base.as_fd(), path)
    }

    /// Makes a directory, if it is not there; whether it was. Until its attributes are set it is its
    /// maker's alone.
    pub fn make_directory(&self, path: &ArchivePath) -> Result<bool, Errno> {
        let Some((above, name)) = path.split() else { return Ok(true) };
        let above = self.directory(&above)?;
        match rustix::fs::mkdirat(&above, OsStr::from_bytes(name), Mode::RWXU) {
            // A file or link of the name is refused there.
            Err(rustix::io::Errno::EXIST) => self.directory(path).map(|_| true),
            made => {
                made.map_err(of)?;
                self.written.add(&above).map(|()| false)
            }
        }
    }

    /// Takes away what fetches that were killed have left in a directory.
    pub fn clean(&self, path: &ArchivePath) -> Result<(), Errno> {
        self.maker.clean(self.directory(path)?.as_fd())
    }

    /// Sets what a directory is; with `overwrites`, it keeps no extended attribute that is not archived.
    /// Which attributes could not be set.
    pub fn finish_directory(
        &self,
        path: &ArchivePath,
        is: &ArchivedDirectory,
        overwrites: bool,
    ) -> Result<LeftAttributes, Errno> {
        let open = self.directory(path)?;
        if overwrites {
            let at = format!("/proc/self/fd/{}", open.as_raw_fd());
            for (name, _) in xattrs_of(open.as_fd())? {
                if !is_given(&name) && !is.xattrs.iter().any(|(known, _)| *known == name) {
                    // One that cannot be removed differs, as one that cannot be set.
                    match rustix::fs::removexattr(&at, OsStr::from_bytes(&name)) {
                        Ok(()) | Err(SysErrno::NODATA) => {}
                        Err(errno) => return Ok(vec![(name, of(errno))]),
                    }
                }
            }
        }
        let mtime = Timestamp { seconds: is.mtime_s, nanoseconds: is.mtime_ns };
        // It may have inherited lists, too.
        self.set(open.as_fd(), (is.uid, is.gid), &is.xattrs, Some(is.mode), mtime, true)
    }

    /// Owner, extended attributes, mode and time, in an order in which none undoes another.
    fn set(
        &self,
        file: BorrowedFd<'_>,
        (uid, gid): (u32, u32),
        xattrs: &Xattrs,
        mode: Option<u32>,
        mtime: Timestamp,
        inherits: bool,
    ) -> Result<LeftAttributes, Errno> {
        let mut left = Vec::new();
        // What is open as a mere path is reached by this one.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // Another owner takes away set-user-ID bits and capabilities, so it comes first.
        if self.is_root {
            let owner = owner_of(uid, gid)?;
            rustix::fs::chownat(file, c"", owner.0, owner.1, AtFlags::EMPTY_PATH).map_err(of)?;
        }
        for (name, value) in xattrs {
            let is_mine = name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
            let set =
                || rustix::fs::setxattr(&path, OsStr::from_bytes(name), value, XattrFlags::empty());
            let set = match if self.is_root || is_mine { set() } else { Err(SysErrno::PERM) } {
                // Its owner may not write to it either, with the mode that it is made with.
                Err(SysErrno::ACCESS) if mode.is_some() => {
                    rustix::fs::chmodat(CWD, &path, Mode::RWXU, AtFlags::empty())
                        .and_then(|()| set())
                }
                set => set,
            };
            if let Err(errno) = set {
                left.push((name.clone(), of(errno)));
            }
        }
        if inherits {
            for name in ACLS.iter().filter(|acl| !xattrs.iter().any(|(name, _)| name == *acl)) {
                match rustix::fs::removexattr(&path, OsStr::from_bytes(name)) {
                    Ok(()) | Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {}
                    Err(errno) => left.push((name.to_vec(), of(errno))),
                }
            }
        }
        if let Some(mode) = mode {
            // Of a file with a list the group's bits are the most that anybody of the list may: without it the group
            // would have them.
            let has_list = !left.iter().any(|(name, _)| name == ACLS[0]);
            let mode = Mode::from_raw_mode(if has_list { mode } else { mode & !0o070 });
            rustix::fs::chmodat(CWD, &path, mode, AtFlags::empty()).map_err(of)?;
        }
        rustix::fs::utimensat(file, c"", &times_of(mtime), AtFlags::EMPTY_PATH).map_err(of)?;
        Ok(left)
    }

    /// Sets what a regular file is that was just made, as far as it is not so already.
    pub(super) fn finish_file(
        &self,
        file: &File,
        is: &MemberAttributes,
        inherits: bool,
    ) -> Result<LeftAttributes, Errno> {
        if !is.xattrs.is_empty() || inherits {
            return self.finish(file.as_fd(), is, inherits);
        }
        let made = rustix::fs::fstat(file).map_err(of)?;
        let mut made_mode = made.st_mode & 0o7777;
        if self.is_root && (made.st_uid, made.st_gid) != (is.uid, is.gid) {
            let owner = owner_of(is.uid, is.gid)?;
            rustix::fs::fchown(file, owner.0, owner.1).map_err(of)?;
            // Some bits do not outlast another owner.
            made_mode &= 0o777;
        }
        let mode = self.mode(is);
        if made_mode != mode {
            rustix::fs::fchmod(file, Mode::from_raw_mode(mode)).map_err(of)?;
        }
        rustix::fs::futimens(file, &times_of(is.mtime)).map_err(of)?;
        Ok(Vec::new())
    }

    /// The directory itself, as a mere path.
    pub fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    pub fn is_root(&self) -> bool {
        self.is_root
    }

    /// A file's mode. What runs as its owner or group does so only where these are the archived ones.
    pub fn mode(&self, is: &MemberAttributes) -> u32 {
        let mut mode = is.mode;
        if !self.is_root && is.uid != self.uid {
            mode &= !0o4000;
        }
        if !self.is_root && is.gid != self.gid {
            mode &= !0o2000;
        }
        mode
    }

    /// With which mode a file is made: its own where that opens it to nobody who may not have it.
    fn first_mode(&self, is: &MemberAttributes) -> Mode {
        let is_mine = !self.is_root || (is.uid, is.gid) == (0, self.gid);
        let mode = if is_mine { is.mode & 0o777 } else { 0o600 };
        Mode::from_raw_mode(mode)
    }

    /// Sets what a file is. Which attributes could not be set.
    fn finish(
        &self,
        file: BorrowedFd<'_>,
        is: &MemberAttributes,
        inherits: bool,
    ) -> Result<LeftAttributes, Errno> {
        let mode = (!matches!(is.kind, MemberKind::Symlink { .. })).then_some(self.mode(is));
        self.set(file, (is.uid, is.gid), &is.xattrs, mode, is.mtime, inherits && mode.is_some())
    }
}

/// A directory that files are put in, by one worker.
pub(super) struct FetchDirectory<'a> {
    pub shared: &'a FetchShared<'a>,
    pub path: ArchivePath,
    pub open: OwnedFd,
    /// What files are called until they are whole.
    pub part: String,
    pub overwrite: bool,
    /// It was made for this, so nothing is looked for in it.
    pub is_new: bool,
    /// What is made in it has an access control list by that.
    pub is_inherited: bool,
    /// Something was put in it.
    pub is_written: bool,
}

impl FetchDirectory<'_> {
    /// What is to become of a file of this name: nothing if it is to be written.
    pub fn standing(&self, file: FileIs<'_>) -> Result<Option<PutFile>, Errno> {
        let is = file.attributes;
        if self.is_new {
            return Ok(None);
        }
        let Some(found) = self.found(&is.name)? else { return Ok(None) };
        if found.is_dir() {
            return Err(Errno::ISDIR);
        }
        let (kind, size) = (kind_of(is), size_of(is, file.size));
        if (found.kind, found.mtime, found.size) == (kind, is.mtime, size) {
            // What is to be as it is archived is compared, and not believed.
            let is_same =
                !self.overwrite || self.shared.target.has(self.open.as_fd(), &is.name, file);
            return Ok(is_same.then_some(PutFile::Same));
        }
        Ok((found.mtime > is.mtime && !self.overwrite).then_some(PutFile::Newer))
    }

    /// What is there under a name.
    fn found(&self, name: &[u8]) -> Result<Option<Metadata>, Errno> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let name = OsStr::from_bytes(name);
        match rustix::fs::statx(&self.open, name, AtFlags::SYMLINK_NOFOLLOW, wanted) {
            Ok(found) => Ok(Some(found.into())),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(errno) => Err(of(errno)),
        }
    }

    /// Puts a regular file there, of what `fill` writes into it.
    pub fn put_file<E: From<Errno>>(
        &mut self,
        is: &MemberAttributes,
        fill: impl FnOnce(&File) -> Result<(), E>,
    ) -> Result<(), E> {
        let flags =
            // `EXCL` follows no link, so nothing outside of this directory is written.
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = match self.is_inherited {
            // Nobody whom the list names can read it before that is taken away.
            true => Mode::RUSR | Mode::WUSR,
            false => self.shared.target.first_mode(is),
        };
        let file = self.made(|part, open| rustix::fs::openat(open, part, flags, mode))?;
        let file = File::from(file);
        let put = fill(&file)
            .and_then(|()| Ok(self.shared.target.finish_file(&file, is, self.is_inherited)?));
        self.named(&is.name, put)
    }

    /// Puts there what has no content.
    pub fn put_special(&mut self, is: &MemberAttributes) -> Result<(), Errno> {
        let node = |kind, device| {
            move |part: &str, open: &OwnedFd| {
                rustix::fs::mknodat(open, part, kind, Mode::RUSR | Mode::WUSR, device)
            }
        };
        let device = |major, minor| rustix::fs::makedev(major, minor);
        match &is.kind {
            MemberKind::Symlink { target } => {
                let target = OsStr::from_bytes(target);
                self.made(|part, open| rustix::fs::symlinkat(target, open, part))?;
            }
            MemberKind::Fifo => self.made(node(FileType::Fifo, 0))?,
            MemberKind::CharDevice { major, minor } => {
                self.made(node(FileType::CharacterDevice, device(*major, *minor)))?;
            }
            MemberKind::BlockDevice { major, minor } => {
                self.made(node(FileType::BlockDevice, device(*major, *minor)))?;
            }
            MemberKind::File | MemberKind::HardLink { .. } => return Err(Errno::INVAL),
        }
        // As a mere path: to open a pipe would wait, and to open a device may do anything.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.open, &*self.part, flags, Mode::empty());
        let put = file
            .map_err(of)
            .and_then(|file| self.shared.target.finish(file.as_fd(), is, self.is_inherited));
        self.named(&is.name, put)
    }

    /// Puts another name of a file there, which is in a directory under a name.
    pub fn put_link(&mut self, from: &OwnedFd, old: &[u8], name: &[u8]) -> Result<PutFile, Errno> {
        let wanted = StatxFlags::BASIC_STATS;
        let old = OsStr::from_bytes(old);
        let known = rustix::fs::statx(from, old, AtFlags::SYMLINK_NOFOLLOW, wanted).map_err(of)?;
        let known = Metadata::from(known);
        match self.found(name)? {
            Some(found) if found.is_dir() => return Err(Errno::ISDIR),
            Some(found) if found.id() == known.id() => return Ok(PutFile::Same),
            Some(found) if found.mtime > known.mtime && !self.overwrite => {
                return Ok(PutFile::Newer);
            }
            _ => {}
        }
        self.made(|part, open| rustix::fs::linkat(from, old, open, part, AtFlags::empty()))?;
        self.named(name, Ok::<_, Errno>(Vec::new())).map(|()| PutFile::Written)
    }

    /// Makes what has no name yet; what one that was killed has left is in the way no longer.
    fn made<T>(&self, make: impl Fn(&str, &OwnedFd) -> rustix::io::Result<T>) -> Result<T, Errno> {
        match make(&self.part, &self.open) {
            Err(rustix::io::Errno::EXIST) => {
                rustix::fs::unlinkat(&self.open, &*self.part, AtFlags::empty()).map_err(of)?;
                make(&self.part, &self.open).map_err(of)
            }
            made => made.map_err(of),
        }
    }

    /// Gives it its name. Where somebody else has put something into a new directory, or the system does
    /// not tell, it is new no longer, and this is to be done again.
    fn rename(&mut self, name: &OsStr) -> rustix::io::Result<()> {
        if !self.is_new {
            return rustix::fs::renameat(&self.open, &*self.part, &self.open, name);
        }
        let flags = RenameFlags::NOREPLACE;
        let renamed = rustix::fs::renameat_with(&self.open, &*self.part, &self.open, name, flags);
        self.is_new = renamed.is_ok();
        renamed
    }

    /// Gives it its name, or takes it away if it is not whole.
    pub(super) fn named<E: From<Errno>>(
        &mut self,
        name: &[u8],
        put: Result<LeftAttributes, E>,
    ) -> Result<(), E> {
        let renamed = put.and_then(|left| {
            self.rename(OsStr::from_bytes(name)).map_err(of)?;
            if !std::mem::replace(&mut self.is_written, true) {
                self.shared.target.written.add(&self.open)?;
            }
            if !left.is_empty() {
                self.shared.attributes_left(&self.path.join(name), left);
            }
            Ok(())
        });
        if renamed.is_err() {
            // The first error is told; what stays has a name that is nobody's.
            let _ = rustix::fs::unlinkat(&self.open, &*self.part, AtFlags::empty());
        }
        renamed
    }
}

/// An owner as the system takes it. The highest number is none: it would leave the file to root.
fn owner_of(uid: u32, gid: u32) -> Result<(Option<Uid>, Option<Gid>), Errno> {
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno::INVAL);
    }
    Ok((Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))))
}

/// The time of the last change as both times of a file.
fn times_of(mtime: Timestamp) -> Timestamps {
    let time =
        rustix::fs::Timespec { tv_sec: mtime.seconds, tv_nsec: i64::from(mtime.nanoseconds) };
    Timestamps { last_access: time, last_modification: time }
}

fn kind_of(is: &MemberAttributes) -> FileKind {
    match is.kind {
        MemberKind::File | MemberKind::HardLink { .. } => FileKind::File,
        MemberKind::Symlink { .. } => FileKind::Symlink,
        MemberKind::Fifo => FileKind::Fifo,
        MemberKind::CharDevice { .. } => FileKind::CharDevice,
        MemberKind::BlockDevice { .. } => FileKind::BlockDevice,
    }
}

/// What `st_size` is of it.
fn size_of(is: &MemberAttributes, size: u64) -> u64 {
    match &is.kind {
        MemberKind::Symlink { target } => target.len() as u64,
        _ => size,
    }
}

pub(super) fn of(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_number_is_no_owner() {
        assert!(owner_of(0, u32::MAX).is_err() && owner_of(u32::MAX, 0).is_err());
        assert!(owner_of(u32::MAX - 1, 0).is_ok());
    }
}
