//! To hosts.
use super::cluster::{Cluster, SHAPES, run};
use super::tree::{Kind, build, gnu_cp, look, nodes};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::entry::EntryKind;
use sheaf_tools::Target;
use sheaf_tools::cp::{CopyMode, CopyOptions, PACKET_BYTES, Put, Source, put};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

async fn copy(
    cluster: &Cluster,
    shape: &str,
    from: &Path,
    target: &Target,
    options: &CopyOptions,
) -> Put {
    let sources = vec![Source::Path(from.to_owned())];
    put(&cluster.client(shape), sources, target, options, &mut |_| {}).await.unwrap()
}

fn errors(done: &Put) -> Vec<(Errno, &str, RangeSet)> {
    let one = |error: &sheaf_group::aggregate::ErrorClass| (error.errno, error.members.leaves());
    let mut errors: Vec<_> = done
        .outcome
        .errors
        .iter()
        .map(|error| (one(error).0, error.path.as_str(), one(error).1))
        .collect();
    errors.sort();
    errors
}

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, sync: false, ..CopyOptions::default() }
}

fn archive() -> CopyOptions {
    CopyOptions { sync: false, ..CopyOptions::archive() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn trees_come_as_cp_makes_them(nodes in nodes(), shape in 0..SHAPES.len(), exists: bool, keep: bool) {
        let here = tempfile::tempdir().unwrap();
        let from = here.path().join("from");
        build(&from, &nodes);
        let cluster = Cluster::new(3);
        let oracle = here.path().join("oracle");
        let (options, gnu) = if keep { (archive(), "-a") } else { (recursive(), "-r") };
        if exists {
            std::fs::create_dir(&oracle).unwrap();
            (0..3).for_each(|leaf| std::fs::create_dir(cluster.path(leaf, "to")).unwrap());
        }
        gnu_cp(&[gnu], &from, &oracle);
        let done = run(copy(&cluster, SHAPES[shape], &from, &cluster.target("/to"), &options));
        prop_assert!(done.outcome.is_ok() && done.errors.is_empty(), "{:?}", done.outcome);
        prop_assert_eq!(done.totals.len(), 1);
        let (expected, inside) = (oracle.join(if exists { "from" } else { "" }), if exists { "to/from" } else { "to" });
        let expected = look(&expected, keep);
        for leaf in 0..3 {
            prop_assert_eq!(&look(&cluster.path(leaf, inside), keep), &expected);
        }
    }

    #[test]
    fn copying_again_replaces(mut first in nodes(), second in nodes()) {
        // As cp does, a copy writes through links and into pipes that it finds.
        first.retain(|node| !matches!(node.kind, Kind::Symlink { .. } | Kind::Fifo));
        let here = tempfile::tempdir().unwrap();
        let from = here.path().join("from");
        build(&from, &first);
        let cluster = Cluster::new(2);
        run(copy(&cluster, "flat", &from, &cluster.target("/"), &archive()));
        std::fs::remove_dir_all(&from).unwrap();
        build(&from, &second);
        let done = run(copy(&cluster, "flat", &from, &cluster.target("/"), &archive()));
        // Whatever is in the way of something else is told, for both hosts alike.
        prop_assert!(done.outcome.errors.iter().all(|error| error.members.len() == 2), "{:?}", done.outcome);
        // Or, of a further name of what is in a directory that could not be made, that it is not there.
        let in_the_way = [Errno::ISDIR, Errno::NOTDIR, Errno::NOENT];
        prop_assert!(done.outcome.errors.iter().all(|error| in_the_way.contains(&error.errno)), "{:?}", done.outcome);
        if done.outcome.is_ok() {
            let now = look(&cluster.path(0, "from"), false);
            for (path, facts) in look(&from, false) {
                prop_assert_eq!(&now[&path].content, &facts.content);
                prop_assert_eq!(&now[&path].link, &facts.link);
            }
        }
        prop_assert!(leftovers(&cluster).is_empty());
    }
}

/// Names that only a copy under way has.
fn leftovers(cluster: &Cluster) -> Vec<std::path::PathBuf> {
    let is_temporary =
        |path: &std::path::PathBuf| path.to_string_lossy().contains(sheaf_file::TEMP_PREFIX);
    look(cluster.dir.path(), false).into_keys().filter(is_temporary).collect()
}

#[test]
fn one_file_comes_to_every_host() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(here.path().join("file"), &content).unwrap();
        for shape in SHAPES {
            let cluster = Cluster::new(7);
            let from = here.path().join("file");
            let done =
                copy(&cluster, shape, &from, &cluster.target("/copy"), &CopyOptions::default())
                    .await;
            assert!(done.outcome.is_ok() && done.errors.is_empty(), "{done:?}");
            assert_eq!(done.outcome.status.count, 7);
            assert_eq!((done.sent.files, done.sent.bytes), (1, 3_000_000));
            (0..7).for_each(|leaf| assert!(cluster.read(leaf, "copy") == content));
        }
    });
}

