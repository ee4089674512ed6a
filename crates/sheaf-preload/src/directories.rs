//! Calls on names: of directories, attributes and links, and files in memory.
use crate::ctypes::{AnyPointer, CPath};
use crate::files;
use crate::turn::{AT_FDCWD, Did, FilePlace, descriptor_of_directory};
use std::ffi::{c_char, c_int, c_uint};

fn is_none<T>(pointer: *const T) -> bool {
    pointer.is_null()
}

wrap! {
    fn stat(path: CPath, into: AnyPointer) -> c_int = Stat, |came| Did::path(path).came(came);
    fn stat64(path: CPath, into: AnyPointer) -> c_int = Stat, |came| Did::path(path).came(came);
    fn lstat(path: CPath, into: AnyPointer) -> c_int = Stat, |came| Did::path(path).came(came);
    fn lstat64(path: CPath, into: AnyPointer) -> c_int = Stat, |came| Did::path(path).came(came);
    fn fstat(fd: c_int, into: AnyPointer) -> c_int = Stat, |came| Did::fd(fd).came(came);
    fn fstat64(fd: c_int, into: AnyPointer) -> c_int = Stat, |came| Did::fd(fd).came(came);
    fn fstatat(directory: c_int, path: CPath, into: AnyPointer, flags: c_int) -> c_int
        = Stat, |came| Did::path_at(directory, path).came(came);
    fn fstatat64(directory: c_int, path: CPath, into: AnyPointer, flags: c_int) -> c_int
        = Stat, |came| Did::path_at(directory, path).came(came);
    fn statx(directory: c_int, path: CPath, flags: c_int, mask: c_uint, into: AnyPointer) -> c_int
        = Stat, |came| Did::path_at(directory, path).came(came);
    fn __xstat(version: c_int, path: CPath, into: AnyPointer) -> c_int
        = Stat, |came| Did::path(path).came(came);
    fn __xstat64(version: c_int, path: CPath, into: AnyPointer) -> c_int
        = Stat, |came| Did::path(path).came(came);
    fn __lxstat(version: c_int, path: CPath, into: AnyPointer) -> c_int
        = Stat, |came| Did::path(path).came(came);
    fn __lxstat64(version: c_int, path: CPath, into: AnyPointer) -> c_int
        = Stat, |came| Did::path(path).came(came);
    fn __fxstat(version: c_int, fd: c_int, into: AnyPointer) -> c_int
        = Stat, |came| Did::fd(fd).came(came);
    fn __fxstat64(version: c_int, fd: c_int, into: AnyPointer) -> c_int
        = Stat, |came| Did::fd(fd).came(came);
    fn __fxstatat(version: c_int, directory: c_int, path: CPath, into: AnyPointer, flags: c_int) -> c_int
        = Stat, |came| Did::path_at(directory, path).came(came);
    fn __fxstatat64(version: c_int, directory: c_int, path: CPath, into: AnyPointer, flags: c_int) -> c_int
        = Stat, |came| Did::path_at(directory, path).came(came);
    fn statfs(path: CPath, into: AnyPointer) -> c_int = Stat, |came| Did::path(path).came(came);
    fn statfs64(path: CPath, into: AnyPointer) -> c_int = Stat, |came| Did::path(path).came(came);
    fn fstatfs(fd: c_int, into: AnyPointer) -> c_int = Stat, |came| Did::fd(fd).came(came);
    fn fstatfs64(fd: c_int, into: AnyPointer) -> c_int = Stat, |came| Did::fd(fd).came(came);
    fn statvfs(path: CPath, into: AnyPointer) -> c_int = Stat, |came| Did::path(path).came(came);
    fn statvfs64(path: CPath, into: AnyPointer) -> c_int = Stat, |came| Did::path(path).came(came);
    fn fstatvfs(fd: c_int, into: AnyPointer) -> c_int = Stat, |came| Did::fd(fd).came(came);
    fn fstatvfs64(fd: c_int, into: AnyPointer) -> c_int = Stat, |came| Did::fd(fd).came(came);

    fn access(path: CPath, mode: c_int) -> c_int = Access, |came| Did::path(path).came(came);
    fn eaccess(path: CPath, mode: c_int) -> c_int = Access, |came| Did::path(path).came(came);
    fn euidaccess(path: CPath, mode: c_int) -> c_int = Access, |came| Did::path(path).came(came);
    fn faccessat(directory: c_int, path: CPath, mode: c_int, flags: c_int) -> c_int
        = Access, |came| Did::path_at(directory, path).came(came);
    fn readlink(path: CPath, into: *mut c_char, len: usize) -> isize
        = ReadLink, |done| Did::path(path).moved(len, done);
    fn __readlink_chk(path: CPath, into: *mut c_char, len: usize, room: usize) -> isize
        = ReadLink, |done| Did::path(path).moved(len, done);
    fn readlinkat(directory: c_int, path: CPath, into: *mut c_char, len: usize) -> isize
        = ReadLink, |done| Did::path_at(directory, path).moved(len, done);
    fn __readlinkat_chk(directory: c_int, path: CPath, into: *mut c_char, len: usize, room: usize)
        -> isize = ReadLink, |done| Did::path_at(directory, path).moved(len, done);

    fn chmod(path: CPath, mode: c_uint) -> c_int
        = SetAttributes, |came| Did::path(path).came(came);
    fn lchmod(path: CPath, mode: c_uint) -> c_int
        = SetAttributes, |came| Did::path(path).came(came);
    fn fchmod(fd: c_int, mode: c_uint) -> c_int = SetAttributes, |came| Did::fd(fd).came(came);
    fn fchmodat(directory: c_int, path: CPath, mode: c_uint, flags: c_int) -> c_int
        = SetAttributes, |came| Did::path_at(directory, path).came(came);
    fn chown(path: CPath, user: c_uint, group: c_uint) -> c_int
        = SetAttributes, |came| Did::path(path).came(came);
    fn lchown(path: CPath, user: c_uint, group: c_uint) -> c_int
        = SetAttributes, |came| Did::path(path).came(came);
    fn fchown(fd: c_int, user: c_uint, group: c_uint) -> c_int
        = SetAttributes, |came| Did::fd(fd).came(came);
    fn fchownat(directory: c_int, path: CPath, user: c_uint, group: c_uint, flags: c_int) -> c_int
        = SetAttributes, |came| Did::path_at(directory, path).came(came);
    fn utime(path: CPath, times: AnyPointer) -> c_int = SetAttributes, |came| Did::path(path).came(came);
    fn utimes(path: CPath, times: AnyPointer) -> c_int = SetAttributes, |came| Did::path(path).came(came);
    fn lutimes(path: CPath, times: AnyPointer) -> c_int = SetAttributes, |came| Did::path(path).came(came);
    fn futimes(fd: c_int, times: AnyPointer) -> c_int = SetAttributes, |came| Did::fd(fd).came(came);
    fn futimens(fd: c_int, times: AnyPointer) -> c_int = SetAttributes, |came| Did::fd(fd).came(came);
    fn futimesat(directory: c_int, path: CPath, times: AnyPointer) -> c_int
        = SetAttributes, |came| Did::path_at(directory, path).came(came);
    // Without a path it is the directory's descriptor that is meant.
    fn utimensat(directory: c_int, path: CPath, times: AnyPointer, flags: c_int) -> c_int
        = SetAttributes, |came| {
            if path.is_null() { Did::fd(directory) } else { Did::path_at(directory, path) }.came(came)
        };

    fn getxattr(path: CPath, name: CPath, into: AnyPointer, len: usize) -> isize
        = Xattr, |done| Did::path(path).moved(len, done);
    fn lgetxattr(path: CPath, name: CPath, into: AnyPointer, len: usize) -> isize
        = Xattr, |done| Did::path(path).moved(len, done);
    fn fgetxattr(fd: c_int, name: CPath, into: AnyPointer, len: usize) -> isize
        = Xattr, |done| Did::fd(fd).moved(len, done);
    fn listxattr(path: CPath, into: *mut c_char, len: usize) -> isize
        = Xattr, |done| Did::path(path).moved(len, done);
    fn llistxattr(path: CPath, into: *mut c_char, len: usize) -> isize
        = Xattr, |done| Did::path(path).moved(len, done);
    fn flistxattr(fd: c_int, into: *mut c_char, len: usize) -> isize
        = Xattr, |done| Did::fd(fd).moved(len, done);
    fn setxattr(path: CPath, name: CPath, value: AnyPointer, len: usize, flags: c_int) -> c_int
        = Xattr, |came| Did::path(path).of(len as i64).came(came);
    fn lsetxattr(path: CPath, name: CPath, value: AnyPointer, len: usize, flags: c_int) -> c_int
        = Xattr, |came| Did::path(path).of(len as i64).came(came);
    fn fsetxattr(fd: c_int, name: CPath, value: AnyPointer, len: usize, flags: c_int) -> c_int
        = Xattr, |came| Did::fd(fd).of(len as i64).came(came);
    fn removexattr(path: CPath, name: CPath) -> c_int = Xattr, |came| Did::path(path).came(came);
    fn lremovexattr(path: CPath, name: CPath) -> c_int = Xattr, |came| Did::path(path).came(came);
    fn fremovexattr(fd: c_int, name: CPath) -> c_int = Xattr, |came| Did::fd(fd).came(came);

    fn opendir(path: CPath) -> AnyPointer
        = OpenDirectory, |directory| opened_directory(Did::path(path), directory);
    fn fdopendir(fd: c_int) -> AnyPointer
        = OpenDirectory, |directory| Did::fd(fd).failed_if(is_none(directory));
    fn readdir(directory: AnyPointer) -> AnyPointer = ReadDirectory, |_entry| in_directory(directory);
    fn readdir64(directory: AnyPointer) -> AnyPointer = ReadDirectory, |_entry| in_directory(directory);
    fn readdir_r(directory: AnyPointer, entry: AnyPointer, result: *mut AnyPointer) -> c_int
        = ReadDirectory, |came| in_directory(directory).returned(came);
    fn readdir64_r(directory: AnyPointer, entry: AnyPointer, result: *mut AnyPointer) -> c_int
        = ReadDirectory, |came| in_directory(directory).returned(came);
    fn getdents64(fd: c_int, into: AnyPointer, len: usize) -> isize
        = ReadDirectory, |done| Did::fd(fd).moved(len, done);
    fn closedir(directory: AnyPointer) -> c_int
        = CloseDirectory, before file = files::left(descriptor_of_directory(directory)),
          |came| Did::known(file).came(came);
    fn scandir(path: CPath, into: AnyPointer, select: AnyPointer, order: AnyPointer) -> c_int
        = ReadDirectory, |came| Did::path(path).came(came);
    fn scandir64(path: CPath, into: AnyPointer, select: AnyPointer, order: AnyPointer) -> c_int
        = ReadDirectory, |came| Did::path(path).came(came);
    fn scandirat(directory: c_int, path: CPath, into: AnyPointer, select: AnyPointer, order: AnyPointer) -> c_int
        = ReadDirectory, |came| Did::path_at(directory, path).came(came);
    fn scandirat64(directory: c_int, path: CPath, into: AnyPointer, select: AnyPointer, order: AnyPointer) -> c_int
        = ReadDirectory, |came| Did::path_at(directory, path).came(came);
    fn ftw(path: CPath, call: AnyPointer, most: c_int) -> c_int
        = ReadDirectory, |came| Did::path(path).came(came);
    fn ftw64(path: CPath, call: AnyPointer, most: c_int) -> c_int
        = ReadDirectory, |came| Did::path(path).came(came);
    fn nftw(path: CPath, call: AnyPointer, most: c_int, flags: c_int) -> c_int
        = ReadDirectory, |came| Did::path(path).came(came);
    fn nftw64(path: CPath, call: AnyPointer, most: c_int, flags: c_int) -> c_int
        = ReadDirectory, |came| Did::path(path).came(came);
    fn fts_read(walk: AnyPointer) -> AnyPointer = ReadDirectory, |_entry| Did::nothing();
    fn fts64_read(walk: AnyPointer) -> AnyPointer = ReadDirectory, |_entry| Did::nothing();
    fn fts_children(walk: AnyPointer, options: c_int) -> AnyPointer = ReadDirectory, |_entry| Did::nothing();
    fn fts64_children(walk: AnyPointer, options: c_int) -> AnyPointer = ReadDirectory, |_entry| Did::nothing();
    fn glob(pattern: CPath, flags: c_int, call: AnyPointer, into: AnyPointer) -> c_int
        = ReadDirectory, |came| globbed(pattern, came);
    fn glob64(pattern: CPath, flags: c_int, call: AnyPointer, into: AnyPointer) -> c_int
        = ReadDirectory, |came| globbed(pattern, came);

    fn mkdir(path: CPath, mode: c_uint) -> c_int
        = MakeDirectory, |came| Did::path(path).came(came);
    fn mkdirat(directory: c_int, path: CPath, mode: c_uint) -> c_int
        = MakeDirectory, |came| Did::path_at(directory, path).came(came);
    fn mkdtemp(template: *mut c_char) -> *mut c_char
        = MakeDirectory, |name| Did::path(template).failed_if(is_none(name));
    fn rmdir(path: CPath) -> c_int = RemoveDirectory, |came| Did::path(path).came(came);
    fn rename(path: CPath, to: CPath) -> c_int
        = Rename, |came| Did::paths((AT_FDCWD, path), (AT_FDCWD, to)).came(came);
    fn renameat(directory: c_int, path: CPath, to: c_int, name: CPath) -> c_int
        = Rename, |came| Did::paths((directory, path), (to, name)).came(came);
    fn renameat2(directory: c_int, path: CPath, to: c_int, name: CPath, flags: c_uint) -> c_int
        = Rename, |came| Did::paths((directory, path), (to, name)).came(came);
    fn link(path: CPath, to: CPath) -> c_int
        = Link, |came| Did::paths((AT_FDCWD, path), (AT_FDCWD, to)).came(came);
    fn linkat(directory: c_int, path: CPath, to: c_int, name: CPath, flags: c_int) -> c_int
        = Link, |came| Did::paths((directory, path), (to, name)).came(came);
    fn symlink(target: CPath, path: CPath) -> c_int
        = SymLink, |came| Did::path_and_text((AT_FDCWD, path), target).came(came);
    fn symlinkat(target: CPath, directory: c_int, path: CPath) -> c_int
        = SymLink, |came| Did::path_and_text((directory, path), target).came(came);
    fn unlink(path: CPath) -> c_int = Unlink, |came| Did::path(path).came(came);
    fn unlinkat(directory: c_int, path: CPath, flags: c_int) -> c_int
        = Unlink, |came| Did::path_at(directory, path).came(came);
    fn remove(path: CPath) -> c_int = Unlink, |came| Did::path(path).came(came);
    fn mknod(path: CPath, mode: c_uint, device: u64) -> c_int
        = MakeNode, |came| Did::path(path).came(came);
    fn mknodat(directory: c_int, path: CPath, mode: c_uint, device: u64) -> c_int
        = MakeNode, |came| Did::path_at(directory, path).came(came);
    fn __xmknod(version: c_int, path: CPath, mode: c_uint, device: *mut u64) -> c_int
        = MakeNode, |came| Did::path(path).came(came);
    fn __xmknodat(version: c_int, directory: c_int, path: CPath, mode: c_uint, device: *mut u64)
        -> c_int = MakeNode, |came| Did::path_at(directory, path).came(came);
    fn mkfifo(path: CPath, mode: c_uint) -> c_int = MakeNode, |came| Did::path(path).came(came);
    fn mkfifoat(directory: c_int, path: CPath, mode: c_uint) -> c_int
        = MakeNode, |came| Did::path_at(directory, path).came(came);
    fn chdir(path: CPath) -> c_int = ChangeDirectory, |came| gone_to(path, came);
    fn fchdir(fd: c_int) -> c_int = ChangeDirectory, |came| {
        files::forget_working();
        Did::fd(fd).came(came)
    };
    fn chroot(path: CPath) -> c_int = ChangeDirectory, |came| {
        files::forget_working();
        Did::path(path).came(came)
    };
    fn unshare(what: c_int) -> c_int = ChangeDirectory, |came| parted(what, came);

    fn mmap(at: AnyPointer, len: usize, access: c_int, flags: c_int, fd: c_int, offset: i64) -> AnyPointer
        = Map, |memory| mapped(memory, len, flags, fd, offset);
    fn mmap64(at: AnyPointer, len: usize, access: c_int, flags: c_int, fd: c_int, offset: i64) -> AnyPointer
        = Map, |memory| mapped(memory, len, flags, fd, offset);
    fn msync(at: AnyPointer, len: usize, flags: c_int) -> c_int
        = SyncMap, |came| Did::memory(at as usize).of(len as i64).came(came);
    fn munmap(at: AnyPointer, len: usize) -> c_int = Unmap, |came| {
        if files::is_mapped(at as usize) {
            Did::memory(at as usize).of(len as i64).came(came).place(FilePlace::Unknown)
        } else {
            Did::skip()
        }
    };
}

