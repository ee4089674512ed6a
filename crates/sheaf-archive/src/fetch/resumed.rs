//! Large files that come in more than one command: what was fetched of one that was broken off is not fetched
//! again.
//!
//! Such a file is called by its content until it is whole, so the next command finds it. What is there of it
//! is read and becomes a part of the digest: with a wrong beginning no file receives a name.
use super::target::{FetchDirectory, of};
use crate::pack::member::MemberAttributes;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};
use sheaf_core::Errno;
use std::fs::File;
use std::time::Duration;

/// Shorter files are fetched again as a whole.
pub(super) const RESUMED_BYTES_MIN: u64 = 32 << 20;
/// How long the part of a file is kept.
const RESUMED_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
const BEGINNING: &str = ".sheaf-part-";
const DIGITS: usize = 32;

/// What a file of this content is called until it is whole.
pub(super) fn resumed_name(digest: &[u8; 32], size: u64) -> String {
    let mut of = blake3::Hasher::new();
    of.update(digest).update(&size.to_le_bytes());
    format!("{BEGINNING}{}", &of.finalize().to_hex()[..DIGITS])
}

/// Whether a file that is called so was given up.
pub(super) fn is_given_up(name: &str, age: impl FnOnce() -> Result<Duration, Errno>) -> bool {
    let digits = name.strip_prefix(BEGINNING).unwrap_or_default();
    digits.len() == DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && age().is_ok_and(|age| age >= RESUMED_AGE_MAX)
}

/// Takes the lock of a part. Whoever forks has it for a moment, until its child is another program: that is waited for.
fn is_locked(part: &File) -> bool {
    const TRIES: u32 = 25;
    const PAUSE: Duration = Duration::from_millis(20);
    let lock = || rustix::fs::flock(part, FlockOperation::NonBlockingLockExclusive);
    let mut tries = (0..TRIES).map(|number| {
        if number > 0 {
            std::thread::sleep(PAUSE);
        }
        lock()
    });
    tries.any(|tried| tried.is_ok())
}

impl FetchDirectory<'_> {
    /// Puts a regular file there as [`put_file`](Self::put_file) does, of what `fill` writes into it behind
    /// the bytes that are there already. What was written stays where that fails.
    pub fn put_resumed<E: From<Errno>>(
        &mut self,
        is: &MemberAttributes,
        name: String,
        fill: impl FnOnce(&File, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((file, bytes)) = self.open_part(&name)? else {
            return self.put_file(is, |file| fill(file, 0));
        };
        fill(&file, bytes)?;
        let part = std::mem::replace(&mut self.part, name);
        let put = self.shared.target.finish_file(&file, is, self.is_inherited);
        let named = self.named(&is.name, put.map_err(E::from));
        self.part = part;
        named
    }

    /// Takes the part of a file away, if there is one.
    pub fn drop_part(&self, name: &str) {
        // What stays is found by who looks for leftovers.
        let _ = rustix::fs::unlinkat(&self.open, name, AtFlags::empty());
    }

    /// The part of a file, and how many bytes it has; nothing where it is another one's.
    fn open_part(&self, name: &str) -> Result<Option<(File, u64)>, Errno> {
        let flags = OFlags::CREATE
            | OFlags::RDWR
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let open = match rustix::fs::openat(&self.open, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(open) => File::from(open),
            // Something else has this name.
            Err(
                rustix::io::Errno::LOOP
                | rustix::io::Errno::ISDIR
                | rustix::io::Errno::NXIO
                | rustix::io::Errno::ACCESS
                | rustix::io::Errno::PERM,
            ) => return Ok(None),
            Err(errno) => return Err(of(errno)),
        };
        // Another process writes it, or the file system has no locks.
        if !is_locked(&open) {
            return Ok(None);
        }
        let wanted = StatxFlags::BASIC_STATS;
        let named = rustix::fs::statx(&self.open, name, AtFlags::SYMLINK_NOFOLLOW, wanted);
        let found = rustix::fs::statx(&open, c"", AtFlags::EMPTY_PATH, wanted).map_err(of)?;
        // Between the opening and the lock, it may have become a file of its own.
        let is_it = named.is_ok_and(|named| {
            (named.stx_dev_major, named.stx_dev_minor, named.stx_ino)
                == (found.stx_dev_major, found.stx_dev_minor, found.stx_ino)
        });
        let is_mine = found.stx_mode & 0o170_000 == 0o100_000
            && found.stx_nlink == 1
            && found.stx_uid == rustix::process::geteuid().as_raw()
            && found.stx_mode & 0o077 == 0;
        Ok((is_it && is_mine).then_some((open, found.stx_size)))
    }
}
