//! What files are: attributes, kinds, holes, and what else a system knows of them.
use super::hosts::{EXPORT, POINT, ViewHosts, errno, inside};
use super::python::{Python, have_python};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use sheaf_testing::sessions::{turn, wait_until};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// All that can be told of a file, but when it was read last, which a look at it may change.
fn described(path: &Path) -> impl PartialEq + std::fmt::Debug + use<> {
    let of = fs::symlink_metadata(path).unwrap();
    let times = [(of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec())];
    let numbers = [of.ino(), of.nlink(), of.size(), of.blocks(), of.blksize()];
    (of.mode(), [of.uid(), of.gid()], numbers, times)
}

#[test]
fn attributes_are_the_owners_on_every_host() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    for maker in hosts.all() {
        let at = |name: &str| hosts.at(maker, 1, &format!("{name}{maker}"));
        fs::write(at("f"), "content").unwrap();
        fs::create_dir(at("d")).unwrap();
        symlink("nowhere", at("link")).unwrap();
        fs::hard_link(at("f"), at("hard")).unwrap();
        fs::set_permissions(at("f"), fs::Permissions::from_mode(0o4751)).unwrap();
        std::os::unix::fs::chown(at("d"), Some(1001), Some(2001)).unwrap();
        std::os::unix::fs::lchown(at("link"), Some(1002), None).unwrap();
        for name in ["f", "d", "link", "hard"] {
            let name = format!("{name}{maker}");
            let owners = described(&hosts.disk(1, &name));
            for host in hosts.all() {
                let seen = described(&hosts.at(host, 1, &name));
                assert_eq!(seen, owners, "{name} of h{maker} on h{host}");
            }
        }
        let mode = |path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(hosts.disk(1, &format!("f{maker}"))), 0o4751);
        let link = fs::read_link(hosts.at(1 + maker % 3, 1, &format!("link{maker}"))).unwrap();
        assert_eq!(link, Path::new("nowhere"));
    }
}

/// Clocks of hosts on one machine are one, so what is seen of it here is that no other time comes between: what the
/// owner's kernel stamps is what every host shows, in the order in which things were done.
#[test]
fn times_are_those_of_the_owners_clock_and_do_not_go_back() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    // The kernel stamps with a clock that goes in steps of some milliseconds.
    let step = Duration::from_millis(50);
    let mut last = SystemTime::now() - step;
    for round in 0..60 {
        let path = hosts.at(1 + round % 3, 1, "f");
        let before = SystemTime::now() - step;
        fs::write(&path, round.to_string()).unwrap();
        if round % 4 == 0 {
            // Now is what the owner takes for it.
            let file = File::options().write(true).open(&path).unwrap();
            rustix::fs::futimens(&file, &now()).unwrap();
        }
        let owners = fs::metadata(hosts.disk(1, "f")).unwrap().modified().unwrap();
        for host in hosts.all() {
            let seen = fs::metadata(hosts.at(host, 1, "f")).unwrap().modified().unwrap();
            assert_eq!(seen, owners, "h{host}");
        }
        assert!(owners >= last && owners >= before && owners <= SystemTime::now(), "{round}");
        last = owners;
    }
    // What is set is what is shown, to the nanosecond.
    let set = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let file = File::options().write(true).open(hosts.at(2, 1, "f")).unwrap();
    file.set_modified(set).unwrap();
    for host in hosts.all() {
        assert_eq!(fs::metadata(hosts.at(host, 1, "f")).unwrap().modified().unwrap(), set);
    }
    // A change of nothing is a change to Linux.
    let changed = || {
        let found = fs::metadata(hosts.disk(1, "f")).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    for host in hosts.all() {
        let before = changed();
        std::thread::sleep(step);
        std::os::unix::fs::chown(hosts.at(host, 1, "f"), None, None).unwrap();
        assert!(changed() > before, "h{host}");
    }
}

fn now() -> rustix::fs::Timestamps {
    let now = || rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    rustix::fs::Timestamps { last_access: now(), last_modification: now() }
}

