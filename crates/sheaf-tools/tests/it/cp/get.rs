//! From hosts.
use super::cluster::{Cluster, SHAPES, run};
use super::tree::{build, gnu_cp, look, nodes};
use proptest::prelude::*;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::Client;
use sheaf_tools::Target;
use sheaf_tools::cp::{CopyOptions, Got, PIECE_BYTES, Progress, get};
use std::path::{Path, PathBuf};

fn quick() -> CopyOptions {
    CopyOptions { sync: false, ..CopyOptions::default() }
}

fn archive() -> CopyOptions {
    CopyOptions { sync: false, ..CopyOptions::archive() }
}

async fn fetch(client: &Client, targets: &[Target], to: &Path, options: &CopyOptions) -> Got {
    get(client, targets, to, options, &mut |_| {}).await.unwrap()
}

/// [`fetch`], with something that happens once the manifests are there.
async fn fetch_after(
    client: &Client,
    target: Target,
    to: &Path,
    mut act: impl FnMut() + Send,
) -> Got {
    let mut first = true;
    let mut progress = |_: Progress| {
        if std::mem::take(&mut first) {
            act();
        }
    };
    get(client, &[target], to, &quick(), &mut progress).await.unwrap()
}

/// A content that no other seed gives.
fn content(seed: u64, len: u64) -> Vec<u8> {
    let mut content = vec![0; len as usize];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut content);
    content
}

fn errors(got: &Got) -> Vec<(Errno, &str, String)> {
    let errors = got.outcome.errors.iter();
    errors
        .map(|error| (error.errno, error.path.as_str(), error.members.leaves().to_string()))
        .collect()
}

fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let is_temporary = |path: &PathBuf| path.to_string_lossy().contains(sheaf_file::TEMP_PREFIX);
    look(dir, false).into_keys().filter(is_temporary).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn trees_come_as_cp_makes_them(trees in proptest::collection::vec(nodes(), 1..4), shape in 0..SHAPES.len(), keep: bool) {
        let hosts = 5;
        let cluster = Cluster::new(hosts);
        for leaf in 0..hosts {
            build(&cluster.path(leaf, "srv/tree"), &trees[leaf as usize % trees.len()]);
        }
        let here = tempfile::tempdir().unwrap();
        let (options, gnu) = if keep { (archive(), "-a") } else { (CopyOptions { recursive: true, ..quick() }, "-r") };
        let to = here.path().join("to");
        let got = run(async {
            fetch(&cluster.client(SHAPES[shape]), &[cluster.target("/srv/tree")], &to, &options).await
        });
        prop_assert!(got.outcome.is_ok() && got.errors.is_empty(), "{:?}", got);
        prop_assert_eq!(got.outcome.status.count, u64::from(hosts));
        for leaf in 0..hosts {
            let oracle = here.path().join(format!("oracle{leaf}"));
            gnu_cp(&[gnu], &cluster.path(leaf, "srv/tree"), &oracle);
            prop_assert_eq!(look(&to.join(format!("n{}/tree", leaf + 1)), keep), look(&oracle, keep));
        }
        prop_assert!(leftovers(here.path()).is_empty());
    }
}

#[test]
fn long_manifests_come_in_batches() {
    run(async {
        let cluster = Cluster::new(4);
        for leaf in 0..4 {
            // Every host has most files, and what it lacks shifts its batches against the others'.
            for file in (0..400).filter(|file| file % (7 + leaf) != 0) {
                cluster.write(
                    leaf,
                    &format!("d/{}/file{file}", file / 50),
                    content(u64::from(file % 5), 600),
                );
            }
        }
        let here = tempfile::tempdir().unwrap();
        let client = cluster.client("1x1x60");
        let client = client.with_limits(client.limits().with_bytes_max(1));
        let got = fetch(&client, &[cluster.target("/d")], here.path(), &archive()).await;
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{:?}", got.outcome);
        assert_eq!(got.fetched.bytes, 5 * 600);
        for leaf in 0..4 {
            let copy = here.path().join(format!("n{}/d", leaf + 1));
            assert_eq!(look(&copy, true), look(&cluster.path(leaf, "d"), true));
        }
    });
}

