//! `sheaf trace record` of programs that it cannot see into: they do what they do without, and it is
//! said that they are not in the trace.
use crate::trace::TraceHome as _;
use sheaf_testing::built;
use sheaf_testing::home::{Home, Run};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program writes, of which nothing is seen.
const BYTES: u64 = 4 << 20;
const EXIT: i32 = 5;

/// Writes into a file, says so, and exits; shows whether it has root's rights.
const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
static char b[1 << 20];
int main(void) {
    int f = open("big", O_CREAT | O_WRONLY | O_TRUNC, 0644);
    for (int i = 0; i < 4; i++) if (write(f, b, sizeof b) != sizeof b) return 9;
    puts(geteuid() ? "said" : "said as root");
    fputs("complained\n", stderr);
    return 5;
}
"#;

/// The same from one system call to the next, as programs in Go do.
const WITHOUT_LIBRARY: &str = r#"
static char b[1 << 20];
static long call(long n, long a, long c, long d) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(c), "d"(d) : "rcx", "r11", "memory");
    return r;
}
int main(void) {
    long f = call(2, (long)"big", 01101, 0644);
    for (int i = 0; i < 4; i++) if (call(1, f, (long)b, sizeof b) != sizeof b) return 9;
    call(1, 1, (long)"said\n", 5);
    call(1, 2, (long)"complained\n", 11);
    return 5;
}
"#;

/// A program, if there is a compiler that makes it.
fn compile(home: &Home, source: &str, compiler: &[&str]) -> Option<&'static str> {
    let source = home.write("program.c", source);
    let mut cc = Command::new(compiler[0]);
    cc.args(&compiler[1..]).args(["-w", "-o", "program"]).arg(source).current_dir(home.path());
    let is_made = cc.output().is_ok_and(|output| output.status.success());
    if !is_made {
        sheaf_testing::skipped(&format!("no {} here makes programs", compiler.join(" ")));
        return None;
    }
    let runs = Command::new(home.path().join("program")).current_dir(home.path()).output();
    if runs.is_err() {
        sheaf_testing::skipped(&format!("what {} makes does not run here", compiler.join(" ")));
    }
    runs.is_ok().then_some("./program")
}

/// Its output and end are its own, and the file that it writes; gives what Sheaf said, and what else
/// there was on standard error.
fn check(home: &Home, run: &Run, said: &str) -> (String, String) {
    assert_eq!((run.code, run.stdout.as_str()), (Some(EXIT), said), "{run:?}");
    assert_eq!(std::fs::metadata(home.path().join("big")).unwrap().len(), BYTES);
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        run.stderr.lines().partition(|line| line.starts_with("sheaf: "));
    std::fs::remove_file(home.path().join("big")).unwrap();
    std::fs::remove_dir_all(home.path().join("the.trace")).unwrap();
    (ours.join("\n"), theirs.join("\n"))
}

/// Recorded itself, it is said before it runs why nothing of it is seen; started by another, what the
/// kernel has counted tells of it. `complains`: the loader says a line of its own then.
fn check_unseen(home: &Home, program: &str, why: &str, complains: bool) {
    let run = home.record(&[program]);
    assert_eq!((home.info().operations, home.info().segments), (0, 0), "{run:?}");
    let (ours, theirs) = check(home, &run, "said\n");
    assert!(ours.contains(&format!("{program}: {why}")), "{ours}");
    assert_eq!(theirs, "complained");
    let run = home.record(&["sh", "-c", "./program; exit $?"]);
    assert_eq!(home.info().segments, 1, "the shell");
    let (ours, theirs) = check(home, &run, "said\n");
    assert!(ours.contains(" are not in the trace: done by programs"), "{ours}");
    if complains {
        assert!(
            theirs.contains("cannot be preloaded") && theirs.ends_with("complained"),
            "{theirs}"
        );
    } else {
        assert_eq!(theirs, "complained");
    }
}

/// The program runs as root in root's hands, where it says so.
fn as_anybody(source: &str) -> String {
    source.replace("geteuid() ? \"said\" : \"said as root\"", "\"said\"")
}

#[test]
fn static_program_is_not_seen_and_that_is_said() {
    let home = Home::new();
    let Some(program) = compile(&home, &as_anybody(SOURCE), &["cc", "-static"]) else { return };
    check_unseen(&home, program, "it is linked statically", false);
}

#[test]
fn program_of_another_loader_is_not_seen_and_that_is_said() {
    let home = Home::new();
    let Some(program) = compile(&home, &as_anybody(SOURCE), &["musl-gcc"]) else { return };
    check_unseen(&home, program, "its loader is /lib/ld-musl-", false);
}

#[test]
fn program_of_32_bits_is_not_seen_and_that_is_said() {
    let home = Home::new();
    let Some(program) = compile(&home, &as_anybody(SOURCE), &["cc", "-m32"]) else { return };
    check_unseen(&home, program, "it is a program for another kind of processor", true);
}

