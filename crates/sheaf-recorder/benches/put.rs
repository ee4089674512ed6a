//! What recording costs, beside the clock that it reads.
use divan::counter::ItemsCount;
use sheaf_recorder::{Full, IoEvent, IoOp, SegmentOptions, TraceClock, TraceSegment};

fn main() {
    divan::main();
}

const BATCH: u64 = 1000;

#[divan::bench]
fn two_looks_at_the_clock(bencher: divan::Bencher<'_, '_>) {
    let clock = TraceClock::best();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            divan::black_box((clock.now(), clock.now()));
        }
    });
}

#[divan::bench(args = [Full::DropNewest, Full::Overwrite])]
fn a_record(bencher: divan::Bencher<'_, '_>, full: Full) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let options = SegmentOptions { full, ..SegmentOptions::default() };
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &options).expect("a segment");
    let mut writer = segment.writer().expect("a ring");
    let mut reader = sheaf_recorder::Reader::open(&path).expect("the segment");
    let clock = segment.clock();
    bencher.counter(ItemsCount::new(BATCH)).with_inputs(|| drop(reader.read())).bench_local_values(
        |()| {
            for number in 0..BATCH {
                let begun = clock.now();
                let ended = clock.now();
                writer.put(&IoEvent {
                    begun,
                    ended,
                    file: 5,
                    offset: number,
                    asked: 4096,
                    bytes: 4096,
                    ..IoEvent::new(IoOp::Read)
                });
            }
        },
    );
}
