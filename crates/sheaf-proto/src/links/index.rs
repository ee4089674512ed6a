//! Links by the ranks of their nodes and by the leaves that they hold: a node to which many orphans
//! come does not look through all its links for each.
use super::{Link, LinkId, LinkWay, Links};
use rustc_hash::FxHashMap;
use sheaf_core::RangeSet;

/// Made when it is first asked for: as long as nobody comes from elsewhere, nobody asks.
#[derive(Default)]
pub(super) struct Index {
    by_rank: FxHashMap<u32, Vec<LinkId>>,
    by_leaf: FxHashMap<u32, LinkId>,
}

impl Index {
    fn insert(&mut self, at: LinkId, link: &Link) {
        if link.way == LinkWay::Down {
            self.by_rank.entry(link.rank).or_default().push(at);
            self.by_leaf.extend(link.leaves.iter().map(|leaf| (leaf, at)));
        }
    }

    fn remove(&mut self, at: LinkId, link: &Link) {
        if link.way == LinkWay::Down
            && let Some(links) = self.by_rank.get_mut(&link.rank)
        {
            // `by_leaf` needs no change: only a link without leaves is replaced
            // (`Node::is_vacant`).
            links.retain(|&other| other != at);
            if links.is_empty() {
                self.by_rank.remove(&link.rank);
            }
        }
    }
}

impl Links {
    fn index(&mut self) -> &mut Index {
        let all = &self.all;
        self.index.get_or_insert_with(|| {
            let mut index = Box::<Index>::default();
            all.iter().enumerate().for_each(|(place, link)| index.insert(LinkId::new(place), link));
            index
        })
    }

    /// Links to children with this rank, gone ones too.
    pub fn of_rank(&mut self, rank: u32) -> Vec<LinkId> {
        let mut links = self.index().by_rank.get(&rank).cloned().unwrap_or_default();
        links.sort_unstable();
        links
    }

    /// Links to children that hold some of these leaves, gone ones too.
    pub fn holding(&mut self, leaves: &RangeSet) -> Vec<LinkId> {
        let by_leaf = &self.index().by_leaf;
        let mut links: Vec<LinkId> =
            leaves.iter().filter_map(|leaf| by_leaf.get(&leaf).copied()).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    pub fn add(&mut self, link: Link) -> LinkId {
        let at = LinkId::new(self.all.len());
        if let Some(index) = &mut self.index {
            index.insert(at, &link);
        }
        self.all.push(link);
        at
    }

    /// Gives the place of a link that nobody has to do with any more to another.
    pub fn replace(&mut self, at: LinkId, link: Link) {
        if let Some(index) = &mut self.index {
            index.remove(at, &self.all[at.place()]);
            index.insert(at, &link);
        }
        self.all[at.place()] = link;
    }

    /// These leaves are below the child on `to` now, and were on no link.
    pub fn give_leaves(&mut self, to: LinkId, leaves: &RangeSet) {
        if let Some(index) = &mut self.index {
            index.by_leaf.extend(leaves.iter().map(|leaf| (leaf, to)));
        }
        self.all[to.place()].leaves.union_with(leaves);
    }

    /// These leaves are not below the child on `from` any more.
    pub fn take_leaves(&mut self, from: LinkId, leaves: &RangeSet) {
        let link = &mut self.all[from.place()];
        if let Some(index) = &mut self.index {
            for leaf in link.leaves.intersection(leaves).iter() {
                index.by_leaf.remove(&leaf);
            }
        }
        link.leaves = link.leaves.difference(leaves);
    }

    /// That the index says what the links do.
    pub(super) fn check_index(&self) -> Result<(), String> {
        let Some(index) = &self.index else { return Ok(()) };
        let mut leaves = 0;
        for (at, link) in self.down() {
            let known = index.by_rank.get(&link.rank).is_some_and(|links| links.contains(&at));
            rule!(known, "link {at} is not found by its rank {}", link.rank);
            let held = link.leaves.iter().all(|leaf| index.by_leaf.get(&leaf) == Some(&at));
            rule!(held, "link {at} is not found by its leaves {}", link.leaves);
            leaves += link.leaves.len() as usize;
        }
        rule!(leaves == index.by_leaf.len(), "{} leaves are found on links", index.by_leaf.len());
        Ok(())
    }
}