#[test]
fn special_files_are_names_that_lead_nowhere_on_other_hosts() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let make = |host: usize, name: &str, kind: FileType, device| {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, hosts.at(host, 1, name), kind, mode, device).unwrap();
    };
    let zero = rustix::fs::makedev(1, 5);
    for maker in hosts.all() {
        make(maker, &format!("pipe{maker}"), FileType::Fifo, 0);
        make(maker, &format!("socket{maker}"), FileType::Socket, 0);
        make(maker, &format!("zero{maker}"), FileType::CharacterDevice, zero);
        for host in hosts.all() {
            let kind = |name: &str| {
                let path = hosts.at(host, 1, &format!("{name}{maker}"));
                let found = fs::symlink_metadata(&path).unwrap();
                (found.file_type(), found.rdev(), found.mode() & 0o777)
            };
            assert!(kind("pipe").0.is_fifo() && kind("socket").0.is_socket());
            let (is, device, mode) = kind("zero");
            assert!(is.is_char_device() && device == zero && mode == 0o640, "h{host}");
        }
        let opened = File::open(hosts.at(2, 1, &format!("zero{maker}")));
        assert_eq!(errno(opened), Some(Errno::ACCESS), "no device of another host is used");
    }
    // A pipe joins the processes of one host.
    let said = hosts.shell(2, "cat h1/pipe1 & echo through >h1/pipe1; wait");
    assert_eq!(said.stdout, "through\n", "{said:?}");
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    let _reader =
        rustix::fs::open(hosts.at(2, 1, "pipe1"), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    let writer = rustix::fs::open(hosts.at(1, 1, "pipe1"), flags, Mode::empty());
    assert_eq!(writer.err(), Some(Errno::NXIO), "nobody reads it on this host");
}

fn xattr(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 70_000];
    let length = rustix::fs::getxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// Attributes of security modules, which are not asked for where a file has none.
fn labels_are_the_owners(hosts: &ViewHosts) {
    fs::write(hosts.disk(1, "plain"), "").unwrap();
    let label = "security.sheaf";
    for round in 0..3u8 {
        for host in [2, 3] {
            let found = xattr(&hosts.at(host, 1, "plain"), label);
            let expected = if round == 0 { Err(Errno::NODATA) } else { Ok(vec![round]) };
            assert_eq!(found, expected, "h{host}");
        }
        let set =
            rustix::fs::setxattr(hosts.disk(1, "plain"), label, &[round + 1], XattrFlags::empty());
        if let Err(errno) = set {
            sheaf_testing::skipped(&format!("no {label} where hosts are: {errno}"));
            break;
        }
    }
}