#[test]
fn hosts_that_cannot_write_keep_what_they_have() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("file"), "new").unwrap();
        let cluster = Cluster::new(6);
        for leaf in 0..6 {
            cluster.write(leaf, "etc/file", "old");
        }
        std::fs::remove_file(cluster.path(1, "etc/file")).unwrap();
        std::fs::create_dir(cluster.path(1, "etc/file")).unwrap();
        std::fs::remove_dir_all(cluster.path(3, "etc")).unwrap();
        // A pipe that nobody reads refuses even the superuser.
        std::fs::remove_file(cluster.path(5, "etc/file")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, cluster.path(5, "etc/file"), FileType::Fifo, mode, 0).unwrap();
        let options = CopyOptions { exact_name: true, ..CopyOptions::default() };
        let done = copy(
            &cluster,
            "1x2x3",
            &here.path().join("file"),
            &cluster.target("/etc/file"),
            &options,
        )
        .await;
        let expected = [
            (Errno::NOENT, "/etc/file", RangeSet::single(3)),
            (Errno::NXIO, "/etc/file", RangeSet::single(5)),
            (Errno::ISDIR, "/etc/file", RangeSet::single(1)),
        ];
        assert_eq!(errors(&done), expected);
        assert_eq!(done.outcome.status.count, 3);
        for leaf in [0, 2, 4] {
            assert_eq!(cluster.read(leaf, "etc/file"), b"new");
        }
        assert!(leftovers(&cluster).is_empty());
    });
}

#[test]
fn directory_that_cannot_be_made_is_told_once() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        for file in ["from/d/x/y/file", "from/d/file", "from/e"] {
            std::fs::create_dir_all(here.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(here.path().join(file), "new").unwrap();
        }
        let cluster = Cluster::new(3);
        cluster.write(1, "to/from/d", "a file in the way");
        (0..3).for_each(|leaf| std::fs::create_dir_all(cluster.path(leaf, "to")).unwrap());
        let done =
            copy(&cluster, "flat", &here.path().join("from"), &cluster.target("/to"), &recursive())
                .await;
        assert_eq!(errors(&done), [(Errno::NOTDIR, "/to/from/d", RangeSet::single(1))]);
        assert_eq!(cluster.read(1, "to/from/d"), b"a file in the way");
        assert_eq!(cluster.read(1, "to/from/e"), b"new");
        assert_eq!(cluster.read(2, "to/from/d/x/y/file"), b"new");
    });
}

#[test]
fn several_sources_need_a_directory() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        let sources = || {
            let path = |name: &str| here.path().join(name);
            std::fs::write(path("a"), "A").unwrap();
            std::fs::write(path("b"), "").unwrap();
            ["a", "missing", "b"]
                .map(|name| Source::Path(path(name)))
                .into_iter()
                .collect::<Vec<_>>()
        };
        let cluster = Cluster::new(3);
        cluster.write(0, "to/old", "");
        cluster.write(1, "to/old", "");
        cluster.write(2, "to", "");
        let client = cluster.client("k-ary:2");
        let done =
            put(&client, sources(), &cluster.target("/to"), &CopyOptions::default(), &mut |_| {})
                .await
                .unwrap();
        assert_eq!(errors(&done), [(Errno::NOTDIR, "/to", RangeSet::single(2))]);
        assert_eq!((done.errors.len(), done.errors[0].errno), (1, Errno::NOENT));
        assert_eq!((cluster.read(1, "to/a"), cluster.read(0, "to/b")), (b"A".to_vec(), Vec::new()));
    });
}

