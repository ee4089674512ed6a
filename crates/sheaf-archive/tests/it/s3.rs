//! Stores of S3 over connections that break, and at servers that fail or lie.
use crate::proxy::{Fate, Proxy, Request};
use crate::store::{key, keys, put};
use crate::stores::{files, s3_limits, s3_place, s3_place_at};
use crate::trees::{assert_same, make_everything};
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, Catalog, FetchOptions, SaveOptions, VerifyOptions, fetch,
    save, verify,
};
use sheaf_archive::{
    S3Access, S3Credentials, S3Encryption, S3Identity, S3Limits, S3Place, S3Store, Store,
    StoreError,
};
use sheaf_core::Errno;
use sheaf_testing::S3Server;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FAILS: Fate = Fate::Answer { status: 500, headers: "", body: "" };
const LONG: usize = 12_000_000;

/// A store that is asked through a proxy.
fn store_behind(
    server: &S3Server,
    limits: S3Limits,
    decide: impl Fn(&Request) -> Fate + Send + Sync + 'static,
) -> (S3Store, Proxy) {
    let (place, credentials) = s3_place(server);
    S3Store::create(&place, &credentials, limits).unwrap();
    let proxy = Proxy::start(server.address, decide);
    let store = S3Store::open(&s3_place_at(&proxy.url()), &credentials, limits).unwrap();
    (store, proxy)
}

/// The same store, without anything between.
fn direct(server: &S3Server) -> S3Store {
    let (place, credentials) = s3_place(server);
    S3Store::open(&place, &credentials, s3_limits()).unwrap()
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 13 / 1000) as u8).collect()
}

fn write(store: &dyn Store, name: &str, content: &[u8]) -> Result<(), String> {
    let mut object = store.create(&key(name)).map_err(|error| error.to_string())?;
    object.write_all(content).map_err(|error| error.to_string())?;
    object.commit().map_err(|error| error.to_string())
}

/// What is there under a name, read without anything between.
fn there(server: &S3Server, name: &str) -> Option<Vec<u8>> {
    let store = direct(server);
    let size = store.size(&key(name)).ok()?;
    Some(store.read(&key(name), 0..size).unwrap())
}

/// Parts of uploads that the server has kept.
fn parts_left(server: &S3Server) -> usize {
    let own = server.bucket().join(".sgwtmp");
    if own.is_dir() { files(&own) } else { 0 }
}

#[test]
fn s3_request_that_fails_once_is_retried() {
    let Some(server) = S3Server::start() else { return };
    for fate in [
        FAILS,
        Fate::Answer { status: 503, headers: "retry-after: 1\r\n", body: "" },
        Fate::Answer { status: 503, headers: "", body: "<Error><Code>SlowDown</Code></Error>" },
        Fate::Answer { status: 429, headers: "", body: "" },
        Fate::Answer { status: 200, headers: "", body: "" },
        Fate::CutRequest,
        Fate::CutAnswer(0),
        Fate::CutAnswer(1),
    ] {
        let said = format!("{fate:?}").to_lowercase().replace(|c: char| !c.is_alphanumeric(), "-");
        let lies = matches!(fate, Fate::Answer { status: 200, .. });
        let once = fate.clone();
        let (store, proxy) = store_behind(&server, s3_limits(), move |request| {
            // Who believes what a server says of a short object cannot know better.
            let is_known_by = request.method == "POST" || request.target.contains("list-type");
            let is_believed = lies && !is_known_by;
            if request.number == 0 && !is_believed { once.clone() } else { Fate::Pass }
        });
        let (short, long) = (format!("short/{said}"), format!("long/{said}"));
        let whole = content(LONG);
        assert_eq!(write(&store, &short, b"content"), Ok(()), "{fate:?}");
        assert_eq!(write(&store, &long, &whole), Ok(()), "{fate:?}");
        let mut read = Vec::new();
        store.open(&key(&long), 5).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == whole[5..], "{fate:?}");
        assert_eq!(store.read(&key(&short), 1..4).unwrap(), b"ont");
        assert_eq!(keys(&store, &["short"]).iter().filter(|(name, _)| *name == short).count(), 1);
        store.remove(&key(&short)).unwrap();
        assert!(store.size(&key(&short)).is_err());
        assert!(there(&server, &long).unwrap() == whole, "{fate:?}");
        assert_eq!(parts_left(&server), 0, "{fate:?}");
        assert!(proxy.seen().iter().any(|request| request.number == 1));
    }
}

