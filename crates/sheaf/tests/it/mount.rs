//! `sheaf mount`: the files of all hosts under one directory.
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{NAME, Process, Up, nothing_is_left, of_home, turn, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether this test may mount; if not it is said.
pub fn can_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let can = Path::new("/dev/fuse").exists() && is_root;
    if !can {
        sheaf_testing::skipped("mounting needs /dev/fuse and root");
    }
    can
}

/// A view, which is gone with this.
pub struct View<'a> {
    home: &'a Home,
    pub point: PathBuf,
}

impl<'a> View<'a> {
    pub fn new(home: &'a Home, session: &[&str], name: &str) -> Self {
        let point = home.path().join(name);
        fs::create_dir_all(&point).unwrap();
        let run = home.run(&[session, &["mount", point.to_str().unwrap()]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        Self { home, point }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.point.join("hosts").join(name)
    }

    pub fn end(&self) -> Run {
        self.home.run(&["umount", self.point.to_str().unwrap()])
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // Whatever has failed, nothing stays mounted.
        drop(self.end());
    }
}

fn is_mounted(point: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(point.to_str().unwrap())
}

pub fn exports(home: &Home) -> String {
    for host in ["n1", "n2"] {
        let export = home.path().join("export").join(host);
        fs::create_dir_all(&export).unwrap();
        fs::write(export.join("name"), format!("{host}\n")).unwrap();
    }
    home.path().join("export/%h").to_str().unwrap().to_owned()
}

pub fn shell(script: &str, at: &Path) -> Run {
    let mut shell = Command::new("sh");
    Run::of(shell.args(["-euc", script]).current_dir(at).output().unwrap())
}

#[test]
fn programs_work_on_the_files_of_all_hosts() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    let session = ["--processes", "2", "--export", &export];
    let view = View::new(&home, &session, "view");
    let said = shell("cat n1/name n2/name; ls", &view.path(""));
    assert_eq!(said.stdout, "n1\nn2\nn1\nn2\n", "{said:?}");
    let script = "mkdir n1/d; cp n2/name n1/d/copy; mv n1/d n1/e; echo more >>n1/e/copy
        ln -s copy n1/e/link; cat n1/e/link; tar -C n1 -cf - e | tar -C n2 -xf -
        diff -r n1/e n2/e; rm -r n1/e; ls n1";
    let said = shell(script, &view.path(""));
    assert_eq!((said.code, &said.stdout[..]), (Some(0), "n2\nmore\nname\n"), "{said:?}");
    assert_eq!(fs::read_to_string(home.path().join("export/n2/e/link")).unwrap(), "n2\nmore\n");
    if sheaf_testing::program::have("git") {
        let script = "git init -q n1/repo && cd n1/repo && git config user.email a@b
            git config user.name a && for i in 1 2 3; do echo $i >f$i; git add f$i
            git commit -qm $i; done; git gc -q; git clone -q . ../../n2/clone; cd ../../n2/clone
            git fsck --strict; git status --porcelain; git log --oneline | wc -l";
        let said = shell(script, &view.path(""));
        assert_eq!((said.code, said.stdout.trim()), (Some(0), "3"), "{said:?}");
    }
    // Who has mounted it is gone with it.
    let ended = view.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!is_mounted(&view.point));
    nothing_is_left(&home);
    let again = view.end();
    let text = format!("sheaf: {}: no view is mounted there\n", view.point.display());
    assert_eq!((again.code, again.stderr), (Some(2), text));
}

#[test]
fn mounts_see_each_other_and_a_killed_one_holds_no_lock() {
    if !can_mount() {
        return;
    }
    let _turn = turn();
    let home = Home::new();
    let export = exports(&home);
    let up = Up::at(home, &["--processes", "2", "--export", &export]);
    let session = ["--session", NAME];
    let (one, two) = (View::new(&up.home, &session, "one"), View::new(&up.home, &session, "two"));
    for number in 0..100 {
        let (from, to) = if number % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let text = format!("{number}\n").repeat(number + 1);
        fs::write(from.path("n1/f"), &text).unwrap();
        assert_eq!(fs::read_to_string(to.path("n1/f")).unwrap(), text);
        fs::rename(to.path("n1/f"), to.path("n1/g")).unwrap();
        assert!(!from.path("n1/f").exists());
        fs::remove_file(from.path("n1/g")).unwrap();
        assert!(fs::metadata(to.path("n1/g")).is_err());
    }
    // Of two who make a file, one has made it.
    for number in 0..50 {
        let made = std::thread::scope(|scope| {
            let make = |view: &View<'_>| {
                let path = view.path(&format!("n2/new{number}"));
                move || fs::File::create_new(path).is_ok()
            };
            let (a, b) = (scope.spawn(make(&one)), scope.spawn(make(&two)));
            (a.join().unwrap(), b.join().unwrap())
        });
        assert!(made.0 != made.1, "{made:?}");
    }
    let here = fs::File::create(one.path("n2/lock")).unwrap();
    let there = fs::File::options().write(true).open(two.path("n2/lock")).unwrap();
    here.try_lock().unwrap();
    assert!(there.try_lock().is_err());
    // Who holds it is killed, and so is its mount.
    let arguments = |process: &Process| process.arguments().join(" ");
    let of_one = of_home(&up.home)
        .into_iter()
        .find(|process| arguments(process).contains(&format!("mount {}", one.point.display())));
    of_one.unwrap().signal(Signal::KILL);
    wait_until("the lock is free", || there.try_lock().is_ok());
    assert!(fs::read_dir(one.path("n1")).is_err());
    let ended = one.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!is_mounted(&one.point));
    assert_eq!(fs::read_to_string(two.path("n1/name")).unwrap(), "n1\n");
    // A host that is gone is an error at once, and costs no other.
    up.servers["n2"].signal(Signal::KILL);
    wait_until("the host is down", || {
        fs::read_dir(two.path("n2")).is_err_and(|error| error.raw_os_error() == Some(112))
    });
    assert_eq!(fs::read_to_string(two.path("n1/name")).unwrap(), "n1\n");
    assert_eq!(two.end().code, Some(0));
}

