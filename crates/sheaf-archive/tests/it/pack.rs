//! What is written is read.
use crate::made::{ID, file, members, named, packed, whole_content};
use proptest::prelude::*;
use sheaf_archive::{
    INDEX_NAME, MEMBER_BYTES_MAX, MemberAttributes, MemberKind, PackError, PackId, PackIndex,
    PackWriter, content_of, scan_pack, verify_pack,
};
use sheaf_core::Errno;
use sheaf_core::files::Timestamp;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The index within a pack is what was written, and a scan finds all of it that a tar can say.
    #[test]
    fn pack_index_and_scan_read_back_the_written_members(members in members()) {
        let (tar, index) = packed(&members);
        index.check().unwrap();
        prop_assert_eq!(&PackIndex::in_pack(&tar).unwrap(), &index);
        prop_assert_eq!(&PackIndex::decode(&index.encode()).unwrap(), &index);
        prop_assert_eq!(verify_pack(&tar, &index), []);

        prop_assert_eq!(index.members.len(), members.len());
        for ((attributes, content), member) in members.iter().zip(&index.members) {
            prop_assert_eq!(attributes, &member.attributes);
            let content = match &attributes.kind {
                MemberKind::HardLink { to } => &members.iter().find(|(of, _)| of.name == *to).unwrap().1,
                _ => content,
            };
            prop_assert_eq!(&whole_content(&tar, member), content);
            prop_assert_eq!(index.find(&attributes.name), Some(member));
        }
        let mut scanned = scan_pack(&tar, ID).unwrap();
        for (found, member) in scanned.members.iter_mut().zip(&index.members) {
            prop_assert_eq!((found.attributes.ctime_ns, found.attributes.ino), (0, 0));
            found.attributes.ctime_ns = member.attributes.ctime_ns;
            found.attributes.ino = member.attributes.ino;
        }
        prop_assert_eq!(&scanned, &index);
    }
}

#[test]
fn index_has_less_than_90_bytes_a_member_beside_its_name() {
    for count in [100, 1_000, 10_000] {
        let names: Vec<_> = (0..count).map(|number| format!("file-{number:06}")).collect();
        let members: Vec<_> = names.iter().map(|name| file(name.as_bytes(), b"x")).collect();
        let (_, index) = packed(&members);
        let beside = index.encode().len() - names.iter().map(String::len).sum::<usize>();
        // Some 600 bytes are of the index itself and of its last block.
        assert!(beside <= 90 * count.max(200), "{beside} bytes of {count}");
    }
}

#[test]
fn rejected_member_leaves_the_pack_unchanged() {
    let mut pack = PackWriter::new(Vec::new(), ID);
    let add = |pack: &mut PackWriter<_>, of: &MemberAttributes, content: &[u8]| {
        pack.add(of, content).map_err(|error| (error.errno(), error.to_string()))
    };
    let file = |name: &[u8]| MemberAttributes::new(named(name), MemberKind::File, 0o600);
    add(&mut pack, &file(b"m"), b"first").unwrap();
    let link =
        |to: &[u8]| MemberAttributes { kind: MemberKind::HardLink { to: named(to) }, ..file(b"n") };
    let heavy: Vec<_> = (0..600)
        .map(|number| (format!("user.{number:03}").into_bytes(), vec![1; 64 << 10]))
        .collect();
    let too_long = vec![0; MEMBER_BYTES_MAX + 1];
    let no_time = Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
    for (of, content, why) in [
        (file(INDEX_NAME), &b""[..], ".sheaf-index: the index of a pack has this name"),
        (file(b"m"), b"", "m: it does not come behind the pack's last member"),
        (file(b"a"), b"", "a: it does not come behind the pack's last member"),
        (file(b"n"), &too_long, "n: it is too long for a pack"),
        (link(b"l"), b"", "n: the file that it is another name of is not in the pack"),
        (link(b"m"), b"x", "n: a file of this kind has no content"),
        (MemberAttributes { mtime: no_time, ..file(b"n") }, b"", "n: its time or its mode is none"),
        (
            MemberAttributes { xattrs: heavy, ..file(b"n") },
            b"",
            "n: its extended attributes are too long for a pack",
        ),
    ] {
        let (errno, said) = add(&mut pack, &of, content).unwrap_err();
        assert!(errno == Errno::INVAL && said.ends_with(why), "{said}");
    }
    add(&mut pack, &link(b"m"), b"").unwrap();
    let (tar, index) = pack.finish().unwrap();
    assert_eq!(verify_pack(&tar, &index), []);
    assert_eq!(content_of(&tar, index.find(b"n").unwrap()).unwrap(), b"first");
}

/// A file stays whole for its other names when its first one goes from the index.
#[test]
fn other_names_have_the_content_when_the_first_is_gone() {
    let link = |name: &[u8]| {
        let to = named(b"a");
        (MemberAttributes { kind: MemberKind::HardLink { to }, ..file(name, b"").0 }, Vec::new())
    };
    let sparse = [&[0; 4096][..], b"the end"].concat();
    for content in [&b"of three names"[..], &sparse] {
        let (tar, mut index) =
            packed(&[file(b"a", content), link(b"b"), file(b"c", b"x"), link(b"d")]);
        let length = content.len() as u64;
        assert_eq!((index.files().count(), index.content_bytes()), (2, length + 1));
        index.members.remove(0);
        index.generation = 1;
        let index = PackIndex::decode(&index.encode()).unwrap();
        assert_eq!((index.files().count(), index.content_bytes()), (2, length + 1));
        assert_eq!(verify_pack(&tar, &index), []);
        for name in [&b"b"[..], b"d"] {
            assert_eq!(whole_content(&tar, index.find(name).unwrap()), content);
        }
        // What is damaged is damaged for each name.
        let mut damaged = tar.clone();
        damaged[index.members[0].content_at() as usize + 3] ^= 1;
        let names: Vec<_> = verify_pack(&damaged, &index)
            .iter()
            .map(|found| found.name().unwrap().to_vec())
            .collect();
        assert_eq!(names, [b"b", b"d"]);
    }
}

