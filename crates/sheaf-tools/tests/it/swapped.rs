//! Directories that another process exchanges for symbolic links while a change is under way.
use crate::cp::cluster::{Cluster, run};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use sheaf_file::ModeChange;
use sheaf_group::Client;
use sheaf_tools::Target;
use sheaf_tools::cp::{CopyOptions, Source, get, put};
use sheaf_tools::edit::{Edit, EditOptions, NewMode, NewOwner, edit};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files in the directory that is exchanged, and of the same names in `/etc`.
const FILES: usize = 200;

/// Changes of one kind while the directory is exchanged.
const ROUNDS: usize = 10;

fn files(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let dir = dir.to_owned();
    (0..FILES).map(move |number| dir.join(format!("f{number}")))
}

/// A host whose `/home/bob/d` is exchanged for a link to `/etc`, and back, until this is dropped.
struct Swapped {
    cluster: Cluster,
    _exchange: Exchange,
}

/// Two names that are exchanged as fast as can be, while both are there, until this is dropped.
struct Exchange {
    is_over: std::sync::Arc<AtomicBool>,
    swapper: Option<std::thread::JoinHandle<()>>,
}

impl Exchange {
    fn of(one: PathBuf, other: PathBuf) -> Self {
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        let swapper = std::thread::spawn({
            let is_over = std::sync::Arc::clone(&is_over);
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
                }
            }
        });
        Self { is_over, swapper: Some(swapper) }
    }
}

impl Swapped {
    fn new() -> Self {
        let cluster = Cluster::new(1);
        let (etc, home) = (cluster.path(0, "etc"), cluster.path(0, "home/bob"));
        for dir in [&etc, &home.join("d")] {
            std::fs::create_dir_all(dir).unwrap();
            files(dir).for_each(|file| std::fs::write(&file, "system").unwrap());
            for file in files(dir).chain([dir.clone()]) {
                std::fs::set_permissions(file, PermissionsExt::from_mode(0o700)).unwrap();
            }
        }
        symlink("/etc", home.join("e")).unwrap();
        Self { cluster, _exchange: Exchange::of(home.join("d"), home.join("e")) }
    }

    /// What is in `/etc`, with the mode and the owner of each file.
    fn etc(&self) -> Vec<(PathBuf, u32, u32, u64)> {
        let dir = self.cluster.path(0, "etc");
        let entries = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = entries
            .chain([dir])
            .map(|path| {
                let metadata = path.symlink_metadata().unwrap();
                (path, metadata.mode(), metadata.uid(), metadata.size())
            })
            .collect();
        found.sort();
        found.iter_mut().filter(|found| found.1 & 0o040_000 != 0).for_each(|dir| dir.3 = 0);
        found
    }

    /// Nothing outside of bob's directory is another, however often `act` is done.
    fn spares_etc(&self, act: impl AsyncFn(&Client, Target)) {
        let before = self.etc();
        run(async {
            let client = self.cluster.client("flat");
            for _ in 0..ROUNDS {
                act(&client, self.cluster.target("/home/bob")).await;
            }
        });
        assert_eq!(self.etc(), before);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.swapper.take().unwrap().join().unwrap();
    }
}

async fn apply(client: &Client, target: Target, change: &Edit) {
    // A file may have gone elsewhere meanwhile, which the outcome says.
    edit(client, &[target], change, EditOptions::default(), &mut |_| Ok(())).await.unwrap();
}

#[test]
fn recursive_chmod_does_not_follow_swapped_links() {
    let mode = NewMode::Change(ModeChange::parse("a+rwX", 0).unwrap());
    let chmod = Edit::Chmod { mode, recursive: true, preserve_root: true };
    Swapped::new().spares_etc(async |client, target| apply(client, target, &chmod).await);
}

#[test]
fn recursive_chown_does_not_follow_swapped_links() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("it takes root's rights to give files away");
    }
    let owner = NewOwner::Named("65534".to_owned());
    let chown =
        Edit::Chown { owner, from: None, recursive: true, follow: true, preserve_root: true };
    Swapped::new().spares_etc(async |client, target| apply(client, target, &chown).await);
}

