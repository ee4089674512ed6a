//! What is archived as one tar: taken apart, it is what `get` makes.
use crate::round::{Place, path, settle};
use crate::trees::{assert_same, make_everything, seen};
use sheaf_archive::{
    ArchiveEvent, ContentError, FetchNames, FetchOptions, FetchReport, FetchTar, SaveExclude,
    SaveOptions, fetch_watched,
};
use sheaf_testing::program::have;
use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

fn tar(
    place: &Place,
    from: &[&str],
    names: FetchNames,
    contents: bool,
    out: &mut dyn Write,
) -> (FetchReport, Vec<String>) {
    let told = RefCell::new(Vec::new());
    let tell = |event: ArchiveEvent| told.borrow_mut().push(event.to_string());
    let limits = FetchOptions::default().limits;
    let mut tar = FetchTar::new(out, names, &limits, &tell);
    for from in from {
        tar.add(&place.archive, &path(from), contents).unwrap();
    }
    let report = tar.finish().unwrap();
    (report, told.into_inner())
}

fn untar(program: &str, tar: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    let options: &[&str] = match program {
        "tar" => &["--acls", "--xattrs", "--xattrs-include=*", "--numeric-owner"],
        _ => &["--acls", "--xattrs", "-P"],
    };
    let done = Command::new(program)
        .args(options)
        .args(["-xpf"])
        .arg(tar)
        .arg("-C")
        .arg(to)
        .output()
        .unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A tree of everything from packs of each kind and from objects, with all that a tar has.
#[test]
fn untarred_everything_is_what_get_makes() {
    if !have("tar") {
        return;
    }
    let default = SaveOptions::default();
    let all = [
        SaveOptions { zstd: Some(3), ..default },
        SaveOptions { member_bytes_max: 0, ..default },
        SaveOptions { pack_bytes: 4096, ..default },
    ];
    for (number, options) in all.into_iter().enumerate() {
        let place = Place::new();
        make_everything(&place.path("tree"));
        // GNU tar makes no path that is longer than the system takes.
        let long = place.path("tree").join("x".repeat(250));
        assert!(Command::new("rm").arg("-r").arg(long).status().unwrap().success());
        settle();
        place.save("tree", options);
        let (got, _) = place.fetch("/tree", "got", FetchOptions::default());
        let mut file = fs::File::create(place.path("out.tar")).unwrap();
        let (report, told) = tar(&place, &["/tree"], FetchNames::default(), false, &mut file);
        assert_eq!((report, &told[..]), (got, &[][..]), "{number}");
        untar("tar", &place.path("out.tar"), &place.path("untarred"));
        assert_same(&place.path("got/tree"), &place.path("untarred/tree"));
        // What bsdtar does not read is said in docs/format.md: that it reads names and contents is seen here.
        if have("bsdtar") {
            let listed = Command::new("bsdtar").arg("-tf").arg(place.path("out.tar")).output();
            let listed = listed.unwrap();
            assert!(listed.status.success(), "{listed:?}");
        }
    }
}

#[test]
fn links_across_directories_and_long_paths_are_in_the_tar() {
    if !have("tar") {
        return;
    }
    let place = Place::new();
    let deep = place.path("tree").join("long-name-".repeat(12)).join("another-".repeat(20));
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(place.path("tree/other")).unwrap();
    fs::write(deep.join("file"), "content").unwrap();
    symlink("to/".repeat(90), deep.join("symlink")).unwrap();
    fs::hard_link(deep.join("file"), place.path("tree/other/name")).unwrap();
    fs::hard_link(deep.join("file"), deep.join("second")).unwrap();
    let holes = fs::File::create(place.path("tree/holes")).unwrap();
    holes.write_all_at(b"end", 9 << 30).unwrap();
    settle();
    place.save("tree", SaveOptions::default());
    let mut file = fs::File::create(place.path("out.tar")).unwrap();
    let (report, told) = tar(&place, &["/tree"], FetchNames::default(), true, &mut file);
    assert_eq!((report.failed, &told[..]), (0, &[][..]));
    assert!(fs::metadata(place.path("out.tar")).unwrap().len() < 1 << 20);
    untar("tar", &place.path("out.tar"), &place.path("untarred"));
    let (tree, untarred) = (seen(&place.path("tree")), seen(&place.path("untarred")));
    for (path, is) in tree.iter().filter(|(path, _)| path.components().count() > 0) {
        assert_eq!(Some(is), untarred.get(path), "{path:?}");
    }
    if have("bsdtar") {
        untar("bsdtar", &place.path("out.tar"), &place.path("theirs"));
        let theirs = seen(&place.path("theirs"));
        for (path, is) in tree.iter().filter(|(path, _)| path.components().count() > 0) {
            assert_eq!(Some(is), theirs.get(path), "{path:?}");
        }
    }
}

/// With and without what is left out, the tar has the names that `get` makes.
#[test]
fn names_in_the_tar_are_those_that_get_makes() {
    if !have("tar") {
        return;
    }
    let place = Place::new();
    for name in ["a/b/x.c", "a/e/x.o", "doc/deep/y.o", "z.c", "zz/only.o"] {
        fs::create_dir_all(place.path("tree").join(name).parent().unwrap()).unwrap();
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    place.save("tree", SaveOptions::default());
    for (number, (include, exclude)) in
        [(&["*.c"][..], &[][..]), (&["doc"], &["deep"]), (&[], &["*.o"]), (&["e", "zz"], &[])]
            .into_iter()
            .enumerate()
    {
        let of = |globs| SaveExclude::new(globs).unwrap();
        let names = FetchNames { include: of(include), exclude: of(exclude) };
        let to = place.path(&format!("got-{number}"));
        let options = FetchOptions::default();
        let fail = |event| panic!("{event:?}");
        let from = path("/tree");
        let got =
            fetch_watched(&place.archive, &from, &to, options, &names, &fail, &|_, _| ()).unwrap();
        let mut file = fs::File::create(place.path("out.tar")).unwrap();
        let (report, _) = tar(&place, &["/tree"], names, false, &mut file);
        assert_eq!(report, got, "{include:?} {exclude:?}");
        let untarred = place.path(&format!("untarred-{number}"));
        untar("tar", &place.path("out.tar"), &untarred);
        let keys = |at: &Path| seen(at).into_keys().collect::<Vec<_>>();
        assert_eq!(keys(&untarred), keys(&to), "{include:?} {exclude:?}");
    }
}

#[test]
fn damaged_contents_are_told_and_the_tar_goes_on() {
    if !have("tar") {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    let long: Vec<u8> = (0..5_000_000u32).map(|at| (at / 1000) as u8).collect();
    fs::write(place.path("tree/long"), &long).unwrap();
    fs::write(place.path("tree/long2"), &long).unwrap();
    fs::write(place.path("tree/short"), "short").unwrap();
    place.save("tree", SaveOptions::default());
    let rows = place.archive.catalog().rows_of(&path("/tree")).unwrap();
    let object = place.archive.store();
    let mut objects = Vec::new();
    object
        .list(&["data"], &mut |found| {
            objects.push(place.path("store/objects").join(found.key.as_str()));
            Ok(())
        })
        .unwrap();
    assert_eq!((objects.len(), rows.objects.len()), (2, 2));
    // One ends early, one is gone.
    for object in &objects {
        fs::set_permissions(object, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    fs::File::options().write(true).open(&objects[0]).unwrap().set_len(3_000_000).unwrap();
    fs::remove_file(&objects[1]).unwrap();
    let mut file = fs::File::create(place.path("out.tar")).unwrap();
    let (report, told) = tar(&place, &["/tree"], FetchNames::default(), false, &mut file);
    assert_eq!((report.failed, report.fetched), (2, 1), "{told:?}");
    assert!(told.iter().any(|told| told.contains("what the tar has of it is wrong")), "{told:?}");
    untar("tar", &place.path("out.tar"), &place.path("untarred"));
    assert_eq!(fs::read(place.path("untarred/tree/short")).unwrap(), b"short");
    let names = fs::read_dir(place.path("untarred/tree")).unwrap().count();
    assert_eq!(names, 2);
}

/// An output that takes so many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn full_output_and_missing_names_end_the_tar() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/a"), "a").unwrap();
    place.save("tree", SaveOptions::default());
    let fail = |event: ArchiveEvent| panic!("{event:?}");
    let limits = FetchOptions::default().limits;
    let mut out = Full(700);
    let mut tar = FetchTar::new(&mut out, FetchNames::default(), &limits, &fail);
    let error = tar.add(&place.archive, &path("/tree"), false).unwrap_err();
    assert!(matches!(error, ContentError::Out(_)), "{error}");
    let mut out = Full(1 << 20);
    let mut tar = FetchTar::new(&mut out, FetchNames::default(), &limits, &fail);
    for missing in ["/nothing", "/tree/b", "/tree/a/b"] {
        let error = tar.add(&place.archive, &path(missing), false).unwrap_err();
        assert!(error.to_string().ends_with("is not in the archive"), "{error}");
    }
}
