//! Each byte of a pack is another one, and what it costs is known.
use crate::made::{ID, Made, file, named, packed};
use sheaf_archive::{
    Difference, MemberAttributes, MemberKind, PackIndex, content_of, scan_pack, verify_pack,
};

fn some() -> Vec<Made> {
    let mut long = file(&[b'b'; 150], &[b'x'; 700]);
    long.0.xattrs = vec![(b"user.note".to_vec(), b"value".to_vec())];
    let link = MemberKind::Symlink { target: b"elsewhere".to_vec() };
    let empty = (MemberAttributes::new(named(b"empty"), MemberKind::File, 0o600), Vec::new());
    vec![
        file(b"a", b"content"),
        long,
        (MemberAttributes::new(named(b"c"), link, 0o777), Vec::new()),
        file(b"d", &[7; 512]),
        empty,
    ]
}

#[test]
fn flipped_byte_is_found_and_costs_the_member_it_is_of() {
    let (tar, index) = packed(&some());
    for at in 0..tar.len() {
        let mut flipped = tar.clone();
        flipped[at] ^= 1 << (at % 8);
        let found = verify_pack(&flipped, &index);
        let block = (at / 512) as u64;
        let of = index.members.iter().rfind(|member| u64::from(member.first_block) <= block);
        let of = of.filter(|_| block < index.member_blocks);
        let [found] = &found[..] else { panic!("byte {at}: {found:?}") };
        assert_eq!(found.name(), of.map(|of| &of.attributes.name[..]), "byte {at}");
        for member in &index.members {
            let is_content =
                matches!(found, Difference::Content { name } if *name == *member.attributes.name);
            assert_eq!(content_of(&flipped, member).is_err(), is_content, "byte {at}");
        }
    }
}

#[test]
fn no_flipped_byte_of_an_index_is_believed() {
    let (_, index) = packed(&some());
    let bytes = index.encode();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(PackIndex::decode(&flipped).is_err(), "byte {at} of {}", bytes.len());
    }
    for length in 0..bytes.len() {
        assert!(PackIndex::decode(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
    }
}

/// What is said by an index that has its checksum, and was not written by a writer.
#[test]
fn index_that_says_what_cannot_be_is_refused() {
    let (_, index) = packed(&some());
    let mut same = index.clone();
    same.members.swap(0, 1);
    let mut early = index.clone();
    early.members[1].first_block = 0;
    let mut far = index.clone();
    far.members[4].size = 1 << 40;
    let mut huge = index.clone();
    (huge.members[4].size, huge.member_blocks) = (3 << 30, 1 << 30);
    let mut headless = index;
    headless.members[2].header_blocks = 0;
    for wrong in [same, early, far, huge, headless] {
        let said = wrong.check().unwrap_err();
        let error = PackIndex::decode(&wrong.encode()).unwrap_err();
        assert_eq!(error.to_string(), format!("the pack is damaged: its index {said}"));
    }
}

/// No name leads out of its directory, whoever made the index.
#[test]
fn index_with_a_name_that_leads_elsewhere_is_refused() {
    let (_, index) = packed(&[file(b"aaaa", b"content")]);
    let encoded = index.encode();
    let at = encoded.windows(4).position(|bytes| bytes == b"aaaa").unwrap();
    for no_name in [b"../x", b"/etc", b"a/b/", b"aaa\0"] {
        let mut wrong = encoded.clone();
        wrong[at..at + 4].copy_from_slice(no_name);
        let body = wrong.len() - 48;
        let digest = *blake3::hash(&wrong[..body]).as_bytes();
        wrong[body..body + 32].copy_from_slice(&digest);
        let error = PackIndex::decode(&wrong).unwrap_err().to_string();
        assert!(error.ends_with("something that is no name of a file"), "{error}");
    }
}

/// A pack that was cut off is told, and what is in it before that is there.
#[test]
fn pack_that_is_cut_off_keeps_what_is_before() {
    let (tar, index) = packed(&some());
    for length in (0..tar.len()).step_by(64) {
        let cut = &tar[..length];
        assert!(PackIndex::in_pack(cut).is_err() && !verify_pack(cut, &index).is_empty());
        for member in &index.members {
            let end = (member.content_at() + member.size) as usize;
            assert_eq!(content_of(cut, member).is_ok(), end <= length, "{length}");
        }
        match scan_pack(cut, ID) {
            Ok(found) => assert_eq!(found.members.len(), index.members.len(), "{length}"),
            Err(error) => assert!(error.to_string().contains("is cut off at block"), "{error}"),
        }
    }
}
