//! What a limit of memory comes to, what is counted of files with holes, and names on a terminal.
use crate::archive::home;
use sheaf_testing::home::Home;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// The most memory that a command had at once, in bytes.
fn peak_of(home: &Home, args: &[&str]) -> u64 {
    peak_of_command(home.command(args))
}

/// The same of a command with an environment of its own.
pub fn peak_of_command(mut command: Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        let said = fs::read_to_string(&status).unwrap_or_default();
        let line = said.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) * 1024);
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        thread::sleep(Duration::from_millis(2));
    };
    assert!(ended.success(), "{command:?}: {ended}");
    assert!(peak > 0, "{command:?}");
    peak
}

#[test]
fn limit_of_memory_is_a_peak() {
    let home = Home::new();
    let content: Vec<u8> = (0..12 * MIB).map(|at| (at / 3) as u8).collect();
    for number in 0..16 {
        let directory = home.path().join(format!("tree/{number}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), &content).unwrap();
    }
    let store = ["archive", "store", "--create", "--pack-limit", "64M", "--limit", "memory=50M"];
    let stored = peak_of(&home, &[&store[..], &["tree", "s::"]].concat());
    assert!(stored < 60 * MIB, "store had {} MiB", stored / MIB);
    let stored = home.run(&["archive", "store", "--create", "--pack-limit", "64M", "tree", "t::"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let got = peak_of(&home, &["archive", "get", "--limit", "memory=50M", "t::tree", "back"]);
    assert!(got < 60 * MIB, "get had {} MiB", got / MIB);
    assert_eq!(fs::read(home.path().join("back/tree/7/file")).unwrap(), content);
}

#[test]
fn limit_of_memory_holds_where_contents_are_compared() {
    let home = Home::new();
    for directory in 0..4 {
        let directory = home.path().join(format!("tree/{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..3000u16 {
            let content: Vec<u8> = (0..16 << 10).map(|at: u32| (at / 3) as u8).collect();
            let content = [&file.to_le_bytes(), &content[..]].concat();
            fs::write(directory.join(file.to_string()), content).unwrap();
        }
    }
    for store in [&["--create"][..], &["--create", "--plain"]] {
        let to = format!("s{}::", store.len());
        let options = [store, &["--pack-limit", "64M", "tree", &to]].concat();
        let stored = home.run(&[&["archive", "store"], &options[..]].concat());
        assert_eq!(stored.code, Some(0), "{stored:?}");
        let again =
            ["archive", "store", "--checksum", "--limit", "memory=40M", "--json", "tree", &to];
        let peak = peak_of(&home, &again);
        assert!(peak < 50 * MIB, "{to}: {} MiB", peak / MIB);
        let again = home.run(&again);
        assert!(again.stdout.contains("\"unchanged\":12000"), "{again:?}");
    }
}

#[test]
fn du_counts_what_is_stored_and_no_holes() {
    let home = home();
    for (name, size) in [("member", 10 * MIB), ("large", 100 * MIB)] {
        let file = fs::File::create(home.path().join("tree").join(name)).unwrap();
        let bytes = if name == "large" { 2 * MIB } else { 8192 };
        file.write_all_at(&vec![1; bytes as usize], MIB).unwrap();
        file.set_len(size).unwrap();
    }
    let stored = home.run(&["archive", "store", "--create", "tree", "s::"]);
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let du = |args: &[&str]| {
        let ran = home.run(&[&["archive", "du", "-s"], args].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stdout.split('\t').next().unwrap().parse::<u64>().unwrap()
    };
    let holes = 110 * MIB;
    // Some more is stored where a block of the file system begins and ends.
    let stored = du(&["-B1", "s::"]);
    assert!((2 * MIB + 8192..2 * MIB + MIB / 2).contains(&stored), "{stored}");
    assert_eq!(du(&["-B1", "s::tree/member"]) + du(&["-B1", "s::tree/large"]) + 19, stored);
    assert_eq!(du(&["-b", "s::"]), holes + 19);
    assert_eq!(du(&["-B1", "--apparent-size", "s::"]), holes + 19);
    // Of a pack from which a member was removed it is known, too.
    assert_eq!(home.run(&["archive", "rm", "s::tree/a"]).code, Some(0));
    assert_eq!(du(&["-B1", "s::"]), stored - 6);
}

#[test]
fn archived_names_on_a_terminal_are_escaped() {
    let home = Home::new();
    let (file, below) = ("a\x1b[31mb", "d\x1b]0;x\x07");
    fs::create_dir_all(home.path().join("tree").join(below)).unwrap();
    for name in [file.to_owned(), format!("{below}/c\u{9b}1m")] {
        fs::write(home.path().join("tree").join(name), "hello\n").unwrap();
    }
    let one = format!("s::tree/{file}");
    let commands: [&[&str]; 16] = [
        &["store", "-v", "--create", "tree", "s::"],
        &["ls", "-R", "s::"],
        &["ls", "-l", &one],
        &["find", "s::"],
        &["find", "s::", "-printf", "%p %f\\n"],
        &["du", "s::"],
        &["grep", "-r", "hello", "s::"],
        &["grep", "-rl", "hello", "s::"],
        &["grep", "-rc", "hello", "s::"],
        &["stat", &one],
        &["get", "-v", "s::tree", "back"],
        &["chmod", "-v", "600", &one],
        &["cp", "-v", &one, "s::tree/\x1b[31mcopy"],
        &["verify", "-v", "s::"],
        &["rm", "-rv", "--dry-run", "s::tree"],
        &["rm", "s::tree/none\x1b[31m"],
    ];
    for args in commands {
        let quoted = |arg: &&str| format!("'{arg}'");
        let program = home.command(&[]).get_program().to_owned();
        let line: Vec<String> = args.iter().map(quoted).collect();
        let line = format!("'{}' archive {}", program.to_string_lossy(), line.join(" "));
        let mut terminal = home.command_of("script", &["-qec", &line, "/dev/null"]);
        let Ok(output) = terminal.env("TERM", "xterm").stdin(Stdio::null()).output() else {
            return sheaf_testing::skipped("a terminal needs script(1)");
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let of_names = ["\x1b[31mb", "\x1b[31mcopy", "\x1b[31m'", "\x1b]0;x", "\u{9b}1m"];
        assert!(!of_names.iter().any(|bad| said.contains(bad)), "{args:?}: {said:?}");
        assert!(said.contains("\\u{1b}") || said.contains("sheaf: "), "{args:?}: {said:?}");
    }
    // In a pipe they are as they are.
    let mut command = home.command(&["archive", "grep", "-rl", "hello", "s::tree"]);
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(file));
}
