//! Programs as they are, on the files of another host, and the same on a directory of this one: what they say and
//! what they leave has to be the same.
use super::hosts::{POINT, ViewHosts, inside};
use sheaf_testing::home::Run;
use sheaf_testing::sessions::turn;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Every file below a directory: its name, kind, mode, owners, names, size, what it holds or leads to, and its time
/// of change where that was set.
fn tree(at: &Path, with_times: bool) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), vec![at.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is = fs::symlink_metadata(&path).unwrap();
            let content = match is.file_type() {
                kind if kind.is_file() => blake3::hash(&fs::read(&path).unwrap()).to_string(),
                kind if kind.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
                _ => String::new(),
            };
            let name = path.strip_prefix(at).unwrap().display();
            let (size, links) = if is.is_dir() { (0, 0) } else { (is.size(), is.nlink()) };
            let time = if with_times { (is.mtime(), is.mtime_nsec()) } else { (0, 0) };
            let (mode, owners) = (is.mode(), (is.uid(), is.gid()));
            found.push(format!("{name} {mode:o} {owners:?} {size} {links} {time:?} {content}"));
            if is.is_dir() {
                left.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Runs a script in a directory of `h1`'s, once as it is on `h1`'s disk and once on `h2` by the view, and compares
/// what it has said and left there.
#[track_caller]
fn same(hosts: &ViewHosts, name: &str, with_times: bool, script: &str) {
    let mut runs = Vec::new();
    for (host, at, which) in [(1, "/root/files".to_owned(), "plain"), (2, inside(1, ""), "remote")]
    {
        let directory = format!("{}/{name}-{which}", at.trim_end_matches('/'));
        // Nothing of a clock or of a place is in what is compared.
        let script = format!(
            "umask 022; mkdir {directory}; cd {directory}; export HOME=$PWD TZ=UTC LC_ALL=C \
             GIT_AUTHOR_DATE='2020-01-01 00:00:00 +0000' GIT_COMMITTER_DATE='2020-01-01 00:00:00 +0000'\n{script}"
        );
        let run = Run::of(hosts.machines.command(host, "sh", &["-euc", &script]).output().unwrap());
        let said = run.stdout.replace(&directory, "HERE");
        assert_eq!(run.code, Some(0), "{which}: {run:?}");
        runs.push((said, tree(&hosts.disk(1, &format!("{name}-{which}")), with_times)));
    }
    let remote = runs.pop().unwrap();
    let plain = runs.pop().unwrap();
    assert_eq!(remote.0, plain.0, "what it said");
    assert!(!plain.1.is_empty(), "it has left something");
    for (remote, plain) in remote.1.iter().zip(&plain.1) {
        assert_eq!(remote, plain);
    }
    assert_eq!(remote.1.len(), plain.1.len());
}

/// Whether the hosts have a program, which is one of this machine's directories for all.
fn have(program: &str) -> bool {
    let mut command = Command::new(program);
    let command = command.arg("--version").env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let is = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|ended| ended.success());
    if !is {
        sheaf_testing::skipped(&format!("{program} is not installed"));
    }
    is
}

#[test]
fn git_works() {
    let _turn = turn();
    if !have("git") {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    let script = r#"
        git config --global user.email a@b; git config --global user.name a
        git config --global init.defaultBranch main; git config --global gc.auto 0
        git init -q one; cd one
        for i in 1 2 3 4 5 6 7 8; do
            mkdir -p d$i; seq $i $((i * 300)) >d$i/f; ln -s f d$i/link; chmod 755 d$i/f
            git add .; git commit -qm "$i"
        done
        git mv d1 e1; git rm -q d2/f; git commit -qam moved
        git checkout -q -b side HEAD~3; echo side >side; git add side; git commit -qm side
        git checkout -q main; git merge -q -m merge side
        echo more >>d3/f; git status --porcelain; git diff --stat; git stash -q; git stash pop -q
        git checkout -q d3/f
        git log --format='%H %s'; git fsck --strict --full 2>&1
        cd ..; git clone -q --no-hardlinks one two; cd two; git status --porcelain
        git gc -q --prune=now; git fsck --strict 2>&1; git log --oneline | wc -l; git grep -c 17 | sort
        git rev-parse HEAD; git remote set-url origin ../one; cd ..
        # What has a time or a number of an inode in it is not compared.
        find . -name index -delete; find . -path '*/logs/*' -type f -delete; find . -name '*.rev' -delete
        rm -rf one/.git/gc.pid
    "#;
    same(&hosts, "git", false, script);
}

#[test]
fn tar_and_rsync_bring_all_that_files_are() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    // Absolute links have another text otherwise, which would be copied.
    for host in hosts.all() {
        assert_eq!(hosts.sheaf(host, &["umount", POINT]).code, Some(0), "h{host}");
        let keep = hosts.sheaf(host, &["--quiet", "mount", "--links", "keep", POINT]);
        assert_eq!((keep.code, keep.stderr.as_str()), (Some(0), ""), "h{host}");
    }
    let make = r#"
        mkdir -p from/d/e; cd from; seq 1 50000 >numbers; : >empty; ln -s numbers link; ln -s /nowhere broken
        ln numbers d/hard; mkfifo pipe; printf 'x' >'a name with  spaces'; printf 'y' >d/$(printf 'n\303\244me')
        truncate -s 3M holes; printf mid | dd of=holes bs=1 seek=1500000 conv=notrunc status=none
        head -c 700000 /dev/zero | tr '\0' 'z' >large
        chmod 4711 empty; chmod 600 large; chmod 1777 d/e; chown 1001:2001 d/e 'a name with  spaces'
        for i in $(seq 1 200); do echo $i >d/e/f$i; done
        find . -exec touch -h -d '2021-02-03 04:05:06.123456789' {} +
        touch -d '1999-01-01 00:00:00' d; cd ..
    "#;
    if have("tar") {
        let script = format!(
            "{make} tar -cf t.tar --sparse -C from .; mkdir to; tar -xpf t.tar -C to --same-owner
            tar -tf t.tar | sort | wc -l; tar -df t.tar -C to; rm t.tar"
        );
        same(&hosts, "tar", false, &script);
    }
    if have("rsync") {
        let script = format!(
            "{make} if command -v setfacl >/dev/null; then setfacl -m u:1001:r from/large; fi
            python3 -Ic 'import os; os.setxattr(\"from/numbers\", \"user.mark\", b\"m\" * 300)' 2>/dev/null || :
            rsync -aHAX --sparse from/ to/; rsync -aHAXn --itemize-changes --checksum from/ to/
            rsync -aHAX --delete from/d/ to/d/; echo changed >>from/d/e/f7; rm from/d/e/f8
            rsync -aHAX --delete --itemize-changes from/ to/ | cut -c1-2,12- | sort"
        );
        same(&hosts, "rsync", false, &script);
        let mark = |which: &str| {
            let mut value = [0; 400];
            let path = hosts.disk(1, &format!("rsync-{which}/to/numbers"));
            rustix::fs::getxattr(path, "user.mark", &mut value)
        };
        assert_eq!(mark("remote"), mark("plain"));
    }
}

#[test]
fn make_and_a_compiler_build_what_runs() {
    let _turn = turn();
    if !have("make") || !have("gcc") {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    let script = r#"
        for i in 1 2 3 4 5 6; do
            printf '#include "all.h"\nint f%d(void) { return %d; }\n' $i $i >f$i.c
        done
        for i in 1 2 3 4 5 6; do echo "int f$i(void);"; done >all.h
        printf '#include <stdio.h>\n#include "all.h"\nint main(void) { printf("%%d\\n", f1() + f2() + f3() + f4() + f5() + f6()); }\n' >main.c
        printf 'objects = main.o f1.o f2.o f3.o f4.o f5.o f6.o\nprogram: $(objects)\n\tgcc -o $@ $(objects)\n%%.o: %%.c all.h\n\tgcc -c -o $@ $<\n' >Makefile
        make -s -j2; ./program; make -s -q && echo nothing to do
        touch -d '+1 minute' f3.c 2>/dev/null; make -s -n 2>/dev/null | sort; touch f3.c; make -s; ./program
        touch all.h; make -n 2>/dev/null | grep -c gcc
    "#;
    same(&hosts, "make", false, script);
}

#[test]
fn file_is_written_beside_and_renamed_over_as_editors_do() {
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    let script = r#"
        echo first >f; chmod 640 f; chown 1001:2001 f
        for i in 1 2 3 4 5 6 7 8 9 10; do
            cp -p f .f.swp; (cat f; echo line $i) >f.new; chmod --reference=f f.new; chown --reference=f f.new
            sync f.new; mv f f~; mv f.new f; rm .f.swp; stat -c '%a %u %g %h %s' f
        done
        sed -i 's/line/words/' f; cat f f~; ls -A
        echo direct | dd of=d bs=4096 iflag=fullblock conv=fsync status=none
        head -c 300000 /dev/zero | tr '\0' 'd' | dd of=big bs=4096 iflag=fullblock oflag=direct status=none
        dd if=big bs=8192 iflag=direct status=none | cksum
        dd if=big of=part bs=4096 skip=3 seek=7 count=9 conv=notrunc,fdatasync status=none; cksum part
        split -b 70000 big piece.; cat piece.* | cmp - big; rm piece.*; truncate -s 1000 big; wc -c <big
        cp --sparse=always big big.copy; cp --reflink=auto -a f f.copy; install -m 711 f f.installed
        sort -o f f; tee f.two <f >/dev/null; ln f.two f.three; shred -u f.three 2>/dev/null; ls -A; df . >/dev/null
    "#;
    same(&hosts, "editor", false, script);
}

#[test]
fn python_imports_a_tree() {
    let _turn = turn();
    if !have("python3") {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    let script = r#"
        mkdir -p package/sub; echo 'from . import a, sub' >package/__init__.py; echo 'A = 1' >package/a.py
        for i in $(seq 1 30); do echo "V = $i" >package/sub/m$i.py; done
        (for i in $(seq 1 30); do echo "from . import m$i"; done) >package/sub/__init__.py
        export PYTHONPATH=$PWD
        for i in 1 2; do python3 -c 'import package; s = package.sub; print(sum(getattr(s, f"m{i}").V for i in range(1, 31)))'; done
        find . -name '*.pyc' | wc -l
        python3 -c 'import json, csv, sqlite3, shutil; shutil.copytree("package", "copy"); print(json.dumps({"a": 1}))'
        find . -name '*.pyc' -delete
    "#;
    same(&hosts, "python", false, script);
}

/// Two writers on two hosts, with the journal that rolls back: each takes the locks of ranges that SQLite needs.
#[test]
fn sqlite_keeps_its_promises_to_writers_on_two_hosts() {
    const ROWS: u32 = 60;
    let _turn = turn();
    if !have("sqlite3") {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    let sql = |host: usize, sql: &str| {
        let (at, timeout) = (inside(1, "base"), ".timeout 60000");
        let mut command = hosts.machines.command(
            host,
            "sqlite3",
            &["-batch", "-bail", "-cmd", timeout, &at, sql],
        );
        let run = Run::of(command.output().unwrap());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "h{host}: {sql}");
        run.stdout.trim_end().to_owned()
    };
    let made = sql(
        2,
        "PRAGMA journal_mode=DELETE; CREATE TABLE t (host, number, UNIQUE (host, number)); \
                       CREATE TABLE total (n); INSERT INTO total VALUES (0);",
    );
    assert_eq!(made, "delete");
    std::thread::scope(|scope| {
        for host in [2, 3] {
            let sql = &sql;
            scope.spawn(move || {
                for number in 0..ROWS {
                    // A sum that is read and written again, which only locks keep right.
                    sql(
                        host,
                        &format!(
                            "BEGIN IMMEDIATE; INSERT INTO t VALUES ({host}, {number}); \
                             UPDATE total SET n = (SELECT n FROM total) + 1; COMMIT;"
                        ),
                    );
                }
            });
        }
        // Who reads sees what was committed as a whole.
        for _ in 0..20 {
            let seen =
                sql(1, "BEGIN; SELECT (SELECT count(*) FROM t) - (SELECT n FROM total); COMMIT;");
            assert_eq!(seen, "0");
        }
    });
    for host in hosts.all() {
        let told =
            sql(host, "SELECT n FROM total; SELECT count(*) FROM t; PRAGMA integrity_check;");
        assert_eq!(told, format!("{0}\n{0}\nok", 2 * ROWS), "h{host}");
    }
    assert!(!hosts.disk(1, "base-journal").exists());
}

#[test]
fn file_can_be_run_as_soon_as_it_is_closed_elsewhere() {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let _turn = turn();
    let Some(hosts) = ViewHosts::new(2) else { return };
    for round in 0..60 {
        let name = format!("script{round}");
        let mut open = fs::File::options();
        open.write(true).create_new(true).mode(if round % 2 == 0 { 0o755 } else { 0o644 });
        let mut file = open.open(hosts.at(2, 1, &name)).unwrap();
        std::io::Write::write_all(&mut file, b"#!/bin/true\n").unwrap();
        // A copy may still be written to after the first one was closed.
        let mut copy = (round % 5 == 0).then(|| file.try_clone().unwrap());
        drop(file);
        if let Some(copy) = &mut copy {
            std::io::Write::write_all(copy, b"# more\n").unwrap();
        }
        drop(copy);
        if round % 2 == 1 {
            let rights = fs::Permissions::from_mode(0o755);
            fs::set_permissions(hosts.at(2, 1, &name), rights).unwrap();
        }
        let run = Command::new(hosts.disk(1, &name)).status();
        assert!(run.is_ok_and(|status| status.success()), "round {round}");
    }
}

/// A database in that mode could be used by its own host only.
#[test]
fn wal_mode_is_refused_and_the_database_remains_usable() {
    let _turn = turn();
    if !have("sqlite3") {
        return;
    }
    let Some(hosts) = ViewHosts::new(3) else { return };
    let sql = |host: usize, sql: &str| {
        let at = inside(1, "base");
        Run::of(hosts.machines.command(host, "sqlite3", &["-batch", &at, sql]).output().unwrap())
    };
    assert_eq!(sql(2, "CREATE TABLE t (a); INSERT INTO t VALUES (1);").code, Some(0));
    let refused = sql(2, "PRAGMA journal_mode=WAL;");
    assert_ne!(refused.code, Some(0), "{refused:?}");
    for host in hosts.all() {
        let run = sql(host, "INSERT INTO t VALUES (2); PRAGMA journal_mode;");
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("delete\n", ""), "h{host}");
    }
    // A database that its own host has put into that mode can be copied.
    assert_eq!(sql(1, "PRAGMA journal_mode=WAL;").stdout, "wal\n");
    let copied = hosts.shell(2, "cp h1/base h1/copy; cmp h1/base h1/copy");
    assert_eq!(copied.code, Some(0), "{copied:?}");
}
