//! `sheaf trace replay`: what programs did, done again, leaves files as long as theirs.
use crate::trace::TraceHome as _;
use sheaf_testing::home::Home;
use sheaf_trace::{TraceNames, TraceRow, TraceStore};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Buffered files, opened and moved in as many ways as there are.
const STREAMS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static char b[50000];
static void put(FILE *f, size_t n) { fwrite(b, 1, n, f); }
int main(void) {
    memset(b, 'x', sizeof b);
    FILE *f = fopen("seek", "w");
    for (int i = 0; i < 50; i++) put(f, 1000);
    fseek(f, 100, SEEK_SET); put(f, 7); fclose(f);
    f = fopen("seek_end", "w"); put(f, 50000); fseek(f, 0, SEEK_SET); put(f, 6);
    fseeko(f, 0, SEEK_END); fputs("hello", f); putc('!', f); fprintf(f, "%d", 7); fclose(f);
    f = fopen("rewound", "w+"); put(f, 3000); rewind(f); put(f, 6); fclose(f);
    f = fopen("again", "w"); put(f, 9000); fclose(f);
    f = fopen("again", "w"); put(f, 6); fclose(f);
    for (int i = 0; i < 3; i++) { f = fopen("appended", "a"); fputs("hello1\n", f); fclose(f); }
    f = fopen("appended2", "a+"); put(f, 20); fseek(f, 0, SEEK_SET); put(f, 20); fclose(f);
    f = fopen("updated", "r+"); put(f, 10); fclose(f);
    f = fopen("added_to", "a"); put(f, 10); fclose(f);
    fpos_t at;
    f = fopen("place", "w"); put(f, 10); fgetpos(f, &at); put(f, 100); fsetpos(f, &at); put(f, 5);
    fclose(f);
    int fd = open("fd", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (write(fd, b, 300) != 300) return 9;
    f = fdopen(fd, "w"); put(f, 30); fseek(f, 10, SEEK_SET); put(f, 5); fclose(f);
    f = fopen("first", "w"); put(f, 11); f = freopen("second", "w", f); put(f, 22); fclose(f);
    f = fopen("cut", "w"); put(f, 5000); fflush(f); ftruncate(fileno(f), 100);
    fseek(f, 50, SEEK_SET); put(f, 10); fclose(f);
    return 0;
}
"#;

/// The length of each file below a directory.
fn lengths(directory: &Path) -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| entry.file_name() != ".sheaf-replay");
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect()
}