/// It is linked as others are, and still nothing of its own calls is seen.
#[test]
fn system_calls_without_the_library_show_in_the_kernels_counts() {
    if !cfg!(target_arch = "x86_64") {
        return sheaf_testing::skipped("the program is written for x86-64");
    }
    let home = Home::new();
    let Some(program) = compile(&home, WITHOUT_LIBRARY, &["cc"]) else { return };
    let run = home.record(&[program]);
    assert_eq!(home.info().segments, 1, "{run:?}");
    let kernel = home.info().kernel.expect("its own process can be looked at");
    assert_eq!(kernel.bytes_written, BYTES + 5 + 11);
    let (ours, theirs) = check(&home, &run, "said\n");
    let unseen = format!("and {} are not in the trace", BYTES + 5 + 11);
    assert!(ours.contains(&unseen), "{ours}");
    assert_eq!(theirs, "complained");
}

/// Somebody without rights who records a program that has root's.
#[test]
fn setuid_program_is_not_seen_and_that_is_said() {
    const NOBODY: &str = "65534";
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root makes programs that others run as root");
    }
    let home = Home::new();
    if compile(&home, SOURCE, &["cc"]).is_none() {
        return;
    }
    std::fs::remove_file(home.path().join("big")).unwrap();
    std::fs::set_permissions(home.path(), Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(home.path().join("program"), Permissions::from_mode(0o4755)).unwrap();
    let sheaf = copy_of_sheaf(&home);
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        command.args(words).current_dir(home.path()).env("HOME", home.path());
        Run::of(command.output().unwrap())
    };
    let plain = as_nobody(&["./program"]);
    if plain.stdout != "said as root\n" {
        return sheaf_testing::skipped("nothing is setuid in the directory for temporary files");
    }
    std::fs::remove_file(home.path().join("big")).unwrap();
    let record = [sheaf.to_str().unwrap(), "trace", "record", "-o", "the.trace", "--"];
    let run = as_nobody(&[&record[..], &["./program"]].concat());
    assert_eq!((home.info().operations, home.info().segments), (0, 0), "{run:?}");
    let (ours, theirs) = check(&home, &run, "said as root\n");
    let why = "./program: it runs with other rights than its caller's (setuid)";
    assert!(ours.contains(why), "{ours}");
    assert_eq!(theirs, "complained");
    let run = as_nobody(&[&record[..], &["sh", "-c", "./program; exit $?"]].concat());
    assert_eq!(home.info().segments, 1, "the shell");
    assert!(home.info().kernel.is_some_and(|kernel| kernel.bytes_written > BYTES), "{run:?}");
    let (ours, theirs) = check(&home, &run, "said as root\n");
    assert!(ours.contains(" are not in the trace: done by programs"), "{ours}");
    assert_eq!(theirs, "complained");
}

/// Sheaf where anybody may run it.
pub fn copy_of_sheaf(home: &Home) -> PathBuf {
    let built = Path::new(built("sheaf"));
    let library = built.with_file_name("deps").join("libsheaf_preload.so");
    std::fs::copy(library, home.path().join("libsheaf_trace.so")).unwrap();
    let sheaf = home.path().join("sheaf");
    std::fs::copy(built, &sheaf).unwrap();
    std::fs::copy(sheaf_testing::built("sheaf-trace"), home.path().join("sheaf-trace")).unwrap();
    sheaf
}

/// Sets up a ring, and maps a file.
const UNSEEN: &str = r#"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    char how[256] = {0};
    int ring = syscall(425, 4, how);
    int fd = open("mapped", O_RDWR | O_CREAT, 0644);
    if (ftruncate(fd, 1 << 20)) return 8;
    char *at = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(at, 1, 1 << 20);
    return ring < 0 ? 7 : 0;
}
"#;

#[test]
fn io_uring_and_mapped_memory_are_said_not_to_be_seen() {
    let home = Home::new();
    let Some(program) = compile(&home, UNSEEN, &["cc"]) else { return };
    let run = home.record(&[program]);
    if run.code == Some(7) {
        return sheaf_testing::skipped("this kernel gives no io_uring");
    }
    assert_eq!(run.code, Some(0), "{run:?}");
    let told = "./program: uses io_uring: what it does by that is not recorded";
    assert!(run.stderr.contains(told), "{run:?}");
    let report = home.run(&["trace", "report", "the.trace"]).stdout;
    assert!(report.contains("uses io_uring"), "{report}");
    assert!(report.contains("Files were mapped into memory 1 times, 1 MiB of them"), "{report}");
}

/// `cp` reads and writes, and the report says so of both files.
#[test]
fn copies_are_of_both_their_files() {
    let home = Home::new();
    home.write("from", &"x".repeat(3 << 20));
    let run = home.record(&["cp", "from", "to"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stderr.contains("not in the trace"), "{run:?}");
    let report = home.run(&["trace", "report", "the.trace"]).stdout;
    let line = |end: &str| report.lines().find(|line| line.ends_with(end)).unwrap_or_default();
    let words = |end| line(end).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words("/from").contains(" 3 MiB 0 B "), "{report}");
    assert!(words("/to").contains(" 0 B 3 MiB "), "{report}");
    assert!(report.contains("3 MiB") && words("copy").contains("3 MiB"), "{report}");
}
