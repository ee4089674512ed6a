//! Changes whose source is the file that they would write.
use crate::cp::cluster::{Cluster, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::FileIdentity;
use sheaf_group::Outcome;
use sheaf_tools::Target;
use sheaf_tools::cp::{CopyOptions, PIECE_BYTES, Put, Source, get, put};
use sheaf_tools::edit::{Edit, EditOptions, Edited, WriteOptions, WriteWay, Written, edit, write};
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;

const PLAIN: EditOptions = EditOptions { verbose: false, dry_run: false };
const DRY: EditOptions = EditOptions { verbose: false, dry_run: true };

fn in_place() -> CopyOptions {
    CopyOptions { in_place: true, sync: false, ..CopyOptions::default() }
}

fn refused(outcome: &Outcome) -> Vec<(Errno, &str, RangeSet)> {
    let one = |error: &sheaf_group::aggregate::ErrorClass| error.members.leaves();
    outcome.errors.iter().map(|error| (error.errno, error.path.as_str(), one(error))).collect()
}

fn big(seed: u8) -> Vec<u8> {
    vec![seed; PIECE_BYTES as usize + 1000]
}

async fn copy(cluster: &Cluster, from: &Path, to: &str, options: &CopyOptions) -> Put {
    let sources = vec![Source::Path(from.to_owned())];
    let target = cluster.target(to);
    put(&cluster.client("flat"), sources, &target, options, &mut |_| {}).await.unwrap()
}

#[test]
fn link_to_itself_is_refused_and_the_file_stays() {
    for (target, path, symbolic) in [
        ("/etc/app.conf", "/etc/app.conf", true),
        ("app.conf", "/etc/app.conf", true),
        ("../etc/app.conf", "/etc/app.conf", true),
        ("/etc/app.conf", "/etc", true),
        // What a link leads to that leads back.
        ("/other", "/etc/app.conf", true),
        ("/etc/app.conf", "/etc/app.conf", false),
        ("/etc/app.conf", "/etc//app.conf", false),
    ] {
        let cluster = Cluster::new(2);
        cluster.write_all("etc/app.conf", "precious");
        (0..2).for_each(|leaf| symlink("/etc/app.conf", cluster.path(leaf, "other")).unwrap());
        let link =
            Edit::Link { target: target.into(), symbolic, force: true, no_dereference: false };
        for options in [DRY, PLAIN] {
            let edited: Edited = run(async {
                let client = cluster.client("flat");
                edit(&client, &[cluster.target(path)], &link, options, &mut |_| Ok(()))
                    .await
                    .unwrap()
            });
            let errors = refused(&edited.outcome);
            let path = &*path.replace("//", "/");
            assert_eq!(errors, [(Errno::SAMEFILE, path, RangeSet::full(2))], "{target} {path}");
            assert_eq!(edited.files(), 0);
        }
        for leaf in 0..2 {
            assert!(cluster.path(leaf, "etc/app.conf").symlink_metadata().unwrap().is_file());
            assert_eq!(cluster.read(leaf, "etc/app.conf"), b"precious");
        }
    }
}

/// As GNU ln: another name of the file may become a link to it, and a link may be made again.
#[test]
fn links_that_lose_no_file_are_made() {
    for (target, path) in [("/a", "/second"), ("/a", "/link"), ("/link", "/b")] {
        let cluster = Cluster::new(1);
        cluster.write_all("a", "precious");
        cluster.write_all("b", "other");
        std::fs::hard_link(cluster.path(0, "a"), cluster.path(0, "second")).unwrap();
        symlink("/a", cluster.path(0, "link")).unwrap();
        let link = Edit::Link {
            target: target.into(),
            symbolic: true,
            force: true,
            no_dereference: false,
        };
        run(async {
            let client = cluster.client("flat");
            let done = edit(&client, &[cluster.target(path)], &link, PLAIN, &mut |_| Ok(())).await;
            assert!(done.unwrap().outcome.is_ok(), "{target} {path}");
        });
        assert_eq!(cluster.path(0, path).read_link().unwrap(), Path::new(target));
        assert_eq!(cluster.read(0, "a"), b"precious");
    }
}

/// This machine is the first host: its file stays, and the others get it.
#[test]
fn file_is_not_emptied_to_be_copied_into_itself() {
    let cluster = Cluster::new(3);
    for leaf in 0..3 {
        cluster.write(leaf, "f", big(leaf as u8));
        symlink("/f", cluster.path(leaf, "link")).unwrap();
    }
    let from = cluster.path(0, "f");
    for (path, dry_run) in [("/f", true), ("/f", false), ("/link", false), ("/", false)] {
        let options = CopyOptions { dry_run, ..in_place() };
        let done = run(copy(&cluster, &from, path, &options));
        let named = if path == "/" { "/f" } else { path };
        assert_eq!(
            refused(&done.outcome),
            [(Errno::SAMEFILE, named, RangeSet::single(0))],
            "{path} {dry_run}"
        );
        assert!(done.cut.is_empty());
    }
    assert!((0..3).all(|leaf| cluster.read(leaf, "f") == big(0)));
    // A file that is replaced whole may replace itself.
    let options = CopyOptions { sync: false, ..CopyOptions::default() };
    assert!(run(copy(&cluster, &from, "/f", &options)).outcome.is_ok());
    // Standard input may be a file of a host as well.
    let sources = vec![Source::Open(File::open(&from).unwrap())];
    let done = run(async {
        let client = cluster.client("flat");
        put(&client, sources, &cluster.target("/f"), &in_place(), &mut |_| {}).await.unwrap()
    });
    assert_eq!(refused(&done.outcome), [(Errno::SAMEFILE, "/f", RangeSet::single(0))]);
    assert!((0..3).all(|leaf| cluster.read(leaf, "f") == big(0)));
}

#[test]
fn file_is_not_written_while_it_is_the_source() {
    for way in [WriteWay::InPlace, WriteWay::Append, WriteWay::At(3)] {
        let cluster = Cluster::new(3);
        for leaf in 0..3 {
            cluster.write(leaf, "f", [leaf as u8; 20]);
        }
        let source = || File::open(cluster.path(0, "f")).unwrap();
        let identity = FileIdentity::of(source()).unwrap();
        let options = WriteOptions { way, source: identity, ..WriteOptions::default() };
        for edit in [DRY, PLAIN] {
            let written: Written = run(async {
                let client = cluster.client("flat");
                let targets = [cluster.target("/f")];
                let source = Box::new(source());
                write(&client, &targets, &options, edit, source, &mut |_| Ok(())).await.unwrap()
            });
            assert_eq!(
                refused(&written.outcome),
                [(Errno::SAMEFILE, "/f", RangeSet::single(0))],
                "{way:?}"
            );
        }
        assert_eq!(cluster.read(0, "f"), [0; 20]);
        assert!((1..3).all(|leaf| cluster.read(leaf, "f").contains(&0)), "{way:?}");
    }
}

#[test]
fn tree_is_not_copied_into_itself() {
    let cluster = Cluster::new(2);
    for leaf in 0..2 {
        cluster.write(leaf, "dir/sub/f", "content");
        std::fs::create_dir(cluster.path(leaf, "dir/there")).unwrap();
    }
    let from = cluster.path(0, "dir");
    let options = CopyOptions { recursive: true, sync: false, ..CopyOptions::default() };
    for (path, named) in
        [("/dir/new", "/dir/new"), ("/dir/there", "/dir/there/dir"), ("/dir/sub/x", "/dir/sub/x")]
    {
        for dry_run in [true, false] {
            let done =
                run(copy(&cluster, &from, path, &CopyOptions { dry_run, ..options.clone() }));
            assert_eq!(
                refused(&done.outcome),
                [(Errno::INTOSELF, named, RangeSet::single(0))],
                "{path}"
            );
        }
        assert!(!cluster.path(0, named).exists() && cluster.path(1, named).exists(), "{path}");
    }
    // Onto itself is no copy into itself: each file replaces itself.
    assert!(run(copy(&cluster, &from, "/", &options)).outcome.is_ok());
    let done = run(copy(&cluster, &from, "/", &CopyOptions { in_place: true, ..options }));
    assert_eq!(refused(&done.outcome), [(Errno::SAMEFILE, "/dir", RangeSet::single(0))]);
    assert_eq!(cluster.read(0, "dir/sub/f"), b"content");
}

/// The directory to copy to is a host's own.
#[test]
fn file_of_a_host_is_not_emptied_to_be_fetched() {
    for content in [big(1), b"short".to_vec()] {
        let cluster = Cluster::new(1);
        cluster.write(0, "f", &content);
        let to = cluster.path(0, "f");
        let options = CopyOptions { exact_name: true, ..in_place() };
        let target = Target { members: RangeSet::single(0), path: "/f".to_owned() };
        let got = run(async {
            get(&cluster.client("flat"), &[target], &to, &options, &mut |_| {}).await.unwrap()
        });
        let here: Vec<_> = got.errors.iter().map(|error| error.errno).collect();
        let there: Vec<_> = got.outcome.errors.iter().map(|error| error.errno).collect();
        assert!([here, there].concat().contains(&Errno::SAMEFILE), "{got:?}");
        assert_eq!(cluster.read(0, "f"), content);
    }
}

/// Two names of one file here: the second is not emptied to be filled from the first.
#[test]
fn fetched_content_is_not_copied_over_itself() {
    let cluster = Cluster::new(2);
    cluster.write_all("f", big(7));
    let here = tempfile::tempdir().unwrap();
    for host in ["n1", "n2"] {
        std::fs::create_dir(here.path().join(host)).unwrap();
    }
    std::fs::write(here.path().join("n1/f"), "old").unwrap();
    std::fs::hard_link(here.path().join("n1/f"), here.path().join("n2/f")).unwrap();
    let got = run(async {
        let client = cluster.client("flat");
        get(&client, &[cluster.target("/f")], here.path(), &in_place(), &mut |_| {}).await.unwrap()
    });
    assert!(got.outcome.is_ok() && got.errors.is_empty(), "{got:?}");
    assert_eq!(std::fs::read(here.path().join("n2/f")).unwrap(), big(7));
}

/// As with GNU `cp -a`, where a name leads by a link to a file that has others.
#[test]
fn names_behind_a_link_keep_what_they_have() {
    let cluster = Cluster::new(1);
    for file in ["d/one", "source"] {
        cluster.write(0, file, "old");
    }
    std::fs::hard_link(cluster.path(0, "d/one"), cluster.path(0, "d/other")).unwrap();
    symlink("one", cluster.path(0, "d/source")).unwrap();
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("source");
    std::fs::write(&from, "new").unwrap();
    let options = CopyOptions { in_place: true, sync: false, ..CopyOptions::archive() };
    let done = run(copy(&cluster, &from, "/d", &options));
    assert!(done.outcome.is_ok(), "{done:?}");
    let read = |name: &str| std::fs::read_to_string(cluster.path(0, name)).unwrap();
    assert_eq!((read("d/source"), read("d/other")), ("new".to_owned(), "old".to_owned()));
}

/// A link does not take the place of the file that it would lead to, as with GNU cp.
#[test]
fn link_is_not_copied_over_what_it_leads_to() {
    let recursive = CopyOptions { recursive: true, sync: false, ..CopyOptions::default() };
    for options in [recursive, CopyOptions { sync: false, ..CopyOptions::archive() }] {
        let cluster = Cluster::new(2);
        cluster.write_all("d/f", "precious");
        cluster.write(1, "s/other", "");
        std::fs::create_dir_all(cluster.path(0, "s")).unwrap();
        symlink("/d/f", cluster.path(0, "s/f")).unwrap();
        let put = run(copy(&cluster, &cluster.path(0, "s/."), "/d", &options));
        assert_eq!(refused(&put.outcome), [(Errno::SAMEFILE, "/d/f", RangeSet::full(2))]);
        // From a host, a link means what it means on this machine.
        let here = tempfile::tempdir().unwrap();
        let own = here.path().join("n1/s/f");
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(&own, "precious").unwrap();
        std::fs::remove_file(cluster.path(0, "s/f")).unwrap();
        symlink(&own, cluster.path(0, "s/f")).unwrap();
        let got = run(async {
            let client = cluster.client("flat");
            let target = Target { members: RangeSet::single(0), path: "/s".to_owned() };
            get(&client, &[target], here.path(), &options, &mut |_| {}).await.unwrap()
        });
        let told: Vec<_> = got.errors.iter().map(|error| error.errno).collect();
        assert_eq!(told, [Errno::SAMEFILE]);
        assert_eq!(std::fs::read(own).unwrap(), b"precious");
        assert_eq!(cluster.read(0, "d/f"), b"precious");
    }
}

/// This machine is the first host, whose directory is to come into itself; that of the other does.
#[test]
fn tree_of_a_host_is_not_copied_into_itself() {
    let options = CopyOptions { recursive: true, sync: false, ..CopyOptions::default() };
    for (to, exact_name) in [("s", false), ("s/new", false), ("s/deep/er", false), ("s/new", true)]
    {
        let cluster = Cluster::new(2);
        cluster.write_all("s/f", "content");
        cluster.write_all("s/deep/er/f", "content");
        let dry_runs = if exact_name { [true].iter() } else { [true, false].iter() };
        for dry_run in dry_runs.copied() {
            let options = CopyOptions { dry_run, exact_name, ..options.clone() };
            let leaves = if exact_name { RangeSet::single(0) } else { RangeSet::full(2) };
            let got = run(async {
                let client = cluster.client("flat");
                let target = Target { members: leaves, path: "/s".to_owned() };
                let to = cluster.path(0, to);
                get(&client, &[target], &to, &options, &mut |_| {}).await.unwrap()
            });
            let told = refused(&got.outcome);
            assert_eq!(told, [(Errno::INTOSELF, "/s", RangeSet::single(0))], "{to} {dry_run}");
            assert!(!cluster.path(0, to).join("n1").exists());
            let copied = cluster.path(0, to).join("n2/s/f").exists();
            assert_eq!(copied, !dry_run && !exact_name, "{to}");
        }
    }
}

/// Nor the file that it leads to from where it is, or that its text means to programs of this machine.
#[test]
fn link_of_another_name_is_not_copied_over_what_it_leads_to() {
    let links = CopyOptions { no_dereference: true, sync: false, ..CopyOptions::default() };
    let archive = CopyOptions { sync: false, ..CopyOptions::archive() };
    // Where the link is, its text, and what is copied where.
    for (link, text, from, to) in [
        ("l", "a", "l", "/a"),
        ("y/f", "../x/f", "y/f", "/x/f"),
        ("b", "x/f", "b", "/x/f"),
        ("f", "x/f", "f", "/x"),
        ("y/x/f", "../../x/f", "y/x", "/"),
        ("x/a", "../a", "x/a", "/a"),
        ("y/a", "../a", "y/.", "/"),
    ] {
        for options in [&links, &archive] {
            if !options.recursive && (from.ends_with("/x") || from.ends_with('.')) {
                continue;
            }
            let cluster = Cluster::new(1);
            let at = |name: &str| cluster.path(0, name);
            cluster.write(0, "a", "precious");
            cluster.write(0, "x/f", "precious");
            std::fs::create_dir_all(at("y/x")).unwrap();
            symlink(text, at(link)).unwrap();
            let put = run(copy(&cluster, &at(from), to, options));
            assert_eq!(put.outcome.errors.len(), 1, "{link} {text} to {to}");
            assert_eq!(put.outcome.errors[0].errno, Errno::SAMEFILE);
            // From the host to the very name, here.
            let exact = CopyOptions { exact_name: true, ..options.clone() };
            let here = at(to.trim_start_matches('/'));
            let here = match from {
                "y/x" => at("x"),
                _ if here.is_dir() && !at(from).is_dir() => here.join("f"),
                _ => here,
            };
            let got = run(async {
                let client = cluster.client("flat");
                let targets = [cluster.target(&format!("/{from}"))];
                get(&client, &targets, &here, &exact, &mut |_| {}).await.unwrap()
            });
            let told: Vec<_> = got.errors.iter().map(|error| error.errno).collect();
            assert_eq!(told, [Errno::SAMEFILE], "{link} {text} from {from}");
            assert_eq!(cluster.read(0, "a"), b"precious");
            assert_eq!(cluster.read(0, "x/f"), b"precious");
        }
    }
    // A link that leads to itself means no file, and takes the place of one as with GNU cp.
    let cluster = Cluster::new(1);
    cluster.write(0, "a", "old");
    std::fs::create_dir(cluster.path(0, "y")).unwrap();
    symlink("a", cluster.path(0, "y/a")).unwrap();
    let put = run(copy(&cluster, &cluster.path(0, "y/."), "/", &archive));
    assert!(put.outcome.is_ok());
    assert_eq!(cluster.path(0, "a").read_link().unwrap(), Path::new("a"));
}

/// A slash and a dot at the end are no name that could be replaced.
#[test]
fn link_to_a_directory_by_a_dot_replaces_nothing() {
    let cluster = Cluster::new(1);
    cluster.write(0, "d/c", "precious");
    for target in ["q/c/.", "q/c/..", "."] {
        let link = Edit::Link {
            target: target.into(),
            symbolic: true,
            force: true,
            no_dereference: false,
        };
        let edited = run(async {
            let client = cluster.client("flat");
            edit(&client, &[cluster.target("/d")], &link, PLAIN, &mut |_| Ok(())).await.unwrap()
        });
        assert_eq!(refused(&edited.outcome), [(Errno::EXIST, "/d", RangeSet::single(0))]);
    }
    assert_eq!(cluster.read(0, "d/c"), b"precious");
}