/// Neither a file nor the mode of a directory comes through the link.
#[test]
fn recursive_copy_does_not_follow_swapped_links() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("bob");
    std::fs::create_dir_all(from.join("d/sub")).unwrap();
    for dir in [from.join("d"), from.join("d/sub")] {
        files(&dir).for_each(|file| std::fs::write(file, "copied").unwrap());
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::remove_file(from.join("d/f0")).unwrap();
    let swapped = Swapped::new();
    for options in
        [CopyOptions::archive(), CopyOptions { in_place: true, ..CopyOptions::archive() }]
    {
        let options = CopyOptions { sync: false, ..options };
        swapped.spares_etc(async |client, mut target| {
            target.path = "/home".to_owned();
            let sources = vec![Source::Path(from.clone())];
            put(client, sources, &target, &options, &mut |_| {}).await.unwrap();
        });
    }
}

/// The same of what comes from hosts: all directories are made first, and files are written in them later.
#[test]
fn copy_from_hosts_does_not_follow_swapped_links() {
    let cluster = Cluster::new(1);
    std::fs::create_dir_all(cluster.path(0, "t/d/sub")).unwrap();
    for dir in [cluster.path(0, "t/d"), cluster.path(0, "t/d/sub")] {
        files(&dir).enumerate().for_each(|(number, file)| {
            std::fs::write(file, format!("copied {number}")).unwrap();
        });
    }
    let here = tempfile::tempdir().unwrap();
    let (to, etc) = (here.path().join("n1/t"), here.path().join("n1/etc"));
    std::fs::create_dir_all(&to).unwrap();
    std::fs::create_dir_all(etc.join("sub")).unwrap();
    let system = || files(&etc).chain(files(&etc.join("sub")));
    system().for_each(|file| std::fs::write(file, "system").unwrap());
    symlink("../etc", to.join("e")).unwrap();
    std::fs::create_dir(to.join("d")).unwrap();
    let exchange = Exchange::of(to.join("d"), to.join("e"));
    for options in [
        CopyOptions::archive(),
        CopyOptions { in_place: true, ..CopyOptions::archive() },
        CopyOptions { recursive: true, ..CopyOptions::default() },
    ] {
        let options = CopyOptions { sync: false, ..options };
        run(async {
            let client = cluster.client("flat");
            for _ in 0..ROUNDS {
                let targets = [cluster.target("/t")];
                get(&client, &targets, here.path(), &options, &mut |_| {}).await.unwrap();
            }
        });
    }
    drop(exchange);
    assert_eq!(system().filter(|file| std::fs::read(file).unwrap() != b"system").count(), 0);
    assert_eq!(std::fs::read_dir(etc).unwrap().count(), FILES + 1);
}

/// What comes from a host has the content, the mode and the owner of one file.
#[test]
fn content_of_one_file_does_not_come_with_the_mode_of_another() {
    let cluster = Cluster::new(1);
    let secret = cluster.path(0, "secret");
    std::fs::write(&secret, "secret").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::create_dir(cluster.path(0, "u")).unwrap();
    for (name, mode) in [("f", 0o666), ("own", 0o600)] {
        let file = cluster.path(0, "u").join(name);
        std::fs::write(&file, if name == "f" { "public" } else { "secret" }).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    }
    symlink("/secret", cluster.path(0, "u/s")).unwrap();
    let options = CopyOptions { preserve: true, sync: false, ..CopyOptions::default() };
    for (other, path) in [("s", "/u/f"), ("own", "/u/f"), ("own", "/u/f*")] {
        let exchange = Exchange::of(cluster.path(0, "u/f"), cluster.path(0, "u").join(other));
        run(async {
            let client = cluster.client("flat");
            for _ in 0..150 {
                let here = tempfile::tempdir().unwrap();
                let targets = [cluster.target(path)];
                get(&client, &targets, here.path(), &options, &mut |_| {}).await.unwrap();
                let file = here.path().join("n1/f");
                if file.exists() && std::fs::read(&file).unwrap() == b"secret" {
                    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600, "{other}");
                }
            }
        });
        drop(exchange);
        // As it was, whoever had the last word.
        let read = std::fs::read(cluster.path(0, "u/f"));
        let is_public = read.is_ok_and(|content| content == b"public");
        if !is_public {
            let (one, other) = (cluster.path(0, "u/f"), cluster.path(0, "u").join(other));
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        }
    }
}

