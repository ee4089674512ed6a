//! Large files of one directory, at the root: the host that has the directory offers them, and any host that
//! sees them and has nothing to do takes some.
//!
//! A host has either directories or files of others' directories. So no host waits for another one that
//! waits for it.
use super::super::message::{ContentItem, DeskAnswer};
use super::RootState;
use crate::name::FileName;
use crate::save::desk::StoredContent;
use std::collections::{BTreeMap, VecDeque};

/// Large files that a host has of others at once: one on its way, and one that follows.
const CONTENTS_MAX: usize = 2;

/// The large files of all directories that hosts have in hand.
#[derive(Default)]
pub(super) struct RootContents {
    /// Those that nobody stores yet, in the order of their directories' names.
    offered: VecDeque<OfferId>,
    known: BTreeMap<OfferId, Offer>,
    begun: u64,
    /// Those that hosts store for others, by the number of their item.
    taken: BTreeMap<u64, (usize, OfferId)>,
}

/// A host, a directory that it has in hand, a name in it, and which part.
type OfferId = (usize, u64, FileName, Option<u32>);

#[derive(Default)]
struct Offer {
    state: OfferState,
    /// Who waits for it.
    ask: Option<u64>,
}

#[derive(Default)]
enum OfferState {
    #[default]
    Offered,
    Taken,
    Stored(Box<StoredContent>),
}

impl RootState {
    /// A host has found a large file in a directory.
    pub(super) fn large(&mut self, host: usize, offer: OfferId) {
        // With one host there is nobody to take it.
        if self.pools[self.pool_of(host)].hosts.len() < 2
            || !self.hosts[host].given.contains_key(&offer.1)
        {
            return;
        }
        if self.contents.known.insert(offer.clone(), Offer::default()).is_none() {
            self.contents.offered.push_back(offer);
        }
    }

    /// A host would store one that it has offered, or waits for it.
    pub(super) fn content(&mut self, host: usize, ask: u64, offer: OfferId) {
        let answer = match self.contents.known.get_mut(&offer) {
            Some(Offer { state: OfferState::Taken, ask: waits }) => {
                *waits = Some(ask);
                return;
            }
            Some(Offer { state: OfferState::Stored(_), .. }) => {
                match self.contents.known.remove(&offer).map(|offer| offer.state) {
                    Some(OfferState::Stored(object)) => Some(object),
                    _ => None,
                }
            }
            Some(Offer { state: OfferState::Offered, .. }) => {
                self.contents.known.remove(&offer);
                // It is at the front, or near.
                if let Some(at) = self.contents.offered.iter().position(|one| *one == offer) {
                    self.contents.offered.remove(at);
                }
                None
            }
            None => None,
        };
        self.hosts[host].answers.push((ask, DeskAnswer::Content(answer)));
    }

    /// A host has stored a file of another's directory, or has not.
    pub(super) fn stored(&mut self, host: usize, id: u64, object: Option<Box<StoredContent>>) {
        let Some((by, offer)) = self.contents.taken.remove(&id) else { return };
        if by != host {
            self.contents.taken.insert(id, (by, offer));
            return;
        }
        self.settle(offer, object);
    }

    fn settle(&mut self, offer: OfferId, object: Option<Box<StoredContent>>) {
        let Some(known) = self.contents.known.get_mut(&offer) else { return };
        match (known.ask.take(), object) {
            (Some(ask), object) => {
                self.contents.known.remove(&offer);
                self.hosts[offer.0].answers.push((ask, DeskAnswer::Content(object)));
            }
            (None, Some(object)) => known.state = OfferState::Stored(object),
            // Its host stores it itself when it comes to it.
            (None, None) => drop(self.contents.known.remove(&offer)),
        }
    }

    /// Large files of other hosts' directories, for one that has room for them.
    pub(super) fn contents_for(&mut self, host: usize) -> Vec<ContentItem> {
        let mut items = Vec::new();
        if !self.hosts[host].given.is_empty() {
            return items;
        }
        let pool = self.pool_of(host);
        let mut has = self.contents.taken.values().filter(|(by, _)| *by == host).count();
        while has < CONTENTS_MAX && self.hosts[host].wants > 0 {
            // From the end: the host that has the directory begins at the other one.
            let mine = |offer: &OfferId| offer.0 == host || self.pool_of(offer.0) != pool;
            let Some(at) = self.contents.offered.iter().rposition(|offer| !mine(offer)) else {
                break;
            };
            let Some(offer) = self.contents.offered.remove(at) else { break };
            let Some(given) = self.hosts[offer.0].given.get(&offer.1) else { continue };
            let (source, path) = (given.of.source, given.of.path.clone());
            let (name, part) = (offer.2.clone(), offer.3);
            self.contents.begun += 1;
            let id = self.contents.begun;
            if let Some(known) = self.contents.known.get_mut(&offer) {
                known.state = OfferState::Taken;
            }
            self.contents.taken.insert(id, (host, offer));
            items.push(ContentItem { id, source, path, name, part });
            self.hosts[host].wants -= 1;
            has += 1;
        }
        items
    }

    /// Whether a host stores large files for others.
    pub(super) fn has_contents(&self, host: usize) -> bool {
        self.contents.taken.values().any(|(by, _)| *by == host)
    }

    /// A directory is done: nobody waits for what is left of it.
    pub(super) fn forget_contents(&mut self, host: usize, id: u64) {
        let is_of = |offer: &OfferId| (offer.0, offer.1) == (host, id);
        self.contents.known.retain(|offer, _| !is_of(offer));
        self.contents.offered.retain(|offer| !is_of(offer));
    }

    /// A lost host stores nothing for others, and its directories are begun again.
    pub(super) fn give_contents_up(&mut self, host: usize) {
        self.contents.known.retain(|offer, _| offer.0 != host);
        self.contents.offered.retain(|offer| offer.0 != host);
        let lost: Vec<u64> = self
            .contents
            .taken
            .iter()
            .filter(|(_, (by, _))| *by == host)
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            if let Some((_, offer)) = self.contents.taken.remove(&id) {
                self.settle(offer, None);
            }
        }
    }
}
