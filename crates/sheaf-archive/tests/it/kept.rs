//! Packs, indexes and a log that were written once, are kept in `tests/kept`, and are read for ever.
//!
//! A format that changes has another version, and kept files of its own beside these. To make those:
//! `cargo test -p sheaf-archive --test it -- --ignored kept::make`, which writes over no file.
use crate::made::{ID, Made, file, named, packed, whole_content};
use crate::round::path;
use sheaf_archive::{
    Archive, ArchivePath, ArchivedDirectory, ArchivedObject, ArchivedPack, Catalog, Commit,
    ContentPlace, DirectoryChange, DirectoryRows, FileName, FileRights, LocalStore,
    MemberAttributes, MemberClass, MemberKind, PackId, PackIndex, PackReader, Store, StoreKey,
    TreeSource, scan_pack, verify_pack,
};
use sheaf_core::files::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept").join(name)
}

fn read(name: &str) -> Vec<u8> {
    fs::read(kept(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A list of access: `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`.
const ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255,
    255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

/// A member of every kind, with everything that a pack has room for.
fn members() -> Vec<Made> {
    let mut all = BTreeMap::new();
    let mut add = |name: &[u8], kind: MemberKind, content: &[u8]| {
        let (mut made, _) = file(name, b"");
        made.kind = kind;
        all.insert(name.to_owned(), (made, content.to_owned()));
    };
    add(b"a file", MemberKind::File, b"content\n");
    add(b"its other name", MemberKind::HardLink { to: named(b"a file") }, b"");
    add(b"empty", MemberKind::File, b"");
    add(&[0xe9; 255], MemberKind::File, b"a name that is long and no UTF-8");
    let sparse = [&[0; 8192][..], &[1; 512], &[0; 4096], b"the end"].concat();
    add(b"holes", MemberKind::File, &sparse);
    add(b"holes, other name", MemberKind::HardLink { to: named(b"holes") }, b"");
    add(b"hole", MemberKind::File, &[0; 5000]);
    add(b"attributes", MemberKind::File, b"listed");
    add(b"early", MemberKind::File, b"before 1970");
    add(b"pipe", MemberKind::Fifo, b"");
    add(b"char", MemberKind::CharDevice { major: 1, minor: 3 }, b"");
    add(b"block", MemberKind::BlockDevice { major: 259, minor: 1_048_575 }, b"");
    add(b"link", MemberKind::Symlink { target: b"../gone/\xff".to_vec() }, b"");
    add(b"long link", MemberKind::Symlink { target: [b'l'; 200].to_vec() }, b"");
    let of = &mut all.get_mut(&b"attributes"[..]).unwrap().0;
    (of.uid, of.gid, of.mode) = (3_000_000_000, 2_097_152, 0o6755);
    of.xattrs = vec![
        (b"security.capability".to_vec(), vec![0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0]),
        (b"system.posix_acl_access".to_vec(), ACL.to_vec()),
        (b"user.50%=half".to_vec(), vec![0, b'\n', 255]),
    ];
    let of = &mut all.get_mut(&b"early"[..]).unwrap().0;
    of.mtime = Timestamp { seconds: -86_400, nanoseconds: 250_000_001 };
    all.into_values().collect()
}

/// The same pack some time later: a name is removed, and a file has other rights than in the tar.
fn later(mut index: PackIndex) -> PackIndex {
    index.generation = 3;
    index.members.retain(|member| *member.attributes.name != *b"a file");
    let member = index.members.iter_mut().find(|of| *of.attributes.name == *b"empty").unwrap();
    let FileRights { mode, uid, gid } = member.attributes.rights();
    member.in_tar = Some(FileRights { mode, uid, gid });
    (member.attributes.mode, member.attributes.uid, member.attributes.gid) = (0o600, 7, 8);
    index
}

/// In frames that are smaller than those of packs that are stored, so that there are some.
fn compressed(tar: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let policy = zeekstd::FrameSizePolicy::Uncompressed(4096);
    let options = zeekstd::EncodeOptions::new().frame_size_policy(policy);
    let mut encoder = options.into_encoder(&mut bytes).unwrap();
    encoder.write_all(tar).unwrap();
    encoder.finish().unwrap();
    bytes
}

/// Whether an index says what the members are, and the tar has their contents.
fn assert_members(index: &PackIndex, tar: &[u8], is_of_tar: bool) {
    let members = members();
    assert_eq!((index.id, index.generation, index.members.len()), (ID, 0, members.len()));
    for ((of, content), member) in members.iter().zip(&index.members) {
        let mut of = of.clone();
        if is_of_tar {
            (of.ctime_ns, of.ino) = (0, 0);
        }
        assert_eq!(member.attributes, of);
        let file = |to: &FileName| members.iter().find(|(of, _)| of.name == *to).unwrap().1.clone();
        let content = match &of.kind {
            MemberKind::HardLink { to } => file(to),
            _ => content.clone(),
        };
        assert!(whole_content(tar, member) == content, "{}", of.name.escape_ascii());
    }
}

#[test]
fn pack_of_version_1_is_read() {
    let (tar, beside) = (read("pack-1.tar"), read("index-1"));
    let index = PackIndex::decode(&beside).unwrap();
    assert_members(&index, &tar, false);
    assert_eq!(PackIndex::in_pack(&tar).unwrap(), index);
    assert_eq!(verify_pack(&tar, &index), []);
    assert_members(&scan_pack(&tar, ID).unwrap(), &tar, true);

    let changed = PackIndex::decode(&read("index-1-generation-3")).unwrap();
    assert_eq!(changed, later(index));
    assert_eq!(verify_pack(&tar, &changed), []);
    let other = changed.find(b"its other name").unwrap();
    assert_eq!(whole_content(&tar, other), b"content\n");
}

#[test]
fn compressed_pack_is_read() {
    let (tar, zstd) = (read("pack-1.tar"), read("pack-1.tar.zst"));
    let place = tempfile::tempdir().unwrap();
    let store = LocalStore::create(&place.path().join("store")).unwrap();
    let zstd_bytes = Some(zstd.len() as u64);
    let pack =
        ArchivedPack { id: ID, tar_bytes: tar.len() as u64, zstd_bytes, ..ArchivedPack::default() };
    put(&store, &pack.key(), &zstd);
    assert!(PackReader::new(&store, &pack).read_all().unwrap() == tar);
    // From the end to the beginning, so that each frame is read anew.
    let mut reader = PackReader::new(&store, &pack);
    for at in (0..tar.len()).step_by(1000).rev() {
        let mut some = [0; 8];
        reader.read(at as u64, &mut some).unwrap();
        assert_eq!(some, tar[at..][..8]);
    }
}

/// What is written now is what is kept: else it is of another version.
#[test]
fn format_is_as_it_was() {
    let (tar, index) = packed(&members());
    assert!(tar == read("pack-1.tar"), "a pack is written in another way");
    assert!(index.encode() == read("index-1"), "an index is written in another way");
    assert!(later(index).encode() == read("index-1-generation-3"));
    let place = tempfile::tempdir().unwrap();
    let (archive, store) = archive(place.path());
    for commit in commits() {
        archive.catalog().commit(archive.store(), &commit).unwrap();
    }
    let mut before = Vec::new();
    for number in 1..=commits().len() as u64 {
        let key = log_key(number);
        let written = store.read(&key, 0..store.size(&key).unwrap()).unwrap();
        // Those that are kept are of version 1, and do not say yet which commit came before.
        let kept = read(&kept_log(number));
        let mut expected =
            [&kept[..8], &[3, 0, 0, 0], &kept[12..kept.len() - 32], &before[..]].concat();
        before = blake3::hash(&expected).as_bytes().to_vec();
        expected.extend_from_slice(&before);
        assert!(written == expected, "commit {number} is written in another way");
    }
}

fn put(store: &LocalStore, key: &StoreKey, bytes: &[u8]) {
    let mut object = store.create(key).unwrap();
    object.write_all(bytes).unwrap();
    object.commit().unwrap();
}

fn archive(at: &Path) -> (Archive, Arc<LocalStore>) {
    let store = Arc::new(LocalStore::create(&at.join("store")).unwrap());
    let catalog = Catalog::open(&at.join("catalog")).unwrap();
    (Archive::new(store.clone(), catalog).unwrap(), store)
}

fn log_key(number: u64) -> StoreKey {
    StoreKey::new(&format!("log/{number:020}")).unwrap()
}

fn kept_log(number: u64) -> String {
    format!("log-1-{number}")
}

fn directory(mode: u32) -> ArchivedDirectory {
    let xattrs = vec![(b"user.note".to_vec(), b"value".to_vec())];
    ArchivedDirectory { mode, uid: 1, gid: 2, mtime_s: -3, mtime_ns: 4, xattrs }
}

fn pack(number: u8, zstd_bytes: Option<u64>) -> ArchivedPack {
    let stored = FileRights { mode: 0o644, uid: 5, gid: 6 };
    let now = FileRights { mode: 0o600, ..stored };
    ArchivedPack {
        id: PackId([number; 16]),
        generation: 9,
        index_bytes: 1024,
        members: 3,
        files: 2,
        content_bytes: 1_000_000_007,
        tar_bytes: 2048,
        zstd_bytes,
        first: b"a".to_vec(),
        last: b"\xff".to_vec(),
        classes: Some(vec![MemberClass {
            are_links: false,
            are_bound: true,
            stored,
            now,
            members: 3,
        }]),
    }
}

fn object(name: &[u8], place: Option<ContentPlace>) -> ArchivedObject {
    let (attributes, _) = file(name, b"");
    ArchivedObject {
        attributes: MemberAttributes {
            xattrs: vec![(b"user.note".to_vec(), b"value".to_vec())],
            ..attributes
        },
        size: if place.is_some() { 1 << 34 } else { 0 },
        digest: [7; 32],
        place,
        extents: None,
        link: None,
    }
}

/// Commits in which each change occurs, and each place of a content.
fn commits() -> Vec<Commit> {
    let change = |at: &str| DirectoryChange { path: path(at), ..Default::default() };
    let new = |at| DirectoryChange { directory: Some(directory(0o2755)), ..change(at) };
    let sparse = ArchivedObject {
        extents: Some(vec![0..5, 1 << 33..(1 << 33) + 7]),
        ..object(b"sparse", Some(ContentPlace::Object(PackId([3; 16]))))
    };
    let at = 512;
    let moved = ContentPlace::Pack { id: PackId([4; 16]), at, zstd: false };
    let compressed = ContentPlace::Pack { id: PackId([5; 16]), at, zstd: true };
    let linked = |name: &[u8]| ArchivedObject { link: Some(PackId([6; 16])), ..object(name, None) };
    let target = b"\xfe".to_vec();
    let mut link = object(b"symlink", None);
    link.attributes.kind = MemberKind::Symlink { target };
    let filled = DirectoryChange {
        packs: vec![pack(1, None), pack(2, Some(999))],
        objects: vec![
            sparse,
            object(b"moved", Some(moved)),
            object(b"compressed", Some(compressed)),
            linked(b"one"),
            linked(b"two"),
            link,
        ],
        ..new("/tree")
    };
    let fewer = DirectoryChange {
        since: 2,
        packs_removed: vec![PackId([1; 16])],
        objects_removed: vec![named(b"moved")],
        directory: Some(directory(0o700)),
        ..change("/tree")
    };
    let tree = |at, tree, since| DirectoryChange { tree: Some(tree), since, ..change(at) };
    let commit = |changes| Commit { changes };
    vec![
        commit(vec![new("/"), new("/old")]),
        commit(vec![filled, new("/tree/below")]),
        commit(vec![fewer, DirectoryChange { removed: true, since: 1, ..change("/old") }]),
        commit(vec![tree("/copy", TreeSource::Copied(path("/tree")), 0)]),
        commit(vec![tree("/new place", TreeSource::Moved(path("/tree")), 0)]),
    ]
}

/// All that a catalog says.
fn said(archive: &Archive) -> Vec<(ArchivePath, DirectoryRows)> {
    let catalog = archive.catalog();
    let below = catalog.below(&ArchivePath::ROOT, None, usize::MAX).unwrap();
    let rows = |path: ArchivePath| {
        let rows = catalog.rows_of(&path).unwrap();
        (path, rows)
    };
    below.into_iter().map(|(path, _)| rows(path)).collect()
}

#[test]
fn log_of_version_1_is_read() {
    let place = tempfile::tempdir().unwrap();
    let (of_commits, _) = archive(&place.path().join("commits"));
    for commit in commits() {
        of_commits.catalog().commit(of_commits.store(), &commit).unwrap();
    }
    let at = place.path().join("kept");
    let (_, store) = archive(&at);
    for number in 1..=commits().len() as u64 {
        put(&store, &log_key(number), &read(&kept_log(number)));
    }
    let (of_kept, _) = archive(&at);
    let said = said(&of_kept);
    assert_eq!(said, self::said(&of_commits));
    // Some of it in so many words.
    let names: Vec<_> = said.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(names, ["/", "/copy", "/copy/below", "/new place", "/new place/below"]);
    let rows = &said[3].1;
    assert_eq!(rows.packs, [pack(2, Some(999))]);
    assert_eq!(rows.directory, Some(directory(0o700)));
    let names: Vec<_> = rows.objects.iter().map(|of| &of.attributes.name[..]).collect();
    assert_eq!(names, [&b"compressed"[..], b"one", b"sparse", b"symlink", b"two"]);
    assert_eq!(rows.objects[2].stored_extents(), [0..5, 1 << 33..(1 << 33) + 7]);
}

/// Writes what is kept, where it is not there.
#[test]
#[ignore = "writes files that are kept for ever"]
fn make() {
    let keep = |name: &str, bytes: &[u8]| {
        if !kept(name).exists() {
            fs::create_dir_all(kept("")).unwrap();
            fs::write(kept(name), bytes).unwrap();
        }
    };
    let (tar, index) = packed(&members());
    keep("pack-1.tar", &tar);
    keep("pack-1.tar.zst", &compressed(&tar));
    keep("index-1", &index.encode());
    keep("index-1-generation-3", &later(index).encode());
    let place = tempfile::tempdir().unwrap();
    let (archive, store) = archive(place.path());
    for (number, commit) in (1..).zip(commits()) {
        archive.catalog().commit(archive.store(), &commit).unwrap();
        let key = log_key(number);
        keep(&kept_log(number), &store.read(&key, 0..store.size(&key).unwrap()).unwrap());
    }
}
