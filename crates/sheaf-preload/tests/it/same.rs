//! Programs do what they do without the library, to the byte.
use crate::program::{Trace, compile, succeed};
use std::process::Command;

const SCRIPTS: &[&str] = &[
    "for i in 1 2 3; do echo $i; done | sort -r | while read x; do echo \"<$x>\"; done",
    "tar cf - -C /etc apt | tar tf - | sort",
    "gzip -c /etc/services | gzip -dc | cksum",
    "head -c 300000 /dev/zero | tee a b | wc -c; cmp a b; ls -l a b | cut -c1-10",
    "(exec 3<>c; echo x >&3; cat c; exec 3>&-; cat c); cat missing; echo $?",
    "cp -a /etc/apt d && find d -type f | sort | xargs cksum; mv d e; rm -r e; ls",
    "seq 100000 > n; sort -n -r n | head -3; grep -c 7 n; sed -n '5p;$p' n; awk '{s+=$1} END {print s}' n",
    "ulimit -n 20; echo few; cat /etc/passwd | wc -l",
    "ulimit -f 100; echo small; head -c 10 /dev/zero | wc -c",
    "cd / && pwd && cat etc/hostname | wc -l; env -i /bin/echo bare; (sleep 0.1; echo late) & wait; echo done",
    "kill -TERM $$; echo not reached",
    "git init -q g && cd g && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x --date=2020-01-01T00:00:00Z && git log --format=%s && git status --short",
    "sqlite3 t.db 'create table t(x); insert into t values(1),(2); select sum(x) from t'",
    "rsync -a /etc/apt/ r/ && (cd r && find . -type f | sort | xargs cat | cksum)",
    "python3 -c 'import os,subprocess,threading; open(\"p\",\"w\").write(\"é\"*1000); print(os.stat(\"p\").st_size, subprocess.run([\"wc\",\"-c\",\"p\"],capture_output=True).stdout)'",
    "perl -e 'open F,\">q\"; print F \"x\"x5000; close F; print -s \"q\"; exec \"echo\",\"gone\"'",
    "dd if=/dev/zero of=f bs=4k count=10 2>/dev/null; stat -c %s f; truncate -s 3 f; od -c f",
    "echo 'int main(){return 0;}' > x.c && cc -o x x.c && ./x; echo $?",
];

#[test]
fn programs_say_what_they_say_without_it() {
    for script in SCRIPTS {
        let run = |trace: Option<&Trace>| {
            let place = tempfile::tempdir().unwrap();
            let mut shell =
                trace.map_or_else(|| Command::new("bash"), |it| it.command("/bin/bash"));
            let output = shell.args(["-c", script]).current_dir(place.path()).output().unwrap();
            let text = |bytes: Vec<u8>| {
                String::from_utf8_lossy(&bytes).replace(place.path().to_str().unwrap(), "<here>")
            };
            (output.status, text(output.stdout), text(output.stderr))
        };
        let plain = run(None);
        if plain.2.contains("command not found") {
            sheaf_testing::skipped(&format!("of programs that are the same: {}", plain.2.trim()));
            continue;
        }
        let trace = Trace::new();
        assert_eq!(run(Some(&trace)), plain, "{script}");
        assert!(!trace.traced().is_empty(), "{script}");
    }
}

#[test]
fn without_a_directory_nothing_is_recorded_and_all_runs() {
    let begun = std::time::SystemTime::now();
    for directory in ["/nonexistent", "/proc", "", "/etc/passwd"] {
        let trace = Trace::new();
        let output =
            succeed(trace.command("/bin/echo").arg("here").env("SHEAF_TRACE_DIR", directory));
        assert_eq!(output.stdout, b"here\n", "{directory}");
        assert!(trace.traced().is_empty());
    }
    let is_segment = |entry: std::fs::DirEntry| {
        let path = entry.path();
        path.extension().is_some_and(|extension| extension == "segment")
            && path.metadata().is_ok_and(|about| about.modified().unwrap() >= begun)
    };
    assert!(!std::fs::read_dir("/").unwrap().flatten().any(is_segment), "one is in the root");
    let trace = Trace::new();
    let output = succeed(trace.command("/bin/echo").arg("here").env_remove("SHEAF_TRACE_DIR"));
    assert_eq!(output.stdout, b"here\n");
}

const OTHER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static int calls;
ssize_t write(int fd, const void *from, size_t len) {
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = dlsym(RTLD_NEXT, "write");
    calls++;
    return next(fd, from, len);
}
__attribute__((destructor)) static void told(void) {
    char text[] = "seen 0\n";
    text[5] += calls;
    write(2, text, 7);
}
"#;

/// Another library that stands in for the same function, before and behind.
#[test]
fn others_that_are_preloaded_see_the_same_calls() {
    let place = tempfile::tempdir().unwrap();
    let Some(other) = compile(OTHER, &["-shared", "-fPIC", "-ldl"], place.path()) else { return };
    let source = "#include <unistd.h>\nint main(void) { return write(1, \"x\", 1) != 1; }";
    let elsewhere = tempfile::tempdir().unwrap();
    let Some(program) = compile(source, &[], elsewhere.path()) else { return };
    let library = crate::program::library();
    for order in [[&other, &library], [&library, &other]] {
        let both = order.map(|path| path.to_str().unwrap()).join(":");
        let trace = Trace::new();
        let output = succeed(trace.command(&program).env("LD_PRELOAD", &both));
        assert_eq!(output.stderr, b"seen 1\n", "{both}");
        let all = trace.traced();
        let writes =
            all[0].read.records.iter().filter(|r| r.op == Some(sheaf_recorder::IoOp::Write));
        assert!(writes.count() >= 1, "{both}");
    }
}
