//! What a collector may take of its process: memory, time and descriptors.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The limits of a collector that takes what another user's programs record. What is beyond stays
/// where it is until there is room, and is counted where it is lost.
#[derive(Debug, Clone)]
pub struct CollectLimits {
    /// Files of a directory that are looked at.
    pub files: usize,
    /// Segments that are read at the same time.
    pub segments: usize,
    /// Rings of all these segments.
    pub rings: usize,
    /// Operations of one look.
    pub records: usize,
    /// Bytes of names that are known, and their number as a share of that.
    pub names_bytes: usize,
    /// How long a look takes, nearly.
    pub look: Duration,
    /// Descriptors of segments that stay open. The other segments are opened for each look.
    pub open: OpenShare,
}

/// Names in the numbers of records are counted as so many bytes of names each.
pub(super) const NUMBER_BYTES: usize = 32;

impl Default for CollectLimits {
    /// Those of the process itself: a collector for its own user's programs.
    fn default() -> Self {
        Self {
            files: usize::MAX,
            segments: usize::MAX,
            rings: usize::MAX,
            records: usize::MAX,
            names_bytes: usize::MAX,
            look: Duration::MAX,
            open: OpenShare::default(),
        }
    }
}

/// A user's share of descriptors, and that of all users.
#[derive(Debug, Clone)]
pub struct OpenShare {
    user: OpenCount,
    all: OpenCount,
}

/// So many of so many are taken.
#[derive(Debug, Clone)]
struct OpenCount {
    taken: Arc<AtomicUsize>,
    max: usize,
}

impl OpenCount {
    fn new(max: usize) -> Self {
        Self { taken: Arc::default(), max }
    }

    fn take(&self) -> Option<OpenPlace> {
        let more = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(OpenPlace(Arc::clone(&self.taken)))
    }
}

/// A descriptor of a share, given back when this is dropped.
#[derive(Debug)]
struct OpenPlace(Arc<AtomicUsize>);

impl Drop for OpenPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to keep one segment open.
#[derive(Debug)]
pub(super) struct OpenPermit {
    _places: [OpenPlace; 2],
}

impl Default for OpenShare {
    /// As many as there are.
    fn default() -> Self {
        Self { user: OpenCount::new(usize::MAX), all: OpenCount::new(usize::MAX) }
    }
}

impl OpenShare {
    /// The share of one user, of those of all users together.
    #[must_use]
    pub fn new(user_max: usize, all_max: usize) -> Self {
        Self { user: OpenCount::new(user_max), all: OpenCount::new(all_max) }
    }

    /// The same for another user.
    #[must_use]
    pub fn of_another(&self) -> Self {
        Self { user: OpenCount::new(self.user.max), all: self.all.clone() }
    }

    pub(super) fn take(&self) -> Option<OpenPermit> {
        Some(OpenPermit { _places: [self.user.take()?, self.all.take()?] })
    }
}
