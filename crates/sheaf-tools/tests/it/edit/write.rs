//! Writing into files: whole, in part, or not at all.
use super::*;

async fn put(
    client: &Client,
    target: Target,
    options: &WriteOptions,
    data: Vec<u8>,
) -> (u64, Outcome) {
    let source = Box::new(Cursor::new(data));
    let written =
        write(client, &[target], options, EditOptions::default(), source, &mut |_| Ok(())).await;
    let written = written.unwrap();
    let files: u64 = written.changed.iter().map(|(files, hosts)| files * hosts.len()).sum();
    assert_eq!(files, written.outcome.status.count);
    (written.bytes, written.outcome)
}

fn way(way: WriteWay) -> WriteOptions {
    WriteOptions { way, ..WriteOptions::default() }
}

#[test]
fn bytes_of_any_size_reach_every_file() {
    let cluster = Cluster::new(7);
    populate(&cluster);
    let data = |size: usize| (0..size).map(|n| (n * 7 / 3) as u8).collect::<Vec<u8>>();
    run(async {
        let client = cluster.client("k-ary:2");
        let create =
            |way| WriteOptions { way, create: true, mode: 0o640, ..WriteOptions::default() };
        for size in [0, 1, 256 << 10, (256 << 10) + 1, 3_500_000] {
            for way in [WriteWay::Replace, WriteWay::InPlace] {
                let (bytes, outcome) =
                    put(&client, cluster.target("/new"), &create(way), data(size)).await;
                assert_eq!((bytes, outcome.is_ok(), outcome.status.count), (size as u64, true, 7));
                assert!((0..7).all(|leaf| cluster.read(leaf, "new") == data(size)), "{size}");
            }
        }
        assert_eq!(std::fs::metadata(cluster.path(3, "new")).unwrap().mode() & 0o777, 0o640);
        put(&client, cluster.target("/top"), &way(WriteWay::Append), b" more".to_vec()).await;
        put(&client, cluster.target("/top"), &way(WriteWay::At(2)), b"NN".to_vec()).await;
        put(&client, cluster.target("/top"), &way(WriteWay::At(0)), b"C".to_vec()).await;
        assert!((0..7).all(|leaf| cluster.read(leaf, "top") == b"CoNNent more"));
        put(&client, cluster.target("/top"), &way(WriteWay::At(1)), data(2_000_000)).await;
        assert!((0..7).all(|leaf| cluster.read(leaf, "top")[1..] == data(2_000_000)));
        put(&client, cluster.target("/top"), &way(WriteWay::InPlace), b"short".to_vec()).await;
        assert!((0..7).all(|leaf| cluster.read(leaf, "top") == b"short"));
    });
}

/// Whoever has the file open keeps reading what it was; links, mode and owner stay.
#[test]
fn file_is_replaced_whole() {
    let cluster = Cluster::new(2);
    populate(&cluster);
    let file = |path: &str| cluster.path(0, path);
    std::fs::set_permissions(file("top"), PermissionsExt::from_mode(0o4751)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(file("top"), Some(1234), Some(2345)).unwrap();
        std::fs::set_permissions(file("top"), PermissionsExt::from_mode(0o4751)).unwrap();
    }
    let before = std::fs::metadata(file("top")).unwrap();
    let mut reader = std::fs::File::open(file("top")).unwrap();
    run(async {
        let client = cluster.client("flat");
        // By the name of a link to it.
        let (_, outcome) =
            put(&client, cluster.target("/d/link"), &way(WriteWay::Replace), b"new".to_vec()).await;
        assert!(outcome.is_ok());
        let mut old = String::new();
        std::io::Read::read_to_string(&mut reader, &mut old).unwrap();
        assert_eq!((old.as_str(), cluster.read(0, "top")), ("content", b"new".to_vec()));
        let after = std::fs::metadata(file("top")).unwrap();
        assert_ne!(after.ino(), before.ino());
        assert_eq!(
            (after.mode(), after.uid(), after.gid()),
            (before.mode(), before.uid(), before.gid())
        );
        assert!(std::fs::symlink_metadata(file("d/link")).unwrap().is_symlink());
        // In place it stays the same file.
        put(&client, cluster.target("/top"), &way(WriteWay::InPlace), b"newer".to_vec()).await;
        assert_eq!(
            (std::fs::metadata(file("top")).unwrap().ino(), cluster.read(0, "top")),
            (after.ino(), b"newer".to_vec())
        );
        // A directory is no file, and nothing is left beside.
        let (_, outcome) =
            put(&client, cluster.target("/d"), &way(WriteWay::Replace), b"x".to_vec()).await;
        assert_eq!(outcome.errors[0].errno, Errno::ISDIR);
        assert_eq!(std::fs::read_dir(file("")).unwrap().count(), 2);
    });
}

/// A source that fails after some pieces: what was to be replaced is as it was.
#[test]
fn half_a_source_replaces_nothing() {
    struct Breaks(usize);
    impl std::io::Read for Breaks {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            let length = buffer.len().min(self.0);
            buffer[..length].fill(b'z');
            self.0 -= length;
            Ok(length)
        }
    }
    let cluster = Cluster::new(3);
    populate(&cluster);
    run(async {
        let client = cluster.client("flat");
        let (options, sink) = (way(WriteWay::Replace), &mut |_: &Merged| Ok(()));
        let source = Box::new(Breaks(1 << 20));
        let broken = write(
            &client,
            &[cluster.target("/top")],
            &options,
            EditOptions::default(),
            source,
            sink,
        )
        .await;
        assert!(matches!(broken, Err(ToolError::Local { errno: Errno::IO, .. })), "{broken:?}");
        // Another command of the same session finds the files as they were.
        let (_, outcome) = put(&client, cluster.target("/d/f"), &options, b"x".to_vec()).await;
        assert!(outcome.is_ok());
    });
    assert!((0..3).all(|leaf| cluster.read(leaf, "top") == b"content"));
}

