//! Reading the sources on this machine, in pieces.
use super::message::{Attrs, CopyPacket, CopyRecord, Special};
use super::options::CopyOptions;
use crate::paths::name_of;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno as SysErrno;
use sheaf_core::Errno;
use sheaf_file::{Export, FileIdentity, FileKind, Follow, Metadata, PathError, Timestamp};
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The most files with several names that are remembered at a time; the names of further ones are
/// copied as files of their own.
const LINKED_FILES_MAX: usize = 1 << 20;

/// What to copy to hosts.
pub enum Source {
    /// A file or directory of this machine.
    Path(PathBuf),
    /// A file that is open already, such as standard input; it has no name of its own.
    Open(File),
    /// A stream; it has no name of its own.
    Reader(Box<dyn Read + Send>),
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub errors: Vec<PathError>,
    pub errors_more: u64,
    /// Hosts were asked for anything.
    pub is_anything: bool,
}

/// How often a file is read that changes meanwhile.
const CHANGED_TRIES_MAX: usize = 2;

/// Failures on this machine that are told one by one.
const ERRORS_MAX: usize = 4096;

/// A packet with how far its sender is.
#[derive(Debug)]
pub(super) struct Filled {
    pub bytes: Vec<u8>,
    pub files_done: u64,
    pub contents_done: u64,
}

/// Nobody takes packets any more.
#[derive(Debug)]
pub(super) struct Stopped;

/// Why a path is not sent to its end.
enum Halt {
    Stopped,
    Failed(Errno),
}

impl From<Stopped> for Halt {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<Errno> for Halt {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl From<std::io::Error> for Halt {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

type Sender<'a> = &'a mut dyn FnMut(Filled) -> Result<(), Stopped>;

/// Reads all sources and gives packet after packet to `send`.
pub(super) fn read_all(
    sources: Vec<Source>,
    options: &CopyOptions,
    send: Sender<'_>,
) -> Result<Sent, Stopped> {
    let root = Export::open(Path::new("/"));
    let mut reader = SourceReader {
        options,
        send,
        root,
        packet: CopyPacket::default(),
        sent: Sent::default(),
        files_done: 0,
        contents_done: 0,
        links: HashMap::new(),
        comes_once: sources.len() == 1 && !options.dereference,
        source: 0,
        buffer: Vec::new(),
    };
    for (at, source) in sources.into_iter().enumerate() {
        reader.source = at as u32;
        match source {
            Source::Path(path) => reader.source(&path)?,
            Source::Open(file) => reader.open_file(file)?,
            Source::Reader(stream) => reader.stream(stream, None)?,
        }
    }
    reader.packet.put(&CopyRecord::End);
    reader.flush()?;
    Ok(reader.sent)
}

struct SourceReader<'a> {
    options: &'a CopyOptions,
    send: Sender<'a>,
    /// This machine, for walks.
    root: Result<Export, Errno>,
    packet: CopyPacket,
    sent: Sent,
    files_done: u64,
    contents_done: u64,
    /// By inode: where it was sent as a file, and how many of its names are still to come.
    links: HashMap<(u64, u64), LinkedFile>,
    /// No name is met twice.
    comes_once: bool,
    source: u32,
    buffer: Vec<u8>,
}

struct LinkedFile {
    source: u32,
    path: Vec<u8>,
    names_left: u32,
}

impl SourceReader<'_> {
    fn source(&mut self, path: &Path) -> Result<(), Stopped> {
        self.packet.put(&CopyRecord::Source { name: name_of(path).to_vec() });
        let follow = self.options.follows_named();
        let looked = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
        let metadata = match looked {
            Ok(metadata) => metadata_of(&metadata),
            Err(error) => {
                self.fail(path, error.into());
                return Ok(());
            }
        };
        if metadata.is_dir() && !self.options.recursive {
            self.fail(path, Errno::ISDIR);
            return Ok(());
        }
        self.say_where(path, &metadata);
        let done = match metadata.kind {
            FileKind::Directory => self.tree(path, &metadata),
            // Without directories in play, a pipe or a device is what comes out of it.
            FileKind::Fifo | FileKind::CharDevice | FileKind::BlockDevice
                if !self.options.recursive =>
            {
                // A dry run does not wait for who writes into it.
                let flags = if self.options.dry_run { OFlags::NONBLOCK } else { OFlags::empty() };
                let flags = (flags | OFlags::NOCTTY).bits() as i32;
                match File::options().read(true).custom_flags(flags).open(path) {
                    Ok(file) => {
                        let attrs = Attrs::of(&metadata, Vec::new(), self.options);
                        self.contents(Box::new(file), attrs, None)
                    }
                    Err(error) => Err(error.into()),
                }
            }
            _ => std::path::absolute(path)
                .map_err(Halt::from)
                .and_then(|at| self.one(&at, b"", &metadata, follow)),
        };
        self.settle(path, done)
    }

