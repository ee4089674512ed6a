//! What a mounted view and the owner of files say to each other.
//!
//! A request is a [`FileCall`], encoded, and behind it the bytes that are to be written, if any. An answer is a
//! `Result<Answer, Errno>`, and behind it what was read. Nodes are files that the owner knows by number as long
//! as whoever asks has not forgotten them; handles are files that it has open.
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Timestamp};
use sheaf_file::OFlags;

/// The node of the export itself.
pub const ROOT: u64 = 1;

/// On whose behalf something is done, as the system of whoever asks has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCaller {
    /// User, as whom files are opened.
    pub uid: u32,
    /// Its first group.
    pub gid: u32,
    /// The others.
    pub gids: Vec<u32>,
}

/// A client of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileClient {
    /// A number that no other client has, and only its owner knows.
    pub number: u128,
    /// The mount point of its view, if links resolve within the owner's export; otherwise they keep their text.
    pub links_within: Option<Vec<u8>>,
    /// The directory at the top of its mounts, below the export.
    pub top: Vec<u8>,
    /// Block devices are files that can be read.
    pub has_devices: bool,
    /// How long its mounts keep names and attributes, in milliseconds.
    pub keeps_names_ms: u32,
    /// Its mounts do not wait for each write to a file that is lent for writing.
    pub writes_behind: bool,
}

impl FileClient {
    /// The same as the owner at this leaf knows it. Whoever says the number of a client has its open files: so no
    /// owner learns by which number the others know it.
    #[must_use]
    pub(crate) fn at(&self, leaf: u32) -> Self {
        let mut digest =
            blake3::Hasher::new_derive_key("sheaf 2026 number of a view's client at an owner");
        digest.update(&self.number.to_le_bytes()).update(&leaf.to_le_bytes());
        let number = *digest.finalize().as_bytes().first_chunk().expect("a digest has 32 bytes");
        Self { number: u128::from_le_bytes(number), ..self.clone() }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCall {
    /// On whose behalf.
    pub who: FileCaller,
    /// The process, as the system of whoever asks has it.
    pub pid: u32,
    /// The client keeps the names and attributes of the answer, and takes recalls of them.
    pub keeps_names: bool,
    /// What is to be done.
    pub op: NodeOp,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeName {
    /// The directory.
    pub parent: u64,
    /// One name, never `.` or `..`.
    pub name: Vec<u8>,
}

/// With what something is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMaking {
    /// Kind and permission bits, as of `st_mode`.
    pub mode: u32,
    /// What of them is taken away, but where the directory has a default access control list.
    pub umask: u32,
}

/// A time that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetNodeTime {
    /// The owner's clock.
    Now,
    /// This one.
    At(Timestamp),
}

/// Attributes that are to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetNodeAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetNodeTime>,
    /// Last change of the contents.
    pub mtime: Option<SetNodeTime>,
}

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileLockKind {
    /// With others who read.
    Shared,
    /// Alone.
    Exclusive,
    /// No more.
    None,
}

/// A lock of a range of bytes, or of a file as a whole (`flock(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// Whose: a process, or an open file. Another number of another mount is somebody else.
    pub owner: u64,
    /// The first byte, and the last one.
    pub range: (u64, u64),
    /// How.
    pub kind: FileLockKind,
    /// The process, as who asks has it.
    pub pid: u32,
    /// The file as a whole: these and ranges are independent of each other.
    pub is_whole: bool,
}

/// By what the owner finds a locked file again after its server was restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedFile {
    /// Its path below the export.
    pub path: Vec<u8>,
    /// Its file system and inode, and since when the inode is this file's.
    pub id: ((u64, u64), Option<Timestamp>),
    /// The access mode of the open file that was locked, as of `open(2)`.
    pub access: u32,
}

