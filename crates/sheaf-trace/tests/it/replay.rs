//! What a trace says is done again, below the target and nowhere else.
use crate::made::Made;
use sheaf_trace::replay::{Replay, ReplayOptions, ReplayOutcome, ReplaySkip, ReplaySpeed};
use sheaf_trace::{StoreReader, TraceError, TraceStore};
use std::fs;
use std::path::Path;

fn options(into: &Path) -> ReplayOptions {
    ReplayOptions { speed: ReplaySpeed::Unpaced, ..ReplayOptions::new(into) }
}

fn replayed(made: &Made, options: ReplayOptions) -> Result<ReplayOutcome, TraceError> {
    let mut replay = Replay::new(options)?;
    made.rows.iter().for_each(|row| replay.plan(row, &made.names));
    let mut replaying = replay.begin()?;
    for row in &made.rows {
        replaying.row(row, &made.names)?;
    }
    replaying.finish()
}

fn counts(outcome: &ReplayOutcome) -> Vec<(&str, u64)> {
    outcome.ops.iter().map(|(op, sums)| (*op, sums.count)).collect()
}

fn skipped(outcome: &ReplayOutcome) -> Vec<(ReplaySkip, &str, u64)> {
    outcome.skipped.iter().map(|((why, op), count)| (*why, &**op, *count)).collect()
}

fn pattern(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|at| (at % 251) as u8).collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A process that reads what was there, and makes, changes and removes files.
fn a_process() -> Made {
    let mut made = Made::default();
    made.put("stat", "/d/in");
    made.failed("open", "/d/none", 2);
    made.put("open", "/d/in");
    made.moved("read", "/d/in", 0, 4096);
    made.moved("read", "/d/in", 4096, 1000).asked = 4096;
    made.moved("read", "/d/in", 5096, 0).asked = 4096;
    made.put("close", "/d/in");
    made.put("mkdir", "/d/new");
    made.failed("mkdir", "/d/new", 17);
    made.put("open", "/d/new/out");
    made.moved("write", "/d/new/out", 0, 100);
    made.moved("write", "/d/new/out", 100, 300);
    made.moved("read", "/d/new/out", 50, 200);
    made.put("truncate", "/d/new/out").asked = 320;
    made.moved("write", "/d/new/out", 0, 50).offset = None;
    made.put("fsync", "/d/new/out");
    made.put("dup", "/d/new/out");
    made.put("seek", "/d/new/out");
    made.put("close", "/d/new/out");
    made.put("close", "/d/new/out");
    made.put("unlink", "/d/old");
    made.put("opendir", "/d/empty");
    made.put("readdir", "/d/empty").bytes = 1;
    made.put("closedir", "/d/empty");
    made.put("rmdir", "/d/empty");
    made
}

#[test]
fn files_are_as_the_trace_makes_them() {
    let made = a_process();
    let directory = tempfile::tempdir().unwrap();
    let outcome = replayed(&made, options(directory.path())).unwrap();
    assert_eq!(outcome.differences, []);
    assert_eq!((outcome.issued(), outcome.differed()), (made.rows.len() as u64, 0));
    assert_eq!(skipped(&outcome), []);
    let expected = [
        ("close", 3),
        ("closedir", 1),
        ("dup", 1),
        ("fsync", 1),
        ("mkdir", 2),
        ("open", 3),
        ("opendir", 1),
        ("read", 4),
        ("readdir", 1),
        ("rmdir", 1),
        ("seek", 1),
        ("stat", 1),
        ("truncate", 1),
        ("unlink", 1),
        ("write", 3),
    ];
    assert_eq!(counts(&outcome), expected);
    let (reads, writes) = (&outcome.ops["read"], &outcome.ops["write"]);
    assert_eq!((reads.bytes_recorded, reads.bytes_replayed), (5296, 5296));
    assert_eq!((writes.bytes_recorded, writes.bytes_replayed, writes.recorded_ns), (450, 450, 300));
    assert_eq!((outcome.files_made, outcome.directories_made, outcome.bytes_made), (2, 2, 5096));
    let at = |path: &str| directory.path().join(path);
    assert_eq!(names_in(&at("d")), ["in", "new"]);
    assert_eq!(fs::read(at("d/in")).unwrap(), vec![0; 5096]);
    let out = fs::read(at("d/new/out")).unwrap();
    assert_eq!(out, [pattern(0, 320), pattern(0, 50)].concat());

    // A second time into the same directory: what the first has left is taken away.
    let again = replayed(&made, options(directory.path())).unwrap();
    assert_eq!((again.issued(), again.differed()), (made.rows.len() as u64, 0), "{again:?}");
    assert_eq!(fs::read(at("d/new/out")).unwrap(), out);
}

