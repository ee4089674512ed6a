//! Where the new file goes, and how it gets its name.

use super::StageOptions;
use super::way::{Makers, judged_place, walk};
use crate::Result;
use crate::attributes::{
    ACCESS_LIST, Attributes, Subject, Xattr, apply, remove_list, some_xattrs_of,
};
use crate::export::{Export, ExportPlace, name_metadata};
use crate::identity::FileIdentity;
use crate::itself::unless_itself;
use crate::leases::outlasting_leases;
use crate::owner::Owner;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno as SysErrno;
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the names of temporary files begin, where there must be one.
pub const TEMP_PREFIX: &str = ".sheaf-tmp-";

/// How many names of temporary files are tried before `EEXIST` is given up to.
const TEMP_TRIES_MAX: usize = 64;

/// How many symbolic links a destination may lead through; the system's own limit.
pub(super) const LINKS_MAX: usize = 40;

/// File systems whose files are doors to the kernel and cannot be replaced: proc, sysfs, cgroup,
/// cgroup2, debugfs, tracefs, securityfs, configfs, selinuxfs, efivarfs.
const KERNEL_FILE_SYSTEMS: [u32; 10] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0xf97c_ff8c,
    0xde5e_81e4,
];

/// A name for a file until it gets its own. Nobody can foresee it, and take it before.
#[must_use]
pub fn temp_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut random = [0; 8];
    // Soon after a boot the kernel may have none: the number tells names apart by itself.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{TEMP_PREFIX}{:016x}", u64::from_ne_bytes(random) ^ number)
}

/// How the destination is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageKind {
    /// Into a file without a name, which gets one at the end.
    Anonymous,
    /// Into a file with a temporary name.
    Named,
    /// Directly, a file.
    InPlace,
    /// Directly, a pipe or device.
    Stream,
}

/// What a file hands on to the one that takes its place.
#[derive(Debug)]
struct OldFile {
    metadata: Metadata,
    xattrs: Vec<Xattr>,
    /// It may have an access list that could not be read.
    may_lack_list: bool,
}

#[derive(Debug)]
pub(super) struct Destination {
    pub kind: StageKind,
    dir: OwnedFd,
    name: OsString,
    /// The temporary name to remove.
    temp: Option<OsString>,
    /// What a file that is replaced hands on.
    old: Option<OldFile>,
}

/// Whether a file is this user's, or root's.
fn is_own(file: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&file.uid)
}