#[test]
fn equal_contents_are_fetched_once() {
    run(async {
        let cluster = Cluster::new(12);
        let large = 2 * PIECE_BYTES + 12_345;
        for leaf in 0..12 {
            cluster.write(leaf, "d/large", content(u64::from(leaf % 2), large));
            cluster.write(leaf, "d/small", content(7, 1000));
            cluster.write(leaf, "d/own", content(100 + u64::from(leaf), 300_000));
            cluster.write(leaf, "d/empty", "");
        }
        let here = tempfile::tempdir().unwrap();
        for shape in SHAPES {
            let to = here.path().join(shape);
            let options = CopyOptions { recursive: true, ..quick() };
            let client = cluster.client(shape);
            let before = client.network().counters().bytes_in;
            let got = fetch(&client, &[cluster.target("/d")], &to, &options).await;
            assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
            let distinct = 2 * large + 1000 + 12 * 300_000;
            assert_eq!((got.fetched.bytes, got.fetched.bytes_total), (distinct, Some(distinct)));
            let received = client.network().counters().bytes_in - before;
            assert!(received < distinct + distinct / 10, "{received} of {distinct}");
            assert_eq!((got.files, got.bytes), (48, 12 * (large + 1000 + 300_000)));
            for leaf in 0..12 {
                for name in ["large", "small", "own", "empty"] {
                    let copy = std::fs::read(to.join(format!("n{}/d/{name}", leaf + 1))).unwrap();
                    assert!(copy == cluster.read(leaf, &format!("d/{name}")), "{leaf} {name}");
                }
            }
        }
    });
}

#[test]
fn copy_source_that_vanishes_is_replaced_by_another_host() {
    run(async {
        for size in [100, 3 * PIECE_BYTES / 2] {
            let cluster = Cluster::new(5);
            (0..5).for_each(|leaf| cluster.write(leaf, "file", content(1, size)));
            let here = tempfile::tempdir().unwrap();
            let client = cluster.client("k-ary:2");
            let act = || {
                std::fs::remove_file(cluster.path(0, "file")).unwrap();
                std::fs::write(cluster.path(1, "file"), content(2, size)).unwrap();
            };
            let got = fetch_after(&client, cluster.target("/file"), here.path(), act).await;
            assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
            for leaf in 0..5 {
                assert!(
                    std::fs::read(here.path().join(format!("n{}/file", leaf + 1))).unwrap()
                        == content(1, size)
                );
            }
            assert!(leftovers(here.path()).is_empty());
        }
    });
}

#[test]
fn file_changed_during_a_copy_is_reported() {
    run(async {
        for size in [100, 3 * PIECE_BYTES / 2] {
            let cluster = Cluster::new(4);
            (0..4).for_each(|leaf| cluster.write(leaf, "file", content(u64::from(leaf / 2), size)));
            let here = tempfile::tempdir().unwrap();
            std::fs::create_dir(here.path().join("n1")).unwrap();
            std::fs::write(here.path().join("n1/file"), "old").unwrap();
            let act = || {
                std::fs::write(cluster.path(0, "file"), content(9, size)).unwrap();
                std::fs::write(cluster.path(1, "file"), "short").unwrap();
            };
            let got =
                fetch_after(&cluster.client("flat"), cluster.target("/file"), here.path(), act)
                    .await;
            assert_eq!(errors(&got), [(Errno::BADMSG, "/file", "0-1".to_owned())]);
            assert_eq!(got.outcome.status.count, 2);
            assert_eq!(std::fs::read(here.path().join("n1/file")).unwrap(), b"old");
            assert!(!here.path().join("n2/file").exists());
            assert!(std::fs::read(here.path().join("n4/file")).unwrap() == content(1, size));
            assert!(leftovers(here.path()).is_empty());
        }
    });
}

