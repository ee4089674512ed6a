//! Patterns of a whole text, beside those of GNU find.
use proptest::prelude::*;
use sheaf_file::TextPattern;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// The names in a directory that find's test finds; nothing without GNU find.
fn found(directory: &Path, test: &str, pattern: &str) -> Option<BTreeSet<Vec<u8>>> {
    let mut command = Command::new("find");
    command.args(["-mindepth", "1", test, pattern, "-printf", "%P\\0"]);
    let run = command.env("LC_ALL", "C.UTF-8").current_dir(directory).output().ok()?;
    run.status.success().then(|| {
        let names = run.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names.map(<[u8]>::to_vec).collect()
    })
}

fn directory_of(names: &BTreeSet<Vec<u8>>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::write(directory.path().join(OsStr::from_bytes(name)), "").unwrap();
    }
    directory
}

/// Whether it was compared.
fn compare(directory: &Path, names: &BTreeSet<Vec<u8>>, pattern: &str) -> bool {
    for (test, ignores_case) in [("-name", false), ("-iname", true)] {
        // There glibc looks at the case of `[=a=]` and `[.a.]` all the same.
        if ignores_case && (pattern.contains("[=") || pattern.contains("[.")) {
            continue;
        }
        let Some(expected) = found(directory, test, pattern) else {
            crate::skipped("there is no GNU find to compare with");
            return false;
        };
        let own = TextPattern::new(pattern, ignores_case);
        let own: BTreeSet<_> = names.iter().filter(|name| own.matches(name)).cloned().collect();
        assert_eq!(own, expected, "{test} {pattern:?}");
    }
    true
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn names_are_those_that_gnu_find_finds() {
    let names: [&[u8]; 34] = [
        b"a",
        b"b",
        b"A",
        b"B",
        b"z",
        b"0",
        b"7x",
        b"ab",
        b"-",
        b"[",
        b"]",
        b"\\",
        b"^",
        b".dot",
        b"a.tex",
        b"A.TEX",
        b" ",
        b"\n",
        b"a\nb",
        b"[a-",
        b"[z-a]",
        b"a\\",
        b"{a,b}",
        b"*",
        b"?",
        b"\xff",
        b"\xff\xfe",
        b"\xc3\xa9\xff",
        b"\xc3",
        "é".as_bytes(),
        "É".as_bytes(),
        "Éa".as_bytes(),
        "日本".as_bytes(),
        "\u{a0}".as_bytes(),
    ];
    let names: BTreeSet<Vec<u8>> = names.into_iter().map(<[u8]>::to_vec).collect();
    let directory = directory_of(&names);
    for pattern in [
        "?",
        "??",
        "*",
        "*?",
        "é",
        "É",
        "É*",
        "[é]",
        "[É]",
        "[à-ü]",
        "[À-Ü]",
        "[!a]",
        "[^a]",
        "[a-c]",
        "[A-C]",
        "[a-C]",
        "[A-c]",
        "[z-a]",
        "[!z-a]",
        "[a-",
        "[a",
        "[",
        "[]",
        "[]]",
        "[!]]",
        "[]-]",
        "\\",
        "a\\",
        "\\a",
        "\\é",
        "\\[z-a\\]",
        "\\\\",
        "[\\]]",
        "[\\\\]",
        "[\\",
        "[\n]",
        "*\n*",
        "[ -~]",
        "[[:lower:]]",
        "[[:upper:]]*",
        "[[:alpha:]]",
        "[[:alnum:]]*",
        "[[:digit:]]x",
        "[[:xdigit:]]",
        "[[:punct:]]",
        "[[:space:]]",
        "[[:blank:]]",
        "[[:cntrl:]]",
        "[[:graph:]]",
        "[[:print:]]",
        "[![:lower:]]",
        "[[:lower:][:digit:]]*",
        "[[:letter:]]",
        "[[:lower]",
        "[[:",
        "[[=a=]]",
        "[[=é=]]",
        "[[.a.]]",
        "[[.a.]-c]",
        "[a-[.c.]]",
        "{a,b}",
        "*.[tT][eE][xX]",
        "*.tex",
        "**",
        ".*",
        "[.]*",
        "*[!.]*",
        "日?",
        "[日]?",
        "\u{a0}",
    ] {
        if !compare(directory.path(), &names, pattern) {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any pattern finds what it does there.
    #[test]
    fn patterns_of_any_kind_find_the_same(
        patterns in prop::collection::vec("[ab\\]é*?!^A\\\\-]{0,3}(\\[[!^]?[\\]ab\\-éÉAZ:]{1,4}\\])?[abé*?A]{0,2}", 1..6),
        names in prop::collection::btree_set("[ab\\]éÉ*?!^A\\\\-]{1,4}", 1..40),
    ) {
        let mut names: BTreeSet<Vec<u8>> = names.into_iter().map(String::into_bytes).collect();
        names.insert(b"a\xffb".to_vec());
        let directory = directory_of(&names);
        for pattern in &patterns {
            if !compare(directory.path(), &names, pattern) {
                return Ok(());
            }
        }
    }
}