#[test]
fn sources_of_one_name_are_refused_before_anything_is_copied() {
    let here = tempfile::tempdir().unwrap();
    for name in ["la/f", "lb/f", "la/d/x", "lb/d/y", "other/g"] {
        let path = here.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    let cluster = Cluster::new(2);
    let refused = [
        (&["la/f", "other/g", "lb/f"][..], false),
        (&["la/f", "la/f"], false),
        (&["la/d", "lb/d/"], false),
        (&["la/.", "lb/."], false),
        (&["la/.", "lb/f"], false),
        (&["la", "other"], true),
    ];
    let into = |names: &[&str], exact_name| {
        let sources = names.iter().map(|name| Source::Path(here.path().join(name))).collect();
        let options = CopyOptions { exact_name, ..recursive() };
        run(async {
            put(&cluster.client("flat"), sources, &cluster.target("/"), &options, &mut |_| {}).await
        })
    };
    for (names, exact_name) in refused {
        let error = into(names, exact_name).unwrap_err();
        assert!(matches!(error, sheaf_tools::ToolError::Usage(_)), "{names:?}: {error}");
        assert_eq!(std::fs::read_dir(cluster.path(1, "")).unwrap().count(), 0, "{names:?}");
    }
    assert!(into(&["la/.", "other", "other/g"], false).unwrap().outcome.is_ok());
    assert_eq!(std::fs::read_dir(cluster.path(1, "")).unwrap().count(), 4);
}

#[test]
fn directories_need_to_be_asked_for() {
    let here = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(1);
    let done =
        run(copy(&cluster, "flat", here.path(), &cluster.target("/to"), &CopyOptions::default()));
    assert_eq!(done.errors[0].errno, Errno::ISDIR);
    assert!(!cluster.path(0, "to").exists());
}

#[test]
fn permissions_and_links_are_as_asked_for() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        std::fs::create_dir(here.path().join("from")).unwrap();
        std::fs::write(here.path().join("from/file"), "content").unwrap();
        std::os::unix::fs::symlink("from/file", here.path().join("link")).unwrap();
        let cluster = Cluster::new(2);
        let mode = CopyMode::parse("u=rw,go=,a+X", 0).unwrap();
        let options = CopyOptions {
            chmod: Some(mode),
            dereference: true,
            chown: Some(":0".to_owned()),
            ..recursive()
        };
        let done =
            copy(&cluster, "flat", &here.path().join("link"), &cluster.target("/to"), &options)
                .await;
        if rustix::process::geteuid().is_root() {
            assert!(done.outcome.is_ok(), "{done:?}");
            let metadata = cluster.path(1, "to").symlink_metadata().unwrap();
            assert_eq!(
                (metadata.mode() & 0o7777, metadata.gid(), metadata.is_file()),
                (0o600, 0, true)
            );
        }
        // Without directories in play a link that is named is followed; with them it stays one.
        copy(
            &cluster,
            "flat",
            &here.path().join("link"),
            &cluster.target("/file"),
            &CopyOptions::default(),
        )
        .await;
        assert!(cluster.path(0, "file").symlink_metadata().unwrap().is_file());
        copy(&cluster, "flat", &here.path().join("link"), &cluster.target("/link"), &recursive())
            .await;
        assert_eq!(cluster.path(0, "link").read_link().unwrap(), Path::new("from/file"));
        let unknown = CopyOptions { chown: Some("no-such-user".to_owned()), ..recursive() };
        let done =
            copy(&cluster, "flat", &here.path().join("link"), &cluster.target("/x"), &unknown)
                .await;
        assert_eq!(errors(&done), [(Errno::INVAL, "/x", RangeSet::full(2))]);
    });
}

#[test]
fn nothing_is_made_through_a_link_that_leads_nowhere() {
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("file"), "content").unwrap();
    let cluster = Cluster::new(3);
    std::os::unix::fs::symlink("planted", cluster.path(0, "file")).unwrap();
    std::os::unix::fs::symlink("there", cluster.path(1, "file")).unwrap();
    cluster.write(1, "there", "old");
    for dry_run in [true, false] {
        let options = CopyOptions { dry_run, ..CopyOptions::default() };
        let from = here.path().join("file");
        let done = run(copy(&cluster, "flat", &from, &cluster.target("/"), &options));
        assert_eq!(errors(&done), [(Errno::EXIST, "/file", RangeSet::single(0))], "{dry_run}");
    }
    assert!(!cluster.path(0, "planted").exists());
    assert_eq!(
        (cluster.read(1, "there"), cluster.read(2, "file")),
        (b"content".to_vec(), b"content".to_vec())
    );
}

