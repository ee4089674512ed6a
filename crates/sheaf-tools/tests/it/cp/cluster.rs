//! Hosts that are directories, served by a tree within the test.
use sheaf_core::RangeSet;
use sheaf_group::{Client, Limits, Servers, service_config};
use sheaf_tools::Target;
use sheaf_tree::launch;
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use std::path::PathBuf;
use tempfile::TempDir;

/// Shapes that fit any number of hosts up to 60, some with nodes that have one child.
pub const SHAPES: &[&str] = &["flat", "auto", "k-ary:2", "1x1x60", "1x4x1x15"];

pub struct Cluster {
    pub dir: TempDir,
    pub hosts: u32,
}

impl Cluster {
    pub fn new(hosts: u32) -> Self {
        let cluster = Self { dir: tempfile::tempdir().unwrap(), hosts };
        for leaf in 0..hosts {
            std::fs::create_dir(cluster.path(leaf, "")).unwrap();
        }
        cluster
    }

    /// A file of the host with this leaf.
    pub fn path(&self, leaf: u32, path: &str) -> PathBuf {
        let host = self.dir.path().join(format!("n{}", leaf + 1));
        if path.is_empty() { host } else { host.join(path.trim_start_matches('/')) }
    }

    pub fn write(&self, leaf: u32, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(leaf, path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn read(&self, leaf: u32, path: &str) -> Vec<u8> {
        let path = self.path(leaf, path);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A session on a tree of this shape. Needs a runtime.
    pub fn client(&self, shape: &str) -> Client {
        let names: Names = (1..=self.hosts).map(|n| format!("n{n}")).collect();
        let spec = Spec::parse(shape).unwrap();
        let tree = Topology::build(&spec, "root", names, Placement::LeafHosts).unwrap();
        assert_eq!(tree.leaves_len(), self.hosts);
        let configs = service_config(self.dir.path().join("%h").to_str().unwrap(), None);
        let options = launch::Options { configs, ..Default::default() };
        let network =
            launch::embedded(&tree, &Servers::new(sheaf_tools::tools()).services(), &options);
        Client::new(network, tree.leaf_hosts(), Limits::default()).unwrap()
    }

    /// This path on every host.
    pub fn target(&self, path: &str) -> Target {
        Target { members: RangeSet::full(self.hosts), path: path.to_owned() }
    }
}

/// Runs a test that talks to a tree.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}
