//! Hosts that are directories, with all tools.
use sheaf_core::RangeSet;
use sheaf_group::Client;
pub use sheaf_testing::cluster::run;
use sheaf_tools::Target;
use std::ops::Deref;

/// Shapes that fit any number of hosts up to 60, some with nodes that have one child.
pub const SHAPES: &[&str] = &["flat", "auto", "k-ary:2", "1x1x60", "1x4x1x15"];

pub struct Cluster(sheaf_testing::cluster::TestCluster);

impl Deref for Cluster {
    type Target = sheaf_testing::cluster::TestCluster;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Cluster {
    pub fn new(hosts: u32) -> Self {
        Self(sheaf_testing::cluster::TestCluster::new(hosts))
    }

    /// A session on a tree of this shape. Needs a runtime.
    pub fn client(&self, shape: &str) -> Client {
        self.session_with(shape, sheaf_tools::tools())
    }

    /// This path on every host.
    pub fn target(&self, path: &str) -> Target {
        Target { members: RangeSet::full(self.hosts), path: path.to_owned() }
    }
}
