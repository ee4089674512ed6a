//! Names of files that are reached from directories: the same whichever way a program goes, and without asking the
//! kernel for the directory's each time.
use crate::program::{Trace, compile, succeed};
use sheaf_recorder::IoOp;
use std::process::Command;

/// Looks at files from open directories and from the working one, which changes meanwhile.
const WAYS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) exit(__LINE__); } while (0)
static struct stat s;
static void *apart(void *nothing) {
    WANT(unshare(CLONE_FS) == 0 && chdir("sub") == 0 && stat("in-thread", &s) == -1);
    return 0;
}
int main(void) {
    int top = open(".", O_RDONLY | O_DIRECTORY), sub, other;
    WANT(top >= 0 && fstatat(top, "file", &s, 0) == 0);
    WANT((sub = openat(top, "sub", O_RDONLY)) >= 0 && fstatat(sub, "one", &s, 0) == 0);
    WANT((other = dup(sub)) >= 0 && fstatat(other, ".//one", &s, 0) == 0);
    WANT(close(sub) == 0 && (sub = openat(top, "link", O_RDONLY)) >= 0);
    WANT(fstatat(sub, "./one", &s, 0) == 0);
    // Up again, as fts does.
    int up = openat(other, "..", O_RDONLY);
    WANT(up >= 0 && fstatat(up, "file", &s, 0) == 0);
    WANT(stat("sub/one", &s) == 0 && stat("sub//./one", &s) == 0 && stat("./sub/one/", &s) == -1);
    WANT(chdir("sub") == 0 && stat("one", &s) == 0);
    WANT(fchdir(top) == 0 && stat("file", &s) == 0);
    WANT(chdir("sub/..") == 0 && stat("file", &s) == 0);
    WANT(chdir("/") == 0 && stat("none", &s) == -1 && chdir("//") == 0 && stat("./none", &s) == -1);
    WANT(fchdir(top) == 0);
    pthread_t thread;
    WANT(pthread_create(&thread, 0, apart, 0) == 0 && pthread_join(thread, 0) == 0);
    WANT(stat("file", &s) == 0);
    return 0;
}
"#;

#[test]
fn file_has_one_name_from_whichever_directory() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(WAYS, &["-lpthread"], place.path()) else { return };
    let tree = place.path().canonicalize().unwrap().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    for file in ["file", "sub/one"] {
        std::fs::write(tree.join(file), "").unwrap();
    }
    std::os::unix::fs::symlink("sub", tree.join("link")).unwrap();
    let trace = Trace::new();
    succeed(trace.command(&program).current_dir(&tree));
    let [traced] = &trace.traced()[..] else { panic!("one process") };
    let stats = traced.read.records.iter().filter(|record| record.op == Some(IoOp::Stat));
    // Those of the other thread are behind.
    let names: Vec<String> = stats
        .map(|record| {
            let name = String::from_utf8_lossy(&traced.read.names[&record.file]).into_owned();
            name.replace(tree.to_str().unwrap(), "T")
        })
        .collect();
    let expected = "T/file T/sub/one T/sub/one T/link/one T/file T/sub/one T/sub/one T/sub/one T/sub/one \
                    T/file T/file /none /none T/file T/sub/in-thread";
    assert_eq!(names.join(" "), expected);
    assert_eq!((traced.read.names_lost, traced.read.parts.len()), (0, 0));
}

/// Walks as `find` and `du` do: opens each directory from the one above, and looks at all that is in it.
const WALK: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
static void walk(int at, const char *name) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY);
    DIR *all = fdopendir(fd);
    if (!all) exit(8);
    struct dirent *one;
    while ((one = readdir(all))) {
        struct stat s;
        if (one->d_name[0] == '.') continue;
        if (fstatat(fd, one->d_name, &s, AT_SYMLINK_NOFOLLOW)) exit(9);
        if (S_ISDIR(s.st_mode)) walk(fd, one->d_name);
    }
    closedir(all);
}
int main(void) {
    walk(AT_FDCWD, ".");
    return 0;
}
"#;

#[test]
fn walk_of_a_tree_asks_the_kernel_for_no_names() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(WALK, &[], place.path()) else { return };
    let tree = place.path().join("tree");
    for directory in 0..20 {
        let path = tree.join(format!("{directory}/in"));
        std::fs::create_dir_all(&path).unwrap();
        (0..10).for_each(|file| std::fs::write(path.join(file.to_string()), "").unwrap());
    }
    let trace = Trace::new();
    let asked = place.path().join("asked");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-E"]).arg(format!("LD_PRELOAD={}", crate::program::library().display()));
    strace.arg("-E").arg(format!("SHEAF_TRACE_DIR={}", trace.directory.path().display()));
    strace.args(["-e", "trace=readlink,readlinkat,getcwd", "-o"]).arg(&asked).arg(&program);
    match strace.current_dir(&tree).output() {
        Err(_) => return println!("skipped: this machine has no strace"),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("PTRACE_TRACEME") => {
            return println!("skipped: no process can be traced here");
        }
        Ok(output) => assert!(output.status.success(), "{output:?}"),
    }
    let asked = std::fs::read_to_string(&asked).unwrap();
    let calls = asked.lines().filter(|line| line.contains("read") || line.contains("getcwd"));
    assert!(calls.count() <= 2, "{asked}");
    let [traced] = &trace.traced()[..] else { panic!("one process") };
    for file in ["/tree/0/in", "/tree/19/in/9"] {
        assert_eq!(traced.sum(IoOp::Stat, file).0, 1, "{file}");
    }
}
