//! What is stored comes back as it was: every kind of file and of name, in every kind of store, in packs and
//! alone, compressed and not, with either catalog.
use crate::round::{Place, path, settle};
use crate::stores::StorePlace;
use crate::trees::{assert_same, is_root, make_everything, seen};
use sheaf_archive::{
    Archive, Catalog, FetchOptions, PostgresUrl, SaveOptions, VerifyOptions, fetch, verify,
};
use sheaf_testing::postgres::PostgresServer;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// More than [`make_everything`]: names of any byte, and files at the edges of blocks, packs and times.
fn make_more(at: &Path) {
    let names = at.join("any bytes");
    fs::create_dir(&names).unwrap();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        // A dot alone is no name.
        let (short, long) = ([byte, b'x'], [byte; 255]);
        fs::write(names.join(OsStr::from_bytes(&short)), [byte]).unwrap();
        match byte % 5 {
            0 => fs::create_dir(names.join(OsStr::from_bytes(&long))).unwrap(),
            1 => symlink(OsStr::from_bytes(&short), names.join(OsStr::from_bytes(&long))).unwrap(),
            _ => fs::write(names.join(OsStr::from_bytes(&long)), "").unwrap(),
        }
    }
    let every: Vec<u8> = (1..=255u8).filter(|byte| *byte != b'/').collect();
    let within = names.join(OsStr::from_bytes(&every));
    fs::create_dir(&within).unwrap();
    fs::write(within.join(OsStr::from_bytes(&every)), &every).unwrap();
    make_sizes(at);
    make_holes(at);
    make_crossing_links(at);
    make_times(at);
}

/// Around blocks of tar, buffers, the longest member of a pack, and parts of an upload.
fn make_sizes(at: &Path) {
    let sizes = at.join("sizes");
    fs::create_dir(&sizes).unwrap();
    for edge in [512, 4096, 10_240, 65_536, 1 << 20, 5 << 20] {
        for size in edge - 1..=edge + 1 {
            let content: Vec<u8> = (0..size).map(|byte| (byte * 7 / 3) as u8 | 1).collect();
            fs::write(sizes.join(size.to_string()), content).unwrap();
        }
    }
}

/// Holes at the begin, at the end, and more than a header has room for.
fn make_holes(at: &Path) {
    let holes = at.join("more holes");
    fs::create_dir(&holes).unwrap();
    let file = |name: &str, bytes: u64, islands: &mut dyn Iterator<Item = u64>| {
        let file = File::create(holes.join(name)).unwrap();
        islands.for_each(|island| file.write_all_at(b"island", island).unwrap());
        file.set_len(bytes).unwrap();
    };
    file("begin", 70_000, &mut [69_994].into_iter());
    file("end", 300_001, &mut [0].into_iter());
    file("many", 40 << 20, &mut (0..600).map(|island| island * 65_536));
    file("many, small", 1 << 20, &mut (0..40).map(|island| 4096 + island * 24_576));
}

/// Names of one file in several directories, of which the first is not the first that is stored.
fn make_crossing_links(at: &Path) {
    for directory in ["links/a/deep/down", "links/b", "links/c"] {
        fs::create_dir_all(at.join(directory)).unwrap();
    }
    for (name, bytes) in [("small", 100), ("large", 2 << 20), ("empty", 0)] {
        fs::write(at.join("links/b").join(name), vec![b'l'; bytes]).unwrap();
        for other in ["links/a/deep/down", "links/c", "links"] {
            fs::hard_link(at.join("links/b").join(name), at.join(other).join(name)).unwrap();
        }
    }
    let tied = |name: &str| at.join("links").join(name);
    symlink("nowhere", tied("b/symlink")).unwrap();
    fs::hard_link(tied("b/symlink"), tied("a/symlink")).unwrap();
    if is_root() {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::BlockDevice;
        let device = rustix::fs::makedev(7, 200);
        rustix::fs::mknodat(rustix::fs::CWD, tied("a/device"), kind, mode, device).unwrap();
        fs::hard_link(tied("a/device"), tied("c/device")).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(tied("c/device"), "trusted.of a device", b"\0", flags).unwrap();
    }
}

