//! What is archived is listed as it was in the tree: each name once, in order.
use crate::round::{Place, path, settle};
use crate::trees::make_everything;
use sheaf_archive::{
    ArchiveError, ArchivePath, ArchiveWalk, ArchivedFile, FetchOptions, SaveOptions, TreeWalk,
    TreeWalkOptions,
};
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// All paths below the root, as a walk of the archive tells them.
fn walked(place: &Place) -> Vec<ArchivePath> {
    let walk = place.archive.walk(&path("/tree")).unwrap();
    walk.map(|found| found.unwrap().0).collect()
}

/// The same, read ahead; and directory by directory.
fn walked_ahead(place: &Place) -> [Vec<ArchivePath>; 2] {
    let by_names = place
        .archive
        .walk_ahead(&path("/tree"), |walk| walk.map(|found| found.unwrap().0).collect::<Vec<_>>());
    let mut by_directories = vec![path("/tree")];
    place
        .archive
        .list_all::<ArchiveError>(&path("/tree"), |directory, listing| {
            let names = listing?.map(|found| directory.join(&found.unwrap().0));
            by_directories.extend(names);
            Ok(())
        })
        .unwrap();
    [by_names.unwrap(), by_directories]
}

/// Those of the tree itself.
fn expected(place: &Place) -> Vec<ArchivePath> {
    let walk = TreeWalk::new(&place.path("tree"), TreeWalkOptions::default());
    let found = walk.map(|entry| {
        let below = entry.path.strip_prefix(place.directory.path()).unwrap();
        ArchivePath::new(below.as_os_str().as_bytes()).unwrap()
    });
    found.collect()
}

#[test]
fn walk_tells_what_one_of_the_tree_does_in_the_same_order() {
    for pack_bytes in [1, 8192, 64 << 20] {
        let place = Place::new();
        make_everything(&place.path("tree"));
        place.save("tree", SaveOptions { pack_bytes, ..SaveOptions::default() });
        assert_eq!(walked(&place), expected(&place), "{pack_bytes}");
        let [by_names, mut by_directories] = walked_ahead(&place);
        assert_eq!(by_names, expected(&place), "{pack_bytes}");
        by_directories.sort();
        assert_eq!(by_directories, expected(&place), "{pack_bytes}");
    }
}

#[test]
fn walk_ahead_with_skipped_directories_matches_plain_walk() {
    let place = Place::new();
    let mut random = 11u32;
    let mut next = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    // Names of files are before, between and behind those of directories.
    let mut directories = vec![place.path("tree")];
    for _ in 0..150 {
        let within = &directories[next(directories.len() as u32) as usize];
        let directory = within.join(format!("{:02}", next(40)));
        if fs::create_dir_all(&directory).is_ok() {
            directories.push(directory);
        }
    }
    for _ in 0..2000 {
        let within = &directories[next(directories.len() as u32) as usize];
        let name = within.join(format!("{:02}.f", next(40)));
        fs::write(name, vec![1; next(300) as usize]).unwrap();
    }
    place.save("tree", SaveOptions { pack_bytes: 600, ..SaveOptions::default() });
    assert_eq!(walked_ahead(&place)[0], expected(&place));
    for round in 0..20 {
        let skips = |number: usize| (number * 7 + round).is_multiple_of(5);
        let some = |walk: &mut ArchiveWalk<'_>| {
            let mut told = Vec::new();
            while let Some(found) = walk.next() {
                let (at, file) = found.unwrap();
                if matches!(file, ArchivedFile::Directory(_)) && skips(told.len()) {
                    walk.skip_directory();
                }
                told.push(at);
            }
            told
        };
        let ahead = place.archive.walk_ahead(&path("/tree"), some).unwrap();
        assert_eq!(ahead, some(&mut place.archive.walk(&path("/tree")).unwrap()), "{round}");
    }
    // Who leaves in the middle waits for nothing.
    let few = place.archive.walk_ahead(&path("/tree"), |walk| walk.take(5).count());
    assert_eq!(few.unwrap(), 5);
}

