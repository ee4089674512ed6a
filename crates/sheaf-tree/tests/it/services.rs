//! Services by name: where they run, what becomes of those that are not there, that panic or that
//! hang.
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::filter::{FilterError, Registry};
use sheaf_tree::proto::own;
use sheaf_tree::service::STATE_BYTES_MAX;
use sheaf_tree::service::pool::THREADS_MAX;
use sheaf_tree::service::{
    Audience, Blocking, Caller, Leaf, LeafHandle, Passing, Provider, Service, ServiceError,
    ServiceRequest, Services, Site, Tap, Worker,
};
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use sheaf_tree::{Network, Notice, Packet, Stream, Sync, WaveResult, launch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Far longer than anything here takes, so that only what hangs runs into it.
const LIMIT: Duration = Duration::from_secs(60);
/// How long it is waited for those that hang.
const SOON: Duration = Duration::from_millis(500);

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// A root, two nodes and four leaves, with these services.
fn start(services: Services) -> Network {
    let hosts: Names = (1..=4).map(|number| format!("n{number}")).collect();
    let topology =
        Topology::build(&Spec::parse("1x2x2").unwrap(), "root", hosts, Placement::LeafHosts)
            .unwrap();
    let configs = [("who".to_owned(), b"!".to_vec())].into();
    launch::embedded(&topology, &services, &launch::Options { configs, ..Default::default() })
}

fn services() -> Services {
    Services::new(Registry::with_builtins())
}

fn everybody(network: &Network) -> RangeSet {
    let mut all = network.everyone();
    all.union_with(&network.inner_nodes());
    all
}

fn open(network: &Network, service: &str, members: RangeSet) -> Stream {
    network.open(service, members, "lines", &[], Sync::WaitForAll)
}

async fn ask(stream: &Stream, timeout: Duration) -> WaveResult {
    stream.send(7, b"?", Some(timeout)).await;
    tokio::time::timeout(LIMIT, stream.recv()).await.expect("a wave ends in time")
}

fn failed(result: &WaveResult) -> Vec<(Errno, String)> {
    let of = |(errno, leaves): &(Errno, RangeSet)| (*errno, leaves.to_string());
    result.coverage.failed.iter().map(of).collect()
}

/// Says where it is.
struct Who(Audience);

impl Provider for Who {
    fn audience(&self) -> Audience {
        self.0
    }

    fn start(&self, site: &Site<'_>, _: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let end = std::str::from_utf8(site.config).unwrap();
        Ok(Box::new(Says(format!("{}{end}\n", site.host), Vec::new())))
    }
}

struct Says(String, Vec<u32>);

impl Service for Says {
    fn opened(&mut self, stream: u32, caller: &Caller) {
        assert_eq!(*caller, Caller::Owner);
        self.1.push(stream);
    }

    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        assert!(self.1.contains(&packet.stream), "it was told before");
        leaf.consumed(packet.stream, packet.frame_bytes);
        leaf.reply(packet.stream, packet.wave, packet.tag, self.0.as_bytes());
    }

    fn closed(&mut self, stream: u32) {
        self.1.retain(|other| *other != stream);
    }
}

fn said(result: &WaveResult) -> Vec<String> {
    let text = String::from_utf8(result.payload.clone().unwrap_or_default().to_vec()).unwrap();
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

/// Gathers bytes.
fn lines() -> Services {
    struct Lines;
    struct Gathered(Vec<u8>);
    use sheaf_tree::filter::{Accumulator, Emit, Filter, FilterError, Input};
    impl Filter for Lines {
        fn accumulator(&self) -> Box<dyn Accumulator> {
            Box::new(Gathered(Vec::new()))
        }
    }
    impl Accumulator for Gathered {
        fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
            self.0.extend_from_slice(input.payload);
            Ok(())
        }
        fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
            out.append(&mut self.0);
            Ok(())
        }
    }
    services().with_filter("lines", |_| Ok(Box::new(Lines)))
}

