//! Braces: `{a,b}` stands for two texts.

use crate::error::PatternError;

/// The most texts one pattern may stand for.
const ALTERNATIVES_MAX: usize = 1024;

/// Every choice from the braces of `text`, escapes untouched.
pub(super) fn expand(text: &str) -> Result<Vec<String>, PatternError> {
    let mut done = Vec::new();
    let mut waiting = vec![text.to_owned()];
    while let Some(text) = waiting.pop() {
        let Some(group) = outermost_group(&text) else {
            done.push(text);
            continue;
        };
        // Every waiting text gives at least one result, so this bounds the work as well.
        if done.len() + waiting.len() + group.commas.len() + 1 > ALTERNATIVES_MAX {
            return Err(PatternError::TooManyAlternatives { max: ALTERNATIVES_MAX });
        }
        let ends = group.commas.iter().copied().chain([group.close]);
        let mut start = group.open + 1;
        for end in ends {
            waiting.push(format!(
                "{}{}{}",
                &text[..group.open],
                &text[start..end],
                &text[group.close + 1..]
            ));
            start = end + 1;
        }
    }
    done.sort_unstable();
    done.dedup();
    Ok(done)
}

/// Byte positions of one pair of braces and the commas that divide what is between.
#[derive(Debug)]
struct BraceGroup {
    open: usize,
    commas: Vec<usize>,
    close: usize,
}

/// The first pair of braces that has a comma and lies in no other such pair.
fn outermost_group(text: &str) -> Option<BraceGroup> {
    let mut found: Option<BraceGroup> = None;
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            // All four characters are ASCII, so skipping one byte of an escaped character is
            // enough.
            b'\\' => drop(bytes.next()),
            b'{' => open.push((at, Vec::new())),
            b',' => {
                if let Some((_, commas)) = open.last_mut() {
                    commas.push(at);
                }
            }
            b'}' => {
                let Some((start, commas)) = open.pop() else { continue };
                if !commas.is_empty() && found.as_ref().is_none_or(|group| start < group.open) {
                    found = Some(BraceGroup { open: start, commas, close: at });
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_expand_as_in_a_shell() {
        for (text, expected) in [
            ("a{b,c}d", &["abd", "acd"][..]),
            ("{a,b{c,d}}", &["a", "bc", "bd"]),
            ("{a,b}{c,d}", &["ac", "ad", "bc", "bd"]),
            ("x{,y}", &["x", "xy"]),
            ("{a}", &["{a}"]),
            ("{}", &["{}"]),
            ("{a,b", &["{a,b"]),
            ("a,b}", &["a,b}"]),
            (r"\{a,b}", &[r"\{a,b}"]),
            (r"{a\,b}", &[r"{a\,b}"]),
            ("{/a,/b/c}/d", &["/a/d", "/b/c/d"]),
        ] {
            assert_eq!(expand(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn too_many_alternatives_are_refused() {
        assert_eq!(expand(&"{a,b}".repeat(10)).unwrap().len(), 1024);
        let refused = PatternError::TooManyAlternatives { max: ALTERNATIVES_MAX };
        assert_eq!(expand(&"{a,b}".repeat(11)).unwrap_err(), refused);
        assert_eq!(expand(&"{a,b}".repeat(800)).unwrap_err(), refused);
    }
}
