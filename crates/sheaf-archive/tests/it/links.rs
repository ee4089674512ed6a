//! Files with several names: members of one pack where all names are in one directory.
use crate::round::{Place, path, settle};
use sheaf_archive::{
    ArchivePath, FetchOptions, FileName, SaveOptions, UsageSum, VerifyOptions, remove, verify,
};
use std::fs;
use std::os::unix::fs::MetadataExt;

fn linked() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/a"), "of three names").unwrap();
    fs::write(place.path("tree/b"), "of one name").unwrap();
    for name in ["c", "d"] {
        fs::hard_link(place.path("tree/a"), place.path("tree").join(name)).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    place
}

/// Names of the directory that are in no pack.
fn objects(place: &Place) -> Vec<String> {
    let rows = place.archive.catalog().rows_of(&path("/tree")).unwrap();
    let name = |name: FileName| String::from_utf8(name.into()).unwrap();
    rows.objects.into_iter().map(|object| name(object.attributes.name)).collect()
}

/// The inodes of names that were fetched.
fn fetched(place: &Place, to: &str, names: &[&str]) -> Vec<u64> {
    let report = verify(&place.archive, &ArchivePath::ROOT, VerifyOptions::default(), &|error| {
        panic!("{error}")
    });
    assert_eq!(report.unwrap().damaged, 0);
    let (report, told) = place.fetch("/tree", to, FetchOptions::default());
    assert_eq!(report.failed, 0, "{told:?}");
    let at = place.path(to).join("tree");
    assert_eq!(fs::read_dir(&at).unwrap().count(), names.len());
    names.iter().map(|name| fs::metadata(at.join(name)).unwrap().ino()).collect()
}

fn usage(place: &Place) -> (u64, u64) {
    let mut sum = UsageSum::new(&place.archive);
    let each = &mut |_: &ArchivePath, _| Ok::<(), sheaf_archive::ArchiveError>(());
    let usage = sum.add(&path("/tree"), each).unwrap();
    (usage.files, usage.bytes)
}

#[test]
fn names_of_one_directory_are_members_of_one_pack() {
    let place = linked();
    assert!(objects(&place).is_empty());
    let rows = place.archive.catalog().rows_of(&path("/tree")).unwrap();
    let [pack] = &rows.packs[..] else { panic!("{:?}", rows.packs) };
    assert_eq!((pack.members, pack.files, pack.content_bytes), (4, 2, 14 + 11));
    assert_eq!(usage(&place), (2, 14 + 11));
    let ino = fetched(&place, "back", &["a", "c", "d", "b"]);
    assert!(ino[0] == ino[1] && ino[0] == ino[2] && ino[0] != ino[3], "{ino:?}");
    // Once more, nothing is to be done, in either direction.
    let (again, _) = place.save("tree", SaveOptions::default());
    assert_eq!((again.stored, again.unchanged), (0, 4));
    let (again, _) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((again.fetched, again.unchanged), (0, 4));
    // A name that is a file of its own there is made another name of the first.
    let other = place.path("back/tree/c");
    let time = fs::metadata(&other).unwrap().modified().unwrap();
    fs::remove_file(&other).unwrap();
    fs::write(&other, "of three names").unwrap();
    fs::File::open(&other).unwrap().set_modified(time).unwrap();
    let (again, _) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((again.fetched, again.unchanged), (1, 3));
}

#[test]
fn other_names_stay_when_the_first_is_removed() {
    let place = linked();
    remove(&place.archive, &path("/tree/a")).unwrap();
    assert_eq!(usage(&place), (2, 14 + 11));
    let ino = fetched(&place, "back", &["c", "d", "b"]);
    assert!(ino[0] == ino[1] && ino[0] != ino[2], "{ino:?}");
    assert_eq!(fs::read_to_string(place.path("back/tree/d")).unwrap(), "of three names");
    // One of them alone.
    place.fetch("/tree/d", "alone", FetchOptions::default());
    assert_eq!(fs::read_to_string(place.path("alone/d")).unwrap(), "of three names");
    remove(&place.archive, &path("/tree/c")).unwrap();
    assert_eq!(usage(&place), (2, 14 + 11));
    remove(&place.archive, &path("/tree/d")).unwrap();
    assert_eq!(usage(&place), (1, 11));
    fetched(&place, "last", &["b"]);
}