/// Files stay apart whose names in the destination lead to one another. GNU cp -a writes the last of them into both.
#[test]
fn archive_copy_replaces_links_in_the_place_of_files() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("t");
    std::fs::create_dir(&from).unwrap();
    ["a", "b", "c"].iter().for_each(|name| std::fs::write(from.join(name), name).unwrap());
    ["d", "f", "p"]
        .iter()
        .for_each(|name| std::fs::hard_link(from.join("b"), from.join(name)).unwrap());
    for in_place in [false, true] {
        let cluster = Cluster::new(3);
        for leaf in 0..3 {
            std::fs::create_dir(cluster.path(leaf, "t")).unwrap();
            for (name, to) in [("a", "b"), ("c", "b"), ("d", "/outside"), ("f", ".")] {
                std::os::unix::fs::symlink(to, cluster.path(leaf, "t").join(name)).unwrap();
            }
            let fifo = cluster.path(leaf, "t/p");
            rustix::fs::mknodat(CWD, fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
        cluster.write(0, "t/b", "old");
        cluster.write(0, "outside", "kept");
        let options = CopyOptions { in_place, ..archive() };
        let done = run(copy(&cluster, "flat", &from, &cluster.target("/"), &options));
        assert_eq!(errors(&done), []);
        for leaf in 0..3 {
            let read = |name: &str| cluster.read(leaf, &format!("t/{name}"));
            assert_eq!(["a", "b", "c", "d"].map(read), [b"a", b"b", b"c", b"b"], "{leaf}");
            for name in ["a", "b", "c", "d", "f", "p"] {
                let there = cluster.path(leaf, "t").join(name).symlink_metadata().unwrap();
                assert!(there.is_file(), "{name}");
            }
        }
        assert_eq!(cluster.read(0, "outside"), b"kept");
        assert!(!cluster.path(1, "outside").exists());
    }
}

/// GNU cp on the same: a directory does not come through a link that has its name.
#[test]
fn link_with_the_name_of_a_directory_is_in_its_way() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("dir");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("file"), "new").unwrap();
    std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o700)).unwrap();
    // What the source is called, what is copied into, and whether cp goes on.
    for (from, to, exact_name, goes_on) in [
        (from.clone(), "/", false, false),
        (from.clone(), "/dir", true, false),
        (from.join("."), "/dir", false, true),
    ] {
        for dry_run in [true, false] {
            let cluster = Cluster::new(2);
            let kept = cluster.path(0, "kept");
            std::fs::create_dir(&kept).unwrap();
            std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::symlink("kept", cluster.path(0, "dir")).unwrap();
            std::fs::create_dir(cluster.path(1, "dir")).unwrap();
            let options = CopyOptions { exact_name, dry_run, preserve: true, ..recursive() };
            let done = run(copy(&cluster, "1x2", &from, &cluster.target(to), &options));
            let expected: &[_] =
                if goes_on { &[] } else { &[(Errno::NOTDIR, "/dir", RangeSet::from_iter([0]))] };
            assert_eq!(errors(&done), expected, "{to:?} {dry_run}");
            let mode = std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777;
            let entered = goes_on && !dry_run;
            assert_eq!(
                (mode, kept.join("file").exists()),
                (if entered { 0o700 } else { 0o755 }, entered)
            );
            assert_eq!(cluster.path(1, "dir/file").exists(), !dry_run);
        }
    }
}

