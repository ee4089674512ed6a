//! Long directories, many files, and long names.
use super::hosts::{Over, POINT, ViewHosts, errno, inside};
use super::python::{Python, have_python};
use rustix::io::Errno;
use sheaf_testing::sessions::{Process, turn};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// Entries of a long directory; `SHEAF_TEST_ENTRIES` says how many else.
const ENTRIES: usize = 100_000;
/// What it may cost a process of the view to list one more than it cost to list a short one. A name of each entry
/// that were kept would take a hundred bytes of these at least.
const LISTING_KIB_MAX: u64 = 24 << 10;
/// Files that one process has open at a time.
const OPEN: usize = 10_000;

/// The most memory that a process has had.
fn most(process: Process) -> u64 {
    process.kilobytes("status", "VmHWM").unwrap()
}

#[test]
fn long_directory_is_listed_as_a_whole_in_little_memory() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let said = std::env::var("SHEAF_TEST_ENTRIES").ok().and_then(|said| said.parse().ok());
    let entries = said.unwrap_or(ENTRIES);
    for (directory, count) in [("short", 2000), ("long", entries)] {
        fs::create_dir(hosts.disk(1, directory)).unwrap();
        // Names of one file are made sooner than files.
        let mut first = hosts.disk(1, "first");
        for number in 0..count {
            if number % 50_000 == 0 {
                first = hosts.disk(1, &format!("{directory}/entry-{number}"));
                File::create(&first).unwrap();
            } else {
                let name = hosts.disk(1, &format!("{directory}/entry-{number}"));
                fs::hard_link(&first, name).unwrap();
            }
        }
    }
    let list = |directory: &str| {
        let mut names: Vec<bool> = Vec::new();
        for entry in fs::read_dir(hosts.at(2, 1, directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let number: usize = name.strip_prefix("entry-").unwrap().parse().unwrap();
            names.resize(names.len().max(number + 1), false);
            assert!(!std::mem::replace(&mut names[number], true), "{name} is listed twice");
        }
        assert!(names.iter().all(|was| *was), "some are missing");
        names.len()
    };
    let processes = [hosts.server(1), hosts.mounter(2)];
    for _ in 0..3 {
        assert_eq!(list("short"), 2000);
    }
    let before = processes.map(most);
    assert_eq!(list("long"), entries);
    // With attributes, for each of which the owner is asked.
    let counted = hosts.shell(2, "ls -lU h1/short | wc -l");
    assert_eq!(counted.stdout.trim(), "2001", "{counted:?}");
    for (process, before) in processes.into_iter().zip(before) {
        let after = most(process);
        assert!(
            after - before < LISTING_KIB_MAX,
            "{before} KiB, then {after}: {:?}",
            process.arguments()
        );
    }
}