impl Destination {
    /// Finds the destination and opens what is to be written. A destination that is `source` is not
    /// written directly (`ESAMEFILE`).
    pub fn open(
        export: &Export,
        path: &Path,
        options: &StageOptions,
        source: Option<&FileIdentity>,
    ) -> Result<(Self, File)> {
        let (place, makers) = match options.wary {
            _ if options.over_special => (unfollowed_place(export, path)?, Makers::default()),
            true => judged_place(export, path)?,
            false => (final_place(export, path)?, Makers::default()),
        };
        let ExportPlace { mut dir, mut name, must_be_dir } = place;
        let old = match name_metadata(dir.as_fd(), &name) {
            Ok(metadata) if metadata.is_dir() => return Err(Errno::ISDIR),
            Ok(_) if must_be_dir => return Err(Errno::NOTDIR),
            // It hands on nothing.
            Ok(other) if options.over_special && other.kind != FileKind::File => None,
            Ok(metadata) => Some(metadata),
            Err(Errno::NOENT) if must_be_dir => return Err(Errno::ISDIR),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        if !makers.may_lead_to(old.as_ref().map(|old| old.uid)) {
            return Err(Errno::ACCES);
        }
        let is_special = old.as_ref().is_some_and(|old| old.kind != FileKind::File);
        if options.wary && is_special {
            // Whoever owns a pipe, or could have put it there, may be the one who reads it.
            let (place, makers) = walk(export, path)?;
            if !makers.may_lead_to(None) || !is_own(&name_metadata(place.dir.as_fd(), &place.name)?)
            {
                return Err(Errno::ACCES);
            }
            (dir, name) = (place.dir, place.name);
        }
        let mut found = Self { kind: StageKind::Anonymous, dir, name, temp: None, old: None };
        let file = if is_special {
            found.kind = StageKind::Stream;
            found.open_direct(OFlags::WRONLY | OFlags::NONBLOCK, options)?
        } else if old.is_some() && is_made_up(&found.dir)? {
            found.kind = StageKind::Stream;
            found.open_direct(OFlags::WRONLY | OFlags::TRUNC, options)?
        } else if options.in_place {
            found.kind = StageKind::InPlace;
            let opened = match found.open_direct(OFlags::RDWR | OFlags::CREATE, options) {
                // It may be one that this user may write and not read.
                Err(Errno::ACCES) => found.open_direct(OFlags::WRONLY | OFlags::CREATE, options)?,
                opened => opened?,
            };
            // To empty it would take what is still to be read.
            if source.map(|source| source.is(&opened)).transpose()?.is_some_and(|is| is) {
                return Err(Errno::SAMEFILE);
            }
            rustix::fs::ftruncate(&opened, 0)?;
            opened
        } else {
            if let Some(old) = old {
                found.remember(old, options)?;
            }
            found.open_temp(options)?
        };
        Ok((found, file))
    }

    /// Gives the new file what the old one had and what is not `given` to it otherwise: nobody has it for a
    /// moment who has not got it in the end. Whoever may not give files away keeps them; set-id bits then do
    /// not come along.
    pub fn inherit(&self, file: &File, given: &Attributes) -> Result<()> {
        let Some(OldFile { metadata: old, xattrs, may_lack_list }) = &self.old else {
            return Ok(());
        };
        let new = crate::export::fd_metadata(file.as_fd())?;
        let mut mode = old.mode;
        if !may_keep_ids() {
            // Where the kernel writes for a user it drops these, too: new contents get no old
            // powers.
            mode &= if mode & 0o010 != 0 { !0o6000 } else { !0o4000 };
        }
        let kept = |given: Option<u32>, old: u32| if given.is_some() { None } else { Some(old) };
        let (uid, gid) = (kept(given.owner.uid, old.uid), kept(given.owner.gid, old.gid));
        if given.owner != Owner::default() {
            mode &= 0o1777;
        }
        if (uid.unwrap_or(new.uid), gid.unwrap_or(new.gid)) != (new.uid, new.gid) {
            let give = |uid| {
                let owner = Owner { uid, gid };
                apply(Subject::Open(file.as_fd()), &Attributes { owner, ..Attributes::default() })
            };
            if give(uid).is_err() {
                mode &= 0o1777;
                // The group alone is the next best; without it the file is still the right one.
                let _ = give(None);
            }
        }
        let mut has_list = !may_lack_list;
        // What the directory gives to new files, the old one did not have.
        if new.id() != old.id() && !xattrs.iter().any(|xattr| xattr.name == ACCESS_LIST) {
            remove_list(Subject::Open(file.as_fd()), OsStr::from_bytes(ACCESS_LIST))?;
        }
        let is_kept = |xattr: &&Xattr| {
            xattr.name != ACCESS_LIST || !(given.sole_lists || given.mode.is_some())
        };
        for xattr in xattrs.iter().filter(is_kept) {
            // Labels and lists of the old file are a courtesy, its contents are what was asked for.
            let one = Attributes { xattrs: vec![xattr.clone()], ..Attributes::default() };
            let given = apply(Subject::Open(file.as_fd()), &one);
            has_list &= given.is_ok() || xattr.name != ACCESS_LIST;
        }
        if given.mode.is_some() {
            return Ok(());
        }
        mode = mode_with_list(mode, has_list);
        apply(
            Subject::Open(file.as_fd()),
            &Attributes { mode: Some(mode), ..Attributes::default() },
        )
    }

    /// Gives the new file the name of the destination.
    pub fn publish(&mut self, file: &File) -> Result<()> {
        match self.kind {
            StageKind::InPlace | StageKind::Stream => return Ok(()),
            StageKind::Anonymous => {
                // Nothing to replace is the one case without a moment under another name.
                let is_new = self.old.is_none();
                match if is_new { link(file, &self.dir, &self.name) } else { Err(SysErrno::EXIST) }
                {
                    Ok(()) => return Ok(()),
                    Err(SysErrno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                self.temp = Some(with_temp_name(|name| link(file, &self.dir, name))?.0);
            }
            StageKind::Named => {}
        }
        if let Some(temp) = &self.temp {
            rustix::fs::renameat(&self.dir, temp, &self.dir, &self.name)?;
            self.temp = None;
        }
        Ok(())
    }

    /// Waits until the directory is on disk, as far as this user may open it.
    pub fn sync_dir(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, ".", flags, Mode::empty()) {
            Ok(dir) => super::sync(&File::from(dir)),
            Err(_) => Ok(()),
        }
    }

    /// Checks that the old file may be written, and remembers what it hands on.
    fn remember(&mut self, old: Metadata, options: &StageOptions) -> Result<()> {
        if !options.force {
            rustix::fs::accessat(&self.dir, &self.name, Access::WRITE_OK, AtFlags::EACCESS)?;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty())?;
        // Capabilities and signatures belong to contents; the kernel drops them on a write, too.
        let is_handed_on = |name: &[u8]| {
            name.starts_with(b"user.") || [ACCESS_LIST, b"security.selinux"].contains(&name)
        };
        let (xattrs, unread) = some_xattrs_of(file.as_fd(), is_handed_on);
        let may_lack_list = unread.iter().any(|name| name.is_empty() || name == ACCESS_LIST);
        self.old = Some(OldFile { metadata: old, xattrs, may_lack_list });
        Ok(())
    }

    fn open_direct(&self, flags: OFlags, options: &StageOptions) -> Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&self.dir, &self.name, flags, mode(options));
        Ok(unless_itself(outlasting_leases(flags, open)?)?.into())
    }

