//! What is written, and what is read.
use super::hosts::{EXPORT, Over, POINT, ViewHosts, inside};
use super::python::{Python, have_python};
use rustix::fs::OFlags;
use sheaf_testing::program::{Guard, have};
use sheaf_testing::sessions::{turn, wait_until};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn write_that_has_returned_is_seen_by_every_later_read() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    File::create(hosts.disk(1, "f")).unwrap();
    // Files that have been open since before, and such as are opened anew.
    let mut open: Vec<File> =
        hosts.all().map(|host| File::open(hosts.at(host, 1, "f")).unwrap()).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..200 {
        let writer = hosts.at(1 + round % 3, 1, "f");
        let text = format!("{round} {}", "x".repeat(random.usize(..9000)));
        let file = if round % 2 == 0 {
            File::create(&writer).unwrap()
        } else {
            let file = File::options().write(true).open(&writer).unwrap();
            file.set_len(text.len() as u64).unwrap();
            file
        };
        file.write_all_at(text.as_bytes(), 0).unwrap();
        for (host, open) in hosts.all().zip(&mut open) {
            let path = hosts.at(host, 1, "f");
            assert_eq!(fs::metadata(&path).unwrap().len(), text.len() as u64, "{round}: h{host}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "{round}: h{host}");
            let mut read = String::new();
            open.seek(SeekFrom::Start(0)).unwrap();
            open.read_to_string(&mut read).unwrap();
            assert_eq!(read, text, "{round}: h{host}, which has had it open");
        }
    }
}

/// The same while others write: nobody reads less than what was told to be written before.
#[test]
fn reads_are_never_older_than_a_completed_write() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    fs::write(hosts.disk(1, "f"), 0u64.to_le_bytes()).unwrap();
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        for host in hosts.all() {
            let (file, written) = (File::open(hosts.at(host, 1, "f")).unwrap(), &written);
            let (is_over, reads) = (&is_over, &reads);
            scope.spawn(move || {
                let mut last = 0;
                while !is_over.load(Ordering::Acquire) {
                    let before = written.load(Ordering::Acquire).max(last);
                    let mut bytes = [0; 8];
                    file.read_exact_at(&mut bytes, 0).unwrap();
                    last = u64::from_le_bytes(bytes);
                    assert!(last >= before, "h{host} has read {last} after {before}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let writers: Vec<File> = hosts
            .all()
            .map(|host| File::options().write(true).open(hosts.at(host, 1, "f")).unwrap())
            .collect();
        for number in 1..=1500u64 {
            writers[number as usize % 3].write_all_at(&number.to_le_bytes(), 0).unwrap();
            written.store(number, Ordering::Release);
        }
        drop(over);
    });
    assert!(reads.into_inner() > 100);
}

#[test]
fn records_that_many_hosts_append_are_whole() {
    const RECORDS: usize = 400;
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    let writers = 2 * hosts.all().count();
    let length = |number: usize| number * 37 % 5000;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let path = hosts.at(1 + writer % 3, 1, "log");
            scope.spawn(move || {
                let mut log = File::options().append(true).create(true).open(path).unwrap();
                for number in 0..RECORDS {
                    let line = format!("{writer} {number} {}\n", "x".repeat(length(number)));
                    // One call of the system.
                    assert_eq!(log.write(line.as_bytes()).unwrap(), line.len());
                }
            });
        }
    });
    let log = fs::read_to_string(hosts.disk(1, "log")).unwrap();
    assert_eq!(fs::metadata(hosts.at(3, 1, "log")).unwrap().size(), log.len() as u64);
    let mut next = vec![0; writers];
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [writer, number, filling] = words[..] else { panic!("{line}") };
        let (writer, number): (usize, usize) = (writer.parse().unwrap(), number.parse().unwrap());
        assert_eq!((number, filling.len()), (next[writer], length(number)), "of {writer}");
        next[writer] += 1;
    }
    assert_eq!(next, vec![RECORDS; writers]);
}

