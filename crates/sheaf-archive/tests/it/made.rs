//! Packs of members that are made up.
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use sheaf_archive::{INDEX_NAME, MemberAttributes, MemberKind, PackId, PackIndex, PackWriter};
use sheaf_core::files::Timestamp;

pub const ID: PackId = PackId(*b"a pack of a test");

/// A member, and its content.
pub type Made = (MemberAttributes, Vec<u8>);

/// A pack of these members.
pub fn packed(members: &[Made]) -> (Vec<u8>, PackIndex) {
    let mut pack = PackWriter::new(Vec::new(), ID);
    for (attributes, content) in members {
        pack.add(attributes, content).unwrap();
    }
    let before = pack.bytes();
    let (tar, index) = pack.finish().unwrap();
    assert_eq!(tar.len() % 512, 0);
    assert_eq!(before, index.member_blocks * 512);
    (tar, index)
}

/// A file that has something of everything.
pub fn file(name: &[u8], content: &[u8]) -> Made {
    let attributes = MemberAttributes {
        uid: 1000,
        gid: 100,
        mtime: Timestamp { seconds: 1_600_000_000, nanoseconds: 123_456_789 },
        ctime_ns: 1_600_000_001_000_000_007,
        ino: 77,
        ..MemberAttributes::new(name, MemberKind::File, 0o640)
    };
    (attributes, content.to_owned())
}

/// Any bytes that can be a name.
fn name_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = (1..=255u8).prop_map(|byte| if byte == b'/' { b'\n' } else { byte });
    let bytes = prop_oneof![vec(byte.clone(), 1..20), vec(byte, 95..=255)];
    bytes.prop_filter("is no name", |name| {
        !matches!(&name[..], b"." | b"..") && name[..] != *INDEX_NAME
    })
}

fn target() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(1..=255u8, 1..20), vec(1..=255u8, 90..300), vec(1..=255u8, 4095)]
}

fn kind() -> impl Strategy<Value = MemberKind> {
    let number = 0..1u32 << 20;
    prop_oneof![
        6 => Just(MemberKind::File),
        2 => target().prop_map(|target| MemberKind::Symlink { target }),
        1 => Just(MemberKind::Fifo),
        1 => (0..4096u32, number.clone())
            .prop_map(|(major, minor)| MemberKind::CharDevice { major, minor }),
        1 => (0..4096u32, number)
            .prop_map(|(major, minor)| MemberKind::BlockDevice { major, minor }),
    ]
}

fn mtime() -> impl Strategy<Value = Timestamp> {
    let seconds = prop_oneof![
        0..2_000_000_000i64,
        -2_000_000_000..0i64,
        Just(0o77_777_777_777),
        Just(0o100_000_000_000),
        i64::MIN / 2..i64::MAX / 2,
        Just(-1),
    ];
    let nanoseconds = prop_oneof![Just(0), Just(1), Just(999_999_999), 0..1_000_000_000u32];
    (seconds, nanoseconds).prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds })
}

fn xattrs() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let name = vec(prop_oneof![Just(b'='), Just(b'%'), Just(b'3'), 33..127u8], 1..30);
    let some = btree_map(name, vec(any::<u8>(), 0..300), 0..3);
    some.prop_map(|some| some.into_iter().collect())
}

/// A file in all that it may be, but for its name.
fn unnamed() -> impl Strategy<Value = Made> {
    let number = prop_oneof![0..3000u32, Just(0o7_777_777), Just(0o10_000_000), any::<u32>()];
    let owner = (number.clone(), number);
    let inode = (any::<u64>(), any::<u64>());
    let content = prop_oneof![vec(any::<u8>(), 0..10), vec(any::<u8>(), 500..1100)];
    (kind(), 0..=0o7777u32, owner, mtime(), inode, xattrs(), content).prop_map(
        |(kind, mode, (uid, gid), mtime, (ctime_ns, ino), xattrs, mut content)| {
            if kind != MemberKind::File {
                content.clear();
            }
            let name = Vec::new();
            let made =
                MemberAttributes { name, kind, mode, uid, gid, mtime, ctime_ns, ino, xattrs };
            (made, content)
        },
    )
}

/// Members in the order of their names, some of them second names of others.
pub fn members() -> impl Strategy<Value = Vec<Made>> {
    let some = btree_map(name_bytes(), (unnamed(), proptest::option::of(0..8usize)), 0..12);
    some.prop_map(|some| {
        let mut members: Vec<Made> = Vec::new();
        for (name, ((mut made, mut content), linked)) in some {
            made.name = name;
            if let Some((to, _)) = linked.and_then(|at| members.get(at))
                && to.kind == MemberKind::File
            {
                made.kind = MemberKind::HardLink { to: to.name.clone() };
                content.clear();
            }
            members.push((made, content));
        }
        members
    })
}
