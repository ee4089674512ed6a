//! Names that are too long to be kept.
use crate::program::{Trace, compile, succeed};
use sheaf_recorder::IoOp;

const LONG: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) exit(9); } while (0)
int main(void) {
    static char name[201], path[5001] = "/", first[4000], second[4000];
    memset(name, 'd', 200);
    memset(path + 1, 'p', 4999);
    WANT(open(path, O_RDONLY) == -1 && errno == ENAMETOOLONG);
    WANT(open(path + 1, O_RDONLY) == -1 && errno == ENAMETOOLONG);
    for (int i = 0; i < 19; i++) {
        WANT(mkdir(name, 0700) == 0 && chdir(name) == 0);
    }
    strcat(strcat(strcat(first, name), "/"), "first");
    strcat(strcat(strcat(second, name), "/"), "second");
    WANT(mkdir(name, 0700) == 0);
    int one, other;
    for (int i = 0; i < 2; i++) {
        WANT((one = open(first, O_RDWR | O_CREAT, 0600)) >= 0 && write(one, "abc", 3) == 3);
        WANT((other = open(second, O_RDWR | O_CREAT, 0600)) >= 0 && write(other, "d", 1) == 1);
        WANT(close(one) == 0 && close(other) == 0);
    }
    return 0;
}
"#;

#[test]
fn names_that_are_too_long_are_lost_and_not_cut() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(LONG, &[], place.path()) else { return };
    let trace = Trace::new();
    // Deep enough that the working directory can be told, and what is below it cannot.
    let root = place.path().canonicalize().unwrap();
    let filler = root.join("f".repeat(250 - root.as_os_str().len()));
    std::fs::create_dir(&filler).unwrap();
    succeed(trace.command(program).current_dir(&filler));
    let all = trace.traced();
    let read = &all[0].read;
    assert!(read.names.values().all(|name| name.len() < 4096));
    let named: Vec<usize> = read.names.values().map(Vec::len).filter(|&len| len > 200).collect();
    assert_eq!(named.len(), 20, "those directories, and the first: {named:?}");
    let of = |op: IoOp| -> Vec<u64> {
        let those = read.records.iter().filter(|record| record.op == Some(op));
        those.map(|record| record.file).collect()
    };
    let opens = of(IoOp::Open);
    let [_, _, first, second, first_again, second_again] = opens[..] else { panic!("{opens:?}") };
    assert_eq!((first, second), (first_again, second_again));
    assert_eq!(of(IoOp::Write), [first, second, first, second]);
    let mut different = opens.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 4, "told apart without names");
    assert!(different.iter().all(|file| !read.names.contains_key(file)));
    assert_eq!(read.names_lost, 1 + 2 + 2, "the last directory, each open that failed, each file");
}