#[test]
fn hosts_that_fail_are_named_and_the_others_come() {
    run(async {
        let cluster = Cluster::new(6);
        for leaf in [0, 2, 3, 5] {
            cluster.write(leaf, "etc/file", "content");
        }
        std::fs::create_dir_all(cluster.path(4, "etc/file")).unwrap();
        let here = tempfile::tempdir().unwrap();
        // Something is in the way here, too.
        std::fs::create_dir_all(here.path().join("n3/file")).unwrap();
        std::fs::write(here.path().join("n4"), "no directory").unwrap();
        let got =
            fetch(&cluster.client("1x2x3"), &[cluster.target("/etc/file")], here.path(), &quick())
                .await;
        assert_eq!(
            errors(&got),
            [
                (Errno::NOENT, "/etc/file", "1".to_owned()),
                (Errno::ISDIR, "/etc/file", "4".to_owned())
            ]
        );
        let local: Vec<_> =
            got.errors.iter().map(|error| (error.errno, error.path.clone())).collect();
        let expected = [
            (Errno::ISDIR, here.path().join("n3/file")),
            (Errno::NOTDIR, here.path().join("n4/file")),
        ];
        assert_eq!(local, expected);
        assert_eq!(got.outcome.status.count, 2);
        for host in ["n1", "n6"] {
            assert_eq!(std::fs::read(here.path().join(host).join("file")).unwrap(), b"content");
        }
    });
}

#[test]
fn patterns_keep_what_tells_their_files_apart() {
    run(async {
        let cluster = Cluster::new(3);
        cluster.write(0, "var/log/a/current", "1");
        cluster.write(0, "var/log/b/current", "2");
        cluster.write(1, "var/log/a/current", "1");
        let here = tempfile::tempdir().unwrap();
        let targets = [cluster.target("/var/log/*/current")];
        let got = fetch(&cluster.client("flat"), &targets, here.path(), &quick()).await;
        // That a pattern matches nothing on some host is no error, if it does on another.
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
        for (path, content) in [("n1/a/current", "1"), ("n1/b/current", "2"), ("n2/a/current", "1")]
        {
            assert_eq!(std::fs::read_to_string(here.path().join(path)).unwrap(), content);
        }
        let got =
            fetch(&cluster.client("flat"), &[cluster.target("/nothing*")], here.path(), &quick())
                .await;
        assert_eq!(errors(&got), [(Errno::NOENT, "/nothing*", "0-2".to_owned())]);
    });
}

#[test]
fn two_sources_of_one_name_do_not_overwrite_each_other() {
    run(async {
        let cluster = Cluster::new(2);
        (0..2).for_each(|leaf| cluster.write(leaf, "a/x", "1"));
        (0..2).for_each(|leaf| cluster.write(leaf, "b/x", "2"));
        let here = tempfile::tempdir().unwrap();
        let targets = [cluster.target("/a/x"), cluster.target("/b/x")];
        let got = fetch(&cluster.client("flat"), &targets, here.path(), &quick()).await;
        assert_eq!(errors(&got), [(Errno::EXIST, "/b/x", "0-1".to_owned())]);
        for host in ["n1", "n2"] {
            let copied = std::fs::read_to_string(here.path().join(host).join("x"));
            assert_eq!(copied.unwrap(), "1");
        }
    });
}

#[test]
fn files_that_are_made_up_as_they_are_read() {
    run(async {
        let cluster = Cluster::new(2);
        (0..2).for_each(|leaf| std::fs::remove_dir(cluster.path(leaf, "")).unwrap());
        (0..2)
            .for_each(|leaf| std::os::unix::fs::symlink("/proc", cluster.path(leaf, "")).unwrap());
        let here = tempfile::tempdir().unwrap();
        let targets = [cluster.target("/meminfo"), cluster.target("/sys/kernel/ostype")];
        let got = fetch(&cluster.client("flat"), &targets, here.path(), &quick()).await;
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
        assert!(
            std::fs::read_to_string(here.path().join("n2/meminfo"))
                .unwrap()
                .starts_with("MemTotal")
        );
        assert_eq!(std::fs::read(here.path().join("n1/ostype")).unwrap(), b"Linux\n");
    });
}

