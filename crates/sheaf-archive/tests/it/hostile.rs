//! A store that says what no writer has said: with right checksums, and names, lengths and objects of
//! its own choice. What is fetched stays within its target, and memory within its bounds.
use crate::round::{path, settle};
use crate::stores::StorePlace;
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, ArchivePath, Catalog, FetchNames, FetchOptions, FetchTar,
    SaveOptions, ScheduleLimits, VerifyOptions, Version, VersionError, fetch, mark_version, save,
    verify, versions,
};
use sheaf_core::lock;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const NAME: &[u8] = b"AAAAAAAAAAAAAAAAAAAA";
/// Bytes of BLAKE3 at the end of a commit.
const DIGEST_BYTES: usize = 32;

/// A store with a file of [`NAME`], and the tree that it is of.
fn stored(options: SaveOptions) -> (StorePlace, tempfile::TempDir) {
    let (place, at) = (StorePlace::local(), tempfile::tempdir().unwrap());
    let tree = at.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join(std::str::from_utf8(NAME).unwrap()), "content").unwrap();
    settle();
    let catalog = Catalog::open(&at.path().join("catalog")).unwrap();
    let archive = Archive::new(place.create().unwrap(), catalog).unwrap();
    let fail = |event| panic!("{event:?}");
    save(&archive, &[tree], &ArchivePath::ROOT, options, &fail).unwrap();
    (place, at)
}

/// Every object of a kind that the store has.
fn objects(place: &StorePlace, kind: &str) -> Vec<PathBuf> {
    let at = Path::new(&place.name()).join("objects").join(kind);
    let walk = sheaf_archive::TreeWalk::new(&at, Default::default());
    walk.filter(|entry| entry.found.as_ref().unwrap().is_file()).map(|entry| entry.path).collect()
}

/// Has each commit say `to` for `from`, with a right checksum. How many did.
fn forge(place: &StorePlace, from: &[u8], to: &[u8]) -> usize {
    let mut forged = 0;
    for file in objects(place, "log") {
        let mut bytes = fs::read(&file).unwrap();
        bytes.truncate(bytes.len() - DIGEST_BYTES);
        let found: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
        found.iter().for_each(|at| bytes[*at..at + from.len()].copy_from_slice(to));
        forged += found.len();
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        fs::write(&file, bytes).unwrap();
    }
    forged
}

/// Opens the store with a catalog of its own, and fetches everything into `at/target/within`.
fn fetched(place: &StorePlace, at: &Path) -> Result<u64, ArchiveError> {
    let catalog = tempfile::tempdir_in(at).unwrap();
    let catalog = Catalog::open(&catalog.path().join("catalog"))?;
    let archive = Archive::new(place.open()?, catalog)?;
    let target = at.join("target/within");
    fs::create_dir_all(&target).unwrap();
    let options = FetchOptions::default();
    fetch(&archive, &path("/tree"), &target, options, &drop).map(|report| report.fetched)
}

#[test]
fn name_in_the_log_leads_nowhere_else() {
    let no_packs = || SaveOptions { member_bytes_max: 0, ..SaveOptions::default() };
    for evil in [
        &b"../../etc/cron-evil!"[..],
        b"/etc/cron.d/evil-job",
        b"inner/file-with-slash",
        b"NUL-\0-in-the-middle!",
    ] {
        let mut evil = evil.to_vec();
        evil.resize(NAME.len(), b'!');
        let (place, at) = stored(no_packs());
        assert_eq!(fetched(&place, at.path()).unwrap(), 1);
        fs::remove_dir_all(at.path().join("target")).unwrap();
        assert!(forge(&place, NAME, &evil) > 0);
        let error = fetched(&place, at.path()).unwrap_err().to_string();
        assert!(error.contains("it says what no commit does"), "{error}");
        // Nothing was made, not even the target.
        assert!(!at.path().join("target").exists(), "{}", evil.escape_ascii());
    }
}

/// Nor does the path of a directory.
#[test]
fn directory_in_the_log_leads_nowhere_else() {
    let (place, at) = stored(SaveOptions::default());
    assert!(forge(&place, b"tree\0", b"../x\0") > 0);
    let error = fetched(&place, at.path()).unwrap_err().to_string();
    assert!(error.contains("it says what no commit does"), "{error}");
}