/// What is to be done. A `node`, `parent` or `handle` is a number that the owner has given, `offset`, `size` and
/// `length` are bytes, and `flags` those of the system call that an operation is named for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum NodeOp {
    /// The first request of each lane: which client asks. What it has open and knows goes when its last lane does.
    Join(FileClient),
    /// The path of the export on its host.
    Export,
    /// `lstat(2)` of a name; its node is known from then on, until it is forgotten as often as it was given.
    Lookup(NodeName),
    /// These nodes are not needed any more, so many times each.
    Forget(Vec<(u64, u64)>),
    /// `fstat(2)` of a directory, and `lstat(2)` of a name in it, of a name in that, and so on. The nodes of the
    /// names are known from then on.
    Walk { node: u64, names: Vec<Vec<u8>> },
    /// `fstat(2)`, of an open file if there is one.
    Attributes { node: u64, handle: Option<u64> },
    /// `chmod`, `chown`, `truncate` and `utimensat` at once.
    SetAttributes { node: u64, handle: Option<u64>, set: SetNodeAttributes },
    /// `readlink(2)`.
    ReadLink { node: u64 },
    /// `mknod(2)`; `mkdir(2)` where the mode says so.
    Make { at: NodeName, with: NodeMaking, rdev: u64 },
    /// `symlink(2)`.
    Symlink { at: NodeName, target: Vec<u8> },
    /// `unlink(2)`, or `rmdir(2)`.
    Remove { at: NodeName, is_directory: bool },
    /// `renameat2(2)`.
    Rename { from: NodeName, to: NodeName, flags: u32 },
    /// `link(2)`.
    Link { node: u64, to: NodeName },
    /// `open(2)` of a file, or of a directory.
    Open { node: u64, flags: u32 },
    /// `open(2)` with `O_CREAT`.
    Create { at: NodeName, with: NodeMaking, flags: u32 },
    /// `open(2)` with `O_TMPFILE`.
    Temporary { parent: u64, with: NodeMaking, flags: u32 },
    /// `pread(2)`.
    Read { handle: u64, offset: u64, size: u32 },
    /// The same for the page cache of the client's kernel, of which the client drops what changes.
    ReadPages { handle: u64, offset: u64, size: u32 },
    /// `open(2)` of a file to read it, and its first bytes, up to so many, if they can be lent.
    OpenLent { node: u64, flags: u32, ahead: u32 },
    /// `pread(2)`, and so many bytes more if they can be lent.
    ReadLent { handle: u64, offset: u64, size: u32, ahead: u32 },
    /// Waits until bytes that were lent are wanted back, so long at most. Those of these files are not used any
    /// more, and news of these numbers is done.
    Recalls { done: Vec<u64>, told: Vec<u64>, wait_ms: u32 },
    /// `write(2)` of the bytes behind the request, with the flags that the open file has at that moment.
    Write { handle: u64, offset: u64, flags: u32 },
    /// The same, and the file is lent for writing if that can be done: nobody else has it open then.
    WriteLent { handle: u64, offset: u64, flags: u32 },
    /// The same of a write for which its program has not waited, as the file was lent for writing. `ESTALE` if it is not
    /// lent any more: others may have read and written it since.
    WriteBehind { handle: u64, offset: u64, flags: u32 },
    /// A descriptor was closed: what its process has locked in ranges is free.
    Flush { node: u64, handle: u64, owner: u64 },
    /// The last descriptor was closed.
    Release { node: u64, handle: u64, owner: Option<u64> },
    /// `fsync(2)`, `fdatasync(2)`.
    Sync { handle: u64, data_only: bool },
    /// Entries of an open directory behind an offset, of about so many bytes.
    ReadDirectory { handle: u64, offset: u64, size: u32, with_attributes: bool },
    /// Entries of a directory with their attributes, of about so many bytes, for a client that keeps them.
    Names { node: u64, size: u32 },
    /// `statfs(2)`.
    FileSystem { node: u64 },
    /// `getxattr(2)` of an attribute of at most so many bytes.
    GetXattr { node: u64, name: Vec<u8>, size: u32 },
    /// `setxattr(2)`.
    SetXattr { node: u64, name: Vec<u8>, value: Vec<u8>, flags: u32 },
    /// `listxattr(2)`.
    ListXattr { node: u64, size: u32 },
    /// `removexattr(2)`.
    RemoveXattr { node: u64, name: Vec<u8> },
    /// `faccessat(2)`.
    Access { node: u64, mask: u32 },
    /// `F_GETLK`.
    TestLock { handle: u64, lock: FileLock },
    /// `F_SETLK`, or `flock(2)` with `LOCK_NB`; of a client that asks until it has the lock, if it waits. What is to be
    /// known to claim the lock again is in the answer, if that is wanted.
    SetLock { node: u64, handle: u64, lock: FileLock, waits: bool, wants_file: bool },
    /// The instance of the client at the owner, which a client that holds locks asks for now and then.
    KeepLocks,
    /// Sets a lock that the client held at the owner's server before this one.
    ReclaimLock { node: u64, handle: u64, file: LockedFile, lock: FileLock },
    /// The client has lost locks: all of its open files fail until they are closed.
    LoseFiles,
    /// A file system of the owner's that is mounted at this node is to be mounted in the view as well: 0 until that is
    /// done, 1 when it is, 2 when it cannot be.
    MountWanted { node: u64 },
    /// The file systems of the owner's that are mounted below this node, and below no other such: relative paths,
    /// each behind a zero.
    MountsBelow { node: u64 },
    /// Waits until file systems are wanted, so long at most; what has become of others.
    Mounts { done: Vec<(u64, SubMountEnd)>, wait_ms: u32 },
    /// The owner of locks does not wait any more.
    EndWait { owner: u64 },
    /// `fallocate(2)`.
    Allocate { handle: u64, mode: u32, offset: u64, length: u64 },
    /// `lseek(2)` with `SEEK_DATA` or `SEEK_HOLE`.
    Seek { handle: u64, offset: u64, whence: u32 },
    /// `copy_file_range(2)`, both files being the owner's.
    Copy { from: (u64, u64), to: (u64, u64), length: u64 },
}

