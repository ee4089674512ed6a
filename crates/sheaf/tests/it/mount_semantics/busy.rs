//! File systems of an owner that hang: they cost their own files only.
use super::hosts::{EXPORT, POINT, ViewHosts, inside};
use super::python::{Python, have_python};
use rustix::process::Signal;
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
                      mount -o loop ../image disk && chmod 777 disk
                      for i in $(seq WRITERS); do
                          echo x >disk/$i; chmod 666 disk/$i; : >bound$i; mount --bind disk/$i bound$i
                      done";
        let made = hosts.shell_at(1, EXPORT, &script.replace("WRITERS", &WRITERS.to_string()));
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
        self.0.shell_at(1, EXPORT, "umount --lazy bound* disk");
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
    // Single files of it are bound into the export, and have no mount of their own in the view.
    let of_each = [
        (2, 0, "disk"),
        (3, 0, "disk"),
        (2, 1001, "disk"),
        (3, 1001, "disk"),
        (2, 1002, "disk"),
        (2, 0, "bound"),
        (2, 1001, "bound"),
    ];
    let mut writers: Vec<Python> = of_each.map(|(host, uid, _)| user(host, uid)).into();
    for (python, (host, uid, place)) in writers.iter_mut().zip(of_each) {
        let (path, mode) = match place {
            "disk" => (inside(1, &format!("disk/of-{uid}-{host}-")), "wb"),
            place => (inside(1, place), "r+b"),
        };
        python.must("import threading");
        let numbers = format!("range(1, {WRITERS} + 1)");
        python.must(&format!("f = [open('{path}' + str(i), '{mode}', 0) for i in {numbers}]"));
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

/// A directory and a file of `h1` have a file system over them that answers nothing.
#[test]
fn directory_beside_a_file_system_that_hangs_is_listed() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::with(3, "", PATIENCE) else { return };
    for (name, mode) in [("", 0o755), ("beside", 0o755), ("beside/directory", 0o755)] {
        fs::create_dir_all(hosts.disk(1, name)).unwrap();
        fs::set_permissions(hosts.disk(1, name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for name in ["file", "other"] {
        fs::write(hosts.disk(1, &format!("beside/{name}")), "x").unwrap();
    }
    let mut servers: Vec<Python> = Vec::new();
    for (name, mode) in [("directory", "40000"), ("file", "100000")] {
        let mut server = Python::new(&hosts, 1);
        server.must("import ctypes");
        server.must("d = os.open('/dev/fuse', os.O_RDWR)");
        let options = format!("b'fd=%d,rootmode={mode},user_id=0,group_id=0,allow_other' % d");
        let place = format!("b'{EXPORT}/beside/{name}'");
        let mount = format!("ctypes.CDLL(None).mount(b'x', {place}, b'fuse', 0, {options})");
        assert_eq!(server.ask(&mount), "ok 0");
        servers.push(server);
    }
    let list = format!("sorted(os.listdir('{}'))", inside(1, "beside"));
    let read = format!("open('{}').read()", inside(1, "beside/other"));
    for (host, uid) in [(3, 1002), (2, 1001), (2, 0), (1, 1001), (3, 0)] {
        let mut python = Python::of_user(&hosts, host, uid, uid, "");
        for (ask, told) in [(&list, "ok ['directory', 'file', 'other']"), (&read, "ok x")] {
            let asked = Instant::now();
            assert_eq!(python.ask(ask), told, "user {uid} on h{host}");
            assert!(asked.elapsed() < CALL_MAX, "user {uid}: {:?}", asked.elapsed());
        }
    }
    servers.iter_mut().for_each(Python::kill);
}

#[test]
fn call_that_hangs_is_shown_with_its_process_and_file() {
    let _turn = turn();
    if !have_python() {
        return;
    }
    let Some(hosts) = ViewHosts::with(2, "", "10") else { return };
    fs::write(hosts.disk(1, "f"), "f").unwrap();
    let (file, status) = (inside(1, "f"), ["--json", "status", "--mounts"]);
    let mut python = Python::new(&hosts, 2);
    python.must(&format!("f = open('{file}', 'r+b', 0)"));
    python.must("fcntl.flock(f, fcntl.LOCK_EX)");
    let records = |kind: &str| -> Vec<serde_json::Value> {
        let run = hosts.sheaf(2, &status);
        let all = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        all.filter(|record: &serde_json::Value| record["type"] == kind).collect()
    };
    let of_host = |mut all: Vec<serde_json::Value>| {
        all.retain(|record| record["part"] == "hosts/h1");
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    };
    // A file system below the export is a mount of its own, and shown with it.
    let below = "mkdir t; mount -t tmpfs none t; echo t > t/g";
    assert_eq!(hosts.shell_at(1, EXPORT, below).code, Some(0));
    let (deeper, mut other) = (inside(1, "t/g"), Python::new(&hosts, 2));
    other.must(&format!("g = open('{deeper}', 'r+b', 0)"));
    let mount = of_host(records("mount"));
    assert!(mount["requests"].as_u64() >= mount["answered"].as_u64(), "{mount}");
    assert!(mount["half_within_us"].as_u64() <= mount["most_within_us"].as_u64(), "{mount}");
    assert_eq!((&mount["lock_owners"], &mount["view"]), (&1.into(), &POINT.into()), "{mount}");
    assert!(records("stuck_call").is_empty());
    let server = hosts.server(1);
    server.signal(Signal::STOP);
    python.begin("os.fsync(f.fileno())");
    other.begin("os.fsync(g.fileno())");
    let mut found = Vec::new();
    wait_until("both are shown", || {
        found = records("stuck_call");
        found.len() == 2
    });
    assert!(found.iter().any(|call| call["file"] == deeper.as_str()), "{found:?}");
    let plain = hosts.sheaf(2, &["status", "--mounts"]).stdout;
    server.signal(Signal::CONT);
    let call = of_host(found.into_iter().filter(|call| call["file"] == file.as_str()).collect());
    assert_eq!(
        (call["pid"].to_string(), &call["file"]),
        (python.pid.clone(), &file.as_str().into()),
        "{call}"
    );
    assert_eq!(call["program"], "python3", "{call}");
    assert!(
        plain.contains(&format!("fsync on {file} by process {} (python3)", python.pid)),
        "{plain}"
    );
    // A process that does not answer is no reason to wait.
    let own = hosts.server(2);
    own.signal(Signal::STOP);
    let run = hosts.sheaf(2, &status);
    own.signal(Signal::CONT);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stdout.contains("the process that answers for it does not answer"), "{run:?}");
}