#[test]
fn server_that_says_how_long_is_left_alone_so_long() {
    let Some(server) = S3Server::start() else { return };
    let limits = S3Limits { backoff_max: Duration::from_secs(10), ..s3_limits() };
    let (store, proxy) = store_behind(&server, limits, |request| {
        let slow = Fate::Answer { status: 503, headers: "retry-after: 1\r\n", body: "" };
        if request.number == 0 && request.is("PUT", "/a") { slow } else { Fate::Pass }
    });
    assert_eq!(write(&store, "a", b"content"), Ok(()));
    let seen = proxy.seen();
    let times: Vec<_> = seen.iter().filter(|request| request.is("PUT", "/a")).collect();
    assert!(times[1].at - times[0].at >= Duration::from_secs(1), "it was asked again too early");
}

#[test]
fn s3_request_that_always_fails_is_given_up_after_retries() {
    let Some(server) = S3Server::start() else { return };
    let silent = "the server says nothing: Connection timed out (ETIMEDOUT)";
    let broken = "the connection breaks off again and again: Input/output error (EIO)";
    let late = Fate::Late(Duration::from_secs(2));
    let failing = "the server fails again and again: Input/output error (EIO)";
    for (fate, said) in [
        (FAILS, failing),
        (
            Fate::Answer { status: 503, headers: "", body: "" },
            "the server asks again and again to slow down: Resource temporarily unavailable \
             (EAGAIN)",
        ),
        (Fate::CutRequest, broken),
        (late, silent),
    ] {
        let limits = S3Limits { silence: Duration::from_millis(300), ..s3_limits() };
        let each = fate.clone();
        let (store, proxy) = store_behind(&server, limits, move |request| {
            if request.target.contains("objects") { each.clone() } else { Fate::Pass }
        });
        let error = write(&store, "a", b"content").unwrap_err();
        // What the server said is told where there are no words for it.
        let told = if said == failing { " (HTTP 500)" } else { "" };
        assert_eq!(error, format!("s3://bucket/some/prefix/objects/a{told}: {said}"));
        assert_eq!(proxy.count("PUT", "/objects/a"), limits.attempts as usize);
        let error = store.size(&key("b")).unwrap_err();
        assert_eq!(error.to_string(), format!("s3://bucket/some/prefix/objects/b{told}: {said}"));
        assert_eq!(proxy.count("HEAD", "/objects/b"), limits.attempts as usize);
        let listed = store.list(&[], &mut |_| Ok(())).unwrap_err();
        assert_eq!(listed.to_string(), format!("s3://bucket/some/prefix{told}: {said}"));
        // Whoever was silent may have done it.
        let _ = direct(&server).remove(&key("a"));
    }
}

/// Of a commit of the log it must be known whether it was written.
#[test]
fn s3_put_after_lost_answer_detects_its_own_object() {
    let Some(server) = S3Server::start() else { return };
    let (store, proxy) = store_behind(&server, s3_limits(), |request| match request.number {
        0 if request.is("PUT", "/mine") => Fate::CutAnswer(0),
        0 if request.is("PUT", "/fails") => Fate::Done { status: 500, body: "" },
        0 if request.is("PUT", "/conflict") => {
            let body = "<Error><Code>ConditionalRequestConflict</Code></Error>";
            Fate::Answer { status: 409, headers: "", body }
        }
        0 if request.is("PUT", "/theirs") => Fate::CutRequest,
        _ => Fate::Pass,
    });
    put(&direct(&server), "theirs", b"another's").unwrap();
    for name in ["mine", "fails", "conflict"] {
        assert_eq!(write(&store, name, b"my own"), Ok(()), "{name}");
        assert_eq!(proxy.count("PUT", &format!("/{name}")), 2, "{name}");
        assert_eq!(there(&server, name).unwrap(), b"my own");
        assert_eq!(put(&store, name, b"my own").unwrap_err(), Errno::EXIST, "{name}");
    }
    assert_eq!(put(&store, "theirs", b"my own").unwrap_err(), Errno::EXIST);
    assert_eq!(there(&server, "theirs").unwrap(), b"another's");
}

