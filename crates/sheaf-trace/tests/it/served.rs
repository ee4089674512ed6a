//! Rows of many hosts, whose clocks are wrong, come out by one clock.
use sheaf_group::Servers;
use sheaf_recorder::{IoEvent, IoOp, SegmentOptions, TraceSegment};
use sheaf_session::{Environment, Session};
use sheaf_trace::served::{
    COLLECT, CollectRequest, LogClients, ServedStore, TRACE_MERGE, TRACE_SERVICE, TraceBatch,
    shared_segments,
};
use sheaf_trace::{KeepLimits, PartLimits, StoreReader, TraceNames};
use sheaf_tree::Sync;
use sheaf_tree::filter::Registry;
use sheaf_tree::service::Services;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

const HOSTS: u32 = 16;
const EACH: u64 = 50;
const LIMIT: Duration = Duration::from_secs(30);

fn now_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// Seconds too late or too early, another at each host.
fn skew(host: &str) -> i64 {
    let number: i64 = host.trim_start_matches('n').parse().unwrap();
    (number - 8) * 3_456_789_012
}

/// Every host does something in turn; when, by the right clock: from and until.
fn record(buffers: &std::path::Path) -> Vec<(i64, i64)> {
    let segments: Vec<TraceSegment> = (1..=HOSTS)
        .map(|host| {
            let directory = shared_segments(&buffers.join(format!("n{host}")));
            std::fs::create_dir_all(&directory).unwrap();
            let options = SegmentOptions { rings: 1, ..SegmentOptions::default() };
            TraceSegment::create(&directory.join("1.segment"), &options).unwrap()
        })
        .collect();
    let mut writers: Vec<_> = segments.iter().map(|segment| segment.writer().unwrap()).collect();
    let mut done = Vec::new();
    for number in 0..EACH * u64::from(HOSTS) {
        let at = (number % u64::from(HOSTS)) as usize;
        let (from, begun) = (now_ns(), segments[at].clock().now());
        let until = now_ns();
        let ended = segments[at].clock().now();
        let event = IoEvent { begun, ended, asked: number, ..IoEvent::new(IoOp::Read) };
        writers[at].put(&event);
        done.push((from, until));
    }
    drop(writers);
    segments.iter().for_each(TraceSegment::end);
    done
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
async fn clocks_that_are_wrong_are_put_right_within_what_is_said() {
    let (home, trace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut filters = LogClients::filters(Registry::with_builtins());
    sheaf_group::aggregate::register(&mut filters);
    let services = Servers::default().register(Services::new(filters));
    let services = LogClients::default().with_clocks(skew).register(services);
    let session = Session::builder(&Environment::of_this_process())
        .embedded(HOSTS)
        .services(services)
        .start()
        .await
        .unwrap();
    let done = record(home.path());
    let network = session.client().network();
    let members = network.everyone();
    let stream = network.open(TRACE_SERVICE, members.clone(), TRACE_MERGE, b"", Sync::WaitForAll);
    let mut store =
        ServedStore::open(trace.path(), PartLimits::default(), KeepLimits::default()).unwrap();
    let mut stored = 0;
    for round in 0.. {
        let place = |leaf: u32| store.place(&format!("n{}", leaf + 1), leaf);
        let asked = CollectRequest {
            collector: 1,
            buffers: home.path().join("%h").to_str().unwrap().to_owned(),
            // The clocks are known before anything is taken.
            rows_max: if round < 8 { 0 } else { 7 },
            spool_bytes_max: 1 << 20,
            places: members.iter().map(place).collect(),
            ..CollectRequest::default()
        };
        let sent_ns = now_ns();
        stream.send(COLLECT, asked.encode(), Some(LIMIT)).await;
        let answer = stream.recv().await;
        let came_ns = now_ns();
        assert!(answer.coverage.is_full(), "{:?}", answer.coverage);
        let batch = TraceBatch::decode(&answer.payload.unwrap()).unwrap();
        assert!(batch.rows.is_sorted_by_key(|row| row.time_ns), "merged on the way");
        let more = batch.parts.iter().any(|part| part.more);
        stored += store.add(batch, sent_ns, came_ns).unwrap();
        if round > 8 && !more {
            break;
        }
    }
    session.end().await;
    assert_eq!(stored, EACH * u64::from(HOSTS));
    let served = store.finish();
    assert_eq!((served.totals.rows, served.totals.lost), (stored, 0));
    let errors: BTreeMap<Vec<u8>, i64> = served
        .hosts
        .iter()
        .map(|host| {
            let wrong = host.clock_offset_ns + skew(&host.host);
            assert!(wrong.abs() <= host.clock_error_ns, "{host:?}");
            (host.host.clone().into_bytes(), host.clock_error_ns)
        })
        .collect();
    let mut last = i64::MIN;
    let mut seen = vec![0; done.len()];
    let reader = StoreReader::open(trace.path()).unwrap();
    let damaged = reader.read(&mut TraceNames::default(), |row, names| {
        assert!(last <= row.time_ns, "one order");
        last = row.time_ns;
        let number = row.asked as usize;
        seen[number] += 1;
        let host = names.text(row.host);
        assert_eq!(host, format!("n{}", number as u32 % HOSTS + 1).as_bytes());
        // The recorder's own clock is a little off as well: its rate is measured.
        let error = errors[host] + 1_000_000;
        let (from, until) = done[number];
        assert!((from - error..=until + error).contains(&row.time_ns), "{number}: {error}");
        Ok(())
    });
    assert!(damaged.unwrap().is_empty());
    assert!(seen.iter().all(|&times| times == 1), "each is there once");
}
