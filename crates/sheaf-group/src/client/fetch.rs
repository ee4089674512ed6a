//! Second trip of an equivalence: one body of each class that did not come along.
//!
//! Digests come first. The first leaf that is asked sends its body with its digest, so one trip is
//! enough if all bodies are equal. Otherwise the root asks one leaf of each class, and another one
//! if that leaf is lost. Inner nodes never ask their children for bodies.
use super::{Class, Client};
use crate::aggregate::{ClassState, Classes, Data, is_of};
use crate::entry::{ANSWER_BYTES_MAX, MergeError, Merged};
use crate::error::GroupError;
use crate::message::Request;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::Stream;
use std::collections::HashMap;

/// The most bytes of bodies that one trip brings.
const FETCH_BYTES: u64 = 8 << 20;

/// Hosts of a class that are asked for its body, one after the other.
const CANDIDATES_MAX: usize = 8;

/// The longest content of one member: that of a tool's answer, or of a read, with what is around
/// it. A host that announces a longer one has not answered.
const BODY_BYTES_MAX: u64 = ANSWER_BYTES_MAX as u64 + (1 << 20);

/// Classes with their bodies.
pub(super) struct FetchedBodies {
    pub classes: Vec<Class>,
    /// Hosts whose answer is not what they announced.
    pub garbled: RangeSet,
    /// Hosts that were asked for an answer and sent none that decodes, which the tree has counted.
    pub refused: RangeSet,
    /// Hosts of which each alone has announced more than there is room for.
    pub too_long: RangeSet,
}

/// Leaves whose lines could not be folded.
pub(super) struct LostLines {
    /// Leaves whose answer could not be had, and why.
    pub lost: Vec<(Errno, RangeSet)>,
    /// Hosts whose answer does not decode.
    pub garbled: RangeSet,
}

/// A class whose body is still missing, and who may be asked.
struct Wanted {
    place: usize,
    candidates: Vec<(u32, u32)>,
    len: u64,
}

/// Gives every class of the answer to request `of` its body, as far as someone who has it still
/// answers. Nobody else may ask the stream for anything that keeps bodies before this is done.
pub(super) async fn bodies(
    client: &Client,
    stream: &Stream,
    of: u64,
    classes: Classes,
    most: Option<&HashMap<u32, u64>>,
) -> Result<FetchedBodies, GroupError> {
    let mut garbled = RangeSet::new();
    let mut all: Vec<Class> = classes
        .into_sorted()
        .into_iter()
        .map(|(digest, class)| Class {
            members: class.members,
            digest,
            len: class.len,
            body: class.body,
        })
        .collect();
    all.retain_mut(|class| {
        if most.is_none() && class.len <= BODY_BYTES_MAX {
            return true;
        }
        let may_say = |leaf: &u32| {
            let most = most.map_or(u64::MAX, |most| most.get(leaf).copied().unwrap_or(0));
            class.len <= most.min(BODY_BYTES_MAX)
        };
        let wrong: RangeSet = class.members.leaves().iter().filter(|leaf| !may_say(leaf)).collect();
        class.members.remove_leaves(&wrong);
        garbled.union_with(&wrong);
        !class.members.is_empty()
    });
    let bytes_max = client.limits().bytes_max;
    let bytes = |all: &[Class]| all.iter().fold(0, |sum: u64, class| sum.saturating_add(class.len));
    let mut too_long = RangeSet::new();
    if bytes(&all) > bytes_max {
        too_long = longer_than(&all, bytes_max);
        all.iter_mut().for_each(|class| class.members.remove_leaves(&too_long));
        all.retain(|class| !class.members.is_empty());
        if all.is_empty() || bytes(&all) > bytes_max {
            return Err(GroupError::TooLarge { bytes_max });
        }
    }
    let mut fetched = FetchedBodies { classes: all, garbled, refused: RangeSet::new(), too_long };
    fetch(client, stream, of, &mut fetched, false).await?;
    Ok(fetched)
}

/// The hosts of which each alone has announced more than so many bytes.
fn longer_than(all: &[Class], bytes_max: u64) -> RangeSet {
    let mut announced: HashMap<u32, u64> = HashMap::new();
    for class in all {
        for (_, leaves) in class.members.by_local() {
            for leaf in leaves.iter() {
                let sum = announced.entry(leaf).or_default();
                *sum = sum.saturating_add(class.len);
            }
        }
    }
    announced.into_iter().filter(|(_, sum)| *sum > bytes_max).map(|(leaf, _)| leaf).collect()
}

