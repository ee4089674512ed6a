//! Buffered files of wide characters: what is recorded are bytes.
use crate::program::{Trace, compile, succeed};
use sheaf_recorder::{IoOp, RingRecord, flag};

const WIDE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>
#define WANT(x) do { if (!(x)) { perror(#x); exit(9); } } while (0)
int main(void) {
    WANT(setlocale(LC_ALL, "C.UTF-8"));
    FILE *file = fopen("text", "w+");
    WANT(file);
    errno = EXDEV;
    WANT(fputws(L"gr\u00fc\u00dfe \u20ac \U0001f600\n", file) >= 0);
    WANT(fputws(L"", file) >= 0);
    WANT(fputwc(L'\u20ac', file) == 0x20ac && putwc(L'a', file) == L'a');
    WANT(fputwc_unlocked(0x1f600, file) == 0x1f600 && putwc_unlocked(L'\n', file) == L'\n');
    WANT(fputws_unlocked(L"\u00e9", file) >= 0);
    WANT(errno == EXDEV);
    FILE *other = fopen("text", "r");
    WANT(other && fputws(L"\u00e9", other) == -1 && errno == EBADF);
    WANT(fputwc(L'x', other) == WEOF && errno == EBADF && fclose(other) == 0);
    WANT(fwprintf(file, L"%d %ls\n", 12345, L"wide") == 11);
    rewind(file);
    wchar_t line[100];
    WANT(fgetws(line, 100, file) == line && wcslen(line) == 10);
    WANT(fgetwc(file) == 0x20ac && getwc(file) == L'a' && fgetwc_unlocked(file) == 0x1f600);
    WANT(getwc_unlocked(file) == L'\n' && fgetws_unlocked(line, 2, file) == line);
    int number;
    wchar_t word[10];
    WANT(fwscanf(file, L"%d %9ls\n", &number, word) == 2 && number == 12345 && word[3] == L'e');
    WANT(fgetwc(file) == WEOF && fgetws(line, 100, file) == 0);
    WANT(fclose(file) == 0);
    WANT(wprintf(L"%ls %s %.1f %d %d %d %d %d %d\n", L"x", "two", 3.0, 4, 5, 6, 7, 8, 9) == 22);
    WANT(putwchar(L'\u20ac') == 0x20ac && putwchar_unlocked(L'b') == L'b' && fflush(stdout) == 0);
    wchar_t first = getwchar(), second = getwchar_unlocked();
    WANT(first == 0xe9 && second == L'c' && wscanf(L"%d", &number) == 1 && number == 77);
    return 0;
}
"#;

#[test]
fn wide_characters_are_recorded_in_bytes() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(WIDE, &[], place.path()) else { return };
    let (input, output) = (place.path().join("input"), place.path().join("output"));
    std::fs::write(&input, "\u{e9}c77").unwrap();
    let trace = Trace::new();
    let mut command = trace.command(program);
    command.current_dir(place.path()).stdin(std::fs::File::open(&input).unwrap());
    succeed(command.stdout(std::fs::File::create(&output).unwrap()));
    let all = trace.traced();
    let bytes = |op: IoOp, file: &str| -> Vec<u64> {
        let moved = |one: RingRecord| {
            if one.flags & flag::FAILED != 0 { 1000 + one.bytes } else { one.bytes }
        };
        all[0].of(op, file).into_iter().map(moved).collect()
    };
    const EBADF: u64 = 1009;
    let written = bytes(IoOp::Write, "/text");
    assert_eq!(written, [17, 0, 3, 1, 4, 1, 2, EBADF, EBADF, 11]);
    assert_eq!(bytes(IoOp::Read, "/text"), [17, 3, 1, 4, 1, 2, 0, 0, 0], "scanf tells none");
    assert_eq!(bytes(IoOp::Write, "/output"), [22, 3, 1]);
    assert_eq!(bytes(IoOp::Read, "/input"), [2, 1, 0]);
    let whole = std::fs::metadata(place.path().join("text")).unwrap().len();
    assert_eq!(whole, written.iter().filter(|&&bytes| bytes != EBADF).sum::<u64>());
    assert_eq!(std::fs::read_to_string(output).unwrap(), "x two 3.0 4 5 6 7 8 9\n\u{20ac}b");
}
