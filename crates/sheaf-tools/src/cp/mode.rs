//! Permissions that copies are given.
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::ModeChange;

/// The most parts, as `D755,F644` has two.
const PARTS_MAX: usize = 64;

/// What `cp --chmod` takes: changes as of `chmod`, each for everything or, with a `D` or an `F` in
/// front, for directories or for other files alone, as rsync has it.
///
/// A change for everything leaves directories open: on them, whoever may read may also search
/// (`x`). A mode that was thought of for files would else make a tree that nobody can enter.
///
/// ```
/// use sheaf_tools::cp::CopyMode;
/// let mode = CopyMode::parse("D2750,F640,o+r", 0o022).unwrap();
/// assert_eq!((mode.apply(0o700, true), mode.apply(0o600, false)), (0o2755, 0o644));
/// assert_eq!(CopyMode::parse("0644", 0o022).unwrap().apply(0o700, true), 0o755);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyMode {
    parts: Vec<(Scope, ModeChange)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Scope {
    All,
    Directories,
    Files,
}

impl CopyMode {
    /// Reads the parts between commas. `umask` limits those that name nobody, as `+w`.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn parse(text: &str, umask: u32) -> Result<Self, Errno> {
        let part = |text: &str| {
            let (scope, change) = match text.as_bytes().first() {
                Some(b'D') => (Scope::Directories, &text[1..]),
                Some(b'F') => (Scope::Files, &text[1..]),
                _ => (Scope::All, text),
            };
            Ok((scope, ModeChange::parse(change, umask)?))
        };
        let parts =
            text.split(',').take(PARTS_MAX + 1).map(part).collect::<Result<Vec<_>, Errno>>()?;
        if parts.len() > PARTS_MAX { Err(Errno::INVAL) } else { Ok(Self { parts }) }
    }

    /// Whether a part speaks of directories, or of other files.
    #[must_use]
    pub fn concerns(&self, is_dir: bool) -> bool {
        let other = if is_dir { Scope::Files } else { Scope::Directories };
        self.parts.iter().any(|(scope, _)| *scope != other)
    }

    /// The new permissions of a file or directory that has these.
    #[must_use]
    pub fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        self.parts.iter().fold(mode, |mode, (scope, change)| match (scope, is_dir) {
            (Scope::Directories, false) | (Scope::Files, true) => mode,
            (Scope::All, true) => {
                let changed = change.apply(mode, true);
                changed | (changed & 0o444) >> 2
            }
            _ => change.apply(mode, is_dir),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_files_are_told_apart() {
        let cases = [
            ("D755,F644", 0o700, 0o755, 0o644),
            ("F600", 0o751, 0o751, 0o600),
            ("D2750", 0o755, 0o2750, 0o755),
            ("0644", 0o755, 0o755, 0o644),
            ("600", 0o755, 0o700, 0o600),
            ("go=", 0o755, 0o700, 0o700),
            ("a-x", 0o755, 0o755, 0o644),
            ("go=r", 0o751, 0o755, 0o744),
            ("u=rwX,go=rX", 0o640, 0o755, 0o644),
            ("u=rwX,go=rX", 0o740, 0o755, 0o755),
            ("Dgo-rx,a-w", 0o755, 0o500, 0o555),
            ("Da-x", 0o755, 0o644, 0o755),
        ];
        for (text, old, dir, file) in cases {
            let mode = CopyMode::parse(text, 0o022).unwrap();
            assert_eq!(
                (mode.apply(old, true), mode.apply(old, false)),
                (dir, file),
                "{text} on {old:o}"
            );
        }
        for (text, of_dirs, of_files) in [
            ("F644", false, true),
            ("D755", true, false),
            ("D755,F644", true, true),
            ("6", true, true),
        ] {
            let mode = CopyMode::parse(text, 0).unwrap();
            assert_eq!((mode.concerns(true), mode.concerns(false)), (of_dirs, of_files), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_a_mode() {
        for text in
            ["", ",", "D", "F", "DF755", "755,", "X755", "D888", "d755", &"u+x,".repeat(100)]
        {
            assert_eq!(CopyMode::parse(text, 0), Err(Errno::INVAL), "{text}");
        }
    }
}