#[test]
fn dry_run_writes_nothing() {
    run(async {
        let cluster = Cluster::new(3);
        (0..3).for_each(|leaf| cluster.write(leaf, "d/file", if leaf == 1 { "1" } else { "0" }));
        let here = tempfile::tempdir().unwrap();
        let options = CopyOptions { recursive: true, dry_run: true, ..quick() };
        let to = here.path().join("to");
        let got = fetch(&cluster.client("flat"), &[cluster.target("/d")], &to, &options).await;
        let mut planned: Vec<_> =
            got.planned.iter().map(|one| (one.leaves.to_string(), one.local.clone())).collect();
        planned.sort();
        assert_eq!(
            planned,
            [("0,2".to_owned(), "d/file".into()), ("1".to_owned(), PathBuf::from("d/file"))]
        );
        assert!(!to.exists());
    });
}

#[test]
fn interrupt_leaves_nothing_half_written() {
    run(async {
        for shape in SHAPES {
            let cluster = Cluster::new(3);
            (0..3).for_each(|leaf| cluster.write(leaf, "file", content(1, 3 * PIECE_BYTES)));
            let here = tempfile::tempdir().unwrap();
            let client = cluster.client(shape);
            let mut progress = |progress: Progress| {
                if progress.bytes == PIECE_BYTES {
                    client.interrupt();
                }
            };
            let got =
                get(&client, &[cluster.target("/file")], here.path(), &quick(), &mut progress)
                    .await
                    .unwrap();
            assert_eq!(got.outcome.silent, [(Errno::CANCELED, RangeSet::full(3))]);
            assert_eq!((got.outcome.status.count, got.files), (0, 0));
            let left: Vec<_> = look(here.path(), false)
                .into_keys()
                .filter(|path| here.path().join(path).is_file())
                .collect();
            assert_eq!(left, Vec::<PathBuf>::new());
        }
    });
}

/// Nobody has typed the name of a host's directory: the link of another user leads nowhere.
#[test]
fn link_of_another_user_is_no_directory_of_a_host() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    run(async {
        let cluster = Cluster::new(1);
        let client = cluster.client("flat");
        cluster.write(0, "d/file", "of the host");
        let host = client.host(0).unwrap();
        // Nor does one that a host may have laid, by an earlier copy, lead out of the destination.
        for (owner, is_within, expected) in
            [(65534, true, Some(Errno::ACCES)), (0, true, None), (0, false, Some(Errno::ACCES))]
        {
            let here = tempfile::tempdir().unwrap();
            let to = here.path().join("to");
            let private = if is_within { to.join("private") } else { here.path().join("private") };
            std::fs::create_dir(&to).unwrap();
            std::fs::create_dir(&private).unwrap();
            let link = to.join(&host);
            let target = if is_within { "private" } else { "../private" };
            std::os::unix::fs::symlink(target, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(owner), None).unwrap();
            let options = CopyOptions { recursive: true, ..quick() };
            for path in ["/d/file", "/d"] {
                let got = fetch(&client, &[cluster.target(path)], &to, &options).await;
                assert_eq!(got.errors.first().map(|error| error.errno), expected, "{path}");
            }
            let is_followed = expected.is_none();
            assert_eq!(private.join("file").exists(), is_followed);
            assert_eq!(private.join("d/file").exists(), is_followed);
        }
    });
}

