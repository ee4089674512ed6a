//! What kind of tree is asked for.
use super::{FANOUT_MAX, TopologyError};
use std::fmt;
use std::str::FromStr;

/// A tree's specification, as the user writes it.
///
/// | text | tree |
/// |---|---|
/// | `auto` | fan-out at most [`AUTO_FANOUT`](super::AUTO_FANOUT), the least depth, balanced |
/// | `flat` | every leaf a child of the root |
/// | `1x24x24`, `b:24x24`, `b:24^2` | so many children at each level, from the root down |
/// | `k-ary:32` | every inner node has up to 32 children, all leaves equally deep |
/// | `k-nomial:2` | a k-nomial tree over the hosts, each an inner node for those that follow it |
/// | `k:2@128` | MRNet's k-nomial tree of 128 nodes in all |
/// | `g:2:8,4`, `g:2:2x6` | level by level, the number of children of each node (`KxN`: K nodes with N each) |
/// | `file:PATH` | as MRNet's topology file says; the caller reads it: [`Topology::from_file`](super::Topology::from_file) |
///
/// `auto`, `flat`, `k-ary` and `k-nomial` fit any number of hosts. The levels of `1x24x24` make
/// 576 leaves: more hosts are an error; with fewer, every level is pruned evenly and to at most
/// as many nodes as there are hosts. `k:` and `g:` need exactly the hosts that they have leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Spec {
    /// `auto`
    #[default]
    Auto,
    /// `flat`
    Flat,
    /// `1xAxB…`: the children of the root, of its children, …
    Levels(Vec<u32>),
    /// `k-ary:K`
    KAry(u32),
    /// `k-nomial:K`
    KNomial(u32),
    /// `k:K@N`
    KNomialNodes {
        /// The factor.
        k: u32,
        /// Nodes in all, the root included.
        nodes: u32,
    },
    /// `g:…`: for each level `(how many nodes, children of each)`.
    Generic(Vec<Vec<(u32, u32)>>),
    /// `file:PATH`
    File(String),
}

impl Spec {
    /// Reads a specification.
    ///
    /// # Errors
    /// [`TopologyError::Spec`] with the text and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        Self::read(text).map_err(|why| TopologyError::Spec { text: text.to_owned(), why })
    }

    fn read(text: &str) -> Result<Self, String> {
        if let Some((name, value)) = text.split_once(':') {
            return match name {
                "k-ary" => Ok(Self::KAry(factor(value)?)),
                "k-nomial" => Ok(Self::KNomial(factor(value)?)),
                "b" => Ok(Self::Levels(balanced(value)?)),
                "k" => {
                    let (k, nodes) = value.split_once('@').ok_or("k: is written k:FACTOR@NODES")?;
                    Ok(Self::KNomialNodes { k: factor(k)?, nodes: number(nodes)? })
                }
                "g" => generic(value),
                "file" if value.is_empty() => Err("file: needs a path".to_owned()),
                "file" => Ok(Self::File(value.to_owned())),
                _ => Err(format!("there is no kind {name:?} (k-ary, k-nomial, b, k, g, file)")),
            };
        }
        match text {
            "auto" => Ok(Self::Auto),
            "flat" => Ok(Self::Flat),
            _ => match text.split_once('x') {
                Some(("1", rest)) => Ok(Self::Levels(levels(rest)?)),
                Some((root, _))
                    if root.bytes().all(|byte| byte.is_ascii_digit()) && !root.is_empty() =>
                {
                    Err(format!("the first level is the root alone: write 1x{text}"))
                }
                _ => Err("try auto, flat, 1x8x8, k-ary:32, k-nomial:2 or file:PATH".to_owned()),
            },
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        // `parse` also accepts a plus sign, which no specification has.
        Ok(number) if number > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(format!("{text:?} is no number from 1 to {}", u32::MAX)),
    }
}

fn fanout(text: &str) -> Result<u32, String> {
    let number = number(text)?;
    if number > FANOUT_MAX {
        Err(format!("a node has at most {FANOUT_MAX} children"))
    } else {
        Ok(number)
    }
}

fn factor(text: &str) -> Result<u32, String> {
    let factor = fanout(text)?;
    if factor < 2 { Err("the factor must be 2 or more".to_owned()) } else { Ok(factor) }
}