    /// Says where links come from: a host that is this machine does not lose the file that one leads to.
    fn say_where(&mut self, path: &Path, metadata: &Metadata) {
        let dir = match metadata.kind {
            FileKind::Directory => path,
            FileKind::Symlink => match path.parent() {
                Some(dir) if dir.as_os_str().is_empty() => Path::new("."),
                Some(dir) => dir,
                None => return,
            },
            _ => return,
        };
        // Where that cannot be told, a host goes by the text of a link alone.
        if let (Some(machine), Ok(dir)) = (sheaf_core::boot_id(), std::fs::canonicalize(dir)) {
            let path = dir.into_os_string().into_encoded_bytes();
            self.packet.put(&CopyRecord::SourceDir { machine, path });
        }
    }

    fn open_file(&mut self, file: File) -> Result<(), Stopped> {
        // Reading reports what is wrong with the file.
        let source = self.identity(&file).ok().flatten();
        self.stream(Box::new(file), source)
    }

    fn stream(
        &mut self,
        stream: Box<dyn Read + Send>,
        source: Option<FileIdentity>,
    ) -> Result<(), Stopped> {
        self.packet.put(&CopyRecord::Source { name: Vec::new() });
        let done = self.contents(stream, Attrs { mode: 0o666, ..Attrs::default() }, source);
        self.settle(Path::new("-"), done)
    }

    fn settle(&mut self, path: &Path, done: Result<(), Halt>) -> Result<(), Stopped> {
        match done {
            Ok(()) => Ok(()),
            Err(Halt::Stopped) => Err(Stopped),
            Err(Halt::Failed(errno)) => {
                self.fail(path, errno);
                Ok(())
            }
        }
    }

