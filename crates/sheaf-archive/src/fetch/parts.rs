//! Names of files that are not whole yet. Such a name says who writes the file, so what a process that was
//! killed has left is told from what another one is at.
use super::resumed::is_given_up;
use super::target::of;
use crate::repair::LEFTOVER_AGE;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, StatxFlags};
use sheaf_core::{Errno, ProcessStat};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

const BEGINNING: &str = ".sheaf-part-";
const READ_BYTES: usize = 32 << 10;

/// A process, as names of its files say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartMaker {
    /// The system since it began, and those of its processes that this one sees; nothing where it does
    /// not say so.
    system: Option<u32>,
    process: u32,
    /// When that began, in the system's ticks.
    begun: u64,
}

impl PartMaker {
    /// This process.
    pub fn new() -> Self {
        let process = std::process::id();
        Self { system: system(), process, begun: begun(process).unwrap_or(0) }
    }

    /// What a worker's file is called until it is whole.
    pub fn name(self, worker: usize) -> String {
        let Self { system, process, begun } = self;
        format!("{BEGINNING}{:08x}-{process}-{begun}-{worker}", system.unwrap_or(0))
    }

    /// Whose file it is; nothing where nobody's is called so.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(BEGINNING)?.split('-');
        let mut next = || parts.next();
        let system = u32::from_str_radix(next()?, 16).ok()?;
        let (process, begun) = (next()?.parse().ok()?, next()?.parse().ok()?);
        next()?.parse::<usize>().ok()?;
        let system = (system != 0).then_some(system);
        next().is_none().then_some(Self { system, process, begun })
    }

    /// Whether a file that is called so is nobody's any longer. Of another system's processes nothing is
    /// known, so theirs are as old as leftovers are.
    fn has_left(self, name: &str, age: impl FnOnce() -> Result<Duration, Errno>) -> bool {
        let Some(maker) = Self::of(name) else { return false };
        if maker.system.is_some() && maker.system == self.system {
            match begun(maker.process) {
                Some(begun) => return begun != maker.begun,
                None if !is_there(maker.process) => return true,
                // Others' processes may not be seen: nothing is known of it either.
                None => {}
            }
        }
        age().is_ok_and(|age| age >= LEFTOVER_AGE)
    }

    /// Takes away what processes that were killed have left in a directory.
    pub fn clean(self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = rustix::fs::openat(directory, c".", flags, Mode::empty()).map_err(of)?;
        let (mut room, mut left) = (Vec::with_capacity(READ_BYTES), Vec::new());
        let mut entries = RawDir::new(&open, room.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(of)?;
            if let Ok(name) = entry.file_name().to_str()
                && (self.has_left(name, || age(directory, name))
                    || is_given_up(name, || age(directory, name)))
            {
                left.push(name.to_owned());
            }
        }
        // Not while it is listed: some file systems pass names by in a directory that changes.
        for name in left {
            match rustix::fs::unlinkat(directory, &*name, AtFlags::empty()) {
                // Somebody else has.
                Err(rustix::io::Errno::NOENT) => {}
                removed => removed.map_err(of)?,
            }
        }
        Ok(())
    }
}

/// How long ago a file was written to.
fn age(directory: BorrowedFd<'_>, name: &str) -> Result<Duration, Errno> {
    let wanted = StatxFlags::CTIME;
    let found = rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted);
    let seconds = u64::try_from(found.map_err(of)?.stx_ctime.tv_sec).unwrap_or(0);
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    // What is written in the future is young.
    Ok(SystemTime::now().duration_since(changed).unwrap_or_default())
}

/// What no other system is called, nor this one when it has begun again.
fn system() -> Option<u32> {
    let mut digest = blake3::Hasher::new();
    digest.update(&std::fs::read("/proc/sys/kernel/random/boot_id").ok()?);
    // Others have processes of these numbers, too.
    digest.update(&std::fs::metadata("/proc/self/ns/pid").ok()?.ino().to_le_bytes());
    let [one, two, three, four, ..] = *digest.finalize().as_bytes();
    // In names, 0 stands for a system that is not known.
    Some(u32::from_le_bytes([one, two, three, four]).max(1))
}

/// When a process began; nothing if there is none.
fn begun(process: u32) -> Option<u64> {
    let status = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    ProcessStat::parse(&status)?.start_ticks()
}

/// Whether there is a process of this number, whosever it is.
fn is_there(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    process.is_some_and(|process| {
        rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn partial_files_of_dead_processes_are_removed_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let maker = PartMaker::new();
        assert!(maker.system.is_some() && maker.begun > 0);
        assert!(is_there(std::process::id()) && is_there(1) && !is_there(u32::MAX));
        assert_eq!(PartMaker::of(&maker.name(7)), Some(maker));
        let left = [
            PartMaker { process: u32::MAX, ..maker }.name(1),
            // Another has its number now.
            PartMaker { begun: maker.begun - 1, ..maker }.name(1),
        ];
        let stay = [
            maker.name(0),
            PartMaker { process: 1, begun: begun(1).unwrap(), ..maker }.name(3),
            PartMaker { system: maker.system.map(|system| system ^ 1), ..maker }.name(1),
            PartMaker { system: None, process: u32::MAX, ..maker }.name(1),
            format!("{}-1", left[0]),
            ".sheaf-part-".to_owned(),
            ".sheaf-part-x-1-1-1".to_owned(),
        ];
        for name in left.iter().chain(&stay) {
            std::fs::write(place.path().join(name), "half").unwrap();
        }
        let open = std::fs::File::open(place.path()).unwrap();
        maker.clean(open.as_fd()).unwrap();
        assert!(left.iter().all(|name| !place.path().join(name).exists()));
        assert!(stay.iter().all(|name| place.path().join(name).exists()));
        // Large files may be gone on with for some days.
        let resumed = super::super::resumed::resumed_name(&[7; 32], 1 << 30);
        assert!(!maker.has_left(&resumed, || Ok(Duration::MAX)));
        assert!(!is_given_up(&resumed, || Ok(LEFTOVER_AGE)));
        assert!(is_given_up(&resumed, || Ok(Duration::MAX)));
        assert!(!is_given_up(&stay[0], || Ok(Duration::MAX)));
        // What is of nobody who is known goes when it is old.
        let old = || Ok(LEFTOVER_AGE);
        assert!(maker.has_left(&stay[2], old) && maker.has_left(&stay[3], old));
        assert!(!maker.has_left(&stay[0], old) && !maker.has_left(&stay[4], old));
    }
}