#[test]
fn open_file_lives_on_without_a_name_for_whoever_has_it_open() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    for remover in hosts.all() {
        fs::write(hosts.disk(1, "f"), "content").unwrap();
        let open = |host| {
            let path = hosts.at(host, 1, "f");
            File::options().read(true).write(true).open(path).unwrap()
        };
        let files: Vec<File> = hosts.all().map(open).collect();
        fs::remove_file(hosts.at(remover, 1, "f")).unwrap();
        // Another file of this name is another file.
        fs::write(hosts.at(1 + remover % 3, 1, "f"), "another").unwrap();
        files[0].write_all_at(b"CON", 0).unwrap();
        files[1].write_all_at(b" and more", 7).unwrap();
        for (file, host) in files.iter().zip(hosts.all()) {
            let mut read = [0; 16];
            assert_eq!(file.read_at(&mut read, 0).unwrap(), 16, "h{host}");
            assert_eq!(&read, b"CONtent and more", "h{host}");
            assert_eq!(file.metadata().unwrap().nlink(), 0, "h{host}");
            assert_eq!(fs::read_to_string(hosts.at(host, 1, "f")).unwrap(), "another");
        }
        // With the last who has it open it is gone, and its room is free.
        let server = hosts.server(1);
        let held = || {
            let entries = fs::read_dir(format!("/proc/{}/fd", server.pid)).unwrap();
            let names = entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
            names.filter(|name| name.to_string_lossy().ends_with("/f (deleted)")).count()
        };
        assert!(held() > 0);
        drop(files);
        wait_until("nobody holds it any more", || held() == 0);
    }
}

/// Records that are always equal are read as equal, however often they are replaced meanwhile.
#[test]
fn removed_file_frees_space_and_its_file_system_unmounts() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let shell = |host, script: &str| {
        let run =
            hosts.shell_at(host, if host == 1 { EXPORT } else { "/run/view/hosts/h1" }, script);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        run.stdout
    };
    shell(1, "mkdir small; mount -t tmpfs -o size=4m none small; head -c 3m /dev/zero > small/a");
    assert_eq!(shell(2, "stat -c %s small/a; cat small/a | wc -c"), "3145728\n3145728\n");
    shell(1, "rm small/a");
    let used = "df --output=used small | tail -n 1";
    wait_until("its room is free", || shell(1, used).trim() == "0");
    shell(1, "head -c 3m /dev/zero > small/b");
    assert_eq!(shell(2, "cat small/b | wc -c"), "3145728\n");
    wait_until("its file system can be taken away", || {
        hosts.shell_at(1, EXPORT, "umount small").code == Some(0)
    });
    assert_eq!(shell(2, "ls small"), "");
}

#[test]
fn open_file_stays_the_same_inode_despite_many_lookups() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    for name in ["f", "named"] {
        fs::write(hosts.disk(1, name), "old").unwrap();
    }
    let options = |flags: OFlags| {
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits().cast_signed());
        options
    };
    let file = File::options().read(true).write(true).open(hosts.at(2, 1, "f")).unwrap();
    let named = options(OFlags::PATH).open(hosts.at(2, 1, "named")).unwrap();
    fs::create_dir(hosts.disk(1, "many")).unwrap();
    (0..12_000).for_each(|number| drop(File::create(hosts.disk(1, &format!("many/{number}")))));
    for entry in fs::read_dir(hosts.at(2, 1, "many")).unwrap() {
        assert!(entry.unwrap().metadata().unwrap().is_file());
    }
    // Another file, which may have the number of the one before.
    for name in ["f", "named"] {
        fs::remove_file(hosts.disk(1, name)).unwrap();
        fs::write(hosts.disk(1, name), "another").unwrap();
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        let again = File::open(format!("/proc/self/fd/{}", named.as_raw_fd()));
        let read = again.and_then(std::io::read_to_string);
        assert!(read.as_ref().map_or(true, |read| read == "old"), "{read:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
    file.write_all_at(b"new", 0).unwrap();
    let mut read = [0; 3];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"new");
    assert_eq!(fs::read_to_string(hosts.at(2, 1, "named")).unwrap(), "another");
}

