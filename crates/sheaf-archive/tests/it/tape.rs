//! Tapes are passed in one direction, and few are loaded, however many ask for what.
use crate::store::{key, keys, put};
use crate::stores::tape_settings;
use sheaf_archive::{Store, StoreKey, TapeSettings, TapeStore};
use sheaf_core::Errno;
use std::io::Read;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const OBJECTS: usize = 240;
const OBJECT_BYTES: usize = 10_000;
/// So many are on a cartridge.
const ON_CARTRIDGE: usize = 30;

/// A library with full cartridges.
fn full(directory: &std::path::Path, settings: TapeSettings) -> TapeStore {
    let cartridge_bytes = (ON_CARTRIDGE * OBJECT_BYTES) as u64;
    let settings = TapeSettings { cartridge_bytes, ..settings };
    let store = TapeStore::create(directory, settings).unwrap();
    for number in 0..OBJECTS {
        put(&store, &name(number), &content(number)).unwrap();
    }
    let counters = store.counters();
    assert_eq!(counters.mounts, (OBJECTS / ON_CARTRIDGE) as u64);
    assert_eq!(counters.written_bytes, (OBJECTS * OBJECT_BYTES) as u64);
    // Another one, which has read nothing.
    TapeStore::open(directory).unwrap()
}

fn name(number: usize) -> String {
    format!("packs/{:02}/{number:04}.tar", number % 7)
}

fn content(number: usize) -> Vec<u8> {
    (0..OBJECT_BYTES).map(|at| (at * (number + 1) / 100) as u8).collect()
}

/// Numbers in an order of no order.
fn shuffled(count: usize) -> Vec<usize> {
    (0..count).map(|at| at * 101 % count).collect()
}

fn assert_whole(store: &TapeStore, number: usize) {
    let mut read = Vec::new();
    store.open(&key(&name(number)), 0).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == content(number), "{number}");
}

#[test]
fn concurrent_recalls_need_one_pass_of_each_tape() {
    let directory = tempfile::tempdir().unwrap();
    let gather = Duration::from_millis(300);
    let store = full(directory.path(), TapeSettings { gather, ..tape_settings() });
    let (order, start) = (shuffled(OBJECTS), Barrier::new(6));
    std::thread::scope(|scope| {
        for share in order.chunks(OBJECTS / 6) {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                start.wait();
                store.recall(&mut share.iter().map(|number| key(&name(*number)))).unwrap();
                share.iter().for_each(|number| assert_whole(store, *number));
            });
        }
    });
    let (counters, cartridges) = (store.counters(), (OBJECTS / ON_CARTRIDGE) as u64);
    assert_eq!(counters.read_bytes, (OBJECTS * OBJECT_BYTES) as u64, "each was read once");
    // The last two that were written are in the drives, at their ends.
    assert!((cartridges - 2..=cartridges).contains(&counters.mounts), "{counters:?}");
    assert!(counters.rewinds <= cartridges, "none but to unload it: {counters:?}");
    assert!(counters.seeks <= 2 * cartridges, "what lies together is read together: {counters:?}");
}

/// The same without a word before costs what it costs.
#[test]
fn random_reads_mount_more_tapes_than_a_recall() {
    let directory = tempfile::tempdir().unwrap();
    let store = full(directory.path(), TapeSettings { drives: 1, ..tape_settings() });
    let order = shuffled(OBJECTS);
    order[..40].iter().for_each(|number| assert_whole(&store, *number));
    let serial = store.counters();
    assert!(serial.mounts > 30, "{serial:?}");
    let store = TapeStore::open(directory.path()).unwrap();
    store.recall(&mut order[..40].iter().map(|number| key(&name(*number)))).unwrap();
    order[..40].iter().for_each(|number| assert_whole(&store, *number));
    let recalled = store.counters();
    assert!(recalled.mounts <= 8 && recalled.busy * 4 < serial.busy, "{recalled:?} {serial:?}");
}

