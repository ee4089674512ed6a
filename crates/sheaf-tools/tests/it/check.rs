//! Lists of digests, against what the programs of this machine make of them.
use crate::cp::cluster::{Cluster, run};
use sheaf_core::Errno;
use sheaf_file::Algorithm;
use sheaf_group::entry::Merged;
use sheaf_group::{Client, Outcome};
use sheaf_tools::report::check::{CheckOptions, CheckVerdict, Checked, NO_FILE, NO_LINE};
use sheaf_tools::report::{ReportChoice, report};
use std::path::Path;
use std::process::Command;

/// Each file with what is said of it, in the order of the list, and how many lines are malformed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Result {
    files: Vec<(Vec<u8>, String)>,
    malformed: u64,
}

impl Result {
    /// Takes what was not said before: equal lines of a host are one.
    fn add(&mut self, path: Vec<u8>, text: &str) {
        let said = (path, text.to_owned());
        if !self.files.contains(&said) {
            self.files.push(said);
        }
    }
}

/// What host 0 says of the list `d/LIST`.
async fn ours(
    client: &Client,
    cluster: &Cluster,
    (algorithm, ignore_missing): (Algorithm, bool),
) -> (Result, Outcome) {
    let mut result = Result::default();
    let what = ReportChoice::Check(CheckOptions { algorithm, ignore_missing, warn: false });
    let outcome = report(client, &[cluster.target("d/LIST")], &what, &mut |merged| {
        for entry in merged.sorted() {
            assert_eq!(entry.path, b"d/LIST");
            match Checked::read(&entry.entry).unwrap() {
                Checked::File(verdict, path) => {
                    result.add(path.strip_prefix(b"d/").unwrap().to_vec(), verdict.text());
                }
                Checked::Malformed(lines) => result.malformed += lines,
                Checked::MalformedLine(line) => panic!("line {line} without --warn"),
            }
        }
        Ok(())
    })
    .await
    .unwrap();
    (result, outcome)
}

/// What the program says of it, from the list's directory.
fn theirs(dir: &Path, program: &str, flags: &[&str]) -> Result {
    let mut command = Command::new(program);
    let output = command
        .args(flags)
        .args(["-c", "LIST"])
        .current_dir(dir)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let mut result = Result::default();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let end = line.windows(2).rposition(|two| two == b": ").unwrap();
        let name = String::from_utf8(line[..end].to_vec()).unwrap();
        let name = match name.strip_prefix('\\') {
            Some(name) => name
                .replace("\\\\", "\0")
                .replace("\\n", "\n")
                .replace("\\r", "\r")
                .replace('\0', "\\"),
            None => name,
        };
        let name = name
            .strip_prefix("./")
            .filter(|rest| !rest.is_empty())
            .unwrap_or(&name)
            .as_bytes()
            .to_vec();
        result.add(name, std::str::from_utf8(&line[end + 2..]).unwrap());
    }
    let errors = String::from_utf8(output.stderr).unwrap();
    let warning = errors.lines().find(|line| line.contains("improperly formatted"));
    let count = warning.and_then(|line| line.split(' ').find_map(|word| word.parse().ok()));
    result.malformed = count.unwrap_or(0);
    result
}

const NAMES: &[&str] = &[
    "a",
    "sub/b",
    "with space",
    " blank",
    "new\nline",
    "back\\slash",
    "re\rturn",
    "(x) = y",
    "changed",
];

/// A host with files, and what the program prints for them.
fn populate(cluster: &Cluster, program: &str, flags: &[&str]) -> Vec<u8> {
    for name in NAMES {
        cluster.write(0, &format!("d/{name}"), format!("content of {name}"));
    }
    cluster.write(0, "top", "above");
    cluster.write(0, "d/gone", "");
    let mut command = Command::new(program);
    command.args(flags).arg("--").args(NAMES).args(["./a", "../top", "gone"]);
    let output = command.current_dir(cluster.path(0, "d")).output().unwrap();
    assert!(output.status.success());
    cluster.write(0, "d/changed", "other content");
    std::fs::remove_file(cluster.path(0, "d/gone")).unwrap();
    output.stdout
}

fn changed_a_little(list: &[u8]) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let lines: Vec<&[u8]> =
        list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let mut changed = Vec::new();
    for _ in 0..400 {
        let mut line = lines[random(lines.len())].to_vec();
        for _ in 0..1 + random(2) {
            // Where digests end and names begin there is most to see.
            let near = [0, 64, 128, line.len()][random(4)] + random(4);
            let at = near.saturating_sub(2).min(line.len() - 1);
            let byte = b" \t*\\()=#\rnaF0"[random(13)];
            match random(3) {
                0 => line[at] = byte,
                1 => line.insert(at, byte),
                _ => drop(line.remove(at)),
            }
        }
        changed.extend_from_slice(&line);
        changed.push(b'\n');
    }
    changed
}

