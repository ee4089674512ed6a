//! What GNU grep finds in files of UTF-8, of other bytes and of both is found here, too.
use crate::grep::Numbers;
use sheaf_archive::{
    ArchiveError, ArchiveGrep, ArchiveGrepOptions, ArchiveGrepOutput, GrepBinary, GrepEvent,
    GrepPlace, GrepSyntax,
};
use sheaf_testing::program::have;
use sheaf_testing::skipped;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Parts of lines. What is no UTF-8 is of Latin-1, cut off, or never a part of it.
const PARTS: &[&[u8]] = &[
    b"ab",
    b"bar",
    b"f",
    b"fo",
    b"o",
    b"(",
    b")",
    b" ",
    b" ",
    b"-",
    b"_",
    b"1",
    b"k",
    b"S",
    b"\t",
    b"<l",
    b"l",
    b"a{1,",
    b"{",
    b"\xe9",
    b"\xff",
    b"\x80",
    b"\xd7",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xc3\xa9",
    b"\xe2\x82\xac",
    b"\xf0\x9f\x98\x80",
    b"\xc2\xa0",
    b"\xc2\x85",
    b"\xc3\x9f",
];

/// Any byte but of characters that are not counted as letters by all (marks), or are none to all.
fn byte(seeded: &mut Numbers) -> u8 {
    match seeded.below(255) as u8 + 1 {
        0xc4..=0xe1 | 0xe3..=0xf7 => 0xc3,
        byte => byte,
    }
}

/// Files of text, of text with some bytes that are none, of bytes, and with a NUL.
fn make(tree: &Path, seeded: &mut Numbers) {
    for number in 0..60 {
        let mut bytes: Vec<u8> = Vec::new();
        for _ in 0..seeded.below(60) {
            for _ in 0..seeded.below(6) {
                let part = match number % 6 {
                    0 | 1 => seeded.one(PARTS),
                    2 => &[byte(seeded)][..],
                    _ => seeded.one(PARTS),
                };
                let is_text = std::str::from_utf8(part).is_ok();
                if is_text || number % 6 < 3 || (number % 6 == 3 && seeded.is(20)) {
                    bytes.extend_from_slice(part);
                }
            }
            bytes.push(b'\n');
        }
        if number % 10 == 9 {
            bytes.insert(seeded.below(bytes.len() + 1), 0);
        }
        fs::write(tree.join(format!("{number:02}")), bytes).unwrap();
    }
}

const PATTERNS: &[&str] = &[
    "ab",
    "bar",
    "\\bbar",
    "\\<bar",
    "\\Bo",
    "f\\B",
    "o\\>",
    "o\\b",
    "",
    ")",
    "(",
    "f",
    ".",
    "[^a]",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "[[:print:]]",
    "[[:graph:]]",
    "[[:space:]]",
    "[[:punct:]]",
    "[[:alpha:]]",
    "[[:upper:]]",
    "[[:lower:]]",
    "[[:blank:]]",
    "[[:cntrl:]]",
    "^[[:print:]]*$",
    "\\B",
    "^.*\\Bf",
    "k",
    "s",
    "S",
    "i",
    "[k-s]",
    "\u{e9}",
    "\u{df}",
    "\\<",
    "\\>",
    "fo*",
    "a.*r",
    "[^[:space:]]\\B",
    "zz",
    "b",
    "^",
    "$",
    "^$",
    "-",
    "_",
];

const EXTENDED: &[&str] =
    &["(ab|o)", "fo+", "a{1,", "\\b(f|o)+", "(f|)o", "o{2}", "\\w+", "\\B.\\B", "(^|b)ar", "a|k"];

const MAY_BE_EMPTY: &[&[u8]] = &[b"", b"^", b"$", b"^$", b"\\<", b"\\>", b"\\B", b"^[[:print:]]*$"];

const PERL: &[&str] = &[
    "ab",
    "\\<l",
    "l\\>",
    "[[:foo:]]",
    "a**",
    "a{1,",
    "{",
    "a{,3}",
    "[a[b]",
    "[a&&b]",
    "[+--]",
    "[--9]",
    "[\\--9]",
    "o{2}?",
    "\\d+",
    "[\\d-]",
    "fo+",
    "(ab|o)",
    "k",
    "^a",
    "o$",
    "[^a-z]",
    "a{1}{2}",
    "*a",
    "(a",
    "a)",
    "[\\<l]",
    "o{1,2}",
    "\\-",
    "[]a]",
    "x*?",
    "fo??",
    "\\(",
    "[[:punct:]]",
    "[a~~b]",
    "\\x41|b",
    "^*",
    "(|*)",
];

