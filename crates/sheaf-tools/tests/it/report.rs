//! Reports, against what coreutils say of the same files.
use crate::cp::cluster::{Cluster, SHAPES, run};
use jiff::tz::TimeZone;
use sheaf_core::{Errno, RangeSet};
use sheaf_file::Algorithm;
use sheaf_group::entry::EntryKind;
use sheaf_group::{Client, Outcome};
use sheaf_tools::Target;
use sheaf_tools::report::list::{Hidden, ListOptions, ListRow, Sort};
use sheaf_tools::report::stat::{self, StatOptions};
use sheaf_tools::report::time::{Clock, TimeStyle};
use sheaf_tools::report::{ReportChoice, UsageReportOptions, UsageUnit, cat, report};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What is said on each host: path, kind, text and who says so.
type Said = Vec<(String, EntryKind, Vec<u8>, RangeSet)>;

async fn ask(client: &Client, target: Target, what: ReportChoice) -> (Said, Outcome) {
    let mut said = Said::new();
    let outcome = report(client, &[target], &what, &mut |merged| {
        let mut entries = merged.sorted();
        if let ReportChoice::List(options) = &what {
            ListRow::sort(options, &mut entries);
        }
        for entry in entries {
            let path = String::from_utf8(entry.path.to_vec()).unwrap();
            said.push((path, entry.entry.kind, entry.entry.text.to_vec(), entry.leaves.clone()));
        }
        Ok(())
    })
    .await
    .unwrap();
    said.retain(|(_, kind, ..)| *kind != EntryKind::Error);
    (said, outcome)
}

fn coreutils(root: &Path, program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(root)
        .env("LC_ALL", "C")
        .env("TZ", "UTC0")
        .env_remove("BLOCK_SIZE");
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn clock() -> Clock {
    Clock { zone: TimeZone::UTC, now: jiff::Timestamp::now() }
}

fn populate(cluster: &Cluster) {
    use std::os::unix::fs::PermissionsExt;
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap()
    };
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_700_000_000_123_456_789);
    for leaf in 0..cluster.hosts {
        cluster.write(leaf, "d/big", vec![b'x'; 70_000]);
        cluster.write(leaf, "d/A small", "text");
        cluster.write(leaf, "d/empty", "");
        cluster.write(leaf, "d/.hidden", "..");
        cluster.write(leaf, "d/sub/inner/f", "deep");
        cluster.write(leaf, "d/sub/g", "g".repeat(5000));
        std::os::unix::fs::symlink("A small", cluster.path(leaf, "d/link")).unwrap();
        std::os::unix::fs::symlink("nowhere", cluster.path(leaf, "d/broken")).unwrap();
        set(&cluster.path(leaf, "d/big"), 0o4755);
        set(&cluster.path(leaf, "d/empty"), 0o600);
        set(&cluster.path(leaf, "d/sub"), 0o1777);
        for (path, age) in
            [("d/big", 9), ("d/A small", 5), ("d/empty", 7), ("d/.hidden", 1), ("d/sub/g", 2)]
        {
            let file = std::fs::File::open(cluster.path(leaf, path)).unwrap();
            file.set_modified(time - std::time::Duration::from_secs(age * 1000)).unwrap();
        }
        for path in ["d/sub/inner", "d/sub", "d"] {
            std::fs::File::open(cluster.path(leaf, path)).unwrap().set_modified(time).unwrap();
        }
    }
}

/// `ls` as the command would print it, section by section.
fn listing(said: &Said, options: &ListOptions, style: TimeStyle) -> BTreeMap<String, Vec<String>> {
    let mut sections: BTreeMap<String, Vec<ListRow>> = BTreeMap::new();
    for (path, _, text, _) in said {
        sections.entry(path.clone()).or_default().push(ListRow::read(
            options,
            style,
            &clock(),
            text,
        ));
    }
    let lines = |rows: Vec<ListRow>| {
        ListRow::align(&rows).into_iter().map(|line| String::from_utf8(line).unwrap()).collect()
    };
    sections.into_iter().map(|(path, rows)| (path, lines(rows))).collect()
}