/// A link is in the way of a directory, and nothing is written where it leads.
#[test]
fn nothing_is_written_beneath_a_directory_that_is_not_made() {
    run(async {
        let cluster = Cluster::new(1);
        let client = cluster.client("flat");
        let host = client.host(0).unwrap();
        let large = "l".repeat(3 << 20);
        for (path, text) in [("d/sub/conf", "new"), ("d/sub/large", &*large), ("d/good", "good")] {
            cluster.write(0, path, text);
        }
        std::os::unix::fs::symlink("x", cluster.path(0, "d/sub/link")).unwrap();
        let kept = |directory: &Path| {
            let names = std::fs::read_dir(directory).unwrap().count();
            (names, std::fs::read_to_string(directory.join("conf")).unwrap())
        };
        for exact_name in [false, true] {
            let here = tempfile::tempdir().unwrap();
            let base = here.path().join("base");
            let (to, top) = if exact_name {
                (base.join("to"), base.join("to"))
            } else {
                (base.clone(), base.join(&host).join("d"))
            };
            std::fs::create_dir_all(top.join("keep")).unwrap();
            std::fs::write(top.join("keep/conf"), "precious").unwrap();
            std::os::unix::fs::symlink("keep", top.join("sub")).unwrap();
            let options = CopyOptions { recursive: true, exact_name, ..quick() };
            let got = fetch(&client, &[cluster.target("/d")], &to, &options).await;
            let errors: Vec<_> =
                got.errors.iter().map(|error| (&*error.path, error.errno)).collect();
            assert_eq!(errors, [(&*top.join("sub"), Errno::NOTDIR)]);
            assert_eq!((got.lost_here, got.files), (1, 1));
            assert_eq!(kept(&top.join("keep")), (1, "precious".to_owned()));
            assert_eq!(std::fs::read_to_string(top.join("good")).unwrap(), "good");
        }
        // So it is where the link is the destination, and leads to where it is.
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("good"), "precious").unwrap();
        std::os::unix::fs::symlink("..", here.path().join("link")).unwrap();
        let options = CopyOptions { recursive: true, exact_name: true, ..quick() };
        let link = here.path().join("link");
        let got = fetch(&client, &[cluster.target("/d")], &link, &options).await;
        assert_eq!((got.errors.len(), got.files), (1, 0));
        assert_eq!(std::fs::read_to_string(here.path().join("good")).unwrap(), "precious");
    });
}

#[test]
fn destination_that_is_a_file_is_refused() {
    let cluster = Cluster::new(1);
    cluster.write(0, "file", "");
    let here = tempfile::NamedTempFile::new().unwrap();
    let got = run(async {
        get(&cluster.client("flat"), &[cluster.target("/file")], here.path(), &quick(), &mut |_| {})
            .await
    });
    assert_eq!(got.unwrap_err().errno(), Errno::NOTDIR);
}

/// Devices are made with -p alone, and by root; one with two names is one then, as with `cp -a`.
#[test]
fn device_with_two_names_is_one() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root can make devices");
    }
    let cluster = Cluster::new(2);
    for leaf in 0..2 {
        let at = |name: &str| cluster.path(leaf, name);
        std::fs::create_dir_all(at("tree/sub")).unwrap();
        let (kind, null) = (rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("tree/a"), kind, mode, null).unwrap();
        std::fs::hard_link(at("tree/a"), at("tree/sub/b")).unwrap();
    }
    let here = tempfile::tempdir().unwrap();
    run(async {
        let client = cluster.client("flat");
        let to = here.path().join("to");
        let got = fetch(&client, &[cluster.target("/tree")], &to, &archive()).await;
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
        for host in ["n1", "n2"] {
            let tree = look(&to.join(host).join("tree"), false);
            assert_eq!(tree[Path::new("sub/b")].same_as, Path::new("a"));
        }
        // Where none is made, nothing is linked to what has its name.
        let to = here.path().join("other");
        std::fs::create_dir_all(to.join("n1/tree")).unwrap();
        std::fs::write(to.join("n1/tree/a"), "another").unwrap();
        let options = CopyOptions { preserve: false, ..archive() };
        let got = fetch(&client, &[cluster.target("/tree")], &to, &options).await;
        assert_eq!(errors(&got).len(), 2, "{got:?}");
        assert!(!to.join("n1/tree/sub/b").exists());
    });
}

