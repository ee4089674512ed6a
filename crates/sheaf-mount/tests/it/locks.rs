//! Locks of several clients, and of programs of the owner's host.
use crate::support::{Asker, Served};
use sheaf_core::Errno;
use sheaf_mount::{FileAnswer, FileLock, FileLockKind, LockedFile, NodeOp};
use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

fn lock(owner: u64, range: (u64, u64), kind: FileLockKind, is_whole: bool) -> FileLock {
    FileLock { owner, range, kind, pid: 7, is_whole }
}

fn set(asker: &mut Asker, handle: u64, lock: FileLock) -> Result<(), Errno> {
    let set = asker.set_lock(handle, lock, false)?;
    assert!(matches!(set, FileAnswer::Done | FileAnswer::Locked(..)), "{set:?}");
    Ok(())
}

impl Asker {
    fn node_of_f(&mut self) -> u64 {
        self.node("f").unwrap().node
    }

    fn set_lock(&mut self, handle: u64, lock: FileLock, waits: bool) -> Result<FileAnswer, Errno> {
        let node = self.node_of_f();
        self.ask(NodeOp::SetLock { node, handle, lock, waits, wants_file: false })
    }

    fn release(&mut self, handle: u64, owner: Option<u64>) {
        let node = self.node_of_f();
        self.ask(NodeOp::Release { node, handle, owner }).unwrap();
    }
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
    let node = two.node_of_f();
    two.ask(NodeOp::Flush { node, handle: b, owner: 5 }).unwrap();
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
    one.release(a, Some(1));
    two.release(b, Some(1));
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
    one.release(a, None);
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
    one.release(write, None);
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
    let wait = |asker: &mut Asker, handle, at| {
        asker.set_lock(handle, lock(5, (at, at), mine, false), true)
    };
    assert_eq!(wait(&mut one, a, 1), Err(Errno::AGAIN));
    assert_eq!(wait(&mut two, b, 0), Err(Errno::DEADLK));
    // One that was interrupted does not wait any more.
    one.ask(NodeOp::EndWait { owner: 5 }).unwrap();
    assert_eq!(wait(&mut two, b, 0), Err(Errno::AGAIN));
    assert_eq!(wait(&mut one, a, 1), Err(Errno::DEADLK));
    // A process is known to its own host.
    let test = |handle| NodeOp::TestLock { handle, lock: lock(9, (0, 0), mine, false) };
    let pid = |found| match found {
        FileAnswer::Lock(found) => (found.kind, found.pid),
        other => panic!("{other:?}"),
    };
    assert_eq!(pid(one.ask(test(a)).unwrap()), (mine, 7));
    assert_eq!(pid(two.ask(test(b)).unwrap()), (mine, 0));
}

/// The file of a lock, with by what it is found again.
fn held(asker: &mut Asker, handle: u64, lock: FileLock) -> LockedFile {
    let node = asker.node_of_f();
    let set = NodeOp::SetLock { node, handle, lock, waits: false, wants_file: true };
    match asker.ask(set).unwrap() {
        FileAnswer::Locked(_, Some(file)) => file,
        other => panic!("{other:?}"),
    }
}

#[test]
fn restarted_owner_serves_claims_of_locks_before_others() {
    let mut served = Served::new();
    fs::write(served.path("f"), "0123456789").unwrap();
    let mut one = served.asker(1);
    let a = one.open("f", libc::O_RDWR).unwrap();
    let (range, whole) = (
        lock(5, (2, 4), FileLockKind::Exclusive, false),
        lock(6, (0, u64::MAX), FileLockKind::Exclusive, true),
    );
    let (file, node) = (held(&mut one, a, range), one.node_of_f());
    held(&mut one, a, whole);
    let claim = |lock| NodeOp::ReclaimLock { node, handle: a, file: file.clone(), lock };
    // Nothing was restarted.
    assert_eq!(one.ask(claim(range)), Err(Errno::STALE));
    drop(one);
    served.restart();
    let (mut one, mut two) = (served.asker(1), served.asker(2));
    let b = two.open("f", libc::O_RDWR).unwrap();
    let test = NodeOp::TestLock { handle: b, lock: range };
    for asked in [two.set_lock(b, range, false), two.set_lock(b, whole, false), two.ask(test)] {
        assert_eq!(asked, Ok(FileAnswer::InGrace));
    }
    for lock in [range, whole] {
        assert_eq!(one.ask(claim(lock)), Ok(FileAnswer::Done));
        assert_eq!(two.ask(claim(lock)), Err(Errno::AGAIN), "it is another client's");
    }
    // The open file is lost; its locks are freed all the same.
    assert_eq!(one.ask(NodeOp::Sync { handle: a, data_only: true }), Err(Errno::IO));
    served.wait_for_grace(|| two.set_lock(b, range, false));
    assert_eq!(set(&mut two, b, range), Err(Errno::AGAIN));
    assert_eq!(one.ask(claim(range)), Err(Errno::STALE), "the grace period is bounded");
    let node = one.node_of_f();
    assert_eq!(one.ask(NodeOp::Flush { node, handle: a, owner: 5 }), Err(Errno::IO));
    set(&mut two, b, range).unwrap();
    assert_eq!(set(&mut two, b, whole), Err(Errno::AGAIN));
    let release = NodeOp::Release { node, handle: a, owner: Some(6) };
    assert_eq!(one.ask(release), Err(Errno::BADF));
    set(&mut two, b, whole).unwrap();
}

#[test]
fn claim_finds_only_the_file_that_was_locked() {
    let mut served = Served::new();
    fs::write(served.path("f"), "").unwrap();
    let mut one = served.asker(1);
    let a = one.open("f", libc::O_RDWR).unwrap();
    let whole = lock(6, (0, u64::MAX), FileLockKind::Exclusive, true);
    let (file, node) = (held(&mut one, a, whole), one.node_of_f());
    drop(one);
    served.restart();
    let mut one = served.asker(1);
    let claim = |file: LockedFile| NodeOp::ReclaimLock { node, handle: a, file, lock: whole };
    for path in ["", "/", "../f", "f/", "gone"] {
        let other = LockedFile { path: path.into(), ..file.clone() };
        let is_refused = one.ask(claim(other)).is_err();
        assert_eq!(is_refused, path != "f/", "{path:?}");
    }
    fs::rename(served.path("f"), served.path("g")).unwrap();
    fs::write(served.path("f"), "").unwrap();
    assert_eq!(one.ask(claim(file)), Err(Errno::STALE));
}

#[test]
fn client_that_lost_locks_has_its_open_files_fail() {
    let served = Served::new();
    fs::write(served.path("f"), "").unwrap();
    let mut one = served.asker(1);
    let (a, b) = (one.open("f", libc::O_RDWR).unwrap(), one.open("f", libc::O_RDWR).unwrap());
    one.ask(NodeOp::LoseFiles).unwrap();
    for handle in [a, b] {
        let read = NodeOp::Read { handle, offset: 0, size: 1 };
        assert_eq!(one.ask(read), Err(Errno::IO));
    }
    let c = one.open("f", libc::O_RDWR).unwrap();
    one.ask(NodeOp::Read { handle: c, offset: 0, size: 1 }).unwrap();
}
