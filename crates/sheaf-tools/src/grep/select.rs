//! Which files below a directory are searched.
use super::GrepError;
use globset::{Glob, GlobSet, GlobSetBuilder};

/// The globs of `--include` and `--exclude`. A glob without a slash is compared with the name of a
/// file, one with a slash with the end of its path. What is excluded is not searched, included or
/// not; if anything is included, nothing else is searched.
#[derive(Clone, Debug)]
pub struct PathFilter {
    include: GlobSet,
    exclude: GlobSet,
}

impl PathFilter {
    /// The filter of these globs.
    ///
    /// # Errors
    /// When a glob is malformed.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, GrepError> {
        Ok(Self { include: build(include)?, exclude: build(exclude)? })
    }

    /// Whether the file at `path` is searched.
    #[must_use]
    pub fn wants(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
        let included = self.include.is_empty() || self.include.is_match(path);
        included && !self.exclude.is_match(path)
    }

    /// Whether a directory at `path` may be descended into.
    #[must_use]
    pub fn enters(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        !self.exclude.is_match(std::path::Path::new(std::ffi::OsStr::from_bytes(path)))
    }
}

fn build(globs: &[String]) -> Result<GlobSet, GrepError> {
    let mut set = GlobSetBuilder::new();
    let failed = |glob: &str, error: &globset::Error| GrepError::Glob {
        glob: glob.to_owned(),
        message: error.kind().to_string(),
    };
    for glob in globs {
        let anywhere = if glob.starts_with('/') { glob.clone() } else { format!("**/{glob}") };
        set.add(Glob::new(&anywhere).map_err(|error| failed(glob, &error))?);
    }
    set.build().map_err(|error| failed(&globs.join(" "), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> PathFilter {
        let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
        PathFilter::new(&owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn names_are_compared_and_exclusion_wins() {
        assert!(filter(&[], &[]).wants(b"/var/log/a.log"));
        let logs = filter(&["*.log"], &["old*"]);
        assert!(logs.wants(b"/var/log/a.log"));
        assert!(!logs.wants(b"/var/log/a.txt"));
        assert!(!logs.wants(b"/var/log/old.log"));
        assert!(!filter(&[], &["log"]).enters(b"/var/log"));
        assert!(filter(&["log/*.log"], &[]).wants(b"/var/log/a.log"));
    }

    #[test]
    fn bad_glob_is_named() {
        let error = PathFilter::new(&["[z-a]".to_owned()], &[]).unwrap_err();
        assert!(error.to_string().starts_with("glob '[z-a]': "), "{error}");
    }
}
