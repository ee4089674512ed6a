//! Makes topology files: a shape, and hosts dealt out over it.
use crate::error::{Error, ErrorCode};
use rustc_hash::FxHashMap;
use sheaf_tree::topology::{NodeRef, Placement, Spec, Topology, TopologyError};
use std::fmt::Write as _;

/// Where printed statements are broken.
const LINE_BYTES: usize = 100;

/// Hosts, each with how many processes it takes.
pub type HostCounts = Vec<(String, u32)>;

/// What to make.
#[derive(Debug, Clone, Default)]
pub struct TopologyRequest {
    /// The shape: `b:4^2`, `b:4x4`, `k:2@16`, `g:2:4,4`.
    pub shape: String,
    /// Where the front end runs.
    pub front: String,
    /// Hosts of all other nodes, or of the back ends when `inner` has some.
    pub hosts: HostCounts,
    /// Hosts of inner nodes.
    pub inner: HostCounts,
}

/// Reads `host` and `host:n`, separated by white space; `#` starts a comment. A host without a
/// number takes `processes`.
///
/// # Errors
/// [`ErrorCode::Topology`], naming the word.
pub fn hosts(text: &str, processes: u32) -> Result<HostCounts, Error> {
    let mut hosts = HostCounts::new();
    for word in
        text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace())
    {
        let host = match word.rsplit_once(':') {
            None => (word.to_owned(), processes),
            Some((host, count)) => {
                let wrong = |_| {
                    Error::new(ErrorCode::Topology, format!("{word:?} is not HOST or HOST:NUMBER"))
                };
                (host.to_owned(), count.parse().map_err(wrong)?)
            }
        };
        hosts.push(host);
    }
    Ok(hosts)
}

/// Deals processes out: one on each host, then a second one on each that takes more, and so on.
struct Deal<'a> {
    hosts: &'a HostCounts,
    next: usize,
    round: u32,
}

impl<'a> Deal<'a> {
    fn new(hosts: &'a HostCounts) -> Self {
        Self { hosts, next: 0, round: 0 }
    }

    fn host(&mut self) -> Option<&'a str> {
        let most = self.hosts.iter().map(|(_, count)| *count).max().unwrap_or(0);
        while self.round < most {
            let Some((host, count)) = self.hosts.get(self.next) else {
                self.next = 0;
                self.round += 1;
                continue;
            };
            self.next += 1;
            if self.round < *count {
                return Some(host);
            }
        }
        None
    }
}

/// The shape as a tree whose nodes have no hosts yet; `None` when it has more leaves than
/// `leaves_max`.
fn shape(text: &str, leaves_max: u64) -> Result<Option<Topology>, Error> {
    let bad = |error: TopologyError| Error::new(ErrorCode::Topology, error.to_string());
    let spec = Spec::parse(text).map_err(bad)?;
    let build = |leaves: u64| {
        let names = (0..leaves).map(|_| String::from("-")).collect();
        Topology::build(&spec, "-", names, Placement::LeafHosts)
    };
    let leaves = match &spec {
        Spec::Levels(levels) => levels
            .iter()
            .fold(1, |leaves: u64, &children| leaves.saturating_mul(u64::from(children))),
        // Only its error says how many leaves such a shape has.
        _ => match build(1) {
            Err(TopologyError::Leaves { leaves, .. }) => leaves,
            built => return built.map(Some).map_err(bad),
        },
    };
    // Before anything is made for them.
    if leaves > leaves_max { Ok(None) } else { build(leaves).map(Some).map_err(bad) }
}

fn too_few(which: &str) -> Error {
    let text =
        format!("there are fewer hosts than {which}: list more, or allow more processes on each");
    Error::new(ErrorCode::Topology, text)
}

/// The text of a topology file.
///
/// # Errors
/// [`ErrorCode::Topology`] for a shape that makes no sense, or too few hosts.
pub fn make(request: &TopologyRequest) -> Result<String, Error> {
    let places: u64 = request.hosts.iter().map(|(_, count)| u64::from(*count)).sum();
    let tree = shape(&request.shape, places)?.ok_or_else(|| too_few("nodes"))?;
    let apart = !request.inner.is_empty();
    let (mut leaves, mut inner) = (Deal::new(&request.hosts), Deal::new(&request.inner));
    let mut on_host: FxHashMap<&str, u32> = FxHashMap::default();
    let mut names = Vec::new();
    for node in tree.nodes() {
        let is_inner = node.children().len() > 0;
        let host = match node.rank() {
            0 => Some(&request.front[..]),
            _ if apart && is_inner => inner.host(),
            _ => leaves.host(),
        };
        let which = if apart && is_inner { "inner nodes" } else { "nodes" };
        let host = host.ok_or_else(|| too_few(which))?;
        let place = on_host.entry(host).or_default();
        names.push(format!("{host}:{place}"));
        *place += 1;
    }
    Ok(write(&tree, &names))
}

fn write(tree: &Topology, names: &[String]) -> String {
    let name = |node: NodeRef<'_>| &names[node.rank() as usize];
    let mut out = String::new();
    for node in tree.nodes().filter(|node| node.children().len() > 0) {
        let mut line = out.len();
        let _ = write!(out, "{} =>", name(node));
        for child in node.children() {
            if out.len() + name(child).len() > line + LINE_BYTES {
                line = out.len() + 1;
                out.push_str("\n   ");
            }
            let _ = write!(out, " {}", name(child));
        }
        out.push_str(" ;\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(shape: &str, all: &str, inner: &str, processes: u32) -> Result<String, Error> {
        let (all, inner) = (hosts(all, processes)?, hosts(inner, processes)?);
        make(&TopologyRequest {
            shape: shape.to_owned(),
            front: "fe".to_owned(),
            hosts: all,
            inner,
        })
    }

    #[test]
    fn hosts_are_dealt_out_and_read_back() {
        let text = made("b:2^2", "a b c d e f # more\n", "", 1).unwrap();
        assert_eq!(text, "fe:0 => a:0 b:0 ;\na:0 => c:0 d:0 ;\nb:0 => e:0 f:0 ;\n");
        let text = made("b:2x2", "a:2 b:2", "i j", 1).unwrap();
        assert_eq!(text, "fe:0 => i:0 j:0 ;\ni:0 => a:0 b:0 ;\nj:0 => a:1 b:1 ;\n");
        for shape in ["b:4^3", "k:2@16", "g:2:4,4", "g:2:2x6"] {
            let text = made(shape, "n1 n2 n3", "", 64).unwrap();
            let tree = Topology::from_file(&text).unwrap();
            assert_eq!(
                tree.nodes_len(),
                super::shape(shape, 999).unwrap().unwrap().nodes_len(),
                "{shape}"
            );
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert!(
            made("b:2^2", "a b", "", 1).unwrap_err().message.contains("fewer hosts than nodes")
        );
        assert!(made("b:2^2", "a b c d", "i", 1).unwrap_err().message.contains("inner nodes"));
        assert!(made("z:2", "a", "", 1).is_err());
        for huge in ["b:4294967295x4294967295x4294967295", "b:999^9", "k:2@4194304"] {
            assert!(made(huge, "a b", "", 1).is_err(), "{huge}");
        }
        assert!(hosts("a:x", 1).unwrap_err().message.contains("a:x"));
    }
}