#[test]
fn read_returns_content_of_one_moment() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let own = File::create(hosts.disk(1, "f")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        scope.spawn(|| {
            for number in 1u64.. {
                own.set_len(0).unwrap();
                own.write_all_at(&number.to_le_bytes(), 0).unwrap();
                own.write_all_at(&number.to_le_bytes(), 8).unwrap();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let read = |(host, reads)| {
            let file = File::open(hosts.at(host, 1, "f")).unwrap();
            let (mut lengths, mut torn) = ([0; 3], Vec::new());
            // On a busy machine the writer may have no turn for long.
            let until = Instant::now() + Duration::from_secs(60);
            let meets_all = |lengths: &[u32; 3]| lengths[1] > 10 && lengths[2] > 10;
            for number in 0.. {
                if number >= reads && (meets_all(&lengths) || Instant::now() > until) {
                    break;
                }
                let mut read = [0; 512];
                let length = file.read_at(&mut read, 0).unwrap();
                lengths[length / 8] += 1;
                if length == 16 && read[..8] != read[8..16] {
                    torn.push(read[..16].to_vec());
                }
            }
            (host, lengths, torn)
        };
        let all = [(1, 50_000), (2, 20_000)].map(read);
        drop(over);
        for (host, lengths, torn) in all {
            assert!(torn.is_empty(), "h{host}: {torn:?}");
            assert!(lengths[1] > 10 && lengths[2] > 10, "h{host}: {lengths:?}");
        }
    });
}

#[test]
fn each_write_appends_or_not_by_its_own_flags() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    for (one, other) in [(2, 3), (3, 1), (1, 2)] {
        let name = format!("log{one}{other}");
        let open = |host| {
            let mut python = Python::new(&hosts, host);
            let at = inside(1, &name);
            python.must(&format!("f = os.open('{at}', os.O_RDWR | os.O_CREAT)"));
            python
                .must("fcntl.fcntl(f, fcntl.F_SETFL, fcntl.fcntl(f, fcntl.F_GETFL) | os.O_APPEND)");
            python
        };
        let (mut first, mut second) = (open(one), open(other));
        for _ in 0..20 {
            assert_eq!(first.must("os.write(f, b'first\\n')"), "6");
            assert_eq!(second.must("os.write(f, b'other\\n')"), "6");
        }
        let text = fs::read_to_string(hosts.disk(1, &name)).unwrap();
        assert_eq!(text, "first\nother\n".repeat(20), "h{one} and h{other}");
        // The flag is taken off.
        first.must("fcntl.fcntl(f, fcntl.F_SETFL, fcntl.fcntl(f, fcntl.F_GETFL) & ~os.O_APPEND)");
        first.must("os.pwrite(f, b'FIRST', 0)");
        let text = fs::read_to_string(hosts.disk(1, &name)).unwrap();
        assert!(text.len() == 240 && text.starts_with("FIRST\nother\n"), "{text:?}");
    }
}

/// The kernel adds what was appended to the size that it knows. It asks for nothing, so the owner tells it each size.
#[test]
fn position_after_an_append_is_behind_the_record() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    let append = "os.O_APPEND";
    for (name, flags, later) in
        [("open", append, "0"), ("made", "os.O_APPEND | os.O_CREAT", "0"), ("later", "0", append)]
    {
        fs::write(hosts.disk(1, name), "begin\n").unwrap();
        let mut writers = [2, 3].map(|host| {
            let mut python = Python::new(&hosts, host);
            python.must(&format!("f = os.open('{}', os.O_RDWR | {flags})", inside(1, name)));
            python.must(&format!(
                "fcntl.fcntl(f, fcntl.F_SETFL, fcntl.fcntl(f, fcntl.F_GETFL) | {later})"
            ));
            // From its first append on the owner knows that it appends.
            python.must("os.write(f, b'first\\n')");
            python
        });
        for round in 0..20 {
            for (at, writer) in writers.iter_mut().enumerate() {
                let record = format!("{at}-{round:02}\\n");
                writer.must(&format!("os.write(f, b'{record}')"));
                let position = "os.pread(f, 5, os.lseek(f, 0, os.SEEK_CUR) - 5)";
                assert_eq!(writer.must(position), format!("b'{record}'"), "{name}");
            }
        }
        // The owner's own programs tell nobody: the position is wrong once.
        let mut log = File::options().append(true).open(hosts.disk(1, name)).unwrap();
        log.write_all(b"own\n").unwrap();
        writers[0].must("os.write(f, b'x')");
        writers[0].must("os.write(f, b'y')");
        assert_eq!(writers[0].must("os.pread(f, 1, os.lseek(f, 0, os.SEEK_CUR) - 1)"), "b'y'");
    }
}