/// Gives classes their bodies. What a host sends counts only if it is what was announced by all
/// of its class. With `whole` the answer of each leaf is meant, and not that of its members.
async fn fetch(
    client: &Client,
    stream: &Stream,
    of: u64,
    FetchedBodies { classes: all, garbled, refused, .. }: &mut FetchedBodies,
    whole: bool,
) -> Result<(), GroupError> {
    let mut wanted = wanted(all);
    while !wanted.is_empty() && client.is_over().is_none() {
        let (trip, locals) = next_trip(&wanted);
        let leaves: RangeSet = trip.iter().map(|(leaf, _)| *leaf).collect();
        // A host sends what it has announced, which is bounded; so nothing need be dropped of what
        // honest ones send. Of whole answers the text counts for the session's bound, once it is
        // folded.
        let bytes_max = leaves.len().saturating_mul(BODY_BYTES_MAX);
        let locals = if whole { RangeSet::new() } else { locals };
        let request = Request::Fetch { of, leaves, lines: false, bytes_max, locals };
        let (mut partial, wave) = client.ask(stream, &request, b"").await?;
        garbled.union_with(&partial.keep(|data| matches!(data, Data::Packed(_))));
        let items = match partial.data {
            Data::Packed(packed) => packed.items,
            _ => Vec::new(),
        };
        for (leaf, local, bytes) in items {
            let class = wanted.iter().find(|want| want.candidates.first() == Some(&(leaf, local)));
            let Some(class) = class.map(|want| &mut all[want.place]) else { continue };
            if is_of(&bytes, &class.digest, class.len) {
                class.body = Some(bytes);
            } else {
                garbled.insert(leaf);
            }
        }
        for (errno, leaves) in &wave.coverage.failed {
            // More than it was asked for is no answer either.
            if matches!(*errno, Errno::PROTO | Errno::MSGSIZE) {
                refused.union_with(leaves);
            }
        }
        // It was asked for what it has announced, and sent something else, or nothing.
        let unsaid = trip.iter().filter(|asked| {
            wave.coverage.ok.contains(asked.0)
                && wanted.iter().any(|want| {
                    want.candidates.first() == Some(*asked) && all[want.place].body.is_none()
                })
        });
        unsaid.for_each(|(leaf, _)| garbled.insert(*leaf));
        // Whoever was asked and did not give it is not asked again.
        for want in &mut wanted {
            if want.candidates.first().is_some_and(|first| trip.contains(first)) {
                let (leaf, _) = want.candidates.remove(0);
                if all[want.place].body.is_none() {
                    let left = want.candidates.len();
                    tracing::debug!(leaf, left, "a content was not had from a host that has it");
                }
            }
        }
        wanted.retain(|want| all[want.place].body.is_none() && !want.candidates.is_empty());
    }
    Ok(())
}

/// Folds the answers to request `of` into `merged`: bodies that came along at once, those that
/// several hosts have once one of them has sent it, the others line by line in the tree, where each
/// host speaks for itself. Others keep off the stream as with [`bodies`].
pub(super) async fn lines(
    client: &Client,
    stream: &Stream,
    of: u64,
    classes: Classes,
    merged: &mut Merged,
) -> Result<LostLines, GroupError> {
    let mut lost = LostLines { lost: Vec::new(), garbled: RangeSet::new() };
    let (mut alone, mut shared) = (Vec::new(), Vec::new());
    for (digest, ClassState { len, members, body }) in classes.into_sorted() {
        let leaves = members.leaves();
        match body {
            // Hosts that are at work, and have nothing to say yet.
            Some(body) if body.is_empty() => {}
            Some(body) => {
                if !is_folded(merged.fold_raw_set(&leaves, &body))? {
                    lost.garbled.union_with(&leaves);
                }
            }
            None if len > BODY_BYTES_MAX => lost.garbled.union_with(&leaves),
            None if leaves.len() == 1 => alone.push((leaves, len)),
            None => shared.push(Class { members, digest, len, body: None }),
        }
    }
    while !shared.is_empty() {
        let classes = take_trip(&mut shared, |class| class.len);
        let mut fetched = FetchedBodies {
            classes,
            garbled: RangeSet::new(),
            refused: RangeSet::new(),
            too_long: RangeSet::new(),
        };
        fetch(client, stream, of, &mut fetched, true).await?;
        lost.garbled.union_with(&fetched.garbled);
        lost.lost.push((Errno::PROTO, fetched.refused));
        for class in fetched.classes {
            let leaves = class.members.leaves();
            match class.body {
                Some(body) if is_folded(merged.fold_raw_set(&leaves, &body))? => {}
                Some(_) => lost.garbled.union_with(&leaves),
                None => lost.lost.push((client.is_over().unwrap_or(Errno::HOSTDOWN), leaves)),
            }
        }
    }
    while !alone.is_empty() {
        let mut leaves = RangeSet::new();
        take_trip(&mut alone, |(_, len)| *len).iter().for_each(|(leaf, _)| leaves.union_with(leaf));
        if let Some(errno) = client.is_over() {
            lost.lost.push((errno, leaves));
            continue;
        }
        let (bytes_max, locals) = (client.limits().bytes_max, RangeSet::new());
        let asked = leaves.clone();
        let request = Request::Fetch { of, leaves: asked, lines: true, bytes_max, locals };
        let (mut partial, wave) = client.ask(stream, &request, b"").await?;
        lost.garbled.union_with(&partial.keep(|data| matches!(data, Data::Lines(_))));
        if let Data::Lines(answer) = partial.data {
            let mut bytes = Vec::new();
            answer.encode_partial(&mut bytes);
            if !is_folded(merged.fold_partial(&bytes))? {
                lost.garbled.union_with(&answer.leaves());
            }
        }
        let missing = wave.coverage.failed.iter().chain(&wave.coverage.silent);
        for (errno, missing) in missing {
            lost.lost.push((*errno, missing.intersection(&leaves)));
        }
    }
    lost.lost.retain(|(_, leaves)| !leaves.is_empty());
    Ok(lost)
}