#[test]
fn s3_read_resumes_where_the_connection_broke_off() {
    let Some(server) = S3Server::start() else { return };
    let whole = content(3_000_000);
    let (store, proxy) = store_behind(&server, s3_limits(), |request| {
        if request.is("GET", "/cut") {
            // More often than something is tried that does not get on.
            return if request.number < 8 { Fate::CutAnswer(300_000) } else { Fate::Pass };
        }
        if request.is("GET", "/never") { Fate::CutAnswer(1) } else { Fate::Pass }
    });
    put(&store, "cut", &whole).unwrap();
    let mut read = Vec::new();
    store.open(&key("cut"), 0).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == whole);
    let ranges: Vec<_> = proxy
        .seen()
        .iter()
        .filter(|request| request.is("GET", "/cut"))
        .map(|request| request.header("range").map(str::to_owned))
        .collect();
    assert!(ranges[0].is_none() && ranges[1..].iter().all(Option::is_some), "{ranges:?}");
    assert!(ranges.len() <= 10, "{ranges:?}");
    assert_eq!(store.read(&key("cut"), 10..2_000_000).unwrap(), whole[10..2_000_000]);

    put(&store, "never", b"some content").unwrap();
    let error = store.read(&key("never"), 3..4).map(drop);
    assert!(error.is_ok(), "one byte comes through: {error:?}");
}

#[test]
fn upload_is_completed_or_was_never_there() {
    let Some(server) = S3Server::start() else { return };
    let whole = content(LONG);
    const ERROR: &str = "<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>";
    let (store, proxy) = store_behind(&server, s3_limits(), |request| {
        let is_complete = request.is("POST", "uploadId=");
        let lie = Fate::Answer { status: 200, headers: "", body: ERROR };
        match request.number {
            0 if is_complete && request.target.contains("/once") => lie,
            0 if is_complete && request.target.contains("/done") => Fate::CutAnswer(0),
            0 if is_complete && request.target.contains("/said") => {
                Fate::Done { status: 200, body: ERROR }
            }
            _ if is_complete && request.target.contains("/always") => lie,
            _ if is_complete && request.target.contains("/short") => Fate::Done {
                status: 200,
                body: "<CompleteMultipartUploadResult><ETag>\"x\"</ETag></CompleteMultipartUploadResult>",
            },
            _ if request.is("HEAD", "/short") && request.number > 0 => Fate::Answer {
                status: 200,
                headers: "etag: \"x\"\r\nlast-modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n",
                body: "less",
            },
            _ if request.is("PUT", "/part") && request.target.contains("partNumber=2") => FAILS,
            _ => Fate::Pass,
        }
    });
    for name in ["once", "done", "said"] {
        assert_eq!(write(&store, name, &whole), Ok(()), "{name}");
        assert!(there(&server, name).unwrap() == whole, "{name}");
    }
    let fails = "the server fails again and again: Input/output error (EIO)";
    let short = "the server has not kept all that was sent: Input/output error (EIO)";
    for (name, said) in [("always", fails), ("part", fails), ("short", short)] {
        let error = write(&store, name, &whole).unwrap_err();
        let begins = error.starts_with(&format!("s3://bucket/some/prefix/objects/{name}"));
        assert!(begins && error.ends_with(&format!(": {said}")), "{error}");
        assert_eq!(there(&server, name), None, "{name} is not half there");
    }
    assert_eq!(parts_left(&server), 0);
    assert!(proxy.busy_max() <= 3, "{} parts were under way at once", proxy.busy_max());
}