#[test]
fn extended_attributes_are_the_owners() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    fs::write(hosts.disk(1, "f"), "content").unwrap();
    let list = |path: &Path| {
        let mut names = vec![0; 70_000];
        let length = rustix::fs::listxattr(path, &mut names).unwrap();
        names.truncate(length);
        let mut names: Vec<String> = names
            .split(|byte| *byte == 0)
            .filter(|name| name.starts_with(b"user.") || name.starts_with(b"trusted."))
            .map(|name| String::from_utf8(name.to_vec()).unwrap())
            .collect();
        names.sort();
        names
    };
    if let Err(errno) =
        rustix::fs::setxattr(hosts.disk(1, "f"), "user.own", b"its own", XattrFlags::CREATE)
    {
        return sheaf_testing::skipped(&format!("no attributes where hosts are: {errno}"));
    }
    labels_are_the_owners(&hosts);
    for host in [2, 3] {
        let path = hosts.at(host, 1, "f");
        assert_eq!(xattr(&path, "user.own").unwrap(), b"its own");
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        let name = format!("user.of{host}");
        set(&name, b"", XattrFlags::CREATE).unwrap();
        assert_eq!(set(&name, b"again", XattrFlags::CREATE), Err(Errno::EXIST));
        set(&name, &[7; 1000], XattrFlags::REPLACE).unwrap();
        assert_eq!(set("user.none", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
        set("trusted.mark", b"root's", XattrFlags::empty()).unwrap();
        for seer in hosts.all() {
            assert_eq!(xattr(&hosts.at(seer, 1, "f"), &name).unwrap(), [7; 1000], "h{seer}");
            assert_eq!(xattr(&hosts.at(seer, 1, "f"), "trusted.mark").unwrap(), b"root's");
        }
        // Too little room, and how much it takes.
        assert_eq!(rustix::fs::getxattr(&path, &*name, &mut [0; 10]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr_query(&path, &*name), Ok(1000));
        let names = rustix::fs::listxattr_query(&path);
        assert_eq!(names, rustix::fs::listxattr_query(hosts.disk(1, "f")));
        assert!(names.unwrap() > 0);
        assert_eq!(list(&path), list(&hosts.disk(1, "f")));
        assert_eq!(list(&path).len(), 3);
        rustix::fs::removexattr(&path, &*name).unwrap();
        assert_eq!(xattr(&hosts.disk(1, "f"), &name), Err(Errno::NODATA));
    }
    // What is too much for the owner's file system is too much for it from here.
    let mut errors = Vec::new();
    for path in [hosts.disk(1, "f"), hosts.at(2, 1, "f")] {
        let value = vec![1; 65_537];
        errors.push(rustix::fs::setxattr(path, "user.big", &value, XattrFlags::empty()));
    }
    assert_eq!(errors[0], errors[1]);
}

/// An access control list as the kernel keeps it: the owner's rights, one user's, the group's, the mask, others'.
fn list_of_one_user(uid: u32, rights: u16) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in
        [(1u16, 6u16, NONE), (2, rights, uid), (4, 0, NONE), (16, rights, NONE), (32, 0, NONE)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn access_control_lists_hold_on_every_host() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    const NAME: &str = "system.posix_acl_access";
    let list = list_of_one_user(1001, 4);
    fs::write(hosts.disk(1, "f"), "for one").unwrap();
    fs::set_permissions(hosts.disk(1, "f"), fs::Permissions::from_mode(0o600)).unwrap();
    let read = format!("open('{}').read()", inside(1, "f"));
    let mut readers: Vec<Python> = [(2, 1001), (3, 1001), (2, 1002), (1, 1001)]
        .iter()
        .map(|(host, uid)| Python::of_user(&hosts, *host, *uid, *uid, ""))
        .collect();
    let mut answers = || readers.iter_mut().map(|reader| reader.ask(&read)).collect::<Vec<_>>();
    assert_eq!(answers(), ["EACCES"; 4]);
    let set = rustix::fs::setxattr(hosts.at(2, 1, "f"), NAME, &list, XattrFlags::empty());
    if set == Err(Errno::OPNOTSUPP) {
        return sheaf_testing::skipped("no access control lists where hosts are");
    }
    set.unwrap();
    for path in [hosts.disk(1, "f"), hosts.at(3, 1, "f")] {
        let mut room = vec![0; 1000];
        let length = rustix::fs::getxattr(&path, NAME, &mut room).unwrap();
        assert_eq!(room[..length], list, "{}", path.display());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640, "its mask");
    }
    assert_eq!(answers(), ["ok for one", "ok for one", "EACCES", "ok for one"]);
    rustix::fs::removexattr(hosts.at(3, 1, "f"), NAME).unwrap();
    fs::set_permissions(hosts.at(2, 1, "f"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(answers(), ["EACCES"; 4]);
}

#[test]
fn holes_and_room_are_the_owners() {
    const BLOCK: u64 = 65_536;
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    // The same on the disk, and by another host.
    let mut told = Vec::new();
    for path in [hosts.disk(1, "plain"), hosts.at(2, 1, "remote")] {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(20 * BLOCK).unwrap();
        file.write_all_at(&vec![1; BLOCK as usize], 4 * BLOCK).unwrap();
        let allocate = |flags: FallocateFlags, at: u64, length: u64| {
            rustix::fs::fallocate(&file, flags, at * BLOCK, length * BLOCK)
                .map_err(|errno| errno.raw_os_error())
        };
        let seek = |to| rustix::fs::seek(&file, to).map_err(|errno| errno.raw_os_error());
        let mut of_this = vec![
            seek(SeekFrom::Data(0)),
            seek(SeekFrom::Hole(4 * BLOCK)),
            seek(SeekFrom::Data(6 * BLOCK)),
            seek(SeekFrom::Hole(20 * BLOCK)),
        ];
        let keep = FallocateFlags::KEEP_SIZE;
        let results = [
            allocate(FallocateFlags::empty(), 30, 2),
            allocate(keep, 40, 2),
            allocate(keep | FallocateFlags::PUNCH_HOLE, 4, 1),
            allocate(FallocateFlags::ZERO_RANGE, 30, 1),
        ];
        file.write_all_at(&vec![2; BLOCK as usize], 9 * BLOCK).unwrap();
        of_this.extend(results.map(|result| result.map(|()| 0)));
        of_this.push(seek(SeekFrom::Data(0)));
        let found = fs::metadata(&path).unwrap();
        of_this.push(Ok(found.len()));
        of_this.push(Ok(found.blocks()));
        // These the kernel asks of no file system of this kind.
        if path != hosts.disk(1, "plain") {
            for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
                assert_eq!(allocate(flags, 1, 1), Err(Errno::OPNOTSUPP.raw_os_error()));
            }
        }
        told.push((of_this, fs::read(&path).unwrap().iter().filter(|byte| **byte != 0).count()));
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].0[0], Ok(4 * BLOCK), "where hosts are there are no holes");
    let room = |path| {
        let of = rustix::fs::statvfs(path).unwrap();
        (of.f_bsize, of.f_frsize, of.f_blocks, of.f_files, of.f_namemax)
    };
    assert_eq!(room(hosts.at(2, 1, "")), room(hosts.disk(1, "")));
}

#[test]
fn bytes_are_copied_from_file_to_file_at_the_owner() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let content: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    fs::write(hosts.disk(1, "from"), &content).unwrap();
    let source = File::open(hosts.at(2, 1, "from")).unwrap();
    let target = File::create(hosts.at(2, 1, "to")).unwrap();
    let (mut at, mut there) = (1000, 0);
    while at < content.len() as u64 {
        let copied =
            rustix::fs::copy_file_range(&source, Some(&mut at), &target, Some(&mut there), 1 << 30);
        assert!(copied.unwrap() > 0);
    }
    assert_eq!(fs::read(hosts.disk(1, "to")).unwrap(), &content[1000..]);
    // From one host to another the program has to do it, and std does.
    let copied = fs::copy(hosts.at(2, 1, "from"), hosts.at(2, 2, "from")).unwrap();
    assert_eq!(copied, content.len() as u64);
    assert_eq!(fs::read(hosts.disk(2, "from")).unwrap(), content);
}

