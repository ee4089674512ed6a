//! Bytes that the owner of a file lends to who reads it, and calls back.
use super::hosts::{POINT, ViewHosts};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Signal;
use sheaf_testing::sessions::{turn, wait_until};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// How long who is about to write waits for who does not answer, with room for a machine that is busy.
const RECALL_MAX: Duration = Duration::from_secs(8);

/// What is read of a file, from its beginning.
fn content(file: &File) -> std::io::Result<String> {
    let mut bytes = vec![0; 100];
    let read = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

#[test]
fn leased_file_is_read_again_without_asking_the_owner() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::with(2, "", "1") else { return };
    fs::write(hosts.disk(1, "f"), "content").unwrap();
    // A loan may be over before this machine gets so far.
    let reads_without_owner = || {
        let file = File::open(hosts.at(2, 1, "f")).unwrap();
        assert_eq!(content(&file).unwrap(), "content");
        let server = hosts.server(1);
        server.signal(Signal::STOP);
        let read = content(&file);
        server.signal(Signal::CONT);
        assert!(read.as_ref().is_ok_and(|read| read == "content") || read.is_err());
        read.is_ok()
    };
    wait_until("what is lent is read while the owner says nothing", reads_without_owner);
    let gone = hosts.sheaf(2, &["umount", POINT]);
    assert_eq!(gone.code, Some(0), "{gone:?}");
    let run = hosts.sheaf(2, &["--quiet", "--timeout", "1", "mount", "--no-lease", POINT]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for _ in 0..3 {
        wait_until("the owner answers", || File::open(hosts.at(2, 1, "f")).is_ok());
        assert!(!reads_without_owner(), "it was lent all the same");
    }
}

#[test]
fn lease_is_revoked_before_the_file_changes() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    let path = hosts.disk(1, "f");
    fs::write(&path, "0").unwrap();
    for round in 1..=120 {
        let readers: Vec<File> =
            [2, 3, 2].map(|host| File::open(hosts.at(host, 1, "f")).unwrap()).into();
        for file in &readers {
            assert_eq!(content(file).unwrap(), (round - 1).to_string());
        }
        // By a program of the owner that knows nothing of Sheaf, by the view there, and from elsewhere.
        let writes = match round % 4 {
            0 => path.clone(),
            host => hosts.at(host, 1, "f"),
        };
        let text = round.to_string();
        match round % 3 {
            0 => fs::write(&writes, &text).unwrap(),
            1 => {
                let file = File::options().write(true).open(&writes).unwrap();
                file.write_all_at(text.as_bytes(), 0).unwrap();
            }
            _ => {
                let file = File::options().append(true).open(&writes).unwrap();
                file.set_len(0).unwrap();
                std::io::Write::write_all(&mut &file, text.as_bytes()).unwrap();
            }
        }
        for file in &readers {
            assert_eq!(content(file).unwrap(), text, "round {round}");
        }
    }
    // So does who writes to a group of files, which waits for none of them to be opened.
    let made = hosts.shell_at(3, POINT, "mkdir groups/g; echo 'add h[1-2]:/f' > groups/g/ctl");
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::write(hosts.disk(2, "f"), "").unwrap();
    for round in 0..10 {
        let readers: Vec<File> = [(2, 1), (3, 1), (3, 2)]
            .map(|(host, owner)| File::open(hosts.at(host, owner, "f")).unwrap())
            .into();
        let run = hosts.shell_at(3, POINT, &format!("echo group {round} > groups/g/data"));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        for file in &readers {
            assert_eq!(content(file).unwrap(), format!("group {round}\n"));
        }
    }
}

#[test]
fn unreturned_lease_delays_a_writer_for_a_bounded_time() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    fs::write(hosts.disk(1, "f"), "old").unwrap();
    for (writer, is_killed) in [(1, false), (3, false), (1, true), (3, true)] {
        let file = File::open(hosts.at(2, 1, "f")).unwrap();
        let before = content(&file).unwrap();
        let mounter = hosts.mounter(2);
        mounter.signal(if is_killed { Signal::KILL } else { Signal::STOP });
        let (begun, text) = (Instant::now(), format!("{before}, new"));
        fs::write(hosts.at(writer, 1, "f"), &text).unwrap();
        let waited = begun.elapsed();
        assert!(waited < RECALL_MAX, "h{writer} has waited for {waited:?}");
        if is_killed {
            drop(file);
            let gone = hosts.sheaf(2, &["umount", POINT]);
            assert_eq!(gone.code, Some(0), "{gone:?}");
            let run = hosts.mount(2, "10");
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
            let file = File::open(hosts.at(2, 1, "f")).unwrap();
            assert_eq!(content(&file).unwrap(), text);
        } else {
            // Its time was over when it was written, whatever it has missed.
            mounter.signal(Signal::CONT);
            assert_eq!(content(&file).unwrap(), text, "by h{writer}");
        }
    }
}

#[test]
fn unreturned_leases_of_many_files_cause_no_longer_delay() {
    const FILES: usize = 8;
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(3) else { return };
    let name = |number: usize| format!("f{number}");
    for round in 0..3 {
        (0..FILES).for_each(|number| fs::write(hosts.disk(1, &name(number)), "old").unwrap());
        let files: Vec<File> =
            (0..FILES).map(|number| File::open(hosts.at(2, 1, &name(number))).unwrap()).collect();
        files.iter().for_each(|file| assert_eq!(content(file).unwrap(), "old"));
        let mounter = hosts.mounter(2);
        mounter.signal(Signal::STOP);
        let mut waited = Vec::new();
        for number in 0..FILES {
            let begun = Instant::now();
            fs::write(hosts.disk(1, &name(number)), "new").unwrap();
            waited.push(begun.elapsed());
        }
        mounter.signal(Signal::CONT);
        assert!(waited.iter().sum::<Duration>() < RECALL_MAX / 2, "round {round}: {waited:?}");
        files.iter().for_each(|file| assert_eq!(content(file).unwrap(), "new"));
    }
}

#[test]
fn nonblocking_open_of_a_leased_file_fails_with_eagain() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    fs::write(hosts.disk(1, "f"), "old").unwrap();
    let mut refused = 0;
    for _ in 0..20 {
        let file = File::open(hosts.at(2, 1, "f")).unwrap();
        assert_eq!(content(&file).unwrap(), "old");
        let mut options = File::options();
        options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let open = || options.open(hosts.disk(1, "f"));
        if let Err(error) = open() {
            assert_eq!(Errno::from_io_error(&error), Some(Errno::AGAIN));
            refused += 1;
            wait_until("it is given back", || open().is_ok());
        }
    }
    assert!(refused > 0, "nothing was lent");
}