#[test]
fn mode_for_a_tree_leaves_its_directories_open() {
    let here = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(here.path().join("from/sub")).unwrap();
    std::fs::write(here.path().join("from/sub/file"), "content").unwrap();
    let cluster = Cluster::new(1);
    for (text, dir, file) in
        [("0640", 0o750, 0o640), ("D2711,F600", 0o2711, 0o600), ("a-x,o=", 0o750, 0o640)]
    {
        std::fs::set_permissions(here.path().join("from/sub"), PermissionsExt::from_mode(0o755))
            .unwrap();
        std::fs::set_permissions(
            here.path().join("from/sub/file"),
            PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let options =
            CopyOptions { chmod: Some(CopyMode::parse(text, 0o022).unwrap()), ..recursive() };
        let target = cluster.target("/to");
        let done = run(copy(&cluster, "flat", &here.path().join("from/sub"), &target, &options));
        assert!(done.outcome.is_ok(), "{done:?}");
        let mode = |path: &str| cluster.path(0, path).metadata().unwrap().mode() & 0o7777;
        assert_eq!((mode("to"), mode("to/file")), (dir, file), "{text}");
        std::fs::remove_dir_all(cluster.path(0, "to")).unwrap();
    }
}

#[test]
fn holes_are_neither_sent_nor_written() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        let from = here.path().join("file");
        let file = std::fs::File::create(&from).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"data", 20 << 20).unwrap();
        file.set_len(40 << 20).unwrap();
        let cluster = Cluster::new(2);
        let done =
            copy(&cluster, "flat", &from, &cluster.target("/to"), &CopyOptions::default()).await;
        assert!(done.outcome.is_ok());
        assert!(std::fs::read(&from).unwrap() == cluster.read(1, "to"));
        if file.metadata().unwrap().blocks() * 512 < 10 << 20 {
            assert!(done.sent.bytes < 10 << 20, "{:?}", done.sent);
            assert!(cluster.path(0, "to").metadata().unwrap().blocks() * 512 < 10 << 20);
        }
        // Zeros that are on disk become holes when that is asked for.
        std::fs::write(&from, vec![0; 4 << 20]).unwrap();
        let sparse = CopyOptions { sparse: true, ..CopyOptions::default() };
        assert!(
            copy(&cluster, "flat", &from, &cluster.target("/to"), &sparse).await.outcome.is_ok()
        );
        let metadata = cluster.path(0, "to").metadata().unwrap();
        assert_eq!(metadata.size(), 4 << 20);
        assert!(metadata.blocks() * 512 < 1 << 20);
    });
}

#[test]
fn dry_run_says_what_would_be() {
    run(async {
        let here = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(here.path().join("from/d")).unwrap();
        std::fs::write(here.path().join("from/d/file"), "new").unwrap();
        let cluster = Cluster::new(3);
        cluster.write(1, "from/d/file", "old");
        cluster.write(2, "from/d", "in the way");
        let options = CopyOptions { dry_run: true, ..recursive() };
        let done =
            copy(&cluster, "flat", &here.path().join("from"), &cluster.target("/"), &options).await;
        assert_eq!(errors(&done), [(Errno::NOTDIR, "/from/d", RangeSet::single(2))]);
        let lines: Vec<String> = done
            .lines
            .sorted()
            .iter()
            .filter(|line| line.entry.kind == EntryKind::Line)
            .map(|line| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                format!("{}:{}: {}", line.leaves, text(line.path), text(line.entry.text))
            })
            .collect();
        let expected =
            ["0:/from: create", "1-2:/from: enter", "0:/from/d: create", "1:/from/d: enter"];
        assert_eq!(lines[..4], expected);
        assert_eq!(lines[4..], ["0:/from/d/file: create", "1:/from/d/file: replace"]);
        assert!(!cluster.path(0, "from").exists());
        assert_eq!(cluster.read(1, "from/d/file"), b"old");
    });
}

/// Gives bytes for ever, and at some point does something.
struct Endless {
    given: Arc<AtomicU64>,
    act_at: u64,
    act: Box<dyn FnMut() + Send>,
    end: u64,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let before = self.given.load(Ordering::SeqCst);
        let length = buffer.len().min((self.end - before) as usize);
        buffer[..length].fill(7);
        self.given.fetch_add(length as u64, Ordering::SeqCst);
        if before < self.act_at && before + length as u64 >= self.act_at {
            (self.act)();
        }
        Ok(length)
    }
}

#[test]
fn standard_input_becomes_a_file() {
    run(async {
        let cluster = Cluster::new(3);
        let input = || vec![Source::Reader(Box::new(&b"from a pipe"[..]))];
        let client = cluster.client("flat");
        let options = CopyOptions::default();
        let done =
            put(&client, input(), &cluster.target("/file"), &options, &mut |_| {}).await.unwrap();
        assert!(done.outcome.is_ok());
        assert_eq!(cluster.read(2, "file"), b"from a pipe");
        // It has no name that it could have in a directory.
        let done =
            put(&client, input(), &cluster.target("/"), &options, &mut |_| {}).await.unwrap();
        assert_eq!(errors(&done), [(Errno::ISDIR, "/", RangeSet::full(3))]);
    });
}