#[test]
fn file_without_a_name_is_given_one_later_or_never() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let open = |at: &Path| rustix::fs::open(at, flags, Mode::from_raw_mode(0o640)).map(File::from);
    let at = hosts.at(2, 1, "");
    let file = match (open(&at), open(&hosts.disk(1, ""))) {
        (Ok(file), _) => file,
        // The kernel is older than 6.2, or the owner's file system has none.
        (Err(errno), plain) => {
            assert_eq!(errno, Errno::OPNOTSUPP);
            let whose = if plain.is_ok() { "FUSE of this kernel" } else { "where hosts are" };
            return sheaf_testing::skipped(&format!("no files without names: {whose}"));
        }
    };
    file.write_all_at(b"content", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(hosts.disk(1, "")).unwrap().count(), 0);
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(CWD, own, CWD, at.join("named"), follow).unwrap();
    assert_eq!(fs::read_to_string(hosts.at(1, 1, "named")).unwrap(), "content");
    assert_eq!(fs::metadata(hosts.disk(1, "named")).unwrap().mode() & 0o777, 0o640);
    drop(open(&at).unwrap());
    assert_eq!(fs::read_dir(hosts.at(1, 1, "")).unwrap().count(), 1);
}

#[test]
fn memory_of_a_file_elsewhere_is_not_shared_for_writing() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    fs::write(hosts.disk(1, "f"), [b'x'; 10_000]).unwrap();
    let mut there = Python::new(&hosts, 2);
    there.must(&format!("f = open('{}', 'r+b')", inside(1, "f")));
    assert_eq!(there.ask("mmap.mmap(f.fileno(), 10)"), "ENODEV");
    assert_eq!(there.ask("mmap.mmap(f.fileno(), 10, prot=mmap.PROT_READ)"), "ENODEV");
    there.must(&format!("r = open('{}', 'rb')", inside(1, "f")));
    assert_eq!(there.ask("mmap.mmap(r.fileno(), 10, prot=mmap.PROT_READ)"), "ENODEV");
    there.must("m = mmap.mmap(f.fileno(), 10000, flags=mmap.MAP_PRIVATE)");
    assert_eq!(
        there.must("m[9990:]"),
        format!("{:?}", "x".repeat(10)).replace('"', "'").replacen('\'', "b'", 1)
    );
    there.must("m[0:3] = b'own'");
    assert_eq!(fs::read(hosts.disk(1, "f")).unwrap(), [b'x'; 10_000]);
    // Programs are run so.
    fs::copy("/bin/true", hosts.disk(1, "true")).unwrap();
    assert_eq!(hosts.shell(2, "h1/true && cp h1/true h1/again && h1/again").code, Some(0));
    // The own host's files are its own.
    let mut here = Python::new(&hosts, 1);
    here.must(&format!("f = open('{}', 'r+b')", inside(1, "f")));
    here.must("m = mmap.mmap(f.fileno(), 10)");
    here.must("m[0:6] = b'shared'");
    assert_eq!(there.must("f.seek(0) or f.read(7)"), "b'sharedx'");
}

