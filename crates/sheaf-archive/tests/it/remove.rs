//! What is removed is gone, and nothing else is.
use crate::round::{Place, path, settle};
use sheaf_archive::{
    ArchivePath, FetchOptions, RemoveReport, SaveOptions, VerifyOptions, remove, verify,
};
use std::fs;

fn place() -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/d/e")).unwrap();
    for name in ["a", "b", "d/c", "d/e/f"] {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    fs::write(place.path("tree/large"), vec![1; 2 << 20]).unwrap();
    settle();
    place.save("tree", SaveOptions::default());
    place
}

fn names(place: &Place) -> Vec<String> {
    let walk = place.archive.walk(&ArchivePath::ROOT).unwrap();
    let all = walk.map(|found| found.unwrap().0.to_string()).collect();
    let report = verify(&place.archive, &ArchivePath::ROOT, VerifyOptions::default(), &|error| {
        panic!("{error}")
    });
    assert_eq!(report.unwrap().damaged, 0);
    all
}

#[test]
fn file_goes_and_its_neighbours_stay() {
    let place = place();
    for (name, bytes) in [("/tree/a", 1), ("/tree/large", 2 << 20), ("/tree/d/e/f", 5)] {
        let removed = remove(&place.archive, &path(name)).unwrap();
        assert_eq!(removed, RemoveReport { directories: 0, files: 1, bytes }, "{name}");
        let again = remove(&place.archive, &path(name)).unwrap_err();
        assert_eq!(again.to_string(), format!("{name}: is not in the archive"));
    }
    assert_eq!(names(&place), ["/", "/tree", "/tree/b", "/tree/d", "/tree/d/c", "/tree/d/e"]);
    place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!(fs::read_to_string(place.path("back/tree/b")).unwrap(), "b");
    // What was removed is stored again.
    let (saved, _) = place.save("tree", SaveOptions::default());
    assert_eq!((saved.stored, saved.unchanged), (3, 2));
}

#[test]
fn directory_goes_with_all_that_is_in_it() {
    let place = place();
    let removed = remove(&place.archive, &path("/tree/d")).unwrap();
    assert_eq!(removed, RemoveReport { directories: 2, files: 2, bytes: 3 + 5 });
    assert_eq!(names(&place), ["/", "/tree", "/tree/a", "/tree/b", "/tree/large"]);
    let removed = remove(&place.archive, &ArchivePath::ROOT).unwrap();
    assert_eq!(removed, RemoveReport { directories: 1, files: 3, bytes: 2 + (2 << 20) });
    assert_eq!(names(&place), ["/"]);
}

#[test]
fn more_directories_than_go_at_once_go_too() {
    let place = Place::new();
    for number in 0..700 {
        fs::create_dir_all(place.path(&format!("tree/{}/{number}", number % 3))).unwrap();
    }
    place.save("tree", SaveOptions::default());
    let removed = remove(&place.archive, &path("/tree")).unwrap();
    assert_eq!(removed, RemoveReport { directories: 704, files: 0, bytes: 0 });
    assert_eq!(names(&place), ["/"]);
}