/// What `ls` prints, by directory.
fn gnu_listing(output: &str, only: &str) -> BTreeMap<String, Vec<String>> {
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut section = only.to_owned();
    for line in output.lines().filter(|line| !line.is_empty() && !line.starts_with("total ")) {
        match line.strip_suffix(':') {
            Some(path) => section = path.to_owned(),
            None => sections.entry(section.clone()).or_default().push(line.to_owned()),
        }
    }
    sections
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn ls_is_what_gnu_ls_prints() {
    let cluster = Cluster::new(2);
    populate(&cluster);
    let cases: &[(&[&str], ListOptions, TimeStyle)] = &[
        (&[], ListOptions::default(), TimeStyle::LongIso),
        (&["-a"], ListOptions { hidden: Hidden::Show, ..Default::default() }, TimeStyle::LongIso),
        (
            &["-Ar"],
            ListOptions { hidden: Hidden::Almost, reverse: true, ..Default::default() },
            TimeStyle::LongIso,
        ),
        (&["-S"], ListOptions { sort: Sort::Size, ..Default::default() }, TimeStyle::LongIso),
        (
            &["-tr", "-A"],
            ListOptions {
                sort: Sort::Time,
                reverse: true,
                hidden: Hidden::Almost,
                ..Default::default()
            },
            TimeStyle::LongIso,
        ),
        (&["-R"], ListOptions { recursive: true, ..Default::default() }, TimeStyle::LongIso),
        (
            &["-l", "--time-style=long-iso", "-I", "link", "-I", "broken"],
            ListOptions { long: true, ..Default::default() },
            TimeStyle::LongIso,
        ),
        (
            &["-lhA", "--time-style=full-iso", "-I", "link", "-I", "broken"],
            ListOptions {
                long: true,
                human: true,
                full_time: true,
                hidden: Hidden::Almost,
                ..Default::default()
            },
            TimeStyle::FullIso,
        ),
        (
            &["-lS", "--time-style=iso", "-I", "link", "-I", "broken"],
            ListOptions { long: true, sort: Sort::Size, ..Default::default() },
            TimeStyle::Iso,
        ),
        (
            &["-l", "--time-style=locale", "-I", "link", "-I", "broken"],
            ListOptions { long: true, ..Default::default() },
            TimeStyle::Locale,
        ),
        (&["-d"], ListOptions { directory: true, ..Default::default() }, TimeStyle::LongIso),
        (
            &["-ld", "--time-style=long-iso"],
            ListOptions { long: true, directory: true, ..Default::default() },
            TimeStyle::LongIso,
        ),
    ];
    run(async {
        let client = cluster.client("k-ary:2");
        for (flags, options, style) in cases {
            let (mut said, outcome) =
                ask(&client, cluster.target("d"), ReportChoice::List(options.clone())).await;
            assert!(outcome.is_ok());
            // The links were made now, and on each host at another time.
            if options.long {
                said.retain(|(.., text, _)| !text.contains(&0));
            }
            let said: Said = said.into_iter().filter(|(.., leaves)| leaves.contains(1)).collect();
            let only = if options.directory { "" } else { "d" };
            let mut gnu = gnu_listing(
                &coreutils(&cluster.path(1, ""), "ls", &[flags, &["--", "d"][..]].concat()),
                only,
            );
            // What stands for the host's own root is above it.
            for lines in gnu.values_mut() {
                lines.retain(|line| !line.ends_with(" .."));
            }
            assert_eq!(listing(&said, options, *style), gnu, "{flags:?}");
        }
    });
}

#[test]
fn rows_that_are_equal_fold_and_others_do_not() {
    let cluster = Cluster::new(40);
    populate(&cluster);
    cluster.write(7, "d/extra", "only here");
    cluster.write(9, "d/A small", "other length");
    std::fs::remove_file(cluster.path(11, "d/empty")).unwrap();
    for shape in SHAPES {
        run(async {
            let client = cluster.client(shape);
            let (said, _) =
                ask(&client, cluster.target("/d"), ReportChoice::List(ListOptions::default()))
                    .await;
            let sets: Vec<_> = said
                .iter()
                .map(|(_, _, name, set)| format!("{} {set}", String::from_utf8_lossy(name)))
                .collect();
            assert_eq!(
                sets,
                [
                    "A small 0-39",
                    "big 0-39",
                    "broken 0-39",
                    "empty 0-10,12-39",
                    "extra 7",
                    "link 0-39",
                    "sub 0-39"
                ]
            );
            let long = ListOptions { long: true, ..ListOptions::default() };
            let (said, outcome) =
                ask(&client, cluster.target("/d"), ReportChoice::List(long)).await;
            let small: Vec<_> = said
                .iter()
                .filter(|(.., text, _)| text.ends_with(b"A small") && !text.starts_with(b"l"))
                .collect();
            let mut sets: Vec<String> = small.iter().map(|(.., set)| set.to_string()).collect();
            sets.sort();
            assert_eq!(sets, ["0-8,10-39", "9"]);
            assert_eq!(outcome.status.count, 40);
        });
    }
}

#[test]
fn named_files_come_by_themselves_and_errors_are_told() {
    let cluster = Cluster::new(4);
    populate(&cluster);
    std::fs::remove_dir_all(cluster.path(2, "d")).unwrap();
    run(async {
        let client = cluster.client("flat");
        let by_size = ListOptions { sort: Sort::Size, directory: true, ..ListOptions::default() };
        let (said, outcome) =
            ask(&client, cluster.target("/d/{bi,e,A}*"), ReportChoice::List(by_size)).await;
        let names: Vec<_> = said
            .iter()
            .map(|(path, _, text, _)| format!("{path}|{}", String::from_utf8_lossy(text)))
            .collect();
        assert_eq!(names, ["|/d/big", "|/d/A small", "|/d/empty"]);
        // The pattern matches on other hosts, which makes it no error of the third.
        assert!(outcome.is_ok());
        let (_, outcome) =
            ask(&client, cluster.target("/d/q*"), ReportChoice::List(ListOptions::default())).await;
        assert_eq!(
            (outcome.errors[0].errno, outcome.errors[0].path.as_str()),
            (Errno::NOENT, "/d/q*")
        );
        assert_eq!(outcome.errors[0].members.leaves(), RangeSet::full(4));
        let (_, outcome) =
            ask(&client, cluster.target("/d"), ReportChoice::List(ListOptions::default())).await;
        assert_eq!(
            (outcome.errors[0].errno, outcome.errors[0].members.leaves().to_string()),
            (Errno::NOENT, "2".into())
        );
        assert_eq!(outcome.status.count, 3);
        for what in [ReportChoice::Digest(Algorithm::Sha256), ReportChoice::Contents] {
            let (_, outcome) = ask(&client, cluster.target("/d/sub"), what).await;
            let errnos: Vec<_> =
                outcome.errors.iter().map(|error| (error.errno, error.members.len())).collect();
            assert_eq!(errnos, [(Errno::NOENT, 1), (Errno::ISDIR, 3)].map(|(e, n)| (e, n)));
        }
    });
}

#[test]
fn stat_is_what_gnu_stat_prints() {
    let cluster = Cluster::new(1);
    populate(&cluster);
    run(async {
        let client = cluster.client("flat");
        for path in ["d/big", "d/empty", "d/link", "d/sub", "d/A small"] {
            // Reading a link for the first time changes its time of access.
            ask(&client, cluster.target(path), ReportChoice::Stat(StatOptions::default())).await;
            for format in [
                "%n|%N|%s|%a|%A|%F|%u|%U|%g|%G|%h|%i|%d|%D|%b|%B|%o|%f|%t|%T|%x|%X|%y|%Y|%z|%Z|%W|%%",
                "%10s|%-10s|%010s|%#a|%#f|%5U|%-8F|%Hd,%Ld",
            ] {
                for dereference in [false, true] {
                    let options = StatOptions {
                        format: Some(format.into()),
                        dereference,
                        file_system: false,
                    };
                    options.check().unwrap();
                    let (said, _) =
                        ask(&client, cluster.target(path), ReportChoice::Stat(options)).await;
                    let ours = String::from_utf8(stat::text(&said[0].2, &TimeZone::UTC)).unwrap();
                    let flags: &[&str] = if dereference {
                        &["-L", "-c", format, path]
                    } else {
                        &["-c", format, path]
                    };
                    let theirs = coreutils(&cluster.path(0, ""), "stat", flags);
                    // GNU quotes as its user's terminal likes it.
                    let plain = |text: &str| text.trim_end().replace(['\'', '"'], "");
                    assert_eq!(plain(&ours), plain(&theirs), "{path}");
                }
            }
            let (said, _) =
                ask(&client, cluster.target(path), ReportChoice::Stat(StatOptions::default()))
                    .await;
            let ours: Vec<String> = said
                .iter()
                .map(|line| String::from_utf8(stat::text(&line.2, &TimeZone::UTC)).unwrap())
                .collect();
            let theirs = coreutils(&cluster.path(0, ""), "stat", &[path]);
            let words = |text: &str| {
                text.split_whitespace().map(|word| word.replace('\'', "")).collect::<Vec<_>>()
            };
            // How a device is written changed between versions.
            let ours: Vec<_> = ours
                .iter()
                .filter(|line| !line.starts_with("Device"))
                .map(|line| words(line))
                .collect();
            let theirs: Vec<_> =
                theirs.lines().filter(|line| !line.starts_with("Device")).map(words).collect();
            assert_eq!(ours, theirs);
        }
    });
}

#[test]
fn lines_of_stat_fold_one_by_one() {
    let cluster = Cluster::new(5);
    populate(&cluster);
    run(async {
        let client = cluster.client("k-ary:2");
        let (said, _) =
            ask(&client, cluster.target("/d/big"), ReportChoice::Stat(StatOptions::default()))
                .await;
        let line = |start: &str| {
            let texts = said
                .iter()
                .map(|(.., text, set)| (stat::text(text, &TimeZone::UTC), set.to_string()));
            texts
                .filter(|(text, _)| text.starts_with(start.as_bytes()))
                .map(|(_, set)| set)
                .collect::<Vec<_>>()
        };
        assert_eq!(line("  Size"), ["0-4"]);
        assert_eq!(line("Modify"), ["0-4"]);
        assert_eq!(line("Device").len(), 5);
    });
}

#[test]
fn du_is_what_gnu_du_prints() {
    let cluster = Cluster::new(2);
    populate(&cluster);
    let cases: &[(&[&str], UsageReportOptions)] = &[
        (&["-a"], UsageReportOptions { all: true, ..Default::default() }),
        (&[], UsageReportOptions::default()),
        (
            &["-s", "-h"],
            UsageReportOptions { max_depth: Some(0), human: true, ..Default::default() },
        ),
        (
            &["-d1", "-x", "-c"],
            UsageReportOptions {
                max_depth: Some(1),
                one_file_system: true,
                total: true,
                ..Default::default()
            },
        ),
    ];
    run(async {
        let client = cluster.client("flat");
        for (flags, options) in cases {
            let one = Target { members: RangeSet::single(0), path: "d".into() };
            let (said, outcome) = ask(&client, one, ReportChoice::Usage(options.clone())).await;
            assert!(outcome.is_ok());
            let mut ours: Vec<_> =
                said.iter().map(|(.., text, _)| String::from_utf8(text.clone()).unwrap()).collect();
            let theirs = coreutils(&cluster.path(0, ""), "du", &[flags, &["d"][..]].concat());
            let mut theirs: Vec<_> = theirs.lines().map(str::to_owned).collect();
            // GNU reads directories in the order they have on disk.
            ours.sort();
            theirs.sort();
            assert_eq!(ours, theirs, "{flags:?}");
            // Which of its names counts depends on the order on disk, so the first case has none.
            let _ = std::fs::hard_link(cluster.path(0, "d/sub/g"), cluster.path(0, "d/sub/again"));
        }
        let bytes = UsageReportOptions {
            max_depth: Some(0),
            apparent: true,
            unit: UsageUnit::Byte,
            ..Default::default()
        };
        let (said, _) = ask(&client, cluster.target("/d/big"), ReportChoice::Usage(bytes)).await;
        assert_eq!((said[0].2.as_slice(), said[0].3.len()), (&b"70000\t/d/big"[..], 2));
    });
}

#[test]
fn digests_are_those_of_the_sum_programs() {
    let cluster = Cluster::new(3);
    populate(&cluster);
    run(async {
        let client = cluster.client("flat");
        for (algorithm, program) in
            [(Algorithm::Sha256, "sha256sum"), (Algorithm::Sha512, "sha512sum")]
        {
            let (said, _) =
                ask(&client, cluster.target("d/[be]*[gy]"), ReportChoice::Digest(algorithm)).await;
            let ours: Vec<_> = said
                .iter()
                .map(|(path, _, text, _)| format!("{}  {path}", String::from_utf8_lossy(text)))
                .collect();
            let theirs = coreutils(&cluster.path(0, ""), program, &["d/big", "d/empty"]);
            assert_eq!(ours, theirs.lines().collect::<Vec<_>>());
            assert!(said.iter().all(|(.., set)| set.len() == 3));
        }
    });
}

#[test]
fn contents_are_printed_once_for_all_that_have_them() {
    let cluster = Cluster::new(12);
    let large: Vec<u8> = (0..9_000_000u32)
        .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8..=255)
        .take(9_000_000)
        .collect();
    let mut other = large.clone();
    *other.last_mut().unwrap() ^= 1;
    for leaf in 0..12 {
        cluster.write(leaf, "large", if leaf == 5 { &other } else { &large });
        cluster.write(leaf, "small", if leaf % 4 == 0 { "a\n" } else { "b" });
        cluster.write(leaf, "empty", "");
    }
    run(async {
        let client = cluster.client("k-ary:3");
        for each in [false, true] {
            let mut got: Vec<(String, String, Vec<u8>, bool)> = Vec::new();
            let before = client.network().counters().bytes_in;
            let targets = ["/empty", "/large", "/small"].map(|path| cluster.target(path));
            let outcome = cat(&client, &targets, each, &mut |piece| {
                let path = String::from_utf8(piece.path.to_vec()).unwrap();
                if piece.at == 0 {
                    got.push((path.clone(), piece.leaves.to_string(), Vec::new(), false));
                }
                let last = got.last_mut().unwrap();
                assert_eq!((&last.0, last.2.len() as u64), (&path, piece.at));
                assert!(piece.bytes.len() <= 4 << 20);
                last.2.extend_from_slice(piece.bytes);
                last.3 = piece.is_last;
                Ok(())
            })
            .await
            .unwrap();
            assert_eq!((outcome.is_ok(), outcome.status.count), (true, 36));
            assert!(got.iter().all(|(.., is_last)| *is_last));
            if each {
                assert_eq!(got.len(), 36);
                for (at, (path, leaf, content, _)) in got.iter().enumerate() {
                    assert_eq!(*leaf, (at / 3).to_string());
                    assert!(*content == cluster.read(at as u32 / 3, path));
                }
            } else {
                let sets: Vec<_> =
                    got.iter().map(|(path, set, ..)| format!("{set}:{path}")).collect();
                assert_eq!(
                    sets,
                    [
                        "0-11:/empty",
                        "0-4,6-11:/large",
                        "5:/large",
                        "0,4,8:/small",
                        "1-3,5-7,9-11:/small"
                    ]
                );
                assert!(got[1].2 == large && got[2].2 == other);
                let crossed = client.network().counters().bytes_in - before;
                assert!(crossed < 19_000_000, "{crossed} bytes for two contents of 9 MB");
            }
        }
    });
}
