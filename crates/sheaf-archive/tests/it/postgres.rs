//! Catalogs in databases of PostgreSQL: what only they can do, and what only they can lose.
use crate::relay::Relay;
use crate::round::{path, settle};
use crate::trees::{assert_same, make_everything};
use base64::Engine as _;
use sheaf_archive::{
    Archive, ArchiveEvent, ArchivePath, ArchivedDirectory, ArchivedPack, Catalog, CatalogError,
    Commit, DirectoryChange, FetchOptions, LocalStore, PackId, PostgresUrl, SaveOptions,
    VerifyOptions, fetch, remove, save, verify,
};
use sheaf_testing::postgres::PostgresServer;
use sheaf_testing::program::succeeds;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn connect(url: &str) -> Result<Catalog, CatalogError> {
    Catalog::connect(&PostgresUrl::parse(url).unwrap())
}

fn archive(store: &Path, url: &str) -> Archive {
    let store = Arc::new(LocalStore::create(store).unwrap());
    Archive::new(store, connect(url).unwrap()).unwrap()
}

fn fail(event: ArchiveEvent) {
    panic!("{event:?}");
}

fn store(archive: &Archive, tree: &Path) -> sheaf_archive::SaveReport {
    save(archive, &[tree.to_owned()], &ArchivePath::ROOT, SaveOptions::default(), &fail).unwrap()
}

fn assert_whole(archive: &Archive) {
    let damaged = |error| panic!("{error}");
    verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
}

fn directory(at: &str) -> DirectoryChange {
    let is = ArchivedDirectory {
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime_s: 0,
        mtime_ns: 0,
        xattrs: Vec::new(),
    };
    DirectoryChange { path: path(at), directory: Some(is), ..Default::default() }
}

fn commit_of(change: DirectoryChange) -> Commit {
    Commit { changes: vec![change] }
}

#[test]
fn trees_are_stored_changed_removed_and_fetched() {
    let Some(server) = PostgresServer::shared() else { return };
    let (place, url) = (tempfile::tempdir().unwrap(), server.new_database());
    let (at, tree) = (place.path(), place.path().join("tree"));
    make_everything(&tree);
    fs::create_dir(tree.join("more")).unwrap();
    fs::write(tree.join("more/file"), "1").unwrap();
    settle();
    store(&archive(&at.join("store"), &url), &tree);
    fs::write(tree.join("more/file"), "another").unwrap();
    settle();
    let again = archive(&at.join("store"), &url);
    store(&again, &tree);
    assert_whole(&again);
    fetch(&again, &path("/tree"), &at.join("back"), FetchOptions::default(), &fail).unwrap();
    assert_same(&tree, &at.join("back/tree"));
    let files = store(&again, &tree);
    assert_eq!(files.stored, 0, "{files:?}");

    remove(&again, &path("/tree/more")).unwrap();
    assert!(again.look_up(&path("/tree/more/file")).unwrap().is_none());
    assert_whole(&again);
    // Whoever has no database makes the same of the log.
    let sqlite = Catalog::open(&at.join("catalog")).unwrap();
    let other = Arc::new(LocalStore::open(&at.join("store")).unwrap());
    let other = Archive::new(other, sqlite).unwrap();
    let all = |archive: &Archive| {
        archive.catalog().rows_below(&ArchivePath::ROOT, None, usize::MAX >> 1).unwrap()
    };
    assert_eq!(all(&other), all(&again));
}

/// A commit of directories with ten packs each.
fn many_rows(above: &str, directories: u32) -> Commit {
    let change = |number: u32| {
        let pack = |other: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_le_bytes());
            id[4..8].copy_from_slice(&other.to_le_bytes());
            ArchivedPack { id: PackId(id), ..ArchivedPack::default() }
        };
        let packs = (0..10).map(pack).collect();
        DirectoryChange { packs, ..directory(&format!("{above}/{number}")) }
    };
    Commit {
        changes: std::iter::once(directory(above)).chain((0..directories).map(change)).collect(),
    }
}

