//! The processes that have read the joined content of several files.
//!
//! An editor that saves what it has read would write the content of all files to each of them.
use sheaf_core::lock;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Processes that are remembered, the one that has read last in front.
const READERS_MAX: usize = 1024;

/// A process, and when it was started, in the kernel's ticks.
type Reader = (u32, u64);

/// See the module.
#[derive(Default)]
pub(crate) struct JoinedReaders(Mutex<VecDeque<Reader>>);

impl JoinedReaders {
    /// The process of this thread has read it.
    pub fn note(&self, thread: u32) {
        let Some(reader) = reader(thread) else { return };
        let mut all = lock(&self.0);
        all.retain(|one| *one != reader);
        all.push_front(reader);
        all.truncate(READERS_MAX);
    }

    /// Whether the process of this thread has read it.
    pub fn has(&self, thread: u32) -> bool {
        reader(thread).is_some_and(|reader| lock(&self.0).contains(&reader))
    }
}

/// The process of a thread; nothing where the system does not show it.
fn reader(thread: u32) -> Option<Reader> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process =
        status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may contain anything; the start is the 20th field after it.
    let begun = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some((process, begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_process_are_one_reader() {
        let readers = JoinedReaders::default();
        assert!(!readers.has(std::process::id()));
        let thread = rustix::thread::gettid().as_raw_pid().cast_unsigned();
        readers.note(thread);
        assert!(readers.has(std::process::id()) && !readers.has(1));
        for _ in 0..2 {
            readers.note(thread);
        }
        assert_eq!(lock(&readers.0).len(), 1);
    }
}
