//! What a suite that knows POSIX finds in a directory it finds in the view of it.
use super::hosts::{EXPORT, POINT, ViewHosts};
use sheaf_testing::sessions::turn;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// What each test of the suite has come to, which is told a line each.
fn outcomes(said: &str) -> BTreeMap<String, String> {
    let ends = ["ok", "skipped", "FAILED"];
    let one = |line: &str| {
        let (test, rest) = line.split_once(char::is_whitespace)?;
        let rest = rest.trim();
        let end = ends.iter().find(|end| rest.starts_with(**end))?;
        Some((test.to_owned(), (*end).to_owned()))
    };
    said.lines().filter_map(one).collect()
}

/// The lines about tests that failed.
fn reasons(said: &str) -> String {
    let mut is_failed = false;
    let of_failed = said.lines().filter(|line| {
        is_failed = line.contains("FAILED") || is_failed && line.starts_with('\t');
        is_failed
    });
    of_failed.collect::<Vec<_>>().join("\n")
}

#[test]
fn pjdfstest_results_in_a_view_match_the_directory_below() {
    let _turn = turn();
    if !sheaf_testing::program::have("pjdfstest") {
        return;
    }
    let Some(hosts) = ViewHosts::new(2) else { return };
    // All hosts see the directory of the machines.
    let paths = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&paths).map(|path| path.join("pjdfstest"));
    let suite = hosts.machines.dir().join("pjdfstest");
    fs::copy(found.into_iter().find(|path| path.exists()).unwrap(), &suite).unwrap();
    // Users other than root get to what is exported as they get to the view.
    fs::set_permissions(hosts.machines.home(2, ""), fs::Permissions::from_mode(0o711)).unwrap();
    // The features are what these file systems have beyond POSIX. `naptime` parts two time stamps that must
    // differ: the kernel's clock for time stamps stops while the hypervisor holds its virtual CPU back.
    let settings = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\n\
                    utimensat = {}\n[settings]\nnaptime = 0.03\nallow_remount = false\n\
                    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    hosts.machines.write(2, "pjdfstest.toml", settings);
    fs::create_dir(hosts.disk(2, "own")).unwrap();
    fs::create_dir(hosts.disk(1, "other")).unwrap();
    let places = [
        format!("{EXPORT}/own"),
        format!("{POINT}/hosts/h2/own"),
        format!("{POINT}/hosts/h1/other"),
    ];
    let all = places.map(|place| {
        let suite = suite.display();
        let script = format!("exec {suite} -c /root/pjdfstest.toml -p {place}");
        let run = hosts.shell_at(2, "/root", &script);
        let found = outcomes(&run.stdout);
        assert!(found.len() > 300, "{place}: {run:?}");
        (place, found, run.stdout)
    });
    let [(_, below, _), views @ ..] = &all;
    assert!(below.values().filter(|end| *end == "ok").count() > 300);
    for (place, view, said) in views {
        let differ = view.iter().filter(|(test, end)| below.get(*test) != Some(end));
        // How many names a file can have the C library tells by the kind of the file system.
        let differ: Vec<_> = differ.filter(|(test, _)| *test != "link::link_count_max").collect();
        assert!(differ.is_empty(), "{place}: {differ:?}\n{}", reasons(said));
        assert_eq!(view.len(), below.len(), "{place}");
    }
}
