//! What the kernel says to one process, a group says of each member.
use crate::cluster::{Cluster, run};
use rustix::fs::{CWD, FileType, OFlags};
use sheaf_core::Errno;
use sheaf_group::flags::O_PARTIAL;
use sheaf_group::message::{DataAggregation, Operation, READ_BYTES_MAX, Whence};
use sheaf_group::{GroupError, Limits, Value};
use sheaf_testing::skipped;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const RDONLY: u32 = 0;
const WRONLY: u32 = 1;
const RDWR: u32 = 2;
const PACKED: DataAggregation = DataAggregation::Packed { bytes_max: 1 << 20 };

fn fifo(cluster: &Cluster, leaf: u32) -> std::fs::File {
    let path = cluster.path(leaf, "f");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).unwrap()
}

#[test]
fn reads_and_writes_of_nothing_have_the_kernels_errors() {
    let cluster = Cluster::new(2);
    cluster.write(0, "f", "text");
    std::fs::create_dir(cluster.path(1, "f")).unwrap();
    run(async {
        let client = cluster.client("flat");
        let one = |leaf| [leaf].into_iter().collect();
        let operations = async |leaf, flags| {
            let group = client.gopenat(&one(leaf), "/f", flags | O_PARTIAL, 0).await.unwrap();
            let mut statuses = Vec::new();
            for operation in [
                Operation::Read { count: 0, data: PACKED },
                Operation::Pread { count: 0, offset: 1, data: PACKED },
                Operation::Pread { count: 0, offset: u64::MAX, data: PACKED },
                Operation::Pread { count: 1, offset: u64::MAX, data: PACKED },
                Operation::Write,
                Operation::Pwrite { offset: 1 },
                Operation::WriteAll,
                Operation::PwriteAll { offset: u64::MAX },
            ] {
                group.operate(operation, b"").await.unwrap();
                statuses.push(group.statuses().await.unwrap()[0]);
            }
            statuses
        };
        let (bad, invalid, is_dir) =
            (Errno::BADF.status(), Errno::INVAL.status(), Errno::ISDIR.status());
        assert_eq!(operations(0, RDONLY).await, [0, 0, invalid, invalid, bad, bad, bad, invalid]);
        assert_eq!(operations(0, WRONLY).await, [bad, bad, invalid, invalid, 0, 0, 0, invalid]);
        assert_eq!(operations(0, RDWR).await, [0, 0, invalid, invalid, 0, 0, 0, invalid]);
        assert_eq!(
            operations(1, RDONLY).await,
            [is_dir, is_dir, invalid, invalid, bad, bad, bad, invalid]
        );
    });
}

#[test]
fn write_tells_how_much_a_pipe_took() {
    let cluster = Cluster::new(2);
    let mut pipe = fifo(&cluster, 0);
    cluster.write(1, "f", "");
    run(async {
        let client = cluster.client("flat");
        let group = client.gopenat(&cluster.everyone(), "/f", WRONLY | O_PARTIAL, 0).await.unwrap();
        let bytes = vec![b'x'; 100_000];
        let written = group.write(&bytes).await.unwrap();
        assert_eq!((written.status, written.outcome.is_ok()), (165_536, true));
        assert_eq!(group.statuses().await.unwrap(), [65_536, 100_000]);
        let again = group.write(&bytes).await.unwrap();
        assert_eq!(group.statuses().await.unwrap(), [Errno::AGAIN.status(), 100_000]);
        assert_eq!((again.status, again.outcome.failed_count()), (100_000, 1));
        // Who wants all of it written learns that it was not.
        assert_eq!(pipe.read(&mut vec![0; 1 << 20]).unwrap(), 65_536);
        let all = group.operate(Operation::WriteAll, &bytes).await.unwrap();
        assert_eq!((all.status, all.outcome.errors[0].errno), (100_000, Errno::AGAIN));
    });
    assert_eq!(pipe.read(&mut vec![0; 1 << 20]).unwrap(), 65_536);
}