/// Options as they are written, and as they are.
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn options(seeded: &mut Numbers) -> (Vec<String>, ArchiveGrepOptions) {
    let mut is =
        ArchiveGrepOptions { names: true, workers: 2, is_utf8: true, ..Default::default() };
    let (word, syntax, of) = match seeded.below(8) {
        0 => ("-F", GrepSyntax::Fixed, PATTERNS),
        1 | 2 => ("-P", GrepSyntax::Perl, PERL),
        3 => ("-E", GrepSyntax::Extended, EXTENDED),
        4 => ("-E", GrepSyntax::Extended, PATTERNS),
        _ => ("-G", GrepSyntax::Basic, PATTERNS),
    };
    is.syntax = syntax;
    let mut words = vec![word.to_owned()];
    let count = if syntax != GrepSyntax::Perl && seeded.is(25) { 2 } else { 1 };
    for _ in 0..count {
        let pattern = seeded.one(of);
        let pattern = if word == "-E" && "()".contains(pattern) { "[()]" } else { pattern };
        words.extend(["-e".to_owned(), pattern.to_owned()]);
        is.patterns.push(pattern.as_bytes().to_vec());
    }
    let mut flag = |percent: usize, word: &str, is: &mut bool| {
        if seeded.is(percent) {
            words.push(word.to_owned());
            *is = true;
        }
    };
    // Perl's characters are alike in both cases where they are not in the other syntaxes.
    flag(if syntax == GrepSyntax::Perl { 0 } else { 20 }, "-i", &mut is.ignore_case);
    flag(if syntax == GrepSyntax::Perl { 0 } else { 25 }, "-w", &mut is.word);
    if !is.word {
        flag(10, "-x", &mut is.line);
    }
    flag(20, "-v", &mut is.invert);
    flag(30, "-n", &mut is.number);
    if seeded.is(60) {
        words.push("-a".to_owned());
        is.binary = GrepBinary::Text;
    }
    if seeded.is(50) {
        let (word, output) = seeded.one(&[
            ("-c", ArchiveGrepOutput::Count),
            ("-l", ArchiveGrepOutput::PathsWith),
            ("-o", ArchiveGrepOutput::Parts),
            ("-o", ArchiveGrepOutput::Parts),
        ]);
        words.push(word.to_owned());
        is.output = output;
    }
    if seeded.is(15) {
        words.push("-m2".to_owned());
        is.lines_max = Some(2);
    }
    if seeded.is(15) {
        words.push("-A1".to_owned());
        is.after = Some(1);
    }
    if seeded.is(10) {
        words.push("-B2".to_owned());
        is.before = Some(2);
    }
    // To GNU grep bytes may be all but a character with -i, and a character has places within with -w.
    let is_not =
        |start: &str| is.patterns.iter().any(|pattern| pattern.starts_with(start.as_bytes()));
    if is.ignore_case && (is_not("[^") || is_not("\\S") || is_not("\\W")) {
        is.ignore_case = false;
        words.retain(|word| word != "-i");
    }
    if is.word && is.patterns.iter().any(|pattern| MAY_BE_EMPTY.contains(&pattern.as_slice())) {
        is.word = false;
        words.retain(|word| word != "-w");
    }
    // Of this GNU grep shows no number.
    if is.invert && is.patterns.iter().all(Vec::is_empty) {
        is.patterns.push(b"b".to_vec());
        words.extend(["-e".to_owned(), "b".to_owned()]);
    }
    (words, is)
}

/// Both say the same of a tree.
fn is_same(words: &[&str], options: &ArchiveGrepOptions, tree: &Path) {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let different = difference(&theirs(&words, tree), &ours(options, tree));
    assert!(different.is_none(), "{words:?}: {different:?}");
}

/// Options with one pattern.
fn one(pattern: &str) -> ArchiveGrepOptions {
    let patterns = vec![pattern.as_bytes().to_vec()];
    ArchiveGrepOptions { patterns, names: true, workers: 2, is_utf8: true, ..Default::default() }
}

/// Lines, names of binary files and the exit code.
type Found = (Vec<u8>, Vec<u8>, i32);

