//! Locks of several clients, and of programs of the owner's host.
use crate::support::{Asker, Served};
use sheaf_core::Errno;
use sheaf_mount::{FileAnswer, FileLock, FileLockKind, NodeOp};
use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

fn lock(owner: u64, range: (u64, u64), kind: FileLockKind, is_whole: bool) -> FileLock {
    FileLock { owner, range, kind, pid: 7, is_whole }
}

fn set(asker: &mut Asker, handle: u64, lock: FileLock) -> Result<(), Errno> {
    asker
        .ask(NodeOp::SetLock { handle, lock, waits: false })
        .map(|done| assert_eq!(done, FileAnswer::Done))
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
    // A program that another test starts has copies of all descriptors until it is executed.
    let is_free = || {
        std::thread::sleep(Duration::from_millis(10));
        file.try_lock().is_ok()
    };
    assert!((0..500).any(|_| is_free()));
}

/// The owner of a lock of an open file description is that description, whose close unlocks nothing by a request.
#[test]
fn range_lock_of_a_description_is_free_when_it_is_released() {
    let served = Served::new();
    fs::write(served.path("f"), "0123456789").unwrap();
    let (mut one, mut two) = (served.asker(1), served.asker(2));
    let (a, other) = (one.open("f", libc::O_RDWR).unwrap(), one.open("f", libc::O_RDWR).unwrap());
    let b = two.open("f", libc::O_RDWR).unwrap();
    let mine = FileLockKind::Exclusive;
    set(&mut one, a, lock(5, (0, 3), mine, false)).unwrap();
    set(&mut one, other, lock(6, (4, 9), mine, false)).unwrap();
    assert_eq!(set(&mut two, b, lock(7, (0, 0), mine, false)), Err(Errno::AGAIN));
    one.ask(NodeOp::Release { handle: a, owner: None }).unwrap();
    set(&mut two, b, lock(7, (0, 3), mine, false)).unwrap();
    assert_eq!(set(&mut two, b, lock(7, (4, 4), mine, false)), Err(Errno::AGAIN));
}

/// What is open for writing cannot be run.
#[test]
fn file_that_is_locked_for_reading_can_be_run() {
    let served = Served::new();
    fs::write(served.path("f"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(served.path("f"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut one = served.asker(1);
    let (read, write) =
        (one.open("f", libc::O_RDONLY).unwrap(), one.open("f", libc::O_RDWR).unwrap());
    let all = (0, i64::MAX as u64);
    one.ask(NodeOp::Release { handle: write, owner: None }).unwrap();
    set(&mut one, read, lock(1, all, FileLockKind::Exclusive, true)).unwrap();
    set(&mut one, read, lock(1, all, FileLockKind::Shared, false)).unwrap();
    assert!(Command::new(served.path("f")).status().unwrap().success());
    // The same owner may lock it for writing by another open file, also what it has shared.
    let write = one.open("f", libc::O_RDWR).unwrap();
    set(&mut one, write, lock(1, (2, 3), FileLockKind::Exclusive, false)).unwrap();
    let mut two = served.asker(2);
    let b = two.open("f", libc::O_RDWR).unwrap();
    assert_eq!(set(&mut two, b, lock(1, (2, 2), FileLockKind::Shared, false)), Err(Errno::AGAIN));
    set(&mut two, b, lock(1, (4, 4), FileLockKind::Shared, false)).unwrap();
    set(&mut one, write, lock(1, all, FileLockKind::None, false)).unwrap();
    set(&mut two, b, lock(1, (2, 9), FileLockKind::Exclusive, false)).unwrap();
}

#[test]
fn owners_that_wait_for_each_other_get_edeadlk() {
    let served = Served::new();
    fs::write(served.path("f"), "0123456789").unwrap();
    let (mut one, mut two) = (served.asker(1), served.asker(2));
    let (a, b) = (one.open("f", libc::O_RDWR).unwrap(), two.open("f", libc::O_RDWR).unwrap());
    let mine = FileLockKind::Exclusive;
    set(&mut one, a, lock(5, (0, 0), mine, false)).unwrap();
    set(&mut two, b, lock(5, (1, 1), mine, false)).unwrap();
    let wait =
        |handle, at| NodeOp::SetLock { handle, lock: lock(5, (at, at), mine, false), waits: true };
    assert_eq!(one.ask(wait(a, 1)), Err(Errno::AGAIN));
    assert_eq!(two.ask(wait(b, 0)), Err(Errno::DEADLK));
    // One that was interrupted does not wait any more.
    one.ask(NodeOp::EndWait { owner: 5 }).unwrap();
    assert_eq!(two.ask(wait(b, 0)), Err(Errno::AGAIN));
    assert_eq!(one.ask(wait(a, 1)), Err(Errno::DEADLK));
    // A process is known to its own host.
    let test = |handle| NodeOp::TestLock { handle, lock: lock(9, (0, 0), mine, false) };
    let pid = |found| match found {
        FileAnswer::Lock(found) => (found.kind, found.pid),
        other => panic!("{other:?}"),
    };
    assert_eq!(pid(one.ask(test(a)).unwrap()), (mine, 7));
    assert_eq!(pid(two.ask(test(b)).unwrap()), (mine, 0));
}