#[test]
fn parts_are_sent_at_once_and_not_too_many() {
    let Some(server) = S3Server::start() else { return };
    let (store, proxy) = store_behind(&server, s3_limits(), |request| {
        if request.is("PUT", "partNumber") {
            Fate::Late(Duration::from_millis(200))
        } else {
            Fate::Pass
        }
    });
    let whole = content(40_000_000);
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let (store, whole) = (&store, &whole);
            scope.spawn(move || assert_eq!(write(store, name, whole), Ok(())));
        }
    });
    assert!(there(&server, "a").unwrap() == whole && there(&server, "b").unwrap() == whole);
    let limits = s3_limits();
    let parts_max = limits.room_bytes / limits.part_bytes;
    assert!((2..=parts_max).contains(&proxy.busy_max()), "{} at once", proxy.busy_max());
}

#[test]
fn server_that_overwrites_is_refused() {
    let Some(server) = S3Server::start() else { return };
    let (store, _proxy) = store_behind(&server, s3_limits(), |request| {
        let is_mark = request.is("PUT", "/sheaf-archive");
        if is_mark {
            Fate::Answer { status: 200, headers: "etag: \"x\"\r\n", body: "" }
        } else {
            Fate::Pass
        }
    });
    let error = write(&store, "a", b"content").unwrap_err();
    let said = "s3://bucket/some/prefix: its server overwrites what is there (it takes no \
                If-None-Match), and can be no store: Operation not supported (EOPNOTSUPP)";
    assert_eq!(error, said);
    assert_eq!(there(&server, "a"), None);
    // Who only reads has nothing to fear.
    put(&direct(&server), "b", b"content").unwrap();
    assert_eq!(store.read(&key("b"), 0..7).unwrap(), b"content");
}

#[test]
fn s3_access_errors_give_the_cause_without_the_secret() {
    let Some(server) = S3Server::start() else { return };
    let (place, credentials) = s3_place(&server);
    let open = |place: &S3Place, credentials: &S3Access| -> StoreError {
        S3Store::create(place, credentials, s3_limits()).unwrap_err()
    };
    let secret = "nobody-may-read-this";
    let keys = |access_key_id: &str| S3Credentials {
        access_key_id: access_key_id.to_owned(),
        secret_access_key: secret.to_owned(),
        session_token: None,
    };
    let wrong = keys(S3Server::ACCESS_KEY_ID).into();
    let unknown = keys("somebody").into();
    let elsewhere = S3Place { bucket: "missing".to_owned(), ..place.clone() };
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nowhere = S3Place { endpoint: Some(format!("http://{closed}")), ..place.clone() };
    let text = S3Place { endpoint: Some("no url".to_owned()), ..place.clone() };
    let denied = "Permission denied (EACCES)";
    for (error, said) in [
        (open(&place, &wrong), format!("s3://bucket/some/prefix: the secret is not the access key's: {denied}")),
        (open(&place, &unknown), format!("s3://bucket/some/prefix: the server does not know the access key: {denied}")),
        (open(&elsewhere, &credentials), "s3://missing: there is no such bucket: No such device or address (ENXIO)".to_owned()),
        (open(&nowhere, &credentials), "s3://bucket/some/prefix: the server cannot be reached: Connection refused (ECONNREFUSED)".to_owned()),
    ] {
        assert_eq!(error.to_string(), said);
        assert!(!format!("{error:?}").contains(secret));
    }
    let said = "s3://bucket/some/prefix: the URL of its server is none: Invalid argument (EINVAL)";
    assert_eq!(open(&text, &credentials).to_string(), said);
    let store = S3Store::create(&place, &credentials, s3_limits()).unwrap();
    let debug = format!("{store:?} {credentials:?}");
    assert!(!debug.contains(S3Server::SECRET_ACCESS_KEY), "{debug}");

    // A bucket that goes away is not one without objects.
    std::fs::remove_dir_all(server.bucket()).unwrap();
    assert_eq!(store.size(&key("log/1")).unwrap_err().errno, Errno::NXIO);
}