#[test]
fn place_that_is_none_is_refused() {
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let export = exports(&home);
    fs::create_dir(home.path().join("full")).unwrap();
    fs::write(home.path().join("full/file"), "").unwrap();
    let session = ["--processes", "2", "--export", &export];
    for (point, why) in [
        ("none", "No such file or directory (ENOENT): mkdir makes it"),
        ("full", "is not empty: file: a view needs an empty directory"),
        ("full/file", "Not a directory (ENOTDIR)"),
    ] {
        let run = home.run(&[&session[..], &["mount", point]].concat());
        assert_ne!(run.code, Some(0), "{run:?}");
        assert!(run.stderr.contains(&format!("sheaf: {point}: {why}")), "{run:?}");
        assert!(!is_mounted(&home.path().join(point)));
    }
    let view = View::new(&home, &session, "view");
    let twice = home.run(&[&session[..], &["mount", "view"]].concat());
    assert!(twice.stderr.contains("something is mounted there: sheaf umount takes"), "{twice:?}");
    assert_eq!(fs::read_to_string(view.path("n1/name")).unwrap(), "n1\n");
}

/// What `/etc/fstab` says is done by `mount(8)`, in a file system of names that is this test's alone.
#[test]
fn line_of_fstab_mounts_a_view() {
    if !can_mount() {
        return;
    }
    let _turn = turn();
    let home = Home::new();
    let export = exports(&home);
    let up = Up::at(home, &["--processes", "2", "--export", &export]);
    let point = up.home.path().join("view");
    fs::create_dir(&point).unwrap();
    let (point, program) = (point.to_str().unwrap(), env!("CARGO_BIN_EXE_sheaf"));
    let script = format!(
        "mount -t tmpfs none /sbin 2>/dev/null || exit 77
         ln -s {program} /sbin/mount.sheaf
         echo '{NAME} {point} sheaf ro,_netdev,nofail,timeout=10 0 0' >fstab
         mount -T fstab {point}; cat {point}/hosts/n1/name; touch {point}/hosts/n1/new
         {program} umount {point}; ls {point}; mount -t sheaf -o nonsense {NAME} {point}"
    );
    up.home.write("script", &script);
    let run = up.home.shell(&[], "exec unshare -m --propagation private sh script");
    if run.code == Some(77) {
        return sheaf_testing::skipped("a mount namespace cannot be made");
    }
    assert_eq!(run.stdout, "n1\n", "{run:?}");
    assert!(run.stderr.contains("Read-only file system"), "{run:?}");
    assert!(run.stderr.contains("mount.sheaf: -o nonsense: there is no such option"), "{run:?}");
}

/// In a namespace in which `/dev/fuse` is for everybody, as it is where packages have set it up.
#[test]
fn unprivileged_users_mount_by_fusermount() {
    if !can_mount() {
        return;
    }
    if !sheaf_testing::program::have("fusermount3") {
        return sheaf_testing::skipped("fusermount3 is not installed");
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("sheaf");
    let built = env!("CARGO_BIN_EXE_sheaf");
    if fs::hard_link(built, &program).is_err() {
        fs::copy(built, &program).unwrap();
    }
    let script = r#"set -e
        mount -t tmpfs none /mnt || exit 77
        mknod -m 666 /mnt/fuse c 10 229; mount --bind /mnt/fuse /dev/fuse
        chmod 755 .; mkdir -p home/view ex/n1 ex/n2; mkdir -m 700 run
        echo a >ex/n1/f; echo b >ex/n2/f; chown -R 65534:65534 home ex run
        base=$PWD; cd home
        as="setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH=/usr/bin:/bin HOME=$base/home
            XDG_RUNTIME_DIR=$base/run"
        $as ../sheaf --processes 2 --export $base/ex/%h mount view
        $as sh -ec 'cat view/hosts/n1/f view/all/f; mkdir view/groups/g
            echo "add n[1-2]:/f" >view/groups/g/ctl; cat view/groups/g/lines; echo x >view/hosts/n2/new'
        cat view/hosts/n1/f 2>/dev/null && echo root reads it
        $as ../sheaf umount view; ls view; cat ../ex/n2/new; stat -c %u ../ex/n2/new"#;
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "--propagation", "private", "sh", "-c", script]);
    let run = Run::of(unshare.current_dir(scratch.path()).output().unwrap());
    if run.code == Some(77) {
        return sheaf_testing::skipped("a mount namespace cannot be made");
    }
    // Not even root is let in where another user has mounted.
    assert_eq!(run.stdout, "a\na\nb\nn1: a\nn2: b\nx\n65534\n", "{run:?}");
}
