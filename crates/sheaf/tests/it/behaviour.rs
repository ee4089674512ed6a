//! The main job: many files read and written as one, however the servers are started.
use sheaf_core::hostset::HostSet;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Running, Up, nothing_is_left, turn};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

const PROCESSES: &str = "64";
const COPY_BYTES: usize = 64 << 20;
const NODE_KILOBYTES_MAX: u64 = 64 << 10;

fn services(home: &Home) -> String {
    let line = |port: u32| {
        format!("service-{port}\t{port}/{}\n", if port.is_multiple_of(3) { "udp" } else { "tcp" })
    };
    let text: String = (1..400).map(line).collect();
    home.write("services", &text).to_str().unwrap().to_owned()
}

#[test]
fn equal_lines_of_a_thousand_hosts_are_printed_once() {
    let home = Home::new();
    let path = services(&home);
    let text = std::fs::read_to_string(&path).unwrap();
    let expected: String = text
        .lines()
        .filter(|line| line.contains("udp"))
        .map(|line| format!("n[1-1024]:{path}:{line}\n"))
        .collect();
    let run = home.run(&["--embedded", "1024", "grep", "udp", &path]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert_eq!(run.stdout, expected);
}

#[test]
fn processes_and_threads_print_the_same() {
    let home = Home::new();
    let path = services(&home);
    let embedded = home.run(&["--embedded", PROCESSES, "grep", "-n", "udp", &path]);
    assert_eq!(embedded.code, Some(0), "{embedded:?}");
    for link in ["unix", "tcp", "tls"] {
        for tree in ["auto", "1x2x32", "flat"] {
            let args = [
                "--processes",
                PROCESSES,
                "--link",
                link,
                "--tree",
                tree,
                "grep",
                "-n",
                "udp",
                &path,
            ];
            let run = home.run(&args);
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{link} {tree}");
            assert!(run.stdout == embedded.stdout, "{link} {tree}");
        }
    }
    nothing_is_left(&home);
}

/// Lines as they are printed, and who has them; every line only once.
fn by_line(stdout: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut lines = BTreeMap::new();
    for printed in stdout.lines() {
        let (hosts, line) = printed.split_once(":/data:").unwrap();
        let hosts = HostSet::parse(hosts).unwrap().iter().map(|host| host.to_string()).collect();
        assert!(lines.insert(line.to_owned(), hosts).is_none(), "printed twice: {line}");
    }
    lines
}

#[test]
fn folded_sets_are_those_of_a_loop_over_the_files() {
    const HOSTS: u64 = 41;
    let home = Home::new();
    let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Lines on all hosts, on some, on one; hosts without any, or without the file's last line end.
    for host in 1..=HOSTS {
        let mut lines = vec!["udp everywhere".to_owned(), "tcp everywhere".to_owned()];
        lines.extend((2..9).filter(|k| host % k == 1).map(|k| format!("udp {k}")));
        lines.extend((host == 17).then(|| "udp alone".to_owned()));
        if host % 10 == 3 {
            lines.retain(|line| line.starts_with("tcp"));
        }
        let end = if host % 2 == 0 { "\n" } else { "" };
        home.write(&format!("export/n{host}/data"), &(lines.join("\n") + end));
        for line in lines.into_iter().filter(|line| line.contains("udp")) {
            expected.entry(line).or_default().insert(format!("n{host}"));
        }
    }
    let export = home.path().join("export/%h");
    let hosts = HOSTS.to_string();
    for tree in ["auto", "flat", "1x1x41", "1x1x1x41", "k-ary:2", "k-nomial:2"] {
        for launch in ["--embedded", "--processes"] {
            let args = [
                launch,
                &hosts,
                "--tree",
                tree,
                "--export",
                export.to_str().unwrap(),
                "grep",
                "udp",
                "/data",
            ];
            let run = home.run(&args);
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{launch} {tree}");
            assert_eq!(by_line(&run.stdout), expected, "{launch} {tree}");
        }
    }
    nothing_is_left(&home);
}

/// Bytes that no two blocks have alike.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// Three hosts cannot take the file: two have a directory in its place, one a file in place of
/// its directory.
fn with_obstacles(home: &Home) -> String {
    for host in 1..=16 {
        match host {
            3 | 7 => home.write(&format!("export/n{host}/d/copy/old"), "old"),
            11 => home.write(&format!("export/n{host}/d"), "old"),
            _ => home.write(&format!("export/n{host}/d/copy"), "old"),
        };
    }
    home.path().join("export/%h").to_str().unwrap().to_owned()
}

#[test]
fn large_file_is_copied_in_constant_memory() {
    let _turn = turn();
    let home = Home::new();
    let export = with_obstacles(&home);
    let content = noise(COPY_BYTES);
    let source = home.path().join("source");
    std::fs::write(&source, &content).unwrap();
    let up = Up::at(home, &["--processes", "16", "--tree", "1x4x4", "--export", &export]);
    let args = [
        "--session",
        sheaf_testing::sessions::NAME,
        "cp",
        "-T",
        "--async",
        source.to_str().unwrap(),
        "@all:/d/copy",
    ];
    let mut command = up.home.command(&args);
    let mut client = Running::start(command.stdin(Stdio::null()));
    let process = client.process();
    let mut client_kilobytes = 0;
    while !client.has_ended() {
        client_kilobytes = process.kilobytes("status", "VmHWM").unwrap_or(0).max(client_kilobytes);
    }
    let Run { code, stderr, .. } = client.wait();
    assert_eq!(code, Some(4), "{stderr}");
    insta::assert_snapshot!(stderr, @"
    copied to n[1-2,4-6,8-10,12-16]: 13 files
    n[3,7]:/d/copy: Is a directory (EISDIR): a directory is in the file's place, 2 of 16 members
    n11:/d/copy: Not a directory (ENOTDIR), 1 of 16 members
    sheaf: 13 of 16 members succeeded, 3 failed
    ");
    let inner = up.nodes.iter().filter(|node| !up.servers.values().any(|server| server == *node));
    let above: Vec<u64> =
        inner.chain([&up.session]).map(|node| node.kilobytes("status", "VmHWM").unwrap()).collect();
    println!("client {client_kilobytes} kB, inner nodes and root {above:?} kB");
    assert_eq!(above.len(), 5);
    assert!(
        above.iter().chain([&client_kilobytes]).all(|kilobytes| *kilobytes < NODE_KILOBYTES_MAX)
    );
    for host in 1..=16 {
        let d = up.home.path().join(format!("export/n{host}/d"));
        let names = || std::fs::read_dir(&d).unwrap().count();
        match host {
            3 | 7 => assert_eq!(
                (std::fs::read(d.join("copy/old")).unwrap(), names()),
                (b"old".to_vec(), 1)
            ),
            11 => assert_eq!(std::fs::read(&d).unwrap(), b"old"),
            _ => assert!(
                std::fs::read(d.join("copy")).unwrap() == content && names() == 1,
                "n{host}"
            ),
        }
    }
}
