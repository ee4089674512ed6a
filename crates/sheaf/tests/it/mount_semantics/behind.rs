//! Writes for which programs do not wait (`--write-behind`).
use super::history::mount_again;
use super::hosts::{EXPORT, Over, QUICK, ViewHosts};
use super::python::{Python, have_python};
use rustix::process::Signal;
use sheaf_testing::sessions::{SOON, turn, wait_until};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const BEHIND: &[&str] = &["--write-behind"];
const BLOCK_BYTES: usize = 700;
const BLOCKS: usize = 120;
/// Files of each writer; `SHEAF_TEST_SEEDS` says another number.
const FILES: usize = 25;

fn block(number: usize) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| (number * 7 + at * 31) as u8).collect()
}

/// What a writer has been told.
struct Written {
    file: usize,
    blocks: usize,
}

#[test]
fn writes_behind_are_seen_by_whoever_opens_the_file() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    mount_again(&hosts, BEHIND);
    let files = std::env::var("SHEAF_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let files = files.unwrap_or(FILES);
    let (is_over, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let written = [2, 3].map(|host| (host, Mutex::new(Written { file: 0, blocks: 0 })));
    let name = |host: usize, file: usize| format!("h{host}-{file}");
    let writes = |(host, written): &(usize, Mutex<Written>)| {
        for number in 0..files {
            let mut file = File::create(hosts.at(*host, 1, &name(*host, number))).unwrap();
            *written.lock().unwrap() = Written { file: number, blocks: 0 };
            for at in 0..BLOCKS {
                file.write_all(&block(at)).unwrap();
                written.lock().unwrap().blocks = at + 1;
            }
        }
    };
    let reads = |reader: usize, (host, written): &(usize, Mutex<Written>)| {
        let mut random = fastrand::Rng::with_seed(reader as u64);
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
            let Written { file, blocks } = *written.lock().unwrap();
            let name = name(*host, file);
            // By a program of the owner, and by the views of all hosts.
            let path = if reader == 0 { hosts.disk(1, &name) } else { hosts.at(reader, 1, &name) };
            let read = match fs::read(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound && blocks == 0 => continue,
                read => read.unwrap(),
            };
            assert!(read.len() >= blocks * BLOCK_BYTES, "{path:?}: {} of {blocks}", read.len());
            for (at, one) in read.chunks(BLOCK_BYTES).enumerate() {
                assert!(*one == block(at)[..one.len()], "{path:?}: block {at}");
            }
            seen.fetch_add(usize::from((1..BLOCKS).contains(&blocks)), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for of in &written {
            for reader in [0, 1, 2, 3] {
                scope.spawn(move || reads(reader, of));
            }
        }
        let writers = written.each_ref().map(|of| scope.spawn(|| writes(of)));
        for writer in writers {
            writer.join().unwrap();
        }
    });
    let seen = seen.into_inner();
    assert!(seen > files, "{seen} reads while somebody wrote");
    for (host, _) in &written {
        let whole: Vec<u8> = (0..BLOCKS).flat_map(block).collect();
        assert!(
            (0..files).all(|file| fs::read(hosts.disk(1, &name(*host, file))).unwrap() == whole)
        );
    }
}

#[test]
fn write_behind_returns_while_the_owner_stands_still() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let returns_at_once = |text: &str| {
        let mut file = File::create(hosts.at(2, 1, "f")).unwrap();
        let mut whole = Vec::new();
        for part in ["one", "two", "three"] {
            file.write_all(part.as_bytes()).unwrap();
            whole.extend_from_slice(part.as_bytes());
        }
        let server = hosts.server(1);
        server.signal(Signal::STOP);
        let is_written = AtomicBool::new(false);
        let at_once = std::thread::scope(|scope| {
            let (file, is_written) = (&file, &is_written);
            scope.spawn(move || {
                (&*file).write_all(text.as_bytes()).unwrap();
                is_written.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(200));
            let at_once = is_written.load(Ordering::SeqCst);
            server.signal(Signal::CONT);
            at_once
        });
        whole.extend_from_slice(text.as_bytes());
        // Whoever looks at it by this view, or has it synced, waits for that.
        assert_eq!(fs::metadata(hosts.at(2, 1, "f")).unwrap().len(), whole.len() as u64);
        file.sync_all().unwrap();
        assert!(fs::read(hosts.disk(1, "f")).unwrap() == whole);
        at_once
    };
    assert!(!returns_at_once("four"), "a write is waited for without the option");
    mount_again(&hosts, BEHIND);
    wait_until("a write returns while the owner stands still", || returns_at_once("five"));
    let status = hosts.sheaf(2, &["status", "--mounts"]);
    assert_eq!(status.code, Some(0), "{status:?}");
}

#[test]
fn write_behind_that_fails_is_reported_once() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    mount_again(&hosts, BEHIND);
    let made = hosts.shell_at(1, EXPORT, "mkdir small; mount -t tmpfs -o size=1m none small");
    assert_eq!(made.code, Some(0), "{made:?}");
    let mut python = Python::new(&hosts, 2);
    let path = super::hosts::inside(1, "small/f");
    for last in ["os.fsync(f)", "os.close(f)"] {
        python.must(&format!("f = os.open('{path}', os.O_RDWR | os.O_CREAT | os.O_TRUNC)"));
        let mut told = Vec::new();
        for at in 0..40 {
            let answer = python.ask(&format!("os.write(f, bytes([{at} + 1]) * 40000)"));
            if answer != "ok 40000" {
                told.push(answer);
                break;
            }
        }
        if told.is_empty() {
            told.push(python.ask(last));
        }
        // A short write says how much had room, and the next one that nothing has.
        assert!(told == ["ENOSPC"] || told[0].starts_with("ok "), "{told:?}");
        let disk = hosts.shell_at(1, EXPORT, "cat small/f | tr -d '\\n' | wc -c");
        let room = disk.stdout.trim().parse::<usize>().unwrap();
        assert!((1 << 19..=1 << 20).contains(&room), "{room}");
        if last == "os.fsync(f)" {
            assert_eq!(python.ask("os.fsync(f)"), "ok None");
            assert_eq!(python.ask("os.pread(f, 1, 40000)"), "ok b'\\x02'");
            assert_eq!(python.ask("os.close(f)"), "ok None");
        }
    }
    hosts.shell_at(1, EXPORT, "umount -l small");
}

