//! Packs of members that are made up.
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use sheaf_archive::{
    FileName, INDEX_NAME, MemberAttributes, MemberKind, PackId, PackIndex, PackWriter,
    PackedMember, content_of,
};
use sheaf_core::files::Timestamp;
use std::ops::Range;

pub const ID: PackId = PackId(*b"a pack of a test");

/// A member, and its content. Where that has blocks of zeros, they are holes.
pub type Made = (MemberAttributes, Vec<u8>);

/// A pack of these members.
pub fn packed(members: &[Made]) -> (Vec<u8>, PackIndex) {
    let mut pack = PackWriter::new(Vec::new(), ID);
    for (attributes, content) in members {
        match pieces(content) {
            Some(pieces) => {
                let stored: Vec<_> = pieces.iter().map(|piece| &content[within(piece)]).collect();
                let size = content.len() as u64;
                pack.add_sparse(attributes, size, &pieces, &stored.concat()).unwrap();
            }
            None => pack.add(attributes, content).unwrap(),
        }
    }
    let before = pack.bytes();
    let (tar, index) = pack.finish().unwrap();
    assert_eq!(tar.len() % 512, 0);
    assert_eq!(before, index.member_blocks * 512);
    (tar, index)
}

fn within(piece: &Range<u64>) -> Range<usize> {
    piece.start as usize..piece.end as usize
}

/// What is no block of zeros; nothing if there is none.
fn pieces(content: &[u8]) -> Option<Vec<Range<u64>>> {
    let mut pieces: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    for block in content.chunks(512) {
        let end = at + block.len() as u64;
        if block.len() < 512 || block.iter().any(|&byte| byte != 0) {
            match pieces.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => pieces.push(at..end),
            }
        }
        at = end;
    }
    let stored: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    (stored < at).then_some(pieces)
}

/// The content of a member with its holes.
pub fn whole_content(tar: &[u8], member: &PackedMember) -> Vec<u8> {
    let mut whole = vec![0; member.size as usize];
    let mut stored = content_of(tar, member).unwrap();
    for piece in member.stored_extents() {
        let (here, rest) = stored.split_at((piece.end - piece.start) as usize);
        whole[within(&piece)].copy_from_slice(here);
        stored = rest;
    }
    assert!(stored.is_empty());
    whole
}

/// A file that has something of everything.
pub fn file(name: &[u8], content: &[u8]) -> Made {
    let attributes = MemberAttributes {
        uid: 1000,
        gid: 100,
        mtime: Timestamp { seconds: 1_600_000_000, nanoseconds: 123_456_789 },
        ctime_ns: 1_600_000_001_000_000_007,
        ino: 77,
        ..MemberAttributes::new(named(name), MemberKind::File, 0o640)
    };
    (attributes, content.to_owned())
}

/// A name.
pub fn named(name: &[u8]) -> FileName {
    FileName::new(name).unwrap()
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
    (some, proptest::option::weighted(0.2, acl())).prop_map(|(mut some, acl)| {
        some.extend(acl.map(|acl| (b"system.posix_acl_access".to_vec(), acl)));
        some.into_iter().collect()
    })
}

/// An access control list as the system has it, or bytes that are none.
pub fn acl() -> impl Strategy<Value = Vec<u8>> {
    let entry = |tag: u16, bits: u16, id: u32| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let named = btree_map(0..u32::MAX, 0..8u16, 0..3);
    let list = (0..8u16, named.clone(), 0..8u16, named, 0..8u16, 0..8u16).prop_map(
        move |(user, users, group, groups, mask, other)| {
            let mut list = vec![2u32.to_le_bytes().to_vec(), entry(1, user, u32::MAX)];
            list.extend(users.into_iter().map(|(id, bits)| entry(2, bits, id)));
            list.push(entry(4, group, u32::MAX));
            list.extend(groups.into_iter().map(|(id, bits)| entry(8, bits, id)));
            list.push(entry(16, mask, u32::MAX));
            list.push(entry(32, other, u32::MAX));
            list.concat()
        },
    );
    prop_oneof![9 => list, 1 => vec(any::<u8>(), 0..40)]
}

/// Blocks of which some are holes, and a rest.
fn holes() -> impl Strategy<Value = Vec<u8>> {
    let block = prop_oneof![Just(0u8), 1..=255u8];
    (vec(block, 1..40), 0..512usize, any::<bool>()).prop_map(|(blocks, rest, is_zero)| {
        let mut content: Vec<u8> = blocks.iter().flat_map(|&byte| [byte; 512]).collect();
        content.resize(content.len() + rest, if is_zero { 0 } else { 7 });
        content
    })
}

/// A file in all that it may be, but for its name.
fn unnamed() -> impl Strategy<Value = Made> {
    let number = prop_oneof![0..3000u32, Just(0o7_777_777), Just(0o10_000_000), any::<u32>()];
    let owner = (number.clone(), number);
    let inode = (any::<u64>(), any::<u64>());
    let content = prop_oneof![vec(any::<u8>(), 0..10), vec(any::<u8>(), 500..1100), holes()];
    (kind(), 0..=0o7777u32, owner, mtime(), inode, xattrs(), content).prop_map(
        |(kind, mode, (uid, gid), mtime, (ctime_ns, ino), xattrs, mut content)| {
            if kind != MemberKind::File {
                content.clear();
            }
            let name = named(b"unnamed");
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
            made.name = named(&name);
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
