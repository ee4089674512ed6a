//! Files and patterns that cannot be meant, asked of servers that run: one clear line each.
use rustix::fs::{CWD, FileType, Mode, mknodat};
use sheaf_testing::home::Home;
use std::os::unix::fs::{MetadataExt, symlink};

fn home() -> Home {
    let home = Home::new();
    home.write("export/file", "one\ntwo\n");
    let at = |name: &str| home.path().join("export").join(name);
    std::fs::create_dir(at("directory")).unwrap();
    // Taken within the export, these lead nowhere.
    symlink("../../../../etc/passwd", at("upwards")).unwrap();
    symlink("/etc/passwd", at("absolute")).unwrap();
    symlink("/file", at("within")).unwrap();
    home
}

/// The lines on standard error and the exit code.
fn told(home: &Home, args: &[&str]) -> String {
    let export = home.path().join("export");
    let run =
        home.run(&[&["--embedded", "4", "--export", export.to_str().unwrap()], args].concat());
    assert_eq!(run.stdout, "", "{args:?}");
    format!("{} {}\n{}", run.code.unwrap(), args.join(" "), run.stderr)
}

/// Tokens replace regular files alone; nothing is started, nor a token made, where they cannot go.
#[test]
fn token_output_replaces_only_regular_files() {
    let config = "[cluster.pods]\nhosts = \"n1\"\nlaunch = \"attach\"\nlisten = \"127.0.0.1:0\"\n";
    let home = Home::with_config(config);
    let at = |name: &str| home.path().join(name);
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    home.write("file", "kept\n");
    symlink("file", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    let refused = |command: &[&str], place: &str, what: &str| {
        let before = std::fs::symlink_metadata(at(place)).unwrap().ino();
        let run = home.run(&[command, &[place]].concat());
        let told =
            format!("sheaf: {place}: it is {what}: tokens go to a regular file, or a new one\n");
        assert_eq!((run.code, run.stdout.as_str(), run.stderr), (Some(2), "", told));
        assert_eq!(std::fs::symlink_metadata(at(place)).unwrap().ino(), before, "{place}");
    };
    let places = [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("directory", "a directory"),
    ];
    places.iter().for_each(|(place, what)| refused(&["up", "--tokens"], place, what));
    let up = home.run(&["up", "--tokens", "-"]);
    assert_eq!(up.code, Some(2), "{up:?}");
    assert_eq!(home.run(&["status"]).stderr, "no session is running; start one with: sheaf up\n");
    let up = home.run(&["up", "--tokens", "tokens"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    places.iter().for_each(|(place, what)| refused(&["token", "pods", "--output"], place, what));
    let none = home.run(&["token", "pods", "--output", "missing/token"]);
    let told = "sheaf: missing/token: No such file or directory (ENOENT)\n";
    assert_eq!((none.code, none.stderr.as_str()), (Some(2), told));
    assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "kept\n");
    let out = home.run(&["token", "pods", "--output", "-"]);
    assert_eq!((out.code, out.stdout.lines().count()), (Some(0), 1), "{out:?}");
    assert!(!at("-").exists());
    // A file is, whoever has it open.
    let file = home.run(&["token", "pods", "--output", "file"]);
    assert_eq!((file.code, file.stdout.as_str()), (Some(0), ""), "{file:?}");
    assert_eq!(std::fs::metadata(at("file")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(home.run(&["down", "pods"]).code, Some(0));
}

#[test]
fn searches_that_find_no_file() {
    let home = home();
    let paths = [
        "/",
        "/directory",
        "/nothing*",
        "/none",
        "/file/x",
        "/../etc/passwd",
        "/upwards",
        "/absolute",
    ];
    let told: String = paths.iter().map(|path| told(&home, &["grep", "x", path])).collect();
    insta::assert_snapshot!(told, @"
    4 grep x /
    n[1-4]:/: Is a directory (EISDIR): -r searches directories, 4 of 4 members
    sheaf: 0 of 4 members succeeded, 4 failed
    4 grep x /directory
    n[1-4]:/directory: Is a directory (EISDIR): -r searches directories, 4 of 4 members
    sheaf: 0 of 4 members succeeded, 4 failed
    4 grep x /nothing*
    n[1-4]:/nothing*: No such file or directory (ENOENT), 4 of 4 members
    sheaf: 0 of 4 members succeeded, 4 failed
    4 grep x /none
    n[1-4]:/none: No such file or directory (ENOENT), 4 of 4 members
    sheaf: 0 of 4 members succeeded, 4 failed
    4 grep x /file/x
    n[1-4]:/file/x: Not a directory (ENOTDIR), 4 of 4 members
    sheaf: 0 of 4 members succeeded, 4 failed
    4 grep x /../etc/passwd
    n[1-4]:/../etc/passwd: No such file or directory (ENOENT), 4 of 4 members
    sheaf: 0 of 4 members succeeded, 4 failed
    4 grep x /upwards
    n[1-4]:/upwards: No such file or directory (ENOENT), 4 of 4 members
    sheaf: 0 of 4 members succeeded, 4 failed
    4 grep x /absolute
    n[1-4]:/absolute: No such file or directory (ENOENT), 4 of 4 members
    sheaf: 0 of 4 members succeeded, 4 failed
    ");
}

#[test]
fn links_stay_within_the_export() {
    let home = home();
    let export = home.path().join("export");
    let args = ["--embedded", "4", "--export", export.to_str().unwrap(), "grep", "two", "/within"];
    let run = home.run(&args);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "n[1-4]:/within:two\n"), "{run:?}");
}

#[test]
fn magic_links_are_refused() {
    let home = Home::new();
    for path in [
        "/proc/self/exe",
        "/proc/self/root/etc/passwd",
        "/proc/self/fd/0",
        "/proc/self/cwd/sheaf.toml",
    ] {
        let run = home.run(&["--embedded", "2", "grep", "x", path]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(4), ""), "{path}: {run:?}");
        let told =
            format!("n[1-2]:{path}: Too many levels of symbolic links (ELOOP), 2 of 2 members\n");
        assert_eq!(run.stderr, told + "sheaf: 0 of 2 members succeeded, 2 failed\n");
    }
}

#[test]
fn patterns_and_trees_that_mean_nothing() {
    let home = home();
    let told: String = [
        &["grep", "a(b", "/file"][..],
        &["grep", "-e", "zzz)|(", "/file"],
        &["grep", "[z-a]", "/file"],
        &["grep", "x", "n[1-:/file"],
        &["grep", "x", "n9:/file"],
        &["--tree", "bogus", "grep", "x", "/file"],
        &["--tree", "file:none", "grep", "x", "/file"],
        &["--session", "none", "grep", "x", "/file"],
        &["--session", "../x", "grep", "x", "/file"],
        &["up", "--session", ".hidden"],
        &["cp", "none", "@all:/x"],
    ]
    .iter()
    .map(|args| told(&home, args))
    .collect();
    insta::assert_snapshot!(told, @r#"
    2 grep a(b /file
    sheaf: pattern 'a(b': unclosed group, at character 2
    2 grep -e zzz)|( /file
    sheaf: pattern 'zzz)|(': unopened group, at character 4
    2 grep [z-a] /file
    sheaf: pattern '[z-a]': invalid character class range, the start must be <= the end, at character 2
    2 grep x n[1-:/file
    sheaf: n[1-: host set, byte 1: '[' without ']'
    2 grep x n9:/file
    sheaf: n9 is no host of cluster embedded (n[1-4])
    2 --tree bogus grep x /file
    sheaf: tree: "bogus" is no tree: try auto, flat, 1x8x8, k-ary:32, k-nomial:2 or file:PATH
    2 --tree file:none grep x /file
    sheaf: none: No such file or directory (ENOENT)
    3 --session none grep x /file
    sheaf: no session none is running; start it with: sheaf up --session none
    2 --session ../x grep x /file
    sheaf: "../x" cannot be the name of a session: one has letters, digits and . _ @ -, begins with neither . nor -, and is no longer than 128
    2 up --session .hidden
    sheaf: ".hidden" cannot be the name of a session: one has letters, digits and . _ @ -, begins with neither . nor -, and is no longer than 128
    4 cp none @all:/x
    sheaf: none: No such file or directory (ENOENT)
    copied: nothing
    "#);
}

#[test]
fn file_of_a_tree_is_read_up_to_a_bound() {
    let home = home();
    let told = told(&home, &["--tree", "file:/dev/zero", "tree", "plan"]);
    let text = "sheaf: /dev/zero: it is longer than 67108864 bytes, and too long for a tree\n";
    assert_eq!(told, format!("2 --tree file:/dev/zero tree plan\n{text}"));
}

#[test]
fn client_of_ssh_that_there_is_not_is_told_with_its_line() {
    let home = Home::with_config("[cluster.far]\nhosts = \"n[1-4]\"\nssh = \"./none -l me\"\n");
    let run = home.run(&["grep", "x", "/file"]);
    insta::assert_snapshot!(run.stderr, @r#"sheaf: sheaf.toml:3: ssh = "./none -l me": ./none cannot be run: No such file or directory (ENOENT)"#);
    assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""));
}

#[test]
fn serve_is_not_for_hands() {
    let home = Home::new();
    let run = home.run(&["serve"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    let told = "sheaf: serve is started by the node above it, not by hand; start a session with: sheaf up\n";
    assert_eq!(run.stderr, told);
}
