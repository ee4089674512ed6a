//! What GNU grep says of a tree, the archive's grep says of it, and of what is stored of it.
use crate::round::Place;
use sheaf_archive::{
    ArchiveError, ArchiveGrep, ArchiveGrepOptions, ArchiveGrepOutput, ArchivePath, GrepBinary,
    GrepEvent, GrepPlace, GrepSyntax, SaveOptions, remove, save,
};
use sheaf_testing::program::have;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Numbers that look random, and are always the same.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub fn is(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

const WORDS: &[&str] = &[
    "alpha",
    "beta",
    "Alpha",
    "a",
    "ab",
    "abc",
    "x_y",
    "foo",
    "foo bar",
    "",
    " ",
    "a.b",
    "$5",
    "(x)",
    "12",
    "127.0.0.1",
    "\u{e9}t\u{e9}",
    "-e",
    "tab\there",
    "a{1",
    "*",
    "\\",
    "^",
    "]",
];

fn content(numbers: &mut Numbers, lines: usize) -> Vec<u8> {
    let mut content = Vec::new();
    for _ in 0..lines {
        for _ in 0..numbers.below(5) {
            content.extend_from_slice(numbers.one(WORDS).as_bytes());
            content.extend_from_slice(numbers.one(&[" ", "", "-", "x"]).as_bytes());
        }
        if numbers.is(2) {
            content.push(numbers.one(&[0xff, 0xc3, 0x80]));
        }
        content.push(b'\n');
    }
    content
}

/// Files of all sizes, some without an end of their last line, some with a NUL.
fn make(tree: &Path, numbers: &mut Numbers) {
    let directories = ["", "a", "a/sub", "a!", "b", "b/.hidden", "z/deep/er"];
    for directory in directories {
        fs::create_dir_all(tree.join(directory)).unwrap();
        for number in 0..numbers.below(14) {
            let lines = numbers.below(12);
            let mut bytes = content(numbers, lines);
            if numbers.is(20) {
                bytes.pop();
            }
            if numbers.is(12) {
                let at = numbers.below(bytes.len() + 1);
                let at = if numbers.is(20) { bytes.len() } else { at };
                bytes.insert(at, 0);
            }
            // Those of whole blocks have no room behind them.
            if numbers.is(10) {
                bytes.resize(bytes.len().next_multiple_of(512), b'a');
            }
            let name = numbers.one(&["file", "a", "M", "text.txt", "log.c"]);
            fs::write(tree.join(directory).join(format!("{name}{number}")), bytes).unwrap();
        }
    }
    let mut large = content(numbers, 20_000);
    fs::write(tree.join("b/large"), &large).unwrap();
    let at = large.iter().rposition(|&byte| byte == b'\n').unwrap() / 2;
    large[at] = 0;
    fs::write(tree.join("a/sub/large"), &large).unwrap();
    large.truncate(150_000);
    fs::write(tree.join("middle"), &large).unwrap();
    fs::write(tree.join("late"), [content(numbers, 12_000), b"a\0b\nfoo\nalpha".to_vec()].concat())
        .unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    let sparse = fs::File::create(tree.join("b/sparse")).unwrap();
    sparse.write_all_at(b"foo\nalpha beta\n", 0).unwrap();
    sparse.write_all_at(b"foo bar\nabc", 200_000).unwrap();
    sparse.set_len(300_000).unwrap();
    fs::hard_link(tree.join("middle"), tree.join("other")).unwrap();
    symlink("middle", tree.join("a/link")).unwrap();
}

/// All files in serial order.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

const PATTERNS: &[&str] = &[
    "alpha",
    "a",
    "foo bar",
    "^a",
    "a$",
    "^$",
    "a.b",
    "a\\.b",
    "[[:digit:]]",
    "[^a-z ]",
    "a*",
    "ab*c",
    "\\<a",
    "a\\>",
    "\\bfoo\\b",
    "x_y",
    "$5",
    "(x)",
    "\\(x\\)",
    "a\\{2,3\\}",
    "(ab|abc)",
    "a|b",
    "alpha\\|beta",
    "foo.*bar",
    "nothing at all",
    "zzz",
    "[]]",
    "\\w\\w*",
    "\\W",
    "é",
    "t.t",
    "",
    "a+",
    "127.0.0",
    "-e",
    "^*",
    "*",
    "a{1",
    "a{1,2}",
    "[A-Z]",
    "(a|ab)(c|bcd)?",
    "\\s$",
    "x\\?y",
    "\\(foo\\|a\\)\\+",
    "alpha\nbeta",
    "..",
    "b.",
    "\\.",
    "^.\\{0,3\\}$",
    "[[:upper:]][a-z]*",
    "[[:space:]]foo",
    "(^| )a",
    "a\\B",
    "a**",
    "\\(^a\\)",
    "b-a",
];

/// Patterns that are wrong, or are so to some; GNU grep joins them with others as texts.
const ODD_PATTERNS: &[&str] =
    &["(", ")", "[a", "[b-a]", "x\\", "a\\{1", "a\\{2,1\\}", "[[:none:]]", "[:alpha:]"];

/// Options as they are written, and as they are.
fn options(numbers: &mut Numbers) -> (Vec<String>, ArchiveGrepOptions) {
    let mut is = ArchiveGrepOptions { names: true, workers: 3, ..ArchiveGrepOptions::default() };
    let mut words: Vec<String>;
    (words, is.syntax) = match numbers.below(4) {
        0 => (vec!["-E".to_owned()], GrepSyntax::Extended),
        1 => (vec!["-F".to_owned()], GrepSyntax::Fixed),
        _ => (vec![], GrepSyntax::Basic),
    };
    for _ in 0..1 + numbers.below(2) * numbers.below(3) {
        let pattern = numbers.one(PATTERNS);
        words.extend(["-e".to_owned(), pattern.to_owned()]);
        is.patterns.push(pattern.as_bytes().to_vec());
    }
    let is_odd = numbers.is(6);
    if is_odd {
        let pattern = numbers.one(ODD_PATTERNS);
        words.truncate(usize::from(is.syntax != GrepSyntax::Basic));
        words.extend(["-e".to_owned(), pattern.to_owned()]);
        is.patterns = vec![pattern.as_bytes().to_vec()];
    }
    let mut flag = |percent: usize, word: &str, is: &mut bool| {
        if numbers.is(percent) {
            words.push(word.to_owned());
            *is = true;
        }
    };
    flag(20, "-i", &mut is.ignore_case);
    if !is_odd {
        flag(15, "-w", &mut is.word);
        flag(10, "-x", &mut is.line);
    }
    flag(20, "-v", &mut is.invert);
    flag(40, "-n", &mut is.number);
    flag(20, "--color=always", &mut is.color);
    flag(8, "-Z", &mut is.nul);
    // With all three, GNU grep colours the end of the line, too.
    if is.word && is.line && is.color {
        words.retain(|word| word != "-w");
        is.word = false;
    }
    if numbers.is(30) {
        let (word, binary) = numbers.one(&[("-a", GrepBinary::Text), ("-I", GrepBinary::Without)]);
        words.push(word.to_owned());
        is.binary = binary;
    }
    if numbers.is(40) {
        let (word, output) = numbers.one(&[
            ("-c", ArchiveGrepOutput::Count),
            ("-l", ArchiveGrepOutput::PathsWith),
            ("-L", ArchiveGrepOutput::PathsWithout),
            ("-o", ArchiveGrepOutput::Parts),
            ("-o", ArchiveGrepOutput::Parts),
        ]);
        words.push(word.to_owned());
        is.output = output;
    }
    if numbers.is(15) {
        let max = 1 + numbers.below(3);
        words.push(format!("-m{max}"));
        is.lines_max = Some(max as u64);
    }
    for (letter, lines) in [("-A", &mut is.after), ("-B", &mut is.before)] {
        if numbers.is(20) {
            let count = numbers.below(4);
            words.push(format!("{letter}{count}"));
            *lines = Some(count as u32);
        }
    }
    (words, is)
}

struct Said {
    output: Vec<u8>,
    binary: Vec<u8>,
    code: i32,
}

fn theirs(words: &[String], files: &[PathBuf]) -> Said {
    let mut command = Command::new("grep");
    command
        .args(words)
        .arg("-H")
        .arg("--")
        .args(files)
        .env("LC_ALL", "C")
        .env_remove("GREP_COLORS");
    let done = command.output().unwrap();
    let is_binary = |line: &&[u8]| line.ends_with(b": binary file matches");
    let said: Vec<&[u8]> = done.stderr.split(|&byte| byte == b'\n').filter(is_binary).collect();
    Said { output: done.stdout, binary: said.join(&b'\n'), code: done.status.code().unwrap() }
}

fn ours(options: ArchiveGrepOptions, place: GrepPlace<'_>) -> Said {
    let mut said = Said { output: Vec::new(), binary: Vec::new(), code: 2 };
    let Ok(grep) = ArchiveGrep::new(options) else { return said };
    let (output, binary) = (&mut said.output, &mut said.binary);
    let found = grep.search(&[place], &mut |event| -> Result<(), ArchiveError> {
        match event {
            GrepEvent::Output(bytes) => output.extend_from_slice(bytes),
            GrepEvent::Binary(path) => {
                let between: &[u8] = if binary.is_empty() { b"" } else { b"\n" };
                binary.extend(
                    [between, b"grep: ", path, b": binary file matches"].concat().iter().copied(),
                );
            }
            GrepEvent::Failed(error) => return Err(error),
            _ => {}
        }
        Ok(())
    });
    said.code = i32::from(!found.unwrap());
    said
}

fn archived(path: &Path) -> ArchivePath {
    ArchivePath::new(path.as_os_str().as_bytes()).unwrap()
}

/// Stores the tree under its own path.
fn store(place: &Place, options: SaveOptions) {
    let to = archived(place.directory.path());
    save(&place.archive, &[place.path("tree")], &to, options, &|event| panic!("{event:?}"))
        .unwrap();
}

fn is_theirs(words: &[String], theirs: &Said, ours: &Said) {
    let show = |bytes: &[u8], other: &[u8]| {
        let at = bytes.iter().zip(other).take_while(|(one, other)| one == other).count();
        let from = at.saturating_sub(200);
        String::from_utf8_lossy(&bytes[from..bytes.len().min(at + 200)]).into_owned()
    };
    assert!(
        ours.output == theirs.output,
        "{words:?}\n--- ours\n{}\n--- GNU grep's\n{}\n",
        show(&ours.output, &theirs.output),
        show(&theirs.output, &ours.output),
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&ours.binary), text(&theirs.binary), "{words:?}");
    assert_eq!(ours.code, theirs.code, "{words:?}");
}

