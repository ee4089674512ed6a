//! Access control lists: in the file system a binary extended attribute, in a tar a text as `tar --acls`
//! and bsdtar read it, with numbers for users and groups.
use std::fmt::Write as _;

/// Names of the extended attributes, and of the records in a tar.
pub(crate) const ACLS: [(&[u8], &[u8]); 2] = [
    (b"system.posix_acl_access", b"SCHILY.acl.access"),
    (b"system.posix_acl_default", b"SCHILY.acl.default"),
];

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
/// What has no number of a user or a group.
const NO_ID: u32 = u32::MAX;

/// What an entry is of: its tag, its name, and whether a number is said.
const TAGS: [(u16, &str, bool); 6] = [
    (0x01, "user", false),
    (0x02, "user", true),
    (0x04, "group", false),
    (0x08, "group", true),
    (0x10, "mask", false),
    (0x20, "other", false),
];

/// The text of a list; nothing if it is none that [`value_of`] makes the same of.
pub(crate) fn text_of(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.is_empty() {
        return None;
    }
    let mut text = String::new();
    for entry in entries.chunks(ENTRY_BYTES) {
        let &[tag_low, tag_high, bits, 0, ref id @ ..] = entry else { return None };
        let tag = u16::from_le_bytes([tag_low, tag_high]);
        let id = u32::from_le_bytes(id.try_into().ok()?);
        let &(_, name, has_id) = TAGS.iter().find(|(known, ..)| *known == tag)?;
        if bits > 7 || has_id == (id == NO_ID) {
            return None;
        }
        let id = if has_id { id.to_string() } else { String::new() };
        let bit = |bit, letter| if bits & bit == 0 { '-' } else { letter };
        let (read, write, execute) = (bit(4, 'r'), bit(2, 'w'), bit(1, 'x'));
        let comma = if text.is_empty() { "" } else { "," };
        // Texts take what is written to them.
        let _ = write!(text, "{comma}{name}:{id}:{read}{write}{execute}");
    }
    Some(text)
}

/// The list that a text says.
pub(crate) fn value_of(text: &[u8]) -> Option<Vec<u8>> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in std::str::from_utf8(text).ok()?.split(',') {
        let mut fields = entry.split(':');
        let (name, id, bits) = (fields.next()?, fields.next()?, fields.next()?);
        if fields.next().is_some() || bits.len() != 3 {
            return None;
        }
        let &(tag, ..) =
            TAGS.iter().find(|(_, known, has_id)| *known == name && *has_id != id.is_empty())?;
        let id = if id.is_empty() { NO_ID } else { id.parse().ok().filter(|id| *id != NO_ID)? };
        let mut mode = 0u16;
        for (at, letter) in bits.bytes().enumerate() {
            match letter {
                b'-' => {}
                letter if letter == b"rwx"[at] => mode |= 4 >> at,
                _ => return None,
            }
        }
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&mode.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::{text_of, value_of};

    #[test]
    fn list_is_the_same_again() {
        let text = "user::rwx,user:1000:r-x,group::r--,group:4294967294:-w-,mask::rwx,other::--x";
        let value = value_of(text.as_bytes()).unwrap();
        assert_eq!(text_of(&value).as_deref(), Some(text));
    }

    #[test]
    fn malformed_acl_values_and_texts_are_rejected() {
        let value = value_of(b"user::rwx,group::r-x,other::---").unwrap();
        for at in 0..value.len() {
            let is_whole = at > 4 && at % 8 == 4;
            assert_eq!(text_of(&value[..at]).is_some(), is_whole, "{at}");
        }
        for (at, byte) in [(0, 3), (4, 3), (6, 8), (7, 1), (8, 1)] {
            let mut value = value.clone();
            value[at] = byte;
            assert_eq!(text_of(&value), None, "{at}");
        }
        for text in
            ["", "user::rw", "user::rwxr", "user::wrx", "who::rwx", "mask:1:rwx", "user:x:rwx"]
        {
            assert_eq!(value_of(text.as_bytes()), None, "{text}");
        }
    }
}
