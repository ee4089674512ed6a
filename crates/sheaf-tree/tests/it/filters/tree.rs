//! Trees inside this process, whose leaves answer with what a test says.
use sheaf_tree::filter::{Registry, link_modules, packets};
use sheaf_tree::service::{Leaf, LeafHandle, Provider, Service, ServiceError, Services, Site};
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use sheaf_tree::{Network, Notice, Packet, Stream, Sync, Tuning, WaveResult, launch};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Far longer than anything here takes, so that only what hangs runs into it.
const LIMIT: Duration = Duration::from_secs(60);

/// What all trees of this program share, so that a module is compiled once.
pub static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let registry = Registry::with_builtins();
    link_modules(&registry);
    registry
});

/// What a leaf says to a packet: its index and the packet's bytes in, its answer out.
pub type Answer = Arc<dyn Fn(u32, &[u8]) -> Vec<u8> + Send + std::marker::Sync>;

/// Packets that nobody is waiting for: leaf, tag, bytes.
pub type Unasked = Arc<Mutex<Vec<(u32, i32, Vec<u8>)>>>;

struct Answers {
    answer: Answer,
    unasked: Unasked,
    /// Whether unasked packets are dealt with.
    takes_unasked: bool,
}

struct Answerer {
    leaf: u32,
    answer: Answer,
    unasked: Unasked,
    takes_unasked: bool,
}

impl Provider for Answers {
    fn start(&self, site: &Site<'_>, _: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let leaf = site.leaf.expect("it is asked for at leaves alone");
        let (answer, unasked) = (Arc::clone(&self.answer), Arc::clone(&self.unasked));
        Ok(Box::new(Answerer { leaf, answer, unasked, takes_unasked: self.takes_unasked }))
    }
}

impl Service for Answerer {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        if packet.expect.is_none() {
            self.unasked.lock().unwrap().push((self.leaf, packet.tag, packet.payload.to_vec()));
            if self.takes_unasked {
                leaf.consumed(packet.stream, packet.frame_bytes);
            }
            return;
        }
        leaf.consumed(packet.stream, packet.frame_bytes);
        leaf.reply(
            packet.stream,
            packet.wave,
            packet.tag,
            &(self.answer)(self.leaf, &packet.payload),
        );
    }
}

pub struct Tree {
    pub network: Network,
    pub unasked: Unasked,
}

impl Tree {
    /// A tree of this shape ("1x2x3"; "chain": a root, three nodes with one child each, a leaf).
    pub fn new(
        shape: &str,
        answer: impl Fn(u32, &[u8]) -> Vec<u8> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self::with(shape, true, answer)
    }

    pub fn tuned(
        shape: &str,
        tuning: Tuning,
        answer: impl Fn(u32, &[u8]) -> Vec<u8> + Send + std::marker::Sync + 'static,
    ) -> Self {
        let options = launch::Options { tuning, ..Default::default() };
        Self::with_options(shape, true, options, answer)
    }

    pub fn with(
        shape: &str,
        takes_unasked: bool,
        answer: impl Fn(u32, &[u8]) -> Vec<u8> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self::with_options(shape, takes_unasked, launch::Options::default(), answer)
    }

    fn with_options(
        shape: &str,
        takes_unasked: bool,
        options: launch::Options,
        answer: impl Fn(u32, &[u8]) -> Vec<u8> + Send + std::marker::Sync + 'static,
    ) -> Self {
        let leaves: u32 = shape.split('x').map(|count| count.parse::<u32>().unwrap()).product();
        let hosts: Names = (1..=leaves).map(|number| format!("n{number}")).collect();
        let spec = Spec::parse(shape).unwrap();
        let topology = Topology::build(&spec, "root", hosts, Placement::LeafHosts).unwrap();
        let unasked = Unasked::default();
        let answers =
            Answers { answer: Arc::new(answer), unasked: Arc::clone(&unasked), takes_unasked };
        let services = Services::new(REGISTRY.clone()).with("answers", answers);
        let network = launch::embedded(&topology, &services, &options);
        Self { network, unasked }
    }

    pub fn open(&self, filter: &str, params: &[u8]) -> Stream {
        self.network.open("answers", self.network.everyone(), filter, params, Sync::WaitForAll)
    }

    /// One wave of a stream.
    pub async fn ask(&self, stream: &Stream, payload: &[u8]) -> WaveResult {
        stream.send(100, payload, Some(LIMIT)).await;
        tokio::time::timeout(LIMIT, stream.recv()).await.expect("a wave ends in time")
    }

    /// The packets of one wave that must succeed everywhere.
    pub async fn packets(&self, stream: &Stream, payload: &[u8]) -> Vec<(i32, Vec<u8>)> {
        let result = self.ask(stream, payload).await;
        assert!(result.coverage.is_full(), "{:?} {:?}", result.coverage, self.network.notices());
        let list = result.payload.expect("every leaf has answered");
        packets::decode(&list)
            .unwrap()
            .into_iter()
            .map(|(tag, bytes)| (tag, bytes.to_vec()))
            .collect()
    }

    /// What the notices say of filters that failed: rank and message.
    pub fn complaints(&self) -> Vec<(u32, String)> {
        let notices = self.network.notices().into_iter();
        notices
            .filter_map(|notice| match notice {
                Notice::FilterFailed { by, message, .. } => Some((by, message)),
                Notice::Lost { .. } => None,
                #[allow(unreachable_patterns)]
                _ => None,
            })
            .collect()
    }
}

/// Waits for something that other threads bring about.
pub async fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "it has not come about in time");
        tokio::task::yield_now().await;
    }
}