/// The owner's system calls are traced. `syncfs` and `sync_file_range` do not reach FUSE, and Linux ignores `O_SYNC`
/// in `F_SETFL`.
#[test]
fn syncs_and_synchronous_writes_reach_the_owner() {
    let _turn = turn();
    if !have_python() || !have("strace") {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    fs::write(hosts.disk(1, "f"), "").unwrap();
    let trace = hosts.machines.home(1, "trace");
    let pid = hosts.server(1).pid.to_string();
    let args = ["-f", "-qq", "-e", "trace=fsync,fdatasync,pwrite64,pwritev2", "-e", "signal=none"];
    let mut strace = std::process::Command::new("strace");
    let mut strace =
        Guard(strace.args(args).arg("-o").arg(&trace).args(["-p", &pid]).spawn().unwrap());
    let mut python = Python::new(&hosts, 2);
    let at = inside(1, "f");
    python.must(&format!("plain = os.open('{at}', os.O_RDWR)"));
    let mut number = 0;
    wait_until("calls are traced", || {
        number += 1;
        python.must(&format!("os.pwrite(plain, b'begin{number}', 0)"));
        assert!(strace.0.try_wait().unwrap().is_none(), "strace cannot trace the server");
        fs::read_to_string(&trace).unwrap_or_default().contains("begin")
    });
    // How many traced calls have all of these words.
    let calls = |words: &[&str]| {
        let text = fs::read_to_string(&trace).unwrap();
        text.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    };
    python.must("os.fsync(plain)");
    wait_until("fsync is seen", || calls(&[" fsync("]) == 1);
    python.must("os.fdatasync(plain)");
    wait_until("fdatasync is seen", || calls(&[" fdatasync("]) == 1);
    python.must("os.pwrite(plain, b'lazy', 0)");
    python.must("os.pwritev(plain, [b'one'], 0, os.RWF_DSYNC)");
    wait_until("RWF_DSYNC is seen", || calls(&["one", "RWF_DSYNC"]) == 1);
    python.must("os.pwritev(plain, [b'two'], 0, os.RWF_SYNC)");
    wait_until("RWF_SYNC is seen", || calls(&["two", "RWF_SYNC"]) == 1);
    for (flag, word) in [("O_DSYNC", "dsync"), ("O_SYNC", "whole")] {
        python.must(&format!("synced = os.open('{at}', os.O_RDWR | os.{flag})"));
        python.must(&format!("os.pwrite(synced, b'{word}', 0)"));
        wait_until("the flag is seen", || calls(&[word, &flag.replace('O', "RWF")]) == 1);
    }
    python.must(&format!("directory = os.open('{}', os.O_RDONLY)", inside(1, "")));
    python.must("os.fsync(directory)");
    wait_until("fsync of a directory is seen", || calls(&[" fsync("]) == 2);
    assert_eq!((calls(&["lazy", "RWF"]), calls(&["lazy"])), (0, 1));
}

/// The kernel asks for no more than 256 pages at once, of which the first and the last one may be parts.
#[test]
fn appended_record_of_nearly_a_mebibyte_is_whole() {
    const RECORD: usize = (1 << 20) - 4096;
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    File::create(hosts.disk(1, "log")).unwrap();
    std::thread::scope(|scope| {
        for host in hosts.all() {
            let path = hosts.at(host, 1, "log");
            scope.spawn(move || {
                let mut log = File::options().append(true).open(path).unwrap();
                for round in 0..6 {
                    // At another place of a page each time.
                    let bytes = vec![b'0' + host as u8; RECORD + 4096];
                    assert_eq!(log.write(&bytes[round * 500..][..RECORD]).unwrap(), RECORD);
                }
            });
        }
    });
    let log = fs::read(hosts.disk(1, "log")).unwrap();
    assert_eq!(log.len(), 18 * RECORD);
    for (at, record) in log.chunks(RECORD).enumerate() {
        assert!(record.iter().all(|byte| *byte == record[0]), "record {at} is torn");
    }
}

/// The kernel serves these from pages and a size that it keeps, without a request.
#[test]
fn pages_that_the_kernel_keeps_are_never_stale() {
    const AIO: &str = "def aio(f, at, n):
  c, ctx = ctypes.CDLL(None), ctypes.c_ulong(0)
  c.syscall(ctypes.c_long(206), 4, ctypes.byref(ctx))
  room = mmap.mmap(-1, n)
  place = ctypes.addressof(ctypes.c_char.from_buffer(room))
  call = ctypes.create_string_buffer(struct.pack('QIIHhIQQqQII', 0, 0, 0, 0, 0, f, place, n, at, 0, 0, 0))
  calls = ctypes.c_void_p(ctypes.addressof(call))
  done = ctypes.create_string_buffer(32)
  c.syscall(ctypes.c_long(209), ctx, ctypes.c_long(1), ctypes.byref(calls))
  c.syscall(ctypes.c_long(208), ctx, ctypes.c_long(1), ctypes.c_long(1), done, None)
  return struct.unpack('QQqq', done.raw)[2]
";
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    for with_leases in [true, false] {
        if !with_leases {
            assert_eq!(hosts.sheaf(2, &["umount", POINT]).code, Some(0));
            let again = hosts.sheaf(2, &["--quiet", "mount", "--no-lease", POINT]);
            assert_eq!(again.code, Some(0), "{again:?}");
        }
        let name = format!("f{with_leases}");
        fs::write(hosts.disk(1, &name), "0".repeat(4096)).unwrap();
        let mut reader = Python::new(&hosts, 2);
        let at = inside(1, &name);
        reader.must("import ctypes");
        reader.must(&format!("exec({AIO:?}, globals())"));
        reader.must(&format!("f = os.open('{at}', os.O_RDONLY)"));
        reader.must(&format!("d = os.open('{at}', os.O_RDONLY | os.O_DIRECT)"));
        reader.must("m = mmap.mmap(f, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)");
        reader.must("p = os.pipe()");
        let sent = "(os.sendfile(p[1], f, 0, 4096), os.read(p[0], 4096)[:1], m[:1])";
        // Each opens the file, writes to it and closes it, the owner's own system among them.
        for round in 1..=9 {
            let writer = Python::new(&hosts, 1 + round % 3);
            let mut writer = writer;
            writer.must(&format!("w = os.open('{at}', os.O_RDWR)"));
            writer.must(&format!("os.pwrite(w, b'{round}' * 4096, 0)"));
            writer.must("os.close(w)");
            assert_eq!(reader.must(sent), format!("(4096, b'{round}', b'{round}')"), "{name}");
        }
        // By hosts that have it open all the time.
        let mut writers = [Python::new(&hosts, 3), Python::new(&hosts, 2)];
        for writer in &mut writers {
            writer.must(&format!("w = os.open('{at}', os.O_RDWR)"));
        }
        for round in 0..20 {
            let letter = char::from(b'a' + round);
            writers[usize::from(round) % 2].must(&format!("os.pwrite(w, b'{letter}' * 4096, 0)"));
            assert_eq!(reader.must(sent), format!("(4096, b'{letter}', b'{letter}')"), "{name}");
        }
        for round in 1..6 {
            let at = round * 4096;
            writers[0].must(&format!("os.pwrite(w, b'{round}' * 4096, {at})"));
            assert_eq!(reader.must(&format!("aio(d, {at}, 4096)")), "4096", "{name}");
            let sent = format!("(os.sendfile(p[1], f, {at}, 4096), os.read(p[0], 4096)[:1])");
            assert_eq!(reader.must(&sent), format!("(4096, b'{round}')"), "{name}");
        }
        writers[0].must("os.ftruncate(w, 10)");
        assert_eq!(reader.must("os.sendfile(p[1], f, 0, 4096)"), "10", "{name}");
    }
}