#[test]
fn write_tells_how_much_a_full_disk_took() {
    let cluster = Cluster::new(2);
    cluster.write(0, "disk/f", "");
    cluster.write(1, "disk/f", "");
    let disk = cluster.path(0, "disk");
    let mount = |program: &str, args: &[&str]| {
        let run = std::process::Command::new(program).args(args).arg(&disk).output();
        run.is_ok_and(|output| output.status.success())
    };
    if !mount("mount", &["-t", "tmpfs", "-o", "size=64k", "none"]) {
        return skipped("a file system can be mounted by root alone");
    }
    cluster.write(0, "disk/f", "");
    let statuses = run(async {
        let client = cluster.client("flat");
        let group =
            client.gopenat(&cluster.everyone(), "/disk/f", WRONLY | O_PARTIAL, 0).await.unwrap();
        let bytes = vec![b'x'; 100_000];
        let mut statuses = Vec::new();
        for offset in [None, None, Some(0), Some(60_000)] {
            let operation = offset.map_or(Operation::Write, |offset| Operation::Pwrite { offset });
            group.operate(operation, &bytes).await.unwrap();
            statuses.push(group.statuses().await.unwrap());
        }
        let size = std::fs::metadata(cluster.path(0, "disk/f")).unwrap().len();
        let all = group.operate(Operation::PwriteAll { offset: 0 }, &bytes).await.unwrap();
        (statuses, size, all.outcome.errors[0].errno)
    });
    assert!(mount("umount", &["-l"]));
    let full = Errno::NOSPC.status();
    let expected = [[65_536, 100_000], [full, 100_000], [65_536, 100_000], [5_536, 100_000]];
    assert_eq!(statuses, (expected.map(Vec::from).to_vec(), 65_536, Errno::NOSPC));
}

#[test]
fn refused_read_moves_no_offset() {
    let cluster = Cluster::new(4);
    (0..4).for_each(|leaf| cluster.write(leaf, "f", format!("{leaf}1 22 333 word 4444")));
    run(async {
        let client = cluster.client("k-ary:2");
        let group = client.gopenat(&cluster.everyone(), "/f", RDONLY | O_PARTIAL, 0).await.unwrap();
        let offset = async || group.lseek(0, Whence::Current).await.unwrap();
        group.read(3, PACKED).await.unwrap();
        assert_eq!(offset().await, 3);
        let packed = DataAggregation::Packed { bytes_max: 15 };
        for refused in [
            group.read(4, packed).await,
            group.read(4, DataAggregation::Concatenate { bytes_max: 15 }).await,
            group.read(READ_BYTES_MAX + 1, PACKED).await,
        ] {
            assert!(matches!(refused, Err(GroupError::TooLarge { .. })), "{refused:?}");
        }
        assert_eq!(offset().await, 3);
        // Not when another operation has come in between, which began where this one ended.
        for _ in 0..20 {
            let narrow = DataAggregation::Packed { bytes_max: 15 };
            let (refused, next) = tokio::join!(group.read(4, narrow), group.read(2, PACKED));
            assert!(matches!(refused, Err(GroupError::TooLarge { .. })), "{refused:?}");
            let Value::Packed(next) = next.unwrap().value else { panic!() };
            let after = match &next[0].1[..] {
                b"33" => 9,
                b"22" => 5,
                other => panic!("{other:?}"),
            };
            assert_eq!(offset().await, after);
            group.lseek(3, Whence::Start).await.unwrap();
        }
        // A content that has to be fetched, and one that has no numbers.
        let narrow = client.with_limits(Limits::default().with_bytes_max(15));
        let other = narrow.gopenat(&cluster.everyone(), "/f", RDONLY | O_PARTIAL, 0).await.unwrap();
        let contents = other.read(9, DataAggregation::Contents { eager: 0 }).await;
        assert!(matches!(contents, Err(GroupError::TooLarge { .. })), "{contents:?}");
        assert_eq!(other.statuses().await.unwrap(), [Errno::MSGSIZE.status(); 4]);
        assert_eq!(other.lseek(0, Whence::Current).await.unwrap(), 0);
        cluster.write(2, "f", "no numbers at all");
        let columns = DataAggregation::by_name("sum", &[1], 0, 0).unwrap();
        let reading = group.read(7, columns).await.unwrap();
        assert_eq!(reading.outcome.errors[0].errno, Errno::BADMSG);
        let rest = group.read(99, PACKED).await.unwrap();
        let Value::Packed(rest) = rest.value else { panic!() };
        assert_eq!(rest[2].1, b"numbers at all");
        assert_eq!(rest[1].1, b"word 4444");
    });
}

