//! Hosts that are directories, served by a tree within the test.
pub use sheaf_testing::cluster::{TestCluster as Cluster, run};

/// Shapes that fit any number of hosts, some with nodes that have one child.
pub const SHAPES: &[&str] =
    &["flat", "auto", "k-ary:2", "k-nomial:2", "1x1x300", "1x8x1x40", "1x1x1x2x150"];