    /// A directory with all beneath it, which was found to be this one.
    fn tree(&mut self, path: &Path, found: &Metadata) -> Result<(), Halt> {
        let root = self.root.clone()?;
        // The walk is confined to its root, which does not follow the system's magic links.
        let start = std::fs::canonicalize(path)?;
        let follow = if self.options.dereference { Follow::Always } else { Follow::Never };
        let walk = sheaf_file::WalkOptions { follow, metadata: true, ..Default::default() };
        let mut walk = root.walk(&start, walk);
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.fail(&path_below(path, &error.path, &start), error.errno);
                    continue;
                }
            };
            let Some(metadata) = &entry.metadata else { continue };
            let relative = entry.relative.as_os_str().as_bytes();
            // A link may have taken its place before the walk began, which would lead to what nobody has named.
            if relative.is_empty() && metadata.id() != found.id() {
                return Err(Errno::STALE.into());
            }
            // Each file is read from the directory in which it was found.
            self.root = walk.here();
            let done = self.one(&entry.path, relative, metadata, self.options.dereference);
            self.root = Ok(root.clone());
            self.settle(&path_below(path, &entry.path, &start), done)?;
        }
        Ok(())
    }

    /// One file, link or directory without what is in it.
    fn one(
        &mut self,
        at: &Path,
        relative: &[u8],
        metadata: &Metadata,
        follow: bool,
    ) -> Result<(), Halt> {
        let path = relative.to_vec();
        let linked = self.options.hard_links && metadata.nlink > 1 && !metadata.is_dir();
        if linked && self.link_again(&path, metadata)? {
            return Ok(());
        }
        if metadata.kind == FileKind::File {
            return self.file(at, path, metadata, follow);
        }
        // All that is said of it is of one file.
        let is_dir = metadata.is_dir();
        let found = self.root.clone()?.find(at, follow || is_dir && path.is_empty())?;
        if found.metadata().id() != metadata.id() {
            return Err(Errno::STALE.into());
        }
        let attrs = self.options.attrs_of(&found, found.metadata())?;
        let special = match metadata.kind {
            FileKind::Directory => {
                let source = if path.is_empty() { FileIdentity::of(&found)? } else { None };
                return Ok(self.record(&CopyRecord::Dir { path, attrs, source })?);
            }
            // What links lead to was asked for, and this one leads nowhere.
            FileKind::Symlink if follow => return Err(Errno::NOENT.into()),
            FileKind::Symlink => {
                let target = found.link_target()?.into_os_string().into_encoded_bytes();
                self.record(&CopyRecord::Symlink { path: path.clone(), target, attrs, linked })?;
                self.may_link(linked, path, metadata);
                return Ok(());
            }
            FileKind::Fifo => Special::Fifo,
            FileKind::CharDevice => Special::CharDevice,
            FileKind::BlockDevice => Special::BlockDevice,
            FileKind::File | FileKind::Socket | FileKind::Unknown => {
                return Err(Errno::OPNOTSUPP.into());
            }
        };
        let (rdev, kind) = (metadata.rdev, special);
        self.record(&CopyRecord::Node { path: path.clone(), kind, rdev, attrs, linked })?;
        self.may_link(linked, path, metadata);
        Ok(())
    }

    /// Other names of what was sent become links to it.
    fn may_link(&mut self, linked: bool, path: Vec<u8>, metadata: &Metadata) {
        if linked && self.links.len() < LINKED_FILES_MAX {
            let names_left = metadata.nlink - 1;
            let first = LinkedFile { source: self.source, path, names_left };
            self.links.insert(metadata.id(), first);
        }
    }

    /// Sends a link instead, if it was sent under another name.
    fn link_again(&mut self, path: &[u8], metadata: &Metadata) -> Result<bool, Stopped> {
        let Some(linked) = self.links.get_mut(&metadata.id()) else {
            return Ok(false);
        };
        linked.names_left = linked.names_left.saturating_sub(1);
        let (source, target) = (linked.source, linked.path.clone());
        if linked.names_left == 0 && self.comes_once {
            self.links.remove(&metadata.id());
        }
        self.record(&CopyRecord::Hardlink { path: path.to_vec(), source, target })?;
        Ok(true)
    }

    /// A file's contents; once more from the beginning if it changed while it was read, and given
    /// up (`EBADMSG`) if it did so again.
    fn file(
        &mut self,
        at: &Path,
        path: Vec<u8>,
        expected: &Metadata,
        follow: bool,
    ) -> Result<(), Halt> {
        let linked = self.options.hard_links && expected.nlink > 1;
        for tries_left in (0..CHANGED_TRIES_MAX).rev() {
            let file = self.open(at, &path, follow)?;
            let before = metadata_of(&file.metadata()?);
            if before.kind != FileKind::File {
                return Err(Errno::STALE.into());
            }
            wait_for_tick(before.ctime);
            // What cannot be read must not empty what is written in place.
            let _ = file.read_at(&mut [0], 0)?;
            let attrs = self.options.attrs_of(&file, &before)?;
            let source = self.identity(&file)?;
            self.record(&CopyRecord::File {
                path: path.clone(),
                attrs,
                size: before.size,
                linked,
                source,
            })?;
            if self.options.dry_run {
                self.files_done += 1;
                self.record(&CopyRecord::FileAbort)?;
            } else {
                let has_holes = before.blocks.saturating_mul(512) < before.size;
                let done = self.pieces(&file, has_holes).and_then(|(size, digest)| {
                    if is_torn(&file, &before, size)? {
                        Err(Errno::BADMSG.into())
                    } else {
                        Ok((size, digest))
                    }
                });
                // One that has become shorter may be what another source is being written into.
                let is_shorter = || file.metadata().is_ok_and(|now| now.len() < before.size);
                let may_try = tries_left > 0 && !(self.options.in_place && is_shorter());
                if matches!(done, Err(Halt::Failed(Errno::BADMSG))) && may_try {
                    self.record(&CopyRecord::FileAbort)?;
                    continue;
                }
                self.end_file(done)?;
            }
            // Only behind its end: the next names become links to what has arrived.
            self.may_link(linked, path, expected);
            break;
        }
        Ok(())
    }

    /// Opens a file to read. Whatever took its place, as a pipe, must not block. Only a path that
    /// the user gave may lead through the system's magic links, as `/dev/stdin` does.
    fn open(&self, at: &Path, relative: &[u8], follow: bool) -> Result<File, Halt> {
        let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | no_follow;
        if relative.is_empty() {
            return Ok(File::options().read(true).custom_flags(flags.bits() as i32).open(at)?);
        }
        Ok(self.root.clone()?.open_file(at, flags, Mode::empty())?)
    }

    /// A file made of what comes out of a stream.
    fn contents(
        &mut self,
        mut stream: Box<dyn Read + Send>,
        attrs: Attrs,
        source: Option<FileIdentity>,
    ) -> Result<(), Halt> {
        // What cannot be read must not empty what is written in place. A dry run reads nothing.
        let first = if self.options.dry_run { Vec::new() } else { first_byte(&mut *stream)? };
        // A terminal that was at its end would be asked for more lines.
        let rest = if first.is_empty() { 0 } else { u64::MAX };
        let mut stream = first.as_slice().chain(stream.take(rest));
        let path = Vec::new();
        self.record(&CopyRecord::File { path, attrs, size: 0, linked: false, source })?;
        if self.options.dry_run {
            return Ok(self.record(&CopyRecord::FileAbort)?);
        }
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        let done = loop {
            match self.piece(at, &mut |buffer| stream.read(buffer), &mut hasher) {
                Ok(0) => break Ok((at, *hasher.finalize().as_bytes())),
                Ok(length) => at += length as u64,
                Err(halt) => break Err(halt),
            }
        };
        self.end_file(done)
    }

    fn end_file(&mut self, done: Result<(u64, [u8; 32]), Halt>) -> Result<(), Halt> {
        match done {
            Ok((size, digest)) => {
                self.files_done += 1;
                Ok(self.record(&CopyRecord::FileEnd { size, digest })?)
            }
            Err(Halt::Failed(errno)) => {
                self.record(&CopyRecord::FileAbort)?;
                Err(errno.into())
            }
            Err(stopped) => Err(stopped),
        }
    }

    /// The contents of a file; holes are passed over.
    fn pieces(&mut self, file: &File, has_holes: bool) -> Result<(u64, [u8; 32]), Halt> {
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        let mut data_end = if has_holes { 0 } else { u64::MAX };
        loop {
            if at >= data_end {
                match next_data(file, at)? {
                    Some((start, end)) => {
                        hash_zeros(&mut hasher, start - at);
                        (at, data_end) = (start, end);
                    }
                    None => {
                        // It may have become shorter since.
                        let size = file.metadata()?.len().max(at);
                        hash_zeros(&mut hasher, size - at);
                        return Ok((size, *hasher.finalize().as_bytes()));
                    }
                }
            }
            let most = data_end - at;
            let mut read = |buffer: &mut [u8]| {
                let length = buffer.len().min(usize::try_from(most).unwrap_or(usize::MAX));
                file.read_at(&mut buffer[..length], at)
            };
            match self.piece(at, &mut read, &mut hasher)? {
                0 => return Ok((at, *hasher.finalize().as_bytes())),
                length => at += length as u64,
            }
        }
    }

    /// One piece of contents into the packet; returns its length, 0 at the end.
    fn piece(
        &mut self,
        offset: u64,
        read: &mut dyn FnMut(&mut [u8]) -> std::io::Result<usize>,
        hasher: &mut blake3::Hasher,
    ) -> Result<usize, Halt> {
        /// Room for less is not worth a piece.
        const PIECE_BYTES_MIN: usize = 4096;
        if self.packet.room() < PIECE_BYTES_MIN {
            self.flush()?;
        }
        self.buffer.resize(super::PACKET_BYTES, 0);
        let room = self.packet.room();
        let length = loop {
            match read(&mut self.buffer[..room]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        if length > 0 {
            hasher.update(&self.buffer[..length]);
            self.packet.put_data(offset, &self.buffer[..length]);
            self.contents_done += length as u64;
        }
        Ok(length)
    }

    fn record(&mut self, record: &CopyRecord) -> Result<(), Stopped> {
        // A file that begins may yet turn out not to be readable.
        let is_promise = !self.options.dry_run && matches!(record, CopyRecord::File { .. });
        self.sent.is_anything |= !is_promise && !matches!(record, CopyRecord::FileAbort);
        self.packet.put(record);
        if self.packet.room() == 0 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        if self.packet.is_empty() {
            return Ok(());
        }
        let (files_done, contents_done) = (self.files_done, self.contents_done);
        (self.send)(Filled { bytes: self.packet.take(), files_done, contents_done })
    }

    /// What a host that writes in place has to compare its own file with.
    fn identity(&self, file: &File) -> Result<Option<FileIdentity>, Errno> {
        if self.options.in_place { FileIdentity::of(file) } else { Ok(None) }
    }

    fn fail(&mut self, path: &Path, errno: Errno) {
        if self.sent.errors.len() < ERRORS_MAX {
            self.sent.errors.push(PathError { path: path.to_owned(), errno });
        } else {
            self.sent.errors_more += 1;
        }
    }
}

/// The first byte, or none of an empty stream.
fn first_byte(stream: &mut dyn Read) -> Result<Vec<u8>, Halt> {
    let mut first = vec![0];
    loop {
        match stream.read(&mut first) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            length => {
                first.truncate(length?);
                return Ok(first);
            }
        }
    }
}

