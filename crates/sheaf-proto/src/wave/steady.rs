//! Waves while nothing disturbs them: items of one size, from every child, in order.
//!
//! Most waves of a fast stream look alike: nobody asked for them, every child contributes all its
//! members, and the filter turns two items of a few bytes into one of the same size. Such waves
//! need no slot each. Their items lie behind one another, a contribution is folded where it lies,
//! and all that is remembered of a child is how far it has come. Whatever else happens (an answer
//! that is missing, a deadline, a change of the tree) turns the open waves into slots first.
use crate::filter::Uniform;
use crate::stream::ChildId;

/// The open waves of a stream in that state.
pub(crate) struct Steady {
    uniform: Uniform,
    /// Number of the first open wave.
    base: u64,
    /// What has been folded: of wave `base`, `base + 1`, … , from `start` on.
    items: Vec<u8>,
    start: usize,
    /// By child: the first wave it has not contributed to.
    next: Vec<u64>,
    /// What the packets of the open waves are tagged with.
    tag: Option<i32>,
    /// A contribution carried the flag [`super::frame::flag::up::ACK_WANTED`].
    pub wanted: bool,
}

/// Waves that are complete, one item each. To be given back with [`Steady::retire`].
pub(crate) struct Complete {
    pub first: u64,
    pub count: u64,
    pub tag: i32,
    /// A contribution to them asked for an acknowledgement.
    pub wanted: bool,
    /// Bytes of an item.
    pub width: usize,
    start: usize,
    /// The buffer of the state that it was taken from, with the items of later waves.
    buffer: Vec<u8>,
}

impl Complete {
    /// The items, behind one another.
    pub fn items(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.count as usize * self.width]
    }
}

/// Items are moved to the front once this much before them is used up.
const USED_BYTES_MAX: usize = 256 << 10;