/// A link in the place of a file's name is replaced: it leads the content into no other one.
#[test]
fn archive_from_hosts_replaces_links_in_the_place_of_files() {
    for (to, others) in [("e2", "new"), ("other", "old"), ("b", "B")] {
        let cluster = Cluster::new(1);
        std::fs::create_dir(cluster.path(0, "t")).unwrap();
        std::fs::write(cluster.path(0, "t/a8"), "new").unwrap();
        std::fs::hard_link(cluster.path(0, "t/a8"), cluster.path(0, "t/e2")).unwrap();
        std::fs::write(cluster.path(0, "t/b"), "B").unwrap();
        let here = tempfile::tempdir().unwrap();
        let out = here.path().join("n1/t");
        std::fs::create_dir_all(&out).unwrap();
        std::os::unix::fs::symlink(to, out.join("a8")).unwrap();
        std::fs::write(out.join(to), "old").unwrap();
        run(async {
            let client = cluster.client("flat");
            let got = fetch(&client, &[cluster.target("/t")], here.path(), &archive()).await;
            assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
        });
        for (name, content) in [("a8", "new"), ("e2", "new"), ("b", "B"), (to, others)] {
            assert_eq!(std::fs::read_to_string(out.join(name)).unwrap(), content, "{name}");
            assert!(!out.join(name).is_symlink());
        }
    }
}

/// A link of this machine that leads out of the destination is followed nowhere, and not to a file that it means in a
/// world of its own.
#[test]
fn link_that_leads_out_of_the_destination_is_refused() {
    for link in ["../../../../out/f", "/out/f", "/nowhere"] {
        let cluster = Cluster::new(1);
        std::fs::create_dir(cluster.path(0, "s")).unwrap();
        std::fs::write(cluster.path(0, "s/f"), "new").unwrap();
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("to");
        for file in ["out/f", "to/out/f", "to/n1/out/f"] {
            std::fs::create_dir_all(here.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(here.path().join(file), "old").unwrap();
        }
        std::fs::create_dir(to.join("n1/s")).unwrap();
        std::os::unix::fs::symlink(link, to.join("n1/s/f")).unwrap();
        let recursive = CopyOptions { recursive: true, ..quick() };
        run(async {
            let client = cluster.client("flat");
            let got = fetch(&client, &[cluster.target("/s")], &to, &recursive).await;
            assert_eq!(got.errors.len(), 1, "{link}: {got:?}");
            assert_eq!(got.errors[0].errno, Errno::ACCES, "{link}");
        });
        for file in ["out/f", "to/out/f", "to/n1/out/f"] {
            let text = std::fs::read_to_string(here.path().join(file)).unwrap();
            assert_eq!(text, "old", "{link} {file}");
        }
    }
}

/// Names of one file that come as two files are two, also where files are written in place, and where a device is in the place
/// of one.
#[test]
fn files_that_come_for_names_of_one_are_several() {
    let cluster = Cluster::new(1);
    std::fs::create_dir(cluster.path(0, "s")).unwrap();
    for (name, text) in [("a", "AAA"), ("b", "BBB"), ("c", "CCC")] {
        std::fs::write(cluster.path(0, &format!("s/{name}")), text).unwrap();
    }
    std::fs::hard_link(cluster.path(0, "s/c"), cluster.path(0, "s/d")).unwrap();
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join("n1/s").join(name);
    std::fs::create_dir_all(at("")).unwrap();
    std::fs::write(at("a"), "old").unwrap();
    std::fs::hard_link(at("a"), at("b")).unwrap();
    std::fs::hard_link(at("a"), here.path().join("outsider")).unwrap();
    if rustix::process::geteuid().is_root() {
        let (kind, null) = (rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("c"), kind, mode, null).unwrap();
    }
    run(async {
        let options = CopyOptions { in_place: true, ..archive() };
        let client = cluster.client("flat");
        let got = fetch(&client, &[cluster.target("/s")], here.path(), &options).await;
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
    });
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!((read(&at("a")), read(&at("b"))), ("AAA".to_owned(), "BBB".to_owned()));
    assert_eq!(read(&here.path().join("outsider")), "old");
    assert_eq!((read(&at("c")), read(&at("d"))), ("CCC".to_owned(), "CCC".to_owned()));
}

/// So do names in several sources, by patterns and by themselves.
#[test]
fn names_in_several_sources_are_one_file() {
    let cluster = Cluster::new(1);
    for dir in ["s/d", "u"] {
        std::fs::create_dir_all(cluster.path(0, dir)).unwrap();
    }
    std::fs::write(cluster.path(0, "s/f"), "f").unwrap();
    std::os::unix::fs::symlink("f", cluster.path(0, "s/l")).unwrap();
    for (of, name) in [("s/f", "s/g"), ("s/f", "s/d/h"), ("s/f", "u/f"), ("s/l", "u/l")] {
        std::fs::hard_link(cluster.path(0, of), cluster.path(0, name)).unwrap();
    }
    for sources in [&["/s", "/u"][..], &["/s/*", "/u"]] {
        let here = tempfile::tempdir().unwrap();
        run(async {
            let client = cluster.client("flat");
            let sources: Vec<Target> = sources.iter().map(|path| cluster.target(path)).collect();
            let got = fetch(&client, &sources, here.path(), &archive()).await;
            assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
        });
        let mut tree = look(&here.path().join("n1"), false);
        tree.retain(|path, _| !here.path().join("n1").join(path).is_dir());
        let mut files: Vec<_> = tree.values().map(|facts| facts.same_as.clone()).collect();
        files.sort();
        files.dedup();
        assert_eq!((tree.len(), files.len()), (6, 2), "{sources:?} {tree:?}");
    }
}

/// A link that comes is there before a file is written through another one (GNU cp -r).
#[test]
fn file_is_written_through_the_links_that_come() {
    let cluster = Cluster::new(1);
    std::fs::create_dir(cluster.path(0, "s")).unwrap();
    std::os::unix::fs::symlink("b", cluster.path(0, "s/c")).unwrap();
    std::fs::write(cluster.path(0, "s/f"), "FF").unwrap();
    let here = tempfile::tempdir().unwrap();
    let out = here.path().join("n1/s");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("b"), "old").unwrap();
    std::fs::write(out.join("c"), "old").unwrap();
    std::os::unix::fs::symlink("c", out.join("f")).unwrap();
    let recursive = CopyOptions { recursive: true, ..quick() };
    run(async {
        let client = cluster.client("flat");
        let got = fetch(&client, &[cluster.target("/s")], here.path(), &recursive).await;
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
    });
    assert_eq!(std::fs::read_to_string(out.join("f")).unwrap(), "FF");
}