impl NodeOp {
    /// Whether it may be done twice: it only looks at something, or states how something is to be. The second time
    /// gives what the first would have given, and changes nothing more.
    #[must_use]
    pub fn may_be_repeated(&self) -> bool {
        let truncates = |flags: u32| OFlags::from_bits_retain(flags).contains(OFlags::TRUNC);
        match self {
            Self::Open { flags, .. } | Self::OpenLent { flags, .. } => !truncates(*flags),
            Self::Join(_)
            | Self::Export
            | Self::Lookup(_)
            | Self::Walk { .. }
            | Self::Attributes { .. }
            | Self::ReadLink { .. }
            | Self::Read { .. }
            | Self::ReadPages { .. }
            | Self::ReadLent { .. }
            | Self::Sync { .. }
            | Self::ReadDirectory { .. }
            | Self::Names { .. }
            | Self::FileSystem { .. }
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::Access { .. }
            | Self::TestLock { .. }
            | Self::KeepLocks
            | Self::ReclaimLock { .. }
            | Self::Seek { .. } => true,
            _ => false,
        }
    }

    /// Whether a host that may only read cannot ask for it.
    #[must_use]
    pub fn changes_files(&self) -> bool {
        let writes = |flags: u32| {
            let changes = OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
            OFlags::from_bits_retain(flags).intersects(changes)
        };
        match self {
            Self::Open { flags, .. } | Self::OpenLent { flags, .. } => writes(*flags),
            Self::SetAttributes { .. }
            | Self::Make { .. }
            | Self::Symlink { .. }
            | Self::Remove { .. }
            | Self::Rename { .. }
            | Self::Link { .. }
            | Self::Create { .. }
            | Self::Temporary { .. }
            | Self::Write { .. }
            | Self::WriteLent { .. }
            | Self::WriteBehind { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::Allocate { .. }
            | Self::Copy { .. } => true,
            Self::Join(_)
            | Self::Export
            | Self::Lookup(_)
            | Self::Forget(_)
            | Self::Walk { .. }
            | Self::Attributes { .. }
            | Self::ReadLink { .. }
            | Self::Read { .. }
            | Self::ReadLent { .. }
            | Self::ReadPages { .. }
            | Self::Recalls { .. }
            | Self::Flush { .. }
            | Self::Release { .. }
            | Self::Sync { .. }
            | Self::ReadDirectory { .. }
            | Self::Names { .. }
            | Self::FileSystem { .. }
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::Access { .. }
            | Self::TestLock { .. }
            | Self::SetLock { .. }
            | Self::KeepLocks
            | Self::ReclaimLock { .. }
            | Self::LoseFiles
            | Self::EndWait { .. }
            | Self::MountWanted { .. }
            | Self::MountsBelow { .. }
            | Self::Mounts { .. }
            | Self::Seek { .. } => false,
        }
    }
}

/// Whether the kernel of whoever opens a file with these flags relies on the size that it knows: for reads that do not
/// wait, and for the position after an append.
pub(crate) fn relies_on_size(flags: u32) -> bool {
    let has = |flag: i32| flags & flag as u32 != 0;
    // `O_WRONLY` and `O_RDWR` together are all ways of writing.
    has(libc::O_DIRECT) || has(libc::O_APPEND) && has(libc::O_ACCMODE)
}

/// What `lstat(2)` says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAttributes {
    /// The node.
    pub node: u64,
    /// What programs see as the number of the inode: the node's, unless a client still knows that of another file, which
    /// is gone.
    pub ino: u64,
    /// Kind and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Which device a device file stands for.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes on the disk.
    pub blocks: u64,
    /// Preferred size of one read.
    pub block_size: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// It is the top directory of another file system than the directory in which it was found.
    pub is_mounted: bool,
    /// It may have an access control list.
    pub has_list: bool,
    /// It may have extended attributes that each user can list, among them those of the system's security modules.
    pub has_xattrs: bool,
    /// The owner recalls them, and the name that they were asked for by, from the client that keeps them.
    pub is_lent: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Its name, `.` and `..` among them.
    pub name: Vec<u8>,
    /// The number of its inode, as far as the directory knows.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Where the next one begins.
    pub next: u64,
    /// Its attributes, where they were asked for; its node is known from then on.
    pub attributes: Option<NodeAttributes>,
}