#[test]
fn interrupt_leaves_the_old_files() {
    run(async {
        for shape in SHAPES {
            let cluster = Cluster::new(4);
            (0..4).for_each(|leaf| cluster.write(leaf, "file", "old"));
            let client = cluster.client(shape);
            let (given, end) = (Arc::new(AtomicU64::new(0)), u64::MAX);
            let act = {
                let client = client.clone();
                Box::new(move || client.interrupt())
            };
            let endless = Endless { given, act_at: 5 << 20, act, end };
            let sources = vec![Source::Reader(Box::new(endless))];
            let done = put(
                &client,
                sources,
                &cluster.target("/file"),
                &CopyOptions::default(),
                &mut |_| {},
            )
            .await
            .unwrap();
            assert_eq!(done.outcome.silent, [(Errno::CANCELED, RangeSet::full(4))]);
            assert_eq!(done.outcome.status.count, 0);
            (0..4).for_each(|leaf| assert_eq!(cluster.read(leaf, "file"), b"old"));
            assert!(leftovers(&cluster).is_empty());
        }
    });
}

#[test]
fn reader_that_fails_leaves_the_old_files() {
    struct Failing(u32);
    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            if self.0 > 9 { Err(std::io::Error::from_raw_os_error(5)) } else { Ok(buffer.len()) }
        }
    }
    run(async {
        let cluster = Cluster::new(2);
        (0..2).for_each(|leaf| cluster.write(leaf, "file", "old"));
        let sources = vec![Source::Reader(Box::new(Failing(0)))];
        let client = cluster.client("flat");
        let done =
            put(&client, sources, &cluster.target("/file"), &CopyOptions::default(), &mut |_| {})
                .await
                .unwrap();
        assert_eq!((done.errors.len(), done.errors[0].errno), (1, Errno::IO));
        (0..2).for_each(|leaf| assert_eq!(cluster.read(leaf, "file"), b"old"));
    });
}

/// A host that takes its bytes slowly holds the sender back: what is under way stays within the
/// windows of the links, however much there is to send.
#[test]
fn bytes_in_flight_to_a_slow_host_are_bounded() {
    const TOTAL_BYTES: u64 = 48 << 20;
    // The window of each of three links and what waits before it, what was read ahead, a pipe.
    const UNDER_WAY_BYTES_MAX: u64 = 3 * 2 * (1 << 20) + 6 * PACKET_BYTES as u64 + (64 << 10);
    let cluster = Cluster::new(3);
    let pipe = cluster.path(1, "file");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let reading = rustix::fs::open(&pipe, flags, Mode::empty()).unwrap();
    rustix::fs::fcntl_setfl(&reading, rustix::fs::OFlags::empty()).unwrap();
    let given = Arc::new(AtomicU64::new(0));
    let taker = {
        let given = Arc::clone(&given);
        std::thread::spawn(move || {
            let mut file = std::fs::File::from(reading);
            let (mut taken, mut under_way_max, mut buffer) = (0, 0, vec![0; 16 << 10]);
            while taken < TOTAL_BYTES {
                under_way_max = under_way_max.max(given.load(Ordering::SeqCst) - taken);
                match file.read(&mut buffer).unwrap() {
                    // Nobody has opened it for writing yet.
                    0 => std::thread::yield_now(),
                    length => taken += length as u64,
                }
            }
            under_way_max
        })
    };
    let endless = Endless { given, act_at: u64::MAX, act: Box::new(|| {}), end: TOTAL_BYTES };
    let done = run(async {
        let sources = vec![Source::Reader(Box::new(endless))];
        let client = cluster.client("1x1x1x3");
        put(&client, sources, &cluster.target("/file"), &CopyOptions::default(), &mut |_| {})
            .await
            .unwrap()
    });
    assert!(done.outcome.is_ok(), "{:?}", done.outcome);
    let under_way_max = taker.join().unwrap();
    assert!(under_way_max <= UNDER_WAY_BYTES_MAX, "{under_way_max}");
    assert_eq!(cluster.path(0, "file").metadata().unwrap().len(), TOTAL_BYTES);
}
