//! Regular expressions that a whole path is to match.
use super::FindError;
use crate::grep::{GrepSyntax, whole_pattern};
use regex_automata::meta::{Builder, Config, Regex};

/// The most memory a compiled expression may take.
const COMPILED_BYTES_MAX: usize = 16 << 20;

/// Ways to write regular expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegexType {
    /// What is read as POSIX's extended ones where nothing is said.
    Unsaid,
    /// POSIX's basic ones.
    Basic,
    /// POSIX's extended ones.
    Extended,
}

impl RegexType {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "posix-basic" | "ed" | "sed" => Self::Basic,
            "posix-extended" => Self::Extended,
            _ => return None,
        })
    }

    /// What matches whole paths.
    ///
    /// # Errors
    /// What is wrong with the expression, in words.
    pub fn regex(self, text: &str, ignores_case: bool) -> Result<Regex, FindError> {
        if self == Self::Unsaid && ["\\(", "\\)", "\\|"].iter().any(|of| text.contains(of)) {
            let text = "\\( \\) and \\| are text in an extended expression, as they are read here; \
                        say -regextype posix-extended or posix-basic before it";
            return Err(FindError(text.to_owned()));
        }
        let syntax = if self == Self::Basic { GrepSyntax::Basic } else { GrepSyntax::Extended };
        let hir = whole_pattern(text.as_bytes(), syntax, ignores_case)
            .map_err(|error| FindError(error.to_string()))?;
        let config = Config::new().utf8_empty(false).nfa_size_limit(Some(COMPILED_BYTES_MAX));
        let regex = Builder::new().configure(config).build_from_hir(&hir);
        regex.map_err(|error| FindError(error.to_string()))
    }
}