/// What is named is exchanged itself, between a look at it and the walk through it.
#[test]
fn named_directory_that_is_swapped_leads_to_no_other() {
    let here = tempfile::tempdir().unwrap();
    let (named, secret) = (here.path().join("t"), here.path().join("secret"));
    for (dir, file) in [(&named, "own"), (&secret, "secret")] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join(file), "content").unwrap();
    }
    let link = here.path().join("l");
    symlink(&secret, &link).unwrap();
    let exchange = Exchange::of(named.clone(), link);
    let cluster = Cluster::new(1);
    let options = CopyOptions { recursive: true, sync: false, ..CopyOptions::default() };
    run(async {
        let client = cluster.client("flat");
        for round in 0..300 {
            let to = cluster.target(&format!("/to{round}"));
            let sources = vec![Source::Path(named.clone())];
            put(&client, sources, &to, &options, &mut |_| {}).await.unwrap();
        }
    });
    drop(exchange);
    let taken = |round: &usize| {
        let to = cluster.path(0, &format!("/to{round}"));
        // A link is copied as one.
        !to.is_symlink() && to.join("secret").exists()
    };
    assert_eq!((0..300).filter(taken).count(), 0);
}

/// What root copies into a user's tree does not go through that user's links to what is not that user's.
#[test]
fn recursive_copy_does_not_write_through_links_of_others() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root can make links of other users");
    }
    let here = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(here.path().join("t/1")).unwrap();
    std::fs::write(here.path().join("t/1/f"), "copied").unwrap();
    let cluster = Cluster::new(1);
    let at = |name: &str| cluster.path(0, name);
    std::fs::create_dir_all(at("/u/t/1")).unwrap();
    std::fs::write(at("/secret"), "kept").unwrap();
    symlink("../../../secret", at("/u/t/1/f")).unwrap();
    std::os::unix::fs::lchown(at("/u/t/1/f"), Some(4711), None).unwrap();
    let copy = |in_place| {
        let owner = Some("4711:4711".to_owned());
        let options = CopyOptions { hard_links: false, ..CopyOptions::archive() };
        let options = CopyOptions { in_place, chown: owner, sync: false, ..options };
        run(async {
            let client = cluster.client("flat");
            let sources = vec![Source::Path(here.path().join("t"))];
            let done = put(&client, sources, &cluster.target("/u"), &options, &mut |_| {}).await;
            done.unwrap().outcome.is_ok()
        })
    };
    for in_place in [false, true] {
        assert!(!copy(in_place));
        // Nor does a copy of one file into such a directory.
        run(async {
            let client = cluster.client("flat");
            let sources = vec![Source::Path(here.path().join("t/1/f"))];
            let options = CopyOptions { in_place, sync: false, ..CopyOptions::default() };
            let to = cluster.target("/u/t/1");
            let done = put(&client, sources, &to, &options, &mut |_| {}).await;
            assert!(!done.unwrap().outcome.is_ok());
        });
        assert_eq!(std::fs::read(at("/secret")).unwrap(), b"kept");
        assert_eq!(at("/secret").metadata().unwrap().uid(), 0);
    }
    // What its maker could write to itself is written to, as by cp.
    std::os::unix::fs::chown(at("/secret"), Some(4711), None).unwrap();
    assert!(copy(false));
    assert_eq!(std::fs::read(at("/secret")).unwrap(), b"copied");
}

/// A directory deep in a copy is closed while files beneath are written, and opened again.
#[test]
fn copy_fills_directories_deeper_than_it_keeps_open() {
    let here = tempfile::tempdir().unwrap();
    let deep: PathBuf = std::iter::repeat_n("d", 100).collect();
    std::fs::create_dir_all(here.path().join(&deep)).unwrap();
    for above in deep.ancestors() {
        std::fs::write(here.path().join(above).join("a"), "early").unwrap();
        std::fs::write(here.path().join(above).join("z"), "late").unwrap();
    }
    let cluster = Cluster::new(2);
    let options =
        CopyOptions { recursive: true, preserve: true, sync: false, ..Default::default() };
    run(async {
        let client = cluster.client("flat");
        let sources = vec![Source::Path(here.path().to_owned())];
        let done = put(&client, sources, &cluster.target("/to"), &options, &mut |_| {}).await;
        assert!(done.unwrap().outcome.is_ok());
    });
    for above in deep.ancestors() {
        let to = Path::new("to").join(above);
        let read = |name: &str| cluster.read(1, to.join(name).to_str().unwrap());
        assert_eq!((read("a"), read("z")), (b"early".to_vec(), b"late".to_vec()), "{above:?}");
        let mtime = |path: PathBuf| path.metadata().unwrap().mtime_nsec();
        assert_eq!(
            mtime(cluster.path(1, to.to_str().unwrap())),
            mtime(here.path().join(above)),
            "{above:?}"
        );
    }
}
