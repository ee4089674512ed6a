//! What is written is read.
use crate::made::{ID, file, members, packed};
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
    fn what_is_written_is_read(members in members()) {
        let (tar, index) = packed(&members);
        index.check().unwrap();
        prop_assert_eq!(&PackIndex::in_pack(&tar).unwrap(), &index);
        prop_assert_eq!(&PackIndex::decode(&index.encode()).unwrap(), &index);
        prop_assert_eq!(verify_pack(&tar, &index), []);

        prop_assert_eq!(index.members.len(), members.len());
        for ((attributes, content), member) in members.iter().zip(&index.members) {
            prop_assert_eq!(attributes, &member.attributes);
            prop_assert_eq!(content_of(&tar, member).unwrap(), &content[..]);
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
fn an_index_has_less_than_90_bytes_a_member_beside_its_name() {
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
fn what_cannot_be_a_member_leaves_the_pack_as_it_was() {
    let mut pack = PackWriter::new(Vec::new(), ID);
    let add = |pack: &mut PackWriter<_>, of: &MemberAttributes, content: &[u8]| {
        pack.add(of, content).map_err(|error| (error.errno(), error.to_string()))
    };
    let named = |name: &[u8]| MemberAttributes::new(name, MemberKind::File, 0o600);
    add(&mut pack, &named(b"m"), b"first").unwrap();
    let link = |to: &[u8]| MemberAttributes {
        kind: MemberKind::HardLink { to: to.to_owned() },
        ..named(b"n")
    };
    let heavy: Vec<_> = (0..600)
        .map(|number| (format!("user.{number:03}").into_bytes(), vec![1; 64 << 10]))
        .collect();
    let too_long = vec![0; MEMBER_BYTES_MAX + 1];
    let no_time = Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
    for (of, content, why) in [
        (named(b""), &b""[..], ": this is no name of a file"),
        (named(b".."), b"", "..: this is no name of a file"),
        (named(b"n/o"), b"", "n/o: this is no name of a file"),
        (named(b"n\0o"), b"", "n\\x00o: this is no name of a file"),
        (named(&[b'n'; 256]), b"", "n: this is no name of a file"),
        (named(INDEX_NAME), b"", ".sheaf-index: the index of a pack has this name"),
        (named(b"m"), b"", "m: it does not come behind the pack's last member"),
        (named(b"a"), b"", "a: it does not come behind the pack's last member"),
        (named(b"n"), &too_long, "n: it is too long for a pack"),
        (link(b"l"), b"", "n: the file that it is another name of is not in the pack"),
        (link(b"m"), b"x", "n: a file of this kind has no content"),
        (
            MemberAttributes { mtime: no_time, ..named(b"n") },
            b"",
            "n: its time or its mode is none",
        ),
        (
            MemberAttributes { xattrs: heavy, ..named(b"n") },
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
    let content = index.find(b"n").and_then(|link| link.whose_content(&index));
    assert_eq!(content_of(&tar, content.unwrap()).unwrap(), b"first");
}

/// A device that is full says so.
#[test]
fn what_cannot_be_written_is_told() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut pack = PackWriter::new(full, ID);
    let (of, content) = file(b"name", b"content");
    assert_eq!(pack.add(&of, &content).unwrap_err().errno(), Errno::NOSPC);
}

#[test]
fn a_later_format_is_refused_as_such() {
    let (_, index) = packed(&[file(b"name", b"content")]);
    let mut bytes = index.encode();
    bytes[8] = 2;
    let error = PackIndex::decode(&bytes).unwrap_err();
    assert!(matches!(error, PackError::Version { version: 2, known: 1 }), "{error}");
    let said = "the pack has format version 2, and this Sheaf knows them up to 1: use a later one";
    assert_eq!(error.to_string(), said);
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
