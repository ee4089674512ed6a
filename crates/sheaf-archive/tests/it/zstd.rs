//! Packs that are compressed: each member is read without the others, and `zstd -d` gives the tar.
use crate::round::{Place, path, settle};
use crate::trees::{assert_same, make_everything};
use sheaf_archive::{
    ArchivePath, ArchivedPack, FetchOptions, LocalStore, PackReader, SaveOptions, SaveReport,
    Store, StoreError, StoreKey, StoreWriter, StoredObject, VerifyOptions, scan_pack, verify,
    verify_pack,
};
use sheaf_testing::program::have;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

fn options() -> SaveOptions {
    SaveOptions { zstd: Some(3), ..SaveOptions::default() }
}

/// An archive of files of which each has some text of its own.
fn place(files: usize, content: impl Fn(usize) -> Vec<u8>) -> (Place, SaveReport, ArchivedPack) {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..files {
        fs::write(place.path("tree").join(format!("{number:04}")), content(number)).unwrap();
    }
    settle();
    let (report, told) = place.save("tree", options());
    assert_eq!((report.failed, &told[..]), (0, &[][..]));
    let rows = place.archive.catalog().rows_of(&path("/tree")).unwrap();
    let [pack] = &rows.packs[..] else { panic!("{:?}", rows.packs) };
    (place, report, pack.clone())
}

fn text(number: usize) -> Vec<u8> {
    format!("this is line {number} of many\n").repeat(100 + number).into_bytes()
}

/// Bytes that nothing makes shorter.
fn noise(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; 20_000];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn object(place: &Place, pack: &ArchivedPack) -> PathBuf {
    place.path("store/objects").join(pack.key().as_str())
}

fn damaged(place: &Place) -> Vec<String> {
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |error: sheaf_archive::ArchiveError| told.lock().unwrap().push(error.to_string());
    verify(&place.archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell).unwrap();
    told.into_inner().unwrap()
}

#[test]
fn compressed_packs_are_small_and_come_back() {
    let (place, _, pack) = place(500, text);
    assert!(pack.zstd_bytes.unwrap() * 10 < pack.tar_bytes, "{pack:?}");
    assert_eq!(fs::metadata(object(&place, &pack)).unwrap().len(), pack.stored_bytes());
    assert_eq!(damaged(&place), [""; 0]);
    let (report, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((report.fetched, report.failed), (500, 0), "{told:?}");
    assert_same(&place.path("tree"), &place.path("back/tree"));
    // Once more, nothing is to be done; and what is changed goes into a pack of its own, a plain one.
    let (again, _) = place.save("tree", options());
    assert_eq!((again.stored, again.unchanged), (0, 500));
    fs::write(place.path("tree/0007"), "changed").unwrap();
    settle();
    place.save("tree", SaveOptions::default());
    assert_eq!(damaged(&place), [""; 0]);
    place.fetch("/tree", "again", FetchOptions::default());
    assert_same(&place.path("tree"), &place.path("again/tree"));
}

#[test]
fn zstd_and_tar_take_them_apart() {
    if !(have("zstd") && have("tar")) {
        return;
    }
    let (place, _, pack) = place(100, text);
    let out = place.path("out");
    fs::create_dir(&out).unwrap();
    let object = object(&place, &pack);
    let plain = Command::new("zstd").arg("-dc").arg(&object).output().unwrap();
    assert!(plain.status.success(), "{plain:?}");
    let mut reader = PackReader::new(place.archive.store(), &pack);
    assert!(plain.stdout == reader.read_all().unwrap());
    assert_eq!(plain.stdout.len() as u64, pack.tar_bytes);
    let index = place.archive.index(&pack).unwrap();
    assert_eq!(verify_pack(&plain.stdout, &index), []);
    assert_eq!(scan_pack(&plain.stdout, pack.id).unwrap().members.len(), 100);
    let tar =
        Command::new("tar").arg("--zstd").arg("-xf").arg(&object).arg("-C").arg(&out).output();
    assert!(tar.as_ref().unwrap().status.success(), "{tar:?}");
    for number in 0..100 {
        assert_eq!(fs::read(out.join(format!("{number:04}"))).unwrap(), text(number));
    }
}

/// Every pack of a tree of everything, and of one that was packed again, with `tar`, `zstd` and `bsdtar`.
#[test]
fn programs_read_every_compressed_pack() {
    let place = Place::new();
    make_everything(&place.path("tree"));
    settle();
    place.save("tree", SaveOptions { pack_bytes: 8 << 10, ..options() });
    fs::create_dir(place.path("noise")).unwrap();
    for number in 0..100 {
        fs::write(place.path("noise").join(format!("{number}")), noise(number)).unwrap();
    }
    place.save("noise", options());
    let mut packs = Vec::new();
    let mut each = |object: StoredObject| {
        if object.key.as_str().ends_with(".tar.zst") {
            packs.push(place.path("store/objects").join(object.key.as_str()));
        }
        Ok(())
    };
    place.archive.store().list(&["packs"], &mut each).unwrap();
    assert!(packs.len() > 5, "{packs:?}");
    for (program, args) in [
        ("zstd", &["-qt"][..]),
        ("tar", &["--zstd", "-tvf"]),
        ("tar", &["--zstd", "--acls", "--xattrs", "-xf"]),
        ("bsdtar", &["-tf"]),
        ("bsdtar", &["-xf"]),
    ] {
        // `tar` has `zstd` decompress.
        if !have(program) || !have("zstd") {
            eprintln!("{program} is not here: packs are not read by it");
            continue;
        }
        for (number, pack) in packs.iter().enumerate() {
            let out = place.path(&format!("{program}-{}-{number}", args.len()));
            fs::create_dir_all(&out).unwrap();
            let read = Command::new(program).args(args).arg(pack).current_dir(&out).output();
            let read = read.unwrap();
            assert!(read.status.success(), "{program} {args:?} {pack:?}: {read:?}");
        }
    }
}

#[test]
fn incompressible_data_costs_little_space_in_a_pack() {
    let (_place, _, pack) = place(200, noise);
    let (tar, zstd) = (pack.tar_bytes, pack.zstd_bytes.unwrap());
    assert!(zstd < tar + tar / 500, "{zstd} of {tar}");
}

/// A store that counts the bytes that are read of it.
struct CountedStore {
    store: LocalStore,
    read: AtomicU64,
}

impl Store for CountedStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        self.store.create(key)
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.open(key, from)
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
        self.store.read(key, range)
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        self.store.size(key)
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.store.list(parts, each)
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        self.store.remove(key)
    }
}

