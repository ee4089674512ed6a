//! What of the sources is left out by its name.
use sheaf_file::TextPattern;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Names of files and directories that are not stored, nor is what is in the directories.
///
/// A pattern is compared with the name; one with a slash in it with the path, from any directory on,
/// and with a slash at its beginning with the whole path, as it was named or below its source. With a
/// slash at its end it is for directories. A `*` goes across slashes.
///
/// ```
/// # use sheaf_archive::SaveExclude;
/// assert!(SaveExclude::new(&["*.o", ".cache/", "doc/build"]).is_ok());
/// ```
#[derive(Clone, Debug, Default)]
pub struct SaveExclude {
    /// As they were said.
    globs: Vec<String>,
    rules: Vec<ExcludeRule>,
    /// Some are compared with paths.
    has_paths: bool,
}

#[derive(Clone, Debug)]
struct ExcludeRule {
    glob: TextPattern,
    is_path: bool,
    is_whole: bool,
    of_directories: bool,
}

/// A text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: is no pattern of names")]
pub struct SaveExcludeError(String);

impl SaveExclude {
    /// What fits one of these patterns.
    ///
    /// # Errors
    /// When a text is no pattern.
    pub fn new<T: AsRef<str>>(globs: &[T]) -> Result<Self, SaveExcludeError> {
        let rules: Vec<_> =
            globs.iter().map(|text| rule(text.as_ref())).collect::<Result<_, _>>()?;
        let has_paths = rules.iter().any(|rule| rule.is_path);
        let globs = globs.iter().map(|text| text.as_ref().to_owned()).collect();
        Ok(Self { globs, rules, has_paths })
    }

    /// Whether there is no pattern.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The patterns, as they were said.
    pub(crate) fn globs(&self) -> &[String] {
        &self.globs
    }

    /// Whether a file or directory is left out, whose path has so many names below its source.
    pub(crate) fn fits(
        &self,
        name: &OsStr,
        is_directory: bool,
        path: impl FnOnce() -> std::path::PathBuf,
        names_below: usize,
    ) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let paths = self.has_paths.then(|| ExcludedPath::new(&path(), names_below));
        self.rules.iter().filter(|rule| is_directory || !rule.of_directories).any(|rule| {
            let Some(paths) = paths.as_ref().filter(|_| rule.is_path) else {
                return !rule.is_path && rule.glob.matches(name.as_bytes());
            };
            let is_match = |path: &[u8]| rule.glob.matches(path);
            match rule.is_whole {
                true => is_match(&paths.whole) || is_match(&paths.below),
                false => paths.ends().any(is_match),
            }
        })
    }
}

fn rule(text: &str) -> Result<ExcludeRule, SaveExcludeError> {
    let pattern = text.trim_end_matches('/');
    if pattern.is_empty() {
        return Err(SaveExcludeError(text.to_owned()));
    }
    Ok(ExcludeRule {
        glob: TextPattern::new(pattern, false),
        is_path: pattern.contains('/'),
        is_whole: pattern.starts_with('/'),
        of_directories: pattern != text,
    })
}

/// A path as patterns see it.
struct ExcludedPath {
    /// As it was named.
    whole: Vec<u8>,
    /// From its source on, with a slash before it.
    below: Vec<u8>,
}

impl ExcludedPath {
    fn new(path: &Path, names_below: usize) -> Self {
        let names: Vec<&[u8]> = path
            .components()
            .filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
            .map(|part| part.as_os_str().as_bytes())
            .collect();
        let whole = names.join(&b'/');
        let whole = if path.is_absolute() { [b"/", &whole[..]].concat() } else { whole };
        let below = &names[names.len().saturating_sub(names_below)..];
        Self { whole, below: [b"/", &below.join(&b'/')[..]].concat() }
    }

    /// The path from each of its names on.
    fn ends(&self) -> impl Iterator<Item = &[u8]> {
        let whole = &self.whole[..];
        let slashes = whole.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        std::iter::once(whole).chain(slashes.map(|(at, _)| &whole[at + 1..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_of_names_paths_and_directories() {
        // Each with a path, of which the last two names are below its source.
        for (text, path, is_directory, fits) in [
            ("*.o", "/home/ada/d/x.o", false, true),
            ("*.o", "/home/ada/d/x.oo", false, false),
            ("d", "/home/ada/d/x.o", false, false),
            ("x/", "/home/ada/d/x", false, false),
            ("x/", "/home/ada/d/x", true, true),
            ("d/*.o", "/home/ada/d/x.o", false, true),
            ("ada/d/x.o", "/home/ada/d/x.o", false, true),
            ("da/d/x.o", "/home/ada/d/x.o", false, false),
            ("/d/x.o", "/home/ada/d/x.o", false, true),
            ("/x.o", "/home/ada/d/x.o", false, false),
            ("/home/ada/d/*", "/home/ada/d/x.o", false, true),
            ("/ada/d/*", "/home/ada/d/x.o", false, false),
            ("./d/x", "./d/x", false, false),
            ("tree/d/x", "tree/./d/x", false, true),
            ("/d/x/", "tree/./d/x", true, true),
            ("d/[wx]", "d/x", false, true),
            ("{d,e}/x", "d/x", false, false),
        ] {
            let exclude = SaveExclude::new(&[text]).unwrap();
            let (path, name) = (Path::new(path), Path::new(path).file_name().unwrap());
            assert_eq!(exclude.fits(name, is_directory, || path.into(), 2), fits, "{text}");
        }
        assert!(!SaveExclude::default().fits(OsStr::new("x"), true, || "x".into(), 1));
        for wrong in ["", "/"] {
            let error = SaveExclude::new(&[wrong]).unwrap_err();
            assert_eq!(error.to_string(), format!("{wrong:?}: is no pattern of names"));
        }
    }
}
