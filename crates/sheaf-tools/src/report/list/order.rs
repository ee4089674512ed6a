//! The order of a listing to which many hosts have said something.
use super::{ListOptions, Sort, version};
use rustc_hash::FxHashMap;
use sheaf_group::entry::{EntryKind, MergedEntry};
use std::cmp::{Ordering, Reverse};

/// What directories that were named themselves are sorted by: the largest first.
type Key = (i64, u32);

/// A directory, and what is in it.
type Section<'a> = (&'a [u8], Vec<MergedEntry<'a>>);

/// The text of the entry that says by what a directory that was named is sorted.
pub fn key_text((first, second): Key) -> String {
    format!("{first} {second}")
}

fn key(text: &[u8]) -> Option<Key> {
    let (first, second) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// See [`Row::sort`](super::Row::sort).
pub fn sort(options: &ListOptions, entries: &mut Vec<MergedEntry<'_>>) {
    let mut keys: FxHashMap<&[u8], Key> = FxHashMap::default();
    for entry in entries.iter().filter(|entry| entry.entry.kind == EntryKind::Path) {
        // Of hosts that differ, the newest and the largest decide.
        if let Some(key) = key(entry.entry.text) {
            keys.entry(entry.path).and_modify(|have| *have = key.max(*have)).or_insert(key);
        }
    }
    entries.retain(|entry| entry.entry.kind != EntryKind::Path);
    let sections = entries.chunk_by(|a, b| a.path == b.path);
    let mut sections: Vec<Section<'_>> =
        sections.map(|section| (section[0].path, section.to_vec())).collect();
    for (_, rows) in &mut sections {
        sort_rows(options, rows);
    }
    let (mut tops, below) = nested(options, &sections);
    tops.sort_by(|&a, &b| {
        let (a, b) = (sections[a].0, sections[b].0);
        // Files that were named are above all directories.
        let files = b.is_empty().cmp(&a.is_empty());
        let order = by_sort(options, &keys, a, b);
        files.then(if options.reverse { order.reverse() } else { order })
    });
    let mut sorted = Vec::with_capacity(entries.len());
    let mut next: Vec<usize> = tops.into_iter().rev().collect();
    while let Some(at) = next.pop() {
        sorted.append(&mut sections[at].1);
        next.extend(below[at].iter().rev());
    }
    *entries = sorted;
}

/// The sections that are below no other, and those right below each one in the order of its rows.
fn nested(options: &ListOptions, sections: &[Section<'_>]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut below = vec![Vec::new(); sections.len()];
    if !options.recursive {
        return ((0..sections.len()).collect(), below);
    }
    let places: FxHashMap<&[u8], usize> =
        sections.iter().enumerate().map(|(at, (path, _))| (*path, at)).collect();
    let mut is_below = vec![false; sections.len()];
    for (at, (path, rows)) in sections.iter().enumerate().filter(|(_, (path, _))| !path.is_empty())
    {
        let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
        for row in rows {
            let below_it = [path, slash, name(options, row)].concat();
            if let Some(&child) = places.get(&below_it[..])
                && !std::mem::replace(&mut is_below[child], true)
            {
                below[at].push(child);
            }
        }
    }
    ((0..sections.len()).filter(|&at| !is_below[at]).collect(), below)
}

/// Each host's rows are in order, but where a host has rows of its own, the rows behind them have
/// different positions. What is in the order of names can be put right.
fn sort_rows(options: &ListOptions, rows: &mut [MergedEntry<'_>]) {
    let order: fn(&[u8], &[u8]) -> Ordering = match options.sort {
        Sort::Name => |a, b| a.cmp(b),
        Sort::Version => version::compare,
        _ => return,
    };
    rows.sort_by(|a, b| order(name(options, a), name(options, b)));
    if options.reverse {
        rows.reverse();
    }
}

fn by_sort(options: &ListOptions, keys: &FxHashMap<&[u8], Key>, a: &[u8], b: &[u8]) -> Ordering {
    match options.sort {
        Sort::None => Ordering::Equal,
        Sort::Name => a.cmp(b),
        Sort::Version => version::compare(a, b),
        Sort::Extension => (super::extension(a), a).cmp(&(super::extension(b), b)),
        Sort::Time | Sort::Size => {
            let newest_first = |path: &[u8]| Reverse(keys.get(path).copied());
            newest_first(a).cmp(&newest_first(b)).then_with(|| a.cmp(b))
        }
    }
}

/// The name in a row's text.
fn name<'a>(options: &ListOptions, row: &MergedEntry<'a>) -> &'a [u8] {
    let name = row.entry.text.splitn(options.columns() + 1, |&byte| byte == b'\t').last();
    name.unwrap_or_default().split(|&byte| byte == 0).next().unwrap_or_default()
}