fn levels(text: &str) -> Result<Vec<u32>, String> {
    text.split('x').map(fanout).collect()
}

fn balanced(text: &str) -> Result<Vec<u32>, String> {
    let Some((fan, depth)) = text.split_once('^') else { return levels(text) };
    let depth = number(depth)?;
    // Before the levels are made, which take memory.
    if depth > super::DEPTH_MAX {
        return Err(format!("a tree is at most {} levels deep", super::DEPTH_MAX));
    }
    Ok(vec![fanout(fan)?; depth as usize])
}

fn generic(text: &str) -> Result<Spec, String> {
    let item = |item: &str| match item.split_once('x') {
        Some((times, children)) => Ok((number(times)?, fanout(children)?)),
        None if item == "0" => Ok((1, 0)),
        None => Ok((1, fanout(item)?)),
    };
    let level = |level: &str| level.split(',').map(item).collect::<Result<Vec<_>, String>>();
    let levels = text.split(':').map(level).collect::<Result<Vec<_>, String>>()?;
    match levels.first().map(Vec::as_slice) {
        Some([(1, 1..)]) => Ok(Spec::Generic(levels)),
        _ => Err("the first level of g: is the root's number of children".to_owned()),
    }
}

impl FromStr for Spec {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        Self::parse(text)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Flat => f.write_str("flat"),
            Self::Levels(levels) => {
                f.write_str("1")?;
                levels.iter().try_for_each(|level| write!(f, "x{level}"))
            }
            Self::KAry(k) => write!(f, "k-ary:{k}"),
            Self::KNomial(k) => write!(f, "k-nomial:{k}"),
            Self::KNomialNodes { k, nodes } => write!(f, "k:{k}@{nodes}"),
            Self::Generic(levels) => {
                f.write_str("g")?;
                for level in levels {
                    for (at, (times, children)) in level.iter().enumerate() {
                        f.write_str(if at == 0 { ":" } else { "," })?;
                        match times {
                            1 => write!(f, "{children}")?,
                            _ => write!(f, "{times}x{children}")?,
                        }
                    }
                }
                Ok(())
            }
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_it_prints() {
        for text in [
            "auto",
            "flat",
            "1x24x24",
            "k-ary:32",
            "k-nomial:2",
            "k:2@128",
            "g:2:8,4",
            "g:2:2x6",
            "file:a b",
        ] {
            assert_eq!(Spec::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Spec::parse("b:16^3"), Spec::parse("1x16x16x16"));
        assert_eq!(Spec::parse("b:2x4x8"), Spec::parse("1x2x4x8"));
    }

    #[test]
    fn errors_say_what_to_write() {
        let message = |text: &str| Spec::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("8x8"),
            "\"8x8\" is no tree: the first level is the root alone: write 1x8x8"
        );
        assert_eq!(message("1x"), "\"1x\" is no tree: \"\" is no number from 1 to 4294967295");
        assert_eq!(message("1x0"), "\"1x0\" is no tree: \"0\" is no number from 1 to 4294967295");
        assert_eq!(message("k-ary:1"), "\"k-ary:1\" is no tree: the factor must be 2 or more");
        assert_eq!(message("k:2"), "\"k:2\" is no tree: k: is written k:FACTOR@NODES");
        assert_eq!(
            message("tree"),
            "\"tree\" is no tree: try auto, flat, 1x8x8, k-ary:32, k-nomial:2 or file:PATH"
        );
        assert_eq!(
            message("x-ary:2"),
            "\"x-ary:2\" is no tree: there is no kind \"x-ary\" (k-ary, k-nomial, b, k, g, file)"
        );
        assert_eq!(
            message("g:2,2:3"),
            "\"g:2,2:3\" is no tree: the first level of g: is the root's number of children"
        );
        assert!(message("b:2^999").contains("at most"));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "([abgkx@:^,]|k-ary|file|[0-9]){0,8}|\\PC{0,8}") {
            if let Ok(spec) = Spec::parse(&text) {
                prop_assert_eq!(Spec::parse(&spec.to_string()).unwrap(), spec);
            }
        }
    }
}
