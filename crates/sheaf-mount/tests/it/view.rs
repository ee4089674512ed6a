//! What a mount says of itself, and what it refuses.
use crate::support::{Served, can_mount};
use sheaf_core::Errno;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn names_attributes_and_special_files_are_those_of_the_owner() {
    let served = Served::new();
    let Some(mounted) = served.mounted() else { return };
    fs::write(served.path("f"), "content").unwrap();
    fs::create_dir(mounted.path("d")).unwrap();
    let longest = "n".repeat(255);
    fs::write(mounted.path(&longest), "long").unwrap();
    assert_eq!(fs::read(served.path(&longest)).unwrap(), b"long");
    let too_long = fs::write(mounted.path(&"n".repeat(256)), "x").unwrap_err();
    assert_eq!(Errno::from_io(&too_long), Errno::NAMETOOLONG);
    symlink("nowhere", mounted.path("link")).unwrap();
    assert_eq!(fs::read_link(served.path("link")).unwrap(), Path::new("nowhere"));
    let mut fifo = Command::new("mkfifo");
    assert!(fifo.arg(mounted.path("pipe")).status().unwrap().success());
    assert!(fs::symlink_metadata(served.path("pipe")).unwrap().file_type().is_fifo());
    for name in ["f", "d", "link", "pipe", &longest] {
        let ours = fs::symlink_metadata(mounted.path(name)).unwrap();
        let theirs = fs::symlink_metadata(served.path(name)).unwrap();
        let is = |of: &fs::Metadata| {
            (
                of.ino(),
                of.mode(),
                of.nlink(),
                of.uid(),
                of.gid(),
                of.size(),
                of.blocks(),
                of.mtime_nsec(),
            )
        };
        assert_eq!(is(&ours), is(&theirs), "{name}");
    }
    // What the owner's programs change is seen at once.
    fs::write(served.path("f"), "and what is longer").unwrap();
    fs::set_permissions(served.path("f"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"and what is longer");
    assert_eq!(fs::metadata(mounted.path("f")).unwrap().mode() & 0o777, 0o600);
    fs::rename(served.path("f"), served.path("g")).unwrap();
    assert!(!mounted.path("f").exists() && mounted.path("g").exists());
}

#[test]
fn open_file_lives_on_without_a_name_and_appends_are_whole() {
    let served = Served::new();
    let Some(mounted) = served.mounted() else { return };
    fs::write(mounted.path("f"), "content").unwrap();
    let file = fs::File::open(mounted.path("f")).unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    assert_eq!(std::io::read_to_string(&file).unwrap(), "content");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    // From both sides, at once.
    let (here, there) = (mounted.path("log"), served.path("log"));
    std::thread::scope(|scope| {
        for (who, path) in [(0, &here), (1, &there), (2, &here)] {
            scope.spawn(move || {
                use std::io::Write;
                let mut log = fs::File::options().append(true).create(true).open(path).unwrap();
                for number in 0..500 {
                    let line = format!("{who} {number} {}\n", "x".repeat(number % 90));
                    log.write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
    let log = fs::read_to_string(&there).unwrap();
    let mut next = [0; 3];
    for line in log.lines() {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap().parse::<usize>().unwrap();
        let (who, number) = (number(), number());
        assert_eq!((number, words.next().unwrap().len()), (next[who], number % 90));
        next[who] += 1;
    }
    assert_eq!(next, [500; 3]);
}

#[test]
fn shared_memory_maps_are_refused_and_private_ones_are_not() {
    let served = Served::new();
    let Some(mounted) = served.mounted() else { return };
    fs::write(served.path("f"), vec![7; 10_000]).unwrap();
    let script = "import mmap,sys\nf=open(sys.argv[1],'r+b')\n\
                  try:\n  mmap.mmap(f.fileno(),10)\n  print('shared')\n\
                  except OSError as e: print(e.errno)\n\
                  print(len(mmap.mmap(f.fileno(),10,flags=mmap.MAP_PRIVATE)[:]))";
    let mut python = Command::new("python3");
    let Ok(said) = python.args(["-c", script]).arg(mounted.path("f")).output() else {
        return sheaf_testing::skipped("there is no python3");
    };
    assert_eq!(String::from_utf8_lossy(&said.stdout), "19\n10\n", "{said:?}");
}

#[test]
fn holes_and_room_are_the_owners() {
    let served = Served::new();
    let Some(mounted) = served.mounted() else { return };
    let mut options = fs::File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.open(mounted.path("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 1 << 19, 4096).unwrap();
    let seek = |to| rustix::fs::seek(file.as_fd(), to).map_err(|errno| errno.raw_os_error());
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(0));
    let other = fs::File::create(mounted.path("g")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 0).unwrap();
    let copied =
        rustix::fs::copy_file_range(&file, Some(&mut 0), &other, Some(&mut 0), 1000).unwrap();
    assert_eq!(copied, 1000);
    assert_eq!(&fs::read(served.path("g")).unwrap()[..4], b"data");
    let (ours, theirs) = (
        rustix::fs::statvfs(mounted.point.path()).unwrap(),
        rustix::fs::statvfs(served.directory.path()).unwrap(),
    );
    assert_eq!((ours.f_blocks, ours.f_files), (theirs.f_blocks, theirs.f_files));
    let temporary = rustix::fs::openat(
        rustix::fs::CWD,
        mounted.point.path(),
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::RUSR,
    );
    match temporary {
        Ok(file) => assert_eq!(fs::File::from(file).metadata().unwrap().nlink(), 0),
        // The kernel is older than 6.2, or the owner's file system has none.
        Err(errno) => assert_eq!(errno, rustix::io::Errno::OPNOTSUPP),
    }
}

/// Somebody who waits for a lock and is told to end ends.
#[test]
fn lock_waiter_acquires_the_lock_or_can_be_killed() {
    let served = Served::new();
    let Some(mounted) = served.mounted() else { return };
    fs::write(served.path("f"), "x").unwrap();
    let here = fs::File::options().write(true).open(served.path("f")).unwrap();
    for is_freed in [true, false] {
        // The kernel tells that a file was closed for the last time a moment after it was.
        while here.try_lock().is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut flock = Command::new("flock");
        let mut waits = flock.arg(mounted.path("f")).args(["echo", "mine"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(waits.try_wait().unwrap().is_none());
        let begun = Instant::now();
        if is_freed {
            here.unlock().unwrap();
            assert!(waits.wait().unwrap().success());
        } else {
            let pid = rustix::process::Pid::from_child(&waits);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            assert!(!waits.wait().unwrap().success());
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn mount_is_gone_with_who_has_it_and_a_point_has_to_be_there() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let mounted = served.mounted().unwrap();
    let point = mounted.point.path().to_owned();
    let is_mounted =
        || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(point.to_str().unwrap());
    assert!(is_mounted());
    drop(mounted);
    assert!(!is_mounted());
}
