//! Second trip of an equivalence: one body of each class that did not come along.
//!
//! Digests come first. The first leaf that is asked sends its body with its digest, so one trip is
//! enough if all bodies are equal. Otherwise the root asks one leaf of each class, and another one
//! if that leaf is lost. Inner nodes never ask their children for bodies.
use super::{Class, Client};
use crate::aggregate::{Classes, Data, is_of};
use crate::entry::{ANSWER_BYTES_MAX, MergeError, Merged};
use crate::error::GroupError;
use crate::message::Request;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::{Coverage, Stream};

/// The most bytes of bodies that one trip brings.
const FETCH_BYTES: u64 = 8 << 20;

/// Members of a class that are asked for its body, one after the other.
const CANDIDATES_MAX: usize = 4;

/// The longest content of one member: that of a tool's answer, or of a read, with what is around
/// it. A host that announces a longer one has not answered.
const BODY_BYTES_MAX: u64 = ANSWER_BYTES_MAX as u64 + (1 << 20);

/// Classes with their bodies.
pub(super) struct FetchedBodies {
    pub classes: Vec<Class>,
    /// Hosts whose answer is not what they announced.
    pub garbled: RangeSet,
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
    all.retain(|class| {
        let is_possible = class.len <= BODY_BYTES_MAX;
        if !is_possible {
            garbled.union_with(&class.members.leaves());
        }
        is_possible
    });
    let bytes: u64 = all.iter().map(|class| class.len).sum();
    if bytes > client.limits().bytes_max {
        return Err(GroupError::TooLarge { bytes_max: client.limits().bytes_max });
    }
    let mut wanted = wanted(&all);
    while !wanted.is_empty() && client.is_over().is_none() {
        let (trip, locals) = next_trip(&wanted);
        let leaves: RangeSet = trip.iter().map(|(leaf, _)| *leaf).collect();
        let bytes_max = client.limits().bytes_max;
        let request =
            Request::Fetch { of, leaves, lines: false, bytes_max, locals, weights: Vec::new() };
        let (partial, _) = client.ask(stream, &request, b"").await?;
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
    Ok(FetchedBodies { classes: all, garbled })
}

/// Folds the answers to request `of` into `merged`: bodies that came along at once, the others
/// line by line in the tree. Others keep off the stream as with [`bodies`].
pub(super) async fn lines(
    client: &Client,
    stream: &Stream,
    of: u64,
    classes: Classes,
    merged: &mut Merged,
) -> Result<LostLines, GroupError> {
    let (mut rest, mut lost, mut garbled) = (Vec::new(), Vec::new(), RangeSet::new());
    for (_, class) in classes.into_sorted() {
        match &class.body {
            // Hosts that are at work, and have nothing to say yet.
            Some(body) if body.is_empty() => {}
            Some(body) => {
                let leaves = class.members.leaves();
                if !is_folded(merged.fold_raw_set(&leaves, body))? {
                    garbled.union_with(&leaves);
                }
            }
            None => rest.push(Speech { leaves: class.members.leaves(), len: class.len, tries: 0 }),
        }
    }
    while !rest.is_empty() && client.is_over().is_none() {
        let mut bytes = 0;
        let mut count = 0;
        while count < rest.len() && (count == 0 || bytes + rest[count].len <= FETCH_BYTES) {
            bytes += rest[count].len;
            count += 1;
        }
        let trip: Vec<Speech> = rest.drain(..count).collect();
        // The lowest leaf of each class speaks for it; its lines are those of the whole class.
        let speakers: FxHashMap<u32, &RangeSet> = trip
            .iter()
            .filter_map(|speech| Some((speech.leaves.first()?, &speech.leaves)))
            .collect();
        let leaves: RangeSet = speakers.keys().copied().collect();
        let bytes_max = client.limits().bytes_max;
        let weights: Vec<u64> = leaves.iter().map(|leaf| speakers[&leaf].len()).collect();
        let weights = if weights.iter().all(|&weight| weight == 1) { Vec::new() } else { weights };
        let request =
            Request::Fetch { of, leaves, lines: true, bytes_max, locals: RangeSet::new(), weights };
        let (partial, wave) = client.ask(stream, &request, b"").await?;
        if let Data::Lines(answer) = partial.data {
            let widen = |set: &RangeSet| {
                let mut wide = RangeSet::new();
                set.iter()
                    .filter_map(|leaf| speakers.get(&leaf))
                    .for_each(|leaves| wide.union_with(leaves));
                wide
            };
            if !is_folded(merged.fold_widened(&answer, &widen))? {
                let all = trip.iter().map(|speech| (Errno::PROTO, speech.leaves.clone()));
                lost.extend(all);
                continue;
            }
        }
        for speech in trip {
            speech.retry(&wave.coverage, &mut rest, &mut lost);
        }
    }
    lost.extend(
        rest.into_iter().map(|speech| (client.is_over().unwrap_or(Errno::CANCELED), speech.leaves)),
    );
    Ok(LostLines { lost, garbled })
}

/// Whether an answer was folded. Of one that does not decode nothing was.
fn is_folded(result: Result<(), MergeError>) -> Result<bool, GroupError> {
    match result {
        Ok(()) => Ok(true),
        Err(MergeError::Malformed | MergeError::Mixed) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// An answer that has to be fetched, and who gave it.
struct Speech {
    leaves: RangeSet,
    len: u64,
    tries: usize,
}

impl Speech {
    /// Lets the next leaf speak if the first did not, unless the first told why none will.
    fn retry(
        mut self,
        coverage: &Coverage,
        rest: &mut Vec<Self>,
        lost: &mut Vec<(Errno, RangeSet)>,
    ) {
        let missing = coverage.failed.iter().chain(&coverage.silent);
        let mut missing = missing
            .filter_map(|(errno, leaves)| leaves.contains(self.leaves.first()?).then_some(*errno));
        let Some(errno) = missing.next() else { return };
        self.tries += 1;
        if errno == Errno::MSGSIZE || self.tries == CANDIDATES_MAX {
            lost.push((errno, self.leaves));
            return;
        }
        let first: RangeSet = self.leaves.first().into_iter().collect();
        self.leaves = self.leaves.difference(&first);
        let (leaf, tries) = (first.first(), self.tries);
        tracing::debug!(leaf, %errno, "an answer was not had, try {tries}; the next host is asked");
        lost.push((errno, first));
        if !self.leaves.is_empty() {
            rest.push(self);
        }
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