/// Records what a shell does in a directory of its own, and does it again; the files of both.
fn again(home: &Home, script: &str) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let data = home.path().canonicalize().unwrap().join("data");
    std::fs::create_dir_all(&data).unwrap();
    let run = home.record(&["sh", "-c", &format!("cd data && {script}")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let only = data.to_str().unwrap();
    let replay =
        home.run(&["trace", "replay", "--speed", "max", "--only", only, "the.trace", "again"]);
    assert_eq!((replay.code, replay.stderr.as_str()), (Some(0), ""), "{replay:?}");
    (lengths(&data), lengths(&home.path().join("again")))
}

fn named(lengths: &[(&str, u64)]) -> BTreeMap<String, u64> {
    lengths.iter().map(|(name, length)| ((*name).to_owned(), *length)).collect()
}

#[test]
fn streams_leave_files_as_long_as_they_were() {
    let home = Home::new();
    home.write("streams.c", STREAMS);
    let mut compiler = Command::new("cc");
    compiler.args(["-w", "-o", "streams", "streams.c"]).current_dir(home.path());
    assert!(compiler.status().unwrap().success());
    std::fs::create_dir(home.path().join("data")).unwrap();
    home.write("data/updated", &"y".repeat(100));
    home.write("data/added_to", &"y".repeat(100));
    let (was, is) = again(&home, "exec ../streams");
    let expected = named(&[
        ("added_to", 110),
        ("again", 6),
        ("appended", 21),
        ("appended2", 40),
        ("cut", 100),
        ("fd", 330),
        ("first", 11),
        ("place", 110),
        ("rewound", 3000),
        ("second", 22),
        ("seek", 50_000),
        ("seek_end", 50_007),
        ("updated", 100),
    ]);
    assert_eq!(was, expected);
    assert_eq!(is, expected);
}

#[test]
fn redirections_leave_files_as_long_as_they_were() {
    let home = Home::new();
    let script = "bash -c 'for i in 1 2 3; do echo hello1 >> appended; done; \
                  (echo a; printf bb | dd status=none; echo c) > mixed; echo longer > over; echo x > over; \
                  exec 3>>third; echo one >&3; echo two >&3; exec 3>&-; ' \
                  && printf 0123456789 > part && printf ab | dd of=part bs=1 seek=3 conv=notrunc status=none \
                  && printf 'b\\na\\n' > sorted && sort -o sorted sorted && sed -i s/a/aaa/ sorted";
    let (was, is) = again(&home, script);
    let expected = named(&[
        ("appended", 21),
        ("mixed", 6),
        ("over", 2),
        ("part", 10),
        ("sorted", 6),
        ("third", 8),
    ]);
    assert_eq!(was, expected);
    assert_eq!(is, expected);
}

/// A file that is open when the program begins is there when it is done again.
#[test]
fn inherited_output_is_made_before() {
    let home = Home::new();
    let record = ["trace", "record", "--quiet", "-o", "the.trace", "--", "sh", "-c"];
    let script = "dd if=in status=none; echo one; dd if=in status=none";
    home.write("in", "12345\n");
    let run = home.shell(&[&record[..], &[script]].concat(), "exec \"$0\" \"$@\" >out");
    assert_eq!(run.code, Some(0), "{run:?}");
    let only = home.path().canonicalize().unwrap();
    let only = only.to_str().unwrap();
    let replay =
        home.run(&["trace", "replay", "--speed", "max", "--only", only, "the.trace", "again"]);
    assert_eq!((replay.code, replay.stderr.as_str()), (Some(0), ""), "{replay:?}");
    let is = lengths(&home.path().join("again"));
    assert_eq!((is["in"], is["out"]), (6, 16), "{replay:?}");
}

/// What differed is counted where it is not listed, and what is elsewhere is told in one line.
#[test]
fn replay_differences_are_listed_and_counted() {
    let home = Home::new();
    let mut names = TraceNames::default();
    let mut name = |text: &str| names.number(text.as_bytes());
    let words = ["stat", "open", "posix", "n1", "a", "/data/f", "/else/g"].map(&mut name);
    let [stat, open, layer, host, command, path, elsewhere] = words;
    // Of a disk that has failed.
    let failed =
        TraceRow { op: stat, layer, host, command, path, pid: 1, errno: 5, ..TraceRow::default() };
    let mut rows: Vec<TraceRow> = (0..20).map(|time_ns| TraceRow { time_ns, ..failed }).collect();
    rows.extend((20..23).map(|time_ns| TraceRow { time_ns, path: elsewhere, ..failed }));
    rows.extend((23..25).map(|time_ns| TraceRow { time_ns, path: elsewhere, op: open, ..failed }));
    std::fs::create_dir(home.path().join("x")).unwrap();
    let mut store = TraceStore::open(&home.path().join("x"), u64::MAX).unwrap();
    store.push(&rows, &names).unwrap();
    store.finish(&names).unwrap();
    let args = ["trace", "replay", "--speed", "max", "--only", "/data", "x", "again"];
    let run = home.run(&args);
    assert_eq!((run.code, run.stderr.as_str()), (Some(1), ""), "{run:?}");
    let lines: Vec<&str> = run.stdout.lines().skip(2).collect();
    assert_eq!(lines[0], "not done: 5 that are not below the prefix (--only)", "{run:?}");
    let differed =
        "differed: stat f: was Input/output error (EIO), is No such file or directory (ENOENT)";
    assert_eq!(lines[1..17], [differed; 16], "{run:?}");
    assert_eq!(lines[17], "differed: and 4 more", "{run:?}");
    assert!(lines[18].starts_with("operations: 20, threads: 1, "), "{run:?}");
}
