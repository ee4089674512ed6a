//! The rules of `docs/mount-semantics.md`: each has its test here.
//!
//! What stands for a host is the first process of namespaces of its own, of processes, mounts, the network and the
//! name, with a home and an sshd, joined to the others by a cable (`machines.rs`). `sheaf up` on `login` starts a
//! server on each by ssh; `sheaf mount` on each joins by that server, and so shows its host's own files as they are
//! and those of all others by FUSE. A thread of the test is on a host as far as its paths begin with the host's root
//! in `/proc`; where the number, the user or the end of a process counts it is a process there (`python.rs`).
mod behind;
mod busy;
mod data;
mod faults;
mod fsx;
mod history;
mod hosts;
mod kinds;
mod large;
mod leases;
mod locks;
mod names;
mod options;
mod posix;
mod programs;
mod python;
mod refused;
mod storm;
mod users;

/// The page names each test of these files once, and no other, behind rules that are numbered on.
#[test]
fn every_rule_has_a_test_and_every_test_a_rule() {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mount_semantics");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mount-semantics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut number = 0;
    for line in page.lines() {
        let rule = line.split_once(". **").and_then(|(rule, _)| rule.parse::<u32>().ok());
        if let Some(rule) = rule {
            number += 1;
            assert_eq!(rule, number, "{line}");
        }
    }
    assert!(number > 40, "the rules are not found any more");
    // What follows a file's name, until the next one's.
    let mut named: Vec<(String, String)> = Vec::new();
    let mut file = String::new();
    for word in page.split_whitespace() {
        let word = word.trim_end_matches([',', ';', '.', ':']);
        if word.strip_suffix(".rs").is_some() {
            word.clone_into(&mut file);
        } else if let Some(test) = word.strip_prefix('`').and_then(|word| word.strip_suffix('`'))
            && test.contains('_')
            && test.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
            && test != "copy_file_range"
        {
            named.push((file.clone(), test.to_owned()));
        }
    }
    let mut there: Vec<(String, String)> = Vec::new();
    for entry in std::fs::read_dir(here).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        for test in text.split("#[test]\n").skip(1) {
            // An attribute may stand between.
            let (_, test) = test.split_once("fn ").unwrap();
            there.push((name.to_owned(), test.split('(').next().unwrap().to_owned()));
        }
    }
    named.sort();
    there.sort();
    assert_eq!(named, there);
}
