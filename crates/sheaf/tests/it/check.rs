//! `sha -c`: what is said of lists of digests, and how it ends.
use sheaf_testing::home::{Home, Run};

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Three hosts with a list: `same` is as listed on all, `odd` is not on the second, `some` is
/// missing on the third, which also has a line that is none.
fn home() -> Home {
    let home = Home::new();
    for host in 1..=3 {
        let file = |name: &str, text: &str| home.write(&format!("export/n{host}/srv/{name}"), text);
        file("sub/same", "");
        file("odd", if host == 2 { "x" } else { "" });
        if host != 3 {
            file("some", "");
        }
        let more = if host == 3 { "what?\n" } else { "" };
        file("same.sum", &format!("{EMPTY}  sub/same\n"));
        file("odd.sum", &format!("{EMPTY} *odd\n"));
        file("some.sum", &format!("{EMPTY}  some\n"));
        file("more.sum", &format!("{more}{EMPTY}  /srv/sub/same\n"));
        file("none.sum", "none\n");
    }
    home
}

fn check(home: &Home, args: &[&str]) -> Run {
    let export = home.path().join("export/%h");
    home.run(
        &[&["--embedded", "3", "--export", export.to_str().unwrap(), "sha", "-c"], args].concat(),
    )
}

#[test]
fn lists_are_checked_on_every_host() {
    let home = home();
    let same = "n[1-3]:/srv/sub/same: OK\n";
    let odd = "n[1,3]:/srv/odd: OK\nn2:/srv/odd: FAILED\n";
    let some = "n[1-2]:/srv/some: OK\nn3:/srv/some: FAILED open or read\n";
    let missing = "n3:/srv/some: No such file or directory (ENOENT), 1 of 3 members\n\
                   sheaf: 2 of 3 members succeeded, 1 failed\n";
    let warning = "sheaf: warning: n3:/srv/more.sum: 1 line is improperly formatted\n";
    let no_line = "n[1-3]:/srv/none.sum: no properly formatted line was found, \
                   3 of 3 members\nsheaf: 0 of 3 members succeeded, 3 failed\n";
    let no_file = "n3:/srv/some.sum: no file was verified, 1 of 3 members\n\
                   sheaf: 2 of 3 members succeeded, 1 failed\n";
    let both = format!("{odd}{same}");
    let cases: &[(&[&str], &str, &str, i32)] = &[
        (&["/srv/same.sum"], same, "", 0),
        (&["/srv/odd.sum"], odd, "", 1),
        (&["/srv/odd.sum", "/srv/same.sum"], &both, "", 1),
        (&["--status", "/srv/odd.sum"], "", "", 1),
        (&["--status", "/srv/same.sum"], "", "", 0),
        (&["/srv/some.sum"], some, missing, 4),
        (&["--ignore-missing", "n[1-2]:/srv/some.sum"], "n[1-2]:/srv/some: OK\n", "", 0),
        (&["--ignore-missing", "/srv/some.sum"], "n[1-2]:/srv/some: OK\n", no_file, 4),
        (&["/srv/more.sum"], same, warning, 0),
        (&["--strict", "/srv/more.sum"], same, warning, 1),
        (&["/srv/none.sum"], "", no_line, 4),
        (&["--no-heading", "/srv/odd.sum"], "/srv/odd: OK\n/srv/odd: FAILED\n", "", 1),
        (&["--label", "n1:/srv/odd.sum"], "n1: /srv/odd: OK\n", "", 0),
    ];
    for (args, stdout, stderr, code) in cases {
        let run = check(&home, args);
        assert_eq!(
            (run.stdout.as_str(), run.stderr.as_str(), run.code),
            (*stdout, *stderr, Some(*code)),
            "{args:?}"
        );
    }
}

#[test]
fn checks_are_records_as_json() {
    let home = home();
    let lines = |args: &[&str]| -> Vec<serde_json::Value> {
        let run = check(&home, args);
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let records = lines(&["--json", "/srv/odd.sum", "/srv/more.sum", "/srv/some.sum"]);
    let said: Vec<_> = records
        .iter()
        .filter(|record| record["type"] == "entry")
        .map(|record| {
            let text = |key: &str| record[key].as_str().unwrap().to_owned();
            format!(
                "{} {} {} {}",
                text("hosts"),
                text("path"),
                text("algorithm"),
                record["check"].as_bool().unwrap()
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            "n[1,3] /srv/odd sha256 true",
            "n2 /srv/odd sha256 false",
            "n[1-3] /srv/sub/same sha256 true",
            "n[1-2] /srv/some sha256 true",
        ]
    );
    let note = records.iter().find(|record| record["type"] == "note").unwrap();
    assert_eq!(note["note"], "n3:/srv/more.sum: 1 line is improperly formatted");
    let summary = records.last().unwrap();
    assert_eq!(
        (&summary["exit"], &summary["succeeded"], &summary["members"]),
        (&4.into(), &8.into(), &9.into())
    );
}
