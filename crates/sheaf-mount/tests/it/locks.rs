//! Locks of several clients, and of programs of the owner's host.
use crate::support::{Asker, Served};
use sheaf_core::Errno;
use sheaf_mount::{FileAnswer, FileLock, FileLockKind, NodeOp};
use std::fs;
use std::fs::File;

fn lock(owner: u64, range: (u64, u64), kind: FileLockKind, is_whole: bool) -> FileLock {
    FileLock { owner, range, kind, pid: 7, is_whole }
}

fn set(asker: &mut Asker, handle: u64, lock: FileLock) -> Result<(), Errno> {
    asker.ask(NodeOp::SetLock { handle, lock }).map(|done| assert_eq!(done, FileAnswer::Done))
}

#[test]
fn ranges_are_locked_across_clients_and_free_when_one_is_gone() {
    let served = Served::new();
    fs::write(served.path("f"), "0123456789").unwrap();
    let (mut one, mut two) = (served.asker(1), served.asker(2));
    let (a, b) = (one.open("f", libc::O_RDWR).unwrap(), two.open("f", libc::O_RDWR).unwrap());
    let (mine, all) = (FileLockKind::Exclusive, (0, i64::MAX as u64));
    set(&mut one, a, lock(5, (2, 4), mine, false)).unwrap();
    // The same number of another client is somebody else.
    assert_eq!(set(&mut two, b, lock(5, all, mine, false)), Err(Errno::AGAIN));
    assert_eq!(set(&mut two, b, lock(5, (3, 3), FileLockKind::Shared, false)), Err(Errno::AGAIN));
    set(&mut two, b, lock(5, (5, 9), mine, false)).unwrap();
    let FileAnswer::Lock(found) =
        two.ask(NodeOp::TestLock { handle: b, lock: lock(5, all, mine, false) }).unwrap()
    else {
        panic!()
    };
    assert_eq!((found.kind, found.range), (mine, (2, 4)));
    // Part of one is free, another is changed.
    set(&mut one, a, lock(5, (2, 2), FileLockKind::None, false)).unwrap();
    set(&mut one, a, lock(5, (3, 4), FileLockKind::Shared, false)).unwrap();
    set(&mut two, b, lock(6, (2, 2), mine, false)).unwrap();
    set(&mut two, b, lock(6, (3, 4), FileLockKind::Shared, false)).unwrap();
    // Whoever closes a file has locked nothing in it.
    assert_eq!(set(&mut one, a, lock(8, (5, 9), mine, false)), Err(Errno::AGAIN));
    two.ask(NodeOp::Flush { handle: b, owner: 5 }).unwrap();
    set(&mut one, a, lock(8, (5, 9), mine, false)).unwrap();
    drop(one);
    set(&mut two, b, lock(6, all, mine, false)).unwrap();
    assert_eq!(set(&mut two, b, lock(6, (5, 4), mine, false)), Err(Errno::INVAL));
}

#[test]
fn file_and_range_locks_differ_and_local_programs_heed_both() {
    let served = Served::new();
    fs::write(served.path("f"), "0123456789").unwrap();
    let (mut one, mut two) = (served.asker(1), served.asker(2));
    let (a, b) = (one.open("f", libc::O_RDWR).unwrap(), two.open("f", libc::O_RDONLY).unwrap());
    let all = (0, i64::MAX as u64);
    set(&mut one, a, lock(1, all, FileLockKind::Exclusive, true)).unwrap();
    assert_eq!(set(&mut two, b, lock(1, all, FileLockKind::Shared, true)), Err(Errno::AGAIN));
    set(&mut two, b, lock(1, all, FileLockKind::Shared, false)).unwrap();
    let file = File::open(served.path("f")).unwrap();
    assert!(file.try_lock_shared().is_err());
    set(&mut one, a, lock(1, all, FileLockKind::Shared, true)).unwrap();
    file.try_lock_shared().unwrap();
    assert!(file.try_lock().is_err());
    file.unlock().unwrap();
    set(&mut two, b, lock(1, all, FileLockKind::Shared, true)).unwrap();
    // The last who has it open has it no more.
    one.ask(NodeOp::Release { handle: a, owner: Some(1) }).unwrap();
    two.ask(NodeOp::Release { handle: b, owner: Some(1) }).unwrap();
    file.try_lock().unwrap();
}
