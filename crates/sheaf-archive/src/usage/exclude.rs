//! What is not counted, by its path.
use sheaf_file::TextPattern;
use std::sync::Arc;

/// Patterns of paths that are left out, with all that is in them, as with `du --exclude`: one is compared
/// with the whole path, and with what is behind each slash of it. A `*` goes across slashes.
///
/// ```
/// # use sheaf_archive::UsageExclude;
/// let exclude = UsageExclude::new(&["*.o", "b/c"]);
/// assert!(exclude.fits(b"tree/a.o") && exclude.fits(b"/a/b/c"));
/// assert!(!exclude.fits(b"tree/a.out") && !exclude.fits(b"/a/b"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageExclude(Arc<[TextPattern]>);

impl UsageExclude {
    /// What fits one of these patterns.
    #[must_use]
    pub fn new<T: AsRef<str>>(patterns: &[T]) -> Self {
        Self(patterns.iter().map(|text| TextPattern::new(text.as_ref(), false)).collect())
    }

    /// Whether there is no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a path is left out.
    #[must_use]
    pub fn fits(&self, path: &[u8]) -> bool {
        let is_begin = |at: &usize| {
            *at == 0 || path[at - 1] == b'/' && path.get(*at).is_some_and(|byte| *byte != b'/')
        };
        let fits_one = |end: &[u8]| self.0.iter().any(|pattern| pattern.matches(end));
        !self.is_empty() && (0..path.len()).filter(is_begin).any(|at| fits_one(&path[at..]))
    }
}
