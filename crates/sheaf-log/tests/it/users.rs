//! Whose programs are taken.
use rustix::fs::Mode;
use sheaf_core::Errno;
use sheaf_group::Servers;
use sheaf_log::served::{
    COLLECT, CollectRequest, HostPlace, LIVE, LiveAnswer, LiveBy, LiveRequest, LogClients,
    TRACE_LIVE, TRACE_MERGE, TRACE_SERVICE, TraceBatch, shared_segments,
};
use sheaf_recorder::{IoEvent, IoOp, SegmentOptions, TraceSegment};
use sheaf_session::{Environment, Session};
use sheaf_testing::{as_nobody, skipped};
use sheaf_tree::Sync;
use sheaf_tree::filter::Registry;
use sheaf_tree::service::Services;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub const LIMIT: Duration = Duration::from_secs(30);
pub const NOBODY: &str = "65534";

/// This thread's user does so many operations on a file.
fn record(buffers: &Path, file: &[u8], count: u64) {
    let directory = shared_segments(buffers);
    std::fs::create_dir_all(&directory).unwrap();
    let options = SegmentOptions { rings: 1, ..SegmentOptions::default() };
    let segment = TraceSegment::create(&directory.join("1.segment"), &options).unwrap();
    let mut writer = segment.writer().unwrap();
    let file = writer.name(file);
    for _ in 0..count {
        writer.put(&IoEvent { file, ..IoEvent::new(IoOp::Read) });
    }
    drop(writer);
    segment.end();
}

pub async fn session(home: &Path, clients: LogClients) -> Session {
    let mut filters = LogClients::filters(Registry::with_builtins());
    sheaf_group::aggregate::register(&mut filters);
    let services = clients.register(Servers::default().register(Services::new(filters)));
    let environment =
        Environment::default().with("HOME", home).with("XDG_RUNTIME_DIR", home).in_directory(home);
    Session::builder(&environment).embedded(1).services(services).start().await.unwrap()
}

/// Operations by file of a user's programs, or why there are none.
pub async fn taken(
    session: &Session,
    buffers: &Path,
    user: Option<&str>,
) -> Result<BTreeMap<String, u64>, Errno> {
    let network = session.client().network();
    let everyone = network.everyone();
    let stream = network.open(TRACE_SERVICE, everyone, TRACE_MERGE, b"", Sync::WaitForAll);
    let (mut place, mut files) = (HostPlace::default(), BTreeMap::new());
    loop {
        let asked = CollectRequest {
            collector: 1,
            buffers: buffers.to_str().unwrap().to_owned(),
            user: user.map(str::to_owned),
            rows_max: 1000,
            spool_bytes_max: 1 << 20,
            places: vec![place],
            ..CollectRequest::default()
        };
        stream.send(COLLECT, asked.encode(), Some(LIMIT)).await;
        let answer = stream.recv().await;
        if let Some((errno, _)) = answer.coverage.failed.first() {
            return Err(*errno);
        }
        let Some(payload) = answer.payload else { return Err(Errno::TIMEDOUT) };
        let batch = TraceBatch::decode(&payload).unwrap();
        for row in &batch.rows {
            let path = String::from_utf8(batch.names.text(row.path).to_vec()).unwrap();
            *files.entry(path).or_default() += 1;
        }
        let part = &batch.parts[0];
        let (life, spool, rows) = part.end();
        place = HostPlace { leaf: part.leaf, life, spool, rows };
        if !part.more && part.open == 0 {
            return Ok(files);
        }
    }
}

#[test]
fn programs_of_each_user_are_read_apart_with_that_users_rights() {
    let buffers = tempfile::tempdir_in("/dev/shm").unwrap();
    rustix::fs::chmod(buffers.path(), Mode::from_raw_mode(0o1777)).unwrap();
    let Some(()) = as_nobody(|| record(buffers.path(), b"/of-nobody", 70)) else {
        return skipped("two users are needed");
    };
    record(buffers.path(), b"/of-root", 30);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let session = session(buffers.path(), LogClients::default()).await;
        let counts = |files: &[(&str, u64)]| {
            Ok(files.iter().map(|(file, count)| ((*file).to_owned(), *count)).collect())
        };
        let of_root = taken(&session, buffers.path(), None).await;
        assert_eq!(of_root, counts(&[("/of-root", 30)]));
        let of_nobody = taken(&session, buffers.path(), Some(NOBODY)).await;
        assert_eq!(of_nobody, counts(&[("/of-nobody", 70)]));
        // What nobody has said to be stored is there for whoever begins anew.
        let named = taken(&session, buffers.path(), Some("0")).await;
        assert_eq!(named, counts(&[("/of-root", 30)]));
        let unknown = taken(&session, buffers.path(), Some("no such user")).await;
        assert_eq!(unknown, Err(Errno::INVAL));
        // A directory with a user's name that another has made is nobody's.
        let forged = buffers.path().join("sheaf-trace-4711");
        std::fs::create_dir(forged).unwrap();
        let forged = taken(&session, buffers.path(), Some("4711")).await;
        assert_eq!(forged, Err(Errno::PERM));
        assert_eq!(shown(&session, buffers.path(), Some(NOBODY)).await, Ok(70));
        assert_eq!(shown(&session, buffers.path(), None).await, Ok(30));
        session.end().await;
    });
    let own = buffers.path().join(format!("sheaf-trace-{NOBODY}"));
    use std::os::unix::fs::MetadataExt;
    for file in std::fs::read_dir(own).unwrap().flatten() {
        assert_eq!(file.metadata().unwrap().uid().to_string(), NOBODY, "{file:?}");
    }
    // Whoever is not root names nobody else.
    as_nobody(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let session = session(buffers.path(), LogClients::default()).await;
            assert_eq!(taken(&session, buffers.path(), Some("0")).await, Err(Errno::PERM));
            assert_eq!(shown(&session, buffers.path(), Some("0")).await, Err(Errno::PERM));
            // The session before may hold it for a while.
            let own = taken(&session, buffers.path(), Some(NOBODY)).await;
            assert!(matches!(own, Ok(_) | Err(Errno::AGAIN)), "{own:?}");
            session.end().await;
        });
    });
}

/// How many operations are shown of a user's programs.
pub async fn shown(session: &Session, buffers: &Path, user: Option<&str>) -> Result<u64, Errno> {
    let network = session.client().network();
    let everyone = network.everyone();
    let stream = network.open(TRACE_SERVICE, everyone, TRACE_LIVE, b"", Sync::WaitForAll);
    let (buffers, user) = (buffers.to_str().unwrap().to_owned(), user.map(str::to_owned));
    let asked = LiveRequest { buffers, user, by: LiveBy::File, last_ms: 60_000 };
    stream.send(LIVE, asked.encode(), Some(LIMIT)).await;
    let answer = stream.recv().await;
    if let Some((errno, _)) = answer.coverage.failed.first() {
        return Err(*errno);
    }
    let Some(payload) = answer.payload else { return Err(Errno::TIMEDOUT) };
    Ok(LiveAnswer::decode(&payload).unwrap().total().operations)
}
