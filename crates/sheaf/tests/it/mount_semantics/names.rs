//! Names: of many who change one at the same time exactly one has done it.
use super::hosts::{Over, ViewHosts, errno, inside};
use super::python::{Python, have_python};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use sheaf_testing::sessions::{turn, wait_until};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Rounds of each race.
const ROUNDS: usize = 100;

#[test]
fn file_creation_race_has_one_winner() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    hosts.one_wins(ROUNDS, Errno::EXIST, |host, number| {
        let name = format!("f{}", hosts.round(number));
        let file = File::create_new(hosts.at(host, 1, &name))?;
        std::os::unix::fs::FileExt::write_all_at(&file, number.to_string().as_bytes(), 0)
    });
    assert_eq!(fs::read_dir(hosts.disk(1, "")).unwrap().count(), ROUNDS);
    for round in 0..ROUNDS {
        let content = fs::read_to_string(hosts.disk(1, &format!("f{round}"))).unwrap();
        assert_eq!(hosts.round(content.parse().unwrap()), round);
    }
}

#[test]
fn directory_creation_and_removal_races_have_one_winner() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    let path = |host, number| hosts.at(host, 1, &format!("d{}", hosts.round(number)));
    hosts.one_wins(ROUNDS, Errno::EXIST, |host, number| fs::create_dir(path(host, number)));
    assert_eq!(fs::read_dir(hosts.disk(1, "")).unwrap().count(), ROUNDS);
    hosts.one_wins(ROUNDS, Errno::NOENT, |host, number| fs::remove_dir(path(host, number)));
    assert_eq!(fs::read_dir(hosts.disk(1, "")).unwrap().count(), 0);
}

#[test]
fn rename_race_has_one_winner() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    for round in 0..ROUNDS {
        fs::write(hosts.disk(1, &format!("from{round}")), round.to_string()).unwrap();
    }
    fs::create_dir(hosts.disk(1, "d")).unwrap();
    hosts.one_wins(ROUNDS, Errno::NOENT, |host, number| {
        let from = hosts.at(host, 1, &format!("from{}", hosts.round(number)));
        fs::rename(from, hosts.at(host, 1, &format!("d/{number}")))
    });
    let mut contents: Vec<usize> = Vec::new();
    for entry in fs::read_dir(hosts.disk(1, "d")).unwrap() {
        contents.push(fs::read_to_string(entry.unwrap().path()).unwrap().parse().unwrap());
    }
    contents.sort_unstable();
    assert_eq!(contents, (0..ROUNDS).collect::<Vec<_>>());
    // Who may not take a place that is taken has it alone.
    hosts.one_wins(ROUNDS, Errno::EXIST, |host, number| {
        let own = hosts.at(host, 1, &format!("own{number}"));
        File::create(&own)?;
        let to = hosts.at(host, 1, &format!("to{}", hosts.round(number)));
        Ok(renameat_with(CWD, own, CWD, to, RenameFlags::NOREPLACE)?)
    });
}

/// Who opens a name that is always there finds a whole file under it.
#[test]
fn rename_leaves_no_name_missing_and_exchanges_two_at_once() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    let text = |number: usize| format!("{number} ").repeat(1 + number % 700);
    fs::write(hosts.disk(1, "f"), text(1)).unwrap();
    fs::write(hosts.disk(1, "one"), "1").unwrap();
    fs::write(hosts.disk(1, "two"), "2").unwrap();
    let (is_over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        for host in hosts.all() {
            let (hosts, is_over, reads) = (&hosts, &is_over, &reads);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let read = fs::read_to_string(hosts.at(host, 1, "f")).unwrap();
                    let number = read.split(' ').next().unwrap().parse().unwrap();
                    assert_eq!(read, text(number), "h{host}");
                    for name in ["one", "two"] {
                        assert!(hosts.at(host, 1, name).try_exists().unwrap(), "h{host}: {name}");
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 1..=300 {
            let at = |name: &str| hosts.at(1 + number % 3, 1, name);
            fs::write(at("new"), text(number)).unwrap();
            fs::rename(at("new"), at("f")).unwrap();
            renameat_with(CWD, at("one"), CWD, at("two"), RenameFlags::EXCHANGE).unwrap();
        }
        drop(over);
    });
    assert!(reads.into_inner() > 10);
    assert_eq!(fs::read_to_string(hosts.at(2, 1, "one")).unwrap(), "1");
}

#[test]
fn link_race_has_one_winner() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    fs::write(hosts.disk(1, "f"), "content").unwrap();
    hosts.one_wins(ROUNDS, Errno::EXIST, |host, number| {
        let name = format!("link{}", hosts.round(number));
        fs::hard_link(hosts.at(host, 1, "f"), hosts.at(host, 1, &name))
    });
    for host in hosts.all() {
        let found = fs::metadata(hosts.at(host, 1, "f")).unwrap();
        assert_eq!(found.nlink(), 1 + ROUNDS as u64, "h{host}");
        let same = fs::metadata(hosts.at(host, 1, "link7")).unwrap();
        assert_eq!((same.dev(), same.ino()), (found.dev(), found.ino()), "h{host}");
    }
    hosts.one_wins(ROUNDS, Errno::EXIST, |host, number| {
        let name = format!("symbolic{}", hosts.round(number));
        symlink(number.to_string(), hosts.at(host, 1, &name))
    });
}