#[test]
fn server_is_asked_as_often_for_a_thousand_rows_as_for_ten() {
    let Some(server) = PostgresServer::shared() else { return };
    let (place, relay) = (tempfile::tempdir().unwrap(), Relay::new(&server));
    let store = LocalStore::create(&place.path().join("store")).unwrap();
    let mut catalog = connect(&relay.url(&server.new_database())).unwrap();
    catalog.commit(&store, &commit_of(directory("/"))).unwrap();
    let mut asked = |commit: &Commit| {
        let before = relay.answers();
        catalog.commit(&store, commit).unwrap();
        relay.answers() - before
    };
    // What is asked for the first time is prepared.
    assert!(asked(&many_rows("/first", 100)) <= 30);
    let few = asked(&many_rows("/few", 1));
    assert!(few <= 12, "{few}");
    assert_eq!(asked(&many_rows("/many", 100)), few);
    let gone = |above: &str, directories: u32, since| {
        let mut commit = many_rows(above, directories);
        for change in &mut commit.changes {
            let path = change.path.clone();
            *change = DirectoryChange { path, since, removed: true, ..Default::default() };
        }
        commit
    };
    asked(&gone("/first", 100, 2));
    let few = asked(&gone("/few", 1, 3));
    assert!(few <= 12, "{few}");
    assert_eq!(asked(&gone("/many", 100, 4)), few);
    assert_eq!(catalog.below(&ArchivePath::ROOT, None, 9).unwrap().len(), 1);
}

#[test]
fn connection_that_ends_at_any_answer_loses_nothing() {
    let Some(server) = PostgresServer::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let relay = Relay::new(&server);
    let (url, direct) = {
        let url = server.new_database();
        (relay.url(&url), url)
    };
    let store = LocalStore::create(&place.path().join("store")).unwrap();
    let mut catalog = connect(&url).unwrap();
    let mut made = 0;
    for stop in 0.. {
        relay.stop_after(stop, false);
        let name = if stop == 0 { "/".to_owned() } else { format!("/{stop}") };
        let committed = catalog.commit(&store, &commit_of(directory(&name)));
        let is_over = relay.answers() <= stop;
        relay.go_on();
        match committed {
            Ok(_) => assert!(is_over, "{stop}"),
            Err(CatalogError::Server { place, why }) => {
                assert!(place.starts_with("postgresql://postgres@/test_"), "{place}: {why}");
            }
            Err(error) => panic!("{stop}: {error}"),
        }
        // The same catalog goes on, and has what the log has; so has another one.
        let last = catalog.catch_up(&store).unwrap();
        let mut other = connect(&direct).unwrap();
        assert_eq!(other.catch_up(&store).unwrap(), last);
        assert!(other.differs(&store).unwrap().is_none(), "{stop}");
        let is_there = catalog.changed(&path(&name)).unwrap() > 0;
        if !is_there {
            assert!(!is_over, "{stop}");
            catalog.commit(&store, &commit_of(directory(&name))).unwrap();
        }
        made += 1;
        let all = catalog.below(&ArchivePath::ROOT, None, 1000).unwrap();
        assert_eq!(all.len(), made, "{stop}");
        if is_over {
            assert!(stop > 5, "it has ended nowhere");
            break;
        }
    }
}

#[test]
fn server_that_says_nothing_is_waited_for_until_the_deadline() {
    let Some(server) = PostgresServer::shared() else { return };
    let (place, relay) = (tempfile::tempdir().unwrap(), Relay::new(&server));
    let store = LocalStore::create(&place.path().join("store")).unwrap();
    let url =
        format!("{}&statement_timeout=1&connect_timeout=1", relay.url(&server.new_database()));
    let mut catalog = connect(&url).unwrap();
    catalog.commit(&store, &commit_of(directory("/"))).unwrap();
    relay.stop_after(0, true);
    let error = catalog.commit(&store, &commit_of(directory("/a"))).unwrap_err();
    assert!(error.to_string().contains("no answer within 1 s (statement_timeout)"), "{error}");
    assert!(error.retry_can_help());
    let error = connect(&url).unwrap_err();
    assert!(error.to_string().contains("no connection within 1 s (connect_timeout)"), "{error}");
    relay.go_on();
    catalog.commit(&store, &commit_of(directory("/a"))).unwrap();
}

