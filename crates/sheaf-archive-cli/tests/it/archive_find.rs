//! Expressions of `sheaf archive find`, beside those of GNU find: many, which chance makes.
use sheaf_testing::home::Home;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

const NAMES: [&[u8]; 16] = [
    b"a",
    b"b.tex",
    b"B.TEX",
    b".hidden",
    b" ",
    b"-rf",
    b"a\nb",
    b"\xff\xfe",
    b"[odd]*",
    b"tab\t\"\\",
    "é".as_bytes(),
    "É日本".as_bytes(),
    b"12",
    b"x.c",
    b"x.h",
    b"%s",
];

/// How often chance is asked.
fn times(default: u64) -> u64 {
    std::env::var("SHEAF_FIND_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(default)
}

/// A tree of odd files, in which all is older than what is compared with now may be.
fn make_tree(tree: &Path, random: &mut fastrand::Rng) {
    fs::create_dir(tree).unwrap();
    let mut directories = vec![tree.to_owned()];
    for number in 0..90_u64 {
        let above = random.choice(&directories).unwrap().clone();
        let mut name = random.choice(&NAMES).unwrap().to_vec();
        if random.bool() {
            name.extend_from_slice(number.to_string().as_bytes());
        }
        let path = above.join(OsStr::from_bytes(&name));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match random.u8(0..9) {
            0 | 1 => {
                fs::create_dir(&path).unwrap();
                directories.push(path);
                continue;
            }
            2 => {
                symlink(random.choice(["a", "none", "/", "..", "b.tex/x"]).unwrap(), &path).unwrap()
            }
            3 => symlink(OsStr::from_bytes(&name), &path).unwrap(),
            4 => assert!(Command::new("mkfifo").arg("--").arg(&path).status().unwrap().success()),
            5 => {
                let file = directories[0].join("twice");
                fs::write(&file, "twice").unwrap();
                fs::hard_link(&file, &path).unwrap();
            }
            _ => fs::write(&path, vec![b'x'; random.usize(0..5) * random.usize(0..3000)]).unwrap(),
        }
        if path.symlink_metadata().unwrap().is_file() {
            let mode =
                random.u32(0..0o1000) | random.choice([0, 0, 0o4000, 0o2000, 0o1000]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let age = Duration::from_millis(random.u64(0..900_000_000));
            let file = fs::File::open(&path);
            let changed = file.map(|file| file.set_modified(SystemTime::now() - age));
            assert!(changed.is_ok_and(|changed| changed.is_ok()) || !is_root());
        }
    }
    for directory in &directories[1..] {
        let mode = random.choice([0o755, 0o700, 0o1777, 0o2750]).unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Reads directories until that is no access that the system notes: it does where the last one was no
/// later than the last change.
fn settle(home: &Home, tree: &Path) {
    let is_noted = |directory: &Path| {
        let found = fs::metadata(directory).unwrap();
        let changed = (found.ctime(), found.ctime_nsec());
        (found.atime(), found.atime_nsec()) <= changed
    };
    for _ in 0..1000 {
        let all = gnu(home, "tree", &["-type", "d", "-print0"].map(str::to_owned)).stdout;
        let mut names = all.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let above = tree.parent().unwrap();
        if !names.any(|name| is_noted(&above.join(OsStr::from_bytes(name)))) {
            return;
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where something is found, and what is known there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Local,
    Archived,
    /// Files are removed, which changes what is known of others.
    Removed,
}

/// Makes expressions.
struct Words<'a> {
    random: &'a mut fastrand::Rng,
    tree: &'a Path,
    place: Where,
}

impl Words<'_> {
    fn pick(&mut self, of: &[&str]) -> String {
        (*self.random.choice(of).unwrap()).to_owned()
    }

    fn number(&mut self, max: u32) -> String {
        format!("{}{}", self.pick(&["", "+", "-"]), self.random.u32(0..max))
    }

    /// What is younger than no day was changed within this second, or to come: GNU find's clock is not
    /// ours.
    fn days(&mut self, max: u32) -> String {
        format!("{}{}", self.pick(&["", "+", "-"]), self.random.u32(1..max))
    }

    fn expression(&mut self, depth: u32) -> Vec<String> {
        if depth == 0 {
            return if self.random.u8(0..5) == 0 { self.action() } else { self.test() };
        }
        let mut one = self.expression(depth - 1);
        match self.random.u8(0..10) {
            0 => one.insert(0, self.pick(&["!", "-not"])),
            1..=4 => {
                one.extend(
                    ["-a"].iter().filter(|_| self.random.bool()).map(|and| (*and).to_owned()),
                );
                one.extend(self.expression(depth - 1));
            }
            5..=7 => {
                one.push(self.pick(&["-o", "-or"]));
                one.extend(self.expression(depth - 1));
            }
            _ => {}
        }
        [vec!["(".to_owned()], one, vec![")".to_owned()]].concat()
    }

    fn test(&mut self) -> Vec<String> {
        let pattern =
            ["*", "a*", "?", "*.[a-z]*", "[!a-z]*", "*\\**", "*é*", "*[[:upper:]]*", "*\n*", ".*"];
        let file = |words: &Self| format!("{}/twice", words.tree.display());
        let own = self.place == Where::Local;
        match self.random.u8(0..if own { 23 } else { 15 }) {
            0 => vec![self.pick(&["-name", "-iname"]), self.pick(&pattern)],
            1 => vec![
                self.pick(&["-path", "-ipath", "-wholename"]),
                format!("*tree/{}", self.pick(&pattern)),
            ],
            2 => vec![
                "-path".to_owned(),
                self.pick(&["*/a/*", "*tree/[!.]*/*x*", "*tree", "*/B*.TEX*", "*hidden*/*"]),
            ],
            3 | 4 => vec![
                self.pick(&["-regex", "-iregex"]),
                self.pick(&[
                    ".*/a",
                    ".*[0-9]{2}",
                    ".*(tex|c|h)[0-9]*",
                    "[^.]*",
                    ".*/[^/]*é.*",
                    ".*/b+\\.tex.*",
                    ".*\\.(T|x)?.*",
                    ".*\n.*",
                    ".*tree/(.*/)?[[:upper:]].*",
                    "/?tree.*",
                    ".*/\\w+",
                ]),
            ],
            5 => vec!["-type".to_owned(), self.pick(&["f", "d", "l", "p", "f,l", "d,p"])],
            6 => {
                let unit = self.pick(&["c", "w", "b", "k", "M", ""]);
                let size = vec!["-size".to_owned(), format!("{}{unit}", self.number(6))];
                let files = ["(", "-type", "f"].map(str::to_owned).to_vec();
                [files, size, vec![")".to_owned()]].concat()
            }
            7 => vec!["-mtime".to_owned(), self.days(12)],
            8 => vec!["-newer".to_owned(), file(self)],
            9 | 10 => {
                let modes = [
                    "644", "-200", "/111", "-u+x", "/u=w,g=w", "u=rw", "-4000", "/u+s", "-a+rX",
                    "g=u", "-o=r,u+w", "/000", "-000", "/g+s,o+t", "a=rx,u+w", "-+x", "/ug=x",
                ];
                vec!["-perm".to_owned(), self.pick(&modes)]
            }
            11 => vec![self.pick(&["-true", "-false"])],
            12 => vec![self.pick(&["-uid", "-gid"]), self.number(2)],
            13 => vec!["-empty".to_owned()],
            14 => vec!["-newermt".to_owned(), self.pick(&["2020-01-31", "2199-01-01"])],
            15 => vec!["-links".to_owned(), self.number(5)],
            16 => vec![self.pick(&["-ctime", "-atime"]), self.days(3)],
            17 => vec![self.pick(&["-cmin", "-amin", "-mmin"]), self.pick(&["-600", "+600"])],
            18 => {
                let other = self.pick(&["a", "c", "m"]);
                vec![format!("-newer{}{other}", self.pick(&["a", "c", "m"])), file(self)]
            }
            19 => vec![self.pick(&["-anewer", "-cnewer"]), file(self)],
            20 => vec![format!("-newer{}t", self.pick(&["a", "c"])), "2020-01-31".to_owned()],
            21 => {
                let inode = fs::metadata(self.tree).unwrap().ino();
                vec!["-inum".to_owned(), format!("{}{inode}", self.pick(&["", "+", "-"]))]
            }
            _ => vec!["-size".to_owned(), self.number(10)],
        }
    }

    fn action(&mut self) -> Vec<String> {
        match self.random.u8(0..8) {
            0 | 1 => vec!["-print0".to_owned()],
            2 => vec!["-print".to_owned()],
            3 | 4 if self.place != Where::Removed => vec!["-prune".to_owned()],
            _ => vec!["-printf".to_owned(), self.format()],
        }
    }

    fn format(&mut self) -> String {
        let mut format = String::new();
        for _ in 0..self.random.u8(1..4) {
            format += &self.pick(&["", "x", "é", "\\t", "\\101", "\\1018", "%%", "\\\\", "\\0"]);
            format += &self.directive();
        }
        format + &self.pick(&["\\n", "\\0", "\\n\\c ignored", "\\012"])
    }

    fn directive(&mut self) -> String {
        let known = ["p", "P", "f", "h", "H", "m", "M", "u", "U", "g", "G", "y", "d", "l", "t"];
        let more = ["Y", "i", "n", "b", "k", "D", "a", "c", "s"];
        let place = self.place;
        let what = match self.random.u8(0..4) {
            0 => format!("T{}", self.letter()),
            1 if place == Where::Local => format!("{}{}", self.pick(&["A", "C"]), self.letter()),
            2 if place == Where::Local => self.pick(&more),
            _ => self.pick(&known),
        };
        let mut directive = "%".to_owned();
        // Before an archived path stands its store, which is as wide as it is.
        if place != Where::Archived || !matches!(&*what, "p" | "h" | "H") {
            directive += &self.pick(&["", "", "-", "0", "#", "+", "-0", " "]);
            directive += &self.pick(&["", "", "1", "3", "12", "30"]);
            directive += &self.pick(&["", "", "", ".1", ".4", ".20"]);
        }
        directive + &what
    }

    fn letter(&mut self) -> String {
        let letters = "@+aAbBcdDeFgGhHIjklmMpPrRsSTuUVwWxXyYzZ";
        char::from(*self.random.choice(letters.as_bytes()).unwrap()).to_string()
    }

    /// What says how to search.
    fn whole(&mut self) -> Vec<String> {
        let mut words = vec!["-regextype".to_owned(), "posix-extended".to_owned()];
        if self.random.u8(0..4) == 0 {
            words.push("-depth".to_owned());
        }
        if self.random.u8(0..6) == 0 {
            words.push(self.pick(&["-xdev", "-mount"]));
        }
        if self.place == Where::Archived {
            // Above where it begins is the root there, and no directory here.
            words.extend(["-mindepth", "1"].map(str::to_owned));
        }
        for depth in ["-maxdepth", "-mindepth"] {
            if depth == "-mindepth" && self.place == Where::Archived {
                continue;
            }
            if self.random.u8(0..5) == 0 {
                words.extend([depth.to_owned(), self.random.u8(0..4).to_string()]);
            }
        }
        words
    }
}

fn gnu(home: &Home, start: &str, words: &[String]) -> Output {
    gnu_in(home.path(), start, words)
}

fn gnu_in(directory: &Path, start: &str, words: &[String]) -> Output {
    let mut find = Command::new("find");
    find.arg(start).args(words).current_dir(directory);
    find.env("LC_ALL", "C.UTF-8").env("TZ", "Europe/Berlin").output().unwrap()
}

fn own(home: &Home, start: &str, words: &[String]) -> Output {
    own_in(home, home.path(), start, words)
}

fn own_in(home: &Home, directory: &Path, start: &str, words: &[String]) -> Output {
    let words = words.iter().map(String::as_str);
    let words: Vec<&str> = ["archive", "find", start].into_iter().chain(words).collect();
    let mut command = home.command(&words);
    command.current_dir(directory).env("TZ", "Europe/Berlin").output().unwrap()
}

/// What ends with a line or a NUL, in an order of its own.
fn parts(text: &[u8]) -> Vec<String> {
    let ends = |byte: &u8| matches!(byte, b'\n' | 0);
    let parts = text.split_inclusive(ends);
    let mut parts: Vec<_> = parts.map(|part| part.escape_ascii().to_string()).collect();
    parts.sort();
    parts
}

/// The text with one thing instead of another.
fn replaced(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let (mut rest, mut all) = (text, Vec::new());
    while let Some(at) = rest.windows(what.len()).position(|part| part == what) {
        all.extend_from_slice(&rest[..at]);
        all.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    [&all, rest].concat()
}

#[test]
fn any_expression_finds_here_what_gnu_find_finds() {
    for seed in 0..3 {
        let (home, mut random) = (Home::new(), fastrand::Rng::with_seed(seed));
        let tree = home.path().join("tree");
        make_tree(&tree, &mut random);
        settle(&home, &tree);
        for _ in 0..times(120) {
            let mut words = Words { random: &mut random, tree: &tree, place: Where::Local };
            let (whole, depth) = (words.whole(), words.random.u32(0..4));
            let words = [whole, words.expression(depth)].concat();
            let start = random.choice(["tree", "tree/", "./tree"]).unwrap();
            let (ours, theirs) = (own(&home, start, &words), gnu(&home, start, &words));
            assert!(theirs.status.success(), "{words:?} {theirs:?}");
            assert!(ours.status.success() && ours.stderr.is_empty(), "{seed} {words:?} {ours:?}");
            assert_eq!(parts(&ours.stdout), parts(&theirs.stdout), "{seed} {start} {words:?}");
        }
    }
}

#[test]
fn archive_find_finds_what_gnu_find_finds_in_the_tree() {
    for seed in 10..12 {
        let (home, mut random) = (Home::new(), fastrand::Rng::with_seed(seed));
        let tree = home.path().join("tree");
        make_tree(&tree, &mut random);
        let stored = home.run(&["archive", "store", "--create", "tree", "s::"]);
        assert_eq!(stored.code, Some(0), "{stored:?}");
        for _ in 0..times(120) {
            let mut words = Words { random: &mut random, tree: &tree, place: Where::Archived };
            let (whole, depth) = (words.whole(), words.random.u32(0..4));
            let words = [whole, words.expression(depth)].concat();
            let (ours, theirs) = (own(&home, "s::tree", &words), gnu(&home, "tree", &words));
            assert!(theirs.status.success(), "{words:?} {theirs:?}");
            assert!(ours.status.success() && ours.stderr.is_empty(), "{words:?} {ours:?}");
            let (ours, theirs) = (replaced(&ours.stdout, b"s::/", b""), theirs.stdout);
            assert_eq!(parts(&ours), parts(&theirs), "{seed} {words:?}");
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn search_ends_where_it_is_told_to() {
    let (home, mut random) = (Home::new(), fastrand::Rng::with_seed(5));
    make_tree(&home.path().join("tree"), &mut random);
    fs::create_dir_all(home.path().join("tree/zz/below")).unwrap();
    fs::write(home.path().join("tree/zz/below/last"), "").unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    for (start, before) in [("tree", ""), ("s::tree", "s::/")] {
        let found = |text: &str| {
            let run = own(&home, start, &words(text));
            assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
            String::from_utf8(run.stdout).unwrap()
        };
        assert_eq!(found("-name below -print -quit"), format!("{before}tree/zz/below\n"));
        assert_eq!(found("-quit"), "");
        assert_eq!(found("-printf 1 -quit -printf 2 -o -printf 3"), "1");
        assert_eq!(found("( -printf 1 , -quit , -printf 2 ) , -printf 3"), "1");
        assert_eq!(found("-depth -path *zz* -printf %f,"), "last,below,zz,");
        let one = found("-path *zz* -depth -printf %f, -quit");
        assert_eq!(one, "last,");
        let pruned = found("-name zz -prune -printf %P%y");
        assert_eq!(pruned, "zzd");
        // The value of what stands behind a comma counts.
        assert_eq!(found("-type d , -name last"), format!("{before}tree/zz/below/last\n"));
    }
    // Only what comes before the end is removed.
    let run = own(&home, "tree", &words("-path *zz* -delete -printf %f, -quit"));
    assert_eq!(String::from_utf8_lossy(&run.stdout), "last,");
    assert!(home.path().join("tree/zz/below").exists());
}

#[test]
fn find_reports_unsupported_expressions() {
    let home = Home::new();
    fs::create_dir(home.path().join("tree")).unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    for (start, text, error) in [
        ("tree", "-printf %q", "-printf: %q is no directive that is known"),
        ("tree", "-printf a\\q", "-printf: \\q is no escape that is known"),
        ("tree", "-printf %", "-printf: a % stands at the end"),
        ("tree", "-printf %5000p", "-printf: %5000 is wider than 4096"),
        ("tree", "-execdir ls", "-execdir: find runs no programs here; -print0 | xargs -0 does"),
        (
            "tree",
            "-regextype emacs",
            "-regextype emacs: it takes posix-extended or posix-basic, ed and sed; others are not \
             known here",
        ),
        ("s::tree", "-ctime 1", "-ctime: that is not archived"),
        ("s::tree", "-printf %p%-5i", "-printf %-5i: that is not archived"),
        ("s::tree", "-newerma x", "-newerma x: it takes a file that is there"),
        (
            "s::tree",
            "-delete",
            "-delete: what is archived is removed by find … -print0 | xargs -0 sheaf archive rm",
        ),
        (
            "@all:/tree",
            "-delete",
            "-delete: not on hosts; sheaf archive rm removes there what it is given",
        ),
    ] {
        let run = own(&home, start, &words(text));
        assert_eq!(run.status.code(), Some(2), "{text} {run:?}");
        assert_eq!(String::from_utf8_lossy(&run.stderr), format!("sheaf: {error}\n"));
    }
}

#[test]
fn nothing_is_removed_through_a_link_or_of_a_store() {
    let home = Home::new();
    for directory in ["tree/in", "other"] {
        fs::create_dir_all(home.path().join(directory)).unwrap();
        fs::write(home.path().join(directory).join("file"), "").unwrap();
    }
    symlink("../other", home.path().join("tree/link")).unwrap();
    home.run(&["archive", "store", "--create", "tree", "s::"]);
    let refused = own(&home, "s", &words("-delete"));
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(home.path().join("s/objects").exists());
    let kept = own(&home, "tree", &words("-type d -delete"));
    assert_eq!(kept.status.code(), Some(4), "{kept:?}");
    assert!(String::from_utf8_lossy(&kept.stderr).contains("tree/in: cannot be removed: "));
    assert!(home.path().join("tree/in/file").exists());
    assert!(own(&home, "tree", &words("-delete")).status.success());
    assert!(!home.path().join("tree").exists());
    assert!(home.path().join("other/file").exists());
}

/// What is in a directory.
fn left(home: &Home, name: &str) -> Vec<String> {
    parts(&gnu(home, name, &["-printf".to_owned(), "%P %y %m\\0".to_owned()]).stdout)
}

#[test]
fn find_delete_removes_the_same_files_as_gnu_find() {
    let (home, mut random) = (Home::new(), fastrand::Rng::with_seed(77));
    let tree = home.path().join("tree");
    make_tree(&tree, &mut random);
    let all = left(&home, "tree").len();
    let mut partly = 0;
    for _ in 0..times(60) {
        for copy in ["ours/tree", "theirs/tree"] {
            let copy = home.path().join(copy);
            let _ = fs::remove_dir_all(copy.parent().unwrap());
            fs::create_dir(copy.parent().unwrap()).unwrap();
            let mut cp = Command::new("cp");
            assert!(cp.args(["-a", "--"]).args([&tree, &copy]).status().unwrap().success());
        }
        let mut words = Words { random: &mut random, tree: &tree, place: Where::Removed };
        let (whole, depth) = (words.whole(), words.random.u32(0..3));
        let mut words = [whole, words.expression(depth)].concat();
        words.extend(["-delete", "-printf", "%P %d\\0"].map(str::to_owned));
        let ours = own_in(&home, &home.path().join("ours"), "tree", &words);
        let theirs = gnu_in(&home.path().join("theirs"), "tree", &words);
        assert_eq!(ours.status.success(), theirs.status.success(), "{words:?} {ours:?} {theirs:?}");
        assert_eq!(parts(&ours.stdout), parts(&theirs.stdout), "{words:?}");
        let (ours, theirs) = (left(&home, "ours"), left(&home, "theirs"));
        assert_eq!(ours, theirs, "{words:?}");
        partly += u32::from((2..all).contains(&ours.len()));
    }
    assert!(partly > 5, "{partly}");
}

/// GNU find counts minutes otherwise than days.
#[test]
fn ages_in_minutes_are_those_of_gnu_find() {
    let home = Home::new();
    fs::create_dir(home.path().join("tree")).unwrap();
    let now = SystemTime::now();
    for seconds in [5, 30, 90, 100, 150, 3630, 86_000, 90_000] {
        let path = home.path().join("tree").join(seconds.to_string());
        fs::write(&path, "").unwrap();
        let time = now - Duration::from_secs(seconds);
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
    }
    for test in ["-mmin", "-mtime"] {
        for number in ["0", "1", "2", "3", "61"] {
            for sign in ["", "+", "-"] {
                let words = words(&format!("-type f {test} {sign}{number}"));
                let (ours, theirs) = (own(&home, "tree", &words), gnu(&home, "tree", &words));
                let sorted = |text: Vec<u8>| {
                    let text = String::from_utf8(text).unwrap();
                    text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
                };
                assert_eq!(sorted(ours.stdout), sorted(theirs.stdout), "{words:?}");
            }
        }
    }
}