    fn open_temp(&mut self, options: &StageOptions) -> Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, ".", flags, mode(options)) {
            Ok(file) => Ok(file.into()),
            // What file systems and old kernels say that do not know `O_TMPFILE`.
            Err(SysErrno::OPNOTSUPP | SysErrno::ISDIR | SysErrno::INVAL | SysErrno::NOSYS) => {
                self.open_named(options)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn open_named(&mut self, options: &StageOptions) -> Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Others can open it by this name, and the old file's mode, which it gets last, may forbid
        // them that.
        let mode = if self.old.is_some() { Mode::RUSR | Mode::WUSR } else { mode(options) };
        let (name, file) = with_temp_name(|name| rustix::fs::openat(&self.dir, name, flags, mode))?;
        (self.kind, self.temp) = (StageKind::Named, Some(name));
        Ok(file.into())
    }
}

/// Whether this thread may write to files and leave them their set-id bits.
fn may_keep_ids() -> bool {
    let capabilities = rustix::thread::capabilities(None);
    capabilities.map_or_else(
        |_| rustix::process::geteuid().is_root(),
        |sets| sets.effective.contains(rustix::thread::CapabilitySet::FSETID),
    )
}

/// Whether an open file or directory is a door to the kernel, as those of `/proc` and `/sys` are:
/// it is made up as it is read, and cannot be replaced.
///
/// # Errors
/// Those of `fstatfs(2)`.
pub fn is_made_up(file: impl AsFd) -> Result<bool> {
    // The numbers have 32 bits, in a field that is wider or signed on some machines.
    let kind = rustix::fs::fstatfs(file)?.f_type as u32;
    Ok(KERNEL_FILE_SYSTEMS.contains(&kind))
}

/// The mode of a file that takes the place of one with this mode, and has its access list or not:
/// in the mode of a file with a list the group's bits are the most that anybody of the list may,
/// which the group itself need not.
fn mode_with_list(mode: u32, has_list: bool) -> u32 {
    if has_list { mode } else { mode & !0o070 }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Some(temp) = &self.temp {
            // Nobody is left to hear of a failure.
            let _ = rustix::fs::unlinkat(&self.dir, temp, AtFlags::empty());
        }
    }
}

/// The place of the last name of a path, also where it is that of a link.
fn unfollowed_place(export: &Export, path: &Path) -> Result<ExportPlace> {
    match export.place(path) {
        Err(Errno::INVAL) => final_place(export, path),
        place => place,
    }
}

/// The place a path leads to when symbolic links at its end are followed within the export. The
/// last one may lead to a name that does not exist.
pub(super) fn final_place(export: &Export, path: &Path) -> Result<ExportPlace> {
    let mut path = path.to_owned();
    let mut must_be_dir = false;
    for _ in 0..=LINKS_MAX {
        let mut place = match export.place(&path) {
            Err(Errno::INVAL) => {
                return export.resolve(&path, OFlags::DIRECTORY).and(Err(Errno::ISDIR));
            }
            place => place?,
        };
        // A slash after a link asks for a directory where it leads.
        must_be_dir |= place.must_be_dir;
        place.must_be_dir = must_be_dir;
        let Some(target) = place.link_to_follow()? else { return Ok(place) };
        match export.resolve(&path, OFlags::empty()) {
            // Only the kernel knows a magic link, whose text may look like any path (`ELOOP`), and
            // what it forbids is not done by way of the text.
            Err(errno) if errno != Errno::NOENT => return Err(errno),
            _ => {}
        }
        // Joining is exact: the parent's path is resolved again before the target is.
        path = parent(&path).join(target);
    }
    Err(Errno::LOOP)
}