#[test]
fn first_name_that_is_another_file_by_now_takes_no_name_with_it() {
    let place = linked();
    fs::remove_file(place.path("tree/a")).unwrap();
    fs::write(place.path("tree/a"), "new").unwrap();
    // The other names are gone from the source, and stay in the archive.
    fs::remove_file(place.path("tree/c")).unwrap();
    fs::remove_file(place.path("tree/d")).unwrap();
    settle();
    let (again, _) = place.save("tree", SaveOptions::default());
    assert_eq!((again.stored, again.unchanged), (1, 1));
    let ino = fetched(&place, "back", &["c", "d", "a", "b"]);
    assert!(ino[0] == ino[1] && ino[0] != ino[2], "{ino:?}");
    let read = |name: &str| fs::read_to_string(place.path("back/tree").join(name)).unwrap();
    assert_eq!((&read("a")[..], &read("d")[..]), ("new", "of three names"));
}

#[test]
fn name_more_has_all_names_stored_together() {
    let place = linked();
    fs::hard_link(place.path("tree/a"), place.path("tree/0")).unwrap();
    settle();
    let (again, _) = place.save("tree", SaveOptions::default());
    assert_eq!((again.stored, again.unchanged), (4, 1));
    assert!(objects(&place).is_empty());
    let ino = fetched(&place, "back", &["0", "a", "c", "d", "b"]);
    assert!(ino[..4].iter().all(|of| *of == ino[0]) && ino[0] != ino[4], "{ino:?}");
    // With one elsewhere they are objects, as it cannot be a member.
    fs::create_dir(place.path("tree/e")).unwrap();
    fs::hard_link(place.path("tree/a"), place.path("tree/e/f")).unwrap();
    settle();
    place.save("tree", SaveOptions::default());
    assert_eq!(objects(&place), ["0", "a", "c", "d"]);
    let ino = fetched(&place, "once more", &["0", "a", "c", "d", "b", "e"]);
    assert!(ino[..4].iter().all(|of| *of == ino[0]), "{ino:?}");
}

/// Packs end behind the last name of a file, and not for ever: names far from each other are objects.
#[test]
fn names_are_one_file_however_small_packs_are() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..60 {
        let file = place.path("tree").join(format!("{number:02}"));
        fs::write(&file, vec![b'x'; 700]).unwrap();
        let other = (number * 7) % 60;
        fs::hard_link(&file, place.path("tree").join(format!("{other:02} of {number:02}")))
            .unwrap();
    }
    settle();
    for pack_bytes in [1 << 10, 4 << 10, 16 << 10, 64 << 20] {
        let place_of = Place::new();
        let options = SaveOptions { pack_bytes, ..SaveOptions::default() };
        let (saved, told) = place_of.save(place.path("tree").to_str().unwrap(), options);
        assert_eq!((saved.failed, saved.stored), (0, 120), "{told:?}");
        let (report, told) = place_of.fetch("/tree", "back", FetchOptions::default());
        assert_eq!(report.failed, 0, "{told:?}");
        crate::trees::assert_same(&place.path("tree"), &place_of.path("back/tree"));
        let rows = place_of.archive.catalog().rows_of(&path("/tree")).unwrap();
        assert_eq!(rows.objects.is_empty(), pack_bytes == 64 << 20);
        let longest = rows.packs.iter().map(|pack| pack.content_bytes).max();
        assert!(longest.unwrap_or(0) <= 2 * pack_bytes, "{longest:?} of {pack_bytes}");
    }
}