/// From 1901 to 2446, which all file systems have that have nanoseconds.
fn make_times(at: &Path) {
    let times = at.join("times");
    fs::create_dir(&times).unwrap();
    for seconds in [-2_147_483_648, -1, 0, 1, 2_147_483_648, 4_294_967_296, 15_032_385_535_i64] {
        for nanoseconds in [0, 1, 999_999_999] {
            let since = Duration::new(seconds.unsigned_abs(), 0);
            let time = if seconds < 0 {
                SystemTime::UNIX_EPOCH - since
            } else {
                SystemTime::UNIX_EPOCH + since
            };
            let name = times.join(format!("{seconds} {nanoseconds}"));
            let file = File::create(&name).unwrap();
            file.set_modified(time + Duration::from_nanos(nanoseconds)).unwrap();
        }
    }
}

/// All ways to store.
fn ways() -> impl Iterator<Item = SaveOptions> {
    let packs = [SaveOptions::default().member_bytes_max, 0];
    let ways = packs.into_iter().flat_map(|packs| [None, Some(3)].map(|zstd| (packs, zstd)));
    ways.map(|(member_bytes_max, zstd)| {
        // Several packs of a directory, so that links go from one to another.
        let pack_bytes = 100_000;
        SaveOptions { member_bytes_max, zstd, pack_bytes, ..SaveOptions::default() }
    })
}

fn all_comes_back(store: impl Fn() -> Option<StorePlace>) {
    let tree = tempfile::tempdir().unwrap();
    make_everything(&tree.path().join("tree"));
    make_more(&tree.path().join("tree"));
    settle();
    let files =
        seen(&tree.path().join("tree")).values().filter(|seen| !seen.is_directory()).count();
    for (number, how) in ways().enumerate() {
        let Some(store) = store() else { return };
        let place = Place::at(store);
        let context = format!("{}: {how:?}", place.at.said());
        let report = place.save_from(tree.path(), "tree", how);
        assert_eq!((report.failed, report.skipped, report.changing), (0, 0, 0), "{context}");
        assert_eq!(report.stored, files as u64, "{context}");
        is_back(&place.archive, tree.path(), &place.path("back"));
        if number > 0 {
            continue;
        }
        // Whatever the catalog was told.
        let again = Catalog::open(&place.path("again")).unwrap();
        let again = Archive::new(place.open_store(), again).unwrap();
        is_back(&again, tree.path(), &place.path("back again"));
    }
}

/// What is archived is whole, and comes back in everything as it is in the tree.
fn is_back(archive: &Archive, tree: &Path, to: &Path) {
    let damaged = |error| panic!("{error}");
    verify(archive, &path("/"), VerifyOptions::default(), &damaged).unwrap();
    let fail = |event| panic!("{event:?}");
    let report = fetch(archive, &path("/tree"), to, FetchOptions::default(), &fail).unwrap();
    assert_eq!((report.failed, report.attributes_left), (0, 0));
    assert_same(&tree.join("tree"), &to.join("tree"));
}

#[test]
fn all_comes_back_from_a_directory() {
    all_comes_back(|| Some(StorePlace::local()));
}

#[test]
fn all_comes_back_from_a_bucket() {
    all_comes_back(StorePlace::s3);
}

#[test]
fn all_comes_back_from_tapes() {
    all_comes_back(|| Some(StorePlace::tape()));
}

#[test]
fn all_comes_back_by_a_database() {
    let Some(server) = PostgresServer::shared() else { return };
    let tree = tempfile::tempdir().unwrap();
    make_everything(&tree.path().join("tree"));
    make_more(&tree.path().join("tree"));
    settle();
    let mut place = Place::at(StorePlace::local());
    let catalog = Catalog::connect(&PostgresUrl::parse(&server.new_database()).unwrap()).unwrap();
    place.archive = Archive::new(place.open_store(), catalog).unwrap();
    let report = place.save_from(tree.path(), "tree", ways().next().unwrap());
    assert_eq!((report.failed, report.skipped), (0, 0));
    is_back(&place.archive, tree.path(), &place.path("back"));
}
