//! Names in the merge of all hosts: `NAME@data` is a file of the group that `NAME` is.
//!
//! A name of a host that looks like that has one `@` more: `x@@data` is what hosts call `x@data`. So a name that ends
//! with `@` has no files of its group here.
use crate::combined::GroupFile;

/// A name, as hosts have it, and the file of its group that is meant. A file of a group is no group.
pub(super) fn parse(name: &[u8]) -> Option<(Vec<u8>, Option<GroupFile>)> {
    match suffix(name) {
        None => Some((name.to_vec(), None)),
        Some((stem, 1, file, _)) => match parse(stem)? {
            (own, None) => Some((own, Some(file))),
            (_, Some(_)) => None,
        },
        Some((stem, ats, _, word)) => Some(([stem, &b"@".repeat(ats - 1), word].concat(), None)),
    }
}

/// The name by which what hosts call `name` is found.
pub(super) fn shown(name: &[u8]) -> Vec<u8> {
    match suffix(name) {
        None => name.to_vec(),
        Some((stem, ats, _, word)) => [stem, &b"@".repeat(ats + 1), word].concat(),
    }
}

/// What stands before the last `@` signs, how many of them, and the file that is named behind them.
fn suffix(name: &[u8]) -> Option<(&[u8], usize, GroupFile, &[u8])> {
    let at = name.iter().rposition(|byte| *byte == b'@')?;
    let word = &name[at + 1..];
    let file = GroupFile::named(word).filter(|file| *file != GroupFile::Ctl)?;
    let ats = name[..=at].iter().rev().take_while(|byte| **byte == b'@').count();
    let stem = &name[..at + 1 - ats];
    Some((stem, ats, file, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_names_parse_back_to_the_same_file() {
        let names: [&[u8]; 8] =
            [b"a", b"a@b", b"a@data", b"a@@data", b"@data", b"@", b"a@ctl", b"a@data@lines"];
        for name in names {
            let text = name.escape_ascii().to_string();
            assert_eq!(parse(&shown(name)), Some((name.to_vec(), None)), "{text}");
            if name.ends_with(b"@") {
                continue;
            }
            let of_group = [&shown(name)[..], b"@sum"].concat();
            let expected = Some((name.to_vec(), Some(GroupFile::Sum)));
            assert_eq!(parse(&of_group), expected, "{text}");
        }
        assert_eq!(parse(b"a@data"), Some((b"a".to_vec(), Some(GroupFile::Data))));
        assert_eq!(parse(b"a@@data"), Some((b"a@data".to_vec(), None)));
        assert_eq!(parse(b"a@data@lines"), None);
        assert_eq!(parse(b"@sum"), Some((Vec::new(), Some(GroupFile::Sum))));
        assert_eq!(shown(b"a@data"), b"a@@data");
        assert_eq!(shown(b"a@mail"), b"a@mail");
    }
}