/// A member of 3 GiB in a pack of some kilobytes.
#[test]
fn length_in_an_index_takes_no_memory() {
    const HUGE: u64 = 3 << 30;
    let (place, at) = stored(SaveOptions::default());
    let index = objects(&place, "packs")
        .into_iter()
        .find(|file| file.to_str().unwrap().ends_with(".idx.0"))
        .unwrap();
    let mut bytes = fs::read(&index).unwrap();
    let body = bytes.len() - 48;
    bytes[32..40].copy_from_slice(&(HUGE / 512 + 10).to_le_bytes());
    bytes[72..80].copy_from_slice(&HUGE.to_le_bytes());
    let digest = *blake3::hash(&bytes[..body]).as_bytes();
    bytes[body..body + DIGEST_BYTES].copy_from_slice(&digest);
    fs::write(&index, bytes).unwrap();
    let catalog = Catalog::open(&at.path().join("another")).unwrap();
    let archive = Archive::new(place.open().unwrap(), catalog).unwrap();
    let told = Mutex::new(Vec::new());
    let tell = |error: ArchiveError| lock(&told).push(error.to_string());
    verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell).unwrap();
    let told = told.into_inner().unwrap();
    assert!(told.iter().any(|said| said.contains("what cannot be")), "{told:?}");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    assert!(peak < HUGE >> 11, "{peak} KiB");
}

/// Who may get it as root gets no file with other rights than the catalog says.
#[test]
fn mode_in_an_index_alone_gives_no_rights() {
    let (place, at) = stored(SaveOptions::default());
    let index = objects(&place, "packs")
        .into_iter()
        .find(|file| file.to_str().unwrap().ends_with(".idx.0"))
        .unwrap();
    let (mut bytes, mut forged) = (fs::read(&index).unwrap(), 0);
    let body = bytes.len() - 48;
    let mode = fs::metadata(at.path().join("tree").join(std::str::from_utf8(NAME).unwrap()))
        .unwrap()
        .permissions()
        .mode();
    for from in 0..body - 4 {
        if bytes[from..from + 4] == mode.to_le_bytes() {
            bytes[from..from + 4].copy_from_slice(&0o104_755u32.to_le_bytes());
            forged += 1;
        }
    }
    assert_eq!(forged, 1);
    let digest = *blake3::hash(&bytes[..body]).as_bytes();
    bytes[body..body + DIGEST_BYTES].copy_from_slice(&digest);
    fs::write(&index, bytes).unwrap();
    assert_eq!(fetched(&place, at.path()).unwrap(), 0);
    let name = std::str::from_utf8(NAME).unwrap();
    assert!(!at.path().join("target/within/tree").join(name).exists());
    let catalog = Catalog::open(&at.path().join("another")).unwrap();
    let archive = Archive::new(place.open().unwrap(), catalog).unwrap();
    assert_eq!(tar_of(&archive).0, 1);
}

/// A tar of `/tree`: how many files failed, why, and the tar.
fn tar_of(archive: &Archive) -> (u64, Vec<String>, Vec<u8>) {
    let (told, mut out) = (Mutex::new(Vec::new()), Vec::new());
    let tell = |event| {
        if let ArchiveEvent::Failed(error) = event {
            lock(&told).push(error.to_string());
        }
    };
    let mut tar = FetchTar::new(&mut out, FetchNames::default(), &ScheduleLimits::default(), &tell);
    tar.add(archive, &path("/tree"), false).unwrap();
    let failed = tar.finish().unwrap().failed;
    (failed, told.into_inner().unwrap(), out)
}