/// A link of the user's own that leads from one host's directory to another's.
#[test]
fn directory_of_two_hosts_has_the_files_of_one() {
    let cluster = Cluster::new(2);
    (0..2).for_each(|leaf| cluster.write(leaf, "id", if leaf == 0 { "first" } else { "second" }));
    let here = tempfile::tempdir().unwrap();
    std::fs::create_dir(here.path().join("n1")).unwrap();
    std::os::unix::fs::symlink("n1", here.path().join("n2")).unwrap();
    let got = run(async {
        fetch(&cluster.client("flat"), &[cluster.target("/id")], here.path(), &quick()).await
    });
    let told: Vec<_> = got.errors.iter().map(|error| (error.errno, error.path.clone())).collect();
    assert_eq!(told, [(Errno::NOTUNIQ, here.path().join("n2/id"))]);
    assert_eq!(std::fs::read_to_string(here.path().join("n1/id")).unwrap(), "first");
}

/// A host sees all that it is asked for, also where others are asked for a part of it.
#[test]
fn names_of_sources_of_other_hosts_are_one_file() {
    use std::os::unix::fs::MetadataExt;
    let cluster = Cluster::new(2);
    for leaf in 0..2 {
        cluster.write(leaf, "s/a", "content");
        std::fs::hard_link(cluster.path(leaf, "s/a"), cluster.path(leaf, "s/b")).unwrap();
    }
    let here = tempfile::tempdir().unwrap();
    let one = Target { members: RangeSet::single(0), path: "/s/b".to_owned() };
    let got = run(async {
        let client = cluster.client("flat");
        fetch(&client, &[cluster.target("/s/a"), one], here.path(), &archive()).await
    });
    assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
    let names = |path: &str| here.path().join(path).metadata().unwrap().nlink();
    assert_eq!((names("n1/a"), names("n1/b"), names("n2/a")), (2, 2, 1));
}