fn theirs(words: &[String], tree: &Path) -> Found {
    let mut names: Vec<_> =
        fs::read_dir(tree).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut command = Command::new("grep");
    command.args(words).arg("-H").arg("--").args(names).env("LC_ALL", "C.UTF-8");
    let done = command.env_remove("GREP_COLORS").output().unwrap();
    let mut binary = Vec::new();
    for line in done.stderr.split(|&byte| byte == b'\n') {
        if line.ends_with(b": binary file matches") {
            binary.extend_from_slice(&line[b"grep: ".len()..]);
            binary.push(b'\n');
        }
    }
    (done.stdout, binary, done.status.code().unwrap())
}

fn ours(options: &ArchiveGrepOptions, tree: &Path) -> Found {
    let (mut output, mut binary) = (Vec::new(), Vec::new());
    let Ok(grep) = ArchiveGrep::new(options.clone()) else { return (output, binary, 2) };
    let places = [GrepPlace::Local(tree.to_owned())];
    let found = grep.search(&places, &mut |event| -> Result<(), ArchiveError> {
        match event {
            GrepEvent::Output(bytes) => output.extend_from_slice(bytes),
            GrepEvent::Binary(path) => {
                binary.extend_from_slice(path);
                binary.extend_from_slice(b": binary file matches\n");
            }
            GrepEvent::Failed(error) => return Err(error),
            event => panic!("{event:?}"),
        }
        Ok(())
    });
    (output, binary, i32::from(!found.unwrap()))
}

/// What differs first, if anything does.
fn difference(theirs: &Found, ours: &Found) -> Option<String> {
    if theirs == ours {
        return None;
    }
    let parts = |found: &Found| -> Vec<String> {
        let lines = found.0.split(|&byte| byte == b'\n');
        let all = lines.chain(found.1.split(|&byte| byte == b'\n'));
        all.map(|line| line.escape_ascii().to_string()).collect()
    };
    let (left, right) = (parts(theirs), parts(ours));
    let at = left.iter().zip(&right).take_while(|(one, other)| one == other).count();
    let show = |of: &[String]| of.get(at).cloned().unwrap_or_default();
    Some(format!(
        "GNU grep's ({}, {} lines): {:?}; ours ({}, {} lines): {:?}",
        theirs.2,
        left.len(),
        show(&left),
        ours.2,
        right.len(),
        show(&right)
    ))
}

#[test]
fn bytes_that_are_no_characters_are_found_as_by_gnu_grep() {
    if !have("grep") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut seeded = Numbers(0x0bad_b17e_0000_0001);
    make(directory.path(), &mut seeded);
    let (mut selected, mut other) = (0, Vec::new());
    const TIMES: usize = 400;
    for _ in 0..TIMES {
        let (words, options) = options(&mut seeded);
        let theirs = theirs(&words, directory.path());
        selected += usize::from(theirs.0.len() > 10);
        let ours = ours(&options, directory.path());
        other.extend(difference(&theirs, &ours).map(|what| format!("{}: {what}", words.join(" "))));
    }
    assert!(other.is_empty(), "{} of {TIMES}:\n{}", other.len(), other.join("\n"));
    assert!(selected > TIMES / 2, "{selected}");
}

#[test]
fn named_classes_and_cases_are_those_of_gnu_grep() {
    if !have("grep") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Those that are the same in all versions of Unicode that there are now.
    let parts =
        [1..0x250, 0x370..0x378, 0x38e..0x3a2, 0x3a3..0x483, 0x2000..0x2065, 0x20a0..0x20c0];
    let parts = parts.into_iter().chain([0x2100..0x218a, 0x1e00..0x1f00, 0xe000..0xe010]);
    let all: Vec<char> =
        parts.flatten().filter_map(char::from_u32).filter(|&c| c != '\n').collect();
    let text: String = all.iter().map(|c| format!("{:04x} {c}|\n", u32::from(*c))).collect();
    fs::write(directory.path().join("all"), text).unwrap();
    let classes = [
        "alpha", "upper", "lower", "digit", "xdigit", "alnum", "space", "blank", "punct", "print",
        "graph", "cntrl",
    ];
    let named = classes.iter().flat_map(|name| [format!("[[:{name}:]]"), format!("[^[:{name}:]]")]);
    let others = ["\\w", "\\W", "\\s", "\\S", ".", "[^k]"].map(str::to_owned);
    for pattern in named.chain(others).map(|class| format!(" {class}|")) {
        is_same(&["-e", &pattern], &one(&pattern), directory.path());
    }
    let letters = [
        "k",
        "K",
        "s",
        "\u{17f}",
        "i",
        "I",
        "\u{131}",
        "\u{130}",
        "\u{df}",
        "\u{1e9e}",
        "\u{e5}",
        "\u{3b8}",
        "\u{3f4}",
        "\u{3c3}",
        "\u{3c9}",
        "\u{b5}",
        "\u{1c5}",
        "[a-k]",
        "[[:upper:]]",
        "[[:lower:]]",
        "[x\u{3b8}]",
        "[^k]",
        "[^\u{df}]",
    ];
    for pattern in letters.map(|letter| format!(" {letter}|")) {
        let options = ArchiveGrepOptions { ignore_case: true, ..one(&pattern) };
        is_same(&["-i", "-e", &pattern], &options, directory.path());
    }
}