/// The next range that is no hole, at or after `from`.
fn next_data(file: &File, from: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(SysErrno::NXIO) => return Ok(None),
        // A file system that does not know has data only.
        Err(SysErrno::INVAL | SysErrno::OPNOTSUPP) => return Ok(Some((from, u64::MAX))),
        Err(errno) => return Err(errno.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}

/// Waits until a change would get another time than the last one did.
fn wait_for_tick(last: Timestamp) {
    /// The longest a file system's clock stands still.
    const TICK: Duration = Duration::from_millis(10);
    let last =
        u64::try_from(last.seconds).ok().map(|seconds| Duration::new(seconds, last.nanoseconds));
    let age =
        last.and_then(|last| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + last).ok());
    // A time that is yet to come tells nothing.
    if let Some(left) = age.and_then(|age| TICK.checked_sub(age)) {
        std::thread::sleep(left);
    }
}

/// Whether what was read, `size` bytes, may be of different times. Files that the kernel makes up
/// as they are read have neither a true size nor a true time.
fn is_torn(file: &File, before: &Metadata, size: u64) -> Result<bool, Errno> {
    if sheaf_file::is_made_up(file)? {
        return Ok(false);
    }
    let after = metadata_of(&file.metadata()?);
    let times = |metadata: &Metadata| (metadata.size, metadata.mtime, metadata.ctime);
    // So may file systems of users; there a size of nothing says that there is no size.
    let is_whole = size == before.size || before.size == 0;
    Ok(!is_whole || times(before) != times(&after))
}

