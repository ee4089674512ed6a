//! File systems of an owner that hang: they cost their own files only.
use super::hosts::{EXPORT, ViewHosts, inside};
use super::python::{Python, have_python};
use sheaf_testing::sessions::{turn, wait_until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// How long a call may take, in seconds, and with room for a machine that is busy.
const PATIENCE: &str = "5";
const CALL_MAX: Duration = Duration::from_secs(5);
/// More writers of each user than threads of a server work for it.
const WRITERS: usize = 24;

/// A file system of `h1` that can be frozen. Dropped, it is thawed and taken away.
struct FrozenDisk<'a>(&'a ViewHosts);

impl<'a> FrozenDisk<'a> {
    /// `None` where there can be none.
    fn new(hosts: &'a ViewHosts) -> Option<Self> {
        let script = "truncate -s 32M ../image && /usr/sbin/mkfs.ext4 -q ../image && mkdir disk
                      mount -o loop ../image disk && chmod 777 disk";
        let made = hosts.shell_at(1, EXPORT, script);
        (made.code == Some(0)).then_some(Self(hosts))
    }

    fn freeze(&self) {
        let run = self.0.shell_at(1, EXPORT, "/usr/sbin/fsfreeze --freeze disk");
        assert_eq!(run.code, Some(0), "{run:?}");
    }

    fn thaw(&self) {
        self.0.shell_at(1, EXPORT, "/usr/sbin/fsfreeze --unfreeze disk 2>&-");
    }
}

impl Drop for FrozenDisk<'_> {
    fn drop(&mut self) {
        self.thaw();
        self.0.shell_at(1, EXPORT, "umount --lazy disk");
    }
}

#[test]
fn frozen_file_system_holds_up_no_other_file() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::with(3, "", PATIENCE) else { return };
    let Some(disk) = FrozenDisk::new(&hosts) else {
        return sheaf_testing::skipped("no file system can be mounted here");
    };
    fs::write(hosts.disk(1, "f"), "f").unwrap();
    fs::set_permissions(hosts.disk(1, ""), fs::Permissions::from_mode(0o755)).unwrap();
    let user = |host, uid| Python::of_user(&hosts, host, uid, uid, "");
    let of_each = [(2, 0), (3, 0), (2, 1001), (3, 1001), (2, 1002)];
    let mut writers: Vec<Python> = of_each.map(|(host, uid)| user(host, uid)).into();
    for (python, (host, uid)) in writers.iter_mut().zip(of_each) {
        let path = inside(1, &format!("disk/of-{uid}-{host}-"));
        python.must("import threading");
        let open = format!("f = [open('{path}' + str(i), 'wb', 0) for i in range({WRITERS})]");
        python.must(&open);
    }
    disk.freeze();
    for python in &mut writers {
        python.must(
            "t = [threading.Thread(target=one.write, args=(b'x',), daemon=True) for one in f]",
        );
        python.must("[one.start() for one in t] and None");
    }
    // Others, and the same users, read other files of that host.
    let mut readers: Vec<Python> =
        [(2, 0), (3, 0), (2, 1001), (2, 1003)].map(|(host, uid)| user(host, uid)).into();
    let read = format!("open('{}').read()", inside(1, "f"));
    let begun = Instant::now();
    while begun.elapsed() < 2 * CALL_MAX {
        for (at, python) in readers.iter_mut().enumerate() {
            let asked = Instant::now();
            assert_eq!(python.ask(&read), "ok f", "reader {at}");
            assert!(asked.elapsed() < CALL_MAX, "reader {at}: {:?}", asked.elapsed());
        }
    }
    // Whoever writes is told.
    for python in &mut writers {
        wait_until("no call hangs", || python.ask("sum(one.is_alive() for one in t)") == "ok 0");
    }
    disk.thaw();
    wait_until("it is written again", || writers[0].ask("f[0].write(b'x')") == "ok 1");
}
