//! Tests of what other users may do.
use crate::skipped;
use rustix::fs::{Gid, Uid};

/// Runs `act` as a user without privileges, on a thread of its own and with all threads that it
/// starts; nothing, with a word, where that cannot be done.
///
/// # Panics
/// When `act` does.
pub fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return None;
    }
    let run = || {
        let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        act()
    };
    std::thread::scope(|scope| {
        Some(scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