fn compare(place: &Place, numbers: &mut Numbers, times: usize) {
    let mut all = Vec::new();
    files(&place.path("tree"), &mut all);
    let (mut selected, mut wrong) = (0, 0);
    for _ in 0..times {
        let (words, options) = options(numbers);
        let theirs = theirs(&words, &all);
        selected += usize::from(theirs.code == 0);
        wrong += usize::from(theirs.code == 2);
        let tree = place.path("tree");
        let archive = GrepPlace::Archived(&place.archive, archived(&tree));
        is_theirs(&words, &theirs, &ours(options.clone(), archive));
        is_theirs(&words, &theirs, &ours(options, GrepPlace::Local(tree)));
    }
    assert!(selected > times / 3 && wrong > times / 100, "{selected} {wrong} of {times}");
}

#[test]
fn archive_grep_prints_the_same_as_gnu_grep() {
    if !have("grep") {
        return;
    }
    let mut numbers = Numbers(0x5eed_1234_9876_0001);
    for (pack_bytes, zstd) in [(4096, None), (64 << 20, Some(1))] {
        let place = Place::new();
        make(&place.path("tree"), &mut numbers);
        let packed = SaveOptions { pack_bytes, zstd, ..SaveOptions::default() };
        store(&place, packed);
        compare(&place, &mut numbers, 150);
        // Packs with dead members, and several of one range of names.
        let mut all = Vec::new();
        files(&place.path("tree"), &mut all);
        for file in all {
            if numbers.is(25) {
                fs::remove_file(&file).unwrap();
                remove(&place.archive, &archived(&file)).unwrap();
            } else if numbers.is(25) {
                let lines = numbers.below(20);
                fs::write(&file, content(&mut numbers, lines)).unwrap();
            }
        }
        store(&place, packed);
        compare(&place, &mut numbers, 100);
    }
}

