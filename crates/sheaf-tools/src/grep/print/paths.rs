//! Folding the paths of equal entries.
use crate::entry::{Entry, EntryKind, MergedEntry};
use rustc_hash::FxHashMap;
use sheaf_core::RangeSet;

/// The most paths that one printed line stands for.
pub const FOLDED_PATHS_MAX: usize = 64;

/// An entry at all paths where the same leaves have it.
pub struct Folded<'a> {
    pub paths: Vec<&'a [u8]>,
    pub entry: Entry<'a>,
    pub leaves: &'a RangeSet,
}

impl<'a> Folded<'a> {
    pub fn alone(entry: &MergedEntry<'a>) -> Self {
        Self { paths: vec![entry.path], entry: entry.entry, leaves: entry.leaves }
    }

    pub fn path(&self) -> Vec<u8> {
        fold_paths(&self.paths)
    }
}

/// The entries, each at the place where it is first, with all its paths.
pub fn fold_entries<'a>(entries: &[MergedEntry<'a>]) -> Vec<Folded<'a>> {
    let mut folded: Vec<Folded<'a>> = Vec::new();
    if entries.windows(2).all(|pair| pair[0].path == pair[1].path) {
        folded.extend(entries.iter().map(Folded::alone));
        return folded;
    }
    type Key<'a> = (EntryKind, Option<u64>, &'a [u8], &'a RangeSet);
    let mut first: FxHashMap<Key<'_>, usize> = FxHashMap::default();
    for found in entries {
        let Entry { kind, number, text } = found.entry;
        let fresh = folded.len();
        if is_foldable(found.path) {
            let at = first.entry((kind, number, text, found.leaves)).or_insert(fresh);
            if *at < fresh && folded[*at].paths.len() < FOLDED_PATHS_MAX {
                let paths = &mut folded[*at].paths;
                // A line that a file has twice (`--each`) stays at its path once.
                if paths.last() != Some(&found.path) {
                    paths.push(found.path);
                }
                continue;
            }
            *at = fresh;
        }
        folded.push(Folded::alone(found));
    }
    folded
}

fn is_foldable(path: &[u8]) -> bool {
    !path.iter().any(|byte| b"{},\\".contains(byte))
}

/// The paths in one word, as a shell would write them: what all have in front and behind (up to a
/// boundary of words), and what differs in braces.
///
/// ```
/// use sheaf_tools::grep::print::fold_paths;
/// let folded = |paths: &[&str]| {
///     let paths: Vec<&[u8]> = paths.iter().map(|path| path.as_bytes()).collect();
///     String::from_utf8(fold_paths(&paths)).unwrap()
/// };
/// assert_eq!(folded(&["/var/log/a.log", "/var/log/b.log"]), "/var/log/{a,b}.log");
/// assert_eq!(folded(&["/var/log/syslog", "/var/log/syslog.1"]), "/var/log/{syslog,syslog.1}");
/// ```
#[must_use]
pub fn fold_paths(paths: &[&[u8]]) -> Vec<u8> {
    let Some((first, rest)) = paths.split_first() else { return Vec::new() };
    if rest.is_empty() {
        return first.to_vec();
    }
    let is_boundary = |byte: u8| byte.is_ascii() && !byte.is_ascii_alphanumeric();
    let mut front = first.len();
    for path in rest {
        front = first.iter().zip(*path).take(front).take_while(|(a, b)| a == b).count();
    }
    while front > 0 && !is_boundary(first[front - 1]) {
        front -= 1;
    }
    // What is in front of all cannot be behind as well.
    let shortest = paths.iter().map(|path| path.len()).min().unwrap_or(0);
    let mut back = shortest - front;
    for path in rest {
        back = first
            .iter()
            .rev()
            .zip(path.iter().rev())
            .take(back)
            .take_while(|(a, b)| a == b)
            .count();
    }
    while back > 0 && !is_boundary(first[first.len() - back]) {
        back -= 1;
    }
    let mut out = first[..front].to_vec();
    for (at, path) in paths.iter().enumerate() {
        out.push(if at == 0 { b'{' } else { b',' });
        out.extend_from_slice(&path[front..path.len() - back]);
    }
    out.push(b'}');
    out.extend_from_slice(&first[first.len() - back..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn braces_expand_to_the_paths(
            paths in proptest::collection::btree_set(proptest::string::string_regex("[ab./é-]{1,8}").unwrap(), 1..6),
        ) {
            let bytes: Vec<&[u8]> = paths.iter().map(|path| path.as_bytes()).collect();
            let folded = String::from_utf8(fold_paths(&bytes)).unwrap();
            let expanded: Vec<String> = match folded.split_once('{') {
                None => vec![folded],
                Some((front, rest)) => {
                    let (middle, back) = rest.split_once('}').unwrap();
                    middle.split(',').map(|part| format!("{front}{part}{back}")).collect()
                }
            };
            prop_assert!(expanded.iter().eq(paths.iter()));
        }
    }
}