#[test]
fn service_runs_where_it_is_meant_to() {
    run(async {
        for (audience, hosts) in [
            (Audience::Leaves, &["n1!", "n2!", "n3!", "n4!"][..]),
            (Audience::Inner, &["n1!", "n3!", "root!"]),
            (Audience::Everyone, &["n1!", "n1!", "n2!", "n3!", "n3!", "n4!", "root!"]),
        ] {
            let network = start(lines().with("who", Who(audience)));
            assert_eq!(own::ranks(&network.inner_nodes()).to_string(), "0-2");
            let stream = open(&network, "who", everybody(&network));
            let result = ask(&stream, LIMIT).await;
            assert_eq!(said(&result), hosts);
            // The others lack it, and say so.
            assert_eq!(result.coverage.ok.len(), hosts.len() as u64);
            let lacking = match audience {
                Audience::Leaves => network.inner_nodes(),
                Audience::Inner => network.everyone(),
                Audience::Everyone => RangeSet::new(),
            };
            let lacks = [(Errno::NOSYS, lacking.to_string())];
            assert_eq!(failed(&result), if lacking.is_empty() { &[][..] } else { &lacks });
            network.shutdown().await;
        }
    });
}

#[test]
fn unregistered_service_fails_with_enosys() {
    run(async {
        let network = start(lines().with("who", Who(Audience::Leaves)));
        let stream = open(&network, "whom", network.everyone());
        assert_eq!(failed(&ask(&stream, LIMIT).await), [(Errno::NOSYS, "0-3".to_owned())]);
        // Nor is it waited for where the request comes in parts.
        stream.send(7, &vec![0; 3 << 20], Some(LIMIT)).await;
        assert_eq!(failed(&stream.recv().await), [(Errno::NOSYS, "0-3".to_owned())]);
        let survey = network.survey(LIMIT).await;
        assert_eq!(survey.reports.len(), 7, "every node says how it is: {survey:?}");
        network.shutdown().await;
    });
}

/// Panics at every other request, and while it is dropped.
struct Panics(u32);

impl Service for Panics {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        leaf.consumed(packet.stream, packet.frame_bytes);
        self.0 += 1;
        assert!(self.0 % 2 == 1, "as it was told to");
        leaf.reply(packet.stream, packet.wave, 0, b"well\n");
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("once more");
    }
}

#[test]
fn service_that_panics_is_dropped_and_others_go_on() {
    run(async {
        let panics = |_: &Site<'_>, _: LeafHandle| Ok(Box::new(Panics(0)) as Box<dyn Service>);
        let network = start(lines().with("panics", panics).with("who", Who(Audience::Leaves)));
        let who = open(&network, "who", network.everyone());
        let stream = open(&network, "panics", network.everyone());
        assert_eq!(ask(&stream, LIMIT).await.coverage.ok.len(), 4);
        for _ in 0..3 {
            let broken = [(Errno::NOTRECOVERABLE, "0-3".to_owned())];
            assert_eq!(failed(&ask(&stream, LIMIT).await), broken);
            assert_eq!(said(&ask(&who, LIMIT).await).len(), 4);
        }
        // It is started again for the next stream.
        let again = open(&network, "panics", network.everyone());
        assert_eq!(ask(&again, LIMIT).await.coverage.ok.len(), 4);
    });
}

/// Hangs until it is let go, or until nobody waits.
struct Hangs(Arc<AtomicBool>);

impl Worker for Hangs {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        let begun = Instant::now();
        while !self.0.load(Ordering::Relaxed) && begun.elapsed() < LIMIT {
            if request.tag == 1 && request.should_stop() {
                return Err(Errno::CANCELED);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(b"at last\n".to_vec())
    }
}

#[test]
fn blocking_service_does_not_delay_other_services() {
    run(async {
        let go = Arc::new(AtomicBool::new(false));
        let free = Arc::clone(&go);
        let hangs = move |_: &Site<'_>, _: &Caller| {
            Ok(Box::new(Hangs(Arc::clone(&free))) as Box<dyn Worker>)
        };
        let quick = |site: &Site<'_>, _: &Caller| {
            Ok(Box::new(Answers(site.leaf.unwrap_or(u32::MAX))) as Box<dyn Worker>)
        };
        let network =
            start(lines().with("hangs", Blocking::new(hangs)).with("quick", Blocking::new(quick)));
        let stuck: Vec<Stream> =
            (0..4).map(|_| open(&network, "hangs", network.everyone())).collect();
        for stream in &stuck {
            let result = ask(stream, SOON).await;
            assert_eq!(result.coverage.silent.len(), 1, "{result:?}");
        }
        let quick = open(&network, "quick", network.everyone());
        assert_eq!(said(&ask(&quick, LIMIT).await), ["0 ?", "1 ?", "2 ?", "3 ?"]);
        // A request longer than what may be under way comes whole.
        let long = vec![b'x'; 3 << 20];
        quick.send(7, &long, Some(LIMIT)).await;
        let result = quick.recv().await;
        assert_eq!(said(&result).iter().map(String::len).sum::<usize>(), 4 * ((3 << 20) + 2));
        go.store(true, Ordering::Relaxed);
        network.shutdown().await;
    });
}