#[test]
fn late_writes_behind_are_refused() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    mount_again(&hosts, BEHIND);
    // A process of its own: one that starts others has closed the file for them, which ends the loan.
    let mut python = Python::new(&hosts, 2);
    let (path, file) = (hosts.disk(1, "f"), super::hosts::inside(1, "f"));
    let is_late = || {
        // The view may be mounted anew at this moment.
        let open = format!("f = os.open('{file}', os.O_RDWR | os.O_CREAT | os.O_TRUNC)");
        if python.ask(&open) != "ok" {
            return false;
        }
        for part in ["one", "two", "three"] {
            python.ask(&format!("os.write(f, b'{part}')"));
        }
        hosts.machines.cut(2);
        python.begin("os.pwrite(f, b'LATE', 0)");
        // The loan is over after two seconds.
        let mut owner = File::options().write(true).open(&path).unwrap();
        owner.write_all(b"own!").unwrap();
        drop(owner);
        hosts.machines.mend(2);
        let written = python.answer(SOON).unwrap();
        let synced = python.ask("os.fsync(f)");
        let content = fs::read_to_string(&path).unwrap();
        python.ask("os.close(f)");
        match (&*written, &*synced) {
            ("ok 4", "ok None") => assert_eq!(content, "LATEwothree"),
            ("ok 4", _) => assert_eq!(content, "own!wothree"),
            _ => {}
        }
        (&*written, &*synced) == ("ok 4", "ESTALE")
    };
    wait_until("a write is too late", is_late);
}

#[test]
fn close_reports_writes_that_are_lost_with_their_view() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::with(2, QUICK, "10") else { return };
    mount_again(&hosts, BEHIND);
    let mut python = Python::new(&hosts, 2);
    let path = |number: usize| super::hosts::inside(1, &format!("f{number}"));
    const FILES_OPEN: usize = 8;
    for number in 0..FILES_OPEN {
        python.must(&format!("f{number} = os.open('{}', os.O_RDWR | os.O_CREAT)", path(number)));
        for _ in 0..5 {
            python.must(&format!("os.write(f{number}, b'a' * 4096)"));
        }
    }
    hosts.machines.cut(2);
    for number in 0..FILES_OPEN {
        for _ in 0..5 {
            python.ask(&format!("os.write(f{number}, b'b' * 4096)"));
        }
    }
    // It is given up, and comes back.
    std::thread::sleep(Duration::from_secs(4));
    hosts.machines.mend(2);
    for number in 0..FILES_OPEN {
        let closed = python.ask(&format!("os.close(f{number})"));
        let there = fs::metadata(hosts.disk(1, &format!("f{number}"))).unwrap().len();
        assert!(!closed.starts_with("ok") || there == 10 * 4096, "f{number}: {there}, {closed}");
        std::thread::sleep(Duration::from_millis(700));
    }
}