#[test]
fn lists_mean_what_they_mean_to_coreutils() {
    for (algorithm, program) in [(Algorithm::Sha256, "sha256sum"), (Algorithm::Sha512, "sha512sum")]
    {
        let cluster = Cluster::new(1);
        let list = populate(&cluster, program, &[]);
        let tagged = populate(&cluster, program, &["--tag"]);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let upper = text(&list).to_uppercase().replace("  A\n", "  a\n");
        let one_blank: String =
            text(&list).lines().map(|line| format!("{}\n", line.replacen("  ", " ", 1))).collect();
        let remarks =
            format!("# made by hand\n\n{}what is this\n{}\n", text(&list), text(&list).trim_end());
        let other = text(&list).lines().next().unwrap().replace("  a", " *sub");
        let long = format!("{}\n{}", "x".repeat(100_000), text(&list));
        let lists = [
            list.clone(),
            tagged.clone(),
            [&list[..], &tagged[..]].concat(),
            text(&list).replace('\n', "\r\n").into_bytes(),
            text(&tagged).replace('\n', "\r\n").into_bytes(),
            text(&list).replace("  ", " *").into_bytes(),
            upper.into_bytes(),
            one_blank.into_bytes(),
            remarks.into_bytes(),
            other.into_bytes(),
            long.into_bytes(),
            changed_a_little(&list),
            changed_a_little(&tagged),
        ];
        run(async {
            let client = cluster.client("flat");
            for (at, list) in lists.iter().enumerate() {
                cluster.write(0, "d/LIST", list);
                for (ignore_missing, flags) in [(false, &[][..]), (true, &["--ignore-missing"][..])]
                {
                    let (said, outcome) =
                        ours(&client, &cluster, (algorithm, ignore_missing)).await;
                    let expected = theirs(&cluster.path(0, "d"), program, flags);
                    assert!(!expected.files.is_empty());
                    assert_eq!(said, expected, "{program} {flags:?}, list {at}");
                    let unread =
                        said.files.iter().filter(|(_, text)| text.ends_with("read")).count();
                    let files = outcome.errors.iter().filter(|error| error.errno != NO_FILE);
                    assert_eq!(files.count(), unread, "{program} {flags:?}, list {at}");
                    let verified = outcome.status.count as usize;
                    assert!(verified >= said.files.len() - unread, "{verified}");
                }
            }
        });
    }
}

#[test]
fn list_that_checks_nothing_fails() {
    let cluster = Cluster::new(1);
    let digest = "0".repeat(64);
    run(async {
        let client = cluster.client("flat");
        let cases = [
            (String::new(), false, NO_LINE),
            ("x".repeat(1 << 20), false, NO_LINE),
            (format!("{digest}0  a\n"), true, NO_LINE),
            (format!("{digest}  gone\n"), true, NO_FILE),
            (format!("{digest}  gone\n"), false, Errno::NOENT),
        ];
        for (list, ignore_missing, errno) in cases {
            cluster.write(0, "d/LIST", &list);
            let (_, outcome) = ours(&client, &cluster, (Algorithm::Sha256, ignore_missing)).await;
            let errors: Vec<_> = outcome.errors.iter().map(|error| error.errno).collect();
            assert_eq!((errors, outcome.status.count), (vec![errno], 0));
        }
    });
}

#[test]
fn names_of_a_list_stay_within_what_is_served() {
    let cluster = Cluster::new(1);
    let outside = cluster.dir.path().join("outside");
    std::fs::write(&outside, "").unwrap();
    cluster.write(0, "top", "");
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    // The root of what is served is above all: its parent is itself.
    cluster.write(
        0,
        "d/LIST",
        format!("{empty}  {}\n{empty}  ../../outside\n{empty}  ../../top\n", outside.display()),
    );
    run(async {
        let client = cluster.client("flat");
        let mut said = Vec::new();
        let what = ReportChoice::Check(CheckOptions {
            algorithm: Algorithm::Sha256,
            ignore_missing: false,
            warn: false,
        });
        let sink = &mut |merged: &Merged| {
            for entry in merged.sorted() {
                let Some(Checked::File(verdict, _)) = Checked::read(&entry.entry) else {
                    panic!("{entry:?}")
                };
                said.push(verdict);
            }
            Ok(())
        };
        let outcome = report(&client, &[cluster.target("/d/LIST")], &what, sink).await.unwrap();
        assert_eq!(
            said,
            [
                CheckVerdict::Unread(Errno::NOENT),
                CheckVerdict::Unread(Errno::NOENT),
                CheckVerdict::Same
            ]
        );
        let errors: Vec<_> = outcome.errors.iter().map(|error| error.errno).collect();
        assert_eq!(errors, [Errno::NOENT; 2]);
    });
}