struct Answers(u32);

impl Worker for Answers {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        Ok([format!("{} ", self.0).as_bytes(), &request.payload, b"\n"].concat())
    }
}

#[test]
fn worker_is_told_when_nobody_waits_and_dropped_with_its_stream() {
    /// Notes how it ends.
    struct Notes(Hangs, Arc<Mutex<Vec<&'static str>>>);
    impl Worker for Notes {
        fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
            let done = self.0.request(request);
            self.1.lock().unwrap().push(if done.is_err() { "told" } else { "done" });
            done
        }
    }
    impl Drop for Notes {
        fn drop(&mut self) {
            self.1.lock().unwrap().push("dropped");
        }
    }
    run(async {
        let notes: Arc<Mutex<Vec<&str>>> = Arc::default();
        let shared = Arc::clone(&notes);
        let make = move |_: &Site<'_>, _: &Caller| {
            let notes = Notes(Hangs(Arc::default()), Arc::clone(&shared));
            Ok(Box::new(notes) as Box<dyn Worker>)
        };
        let network = start(lines().with("notes", Blocking::new(make)));
        let stream = open(&network, "notes", RangeSet::single(2));
        stream.send(1, b"", Some(LIMIT)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(stream);
        let begun = Instant::now();
        while notes.lock().unwrap().len() < 2 && begun.elapsed() < LIMIT {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(*notes.lock().unwrap(), ["told", "dropped"]);
        network.shutdown().await;
    });
}

/// Counts the waves that pass, and panics at the third.
struct Counts(Arc<Mutex<Vec<u64>>>, bool);

impl Tap for Counts {
    fn passing(&mut self, passing: &Passing<'_>) {
        assert!(!self.1 || passing.wave < 2, "as it was told to");
        assert_eq!(
            passing.payload.map(|payload| payload.split(|byte| *byte == b'\n').count() as u64 - 1),
            Some(passing.ok.len())
        );
        self.0.lock().unwrap().push(passing.ok.len());
    }

    fn bytes(&self) -> usize {
        0
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn absorb(&mut self, _: u32, _: &[u8]) -> Result<(), FilterError> {
        Ok(())
    }
}

/// A service whose taps write down how many each wave counts.
struct Tapped(Arc<Mutex<Vec<u64>>>, bool);

impl Provider for Tapped {
    fn tap(&self, site: &Site<'_>) -> Option<Box<dyn Tap>> {
        assert_eq!(site.leaf, None);
        Some(Box::new(Counts(Arc::clone(&self.0), self.1 && site.rank == 1)))
    }

    fn start(&self, site: &Site<'_>, _: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        Ok(Box::new(Says(format!("{}\n", site.host), Vec::new())))
    }
}

#[test]
fn tap_sees_each_wave_and_harms_nobody_when_it_panics() {
    run(async {
        for panics in [false, true] {
            let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
            let network = start(lines().with("tapped", Tapped(Arc::clone(&seen), panics)));
            let other = start_other(&network).await;
            let stream = open(&network, "tapped", network.everyone());
            for _ in 0..4 {
                assert_eq!(said(&ask(&stream, LIMIT).await), ["n1", "n2", "n3", "n4"]);
            }
            drop(other);
            let mut seen = seen.lock().unwrap().clone();
            seen.sort_unstable();
            // The root sees four, each node two; the one that panics sees two waves.
            let expected = if panics { [vec![2; 6], vec![4; 4]] } else { [vec![2; 8], vec![4; 4]] };
            assert_eq!(seen, expected.concat());
        }
    });
}

/// A stream of another service, which taps do not see.
async fn start_other(network: &Network) -> Stream {
    let stream = open(network, "survey", network.everyone());
    assert_eq!(ask(&stream, LIMIT).await.coverage.ok.len(), 4);
    stream
}

/// Keeps all that it has ever seen.
struct Hoards(Vec<u8>);

impl Tap for Hoards {
    fn passing(&mut self, passing: &Passing<'_>) {
        self.0.extend_from_slice(passing.payload.unwrap_or_default());
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }

    fn absorb(&mut self, _: u32, state: &[u8]) -> Result<(), FilterError> {
        self.0.extend_from_slice(state);
        Ok(())
    }
}

struct Hoarding;

impl Provider for Hoarding {
    fn tap(&self, site: &Site<'_>) -> Option<Box<dyn Tap>> {
        (site.rank == 1).then(|| Box::new(Hoards(Vec::new())) as Box<dyn Tap>)
    }

    fn start(&self, _: &Site<'_>, _: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        Ok(Box::new(Says("much\n".repeat(STATE_BYTES_MAX / 16), Vec::new())))
    }
}

#[test]
fn tap_that_keeps_too_much_is_named_and_sees_nothing_more() {
    run(async {
        let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
        let network = start(
            lines().with("hoards", Hoarding).with("tapped", Tapped(Arc::clone(&seen), false)),
        );
        let other = open(&network, "tapped", network.everyone());
        let stream = open(&network, "hoards", network.everyone());
        for _ in 0..4 {
            let answered = ask(&stream, LIMIT).await;
            assert_eq!(answered.coverage.ok.len(), 4, "whatever becomes of the tap");
            assert_eq!(said(&ask(&other, LIMIT).await), ["n1", "n2", "n3", "n4"]);
        }
        assert_eq!(seen.lock().unwrap().len(), 4 * 3, "the other service's taps go on");
        drop(stream);
        let named = |notice: &Notice| matches!(notice, Notice::StateLost { rank: 1, service, .. } if service == "hoards");
        let begun = Instant::now();
        while !network.notices().iter().any(named) {
            assert!(begun.elapsed() < LIMIT, "{:?}", network.notices());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(network.notices().len(), 1, "{:?}", network.notices());
    });
}

/// Posts as long as it is let, and counts what it has posted.
struct Floods(Arc<Mutex<u64>>, Option<u32>);

const DROP: &[u8] = &[b'x'; 1 << 10];

impl Floods {
    fn post(&mut self, leaf: &mut Leaf<'_>) {
        let Some(stream) = self.1 else { return };
        while !leaf.is_held(stream) {
            leaf.post(stream, 0, DROP);
            *self.0.lock().unwrap() += 1;
        }
    }
}

impl Service for Floods {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        leaf.consumed(packet.stream, packet.frame_bytes);
        self.1 = Some(packet.stream);
        self.post(leaf);
    }

    fn closed(&mut self, _: u32) {
        self.1 = None;
    }

    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        self.post(leaf);
    }
}

#[test]
fn flooding_service_is_held_back_and_delays_no_other() {
    run(async {
        let posted: Arc<Mutex<u64>> = Arc::default();
        let count = Arc::clone(&posted);
        let floods = move |_: &Site<'_>, _: LeafHandle| {
            Ok(Box::new(Floods(Arc::clone(&count), None)) as Box<dyn Service>)
        };
        let network = start(lines().with("floods", floods).with("who", Who(Audience::Leaves)));
        let stream = open(&network, "floods", network.everyone());
        let who = open(&network, "who", network.everyone());
        stream.send(0, b"", None).await;
        for _ in 0..100 {
            assert_eq!(said(&ask(&who, LIMIT).await), ["n1!", "n2!", "n3!", "n4!"]);
        }
        // A window for each of the links on the way, of four leaves.
        let window = sheaf_tree::Tuning::default().window_bytes as u64;
        let most = 4 * 3 * (window / DROP.len() as u64 + 64);
        let held = *posted.lock().unwrap();
        assert!(held > 0 && held <= most, "{held} of at most {most}");
        tokio::time::sleep(SOON).await;
        assert_eq!(*posted.lock().unwrap(), held, "nobody takes anything");
        // It goes on as soon as somebody does.
        for _ in 0..held {
            let result = tokio::time::timeout(LIMIT, stream.recv()).await.expect("it flows");
            assert_eq!(result.coverage.ok.len(), 4);
            if *posted.lock().unwrap() > held {
                return;
            }
        }
        panic!("it does not go on");
    });
}