impl Steady {
    /// No wave is open, and the next one is `base`.
    pub fn new(uniform: Uniform, base: u64, children: usize) -> Self {
        Self {
            uniform,
            base,
            items: Vec::new(),
            start: 0,
            next: vec![base; children],
            tag: None,
            wanted: false,
        }
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn tag(&self) -> i32 {
        self.tag.unwrap_or(0)
    }

    /// Number of open waves.
    pub fn open(&self) -> usize {
        (self.items.len() - self.start) / self.uniform.item_bytes
    }

    /// The first wave that `child` has not contributed to.
    pub fn next(&self, child: ChildId) -> u64 {
        self.next[child.place()]
    }

    /// What has been folded for an open wave.
    pub fn item(&self, wave: u64) -> &[u8] {
        let at = self.start + (wave - self.base) as usize * self.uniform.item_bytes;
        &self.items[at..at + self.uniform.item_bytes]
    }

    /// Folds a child's items for the waves from `first` on; gives how many were. When it is not
    /// all of them, the next one is for slots: it does not follow what came before, or does not
    /// fold into an item.
    pub fn absorb(&mut self, child: ChildId, first: u64, tag: i32, items: &[u8]) -> usize {
        let width = self.uniform.item_bytes;
        if self.open() == 0 {
            self.tag = Some(tag);
        }
        if first != self.next[child.place()]
            || *self.tag.get_or_insert(tag) != tag
            || !items.len().is_multiple_of(width)
        {
            return 0;
        }
        let at = self.start + (first - self.base) as usize * width;
        // Items of waves that other children have begun are folded into those. The rest begins new
        // waves.
        let there = (self.items.len() - at).min(items.len());
        let (fold, append) = items.split_at(there);
        let folded = (self.uniform.fold)(&mut self.items[at..at + there], fold);
        let mut count = folded;
        // An item that does not fold ends the row: only the first missing wave of a child is
        // remembered.
        if folded * width == there {
            count += self.append(append);
        }
        self.next[child.place()] += count as u64;
        count
    }

    /// Begins waves with these items; gives how many.
    fn append(&mut self, items: &[u8]) -> usize {
        let width = self.uniform.item_bytes;
        let plain =
            items.chunks_exact(width).take_while(|item| (self.uniform.is_plain)(item)).count();
        self.items.extend_from_slice(&items[..plain * width]);
        plain
    }

    /// The waves that every child has contributed to, with the buffer that they lie in: nothing may
    /// be folded until it is given back.
    pub fn take_complete(&mut self) -> Option<Complete> {
        let end = self.next.iter().copied().min().unwrap_or(self.base);
        if end == self.base {
            return None;
        }
        Some(Complete {
            first: self.base,
            count: end - self.base,
            tag: self.tag(),
            wanted: std::mem::take(&mut self.wanted),
            width: self.uniform.item_bytes,
            start: self.start,
            buffer: std::mem::take(&mut self.items),
        })
    }

    /// Ends complete waves.
    pub fn retire(&mut self, complete: Complete) {
        self.items = complete.buffer;
        self.base += complete.count;
        self.start += complete.count as usize * self.uniform.item_bytes;
        if self.start == self.items.len() {
            self.items.clear();
            self.start = 0;
        } else if self.start >= USED_BYTES_MAX {
            // Rarely, because this moves all items of later waves.
            self.items.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum() -> Uniform {
        fn fold(into: &mut [u8], items: &[u8]) -> usize {
            for (at, (sum, item)) in into.iter_mut().zip(items).enumerate() {
                let Some(total) = sum.checked_add(*item) else { return at };
                *sum = total;
            }
            items.len()
        }
        Uniform { item_bytes: 1, fold, is_plain: |item| item[0] != 255 }
    }

    /// Ends the complete waves: the first, their tag, their items.
    fn ended(steady: &mut Steady) -> Option<(u64, i32, Vec<u8>)> {
        let complete = steady.take_complete()?;
        let ended = (complete.first, complete.tag, complete.items().to_vec());
        steady.retire(complete);
        Some(ended)
    }

    #[test]
    fn wave_is_complete_once_every_child_has_contributed() {
        let mut steady = Steady::new(sum(), 7, 2);
        assert_eq!(steady.absorb(ChildId::new(0), 7, 3, &[1, 2, 3]), 3);
        assert!(steady.take_complete().is_none());
        assert_eq!(steady.absorb(ChildId::new(1), 7, 3, &[10, 10]), 2);
        assert_eq!(ended(&mut steady), Some((7, 3, vec![11, 12])));
        assert_eq!((steady.base(), steady.open(), steady.item(9)), (9, 1, &[3][..]));
        assert_eq!(steady.absorb(ChildId::new(1), 9, 3, &[1, 5]), 2);
        assert_eq!((steady.next(ChildId::new(0)), steady.next(ChildId::new(1))), (10, 11));
        assert_eq!(ended(&mut steady), Some((9, 3, vec![4])));
    }

    #[test]
    fn another_tag_may_begin_where_no_wave_is_open() {
        let mut steady = Steady::new(sum(), 0, 2);
        assert_eq!(
            (
                steady.absorb(ChildId::new(0), 0, 3, &[1]),
                steady.absorb(ChildId::new(1), 0, 3, &[1])
            ),
            (1, 1)
        );
        assert_eq!(ended(&mut steady), Some((0, 3, vec![2])));
        assert_eq!(
            (
                steady.absorb(ChildId::new(0), 1, 4, &[5, 6]),
                steady.absorb(ChildId::new(1), 1, 4, &[5])
            ),
            (2, 1)
        );
        assert_eq!(ended(&mut steady), Some((1, 4, vec![10])));
    }

    #[test]
    fn irregular_contributions_are_left_to_wave_slots() {
        let mut steady = Steady::new(sum(), 0, 2);
        assert_eq!(steady.absorb(ChildId::new(0), 1, 3, &[1]), 0, "a wave was left out");
        assert_eq!(
            steady.absorb(ChildId::new(0), 0, 3, &[200, 200, 255, 1]),
            2,
            "an item is not plain"
        );
        assert_eq!(steady.absorb(ChildId::new(1), 0, 4, &[1]), 0, "another tag");
        assert_eq!(steady.absorb(ChildId::new(1), 0, 3, &[50, 100, 1]), 1, "a sum does not fit");
        assert_eq!(
            (steady.next(ChildId::new(0)), steady.next(ChildId::new(1)), steady.open()),
            (2, 1, 2)
        );
        assert_eq!((steady.item(0), steady.item(1)), (&[250][..], &[200][..]));
    }
}