/// Takes the first ones off, as many as one trip brings.
fn take_trip<T>(rest: &mut Vec<T>, len: impl Fn(&T) -> u64) -> Vec<T> {
    let (mut bytes, mut count) = (0, 0);
    while count < rest.len() && (count == 0 || bytes + len(&rest[count]) <= FETCH_BYTES) {
        bytes += len(&rest[count]);
        count += 1;
    }
    rest.drain(..count).collect()
}

/// Whether an answer was folded. Of one that does not decode nothing was.
fn is_folded(result: Result<(), MergeError>) -> Result<bool, GroupError> {
    match result {
        Ok(()) => Ok(true),
        Err(MergeError::Malformed | MergeError::Mixed) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn wanted(all: &[Class]) -> Vec<Wanted> {
    let missing = all.iter().enumerate().filter(|(_, class)| class.body.is_none());
    missing
        .map(|(place, class)| {
            let members = |set: &MemberSet| {
                let each = set
                    .by_local()
                    .iter()
                    .flat_map(|(local, leaves)| leaves.iter().map(|leaf| (leaf, *local)));
                let mut each: Vec<(u32, u32)> = each.collect();
                each.sort_unstable();
                // One of many members of a host would say no other than the first.
                each.dedup_by_key(|(leaf, _)| *leaf);
                each.truncate(CANDIDATES_MAX);
                each
            };
            Wanted { place, candidates: members(&class.members), len: class.len }
        })
        .collect()
}

/// The members to ask in one trip: all of one local index, so that no others answer with them.
fn next_trip(wanted: &[Wanted]) -> (Vec<(u32, u32)>, RangeSet) {
    let Some((_, local)) = wanted.first().and_then(|want| want.candidates.first()).copied() else {
        return (Vec::new(), RangeSet::new());
    };
    let (mut trip, mut bytes) = (Vec::new(), 0);
    for want in wanted {
        let Some(&first) = want.candidates.first().filter(|(_, other)| *other == local) else {
            continue;
        };
        // A leaf with two classes under one local index cannot be; each is asked for one body.
        if !trip.is_empty() && bytes + want.len > FETCH_BYTES {
            break;
        }
        bytes += want.len;
        trip.push(first);
    }
    (trip, RangeSet::single(local))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(members: MemberSet, len: u64) -> Class {
        Class { members, digest: [7; 32], len, body: None }
    }

    /// A host that claims a content under many members is asked for it once.
    #[test]
    fn candidates_are_of_different_hosts() {
        let mut members = MemberSet::of_leaves(0, RangeSet::from_range(3, 6));
        for local in 0..20 {
            members.union_with(&MemberSet::of_leaves(local, RangeSet::single(2)));
        }
        let wanted = wanted(&[class(members, 1)]);
        assert_eq!(wanted[0].candidates, [(2, 0), (3, 0), (4, 0), (5, 0)]);
    }

    #[test]
    fn host_that_announces_too_much_is_found() {
        let own = |local, leaves| MemberSet::of_leaves(local, leaves);
        let mut all = vec![class(own(0, RangeSet::from_range(0, 5)), 60)];
        all.extend((1..5).map(|local| class(own(local, RangeSet::single(2)), 60)));
        all.push(class(own(1, RangeSet::single(3)), 40));
        assert_eq!(longer_than(&all, 100), RangeSet::single(2));
        assert_eq!(longer_than(&all, 99), RangeSet::from_range(2, 4));
        assert_eq!(longer_than(&all, 300), RangeSet::new());
    }
}
