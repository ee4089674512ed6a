//! What is left out of what is stored.
use crate::round::{Place, settle};
use sheaf_archive::{
    ArchiveError, ArchiveEvent, ArchivePath, FetchNames, FetchOptions, SaveExclude, SaveOptions,
    SaveReport, TreeWalk, TreeWalkOptions, fetch_watched, save_watched,
};
use sheaf_testing::program::have;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

fn save_without(
    place: &Place,
    sources: &[PathBuf],
    globs: &[&str],
    options: SaveOptions,
) -> Result<SaveReport, ArchiveError> {
    let exclude = SaveExclude::new(globs).unwrap();
    let fail = |event| panic!("{event:?}");
    let to = ArchivePath::ROOT;
    save_watched(&place.archive, sources, &to, options, &exclude, &fail, &|_, _| ())
}

/// Paths of a tree, relative to what it is in.
fn names(above: &Path) -> BTreeSet<PathBuf> {
    let walk = TreeWalk::new(above, TreeWalkOptions::default());
    let names = walk.map(|entry| entry.path.strip_prefix(above).unwrap().to_owned());
    names.filter(|name| name.components().count() > 0).collect()
}

fn make_tree(at: &Path) {
    for name in ["a.o", "b.c", "d/a.o", "d/cache/x", "d/e/cache", "d/e/f/x.o", "o/d/e/x", ".git/y"]
    {
        let file = at.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, name).unwrap();
    }
    fs::hard_link(at.join("a.o"), at.join("b.o.kept")).unwrap();
    symlink("d", at.join("link")).unwrap();
    fs::create_dir(at.join("d/empty.o")).unwrap();
}

#[test]
fn exclude_patterns_leave_out_the_same_files_as_tar() {
    if !have("tar") {
        return;
    }
    let sets: [&[&str]; 11] = [
        &[],
        &["*.o"],
        &["cache"],
        &["cache", "*.c", ".git"],
        &["d/e"],
        &["tree/d/e"],
        &["e/f/*.o"],
        &["d/*.o"],
        &["tree/*/e"],
        &["[ab].[co]"],
        &["link", "?"],
    ];
    for globs in sets {
        let place = Place::new();
        make_tree(&place.path("tree"));
        let mut tar = Command::new("tar");
        tar.args(globs.iter().map(|glob| format!("--exclude={glob}")));
        tar.args(["-cf", "out.tar", "tree"]).current_dir(place.directory.path());
        assert!(tar.status().unwrap().success());
        fs::create_dir(place.path("theirs")).unwrap();
        let mut tar = Command::new("tar");
        tar.args(["-xf", "../out.tar"]).current_dir(place.path("theirs"));
        assert!(tar.status().unwrap().success());
        let options = SaveOptions::default();
        let report = save_without(&place, &[place.path("tree")], globs, options).unwrap();
        assert_eq!(report.failed, 0);
        fs::create_dir(place.path("ours")).unwrap();
        place.fetch("/tree", "ours", FetchOptions::default());
        let (ours, theirs) = (names(&place.path("ours")), names(&place.path("theirs")));
        assert_eq!(ours, theirs, "{globs:?}");
        assert_got_without(&place, globs, &theirs);
        let all = names(&place.path("tree")).len() + 1;
        assert_eq!(report.skipped > 0, ours.len() < all, "{globs:?}: {report:?}");
    }
}

/// What is fetched of all that is in a tree is what would have been stored of it.
fn assert_got_without(place: &Place, globs: &[&str], expected: &BTreeSet<PathBuf>) {
    let fail = |event| panic!("{event:?}");
    let exclude = SaveExclude::new(globs).unwrap();
    let exclude = FetchNames { exclude, ..FetchNames::default() };
    for member_bytes_max in [0, 1 << 20] {
        let to = ArchivePath::new(format!("{member_bytes_max}").as_bytes()).unwrap();
        let options = SaveOptions { member_bytes_max, ..SaveOptions::default() };
        let none = SaveExclude::default();
        let tree = [place.path("tree")];
        save_watched(&place.archive, &tree, &to, options, &none, &fail, &|_, _| ()).unwrap();
        let (from, to) = (to.join(b"tree"), place.path(&format!("got-{member_bytes_max}")));
        fs::create_dir(&to).unwrap();
        let count = Mutex::new(0);
        let counted = |event| match event {
            ArchiveEvent::Fetches { .. } => *count.lock().unwrap() += 1,
            event => panic!("{event:?}"),
        };
        let mut options = FetchOptions { dry_run: true, ..FetchOptions::default() };
        let would =
            fetch_watched(&place.archive, &from, &to, options, &exclude, &counted, &|_, _| ())
                .unwrap();
        assert_eq!(names(&to), BTreeSet::new());
        options.dry_run = false;
        let got = fetch_watched(&place.archive, &from, &to, options, &exclude, &fail, &|_, _| ())
            .unwrap();
        assert_eq!(&names(&to), expected, "{globs:?}");
        assert_eq!((got, *count.lock().unwrap()), (would, got.fetched), "{globs:?}");
    }
}

#[test]
fn excluded_files_stay_in_the_archive_and_are_counted() {
    let place = Place::new();
    let tree = place.path("tree");
    make_tree(&tree);
    settle();
    let sources = [tree.clone(), place.path("tree/b.c")];
    let options = SaveOptions::default();
    save_without(&place, &sources, &[], options).unwrap();
    fs::write(tree.join("d/a.o"), "another").unwrap();
    let whole = format!("{}/d/e/", tree.display());
    let report = save_without(&place, &sources, &["*.o", "b.c", &whole], options).unwrap();
    // Two files, an empty directory, one that was named by itself and in the tree, and one by its path.
    assert_eq!((report.skipped, report.stored, report.failed), (6, 0, 0), "{report:?}");
    place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!(names(&place.path("back/tree")), names(&tree));
    assert_eq!(fs::read(place.path("back/tree/d/a.o")).unwrap(), b"d/a.o");
    // Below its source, and only there.
    let report = save_without(&place, &sources, &["/d/e", "/e"], options).unwrap();
    assert_eq!((report.skipped, report.stored), (1, 1), "{report:?}");
}

#[test]
fn store_is_not_stored_in_itself() {
    let place = Place::new();
    let store = place.path("store");
    let found = fs::metadata(&store).unwrap();
    let options =
        SaveOptions { left_out: Some((found.dev(), found.ino())), ..SaveOptions::default() };
    fs::create_dir(store.join("within")).unwrap();
    fs::write(store.join("within/file"), "x").unwrap();
    symlink(&store, place.path("link")).unwrap();
    let within = ["store", "store/.", "store/within", "store/within/..", "link/.", "link/within"];
    for name in within.into_iter().chain(["store/within/file", "link/within/file"]) {
        let error = save_without(&place, &[place.path(name)], &[], options).unwrap_err();
        let said = format!("{}: is the store itself, or is in it", place.path(name).display());
        assert!(error.to_string().starts_with(&said), "{error}");
        // Nothing is made there, either.
        let root = place.archive.catalog().directory(&ArchivePath::ROOT).unwrap();
        assert!(root.is_none(), "{name}");
    }
    // A link to it is a link.
    assert_eq!(save_without(&place, &[place.path("link")], &[], options).unwrap().stored, 1);
}