#[test]
fn store_is_replayed_and_differences_are_told() {
    let mut made = a_process();
    made.moved("write", "/d/full", 0, 0).errno = 28;
    made.rows.last_mut().unwrap().asked = 10;
    made.put("stat", "/d/gone/by");
    made.rows.last_mut().unwrap().errno = 13;
    let (directory, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut writer = TraceStore::open(store.path(), 1000).unwrap();
    writer.push(&made.rows, &made.names).unwrap();
    writer.finish(&made.names).unwrap();
    let replay = Replay::new(options(directory.path())).unwrap();
    let outcome = replay.run(&StoreReader::open(store.path()).unwrap()).unwrap();
    assert_eq!(outcome.damaged.len(), 0);
    let told: Vec<_> = outcome
        .differences
        .iter()
        .map(|it| (it.op, it.path.as_slice(), it.recorded, it.replayed))
        .collect();
    let expected: [(_, &[u8], _, _); 2] =
        [("write", b"d/full", (28, 0), (0, 10)), ("stat", b"d/gone/by", (13, 0), (2, 0))];
    assert_eq!(told, expected);
    assert_eq!((outcome.differed(), outcome.threads), (2, 1));
}

/// What was read of a file after it was moved says how long it was where it was before; one that
/// takes another's place has its own length.
#[test]
fn files_are_moved() {
    let mut made = Made::default();
    let rename = |made: &mut Made, path: &str, new_path: &str| {
        let new_path = made.number(new_path);
        made.put("rename", path).new_path = Some(new_path);
    };
    rename(&mut made, "/d/first", "/e/second");
    rename(&mut made, "/e/second", "/e/third");
    made.put("open", "/e/third");
    made.moved("read", "/e/third", 0, 700);
    made.put("stat", "/d/config");
    made.put("open", "/d/config.new");
    made.moved("write", "/d/config.new", 0, 30);
    rename(&mut made, "/d/config.new", "/d/config");
    made.moved("read", "/d/config", 0, 30).asked = 4096;
    let there = made.number("/d/none");
    let failed = made.failed("rename", "/d/absent", 2);
    failed.new_path = Some(there);
    let outside = made.number("/elsewhere/out");
    made.put("rename", "/d/config").new_path = Some(outside);
    let directory = tempfile::tempdir().unwrap();
    let outcome = replayed(&made, options(directory.path())).unwrap();
    assert_eq!(outcome.differences, []);
    assert_eq!((outcome.issued(), outcome.differed()), (made.rows.len() as u64, 0));
    assert_eq!(names_in(&directory.path().join("e")), ["third"]);
    assert_eq!(names_in(&directory.path().join("d")), [""; 0]);
    assert_eq!(fs::metadata(directory.path().join("e/third")).unwrap().len(), 700);
    let out = fs::read(directory.path().join("elsewhere/out")).unwrap();
    assert_eq!(out, pattern(0, 30));
    // Where a second path is not below the prefix, nothing is moved.
    let other = tempfile::tempdir().unwrap();
    let options = ReplayOptions { from_prefix: Some("/d".into()), ..options(other.path()) };
    let outcome = replayed(&made, options).unwrap();
    let left: Vec<_> = skipped(&outcome).into_iter().filter(|(_, op, _)| *op == "rename").collect();
    assert_eq!(left, [(ReplaySkip::OutsidePrefix, "rename", 3)]);
    assert_eq!(names_in(other.path()), [".sheaf-replay", "config"]);
}

#[test]
fn operations_that_cannot_be_replayed_are_counted_by_kind() {
    let mut made = Made::default();
    let mpi = made.number("mpi-io");
    made.put("rename", "/a");
    made.put("symlink", "/c").new_path = Some(0);
    made.put("copy_file_range", "/a").bytes = 5;
    made.put("fcntl", "/a");
    made.put("mmap", "/a");
    made.put("fork", "");
    made.put("pipe", "");
    made.moved("write", "pipe:[77]", 0, 3);
    made.moved("write", "", 0, 3);
    made.moved("write", "/dev/null", 0, 3);
    made.put("open", "/proc/self/maps");
    made.failed("read", "/a", 9);
    made.put("close", "/a");
    let outer = made.moved("write", "/b", 0, 10);
    (outer.layer, outer.duration_ns) = (mpi, 250);
    made.moved("write", "/b", 0, 10).is_nested = true;
    made.moved("write", "/b", 10, 10).duration_ns = 150;
    made.moved("write", "/b", 10, 10).is_nested = true;
    made.put("lost", "").bytes = 9;
    made.put("some_day", "/a");
    let directory = tempfile::tempdir().unwrap();
    let outcome = replayed(&made, options(directory.path())).unwrap();
    assert_eq!(counts(&outcome), [("write", 2)]);
    let expected = [
        (ReplaySkip::NoPath, "write", 2),
        (ReplaySkip::Device, "open", 1),
        (ReplaySkip::Device, "write", 1),
        (ReplaySkip::Nested, "write", 1),
        (ReplaySkip::LayerAbove, "write", 1),
        (ReplaySkip::TargetNotRecorded, "copy_file_range", 1),
        (ReplaySkip::TargetNotRecorded, "rename", 1),
        (ReplaySkip::Link, "symlink", 1),
        (ReplaySkip::ArgumentsNotRecorded, "fcntl", 1),
        (ReplaySkip::MappedMemory, "mmap", 1),
        (ReplaySkip::CallFailed, "read", 1),
        (ReplaySkip::NotOpen, "close", 1),
        (ReplaySkip::NotOfFile, "fork", 1),
        (ReplaySkip::NotOfFile, "pipe", 1),
        (ReplaySkip::NotOfFile, "some_day", 1),
    ];
    assert_eq!(skipped(&outcome), expected);
    assert_eq!(outcome.lost, 9);
    assert_eq!(fs::metadata(directory.path().join("b")).unwrap().len(), 20);
}

#[test]
fn nothing_outside_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let (into, outside) = (directory.path().join("into"), directory.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), b"kept").unwrap();
    let create = ReplayOptions { create: true, ..options(&into) };

    let mut made = Made::default();
    made.moved("write", "/../../outside/x", 0, 5);
    made.moved("write", "/a/../../outside/x", 0, 5);
    made.moved("write", "/a/../b/./c", 0, 5);
    let outcome = replayed(&made, create.clone()).unwrap();
    assert_eq!(skipped(&outcome), [(ReplaySkip::LeadsOutside, "write", 2)]);
    assert_eq!(
        (outcome.differed(), names_in(&into)),
        (0, vec![".sheaf-replay".to_owned(), "b".to_owned()])
    );

    // Links that come to be there while it runs.
    let mut made = Made::default();
    made.moved("write", "/link", 0, 5);
    made.put("truncate", "/hard");
    made.moved("write", "/way/x", 0, 5);
    made.put("mkdir", "/way/dir");
    made.put("unlink", "/way/kept");
    made.put("stat", "/way/kept");
    made.put("opendir", "/way");
    let mut replay = Replay::new(create.clone()).unwrap();
    made.rows[..2].iter().for_each(|row| replay.plan(row, &made.names));
    let mut replaying = replay.begin().unwrap();
    fs::remove_file(into.join("link")).unwrap();
    std::os::unix::fs::symlink("../outside/kept", into.join("link")).unwrap();
    std::os::unix::fs::symlink("../outside", into.join("way")).unwrap();
    fs::remove_file(into.join("hard")).unwrap();
    fs::hard_link(outside.join("kept"), into.join("hard")).unwrap();
    made.rows.iter().for_each(|row| replaying.row(row, &made.names).unwrap());
    let outcome = replaying.finish().unwrap();
    let errnos: Vec<_> = outcome.differences.iter().map(|it| (it.op, it.replayed.0)).collect();
    const ELOOP: i32 = 40;
    let expected = ["write", "truncate", "write", "mkdir", "unlink", "stat"].map(|op| (op, ELOOP));
    assert_eq!(errnos[..6], expected);
    assert!(matches!(errnos[6], ("opendir", 20 | ELOOP)), "{errnos:?}");

    // Links that were there before.
    let error = replayed(&made, create).unwrap_err().to_string();
    assert!(error.contains("into/"), "{error}");
    assert_eq!(names_in(&outside), ["kept"]);
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
}