/// What `statfs(2)` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemUsage {
    /// Blocks: all of them, those that are free, and those of these that not only root gets.
    pub blocks: (u64, u64, u64),
    /// Inodes: all of them, and those that are free.
    pub files: (u64, u64),
    /// Bytes of a block, and of the unit in which blocks are counted.
    pub block_size: (u32, u32),
    /// Bytes of the longest name.
    pub name_max: u32,
}

/// Bytes may be used until they are called back, or time is over without word from the lender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    /// A number for whatever keeps the loans of one client.
    pub lender: u64,
    /// They reach the end of the file.
    pub ends: bool,
}

/// What has become of a file system that was to be mounted in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubMountEnd {
    /// It is mounted.
    Mounted,
    /// It cannot be mounted.
    Failed,
    /// It is not mounted any more.
    Gone,
}

/// Something that a client keeps has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileNews {
    /// Counted by the owner, for each client.
    pub number: u64,
    /// What has changed.
    pub of: NewsOf,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewsOf {
    /// Pages of this open file are about to change, or have changed.
    Pages(u64),
    /// This open file is longer now, and has so many bytes.
    Size(u64, u64),
    /// Attributes of this node, and the names in it, are about to change.
    Names(u64),
}

impl NewsOf {
    /// The open file.
    #[must_use]
    pub fn handle(self) -> Option<u64> {
        match self {
            Self::Pages(handle) | Self::Size(handle, _) => Some(handle),
            Self::Names(_) => None,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAnswer {
    /// It is done.
    Done,
    /// A node.
    Node(NodeAttributes),
    /// A directory, and what names lead to, as far as they do.
    Walked(Vec<NodeAttributes>),
    /// A file is open.
    Opened(u64),
    /// A file is open, which has so many bytes; the client is told when it grows.
    OpenedSized(u64, u64),
    /// A file is open for writing that can be run once it is closed.
    OpenedRunnable(u64),
    /// It was made and is open.
    Created(NodeAttributes, u64),
    /// The bytes are behind the answer.
    Bytes,
    /// A file is open, and its attributes and its first bytes, which are behind the answer, are lent.
    OpenedLent(u64, Loan, NodeAttributes),
    /// The bytes behind the answer are lent.
    Lent(Loan),
    /// What this lender has lent of these files is wanted back, and of no others; and what else has changed.
    Recalled(u64, Vec<u64>, Vec<FileNews>),
    /// File systems to be mounted: their nodes, and where they are below the export.
    Mounts(Vec<(u64, Vec<u8>)>),
    /// So many bytes were written or copied, or is the length of an attribute.
    Count(u64),
    /// So many bytes were written, and the file is lent for writing by this lender.
    WrittenLent(u64, u64),
    /// Another answer, and attributes of nodes that the operation has changed.
    After(Box<FileAnswer>, Vec<NodeAttributes>),
    /// What there is in a directory.
    Entries(Vec<NodeEntry>),
    /// How full a file system is.
    Usage(FileSystemUsage),
    /// A lock that is in the way, or one of kind none.
    Lock(FileLock),
    /// The lock is set, by this instance of the client.
    Locked(u64, Option<LockedFile>),
    /// Clients claim their locks again, so no other lock is set or tested yet.
    InGrace,
    /// The instance of the client at the owner.
    Instance(u64),
}

/// Encodes a request or an answer, with bytes behind it.
pub(crate) fn encoded(what: &impl Serialize, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let room = Vec::with_capacity(bytes.len() + 128);
    let mut all = postcard::to_extend(what, room).map_err(|_| Errno::NOMEM)?;
    all.extend_from_slice(bytes);
    Ok(all)
}

/// The reverse: what it is, and the bytes behind it.
pub(crate) fn decoded<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), Errno> {
    postcard::take_from_bytes(bytes).map_err(|_| Errno::BADMSG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_know_a_client_by_other_numbers() {
        let client = FileClient { number: 7, ..FileClient::default() };
        assert_eq!(client.at(1), client.at(1));
        let numbers = [client.number, client.at(1).number, client.at(2).number];
        assert!(numbers[0] != numbers[1] && numbers[0] != numbers[2] && numbers[1] != numbers[2]);
    }
}