#[test]
fn dry_run_of_a_write_reads_nothing_and_writes_nothing() {
    struct Untouched;
    impl std::io::Read for Untouched {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            unreachable!("a dry run needs no source")
        }
    }
    let cluster = Cluster::new(3);
    populate(&cluster);
    std::fs::remove_file(cluster.path(2, "top")).unwrap();
    let before = tree(cluster.dir.path());
    run(async {
        let client = cluster.client("flat");
        let create = WriteOptions { create: true, ..WriteOptions::default() };
        for (options, told_of) in [
            (way(WriteWay::Replace), &["0-1:/top: would be replaced"][..]),
            (way(WriteWay::Append), &["0-1:/top: would be appended to"]),
            (way(WriteWay::At(3)), &["0-1:/top: would be written"]),
            (create, &["0-1:/top: would be replaced", "2:/top: would be created"]),
        ] {
            let mut lines = Vec::new();
            let mut sink = |merged: &Merged| {
                lines.extend(told(merged));
                Ok(())
            };
            let targets = [cluster.target("/top")];
            let planned = write(&client, &targets, &options, DRY, Box::new(Untouched), &mut sink)
                .await
                .unwrap();
            assert_eq!(planned.outcome.is_ok(), options.create);
            lines.sort();
            assert_eq!(lines, told_of);
        }
    });
    assert_eq!(tree(cluster.dir.path()), before);
}

#[test]
fn file_that_is_not_there_fails_by_itself() {
    let cluster = Cluster::new(6);
    populate(&cluster);
    std::fs::remove_file(cluster.path(2, "top")).unwrap();
    for size in [4, 2_500_000] {
        run(async {
            let client = cluster.client("flat");
            let (_, outcome) =
                put(&client, cluster.target("/top"), &WriteOptions::default(), vec![b'z'; size])
                    .await;
            let error = &outcome.errors[0];
            assert_eq!(
                (error.errno, error.members.leaves().to_string()),
                (Errno::NOENT, "2".into())
            );
            assert_eq!((outcome.status.count, outcome.member_count()), (5, 6));
            assert!(cluster.read(5, "top").starts_with(b"zzzz"));
            let nothing =
                put(&client, cluster.target("/q*"), &WriteOptions::default(), vec![b'z'; size])
                    .await
                    .1;
            assert_eq!((nothing.errors[0].errno, nothing.status.count), (Errno::NOENT, 0));
        });
    }
}

#[test]
fn exclusive_writes_happen_everywhere_or_nowhere() {
    let cluster = Cluster::new(6);
    cluster.write(4, "lock", "held");
    run(async {
        let client = cluster.client("k-ary:2");
        let exclusive = WriteOptions { exclusive: true, mode: 0o600, ..WriteOptions::default() };
        let halves = [(0, 3), (3, 6)].map(|(start, end)| Target {
            members: RangeSet::from_range(start, end),
            path: "/lock".to_owned(),
        });
        for targets in [&[cluster.target("/lock")][..], &halves] {
            let source = Box::new(Cursor::new(b"mine".to_vec()));
            let (options, sink) = (EditOptions::default(), &mut |_: &Merged| Ok(()));
            let written = write(&client, targets, &exclusive, options, source, sink).await.unwrap();
            assert_eq!(
                (written.outcome.errors[0].errno, written.outcome.status.count),
                (Errno::EXIST, 0)
            );
            // Who was given up because of that is named, and told apart.
            let told = failures(&written.outcome);
            assert_eq!(told, ["/lock: EEXIST 4", "/lock: ECANCELED 0-3,5"]);
            assert_eq!((written.outcome.failed_count(), written.changed), (6, vec![]));
            let there: Vec<u32> =
                (0..6).filter(|leaf| cluster.path(*leaf, "lock").exists()).collect();
            assert_eq!(there, [4]);
        }
        // Of a pattern each path is named; a dry run refuses what the change refuses.
        let targets = [cluster.target("/{lock,other}")];
        for options in [EditOptions::default(), DRY] {
            let mut lines = Vec::new();
            let mut sink = |merged: &Merged| {
                lines.extend(told(merged));
                Ok(())
            };
            let source = Box::new(Cursor::new(b"mine".to_vec()));
            let written =
                write(&client, &targets, &exclusive, options, source, &mut sink).await.unwrap();
            let mut failures = failures(&written.outcome);
            failures.sort();
            assert_eq!(
                failures,
                ["/lock: ECANCELED 0-3,5", "/lock: EEXIST 4", "/other: ECANCELED 0-5"]
            );
            assert_eq!(
                (written.outcome.member_count(), written.changed.len(), lines.len()),
                (12, 0, 0)
            );
        }
        let source = Box::new(std::io::empty());
        let mut lines = Vec::new();
        let mut sink = |merged: &Merged| {
            lines.extend(told(merged));
            Ok(())
        };
        let planned =
            write(&client, &halves[..1], &exclusive, DRY, source, &mut sink).await.unwrap();
        assert_eq!(
            (planned.outcome.is_ok(), &lines[..]),
            (true, &["0-2:/lock: would be created".to_owned()][..])
        );
        let (_, outcome) = put(&client, halves[0].clone(), &exclusive, b"mine".to_vec()).await;
        assert_eq!(
            (outcome.is_ok(), outcome.status.count, cluster.read(1, "lock")),
            (true, 3, b"mine".to_vec())
        );
    });
}