#[test]
fn long_holes_are_not_read_and_all_else_is_found() {
    if !have("grep") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let line = "some words of a line\n".repeat(4000);
    // A hole at the beginning, within and at the end; a terabyte is more than can be read.
    for (name, at, len) in [("a", 1u64 << 40, 0), ("b", 3 << 20, 1 << 40), ("c", 0, 1 << 41)] {
        let file = fs::File::create(directory.path().join(name)).unwrap();
        file.write_all_at(format!("{line}foo at {name}\n{line}bar").as_bytes(), at).unwrap();
        file.write_all_at(b"foo\n", at + (8 << 20)).unwrap();
        if len > at && file.set_len(len).is_err() {
            return skipped("the file system has no files of terabytes");
        }
    }
    let outputs = [
        ("-c", ArchiveGrepOutput::Count),
        ("-l", ArchiveGrepOutput::PathsWith),
        ("-L", ArchiveGrepOutput::PathsWithout),
        ("-q", ArchiveGrepOutput::Quiet),
        ("-n", ArchiveGrepOutput::Lines),
    ];
    for (word, output) in outputs {
        for pattern in ["foo", "foo at b", "^foo$", "none of it"] {
            let options = ArchiveGrepOptions { output, number: word == "-n", ..one(pattern) };
            is_same(&[word, "-e", pattern], &options, directory.path());
        }
    }
    let pattern = "^$\nsome";
    let options =
        ArchiveGrepOptions { invert: true, output: ArchiveGrepOutput::Count, ..one(pattern) };
    is_same(&["-c", "-v", "-e", pattern], &options, directory.path());
}

#[test]
fn words_beside_bytes_that_are_no_characters_are_as_in_gnu_grep() {
    if !have("grep") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut text = Vec::new();
    let bytes: [&[u8]; 8] =
        [b"\xe9", b"\xd7", b"\x80", b"\xff", b"\xe2\x82", b"\xc3\xa9", b"\xe2\x82\xac", b" "];
    for byte in bytes {
        for line in ["ab*", "*ab", "x*bar", "*bar ab", "f*", "*o*", "x*)", "(*", "*", "l * ab * o"]
        {
            let parts: Vec<&[u8]> = line.split('*').map(str::as_bytes).collect();
            text.extend([parts.join(byte), b"\n".to_vec()].concat());
        }
    }
    fs::write(directory.path().join("text"), text).unwrap();
    let patterns =
        ["ab", "\\bbar", "\\<bar", "f\\B", "\\Bo", ")", "o\\>", "\\B)", "l.*o", "zz", "a*b"];
    for pattern in patterns {
        let plain = || ArchiveGrepOptions { number: true, ..one(pattern) };
        let all = || ArchiveGrepOptions { binary: GrepBinary::Text, ..plain() };
        let parts = || ArchiveGrepOptions { output: ArchiveGrepOutput::Parts, ..all() };
        for (flags, options) in [
            (&["-n"][..], plain()),
            (&["-n", "-v"], ArchiveGrepOptions { invert: true, ..plain() }),
            (&["-n", "-a"], all()),
            (&["-n", "-a", "-w"], ArchiveGrepOptions { word: true, ..all() }),
            (&["-n", "-a", "-x"], ArchiveGrepOptions { line: true, ..all() }),
            (&["-n", "-a", "-o"], parts()),
            (&["-n", "-a", "-o", "-w"], ArchiveGrepOptions { word: true, ..parts() }),
        ] {
            is_same(&[flags, &["-e", pattern]].concat(), &options, directory.path());
        }
    }
}