#[test]
fn service_whose_threads_all_hang_refuses_and_others_go_on() {
    run(async {
        let go = Arc::new(AtomicBool::new(false));
        let free = Arc::clone(&go);
        let hangs = move |_: &Site<'_>, _: &Caller| {
            Ok(Box::new(Hangs(Arc::clone(&free))) as Box<dyn Worker>)
        };
        let quick = |site: &Site<'_>, _: &Caller| {
            Ok(Box::new(Answers(site.leaf.unwrap_or(u32::MAX))) as Box<dyn Worker>)
        };
        let network =
            start(lines().with("hangs", Blocking::new(hangs)).with("quick", Blocking::new(quick)));
        // All nodes are in this process, and the threads are its.
        let streams = THREADS_MAX / 4 + 2;
        let stuck: Vec<Stream> =
            (0..streams).map(|_| open(&network, "hangs", network.everyone())).collect();
        for stream in &stuck {
            stream.send(7, b"", Some(LIMIT)).await;
        }
        let last = stuck.last().unwrap();
        let refused = tokio::time::timeout(LIMIT / 2, last.recv()).await.expect("it is refused");
        assert_eq!(failed(&refused), [(Errno::AGAIN, "0-3".to_owned())]);
        let quick = open(&network, "quick", network.everyone());
        assert_eq!(said(&ask(&quick, LIMIT).await), ["0 ?", "1 ?", "2 ?", "3 ?"]);
        go.store(true, Ordering::Relaxed);
        network.shutdown().await;
    });
}

