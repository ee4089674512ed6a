//! What can be wrong with a topology.
use super::{DEPTH_MAX, NODES_MAX};
use sheaf_core::{Errno, varint::Malformed};

/// Why there is no such tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The specification's text is no specification.
    #[error("{text:?} is no tree: {why}")]
    Spec {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// The tree that is asked for has another number of leaves than there are hosts.
    #[error("the tree {spec} has {leaves} leaves, but there are {hosts} hosts")]
    Leaves {
        /// The specification.
        spec: String,
        /// The leaves it makes.
        leaves: u64,
        /// The hosts there are.
        hosts: u32,
    },
    /// A topology file that cannot be read.
    #[error("line {line}:{column}: {message}")]
    File {
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in characters.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// No host to put a leaf or an inner node on.
    #[error("there are no hosts to build a tree of")]
    NoHosts,
    /// A host that is to be left out has an inner node above leaves that are not.
    #[error("{host} is left out, but it is the inner node above {below}")]
    NotSpared {
        /// The host.
        host: String,
        /// The hosts of the leaves below, folded.
        below: String,
    },
    /// More nodes than [`NODES_MAX`].
    #[error("a tree has at most {NODES_MAX} nodes")]
    TooManyNodes,
    /// Deeper than [`DEPTH_MAX`].
    #[error("a tree is at most {DEPTH_MAX} levels deep")]
    TooDeep,
    /// Bytes that are no encoded subtree.
    #[error("malformed subtree")]
    Malformed,
}

impl TopologyError {
    /// What it is to a caller that speaks in error numbers. No retry can help.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::TooManyNodes | Self::TooDeep => Errno::TOOBIG,
            Self::Malformed => Errno::BADMSG,
            _ => Errno::INVAL,
        }
    }
}

impl From<Malformed> for TopologyError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}