fn hash_zeros(hasher: &mut blake3::Hasher, mut count: u64) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while count > 0 {
        let step = count.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..step as usize]);
        count -= step;
    }
}

/// A path of the walk in the words of whoever named its start.
fn path_below(named: &Path, path: &Path, start: &Path) -> PathBuf {
    match path.strip_prefix(start) {
        Ok(rest) if rest.as_os_str().is_empty() => named.to_owned(),
        Ok(rest) => named.join(rest),
        Err(_) => path.to_owned(),
    }
}

/// The same facts in the words of the library that also reads hosts' files.
fn metadata_of(std: &std::fs::Metadata) -> Metadata {
    let time = |seconds, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    let kind = std.file_type();
    Metadata {
        kind: match () {
            () if kind.is_file() => FileKind::File,
            () if kind.is_dir() => FileKind::Directory,
            () if kind.is_symlink() => FileKind::Symlink,
            () if kind.is_fifo() => FileKind::Fifo,
            () if kind.is_socket() => FileKind::Socket,
            () if kind.is_char_device() => FileKind::CharDevice,
            () if kind.is_block_device() => FileKind::BlockDevice,
            () => FileKind::Unknown,
        },
        dev: std.dev(),
        ino: std.ino(),
        mode: std.mode() & 0o7777,
        nlink: u32::try_from(std.nlink()).unwrap_or(u32::MAX),
        uid: std.uid(),
        gid: std.gid(),
        rdev: std.rdev(),
        size: std.len(),
        blocks: std.blocks(),
        block_size: std.blksize() as u32,
        atime: time(std.atime(), std.atime_nsec()),
        mtime: time(std.mtime(), std.mtime_nsec()),
        ctime: time(std.ctime(), std.ctime_nsec()),
        btime: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::next_record;
    use super::*;

    /// Reads `path`, with `act` called after each packet with the number of it.
    fn read(
        path: &Path,
        options: &CopyOptions,
        act: &mut dyn FnMut(usize),
    ) -> (Vec<CopyRecord>, Sent) {
        let (mut records, mut packets) = (Vec::new(), 0);
        let mut send = |filled: Filled| {
            let mut input = &filled.bytes[..];
            while let Some((record, _)) = next_record(&mut input).unwrap() {
                records.push(record);
            }
            packets += 1;
            act(packets);
            Ok(())
        };
        let sources = vec![Source::Path(path.to_owned())];
        let sent = read_all(sources, options, &mut send).unwrap();
        (records, sent)
    }

    /// It may have been emptied by a host of this machine, to be written with another source.
    #[test]
    fn source_that_is_cut_while_hosts_write_in_place_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for in_place in [true, false] {
            std::fs::write(&path, vec![b'x'; 4 * super::super::PACKET_BYTES]).unwrap();
            let options = CopyOptions { in_place, ..CopyOptions::default() };
            let mut cut = |packet| {
                if packet == 1 {
                    File::options().write(true).open(&path).unwrap().set_len(2).unwrap();
                }
            };
            let (records, sent) = read(&path, &options, &mut cut);
            let told: Vec<_> = sent.errors.iter().map(|error| error.errno).collect();
            let expected = if in_place {
                (vec![None], vec![Errno::BADMSG])
            } else {
                (vec![None, Some(2)], vec![])
            };
            assert_eq!((ends(&records), told), expected);
        }
    }

    /// What happens to a file after a packet of it.
    type Change<'a> = Box<dyn FnMut(usize) -> std::io::Result<()> + 'a>;

    /// How files ended: their size, or nothing where they were given up.
    fn ends(records: &[CopyRecord]) -> Vec<Option<u64>> {
        let end = |record: &CopyRecord| match record {
            CopyRecord::FileEnd { size, .. } => Some(Some(*size)),
            CopyRecord::FileAbort => Some(None),
            _ => None,
        };
        records.iter().filter_map(end).collect()
    }

    #[test]
    fn source_that_changes_while_it_is_read_is_read_again_or_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let size = 4 * super::super::PACKET_BYTES as u64;
        let fill = || std::fs::write(&path, vec![b'x'; size as usize]).unwrap();
        let append = || {
            std::io::Write::write_all(&mut File::options().append(true).open(&path).unwrap(), b"y")
        };
        let overwrite =
            |at: u64| File::options().write(true).open(&path).unwrap().write_all_at(b"z", at);
        let renew = || {
            std::fs::write(dir.path().join("new"), "short").unwrap();
            std::fs::rename(dir.path().join("new"), &path)
        };
        let mut changes: Vec<(Change<'_>, Vec<Option<u64>>)> = vec![
            (Box::new(|_| Ok(())), vec![Some(size)]),
            (
                Box::new(|packet| if packet == 1 { append() } else { Ok(()) }),
                vec![None, Some(size + 1)],
            ),
            (
                Box::new(|packet| if packet == 2 { overwrite(0) } else { Ok(()) }),
                vec![None, Some(size)],
            ),
            (Box::new(|packet| if packet == 2 { renew() } else { Ok(()) }), vec![None, Some(5)]),
            (Box::new(|_| append()), vec![None, None]),
            (Box::new(|packet| overwrite(size - packet as u64)), vec![None, None]),
        ];
        for (at, (change, expected)) in changes.iter_mut().enumerate() {
            fill();
            let options = CopyOptions::default();
            let (records, sent) = read(&path, &options, &mut |packet| change(packet).unwrap());
            assert_eq!(ends(&records), *expected, "change {at}");
            let failed: Vec<_> = sent.errors.iter().map(|error| error.errno).collect();
            let last = expected.last().copied().flatten();
            assert_eq!(
                failed,
                if last.is_some() { vec![] } else { vec![Errno::BADMSG] },
                "change {at}"
            );
            if let (Some(CopyRecord::FileEnd { digest, .. }), Some(_)) = (
                records.iter().rev().find(|record| matches!(record, CopyRecord::FileEnd { .. })),
                last,
            ) {
                assert_eq!(
                    digest,
                    blake3::hash(&std::fs::read(&path).unwrap()).as_bytes(),
                    "change {at}"
                );
            }
        }
        drop(changes);
        // What the kernel makes up is taken as it comes.
        for path in
            ["/proc/self/stat", "/proc/meminfo", "/sys/kernel/mm/transparent_hugepage/enabled"]
        {
            if Path::new(path).exists() {
                let options = CopyOptions::default();
                let (records, sent) = read(Path::new(path), &options, &mut |_| {});
                assert!(
                    matches!(ends(&records)[..], [Some(1..)]) && sent.errors.is_empty(),
                    "{path}: {records:?}"
                );
            }
        }
    }
}