#[test]
fn storage_class_is_of_bulk_and_encryption_of_all() {
    let Some(server) = S3Server::start() else { return };
    let proxy = Proxy::start(server.address, |_| Fate::Pass);
    let (_, access) = s3_place(&server);
    let access = S3Access {
        storage_class: Some("STANDARD_IA".to_owned()),
        encryption: Some(S3Encryption::Bucket),
        ..access
    };
    let store = S3Store::create(&s3_place_at(&proxy.url()), &access, s3_limits()).unwrap();
    let long = content(LONG);
    for name in ["packs/aa/1", "packs/aa/1.idx.0", "log/1"] {
        write(&store, name, b"content").unwrap();
    }
    write(&store, "data/aa/1", &long).unwrap();
    let header = |method: &str, part: &str, header: &str| {
        let seen = proxy.seen();
        let request = seen.iter().find(|request| request.is(method, part)).unwrap();
        request.header(header).map(ToOwned::to_owned)
    };
    let (class, sse) = ("x-amz-storage-class", "x-amz-server-side-encryption");
    for (method, part, is_bulk) in [
        ("PUT", "/packs/aa/1", true),
        ("PUT", "/packs/aa/1.idx.0", false),
        ("PUT", "/log/1", false),
        ("PUT", "/sheaf-archive", false),
        ("POST", "/data/aa/1?uploads", true),
    ] {
        let expected = is_bulk.then(|| "STANDARD_IA".to_owned());
        assert_eq!(header(method, part, class), expected, "{part}");
        assert_eq!(header(method, part, sse).as_deref(), Some("AES256"), "{part}");
    }
    assert_eq!(there(&server, "data/aa/1"), Some(long));
}