#[test]
fn directory_of_others_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("into");
    let opened = |create| Replay::new(ReplayOptions { create, ..options(&into) }).map(|_| ());
    assert!(opened(false).is_err(), "it is not there");
    fs::create_dir(&into).unwrap();
    fs::write(into.join("mine"), b"").unwrap();
    let error = opened(true).unwrap_err().to_string();
    assert!(
        error.ends_with("it is not empty, and no earlier replay has used it (.sheaf-replay)"),
        "{error}"
    );
    fs::write(into.join(".sheaf-replay"), b"mine, too").unwrap();
    assert!(opened(false).is_err(), "the mark says something else");
    fs::remove_file(into.join(".sheaf-replay")).unwrap();
    fs::remove_file(into.join("mine")).unwrap();
    opened(false).unwrap();
    fs::write(into.join("replayed"), b"").unwrap();
    opened(false).unwrap();
    assert!(Replay::new(ReplayOptions::new("/")).is_err());
    let none = ReplayOptions { speed: ReplaySpeed::Factor(0.0), ..options(&into) };
    assert!(Replay::new(none).is_err());
}

#[test]
fn prefix_is_taken_away_and_the_rest_left_out() {
    let mut made = Made::default();
    made.moved("write", "/data/run/x", 0, 5);
    made.moved("write", "/data/running", 0, 5);
    made.moved("write", "/data/run/../x", 0, 5);
    let directory = tempfile::tempdir().unwrap();
    let below =
        ReplayOptions { from_prefix: Some("/data/./run/".into()), ..options(directory.path()) };
    let outcome = replayed(&made, below).unwrap();
    assert_eq!(skipped(&outcome), [(ReplaySkip::OutsidePrefix, "write", 2)]);
    assert_eq!(names_in(directory.path()), [".sheaf-replay", "x"]);
}