/// A name of another file takes the place of none: what an index says of links is all true.
#[test]
fn link_with_another_content_is_refused() {
    let to = named(b"a");
    let link = MemberAttributes { kind: MemberKind::HardLink { to }, ..file(b"b", b"").0 };
    let (_, index) = packed(&[file(b"a", b"content"), (link, Vec::new()), file(b"c", b"content")]);
    let change = |change: &dyn Fn(&mut PackIndex)| {
        let mut index = index.clone();
        change(&mut index);
        PackIndex::decode(&index.encode()).unwrap_err().to_string()
    };
    let said = "the pack is damaged: its index says of b what cannot be";
    assert_eq!(change(&|index| index.members[1].size = 5), said);
    assert_eq!(change(&|index| index.members[1].digest = [0; 32]), said);
    assert_eq!(change(&|index| index.members[1].file_block = None), said);
    assert_eq!(change(&|index| index.members[1].file_block = Some(1)), said);
}

#[test]
fn holes_that_cannot_be_are_refused() {
    let mut pack = PackWriter::new(Vec::new(), ID);
    let of = MemberAttributes::new(named(b"name"), MemberKind::File, 0o600);
    let wrong: [(u64, &[(u64, u64)]); 7] = [
        (4096, &[(1, 512)]),
        (4096, &[(0, 511)]),
        (4096, &[(512, 1024), (0, 512)]),
        (4096, &[(0, 512), (512, 1024)]),
        (4096, &[(0, 4096)]),
        (4096, &[(0, 4608)]),
        (0, &[]),
    ];
    for (size, pieces) in wrong {
        let pieces: Vec<_> = pieces.iter().map(|&(start, end)| start..end).collect();
        let content =
            vec![1; pieces.iter().map(|piece| piece.end - piece.start).sum::<u64>() as usize];
        let error = pack.add_sparse(&of, size, &pieces, &content).unwrap_err();
        assert_eq!(error.to_string(), "name: its holes are not those of a file in a pack");
    }
    pack.add_sparse(&of, 4000, &[512..1024, 3584..4000], &[1; 928]).unwrap();
}

/// A device that is full says so.
#[test]
fn pack_write_to_full_device_fails_with_enospc() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut pack = PackWriter::new(full, ID);
    let (of, content) = file(b"name", b"content");
    assert_eq!(pack.add(&of, &content).unwrap_err().errno(), Errno::NOSPC);
}

#[test]
fn later_format_is_refused_as_such() {
    let (_, index) = packed(&[file(b"name", b"content")]);
    let mut bytes = index.encode();
    bytes[8] = 2;
    // Its number may be what is damaged, unless it ends as each version does.
    let error = PackIndex::decode(&bytes).unwrap_err();
    assert!(
        error.to_string().ends_with("its index is not as it was written (checksum)"),
        "{error}"
    );
    let end = bytes.len() - 48;
    let (body, footer) = bytes.split_at_mut(end);
    footer[..32].copy_from_slice(blake3::hash(body).as_bytes());
    let error = PackIndex::decode(&bytes).unwrap_err();
    assert!(matches!(error, PackError::Version { version: 2, known: 1 }), "{error}");
    let said = "the pack has format version 2, and this Sheaf knows them up to 1: use a later one";
    assert_eq!(error.to_string(), said);
}

/// A member that would be written elsewhere is no member.
#[test]
fn tar_with_paths_is_refused() {
    let (tar, _) = packed(&[file(b"name", b"content")]);
    for name in ["../x", "/etc", "..", "a/b", "."] {
        let mut tar = tar.clone();
        // The second header of the first member, behind the extended one and its block.
        tar[1024..1124].fill(0);
        tar[1024..1024 + name.len()].copy_from_slice(name.as_bytes());
        tar[1024 + 148..1024 + 156].fill(b' ');
        let sum: u32 = tar[1024..1536].iter().map(|&byte| u32::from(byte)).sum();
        tar[1024 + 148..1024 + 155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let error = scan_pack(&tar, ID).unwrap_err().to_string();
        let why = format!("has a member \"{name}\", which is no name in a directory at block 0");
        assert_eq!(error, format!("the pack is damaged: its tar {why}"));
    }
}

#[test]
fn no_pack_is_told_as_that() {
    let long = vec![0; 10 << 10];
    for tar in [&b""[..], b"text", &long] {
        let error = PackIndex::in_pack(tar).unwrap_err();
        assert_eq!(error.to_string(), "the pack is damaged: it does not end with an index");
        assert_eq!(error.errno(), Errno::BADMSG);
    }
    assert!(scan_pack(b"text", PackId([0; 16])).is_err());
}