/// Where it has got to; of a path that does not lead there, what was meant.
fn gone_to(path: CPath, came: c_int) -> Did {
    files::forget_working();
    let mut did = Did::path(if came == 0 { c".".as_ptr() } else { path });
    did.has_failed = came < 0;
    did
}

/// Nothing that is I/O; a thread may have a working directory of its own from here on.
fn parted(what: c_int, came: c_int) -> Did {
    const CLONE_FS: c_int = 0x200;
    if came == 0 && what & CLONE_FS != 0 {
        files::expect_many_working();
    }
    Did::skip()
}

/// # Safety
/// The directory is open, or null.
unsafe fn opened_directory(did: Did, directory: AnyPointer) -> Did {
    // SAFETY: as our caller vouches for.
    let fd = unsafe { descriptor_of_directory(directory) };
    did.place(FilePlace::Unknown).opens(fd)
}

/// # Safety
/// As above.
unsafe fn in_directory(directory: AnyPointer) -> Did {
    // SAFETY: as above.
    Did::fd(unsafe { descriptor_of_directory(directory) })
}

/// What `glob` gives is none of the errors that `errno` has, which it leaves as it is but where a
/// directory could not be read.
fn globbed(pattern: CPath, came: c_int) -> Did {
    const NO_SPACE: c_int = 1;
    const NO_MATCH: c_int = 3;
    const NOT_THERE: c_int = 4;
    const ENOENT: c_int = 2;
    const ENOMEM: c_int = 12;
    const ENOSYS: c_int = 38;
    let mut did = Did::path(pattern).failed_if(came != 0);
    did.error = match came {
        NO_SPACE => ENOMEM,
        NO_MATCH => ENOENT,
        NOT_THERE => ENOSYS,
        _ => 0,
    };
    did
}

fn mapped(memory: AnyPointer, len: usize, flags: c_int, fd: c_int, offset: i64) -> Did {
    const ANONYMOUS: c_int = 0x20;
    const FAILED: usize = usize::MAX;
    if flags & ANONYMOUS != 0 || fd < 0 {
        return Did::skip();
    }
    let has_failed = memory as usize == FAILED;
    if !has_failed {
        files::map(memory as usize, fd);
    }
    Did::fd(fd).of(len as i64).at(offset).failed_if(has_failed)
}