#[test]
fn commit_on_locked_tables_fails_after_statement_timeout() {
    let Some(server) = PostgresServer::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let store = LocalStore::create(&place.path().join("store")).unwrap();
    let url = server.new_database();
    let mut catalog = connect(&format!("{url}&statement_timeout=1")).unwrap();
    catalog.commit(&store, &commit_of(directory("/"))).unwrap();
    let database = url.strip_prefix("postgresql:///").unwrap().split('?').next().unwrap();
    let schema = schema(&server, database);
    std::thread::scope(|scope| {
        let hold = format!("BEGIN; SELECT * FROM {schema}.applied FOR UPDATE; SELECT pg_sleep(4)");
        let (server, url) = (&server, &url);
        let holder = scope.spawn(move || server.sql(database, &hold));
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND \
                        datname = current_database()";
        while server.sql(database, sleeping).trim() != "1" {
            std::thread::yield_now();
        }
        let error = catalog.commit(&store, &commit_of(directory("/a"))).unwrap_err();
        assert!(error.to_string().contains("statement_timeout is 1 s"), "{error}");
        holder.join().unwrap();
        // It is in the log, and so it is done.
        let mut other = connect(url).unwrap();
        assert_eq!(other.catch_up(&store).unwrap(), 2);
        assert_eq!(catalog.catch_up(&store).unwrap(), 2);
    });
}

fn schema(server: &PostgresServer, database: &str) -> String {
    let sql = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sheaf%'";
    server.sql(database, sql).trim().to_owned()
}

#[test]
fn later_tables_are_refused_and_earlier_ones_made_again() {
    let Some(server) = PostgresServer::shared() else { return };
    let (place, url) = (tempfile::tempdir().unwrap(), server.new_database());
    let store = LocalStore::create(&place.path().join("store")).unwrap();
    let mut catalog = connect(&url).unwrap();
    catalog.commit(&store, &commit_of(directory("/"))).unwrap();
    let database = url.strip_prefix("postgresql:///").unwrap().split('?').next().unwrap();
    let schema = schema(&server, database);
    server.sql(database, &format!("UPDATE {schema}.tables_version SET number = 99"));
    let error = connect(&url).unwrap().catch_up(&store).unwrap_err().to_string();
    assert!(error.contains("have version 99, and this Sheaf knows them up to 4"), "{error}");
    assert!(error.contains(&format!("DROP SCHEMA {schema} CASCADE")), "{error}");
    server.sql(
        database,
        &format!(
            "UPDATE {schema}.tables_version SET number = 1;
            DELETE FROM {schema}.directory; ALTER TABLE {schema}.pack RENAME TO other"
        ),
    );
    let mut again = connect(&url).unwrap();
    assert_eq!(again.catch_up(&store).unwrap(), 1);
    assert!(again.differs(&store).unwrap().is_none());
    // What the error says to do helps.
    server.sql(database, &format!("DROP SCHEMA {schema} CASCADE"));
    let mut again = connect(&url).unwrap();
    assert_eq!(again.catch_up(&store).unwrap(), 1);
    assert!(again.differs(&store).unwrap().is_none());
}