/// Who wants little does not wait for all that another wants.
#[test]
fn drives_are_shared_among_callers() {
    let directory = tempfile::tempdir().unwrap();
    let gather = Duration::from_millis(100);
    let store = full(directory.path(), TapeSettings { drives: 1, gather, ..tape_settings() });
    let (last, ended) = (OBJECTS / ON_CARTRIDGE - 1, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let most = scope.spawn(|| {
            let numbers = 0..last * ON_CARTRIDGE;
            store.recall(&mut numbers.map(|number| key(&name(number)))).unwrap();
            ended.fetch_add(1, Ordering::SeqCst)
        });
        let before = store.counters().mounts;
        while store.counters().mounts == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        let few = scope.spawn(|| {
            assert_whole(&store, OBJECTS - 1);
            ended.fetch_add(1, Ordering::SeqCst)
        });
        assert_eq!((few.join().unwrap(), most.join().unwrap()), (0, 1));
    });
}

#[test]
fn recalled_objects_are_evicted_when_the_stage_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let stage_bytes = 25 * OBJECT_BYTES as u64;
    let store = full(directory.path(), TapeSettings { stage_bytes, ..tape_settings() });
    let all = |count: usize| (0..count).map(|number| key(&name(number))).collect::<Vec<StoreKey>>();
    store.recall(&mut all(40).into_iter()).unwrap();
    assert_eq!(store.counters().read_bytes, stage_bytes, "no more than there is room for");
    (0..40).for_each(|number| assert_whole(&store, number));
    let read = store.counters().read_bytes;
    assert_eq!(read, 40 * OBJECT_BYTES as u64);
    store.recall(&mut (30..50).map(|number| key(&name(number)))).unwrap();
    store.recall(&mut [key("packs/none")].into_iter()).unwrap();
    assert_eq!(store.counters().read_bytes, read + 20 * OBJECT_BYTES as u64);
    store.remove(&key(&name(49))).unwrap();
    assert_eq!(store.size(&key(&name(49))).unwrap_err().errno, Errno::NOENT);
    assert!(store.open(&key(&name(49)), 0).is_err());
    assert_eq!(keys(&store, &["packs"]).len(), OBJECTS - 1);
}

#[test]
fn log_indexes_and_versions_are_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let store = TapeStore::create(directory.path(), tape_settings()).unwrap();
    for name in ["log/00000000000000000001", "packs/ab/ab.idx.0", "versions/1-ab"] {
        put(&store, name, b"content").unwrap();
        assert_eq!(store.read(&key(name), 0..7).unwrap(), b"content");
    }
    assert_eq!(store.counters().mounts, 0);
}

#[test]
fn time_is_counted_and_waited_by_its_scale() {
    let directory = tempfile::tempdir().unwrap();
    let begun = std::time::Instant::now();
    let settings = TapeSettings { time_scale: 0.001, ..tape_settings() };
    let store = TapeStore::create(directory.path(), settings).unwrap();
    put(&store, "packs/a", &vec![1; 4_000_000]).unwrap();
    assert_whole_time(&store, settings.load + Duration::from_millis(10));
    assert!(begun.elapsed() >= Duration::from_millis(25));
    store.read(&key("packs/a"), 1_000_000..3_000_000).unwrap();
    // Back by 3 MB, and past 2.
    let moved = settings.start + Duration::from_nanos(16_800) + Duration::from_millis(5);
    assert_whole_time(&store, settings.load + Duration::from_millis(10) + moved);
    assert_eq!((store.counters().seeks, store.counters().rewinds), (1, 1));
}

fn assert_whole_time(store: &TapeStore, time: Duration) {
    let busy = store.counters().busy;
    assert!(busy.abs_diff(time) < Duration::from_micros(1), "{busy:?} {time:?}");
}

#[test]
fn only_a_library_is_opened_and_its_file_says_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let said = |result: Result<TapeStore, sheaf_archive::StoreError>| {
        result.err().unwrap().to_string().replace(&path.display().to_string(), "DIR")
    };
    let missing = "tape:DIR: is no library of tapes: No such file or directory (ENOENT)";
    assert_eq!(said(TapeStore::open(path)), missing);
    std::fs::write(path.join("other"), "x").unwrap();
    let full = "tape:DIR: is no library of tapes, and something is in it: Directory not empty \
                (ENOTEMPTY)";
    assert_eq!(said(TapeStore::create(path, tape_settings())), full);
    std::fs::remove_file(path.join("other")).unwrap();
    TapeStore::create(path, tape_settings()).unwrap();
    std::fs::write(path.join("library"), "drives none\n").unwrap();
    let wrong = "tape:DIR/library: says what is not known of a library: Invalid argument (EINVAL)";
    assert_eq!(said(TapeStore::open(path)), wrong);
}