#[test]
fn removal_race_has_one_winner() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    for round in 0..ROUNDS {
        fs::write(hosts.disk(1, &format!("f{round}")), "x").unwrap();
    }
    hosts.one_wins(ROUNDS, Errno::NOENT, |host, number| {
        fs::remove_file(hosts.at(host, 1, &format!("f{}", hosts.round(number))))
    });
    assert_eq!(fs::read_dir(hosts.disk(1, "")).unwrap().count(), 0);
}

/// Names lead from host to host no further than the same would on one machine with two file systems.
#[test]
fn file_of_one_host_gets_no_name_on_another() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    fs::write(hosts.disk(1, "f"), "content").unwrap();
    for host in hosts.all() {
        let (from, to) = (hosts.at(host, 1, "f"), hosts.at(host, 2, "f"));
        assert_eq!(errno(fs::rename(&from, &to)), Some(Errno::XDEV), "h{host}");
        assert_eq!(errno(fs::hard_link(&from, &to)), Some(Errno::XDEV), "h{host}");
        let missing: io::Result<_> = fs::metadata(&to);
        assert_eq!(errno(missing), Some(Errno::NOENT), "h{host}");
    }
}

/// Answers of the owner h1 to the kernel of h2.
fn answers(hosts: &ViewHosts) -> u64 {
    let run = hosts.sheaf(2, &["--json", "status", "--mounts"]);
    let all = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    let of_host =
        |record: &serde_json::Value| record["type"] == "mount" && record["part"] == "hosts/h1";
    all.filter(of_host).map(|record| record["answered"].as_u64().unwrap()).sum()
}

/// The kernel asks for a path name by name; the names that the last walk has found come with the first one.
#[test]
fn path_that_was_walked_is_walked_in_one_request() {
    const WALKS: usize = 20;
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    fs::create_dir_all(hosts.disk(1, "a/b/c/d/e")).unwrap();
    fs::write(hosts.disk(1, "a/b/c/d/e/f"), "").unwrap();
    let answers = || answers(&hosts);
    // Six names and the directory above them would be seven. A thread that is slow between two of them asks again.
    wait_until("each walk takes less than four requests", || {
        let before = answers();
        let walk = "test -e h1/a/b/c/d/e/f || exit 3; ".repeat(WALKS);
        assert_eq!(hosts.shell(2, &walk).code, Some(0));
        answers() - before < 4 * WALKS as u64
    });
}

/// The kernel asks for the rights to the directory twice, and for those to the file that it has made. The owner is asked for
/// the directory, the name, the new file and its closing.
#[test]
fn rights_are_asked_for_once_when_a_file_is_made() {
    const FILES: usize = 20;
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    fs::create_dir(hosts.disk(1, "d")).unwrap();
    // A thread that is slow between two requests asks again.
    let mut round = 0;
    wait_until("each file takes less than five requests", || {
        let before = answers(&hosts);
        round += 1;
        let files: String = (0..FILES).map(|file| format!(": > {round}-{file}; ")).collect();
        assert_eq!(hosts.shell(2, &format!("cd h1/d; {files}")).code, Some(0));
        answers(&hosts) - before < 5 * FILES as u64
    });
}

/// What the kernel is told of rights alone is not shown to programs, and rights that somebody gives himself count at once.
#[test]
fn attributes_are_not_those_of_a_call_before() {
    const USER: u32 = 4001;
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    let disk = hosts.disk(1, "d");
    fs::create_dir(&disk).unwrap();
    let (at, again) =
        (inside(1, "d"), r"def again(name):\n try: os.mkdir(name)\n except OSError: pass");
    let mut root = Python::new(&hosts, 2);
    root.must(&format!(
        "exec('{again}'); disk = {disk:?}; os.chdir({at:?}); here = os.open('.', 0)"
    ));
    for number in 0..50 {
        root.must(&format!(
            "made = os.open('f{number}', os.O_CREAT | os.O_RDWR); os.truncate(disk + '/f{number}', 5); \
             assert os.fstat(made).st_size == 5, os.fstat(made); os.close(made)"
        ));
        // The name is there, so nothing is made. What comes next is asked for less than a millisecond after the directory, as
        // the name is guessed.
        root.must(&format!(
            "[again('f0') for _ in range(6 + {number} % 2)]; os.mkdir(disk + '/d{number}'); assert os.fstat(here).st_nlink == 3 + {number}"
        ));
    }
    std::os::unix::fs::chown(&disk, Some(USER), Some(USER)).unwrap();
    let mut user = Python::of_user(&hosts, 2, USER, USER, "");
    user.must(&format!("exec('{again}'); os.chdir({at:?})"));
    for number in 0..50 {
        user.must(&format!(
            "os.chmod('.', 0o555); again('u{number}'); again('f0'); os.chmod('.', 0o755); os.mkdir('u{number}')"
        ));
    }
}