#[test]
fn streams_are_buffered_and_written_at_the_end() {
    let mut made = Made::default();
    let stdio = made.number("stdio");
    for path in ["/closed", "/left"] {
        made.put("open", path);
        (0..1000).for_each(|_| made.moved("write", path, 0, 513).offset = None);
    }
    made.put("close", "/closed");
    // A second stream of a file that one has open.
    made.put("open", "/left");
    made.moved("write", "/left", 0, 10).offset = None;
    made.put("open", "/lines");
    for bytes in [80, 4096, 3, 0] {
        let row = made.moved("read", "/lines", 0, bytes);
        (row.offset, row.asked) = (None, 5000);
    }
    // One that was open before, and has kept nothing.
    made.put("flush", "/inherited");
    made.rows.iter_mut().for_each(|row| row.layer = stdio);
    let directory = tempfile::tempdir().unwrap();
    let outcome = replayed(&made, options(directory.path())).unwrap();
    assert_eq!((outcome.differed(), outcome.flushes_failed), (0, 0), "{outcome:?}");
    assert_eq!(fs::read(directory.path().join("closed")).unwrap(), pattern(0, 513_000));
    assert_eq!(fs::read(directory.path().join("left")).unwrap(), pattern(0, 513_000));
    assert_eq!(fs::metadata(directory.path().join("lines")).unwrap().len(), 4179);
    assert_eq!(fs::metadata(directory.path().join("inherited")).unwrap().len(), 0, "it was there");
}

const APPEND: i64 = 0o2000;
const TRUNC: i64 = 0o1000;
const CREATE: i64 = 0o100;

/// A hard link becomes a file of its own, so that each can be opened.
#[test]
fn linked_files_are_as_long_as_each_other() {
    let mut made = Made::default();
    made.put("open", "/objects/tmp").asked = CREATE | 0o202;
    made.moved("write", "/objects/tmp", 0, 128);
    made.put("close", "/objects/tmp");
    let name = made.number("/objects/01/final");
    made.put("mkdir", "/objects/01");
    made.put("link", "/objects/tmp").new_path = Some(name);
    made.put("unlink", "/objects/tmp");
    made.moved("read", "/objects/01/final", 0, 128);
    // One that is there already, and one of which the other name is not known.
    let row = made.put("link", "/kept");
    (row.new_path, row.errno) = (Some(name), 17);
    made.put("link", "/kept");
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let outcome = replayed(&made, options(directory.path())).unwrap();
        assert_eq!(outcome.differences, []);
        assert_eq!(skipped(&outcome), [(ReplaySkip::TargetNotRecorded, "link", 1)]);
        let len = fs::metadata(directory.path().join("objects/01/final")).unwrap().len();
        assert_eq!((len, directory.path().join("objects/tmp").exists()), (128, false));
    }
}

