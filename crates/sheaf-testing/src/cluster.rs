//! Hosts that are directories, served by a tree within the test.
use sheaf_core::RangeSet;
use sheaf_group::tool::Tools;
use sheaf_group::{Client, Limits, Servers, service_config};
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use sheaf_tree::{Network, launch};
use std::path::PathBuf;
use tempfile::TempDir;

/// Such hosts, `n1`, `n2`, …
#[derive(Debug)]
pub struct TestCluster {
    /// Where their directories are.
    pub dir: TempDir,
    /// How many there are.
    pub hosts: u32,
}

impl TestCluster {
    /// Makes their directories.
    ///
    /// # Panics
    /// When there is no room for them; so do all functions here.
    #[must_use]
    pub fn new(hosts: u32) -> Self {
        let cluster = Self { dir: tempfile::tempdir().unwrap(), hosts };
        for leaf in 0..hosts {
            std::fs::create_dir(cluster.path(leaf, "")).unwrap();
        }
        cluster
    }

    /// A file of the host with this leaf; its directory, without a name.
    #[must_use]
    pub fn path(&self, leaf: u32, path: &str) -> PathBuf {
        let host = self.dir.path().join(format!("n{}", leaf + 1));
        if path.is_empty() { host } else { host.join(path.trim_start_matches('/')) }
    }

    /// Writes a file of one host, with the directories above it.
    pub fn write(&self, leaf: u32, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(leaf, path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Writes it on every host.
    pub fn write_all(&self, path: &str, content: impl AsRef<[u8]>) {
        (0..self.hosts).for_each(|leaf| self.write(leaf, path, &content));
    }

    /// What is in a file of one host.
    #[must_use]
    pub fn read(&self, leaf: u32, path: &str) -> Vec<u8> {
        let path = self.path(leaf, path);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Makes the host one that cannot be reached, before the tree starts.
    pub fn lose(&self, leaf: u32) {
        std::fs::remove_dir_all(self.path(leaf, "")).unwrap();
    }

    /// A client of a tree whose leaves are these hosts in this order.
    #[must_use]
    pub fn session_in_order(&self, order: &[u32]) -> Client {
        let names: Names = order.iter().map(|n| format!("n{n}")).collect();
        self.session_of(&Spec::parse("k-ary:2").unwrap(), names, Tools::default())
    }

    /// A client of a tree of this shape, without tools. Needs a runtime.
    #[must_use]
    pub fn client(&self, shape: &str) -> Client {
        self.session_with(shape, Tools::default())
    }

    /// The same with these tools.
    #[must_use]
    pub fn session_with(&self, shape: &str, tools: Tools) -> Client {
        let names: Names = (1..=self.hosts).map(|n| format!("n{n}")).collect();
        self.session_of(&Spec::parse(shape).unwrap(), names, tools)
    }

    fn session_of(&self, spec: &Spec, names: Names, tools: Tools) -> Client {
        Client::new(self.network(spec, names.clone(), tools), names, Limits::default()).unwrap()
    }

    /// The tree itself.
    #[must_use]
    pub fn network(&self, spec: &Spec, names: Names, tools: Tools) -> Network {
        let tree = Topology::build(spec, "root", names, Placement::LeafHosts).unwrap();
        assert_eq!(tree.leaves_len(), self.hosts);
        let configs = service_config(self.dir.path().join("%h").to_str().unwrap(), None);
        let options = launch::Options { configs, ..Default::default() };
        launch::embedded(&tree, &Servers::new(tools).services(), &options)
    }

    /// All of them.
    #[must_use]
    pub fn everyone(&self) -> RangeSet {
        RangeSet::full(self.hosts)
    }
}

/// Runs a test that talks to a tree.
///
/// # Panics
/// Without a runtime.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}