/// A link that leads out of where the tar is taken apart, and a directory of its name with files.
#[test]
fn link_and_directory_of_one_name_are_not_both_in_a_tar() {
    let (place, at) = (StorePlace::local(), tempfile::tempdir().unwrap());
    let (tree, link) = (at.path().join("tree"), std::str::from_utf8(NAME).unwrap());
    fs::create_dir_all(tree.join("BBBBBBBBBBBBBBBBBBBB")).unwrap();
    fs::write(tree.join("BBBBBBBBBBBBBBBBBBBB/passwd"), "content").unwrap();
    std::os::unix::fs::symlink("/etc", tree.join(link)).unwrap();
    settle();
    let catalog = Catalog::open(&at.path().join("catalog")).unwrap();
    let archive = Archive::new(place.create().unwrap(), catalog).unwrap();
    let fail = |event| panic!("{event:?}");
    let options = SaveOptions { member_bytes_max: 0, ..SaveOptions::default() };
    save(&archive, &[tree], &ArchivePath::ROOT, options, &fail).unwrap();
    let (failed, _, whole) = tar_of(&archive);
    assert!(failed == 0 && whole.windows(NAME.len()).any(|bytes| bytes == NAME));
    assert!(forge(&place, NAME, b"BBBBBBBBBBBBBBBBBBBB") > 0);
    let catalog = Catalog::open(&at.path().join("another")).unwrap();
    let archive = Archive::new(place.open().unwrap(), catalog).unwrap();
    let (failed, told, tar) = tar_of(&archive);
    assert!(failed == 1 && told[0].contains("twice"), "{told:?}");
    assert!(!tar.windows(4).any(|bytes| bytes == b"/etc"));
}

/// What is no regular file has no reader wait, and leads nowhere.
/// The file that says that a directory is a store is read as its objects are.
#[test]
fn pipe_or_link_in_the_place_of_a_mark_is_refused() {
    let (place, _at) = stored(SaveOptions::default());
    let mark = place.root().join("sheaf-archive");
    for is_link in [false, true] {
        fs::remove_file(&mark).unwrap();
        if is_link {
            std::os::unix::fs::symlink("/dev/zero", &mark).unwrap();
        } else {
            rustix::fs::mkfifoat(rustix::fs::CWD, &mark, 0o600.into()).unwrap();
        }
        let errors = [place.open().err(), place.create().err()];
        for error in errors {
            assert_eq!(error.unwrap().errno, sheaf_core::Errno::BADMSG);
        }
    }
}

/// What has taken the place of a version's mark is not that there is none.
#[test]
fn what_is_no_mark_of_a_version_is_a_damaged_one() {
    let (place, at) = stored(SaveOptions::default());
    let catalog = Catalog::open(&at.path().join("another")).unwrap();
    let archive = Archive::new(place.open().unwrap(), catalog).unwrap();
    let version = Version { host: "n7".to_owned(), ..Version::default() };
    mark_version(&archive, version).unwrap();
    let mark = objects(&place, "versions").remove(0);
    for way in 0..3 {
        let _ = fs::remove_file(&mark);
        match way {
            0 => fs::create_dir(&mark).unwrap(),
            1 => std::os::unix::fs::symlink("elsewhere", &mark).unwrap(),
            _ => rustix::fs::mkfifoat(rustix::fs::CWD, &mark, 0o600.into()).unwrap(),
        }
        let all = versions(&archive).unwrap();
        let [found] = &all[..] else { panic!("{way}: {all:?}") };
        assert!(matches!(found.version, Err(VersionError::Damaged { .. })), "{way}: {found:?}");
        let told = Mutex::new(Vec::new());
        let tell = |error: ArchiveError| lock(&told).push(error.to_string());
        verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell).unwrap();
        let told = told.into_inner().unwrap();
        assert!(told.iter().any(|told| told.contains("is damaged")), "{way}: {told:?}");
        if way == 0 {
            fs::remove_dir(&mark).unwrap();
        }
    }
}

#[test]
fn pipe_or_link_in_a_store_is_no_object() {
    for is_link in [false, true] {
        let (place, at) = stored(SaveOptions { member_bytes_max: 0, ..SaveOptions::default() });
        let data = objects(&place, "data").remove(0);
        let elsewhere = at.path().join("elsewhere");
        fs::rename(&data, &elsewhere).unwrap();
        if is_link {
            std::os::unix::fs::symlink(&elsewhere, &data).unwrap();
        } else {
            rustix::fs::mkfifoat(rustix::fs::CWD, &data, 0o600.into()).unwrap();
        }
        let catalog = Catalog::open(&at.path().join("another")).unwrap();
        let archive = Archive::new(place.open().unwrap(), catalog).unwrap();
        let told = Mutex::new(Vec::new());
        let tell = |error: ArchiveError| lock(&told).push(error.to_string());
        verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell).unwrap();
        assert_eq!(told.into_inner().unwrap().len(), 1, "{is_link}");
        assert_eq!(fetched(&place, at.path()).unwrap(), 0);
    }
}