/// The text before the final name.
fn parent(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    Path::new(OsStr::from_bytes(&bytes[..start]))
}

/// Gives an open file a name. The way through `/proc` needs no privilege, the other no `/proc`.
pub(crate) fn link(file: impl AsFd, dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    let path = crate::attributes::proc_path(file.as_fd());
    match rustix::fs::linkat(CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW) {
        Err(SysErrno::NOENT) => rustix::fs::linkat(&file, "", dir, name, AtFlags::EMPTY_PATH),
        done => done,
    }
}

/// Tries fresh temporary names until one is free.
fn with_temp_name<T>(
    mut make: impl FnMut(&OsStr) -> rustix::io::Result<T>,
) -> rustix::io::Result<(OsString, T)> {
    for _ in 0..TEMP_TRIES_MAX {
        let name = OsString::from(temp_name());
        match make(&name) {
            Err(SysErrno::EXIST) => {}
            done => return done.map(|made| (name, made)),
        }
    }
    Err(SysErrno::EXIST)
}

fn mode(options: &StageOptions) -> Mode {
    Mode::from_raw_mode(options.mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(dir: &Path) -> Vec<OsString> {
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    /// The way taken where the file system has no files without names.
    #[test]
    fn temporary_name_is_removed_or_becomes_the_name() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), "old").unwrap();
        let old_mode = PermissionsExt::from_mode(0o640);
        std::fs::set_permissions(root.path().join("file"), old_mode).unwrap();
        let export = Export::open(root.path()).unwrap();
        let options = StageOptions::default();
        let begin = || {
            let (mut destination, _) =
                Destination::open(&export, Path::new("file"), &options, None).unwrap();
            let file = destination.open_named(&options).unwrap();
            assert_eq!(names(root.path()).len(), 2);
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "others can open it by its name");
            (destination, file)
        };
        drop(begin());
        assert_eq!(names(root.path()), ["file"]);
        let (mut destination, file) = begin();
        std::io::Write::write_all(&mut &file, b"new").unwrap();
        destination.inherit(&file, &Attributes::default()).unwrap();
        destination.publish(&file).unwrap();
        drop(destination);
        assert_eq!(names(root.path()), ["file"]);
        assert_eq!(std::fs::read(root.path().join("file")).unwrap(), b"new");
        let mode = root.path().join("file").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
    }

    /// Its old owner does not have the new content for a moment.
    #[test]
    fn what_is_given_is_not_inherited_before() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        std::os::unix::fs::chown(&path, Some(4711), Some(4711)).unwrap();
        let export = Export::open(root.path()).unwrap();
        let options = StageOptions { mode: 0o600, ..StageOptions::default() };
        let (destination, file) =
            Destination::open(&export, Path::new("file"), &options, None).unwrap();
        let has = || {
            let about = crate::export::fd_metadata(file.as_fd()).unwrap();
            (about.uid, about.gid, about.mode & 0o7777)
        };
        let owner = Owner { uid: Some(0), gid: Some(0) };
        let given = Attributes { owner, mode: Some(0o600), ..Attributes::default() };
        destination.inherit(&file, &given).unwrap();
        assert_eq!(has(), (0, 0, 0o600));
        let given = Attributes { mode: Some(0o600), ..Attributes::default() };
        destination.inherit(&file, &given).unwrap();
        assert_eq!(has(), (4711, 4711, 0o600));
        destination.inherit(&file, &Attributes::default()).unwrap();
        assert_eq!(has(), (4711, 4711, 0o666));
    }

    /// The group's bits say what those on the list may at most.
    #[test]
    fn lost_acl_removes_the_group_permissions() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        let export = Export::open(root.path()).unwrap();
        let options = StageOptions::default();
        let broken = Xattr { name: ACCESS_LIST.to_vec(), value: vec![0; 4] };
        for (xattrs, may_lack_list, mode) in
            [(vec![], false, 0o664), (vec![], true, 0o604), (vec![broken], false, 0o604)]
        {
            std::fs::write(&path, "old").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).unwrap();
            let (mut destination, file) =
                Destination::open(&export, Path::new("file"), &options, None).unwrap();
            let old = destination.old.as_mut().unwrap();
            assert!(!old.may_lack_list);
            (old.xattrs, old.may_lack_list) = (xattrs, may_lack_list);
            destination.inherit(&file, &Attributes::default()).unwrap();
            destination.publish(&file).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, mode);
        }
    }
}