#[test]
fn bound_without_end_does_not_end_the_process() {
    let cluster = Cluster::new(2);
    cluster.write_all("f", "x");
    // More zeros than there is memory.
    let members: u64 = 3000;
    let needed = members * READ_BYTES_MAX;
    if Vec::<u8>::new().try_reserve_exact(needed as usize).is_ok() {
        return skipped("there is too much memory");
    }
    for name in 1..members {
        std::fs::hard_link(cluster.path(0, "f"), cluster.path(0, &format!("f{name}"))).unwrap();
    }
    run(async {
        let client = cluster.client("flat");
        let group = client.gopenat(&[0].into_iter().collect(), "/f*", RDONLY, 0).await.unwrap();
        let everything = DataAggregation::Concatenate { bytes_max: u64::MAX };
        let refused = group.read(READ_BYTES_MAX, everything.clone()).await;
        assert!(
            matches!(refused, Err(GroupError::OutOfMemory { bytes }) if bytes == needed),
            "{refused:?}"
        );
        assert_eq!(group.lseek(0, Whence::Current).await.unwrap(), 0);
        let small = group.read(1, everything).await.unwrap();
        assert!(matches!(small.value, Value::Concatenated(bytes) if bytes.len() as u64 == members));
    });
}

#[test]
fn flags_mean_what_they_mean_to_the_kernel() {
    let cluster = Cluster::new(2);
    cluster.write_all("f", "text");
    run(async {
        let client = cluster.client("flat");
        let open = async |path: &str, flags: OFlags| {
            client.gopenat(&cluster.everyone(), path, flags.bits(), 0o600).await.map_err(|error| {
                match error {
                    GroupError::Members(outcome) => outcome.errors[0].errno,
                    error => panic!("{error}"),
                }
            })
        };
        let named = open("/f", OFlags::PATH | OFlags::CREATE | OFlags::RDWR).await.unwrap();
        assert!(named.fstat().await.unwrap().iter().all(|(_, stat)| stat.size == 4));
        assert!(named.read(4, PACKED).await.is_err());
        assert_eq!(named.statuses().await.unwrap(), [Errno::BADF.status(); 2]);
        assert_eq!(open("/none", OFlags::PATH | OFlags::CREATE).await.err(), Some(Errno::NOENT));
        for path in ["/none", "/f", "/"] {
            let made = open(path, OFlags::CREATE | OFlags::DIRECTORY).await;
            assert_eq!(made.err(), Some(Errno::INVAL), "{path}");
        }
        assert_eq!(open("/", OFlags::CREATE).await.err(), Some(Errno::ISDIR));
        assert!(!cluster.path(0, "none").exists());
    });
}

#[test]
fn direct_reads_and_writes_are_the_kernels() {
    let cluster = Cluster::new(2);
    let content: Vec<u8> = (0..10_000u32).map(|at| (at % 251) as u8).collect();
    cluster.write_all("f", &content);
    let flags = (OFlags::RDWR | OFlags::DIRECT).bits();
    let options = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(cluster.path(0, "f"));
    let Ok(kernel) = options else { return skipped("this file system knows no direct I/O") };
    // Whether reads that are not of whole blocks are refused is the file system's affair.
    let mut unaligned = vec![0; 8192 + 4096];
    let start = unaligned.as_ptr().align_offset(4096);
    let unaligned = kernel.read_at(&mut unaligned[start..start + 100], 0).map_err(Errno::from);
    run(async {
        let client = cluster.client("flat");
        let group = client.gopenat(&cluster.everyone(), "/f", flags | O_PARTIAL, 0).await.unwrap();
        let read = async |count| {
            let Value::Packed(items) = group.read(count, PACKED).await.unwrap().value else {
                panic!()
            };
            items.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>()
        };
        assert_eq!(read(8192).await, [&content[..8192]; 2]);
        assert_eq!(read(8192).await, [&content[8192..]; 2]);
        group.pread(100, 0, PACKED).await.unwrap();
        let expected = unaligned.map_or_else(Errno::status, |got| got as i64);
        assert_eq!(group.statuses().await.unwrap(), [expected; 2]);
        let page = vec![b'y'; 4096];
        assert_eq!(group.pwrite(&page, 4096).await.unwrap().status, 8192);
        group.operate(Operation::PwriteAll { offset: 0 }, &page).await.unwrap();
        assert_eq!(group.statuses().await.unwrap(), [4096; 2]);
    });
    let now = std::fs::read(cluster.path(1, "f")).unwrap();
    assert!(
        now.len() == 10_000
            && now[..8192].iter().all(|byte| *byte == b'y')
            && now[8192..] == content[8192..]
    );
}