#[test]
fn memory_that_is_shared_for_reading_is_as_the_file() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    for host in [2, 3] {
        assert_eq!(hosts.sheaf(host, &["umount", POINT]).code, Some(0));
        let again = hosts.sheaf(host, &["--quiet", "mount", "--mmap", POINT]);
        assert_eq!(again.code, Some(0), "{again:?}");
    }
    fs::write(hosts.disk(1, "f"), [b'0'; 10_000]).unwrap();
    let at = inside(1, "f");
    let mut readers = [2, 3].map(|host| {
        let mut python = Python::new(&hosts, host);
        python.must(&format!("f = open('{at}', 'rb', buffering=0)"));
        python.must("m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)");
        assert_eq!(python.must("m[9990:]"), "b'0000000000'");
        let writable = "mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE)";
        assert_eq!(python.ask(writable), "EACCES");
        python
    });
    // Other hosts write, the owner's own programs, and the host of a reader.
    for round in 1..=9u8 {
        let host = usize::from(1 + round % 3);
        let digit = char::from(b'0' + round);
        let mut writer = Python::new(&hosts, host);
        writer.must(&format!("w = os.open('{at}', os.O_RDWR)"));
        assert_eq!(writer.must(&format!("os.pwrite(w, b'{digit}' * 10000, 0)")), "10000");
        for reader in &mut readers {
            let both = "(m[9999:], os.pread(f.fileno(), 1, 9999))";
            // What a program of the owner writes with the file open is mapped a moment later.
            if host == 1 {
                assert_eq!(reader.must("os.pread(f.fileno(), 1, 9999)"), format!("b'{digit}'"));
                wait_until("the map has what was written", || {
                    reader.must(both) == format!("(b'{digit}', b'{digit}')")
                });
            }
            assert_eq!(reader.must(both), format!("(b'{digit}', b'{digit}')"), "h{host}");
        }
        writer.must("os.close(w)");
    }
    // It grows, and a new map has all of it.
    let mut writer = Python::new(&hosts, 3);
    writer.must(&format!("os.close(os.open('{at}', os.O_WRONLY | os.O_APPEND))"));
    writer.must(&format!("w = os.open('{at}', os.O_WRONLY | os.O_APPEND)"));
    writer.must("os.write(w, b'end')");
    assert_eq!(readers[0].must("os.fstat(f.fileno()).st_size"), "10003");
    readers[0].must("m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)");
    assert_eq!(readers[0].must("m[10000:]"), "b'end'");
    // A file that is open for writing when it is opened is not mapped: changes of it cannot be seen.
    let mut late = Python::new(&hosts, 2);
    late.must(&format!("f = open('{at}', 'rb')"));
    assert_eq!(late.ask("mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)"), "ENODEV");
}