/// One member is read of the frames that it is in: nothing before them is looked at, whatever it is.
#[test]
fn one_member_is_read_without_the_others() {
    let (place, _, pack) = place(300, noise);
    let index = place.archive.index(&pack).unwrap();
    let at = object(&place, &pack);
    let whole = fs::read(&at).unwrap();
    // All is damaged but the last MiB, with the table of frames.
    let mut damaged = whole.clone();
    damaged[..whole.len() - (1 << 20)].fill(0x55);
    fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(&at, damaged).unwrap();
    let store = CountedStore {
        store: LocalStore::open(&place.path("store")).unwrap(),
        read: AtomicU64::new(0),
    };
    let mut reader = PackReader::new(&store, &pack);
    let mut content = vec![0; 20_000];
    reader.read(index.find(b"0299").unwrap().content_at(), &mut content).unwrap();
    assert_eq!(content, noise(299));
    assert!(store.read.load(Ordering::Relaxed) <= 16 << 10);
    let error = reader.read(index.find(b"0000").unwrap().content_at(), &mut content).unwrap_err();
    let said = "the pack is damaged: its zstd frame from byte 0 on cannot be read";
    assert_eq!(error.to_string(), format!("{}: {said}", pack.key()));
    let (report, _) = place.fetch("/tree", "back", FetchOptions::default());
    assert!(report.failed > 0 && report.fetched > 20, "{report:?}");
    assert_eq!(report.failed + report.fetched, 300);
}

/// Whatever byte is another one: it is told, nothing else comes back, and nothing hangs or grows.
#[test]
fn flipped_byte_is_told() {
    let (place, _, pack) = place(40, |number| text(number)[..300].to_vec());
    let at = object(&place, &pack);
    let whole = fs::read(&at).unwrap();
    let tar = PackReader::new(place.archive.store(), &pack).read_all().unwrap();
    let index = place.archive.index(&pack).unwrap();
    fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut found = 0;
    for byte in (0..whole.len()).step_by(3).chain(whole.len() - 40..whole.len()) {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1 << (byte % 8);
        fs::write(&at, &flipped).unwrap();
        match PackReader::new(place.archive.store(), &pack).read_all() {
            Err(_) => found += 1,
            // What is no part of the tar may be another: a checksum, or how much is to be kept.
            Ok(read) => {
                assert!(read == tar || !verify_pack(&read, &index).is_empty(), "byte {byte}")
            }
        }
    }
    assert!(found > 20, "{found}");
    for length in (0..whole.len()).step_by(whole.len() / 50) {
        fs::write(&at, &whole[..length]).unwrap();
        let read = PackReader::new(place.archive.store(), &pack).read_all();
        assert!(read.is_err(), "{length}");
    }
    assert_eq!(damaged(&place).len(), 1);
}

/// A table that says that a frame has much more than its pack is believed nothing.
#[test]
fn frames_of_more_than_the_tar_are_refused() {
    let (place, _, pack) = place(40, text);
    let at = object(&place, &pack);
    let mut bytes = fs::read(&at).unwrap();
    // The table's last frame: its length is 13 bytes before the end.
    let from = bytes.len() - 13;
    fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for length in [u32::MAX, 5 << 20, 100, 0] {
        bytes[from..from + 4].copy_from_slice(&length.to_le_bytes());
        fs::write(&at, &bytes).unwrap();
        let error = PackReader::new(place.archive.store(), &pack).read(0, &mut [0]).unwrap_err();
        assert!(error.to_string().contains("zstd frames"), "{error}");
    }
}

#[test]
fn tree_of_everything_comes_back_compressed() {
    let place = Place::new();
    make_everything(&place.path("tree"));
    settle();
    let (saved, told) = place.save("tree", options());
    assert_eq!((saved.failed, &told[..]), (0, &[][..]));
    let (fetched, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((fetched.failed, fetched.attributes_left, &told[..]), (0, 0, &[][..]));
    assert_same(&place.path("tree"), &place.path("back/tree"));
    assert_eq!(damaged(&place), [""; 0]);
}