#[test]
fn archives_share_a_database_and_a_file_is_of_one() {
    let place = tempfile::tempdir().unwrap();
    let server = PostgresServer::shared();
    let url = server.as_ref().map(|server| server.new_database());
    let open = || match &url {
        Some(url) => connect(url).unwrap(),
        None => Catalog::open(&place.path().join("catalog")).unwrap(),
    };
    let make = |name: &str| LocalStore::create(&place.path().join(name)).unwrap();
    let (one, other) = (make("one"), make("other"));
    for (store, name) in [(&one, "/one"), (&other, "/other")] {
        if url.is_none() && name == "/other" {
            continue;
        }
        let mut catalog = open();
        let mut root = directory("/");
        // Archives differ from their first commit on.
        root.directory.as_mut().unwrap().mtime_s = name.len() as i64;
        catalog.commit(store, &commit_of(root)).unwrap();
        catalog.commit(store, &commit_of(directory(name))).unwrap();
    }
    for (store, name) in [(&one, "/one"), (&other, "/other")] {
        if url.is_none() && name == "/other" {
            continue;
        }
        let mut catalog = open();
        assert_eq!(catalog.catch_up(store).unwrap(), 2);
        let all = catalog.below(&ArchivePath::ROOT, None, 9).unwrap();
        assert_eq!(all.iter().map(|(path, _)| path.to_string()).collect::<Vec<_>>(), ["/", name]);
    }

    // A copy of a store goes its own way from some commit on: its catalog is not the other's.
    let copied = place.path().join("copied");
    let mut copy = std::process::Command::new("cp");
    succeeds(copy.arg("-a").arg(place.path().join("one")).arg(&copied));
    let copied = LocalStore::open(&copied).unwrap();
    let file = place.path().join("file");
    Catalog::open(&file).unwrap().commit(&copied, &commit_of(directory("/copy"))).unwrap();
    open().commit(&one, &commit_of(directory("/original"))).unwrap();
    for mut of_one in [open(), Catalog::open(&place.path().join("ones")).unwrap()] {
        of_one.catch_up(&one).unwrap();
    }
    for mut of_one in [open(), Catalog::open(&place.path().join("ones")).unwrap()] {
        let error = of_one.catch_up(&copied).unwrap_err();
        assert!(matches!(error, CatalogError::OtherLog { number: 3, .. }), "{error}");
        assert!(of_one.commit(&copied, &commit_of(directory("/no"))).is_err());
    }
    assert_eq!(Catalog::open(&file).unwrap().catch_up(&copied).unwrap(), 3);
}

fn pem(of: &str, bytes: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {of}-----\n{}\n-----END {of}-----\n", lines.join("\n"))
}

#[test]
fn server_is_believed_by_its_certificate_and_told_a_password() {
    let Some(server) = PostgresServer::start(&["listen_addresses=127.0.0.1", "fsync=off"]) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let roots = place.path().join("roots.pem");
    let certificate = pem("CERTIFICATE", key.cert.der());
    fs::write(&roots, &certificate).unwrap();
    server.write_own_file("server.crt", certificate.as_bytes());
    server.write_own_file(
        "server.key",
        pem("PRIVATE KEY", &key.signing_key.serialize_der()).as_bytes(),
    );
    server.write_own_file(
        "pg_hba.conf",
        b"local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n",
    );
    server.sql("postgres", "CREATE ROLE ada LOGIN PASSWORD 's3cret'");
    server.sql("postgres", "CREATE DATABASE x OWNER ada");
    server.sql("postgres", "ALTER SYSTEM SET ssl = on");
    server.sql("postgres", "SELECT pg_reload_conf()");
    while server.sql("postgres", "SHOW ssl").trim() != "on" {
        std::thread::yield_now();
    }
    let at = format!("localhost:{}/x?hostaddr=127.0.0.1", server.port());
    let roots = format!("sslrootcert={}", roots.display());
    let store = LocalStore::create(&place.path().join("store")).unwrap();
    let mut catalog = connect(&format!("postgresql://ada:s3cret@{at}&{roots}")).unwrap();
    catalog.commit(&store, &commit_of(directory("/"))).unwrap();
    let ssl = "SELECT count(*) FROM pg_stat_ssl NATURAL JOIN pg_stat_activity WHERE ssl AND \
               usename = 'ada'";
    assert_eq!(server.sql("postgres", ssl).trim(), "1");
    assert!(!format!("{catalog:?}").contains("s3cret"));
    for (url, why) in [
        (format!("postgresql://ada:s3cret@{at}&sslmode=require"), "UnknownIssuer"),
        (format!("postgresql://ada:s3cret@{at}"), "UnknownIssuer"),
        (format!("postgresql://ada:s3cret@{at}&sslmode=disable"), "no encryption (28000)"),
        (format!("postgresql://ada:s3cret2@{at}&{roots}"), "password authentication failed"),
        (format!("postgresql://ada@{at}&{roots}"), "password missing"),
    ] {
        let error = connect(&url).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
