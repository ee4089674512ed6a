//! A disk that is full, or may not be written to: storing stops with a word, and goes on later.
use crate::stores::files;
use crate::trees::assert_same;
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, ArchivePath, Catalog, FetchOptions, LocalStore,
    RepairOptions, SaveOptions, SaveReport, VerifyOptions, fetch, repair, save, verify,
};
use sheaf_core::Errno;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const DIRECTORIES: usize = 6;
const FILES: usize = 20;

/// Runs a test of this module on a small disk of its own, which no other process sees.
fn on_a_small_disk(test: &str) {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = "mount -t tmpfs -o size=3m none \"$1\" || exit 77; shift; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(&disk)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("SHEAF_TEST_DISK", directory.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "{said}");
        }
        Ok(output) if output.status.code() != Some(77) && crate::trees::is_root() => {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        }
        _ => sheaf_testing::skipped("a disk of its own needs root, unshare and mount"),
    }
}

/// The directory of a test that is run so.
fn directory() -> Option<std::path::PathBuf> {
    std::env::var_os("SHEAF_TEST_DISK").map(Into::into)
}

fn remount(directory: &Path, options: &str) {
    let options = format!("remount,{options}");
    let disk = directory.join("disk");
    let status = Command::new("mount").args(["-o", &options]).arg(disk).status().unwrap();
    assert!(status.success());
}

fn make_tree(tree: &Path) {
    for part in 0..DIRECTORIES {
        std::fs::create_dir_all(tree.join(part.to_string())).unwrap();
        for number in 0..FILES {
            let content: Vec<u8> = (0..50_000).map(|at| (at * (number + part)) as u8).collect();
            std::fs::write(tree.join(format!("{part}/{number}")), content).unwrap();
        }
    }
    crate::round::settle();
}

fn archive(directory: &Path) -> Archive {
    let store = LocalStore::create(&directory.join("disk/store")).unwrap();
    let catalog = Catalog::open(&directory.join("catalog")).unwrap();
    Archive::new(Arc::new(store), catalog).unwrap()
}

fn store(archive: &Archive, directory: &Path) -> Result<SaveReport, ArchiveError> {
    let options = SaveOptions { pack_bytes: 200_000, ..SaveOptions::default() };
    save(archive, &[directory.join("tree")], &ArchivePath::ROOT, options, &drop)
}

/// All is there, and nothing else.
fn assert_stored(archive: &Archive, directory: &Path) {
    let from = ArchivePath::new(b"tree").unwrap();
    let got = fetch(archive, &from, &directory.join("back"), FetchOptions::default(), &drop);
    assert_eq!(got.unwrap().failed, 0);
    assert_same(&directory.join("tree"), &directory.join("back/tree"));
    let verified = verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &drop).unwrap();
    assert_eq!(verified.damaged, 0);
}

#[test]
fn another_file_system_is_left_out() {
    on_a_small_disk("disk::as_beside_another_file_system");
}

#[test]
fn as_beside_another_file_system() {
    let Some(directory) = directory() else { return };
    std::fs::write(directory.join("here"), "x").unwrap();
    std::fs::create_dir_all(directory.join("disk/below")).unwrap();
    std::fs::write(directory.join("disk/below/there"), "y").unwrap();
    crate::round::settle();
    let elsewhere = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&elsewhere.path().join("catalog")).unwrap();
    let store = LocalStore::create(&elsewhere.path().join("store")).unwrap();
    let archive = Archive::new(Arc::new(store), catalog).unwrap();
    let (to, options) = (ArchivePath::new(b"all").unwrap(), SaveOptions::default());
    let contents = [directory.join(".")];
    assert_eq!(save(&archive, &contents, &to, options, &drop).unwrap().stored, 2);

    let to = ArchivePath::new(b"one").unwrap();
    let options = SaveOptions { one_file_system: true, ..options };
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |event: ArchiveEvent| told.lock().unwrap().push(event.to_string());
    let report = save(&archive, &contents, &to, options, &tell).unwrap();
    assert_eq!((report.stored, report.directories, report.skipped), (1, 2, 1));
    let disk = directory.join("./disk");
    let text = format!("{}: left out: another file system is mounted there", disk.display());
    let told = told.into_inner().unwrap();
    assert_eq!(told, [text]);
    // The directory is there, as is one that is named itself, with what is in it.
    let back = directory.join("back");
    fetch(&archive, &to, &back, FetchOptions::default(), &drop).unwrap();
    assert_eq!(std::fs::read_dir(back.join("one/disk")).unwrap().count(), 0);
    let named = save(&archive, &[directory.join("disk")], &to, options, &drop).unwrap();
    assert_eq!((named.stored, named.skipped), (1, 0));
}

