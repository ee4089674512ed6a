//! The printed forms.
use sheaf_core::RangeSet;
use sheaf_tools::entry::{Answer, Merged, MergedEntry};
use sheaf_tools::grep::print::{GrepLayout, GrepPrinter, stats_record, strided};
use sheaf_tools::grep::{GrepOptions, GrepOutput};

fn options(pattern: &str) -> GrepOptions {
    GrepOptions { patterns: vec![pattern.to_owned()], ..GrepOptions::default() }
}

/// What the given hosts find in the given files: leaf, path, contents.
fn search(options: &GrepOptions, files: &[(u32, &str, &str)]) -> Merged {
    let mut merged = Merged::new();
    let mut engine = options.compile().unwrap();
    for of_leaf in files.chunk_by(|a, b| a.0 == b.0) {
        let mut answer = Answer::new(options.answer_form());
        for (_, path, contents) in of_leaf {
            let _ = engine.search_reader(contents.as_bytes(), path.as_bytes(), &mut answer);
        }
        merged.fold_raw(of_leaf[0].0, &answer.into_bytes()).unwrap();
    }
    merged
}

fn hosts(leaves: &RangeSet) -> String {
    let one = RangeSet::single;
    let names: RangeSet = leaves.iter().map(|leaf| leaf + 1).collect();
    if *leaves == one(leaves.first().unwrap()) {
        format!("n{names}")
    } else {
        format!("n[{names}]")
    }
}

fn printer(layout: GrepLayout) -> GrepPrinter<'static> {
    GrepPrinter { layout, prefix: true, color: false, escapes: false, engine: None, hosts: &hosts }
}

fn print(printer: &GrepPrinter<'_>, merged: &Merged) -> String {
    let mut out = Vec::new();
    printer.print(&mut out, &merged.sorted()).unwrap();
    String::from_utf8(out).unwrap()
}

const SERVICES: &[(u32, &str, &str)] = &[
    (0, "/etc/services", "domain 53/udp\nntp 123/udp\n"),
    (1, "/etc/services", "domain 53/udp\nsyslog 514/udp\nntp 123/udp\n"),
    (2, "/etc/services", "domain 53/udp\nntp 123/udp\n"),
];

const LOGS: &[(u32, &str, &str)] = &[
    (0, "/var/log/a.log", "up\ndisk full\nretry\nx\ny\ndisk full of b\n"),
    (0, "/var/log/b.log", "up\ndisk full\nretry\n"),
    (3, "/var/log/a.log", "up\ndisk full\nretry\n"),
    (3, "/var/log/b.log", "up\ndisk full\nretry\n"),
];