#[test]
fn each_name_is_told_once_when_files_are_stored_again_and_again() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    let options = SaveOptions { pack_bytes: 16 << 10, ..SaveOptions::default() };
    let mut random = 7u32;
    for round in 0..8 {
        for number in 0..60 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if round == 0 || random >> 29 == 0 {
                let large = random >> 27 & 3 == 0;
                let content = vec![round; if large { 2 << 20 } else { 700 }];
                fs::write(place.path("tree").join(format!("{number:02}")), content).unwrap();
            }
        }
        settle();
        place.save("tree", options);
        assert_eq!(walked(&place), expected(&place), "{round}");
        let to = format!("back-{round}");
        place.fetch("/tree", &to, FetchOptions::default());
        crate::trees::assert_same(&place.path("tree"), &place.path(&format!("{to}/tree")));
    }
}

#[test]
fn single_names_are_looked_up_and_directories_skipped() {
    let place = Place::new();
    make_everything(&place.path("tree"));
    place.save("tree", SaveOptions::default());
    let look = |name: &str| place.archive.look_up(&path(name)).unwrap();
    assert!(matches!(look("/tree/d"), Some(ArchivedFile::Directory(_))));
    let Some(ArchivedFile::Member { member, .. }) = look("/tree/d/text") else { panic!() };
    assert_eq!(member.size, 10);
    let Some(ArchivedFile::Object(object)) = look("/tree/d/large") else { panic!() };
    assert_eq!(object.size, 3 << 20);
    for name in ["/tree/d/nothing", "/other", "/tree/d/text/x"] {
        assert_eq!(look(name), None, "{name}");
    }
    let mut walk = place.archive.walk(&path("/tree")).unwrap();
    let mut told = Vec::new();
    while let Some(found) = walk.next() {
        let (at, _) = found.unwrap();
        if at == path("/tree/d") {
            walk.skip_directory();
        }
        told.push(at);
    }
    assert!(told.contains(&path("/tree/d")) && told.contains(&path("/tree/zero")));
    assert!(!told.contains(&path("/tree/d/text")));
    assert!(place.archive.walk(&path("/nothing")).is_err());
}

#[test]
fn pack_lost_with_its_index_is_told_and_the_rest_is_listed() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    fs::write(place.path("tree/large"), vec![1; 2 << 20]).unwrap();
    place.save("tree", SaveOptions { pack_bytes: 1, ..SaveOptions::default() });
    let rows = place.archive.catalog().rows_of(&path("/tree")).unwrap();
    let lost = rows.packs.iter().find(|pack| pack.first == b"b").unwrap().id;
    let digits: String = lost.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let index = format!("store/objects/packs/{}/{digits}.idx.0", &digits[..2]);
    fs::remove_file(place.path(&index)).unwrap();
    // Alone it is taken from the pack.
    assert_eq!(place.archive.list(&path("/tree")).unwrap().flatten().count(), 4);
    fs::remove_file(place.path(&index).with_extension("").with_extension("tar")).unwrap();
    let told: Vec<_> = place.archive.list(&path("/tree")).unwrap().collect();
    let names: Vec<_> = told.iter().flatten().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [&b"a"[..], b"c", b"large"]);
    let errors: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).collect();
    assert!(matches!(&errors[..], [error] if error.to_string().contains(&digits)), "{errors:?}");
    let ahead = place.archive.walk_ahead(&path("/tree"), |walk| {
        walk.map(|found| found.map(|(at, _)| at)).collect::<Vec<_>>()
    });
    let (found, errors): (Vec<_>, Vec<_>) = ahead.unwrap().into_iter().partition(Result::is_ok);
    assert_eq!(found.len(), 4);
    assert!(matches!(&errors[..], [Err(error)] if error.to_string().contains(&digits)));
    let (report, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((report.fetched, report.failed, told.len()), (3, 1, 1));
}
