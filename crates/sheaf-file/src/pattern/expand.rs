//! A pattern's names in a tree that is none of the file system's.
use super::{Alternative, Pattern, PatternPart};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

/// A tree of names, as an archive has them. Paths are components from its root.
pub trait PatternTree {
    /// Why something of it cannot be read.
    type Error;

    /// Tells each name in a directory, in their order, and whether it is a directory.
    ///
    /// # Errors
    /// When it cannot be read.
    fn names(
        &mut self,
        directory: &[Vec<u8>],
        each: &mut dyn FnMut(&[u8], bool),
    ) -> Result<(), Self::Error>;

    /// Whether a path is a directory; nothing if it is not there.
    ///
    /// # Errors
    /// When it cannot be looked up.
    fn is_directory(&mut self, path: &[Vec<u8>]) -> Result<Option<bool>, Self::Error>;
}

impl Pattern {
    /// The paths of a tree that this stands for, each once: of each choice from the braces in serial
    /// order. `..` is nowhere.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn paths_in<T: PatternTree>(&self, tree: &mut T) -> Result<Vec<Vec<Vec<u8>>>, T::Error> {
        let mut search = PatternSearch { tree, found: Vec::new(), known: HashSet::new() };
        for alternative in &self.alternatives {
            search.below(alternative, &mut Vec::new(), None, 0)?;
        }
        Ok(search.found)
    }
}

struct PatternSearch<'a, T> {
    tree: &'a mut T,
    found: Vec<Vec<Vec<u8>>>,
    known: HashSet<Vec<Vec<u8>>>,
}

impl<T: PatternTree> PatternSearch<'_, T> {
    /// What the parts from one on stand for below a path, of which may be known whether it is a
    /// directory.
    fn below(
        &mut self,
        of: &Alternative,
        path: &mut Vec<Vec<u8>>,
        is_directory: Option<bool>,
        from: usize,
    ) -> Result<(), T::Error> {
        let Some(part) = of.parts.get(from) else { return self.end(of, path, is_directory) };
        match part {
            PatternPart::Literal(name) => {
                path.push(name.as_bytes().to_vec());
                self.below(of, path, None, from + 1)?;
                path.pop();
            }
            PatternPart::Name(pattern) => {
                let is_meant = |name: &[u8]| pattern.matches_visible(name);
                for (name, is_directory) in self.listed(path, is_directory, is_meant)? {
                    path.push(name);
                    self.below(of, path, Some(is_directory), from + 1)?;
                    path.pop();
                }
            }
            PatternPart::Directories => {
                let is_last = from + 1 == of.parts.len();
                if !is_last {
                    self.below(of, path, is_directory, from + 1)?;
                }
                let is_meant = |name: &[u8]| !name.starts_with(b".");
                for (name, is_directory) in self.listed(path, is_directory, is_meant)? {
                    path.push(name);
                    if is_last {
                        self.end(of, path, Some(is_directory))?;
                    }
                    if is_directory {
                        self.below(of, path, Some(true), from)?;
                    }
                    path.pop();
                }
            }
        }
        Ok(())
    }

    /// Names in a directory; none of what is none.
    fn listed(
        &mut self,
        path: &[Vec<u8>],
        is_directory: Option<bool>,
        is_meant: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<(Vec<u8>, bool)>, T::Error> {
        let mut listed = Vec::new();
        if self.is_directory(path, is_directory)? == Some(true) {
            self.tree.names(path, &mut |name, is_directory| {
                if is_meant(name) {
                    listed.push((name.to_vec(), is_directory));
                }
            })?;
        }
        Ok(listed)
    }

    fn is_directory(
        &mut self,
        path: &[Vec<u8>],
        known: Option<bool>,
    ) -> Result<Option<bool>, T::Error> {
        if known.is_some() { Ok(known) } else { self.tree.is_directory(path) }
    }

    /// All parts have a name: the path is meant if it is there.
    fn end(
        &mut self,
        of: &Alternative,
        path: &[Vec<u8>],
        is_directory: Option<bool>,
    ) -> Result<(), T::Error> {
        if let Some(is_directory) = self.is_directory(path, is_directory)?
            && (is_directory || !of.must_be_dir)
            && self.known.insert(path.to_vec())
        {
            self.found.push(path.to_vec());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    /// Paths, and whether each is a directory.
    struct Tree(BTreeMap<Vec<Vec<u8>>, bool>);

    impl PatternTree for Tree {
        type Error = Infallible;

        fn names(
            &mut self,
            directory: &[Vec<u8>],
            each: &mut dyn FnMut(&[u8], bool),
        ) -> Result<(), Infallible> {
            for (path, is_directory) in &self.0 {
                if let Some((name, above)) = path.split_last()
                    && above == directory
                {
                    each(name, *is_directory);
                }
            }
            Ok(())
        }

        fn is_directory(&mut self, path: &[Vec<u8>]) -> Result<Option<bool>, Infallible> {
            Ok(self.0.get(path).copied())
        }
    }

    #[test]
    fn patterns_mean_in_a_tree_what_they_mean_in_a_shell() {
        let paths = ["", "a", "a/x", "a/x/1", "a/.h", "b", "b/x", "b/y", ".c", "f"];
        let is_directory = ["", "a", "a/x", "b", ".c"];
        let parts = |path: &str| -> Vec<Vec<u8>> {
            path.split('/').filter(|part| !part.is_empty()).map(|part| part.into()).collect()
        };
        let all = paths.iter().map(|path| (parts(path), is_directory.contains(path)));
        let mut tree = Tree(all.collect());
        for (pattern, expected) in [
            ("/*", &["a", "b", "f"][..]),
            ("/*/", &["a", "b"]),
            ("/", &[""]),
            ("/a/x", &["a/x"]),
            ("/*/x", &["a/x", "b/x"]),
            ("/a/x/*", &["a/x/1"]),
            ("/b/x/*", &[]),
            ("/.*", &[".c"]),
            ("/{b,a}/?", &["a/x", "b/x", "b/y"]),
            ("/{a,*}", &["a", "b", "f"]),
            ("/**/x", &["a/x", "b/x"]),
            ("/a/**", &["a/x", "a/x/1"]),
            ("/n*", &[]),
            ("/none", &[]),
        ] {
            let found = Pattern::new(pattern).unwrap().paths_in(&mut tree);
            let expected: Vec<_> = expected.iter().map(|path| parts(path)).collect();
            assert_eq!(found, Ok(expected), "{pattern}");
        }
    }
}
