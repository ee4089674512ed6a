//! Users who put into their directories what hurts whoever reads there.
use crate::users::{LIMIT, NOBODY, session, shown, taken};
use rustix::fs::Mode;
use sheaf_core::Errno;
use sheaf_log::served::{LogClients, is_collected};
use sheaf_recorder::{IoEvent, IoOp, SegmentOptions, TraceSegment};
use sheaf_testing::{as_nobody, skipped};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A directory in memory where all users may write.
fn open_to_all() -> TempDir {
    let buffers = tempfile::tempdir_in("/dev/shm").unwrap();
    rustix::fs::chmod(buffers.path(), Mode::from_raw_mode(0o1777)).unwrap();
    buffers
}

/// A directory for segments of this thread's user, below a directory of its own.
fn segments_of_own(buffers: &Path, name: &str) -> PathBuf {
    let segments = sheaf_log::served::shared_segments(&buffers.join(name));
    std::fs::create_dir_all(&segments).unwrap();
    segments
}

/// So many operations, in a segment of a process that runs.
fn record(segments: &Path, name: &str, count: u64) -> TraceSegment {
    let options = SegmentOptions { rings: 2, ..SegmentOptions::default() };
    let segment = TraceSegment::create(&segments.join(name), &options).unwrap();
    let mut writer = segment.writer().unwrap();
    let file = writer.name(b"/a");
    (0..count).for_each(|_| writer.put(&IoEvent { file, ..IoEvent::new(IoOp::Read) }));
    drop(writer);
    segment
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(work);
}

#[test]
fn guest_that_truncates_its_segment_ends_no_server() {
    let buffers = open_to_all();
    let made = as_nobody(|| {
        let segments = segments_of_own(buffers.path(), "");
        (segments.join("1.segment"), record(&segments, "1.segment", 5))
    });
    let Some((segment, _kept)) = made else { return skipped("two users are needed") };
    let of_root = segments_of_own(buffers.path(), "");
    let _running = record(&of_root, "1.segment", 7);
    block_on(async {
        let session = session(buffers.path(), LogClients::default()).await;
        assert_eq!(shown(&session, buffers.path(), Some(NOBODY)).await, Ok(5));
        let file = File::options().write(true).open(&segment).unwrap();
        for len in [4096 + 256, 0] {
            file.set_len(len).unwrap();
            // What was taken before is there all the same.
            assert_eq!(shown(&session, buffers.path(), Some(NOBODY)).await, Ok(5));
            assert_eq!(shown(&session, buffers.path(), None).await, Ok(7));
        }
        session.end().await;
    });
}

#[test]
fn pipes_of_a_guest_block_no_trace() {
    const NAMES: [&str; 8] = [
        "client.lock",
        "life",
        "life.part",
        "stored",
        "collected",
        "spool-000000",
        "spool.part",
        "1.segment",
    ];
    let buffers = open_to_all();
    let made = as_nobody(|| {
        for name in NAMES {
            let path = segments_of_own(buffers.path(), name).join(name);
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }
    });
    let Some(()) = made else { return skipped("two users are needed") };
    let _running = record(&segments_of_own(buffers.path(), ""), "1.segment", 7);
    block_on(async {
        let clients = LogClients::default().ending_after(Duration::from_millis(10));
        let session = session(buffers.path(), clients.clone()).await;
        for name in NAMES {
            let place = buffers.path().join(name);
            // It fails or finds nothing, but comes back; and so does another user's.
            let of_guest = taken(&session, &place, Some(NOBODY)).await;
            assert!(of_guest.is_err() || of_guest == Ok([].into()), "{name}: {of_guest:?}");
            assert_ne!(of_guest, Err(Errno::TIMEDOUT), "{name}");
            assert!(shown(&session, buffers.path(), None).await.is_ok(), "{name}");
            until(|| clients.at_work() <= 1).await;
        }
        session.end().await;
    });
}

/// Waits for something.
async fn until(mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < limit, "it has not come to be so");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn guest_has_a_share_of_directories_and_idle_ones_are_released() {
    let buffers = open_to_all();
    let names: Vec<String> = (0..7).map(|number| number.to_string()).collect();
    let made = as_nobody(|| {
        names.iter().for_each(|name| drop(segments_of_own(buffers.path(), name)));
    });
    let Some(()) = made else { return skipped("two users are needed") };
    let _running = record(&segments_of_own(buffers.path(), ""), "1.segment", 7);
    block_on(async {
        let clients = LogClients::default().ending_after(Duration::from_secs(3));
        let session = session(buffers.path(), clients.clone()).await;
        let mut refused = Vec::new();
        for name in &names {
            match shown(&session, &buffers.path().join(name), Some(NOBODY)).await {
                Ok(operations) => assert_eq!(operations, 0),
                Err(errno) => refused.push((name, errno)),
            }
        }
        assert!(!refused.is_empty() && clients.at_work() < names.len(), "{refused:?}");
        assert!(refused.iter().all(|(_, errno)| *errno == Errno::MFILE), "{refused:?}");
        // Other users have their own share.
        assert_eq!(shown(&session, buffers.path(), None).await, Ok(7));
        let of_guest = |name: &str| buffers.path().join(name).join("sheaf-trace-65534");
        assert!(is_collected_as(&of_guest("0")));
        until(|| clients.at_work() == 0).await;
        assert!(!is_collected_as(&of_guest("0")), "its descriptors are closed");
        // And again: those that were refused, and one that was there before.
        assert_eq!(shown(&session, &buffers.path().join(refused[0].0), Some(NOBODY)).await, Ok(0));
        assert_eq!(shown(&session, &buffers.path().join("0"), Some(NOBODY)).await, Ok(0));
        session.end().await;
    });
}

fn is_collected_as(segments: &Path) -> bool {
    as_nobody(|| is_collected(segments).unwrap()).unwrap()
}

#[test]
fn state_files_of_a_guest_are_read_within_bounds() {
    let buffers = open_to_all();
    let made = as_nobody(|| {
        for name in ["life", "stored"] {
            let path = segments_of_own(buffers.path(), name).join(name);
            File::create(path).unwrap().set_len(1 << 42).unwrap();
        }
        let path = segments_of_own(buffers.path(), "last").join("spool-4294967295");
        std::fs::write(path, b"sheafsp4").unwrap();
    });
    let Some(()) = made else { return skipped("two users are needed") };
    block_on(async {
        let session = session(buffers.path(), LogClients::default()).await;
        for name in ["life", "stored", "last"] {
            let of_guest = shown(&session, &buffers.path().join(name), Some(NOBODY)).await;
            assert_eq!(of_guest, Err(Errno::PERM), "{name}");
        }
        session.end().await;
    });
}
