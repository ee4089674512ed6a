//! Objects are written once, whole, and for good.
use crate::stores::{self, StorePlace, files};
use sheaf_archive::{LocalStore, Store, StoreError, StoreKey};
use sheaf_core::Errno;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub fn key(text: &str) -> StoreKey {
    StoreKey::new(text).unwrap()
}

pub fn put(store: &dyn Store, name: &str, content: &[u8]) -> Result<(), Errno> {
    let mut object = store.create(&key(name)).map_err(|error| error.errno)?;
    let written = object.write_all(content);
    written.map_err(|error| error.downcast::<StoreError>().unwrap().errno)?;
    object.commit().map_err(|error| error.errno)
}

pub fn keys(store: &dyn Store, parts: &[&str]) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let listed = store.list(parts, &mut |object| {
        found.push((object.key.to_string(), object.bytes));
        Ok(())
    });
    listed.unwrap();
    found
}

#[test]
fn object_is_there_when_it_is_committed() {
    StorePlace::all().iter().for_each(an_object_is_there);
}

fn an_object_is_there(place: &StorePlace) {
    let store = &*place.create().unwrap();
    let name = key("packs/ab/one.tar");
    let error = |errno, doing: &str| format!("{}: {doing}: {errno}", place.said_of(&name));
    let missing = store.size(&name).unwrap_err();
    assert_eq!(missing.to_string(), error(Errno::NOENT, "cannot be read"));

    let mut object = store.create(&name).unwrap();
    object.write_all(b"some ").unwrap();
    assert!(store.size(&name).is_err() && keys(store, &[]).is_empty());
    object.write_all(b"content").unwrap();
    object.commit().unwrap();
    assert_eq!(store.size(&name).unwrap(), 12);
    let mut from = String::new();
    store.open(&name, 5).unwrap().read_to_string(&mut from).unwrap();
    assert_eq!(from, "content");
    for beyond in [12, 13] {
        assert_eq!(store.open(&name, beyond).unwrap().read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(store.open(&key("packs/none"), 0).err().unwrap().errno, Errno::NOENT);
    assert_eq!(store.read(&key("packs/none"), 0..1).unwrap_err().errno, Errno::NOENT);
    assert_eq!(store.read(&name, 12..12).unwrap(), b"");
    assert_eq!(store.read(&name, 1..4).unwrap(), b"ome");
    for range in [0..13, 13..13, u64::MAX - 1..u64::MAX] {
        assert_eq!(store.read(&name, range).unwrap_err().errno, Errno::NODATA);
    }

    let taken = put(store, "packs/ab/one.tar", b"other").unwrap_err();
    assert_eq!(taken, Errno::EXIST);
    assert_eq!(store.read(&name, 0..12).unwrap(), b"some content");

    store.remove(&name).unwrap();
    let gone = store.remove(&name).unwrap_err();
    assert_eq!(gone.to_string(), error(Errno::NOENT, "cannot be removed"));
    put(store, "packs/ab/one.tar", b"other").unwrap();
    put(store, "packs/ab/empty", b"").unwrap();
    let sizes = [("packs/ab/empty".to_owned(), 0), ("packs/ab/one.tar".to_owned(), 5)];
    assert_eq!(keys(store, &[]), sizes);
    assert_eq!(store.open(&key("packs/ab/empty"), 0).unwrap().read(&mut [0]).unwrap(), 0);
}

#[test]
fn long_object_is_there_as_a_whole() {
    for place in StorePlace::all() {
        let store = place.create().unwrap();
        let content: Vec<u8> = (0..17_000_001u32).map(|at| (at * 7 / 1000) as u8).collect();
        let mut object = store.create(&key("data/long")).unwrap();
        for part in content.chunks(100_003) {
            object.write_all(part).unwrap();
            assert!(store.size(&key("data/long")).is_err());
        }
        object.commit().unwrap();
        let mut read = Vec::new();
        store.open(&key("data/long"), 0).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == content, "{}", place.said());
        let range = store.read(&key("data/long"), 5_242_000..10_500_000).unwrap();
        assert!(range == content[5_242_000..10_500_000]);
        let again = put(&*store, "data/long", &content).unwrap_err();
        assert_eq!(again, Errno::EXIST);
    }
}

#[test]
fn unfinished_object_leaves_nothing_in_the_store() {
    for place in StorePlace::all() {
        let store = place.create().unwrap();
        for bytes in [7, 11_000_000] {
            let mut object = store.create(&key("packs/one")).unwrap();
            object.write_all(&vec![1; bytes]).unwrap();
            drop(object);
        }
        assert_eq!(files(&place.root()), place.own_files(), "only the mark is there");
        let root = place.server.as_ref().map_or(place.root(), |server| server.bucket());
        assert_eq!(files(&root), place.own_files(), "nor has a server parts of it");
    }
}

#[test]
fn objects_are_listed_in_the_order_of_their_keys() {
    StorePlace::all().iter().for_each(objects_are_listed);
}

fn objects_are_listed(place: &StorePlace) {
    let store = &*place.create().unwrap();
    let mut names = ["b", "a/b", "a-b", "a/a/c", "a.b", "a0", "c/d"].map(str::to_owned);
    for name in &names {
        put(store, name, name.as_bytes()).unwrap();
    }
    // What is not of the store is no object.
    std::fs::write(place.objects().join("a/.hidden"), "x").unwrap();
    std::fs::write(place.objects().join("a/Not An Object"), "x").unwrap();
    names.sort();
    let listed: Vec<_> = keys(store, &[]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, names);
    assert_eq!(keys(store, &["a"]), [("a/a/c".to_owned(), 5), ("a/b".to_owned(), 3)]);
    assert_eq!(keys(store, &["nothing"]), []);

    let mut seen = 0;
    let stopped = store.list(&[], &mut |object| {
        seen += 1;
        store.open(&key("nothing"), object.bytes).map(drop)
    });
    assert_eq!((stopped.unwrap_err().errno, seen), (Errno::NOENT, 1));
}

/// Of many who write one object, one does, and the others are told.
#[test]
fn one_of_many_writers_has_written_it() {
    StorePlace::all().iter().for_each(one_of_many_writers);
}

fn one_of_many_writers(place: &StorePlace) {
    let store = &*place.create().unwrap();
    for round in 0..20 {
        let (name, start) = (format!("packs/{round}/one"), Barrier::new(8));
        let results: Vec<Result<(), Errno>> = std::thread::scope(|scope| {
            let (name, start) = (&name, &start);
            let writers: Vec<_> = (0..8u8)
                .map(|writer| {
                    scope.spawn(move || {
                        start.wait();
                        put(store, name, &[writer; 10_000])
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let winner = results.iter().position(Result::is_ok).unwrap();
        let is_told = |(at, result): (usize, &Result<(), Errno>)| {
            *result == if at == winner { Ok(()) } else { Err(Errno::EXIST) }
        };
        assert!(results.iter().enumerate().all(is_told), "{results:?}");
        let content = store.read(&key(&name), 0..10_000).unwrap();
        assert_eq!(content, [winner as u8; 10_000]);
        assert_eq!(store.size(&key(&name)).unwrap(), 10_000);
    }
}

#[test]
fn only_a_store_is_opened_and_only_nothing_is_made_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let said = |result: Result<LocalStore, StoreError>| {
        let error = result.unwrap_err();
        error.to_string().replace(&path.display().to_string(), "DIR")
    };
    let missing = "is no store: No such file or directory (ENOENT)";
    assert_eq!(said(LocalStore::open(path)), format!("DIR: {missing}"));
    assert_eq!(said(LocalStore::open(&path.join("gone"))), format!("DIR/gone: {missing}"));
    // A making that was cut off is begun again.
    std::fs::create_dir(path.join("objects")).unwrap();
    LocalStore::create(path).unwrap();
    put(&LocalStore::create(path).unwrap(), "a", b"content").unwrap();
    assert_eq!(keys(&LocalStore::open(path).unwrap(), &[]), [("a".to_owned(), 7)]);

    std::fs::write(path.join("sheaf-archive"), "sheaf archive, version 2\n").unwrap();
    let later = "DIR: a later Sheaf has made this store, or its mark is damaged: Operation not \
                 supported (EOPNOTSUPP)";
    assert_eq!(said(LocalStore::open(path)), later);
    assert_eq!(said(LocalStore::create(path)), later);
    std::fs::remove_file(path.join("sheaf-archive")).unwrap();
    let full = "DIR: is no store, and something is in it: Directory not empty (ENOTEMPTY)";
    assert_eq!(said(LocalStore::create(path)), full);
}

#[test]
fn keys_are_names_that_any_store_takes() {
    for text in ["a", "packs/0a/b-c_d.tar", &"a".repeat(512)] {
        assert_eq!(StoreKey::new(text).unwrap().as_str(), text);
    }
    let long = "a".repeat(513);
    for text in ["", "/", "a/", "/a", "a//b", "..", "a/../b", "a/.b", "A", "a b", "é", "a\0", &long]
    {
        assert_eq!(StoreKey::new(text), None, "{text:?}");
    }
}

/// Run by `killed_writer_leaves_whole_objects`, as a process of its own.
#[test]
fn as_a_writer() {
    let Ok(name) = std::env::var("SHEAF_TEST_STORE") else { return };
    let store = stores::open(&name).unwrap();
    for number in 0..u64::MAX {
        let name = format!("packs/{:02}/{number}", number % 7);
        put(&*store, &name, &[number as u8; 50_000]).unwrap();
        println!("has written {number}");
    }
}

/// What a writer has told of is there, what it was at is not, and nothing else is left of it.
#[test]
fn killed_writer_leaves_whole_objects() {
    for round in 0..10 {
        StorePlace::all().iter().for_each(|place| a_writer_is_killed(place, round));
    }
}

fn a_writer_is_killed(place: &StorePlace, round: u64) {
    {
        let store = &*place.create().unwrap();
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::as_a_writer", "--nocapture"])
            .env("SHEAF_TEST_STORE", place.name())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = std::io::BufReader::new(writer.stdout.take().unwrap());
        let mut told = 0;
        while told < 5 + round * 3 {
            let mut line = String::new();
            assert_ne!(std::io::BufRead::read_line(&mut said, &mut line).unwrap(), 0);
            told += u64::from(line.contains("has written"));
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        told += rest.matches("has written").count() as u64;

        // A server goes on for a moment with what it was asked for.
        let deadline = Instant::now() + Duration::from_secs(30);
        let look = || {
            let of_place = (files(&place.root()), files(&place.objects()));
            (keys(store, &["packs"]), of_place)
        };
        let (mut found, mut of_place) = look();
        while of_place.1 != found.len() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            (found, of_place) = look();
        }
        assert!(found.iter().all(|(_, bytes)| *bytes == 50_000), "{found:?}");
        for number in 0..told {
            let name = format!("packs/{:02}/{number}", number % 7);
            assert_eq!(store.read(&key(&name), 0..50_000).unwrap(), [number as u8; 50_000]);
        }
        // One more may have been written and not told of.
        let objects = found.len() as u64;
        assert!((told..=told + 1).contains(&objects), "{told} of {objects}");
        assert_eq!(of_place.1 as u64, objects);
        // A tape and the drives have files of their own.
        let own = of_place.0 - of_place.1;
        assert!(place.is_tape || own == place.own_files(), "{own}");
    }
}

#[test]
fn store_write_without_permission_fails_with_eacces() {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::create(directory.path()).unwrap();
    sheaf_testing::as_nobody(|| {
        assert_eq!(put(&store, "a", b"content").unwrap_err(), Errno::ACCES);
    });
}

/// What root wrote there its owner could not read, and so not write behind it.
#[test]
fn root_writes_nothing_into_a_store_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root may give a store to another user");
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("store");
    let key = StoreKey::new("data/x").unwrap();
    drop(LocalStore::create(&at).unwrap());
    let nobody = (Some(65534), Some(65534));
    std::os::unix::fs::chown(at.join("objects"), nobody.0, nobody.1).unwrap();
    let store = LocalStore::open(&at).unwrap();
    let error = store.create(&key).map(drop).unwrap_err();
    assert_eq!(error.errno, Errno::PERM);
    assert!(error.doing.contains("would lock the owner of this store out"), "{error}");
    assert_eq!(store.size(&key).unwrap_err().errno, Errno::NOENT);
    // Nor does root remove what is there, or what it leads to.
    let other = directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("x"), "of another store").unwrap();
    std::os::unix::fs::symlink(&other, at.join("objects/data")).unwrap();
    for is_foreign in [true, false] {
        let error = LocalStore::open(&at).unwrap().remove(&key).unwrap_err();
        assert_eq!(error.errno, if is_foreign { Errno::PERM } else { Errno::LOOP }, "{error}");
        if !is_foreign {
            // Nor is anything written to what it leads to.
            let store = LocalStore::open(&at).unwrap();
            let mut writer = store.create(&StoreKey::new("data/new").unwrap()).unwrap();
            writer.write_all(b"x").unwrap();
            let error = writer.commit().unwrap_err();
            assert!(error.to_string().contains("a link leads to it"), "{error}");
            assert_eq!(store.put_passing(&key, b"x").unwrap_err().errno, Errno::LOOP);
            assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
        }
        std::os::unix::fs::chown(at.join("objects"), Some(0), Some(0)).unwrap();
    }
    std::fs::remove_dir(at.join("tmp")).unwrap();
    std::os::unix::fs::symlink(&other, at.join("tmp")).unwrap();
    let store = LocalStore::open(&at).unwrap();
    assert_eq!(store.unfinished(&mut |_, _| Ok(true)).unwrap_err().errno, Errno::LOOP);
    assert!(other.join("x").exists());
    // A link of another user's makes it that user's store, whoever owns what it leads to.
    std::fs::rename(at.join("objects"), directory.path().join("roots")).unwrap();
    std::os::unix::fs::symlink("../roots", at.join("objects")).unwrap();
    std::os::unix::fs::lchown(at.join("objects"), nobody.0, nobody.1).unwrap();
    let store = LocalStore::open(&at).unwrap();
    assert_eq!(store.create(&key).map(drop).unwrap_err().errno, Errno::PERM);
}