/// Names of a file come back as names of one file also where some of them were stored at another time.
#[test]
fn names_that_were_parted_are_names_of_one_file_again() {
    let linked = |place: &Place| {
        for (directory, content) in [("a", "in several"), ("b", ""), ("c", "")] {
            fs::create_dir_all(place.path("tree").join(directory)).unwrap();
            fs::write(place.path("tree").join(directory).join("own"), content).unwrap();
        }
        fs::write(place.path("tree/a/h"), "of four names").unwrap();
        for name in ["a/i", "b/h", "c/h"] {
            fs::hard_link(place.path("tree/a/h"), place.path("tree").join(name)).unwrap();
        }
        // All names of this one are in one directory.
        fs::write(place.path("tree/b/one"), "of two names").unwrap();
        fs::hard_link(place.path("tree/b/one"), place.path("tree/b/two")).unwrap();
        settle();
    };
    let assert_linked = |place: &Place, to: &str| {
        let (fetched, told) = place.fetch("/tree", to, FetchOptions::default());
        assert_eq!(fetched.failed, 0, "{told:?}");
        crate::trees::assert_same(&place.path("tree"), &place.path(to).join("tree"));
        let ino = |name: &str| fs::metadata(place.path(to).join("tree").join(name)).unwrap().ino();
        assert!(["a/i", "b/h", "c/h"].iter().all(|name| ino(name) == ino("a/h")));
        assert_eq!(ino("b/one"), ino("b/two"));
    };
    // Each name alone is stored later than the others.
    let names = ["a/h", "a/i", "b/h", "c/h", "b/one", "b/two"];
    for (lost, packs) in names.iter().flat_map(|lost| [(lost, true), (lost, false)]) {
        let place = Place::new();
        linked(&place);
        let member_bytes_max = if packs { 1 << 20 } else { 0 };
        let options = SaveOptions { member_bytes_max, ..SaveOptions::default() };
        place.save("tree", options);
        remove(&place.archive, &path(&format!("/tree/{lost}"))).unwrap();
        place.save("tree", options);
        assert_linked(&place, "back");
        let (again, _) = place.save("tree", options);
        assert_eq!((again.stored, again.unchanged), (0, 9), "{lost} {packs}");
    }
    // Directories that were stored by themselves, one after the other.
    let place = Place::new();
    linked(&place);
    for directory in ["a", "b", "c"] {
        let above = place.path("tree");
        let (sources, to) = ([above.join(directory)], path("/tree"));
        let fail = |event: sheaf_archive::ArchiveEvent| panic!("{event:?}");
        sheaf_archive::save(&place.archive, &sources, &to, SaveOptions::default(), &fail).unwrap();
    }
    place.save("tree", SaveOptions::default());
    assert_linked(&place, "back");
    let (again, _) = place.save("tree", SaveOptions::default());
    assert_eq!((again.stored, again.unchanged), (0, 9));
}

/// Names of two files are exchanged, and a name goes to another directory: `--checksum` looks at which names are one
/// file, whose content, sizes and times say nothing of it. `packs`: whether names are members of packs.
fn relinked(packs: bool) {
    let place = Place::new();
    for dir in ["tree", "tree/n"] {
        fs::create_dir(place.path(dir)).unwrap();
    }
    let (at, time) = (|name: &str| place.path("tree").join(name), std::time::SystemTime::now());
    for (one, other) in [("a", "b"), ("x", "y"), ("k", "l")] {
        fs::write(at(one), "equal").unwrap();
        fs::File::open(at(one)).unwrap().set_modified(time).unwrap();
        fs::hard_link(at(one), at(other)).unwrap();
    }
    let options = SaveOptions { checksum: true, ..SaveOptions::default() };
    let options = match packs {
        true => options,
        false => SaveOptions { member_bytes_max: 0, ..options },
    };
    settle();
    place.save("tree", options);
    // From a = b and x = y to a = y and x = b.
    for (name, now) in [("y", "a"), ("b", "x")] {
        fs::remove_file(at(name)).unwrap();
        fs::hard_link(at(now), at(name)).unwrap();
    }
    fs::rename(at("l"), at("n/l")).unwrap();
    settle();
    place.save("tree", options);
    let (report, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!(report.failed, 0, "{told:?}");
    let ino = |name: &str| fs::metadata(place.path("back/tree").join(name)).unwrap().ino();
    let all = ["a", "b", "x", "y", "k", "n/l"].map(ino);
    let [a, b, x, y, k, l] = all;
    assert!(a == y && x == b && k == l && a != x && a != k && x != k, "{packs}: {all:?}");
    let (again, _) = place.save("tree", options);
    assert_eq!((again.stored, again.unchanged), (0, 6));
}

#[test]
fn names_that_are_linked_otherwise_are_stored_again() {
    relinked(true);
    relinked(false);
}