#[test]
fn node_within_another_runtime_says_why_it_does_not_start() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let services = Services::new(Registry::with_builtins());
    let served = runtime.block_on(async { launch::serve(ours.into(), &services) });
    assert!(matches!(served, Err(launch::ServeError::Runtime)), "{served:?}");
}

#[test]
fn long_requests_behind_a_hanging_one_wait_at_their_sender() {
    run(async {
        let go = Arc::new(AtomicBool::new(false));
        let free = Arc::clone(&go);
        let hangs = move |_: &Site<'_>, _: &Caller| {
            Ok(Box::new(Hangs(Arc::clone(&free))) as Box<dyn Worker>)
        };
        let network = start(lines().with("hangs", Blocking::new(hangs)));
        let stream = open(&network, "hangs", network.everyone());
        let long = vec![b'x'; 3 << 20];
        let send = async {
            for _ in 0..4 {
                stream.send(7, &long, Some(LIMIT)).await;
            }
        };
        tokio::pin!(send);
        let all = tokio::time::timeout(SOON, &mut send).await;
        assert!(all.is_err(), "12 MiB are under way, and the window is one");
        go.store(true, Ordering::Relaxed);
        tokio::time::timeout(LIMIT, send).await.expect("there is room again");
        for _ in 0..4 {
            assert_eq!(said(&stream.recv().await), ["at last"; 4]);
        }
        network.shutdown().await;
    });
}

/// Notes what it is asked, for others to answer.
#[derive(Clone, Default)]
struct Later(Arc<Mutex<Vec<(LeafHandle, Packet)>>>);

struct LaterAt(Later, LeafHandle);

impl Provider for Later {
    fn start(&self, _: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        Ok(Box::new(LaterAt(self.clone(), handle)))
    }
}

impl Service for LaterAt {
    fn packet(&mut self, packet: Packet, _: &mut Leaf<'_>) {
        self.0.0.lock().unwrap().push((self.1.clone(), packet));
    }
}

/// Several nodes of one process queue answers before any of them is sent.
#[test]
fn replies_queued_at_once_by_nodes_of_a_process_are_all_sent() {
    run(async {
        let asked = Later::default();
        let network = start(lines().with("later", asked.clone()));
        let stream = open(&network, "later", network.everyone());
        stream.send(7, b"?", Some(LIMIT)).await;
        let packets = std::mem::take(&mut *asked.0.lock().unwrap());
        assert_eq!(packets.len(), 4, "services are told while the question is sent");
        for (handle, packet) in packets {
            handle.queue(|leaf| {
                leaf.consumed(packet.stream, packet.frame_bytes);
                leaf.reply(packet.stream, packet.wave, 7, b"x\n");
            });
        }
        let result = tokio::time::timeout(LIMIT, stream.recv()).await;
        let result = result.expect("all answers come");
        assert_eq!((failed(&result), result.coverage.ok.to_string()), (vec![], "0-3".into()));
    });
}