#[test]
fn full_disk_stops_and_the_rest_is_stored_later() {
    on_a_small_disk("disk::as_on_a_full_disk");
}

#[test]
fn as_on_a_full_disk() {
    let Some(directory) = directory() else { return };
    make_tree(&directory.join("tree"));
    let archive = archive(&directory);
    let error = store(&archive, &directory).unwrap_err();
    assert_eq!(error.errno(), Errno::NOSPC, "{error}");
    assert!(error.to_string().contains("No space left on device"), "{error}");
    // What is there is whole, and what was begun is gone.
    let verified = verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &drop).unwrap();
    assert_eq!(verified.damaged, 0);
    assert_eq!(files(&directory.join("disk/store/tmp")), 0);

    remount(&directory, "size=40m");
    let stored = store(&archive, &directory).unwrap();
    assert_eq!(stored.failed, 0);
    assert_eq!(stored.stored + stored.unchanged, (DIRECTORIES * FILES) as u64);
    assert_stored(&archive, &directory);
    let options = RepairOptions { age: std::time::Duration::ZERO, ..RepairOptions::default() };
    repair(&archive, options).unwrap();
    assert_stored(&archive, &directory);
}

#[test]
fn full_disk_stops_a_fetch_and_the_rest_comes_later() {
    on_a_small_disk("disk::as_fetched_to_a_full_disk");
}

#[test]
fn as_fetched_to_a_full_disk() {
    let Some(directory) = directory() else { return };
    make_tree(&directory.join("tree"));
    let store_at = LocalStore::create(&directory.join("store")).unwrap();
    let archive = Archive::new(Arc::new(store_at), Catalog::in_memory().unwrap()).unwrap();
    store(&archive, &directory).unwrap();
    let from = ArchivePath::new(b"tree").unwrap();
    let to = directory.join("disk");
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |event: ArchiveEvent| told.lock().unwrap().push(event.to_string());
    let report = fetch(&archive, &from, &to, FetchOptions::default(), &tell).unwrap();
    let told = told.into_inner().unwrap();
    assert_eq!((report.failed, told.len()), (1, 1), "it is told once: {told:?}");
    assert!(told[0].contains("No space left on device"), "{told:?}");
    assert!(told[0].contains("the same command does the rest"), "{told:?}");
    assert!(report.fetched > 0 && report.fetched < (DIRECTORIES * FILES) as u64, "{report:?}");

    remount(&directory, "size=40m");
    let report = fetch(&archive, &from, &to, FetchOptions::default(), &drop).unwrap();
    assert_eq!(report.failed, 0);
    assert_same(&directory.join("tree"), &to.join("tree"));
}

#[test]
fn disk_that_may_not_be_written_to_is_said() {
    on_a_small_disk("disk::as_on_a_disk_to_read");
}

#[test]
fn as_on_a_disk_to_read() {
    let Some(directory) = directory() else { return };
    make_tree(&directory.join("tree"));
    remount(&directory, "size=40m");
    let archive = archive(&directory);
    store(&archive, &directory).unwrap();
    std::fs::write(directory.join("tree/0/new"), "new").unwrap();
    remount(&directory, "ro");
    let error = store(&archive, &directory).unwrap_err();
    assert_eq!(error.errno(), Errno::ROFS, "{error}");
    assert!(error.to_string().contains("Read-only file system"), "{error}");
    remount(&directory, "rw");
    assert_eq!(store(&archive, &directory).unwrap().stored, 1);
    assert_stored(&archive, &directory);
}