#[test]
fn credentials_of_a_command_are_fetched_anew_before_they_end() {
    let Some(server) = S3Server::start() else { return };
    let (place, _) = s3_place(&server);
    let dir = tempfile::tempdir().unwrap();
    let count = dir.path().join("count");
    let of = |expiration: &str, end: &str| {
        let (key, secret) = (S3Server::ACCESS_KEY_ID, S3Server::SECRET_ACCESS_KEY);
        let json = format!(
            r#"{{"Version": 1, "AccessKeyId": "{key}", "SecretAccessKey": "{secret}"{expiration}}}"#
        );
        let command = format!("echo x >> '{}'; echo '{json}'; {end}", count.display());
        S3Access::from(S3Identity::Process(command))
    };
    let runs = || std::fs::read_to_string(&count).unwrap().lines().count();
    let lasting = r#", "Expiration": "2100-01-01T00:00:00Z""#;
    for (expiration, is_kept) in
        [("", true), (lasting, true), (r#", "Expiration": "2001-01-01T00:00:00+02:00""#, false)]
    {
        let _ = std::fs::remove_file(&count);
        let store = S3Store::create(&place, &of(expiration, "true"), s3_limits()).unwrap();
        let before = runs();
        put(&store, &format!("a{}", before + expiration.len()), b"content").unwrap();
        assert_eq!(runs() == before, is_kept, "{expiration}: {before}, {}", runs());
    }
    for access in [of("", "exit 3"), of(r#", "Expiration": "soon""#, "true")] {
        let error = S3Store::open(&place, &access, s3_limits()).unwrap_err();
        let said = "s3://bucket/some/prefix: credential_process gives no credentials: Required key not available (ENOKEY)";
        assert_eq!(error.to_string(), said);
        assert!(!format!("{access:?}").contains(S3Server::SECRET_ACCESS_KEY));
    }
}

#[test]
fn only_a_store_is_opened_and_only_nothing_is_made_one() {
    let Some(server) = S3Server::start() else { return };
    let (place, credentials) = s3_place(&server);
    let open = || S3Store::open(&place, &credentials, s3_limits());
    let create = || S3Store::create(&place, &credentials, s3_limits());
    let said = |result: Result<S3Store, StoreError>| result.unwrap_err().to_string();
    let missing = "s3://bucket/some/prefix: is no store: No such file or directory (ENOENT)";
    assert_eq!(said(open()), missing);
    let beside = server.bucket().join("some/prefix");
    std::fs::create_dir_all(&beside).unwrap();
    std::fs::write(beside.join("other"), "x").unwrap();
    let full = "s3://bucket/some/prefix: is no store, and something is in it: Directory not empty \
                (ENOTEMPTY)";
    assert_eq!(said(create()), full);
    std::fs::remove_file(beside.join("other")).unwrap();
    let id = create().unwrap().id().unwrap().to_owned();
    assert_eq!(create().unwrap().id(), Some(&id[..]), "it stays as it is");
    assert_eq!(open().unwrap().id(), Some(&id[..]));
    for mark in ["sheaf archive, version 2\n", "", &"x".repeat(1000)] {
        std::fs::write(beside.join("sheaf-archive"), mark).unwrap();
        let later = "s3://bucket/some/prefix: a later Sheaf has made this store, or its mark is \
                     damaged: Operation not supported (EOPNOTSUPP)";
        assert_eq!(said(open()), later);
        assert_eq!(said(create()), later);
    }
}

/// What was asked of an object's content.
fn is_content(request: &Request) -> bool {
    request.is("GET", "/objects/packs/") || request.is("GET", "/objects/data/")
}

/// An archive in a store, whose catalog is in a directory.
fn archive(store: S3Store, directory: &Path) -> Archive {
    let catalog = Catalog::open(&directory.join("catalog")).unwrap();
    Archive::new(Arc::new(store), catalog).unwrap()
}

#[test]
fn packs_are_sent_at_once_and_read_by_one_request_each() {
    let Some(server) = S3Server::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    for part in 0..6 {
        std::fs::create_dir_all(tree.join(format!("{part}"))).unwrap();
        for number in 0..50 {
            let text = format!("{part} {number} ").repeat(8000);
            std::fs::write(tree.join(format!("{part}/{number}")), text).unwrap();
        }
    }
    let (store, proxy) = store_behind(&server, s3_limits(), |request| {
        let is_pack = request.is("PUT", ".tar");
        if is_pack { Fate::Late(Duration::from_millis(300)) } else { Fate::Pass }
    });
    let archive = archive(store, directory.path());
    let (sources, root) = ([tree.clone()], ArchivePath::ROOT);
    let options = SaveOptions { workers: 4, ..SaveOptions::default() };
    let saved = save(&archive, &sources, &root, options, &drop).unwrap();
    assert_eq!((saved.stored, saved.failed), (300, 0));
    assert_eq!(proxy.count("PUT", ".tar"), 6, "a pack is a request");
    assert_eq!(proxy.count("PUT", ".idx."), 6);
    assert!(proxy.busy_max() >= 2, "each worker sends its own");

    let before = proxy.seen().len();
    let (from, to) = (ArchivePath::new(b"tree").unwrap(), directory.path().join("back"));
    let got = fetch(&archive, &from, &to, FetchOptions::default(), &drop).unwrap();
    assert_eq!((got.fetched, got.failed), (300, 0));
    assert_same(&tree, &to.join("tree"));
    let seen = proxy.seen();
    let asked = seen[before..].iter().filter(|request| is_content(request)).count();
    assert_eq!(asked, 6 + 6, "of each pack its index and itself");

    let before = proxy.seen().len();
    let one = ArchivePath::new(b"tree/3/7").unwrap();
    fetch(&archive, &one, &directory.path().join("one"), FetchOptions::default(), &drop).unwrap();
    let seen = proxy.seen();
    let asked: Vec<_> = seen[before..].iter().filter(|request| request.is("GET", ".tar")).collect();
    let range = asked[0].header("range").unwrap().strip_prefix("bytes=").unwrap();
    let (start, end) = range.split_once('-').unwrap();
    let bytes = end.parse::<usize>().unwrap() + 1 - start.parse::<usize>().unwrap();
    let stored = std::fs::metadata(tree.join("3/7")).unwrap().len() as usize;
    assert_eq!((asked.len(), bytes), (1, stored), "no more than the file is asked for");
}

#[test]
fn tree_is_whole_whatever_happens_on_the_way() {
    let Some(server) = S3Server::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    make_everything(&tree);
    std::fs::write(tree.join("long"), content(LONG)).unwrap();
    // Every third request goes wrong, each time in another way.
    let count = AtomicUsize::new(0);
    let decide = move |_: &Request| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        match (number % 3, number / 3 % 6) {
            (0, 0) => FAILS,
            (0, 1) => Fate::CutRequest,
            (0, 2) => Fate::CutAnswer(0),
            (0, 3) => Fate::CutAnswer(100),
            (0, 4) => Fate::Done { status: 500, body: "" },
            (0, 5) => Fate::Answer { status: 503, headers: "retry-after: 0\r\n", body: "" },
            _ => Fate::Pass,
        }
    };
    let limits = S3Limits { attempts: 10, ..s3_limits() };
    let (store, proxy) = store_behind(&server, limits, decide);
    let archive = archive(store, directory.path());
    let told = Mutex::new(Vec::new());
    let tell = |event| told.lock().unwrap().push(format!("{event:?}"));
    let root = ArchivePath::ROOT;
    let options = SaveOptions { pack_bytes: 20_000, workers: 4, ..SaveOptions::default() };
    let saved = save(&archive, std::slice::from_ref(&tree), &root, options, &tell).unwrap();
    let to = directory.path().join("back");
    let from = ArchivePath::new(b"tree").unwrap();
    let got = fetch(&archive, &from, &to, FetchOptions::default(), &tell).unwrap();
    let told = told.into_inner().unwrap();
    assert_eq!((saved.failed, got.failed, &told[..]), (0, 0, &[][..]));
    assert_same(&tree, &to.join("tree"));
    assert!(proxy.seen().len() > 50, "{} requests", proxy.seen().len());
    // What nobody has finished is nowhere, and what is there is all referred to.
    assert_eq!(parts_left(&server), 0);
    let verified = verify(&archive, &root, VerifyOptions::default(), &drop).unwrap();
    assert_eq!(verified.damaged, 0, "{verified:?}");
}

#[test]
fn server_that_goes_away_stops_it_and_the_rest_is_stored_later() {
    let Some(server) = S3Server::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    make_everything(&tree);
    let (sources, root) = ([tree.clone()], ArchivePath::ROOT);
    let options = SaveOptions { pack_bytes: 2000, ..SaveOptions::default() };
    // Each time it holds out a little longer.
    for requests in [5, 15, 40] {
        let count = AtomicUsize::new(0);
        let (store, _proxy) = store_behind(&server, s3_limits(), move |_| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            if number < requests { Fate::Pass } else { FAILS }
        });
        let catalog = Catalog::open(&directory.path().join(format!("catalog-{requests}")));
        let opened = Archive::new(Arc::new(store), catalog.unwrap());
        let error = opened.and_then(|archive| save(&archive, &sources, &root, options, &drop));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("the server fails again and again"), "{text}");
        assert_eq!(parts_left(&server), 0);
        // What is there is whole.
        let other = tempfile::tempdir().unwrap();
        let archive = archive(direct(&server), other.path());
        match verify(&archive, &root, VerifyOptions::default(), &drop) {
            Ok(verified) => assert_eq!(verified.damaged, 0),
            // It was away before the root was there.
            Err(error) => assert!(matches!(error, ArchiveError::NotArchived { .. }), "{error}"),
        }
    }
    let archive = archive(direct(&server), directory.path());
    let saved = save(&archive, &sources, &root, options, &drop).unwrap();
    assert_eq!(saved.failed, 0);
    let from = ArchivePath::new(b"tree").unwrap();
    fetch(&archive, &from, &directory.path().join("back"), FetchOptions::default(), &drop).unwrap();
    assert_same(&tree, &directory.path().join("back/tree"));
}