/// What a file was opened for, and where a stream was moved to, say how long it becomes.
#[test]
fn files_become_as_long_as_they_were() {
    let mut made = Made::default();
    let stdio = made.number("stdio");
    let stream = |made: &mut Made, path: &str, flags: i64, steps: &[(&str, i64)]| {
        let first = made.rows.len();
        made.put("open", path).asked = flags;
        for &(op, amount) in steps {
            match op {
                "write" => made.moved("write", path, 0, amount).offset = None,
                _ => made.put(op, path).offset = Some(amount),
            }
        }
        made.put("close", path);
        made.rows[first..].iter_mut().for_each(|row| row.layer = stdio);
    };
    let new = CREATE | TRUNC;
    stream(&mut made, "/moved", new, &[("write", 50_000), ("seek", 100), ("write", 7)]);
    (0..3).for_each(|_| stream(&mut made, "/log", CREATE | APPEND, &[("write", 7)]));
    stream(&mut made, "/again", new, &[("write", 9000)]);
    stream(&mut made, "/again", new, &[("write", 12)]);
    stream(&mut made, "/far", new, &[("seek", 1000), ("write", 1), ("seek", 0), ("write", 3)]);
    stream(&mut made, "/over", new, &[("write", 6000)]);
    stream(&mut made, "/over", 1, &[("write", 5)]);
    stream(&mut made, "/both", 2 | CREATE | APPEND, &[("write", 5), ("seek", 0), ("write", 5)]);
    // What was a descriptor, and where it is, becomes a stream.
    made.put("open", "/fd").asked = new;
    made.moved("write", "/fd", 0, 10);
    stream(&mut made, "/fd", 0, &[("write", 3)]);
    let open = made.rows.len() - 3;
    made.rows[open].offset = Some(10);
    // Of processes that have it from another one each goes on where the one before has ended.
    for pid in [100, 101, 100] {
        let row = made.moved("write", "/inherited", 0, 4);
        (row.pid, row.thread, row.offset, row.layer) = (pid, pid, None, stdio);
        let row = made.put("flush", "/inherited");
        (row.pid, row.thread, row.layer) = (pid, pid, stdio);
        // One after the other.
        made.put("stat", "/inherited");
    }
    let directory = tempfile::tempdir().unwrap();
    let outcome = replayed(&made, options(directory.path())).unwrap();
    assert_eq!((outcome.differences.as_slice(), outcome.flushes_failed), (&[][..], 0));
    let len = |name: &str| fs::metadata(directory.path().join(name)).unwrap().len();
    let lens = ["moved", "log", "again", "far", "over", "both", "fd", "inherited"].map(len);
    assert_eq!(lens, [50_000, 21, 12, 1001, 6000, 10, 13, 12]);
}

/// More threads than there are here: what one makes others find, in each of many rounds.
#[test]
fn names_are_there_when_others_look_for_them() {
    const ROUNDS: i32 = 400;
    let mut made = Made::default();
    let other = made.number("n2");
    let mut put = |op: &str, path: &str, thread: i32| {
        let row = made.put(op, path);
        (row.thread, row.pid) = (1000 + thread, 100 + thread % 7);
    };
    for round in 0..ROUNDS {
        let path = format!("/shared/{}", round % 3);
        put("mkdir", "/shared", round);
        put("open", &path, round + 1);
        put("stat", &path, round + 2);
        put("close", &path, round + 1);
        put("unlink", &path, round + 3);
        put("rmdir", "/shared", round + 4);
    }
    // One after the other, whoever does it.
    for (number, row) in made.rows.iter_mut().enumerate() {
        row.time_ns = Made::BEGIN_NS + 200 * number as i64;
        row.host = if row.pid == 103 { other } else { row.host };
        row.pid = 100;
    }
    // A close is of the process that has opened.
    let (open, close) = (made.number("open"), made.number("close"));
    let mut host = made.rows[0].host;
    for row in &mut made.rows {
        if row.op == open {
            host = row.host;
        } else if row.op == close {
            row.host = host;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let outcome = replayed(&made, options(directory.path())).unwrap();
    assert_eq!(outcome.differences, []);
    assert_eq!(outcome.issued(), 6 * ROUNDS as u64);
    assert!(outcome.threads > 256 && outcome.threads_sharing == outcome.threads - 256);
    assert_eq!(names_in(directory.path()), [".sheaf-replay"]);
}

#[test]
fn as_recorded_is_no_faster() {
    let mut made = Made::default();
    for number in 0..3 {
        made.moved("write", "/x", 0, 5).time_ns += number * 30_000_000;
    }
    let directory = tempfile::tempdir().unwrap();
    for (speed, least) in [(ReplaySpeed::AsRecorded, 60), (ReplaySpeed::Factor(2.0), 30)] {
        let outcome =
            replayed(&made, ReplayOptions { speed, ..options(directory.path()) }).unwrap();
        assert!(outcome.took.as_millis() >= least, "{speed:?} {:?}", outcome.took);
    }
}
