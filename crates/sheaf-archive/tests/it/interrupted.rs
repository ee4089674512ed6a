//! Storing that is broken off again and again, or has a limit, and what is in its way.
use crate::round::{Place, path, settle};
use sheaf_archive::{
    ArchiveError, FetchOptions, Resource, SaveOptions, ScheduleLimits, VerifyOptions, save, verify,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Each time some files more are archived, so in the end all are.
#[test]
fn directory_is_stored_bit_by_bit() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..12 {
        let content = vec![number; 3 << 20];
        fs::write(place.path("tree").join(format!("{number:02}")), content).unwrap();
    }
    settle();
    let limits = ScheduleLimits::default().with(Resource::DiskBytes, 6 << 20);
    let options = SaveOptions { limits, ..SaveOptions::default() };
    let counts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let storing = scope.spawn(|| place.save("tree", options));
        while !storing.is_finished() {
            let rows = place.archive.catalog().rows_of(&path("/tree")).unwrap();
            counts.lock().unwrap().push(rows.objects.len());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(storing.join().unwrap().0.stored, 12);
    });
    let mut counts = counts.into_inner().unwrap();
    counts.dedup();
    assert!(counts.is_sorted() && counts.len() > 2, "{counts:?}");
    place.fetch("/tree", "back", FetchOptions::default());
    crate::trees::assert_same(&place.path("tree"), &place.path("back/tree"));
}

#[test]
fn holes_are_not_what_a_limit_is_of() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        fs::create_dir_all(place.path("tree").join(name)).unwrap();
        fs::write(place.path("tree").join(name).join("text"), name).unwrap();
    }
    let sparse = fs::File::create(place.path("tree/a/sparse")).unwrap();
    sparse.set_len(1 << 42).unwrap();
    sparse.write_all_at(b"island", 1 << 41).unwrap();
    settle();
    let limits = ScheduleLimits::default().with(Resource::DiskBytes, 64 << 20);
    let began = Instant::now();
    let (report, told) = place.save("tree", SaveOptions { limits, ..SaveOptions::default() });
    assert_eq!((report.stored, report.failed), (4, 0), "{told:?}");
    // At 64 MiB a second 4 TiB take 18 hours.
    assert!(began.elapsed() < Duration::from_secs(600));
}

#[test]
fn nothing_is_stored_below_a_file() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/d")).unwrap();
    fs::write(place.path("tree/file"), "text").unwrap();
    fs::write(place.path("tree/large"), vec![1; 2 << 20]).unwrap();
    std::os::unix::fs::symlink("file", place.path("tree/link")).unwrap();
    place.save("tree", SaveOptions::default());
    let source = [place.path("tree/d")];
    for to in ["/tree/file", "/tree/large/x", "/tree/link", "/tree/file/a/b/c"] {
        let fail = |event| panic!("{event:?}");
        let stored = save(&place.archive, &source, &path(to), SaveOptions::default(), &fail);
        let error = stored.unwrap_err();
        assert!(matches!(&error, ArchiveError::InTheWay { .. }), "{to}: {error}");
        assert!(error.to_string().ends_with(": is archived as a file: remove it there first"));
    }
    let verified =
        verify(&place.archive, &path("/"), VerifyOptions::default(), &|told| panic!("{told:?}"));
    assert_eq!(verified.unwrap().damaged, 0);
    assert_eq!(place.fetch("/tree", "back", FetchOptions::default()).0.failed, 0);
}