#[test]
fn one_line_for_each_distinct_line() {
    let merged = search(&options("udp"), SERVICES);
    insta::assert_snapshot!(print(&printer(GrepLayout::Flat), &merged), @r"
    n[1-3]:/etc/services:domain 53/udp
    n[1-3]:/etc/services:ntp 123/udp
    n2:/etc/services:syslog 514/udp
    ");
}

#[test]
fn numbers_keep_lines_apart() {
    let merged = search(&GrepOptions { number: true, ..options("ntp") }, SERVICES);
    insta::assert_snapshot!(print(&printer(GrepLayout::Flat), &merged), @r"
    n[1,3]:/etc/services:2:ntp 123/udp
    n2:/etc/services:3:ntp 123/udp
    ");
}

#[test]
fn without_prefix_only_lines_are_left() {
    let merged = search(&options("ntp"), SERVICES);
    let printer = GrepPrinter { prefix: false, ..printer(GrepLayout::Flat) };
    insta::assert_snapshot!(print(&printer, &merged), @r"
    ntp 123/udp
    ");
}

#[test]
fn control_characters_of_paths_are_escapes_on_a_terminal() {
    let merged = search(&options("red"), &[(0, "/etc/\u{1b}[2Jx\ny", "red\n")]);
    let shown = GrepPrinter { escapes: true, ..printer(GrepLayout::Flat) };
    assert_eq!(print(&shown, &merged), "n1:/etc/\\u{1b}[2Jx\\ny:red\n");
    assert_eq!(print(&printer(GrepLayout::Flat), &merged), "n1:/etc/\u{1b}[2Jx\ny:red\n");
}

#[test]
fn equal_lines_at_several_paths_are_one() {
    let merged = search(&options("disk"), LOGS);
    insta::assert_snapshot!(print(&printer(GrepLayout::Flat), &merged), @r"
    n[1,4]:/var/log/{a,b}.log:disk full
    n1:/var/log/a.log:disk full of b
    ");
}

#[test]
fn blocks_have_their_context_and_breaks() {
    let merged =
        search(&GrepOptions { number: true, before: 1, after: 1, ..options("disk") }, LOGS);
    insta::assert_snapshot!(print(&printer(GrepLayout::Flat), &merged), @r"
    n[1,4]:/var/log/{a,b}.log-1-up
    n[1,4]:/var/log/{a,b}.log:2:disk full
    n[1,4]:/var/log/{a,b}.log-3-retry
    --
    n1:/var/log/a.log-5-y
    n1:/var/log/a.log:6:disk full of b
    ");
    insta::assert_snapshot!(print(&printer(GrepLayout::Heading), &merged), @r"
    n[1,4]:/var/log/{a,b}.log
    1-up
    2:disk full
    3-retry

    n1:/var/log/a.log
    5-y
    6:disk full of b
    ");
}

#[test]
fn headings_stand_above_their_lines() {
    let merged = search(&options("udp"), SERVICES);
    insta::assert_snapshot!(print(&printer(GrepLayout::Heading), &merged), @r"
    n[1-3]:/etc/services
    domain 53/udp
    ntp 123/udp

    n2:/etc/services
    syslog 514/udp
    ");
}

#[test]
fn colours_are_those_of_ripgrep() {
    let options = GrepOptions { number: true, ..options("udp") };
    let engine = options.compile().unwrap();
    let merged = search(&options, &SERVICES[..1]);
    let printer =
        GrepPrinter { color: true, engine: Some(&engine), ..printer(GrepLayout::Heading) };
    insta::assert_snapshot!(print(&printer, &merged).replace('\x1b', "␛"), @r"
    ␛[36mn1␛[0m:␛[35m/etc/services␛[0m
    ␛[32m1␛[0m:domain 53/␛[1m␛[31mudp␛[0m
    ␛[32m2␛[0m:ntp 123/␛[1m␛[31mudp␛[0m
    ");
}

#[test]
fn each_host_has_its_own_lines() {
    let options = GrepOptions { each: true, ..options("udp|twice") };
    let files = [(0, "/f", "twice\nudp\ntwice\n"), (2, "/f", "udp\n")];
    insta::assert_snapshot!(print(&printer(GrepLayout::Each), &search(&options, &files)), @r"
    n1:/f:twice
    n1:/f:udp
    n1:/f:twice
    n3:/f:udp
    ");
}

#[test]
fn members_by_strided_index() {
    let printer = GrepPrinter { hosts: &strided, ..printer(GrepLayout::Flat) };
    insta::assert_snapshot!(print(&printer, &search(&options("udp"), SERVICES)), @r"
    0:1:3:/etc/services:domain 53/udp
    0:1:3:/etc/services:ntp 123/udp
    1:1:1:/etc/services:syslog 514/udp
    ");
}

#[test]
fn counts_paths_and_binary_files() {
    let with = |output, pattern: &str| {
        let files = [(0, "/a", "x\nx\n"), (1, "/a", "x\nx\n"), (1, "/b", "x\0\n"), (2, "/a", "")];
        print(
            &printer(GrepLayout::Flat),
            &search(&GrepOptions { output, ..options(pattern) }, &files),
        )
    };
    insta::assert_snapshot!(with(GrepOutput::Count, "x"), @r"
    n[1-2]:/a:2
    n3:/a:0
    n2:/b:1
    ");
    insta::assert_snapshot!(with(GrepOutput::PathsWith, "x"), @r"
    n[1-2]:/a
    n2:/b
    ");
    insta::assert_snapshot!(with(GrepOutput::PathsWithout, "x"), @r"
    n3:/a
    ");
    insta::assert_snapshot!(with(GrepOutput::Lines, "x"), @r"
    n[1-2]:/a:x
    n2:/b: binary file matches
    ");
}

/// The text of a record, in the order of its keys.
fn json(record: &sheaf_records::Entry) -> String {
    serde_json::to_value(record).unwrap().to_string()
}

#[test]
fn json_is_one_object_for_each_entry() {
    let options = GrepOptions { number: true, after: 1, stats: true, ..options("disk") };
    let engine = options.compile().unwrap();
    let merged = search(&options, &LOGS[2..]);
    let printer = GrepPrinter { engine: Some(&engine), ..printer(GrepLayout::Flat) };
    let records = merged
        .sorted()
        .iter()
        .filter_map(|entry| printer.record(entry).unwrap())
        .collect::<Vec<_>>();
    let lines: Vec<String> = records.iter().map(json).collect();
    assert_eq!(stats_record(merged.stats().unwrap()).bytes_searched, 38);
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"count":1,"hosts":"n4","kind":"block","lines":[{"line":2,"matches":[{"end":4,"start":0}],"selected":true,"text":"disk full"},{"line":3,"selected":false,"text":"retry"}],"path":"/var/log/a.log","type":"entry"}
    {"count":1,"hosts":"n4","kind":"block","lines":[{"line":2,"matches":[{"end":4,"start":0}],"selected":true,"text":"disk full"},{"line":3,"selected":false,"text":"retry"}],"path":"/var/log/b.log","type":"entry"}
    "#);
}

#[test]
fn json_gives_bytes_that_are_not_text_in_base64() {
    let leaves = RangeSet::single(0);
    let entry = sheaf_tools::entry::Entry::new(sheaf_tools::entry::EntryKind::Part, b"\xff");
    let entry = MergedEntry { path: b"/\xfe", entry, leaves: &leaves };
    insta::assert_snapshot!(json(&printer(GrepLayout::Flat).record(&entry).unwrap().unwrap()), @r#"{"base64":"/w==","count":1,"hosts":"n1","kind":"part","path_base64":"L/4=","type":"entry"}"#);
}

#[test]
fn templates_fold_what_differs_only_by_host() {
    let options = GrepOptions { template: true, ..options("login") };
    let mut merged = Merged::new();
    for leaf in 0..3 {
        let name = format!("n{}", leaf + 1);
        let line = format!("Jan  2 03:04:0{leaf} {name} sshd[{leaf}]: login from 10.0.0.{leaf}\n");
        let mut engine = options.compile().unwrap().on_host(&[&name]);
        let mut answer = Answer::new(options.answer_form());
        let _ = engine.search_reader(line.as_bytes(), b"/var/log/auth.log", &mut answer);
        merged.fold_raw(leaf, &answer.into_bytes()).unwrap();
    }
    insta::assert_snapshot!(print(&printer(GrepLayout::Flat), &merged), @r"
    n[1-3]:/var/log/auth.log:{time} {host} sshd[{pid}]: login from {ip}
    ");
}