#[test]
fn absolute_links_lead_into_their_own_host() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    for (host, text) in [(1, "the owner's"), (2, "another host's")] {
        fs::create_dir(hosts.disk(host, "conf")).unwrap();
        fs::write(hosts.disk(host, "conf/c"), text).unwrap();
    }
    fs::create_dir_all(hosts.disk(1, "etc/deep")).unwrap();
    let links = [
        ("etc/deep/c", format!("{EXPORT}/conf/c"), "../../conf/c"),
        ("top", format!("{EXPORT}/etc"), "etc"),
        ("etc/root", format!("{EXPORT}/"), ".."),
        // As all tools take it.
        ("etc/of-export", "/conf/c".to_owned(), "../conf/c"),
        ("etc/plain", "../conf/c".to_owned(), "../conf/c"),
        ("etc/view", inside(2, "conf/c"), &inside(2, "conf/c")),
        // What climbs does not get above the root, whatever links it goes by.
        ("self", "/".to_owned(), "."),
        ("etc/up", "/../../../../conf/c".to_owned(), "../conf/c"),
        ("etc/up-plain", "../../../../../conf/c".to_owned(), "../conf/c"),
        ("etc/up-links", "../self/self/../../../../conf/c".to_owned(), "../conf/c"),
        ("etc/up-absolute", "/self/self/../../../../conf/c".to_owned(), "../conf/c"),
        ("etc/up-view", format!("{POINT}/../../conf/c"), "../conf/c"),
        ("etc/up-new", "/../conf/../../new".to_owned(), "../new"),
        ("etc/up-nowhere", "/nowhere/../../../new/".to_owned(), "../new/"),
    ];
    for (name, text, shown) in &links {
        symlink(text, hosts.disk(1, name)).unwrap();
        let seen = hosts.at(2, 1, name);
        assert_eq!(fs::read_link(&seen).unwrap().to_str(), Some(*shown), "{name}");
        assert_eq!(fs::symlink_metadata(&seen).unwrap().len(), shown.len() as u64, "{name}");
    }
    // Who looks at a link does not read it.
    let set = hosts.shell(2, "touch -h -a -d @1000 h1/top; touch -h -m -d @2000 h1/top");
    assert_eq!(set.code, Some(0), "{set:?}");
    for _ in 0..2 {
        let seen = fs::symlink_metadata(hosts.at(2, 1, "top")).unwrap();
        assert_eq!((seen.atime(), seen.mtime()), (1000, 2000));
    }
    let read =
        hosts.shell(2, "cat h1/etc/deep/c h1/top/deep/c h1/etc/of-export h1/etc/plain h1/etc/up*");
    assert_eq!(read.stdout, "the owner's".repeat(4 + 5), "{read:?}");
    assert_eq!(hosts.shell(2, "cat h1/etc/view").stdout, "another host's");
    hosts.shell(2, "printf changed >h1/top/deep/c");
    assert_eq!(fs::read_to_string(hosts.disk(1, "conf/c")).unwrap(), "changed");
    assert_eq!(fs::read_to_string(hosts.disk(2, "conf/c")).unwrap(), "another host's");
    // As they are.
    assert_eq!(hosts.sheaf(2, &["umount", POINT]).code, Some(0));
    let keep = hosts.sheaf(2, &["--quiet", "mount", "--links", "keep", POINT]);
    assert_eq!((keep.code, keep.stderr.as_str()), (Some(0), ""));
    for (name, text, _) in &links {
        assert_eq!(fs::read_link(hosts.at(2, 1, name)).unwrap().to_str(), Some(text.as_str()));
    }
    assert_eq!(hosts.shell(2, "cat h1/etc/deep/c").stdout, "another host's");
}

#[test]
fn file_systems_below_an_export_are_mounts_of_their_own() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let owner = |script: &str| {
        let run = hosts.shell_at(1, EXPORT, script);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{script}");
        run.stdout
    };
    owner(
        "mkdir -p tree/sub; mount -t tmpfs none tree/sub; mkdir tree/sub/deep
         mount -t tmpfs none tree/sub/deep; echo x >tree/sub/precious; echo y >tree/sub/deep/f; >tree/top",
    );
    let at = |name: &str| hosts.at(2, 1, name);
    let device = |name: &str| fs::metadata(at(name)).unwrap().dev();
    let found = hosts.shell(2, "find h1/tree -xdev | sort");
    assert_eq!(found.stdout, "h1/tree\nh1/tree/sub\nh1/tree/top\n", "{found:?}");
    let devices = [device(""), device("tree/sub"), device("tree/sub/deep")];
    assert_eq!(device("tree"), devices[0]);
    assert!(devices[0] != devices[1] && devices[1] != devices[2] && devices[0] != devices[2]);
    // All else is as below any directory.
    let used = hosts
        .shell(2, "cd h1/tree/sub; cat precious deep/f ../sub/deep/f; echo new >deep/new; ls deep");
    assert_eq!((used.stdout.as_str(), used.stderr.as_str()), ("x\ny\ny\nf\nnew\n", ""));
    assert_eq!(owner("cat tree/sub/deep/new"), "new\n");
    let renamed = fs::rename(at("tree/sub/precious"), at("tree/sub/deep/precious"));
    assert_eq!(errno(renamed), Some(Errno::XDEV));
    fs::rename(at("tree/sub/deep/new"), at("tree/sub/deep/newer")).unwrap();
    hosts.shell(2, "rm -rf --one-file-system h1/tree || :");
    assert_eq!(owner("cat tree/sub/precious; ls tree"), "x\nsub\n");
    // The owner takes one away.
    wait_until("nobody uses it", || {
        hosts.shell_at(1, EXPORT, "umount tree/sub/deep").code == Some(0)
    });
    assert_eq!(device("tree/sub/deep"), devices[1]);
    assert_eq!(fs::read_dir(at("tree/sub/deep")).unwrap().count(), 0);
    // Another one comes.
    owner("mount -t tmpfs none tree/sub/deep; echo z >tree/sub/deep/z");
    assert_eq!(fs::read_to_string(at("tree/sub/deep/z")).unwrap(), "z\n");
    assert_ne!(device("tree/sub/deep"), devices[1]);
    let away = hosts.sheaf(2, &["umount", POINT]);
    assert_eq!((away.code, away.stderr.as_str()), (Some(0), ""));
    assert_eq!(hosts.shell_at(2, "/", "grep -c fuse.sheaf /proc/mounts || :").stdout, "0\n");
}