#[test]
fn damaged_member_is_reported_and_the_rest_is_searched() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir_all(&tree).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(tree.join(name), format!("alpha of {name}\n")).unwrap();
    }
    store(&place, SaveOptions::default());
    let mut packs = Vec::new();
    files(&place.path("store/objects/packs"), &mut packs);
    let tar = packs.iter().find(|path| path.extension().is_some_and(|end| end == "tar")).unwrap();
    let mut bytes = fs::read(tar).unwrap();
    let at = bytes.windows(10).position(|ten| ten == b"alpha of b").unwrap();
    bytes[at + 6] ^= 1;
    fs::set_permissions(tar, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    fs::write(tar, bytes).unwrap();
    let options = ArchiveGrepOptions { patterns: vec![b"alpha".to_vec()], ..Default::default() };
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let grep = ArchiveGrep::new(options).unwrap();
    let paths = [GrepPlace::Archived(&place.archive, archived(&tree))];
    let found = grep.search(&paths, &mut |event| -> Result<(), ArchiveError> {
        match event {
            GrepEvent::Output(bytes) => output.extend_from_slice(bytes),
            GrepEvent::Failed(error) => errors.push(error.to_string()),
            event => panic!("{event:?}"),
        }
        Ok(())
    });
    assert!(found.unwrap());
    assert_eq!(String::from_utf8(output).unwrap(), "alpha of a\nalpha of c\n");
    let path = archived(&tree.join("b"));
    assert_eq!(errors, [format!("{path}: its content is damaged in the store (checksum)")]);
}