#[test]
fn directory_listing_has_stable_entries_once_during_changes() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    fs::create_dir(hosts.disk(1, "d")).unwrap();
    for number in 0..5000 {
        File::create(hosts.disk(1, &format!("d/stays-{number}"))).unwrap();
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        for host in [1, 3] {
            let (hosts, is_over) = (&hosts, &is_over);
            scope.spawn(move || {
                for number in 0.. {
                    let path = hosts.at(host, 1, &format!("d/goes-{host}-{}", number % 300));
                    if fs::remove_file(&path).is_err() {
                        File::create(&path).unwrap();
                    }
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for _ in 0..10 {
            let names = fs::read_dir(hosts.at(2, 1, "d")).unwrap();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let staying: Vec<String> = names.filter(|name| name.starts_with("stays-")).collect();
            let different: HashSet<&String> = staying.iter().collect();
            assert_eq!((staying.len(), different.len()), (5000, 5000));
        }
        drop(over);
    });
}

#[test]
fn ten_thousand_files_are_open_at_a_time() {
    let _turn = turn();
    if !sheaf_testing::home::may_open(OPEN as u64 + 1000) {
        return sheaf_testing::skipped("too few files may be open here");
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    let server = hosts.server(1);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid)).unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let may = limit.split_whitespace().nth(4).unwrap().parse::<usize>().unwrap_or(usize::MAX);
    let mut open = Vec::new();
    let mut failed = None;
    for number in 0..OPEN {
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        match options.open(hosts.at(2, 1, &format!("f{number}"))) {
            Ok(file) => open.push(file),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if let Some(error) = failed {
        // Who has as many as its system lets it have says so.
        assert!(may < 2 * OPEN, "{} of {may}: {error}", open.len());
        assert_eq!(errno::<()>(Err(error)), Some(Errno::MFILE));
        assert!(open.len() > may / 4, "{} of {may}", open.len());
    }
    for (number, file) in open.iter().enumerate() {
        file.write_all_at(&number.to_le_bytes(), 0).unwrap();
    }
    for (number, file) in open.iter().enumerate().rev() {
        let mut read = [0; 8];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(usize::from_le_bytes(read), number);
    }
    let many = open.len();
    drop(open);
    // All are given back, and the host goes on.
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", server.pid)).unwrap().count();
    sheaf_testing::sessions::wait_until("they are closed", || descriptors() < 9000);
    assert_eq!(fs::read_dir(hosts.at(2, 1, "")).unwrap().count(), many);
    fs::write(hosts.at(2, 1, "more"), "more").unwrap();
    assert_eq!(fs::read_to_string(hosts.disk(1, "more")).unwrap(), "more");
}

#[test]
fn names_and_paths_are_as_long_as_on_one_machine() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    let (longest, too_long) = ("n".repeat(255), "n".repeat(256));
    for host in hosts.all() {
        fs::write(hosts.at(host, 1, &longest), "long").unwrap();
        assert_eq!(fs::read_to_string(hosts.disk(1, &longest)).unwrap(), "long");
        for made in [
            fs::write(hosts.at(host, 1, &too_long), "long"),
            fs::create_dir(hosts.at(host, 1, &too_long)),
            fs::rename(hosts.at(host, 1, &longest), hosts.at(host, 1, &too_long)),
            fs::metadata(hosts.at(host, 1, &too_long)).map(drop),
        ] {
            assert_eq!(errno(made), Some(Errno::NAMETOOLONG), "h{host}");
        }
        // Bytes that are no text are a name like any other.
        let odd = std::ffi::OsStr::from_bytes(b"\xff\x01 \n'\\");
        let path = hosts.at(host, 1, "").join(odd);
        fs::write(&path, "odd").unwrap();
        let names = fs::read_dir(hosts.at(3 - host, 1, "")).unwrap();
        assert!(names.map(|entry| entry.unwrap().file_name()).any(|name| name == odd));
        fs::remove_file(&path).unwrap();
        fs::remove_file(hosts.at(host, 1, &longest)).unwrap();
    }
    // A path of 4095 bytes is one, of 4096 none, wherever the files are.
    let mut there = Python::new(&hosts, 2);
    there.must(&format!("os.chdir('{POINT}/hosts/h1')"));
    let mut path = inside(1, "d");
    let mut name = String::from("d");
    while path.len() + 202 < 4095 {
        there.must(&format!("os.makedirs('{name}', exist_ok=True)"));
        let more = "p".repeat(200);
        (path, name) = (format!("{path}/{more}"), format!("{name}/{more}"));
    }
    there.must(&format!("os.makedirs('{name}', exist_ok=True)"));
    let exact = format!("{path}/{}", "f".repeat(4095 - path.len() - 1));
    there.must(&format!("open('{exact}', 'x').write('deep') and None"));
    assert_eq!(there.must(&format!("open('{exact}').read()")), "deep");
    assert_eq!(there.ask(&format!("os.stat('{exact}f')")), "ENAMETOOLONG");
    assert_eq!(there.ask(&format!("os.rename('{exact}', '{exact}f')")), "ENAMETOOLONG");
    // A link has a text of 4095 bytes at most.
    there.must(&format!("os.symlink('{}', 'longest')", "t".repeat(4095)));
    assert_eq!(there.must("len(os.readlink('longest'))"), "4095");
    assert_eq!(there.ask(&format!("os.symlink('{}', 'longer')", "t".repeat(4096))), "ENAMETOOLONG");
    assert_eq!(fs::read_link(hosts.disk(1, "longest")).unwrap().as_os_str().len(), 4095);
}