/// The kernel walks a path again once, and a shell leaves out of a pattern what it cannot look up.
#[test]
fn first_path_through_several_file_systems_leads_there() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let run = hosts.shell_at(
        1,
        EXPORT,
        "for dir in a a/b a/b/c; do mkdir -p $dir; mount -t tmpfs none $dir; done; echo x >a/b/c/f
         mkdir -p d; mount -t tmpfs none d; mkdir -p d/e/f; mount -t tmpfs none d/e/f; echo y >d/e/f/g",
    );
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for (script, told) in [("cat h1/a/b/c/f", "x\n"), ("cat h[12]/d/e/f/g", "y\n")] {
        let first = hosts.shell(2, script);
        assert_eq!((first.stdout.as_str(), first.stderr.as_str()), (told, ""), "{script}");
    }
    // From then on each is a mount of its own.
    let device = |name: &str| fs::metadata(hosts.at(2, 1, name)).unwrap().dev();
    let mut devices = ["", "a", "a/b", "a/b/c", "d", "d/e/f"].map(device).to_vec();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices.len(), 6);
    assert_eq!(hosts.shell(2, "cat h1/a/b/c/f h1/d/e/f/g").stdout, "x\ny\n");
}

/// Its descriptor at the owner is let go after some seconds.
#[test]
fn renamed_directory_of_a_second_file_system_is_found_again() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    let owner = |script: &str| {
        let run = hosts.shell_at(1, EXPORT, script);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{script}");
    };
    owner("mkdir disk; mount -t tmpfs none disk; mkdir -p disk/a/b; printf x >disk/a/b/f");
    let mut python = Python::new(&hosts, 2);
    python.must(&format!("os.chdir('{}')", inside(1, "disk/a/b")));
    assert_eq!(python.must("open('f').read()"), "x");
    let server = hosts.server(1);
    let is_named = |fd: fs::DirEntry| {
        fs::read_link(fd.path()).is_ok_and(|path| path.to_string_lossy().contains("/disk/"))
    };
    let let_go = || {
        wait_until("the descriptor is let go", || {
            let open = fs::read_dir(format!("/proc/{}/fd", server.pid)).unwrap();
            !open.flatten().any(is_named)
        });
    };
    let_go();
    owner("mv disk/a disk/c; mv disk/c/b disk/d");
    assert_eq!(python.ask("open('f').read()"), "ok x");
    assert_eq!(python.ask("os.listdir('.')"), "ok ['f']");
    // The one that it was in is gone, and forgotten.
    owner("mkdir -p disk/p/q/r; printf y >disk/p/q/r/f");
    python.must(&format!("os.chdir('{}')", inside(1, "disk/p/q/r")));
    let moved = hosts.shell(2, "mv h1/disk/p/q/r h1/disk/r; rm -r h1/disk/p");
    assert_eq!((moved.code, moved.stderr.as_str()), (Some(0), ""));
    let_go();
    assert_eq!(python.ask("open('f').read()"), "ok y");
    assert_eq!(python.ask("os.listdir('.')"), "ok ['f']");
    python.must("os.chdir('/')");
    wait_until("nobody uses it", || hosts.shell_at(1, EXPORT, "umount disk").code == Some(0));
}
