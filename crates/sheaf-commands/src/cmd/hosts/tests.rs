use super::*;
use clap::Parser;
use sheaf_core::hostset::GroupTable;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    hosts: HostsArgs,
}

/// The groups of these tests, the default source first.
fn table() -> GroupTable {
    let mut groups = GroupTable::new("lab");
    for (source, group, hosts) in [
        ("lab", "all", "n[1-9],m[01-12],r[1-3]n[1-5]"),
        ("lab", "a", "n[1-6]"),
        ("lab", "b", "@a!n2,m[01-03]"),
        ("lab", "gpu1", "m[01-04]"),
        ("lab", "gpu2", "m[05-08]"),
        ("other", "x", "n[1-2]"),
    ] {
        groups.insert(source, group, hosts);
    }
    groups
}

struct Ran {
    out: String,
    warnings: String,
}

fn try_run(args: &[&str], input: &str, json: bool) -> Result<Ran> {
    let line = Line::try_parse_from(std::iter::once(&"hosts").chain(args))?;
    let (mut out, mut warnings) = (Vec::new(), Vec::new());
    let mut input = input.as_bytes();
    let json = json.then(Records::default);
    let mut streams =
        InputStreams { input: &mut input, out: &mut out, warnings: Some(&mut warnings), json };
    run_on(&line.hosts, &table(), &mut streams)?;
    Ok(Ran { out: String::from_utf8(out)?, warnings: String::from_utf8(warnings)? })
}

fn answer(args: &[&str]) -> String {
    try_run(args, "", false).unwrap().out
}

fn error(args: &[&str]) -> String {
    try_run(args, "", false).map(|ran| ran.out).unwrap_err().to_string()
}

#[test]
fn folds_unless_told_otherwise() {
    assert_eq!(answer(&["n1", "n2", "n3", "n7"]), "n[1-3,7]\n");
    assert_eq!(answer(&["-e", "n[1-3]"]), "n1 n2 n3\n");
    assert_eq!(answer(&["-c", "n[1-3]", "m1"]), "4\n");
    assert_eq!(answer(&["n[1-3]!n[1-3]"]), "\n");
    assert_eq!(answer(&["-c", ""]), "0\n");
}

#[test]
fn index_is_the_position_of_a_host_in_the_result() {
    assert_eq!(answer(&["--index", "n5", "n[0-9]"]), "5\n");
    assert_eq!(answer(&["-R", "--index", "18", "1,5,18-31"]), "2\n");
    assert_eq!(answer(&["--index", "n9", "n[1-9]", "-x", "n[2-4]"]), "5\n");
    assert_eq!(answer(&["--index", "n3", "-I", "1-2", "n[1-9]"]), "1\n");
    assert_eq!(error(&["--index", "n10", "n[1-9]"]), "\"n10\" is not in \"n[1-9]\"");
    assert!(error(&["--index", "n1", "--pick", "1", "n[1-9]"]).contains("cannot be used with"));
}

#[test]
fn operations_act_where_they_stand() {
    assert_eq!(
        answer(&["n[1-9]", "-x", "n2", "-i", "n[1-5]", "n9", "-X", "n[9-10]"]),
        "n[1,3-5,10]\n"
    );
    assert_eq!(answer(&["-a", "-x", "@a"]), "m[01-12],n[7-9],r[1-3]n[1-5]\n");
    assert_eq!(answer(&["-X", "n[1-2]", "-x", "n1", "-a", "-i", "@a"]), "n[1,3-6]\n");
    assert_eq!(answer(&["-a", "n100", "-x", "n1"]), "m[01-12],n[2-9,100],r[1-3]n[1-5]\n");
    let ran = try_run(&["-x", "n3", "n[1-5]"], "", false).unwrap();
    assert_eq!((ran.out.as_str(), ran.warnings.lines().count()), ("n[1-5]\n", 1));
}

#[test]
fn standard_input_is_read_when_nothing_is_given_or_for_a_dash() {
    let input = "n1 n2\n# all of it a comment\nn[3-4]!n3 # not n9\n\n n7";
    assert_eq!(try_run(&[], input, false).unwrap().out, "n[1-2,4,7]\n");
    assert_eq!(try_run(&["n[1-9]", "-x", "-"], input, false).unwrap().out, "n[3,5-6,8-9]\n");
    assert_eq!(try_run(&["-c", "-R"], "1-3 7", false).unwrap().out, "4\n");
}

#[test]
fn output_is_shaped_by_options() {
    assert_eq!(answer(&["-e", "-S", r"\n", "n[1-2]"]), "n1\nn2\n");
    assert_eq!(answer(&["-e", "-S", ", ", "-O", "<%s>", "n[1-2]"]), "<n1>, <n2>\n");
    assert_eq!(answer(&["-O", "%s-ib0", "n[1-3]"]), "n[1-3]-ib0\n");
    assert_eq!(answer(&["-c", "-O", "%05d", "n[1-3]"]), "00003\n");
    assert_eq!(answer(&["-I", "1-2,4", "n[1-9]"]), "n[2-3,5]\n");
    assert_eq!(answer(&["--split", "3", "n[1-10]"]), "n[1-4]\nn[5-7]\nn[8-10]\n");
    assert_eq!(answer(&["-e", "--contiguous", "n[1-3,5]"]), "n1 n2 n3\nn5\n");
    assert_eq!(answer(&["--autostep", "3", "n[1-9/2]"]), "n[1-9/2]\n");
    assert_eq!(answer(&["--autostep", "auto", "n[1-9/2]"]), "n[1-9/2]\n");
    assert_eq!(answer(&["--autostep", "80%", "n[1-9/2]", "m[1-9]"]), "m[1-9],n[1,3,5,7,9]\n");
    assert_eq!(answer(&["--axis", "1", "a[1-2]b[1-2]"]), "a[1-2]b1,a[1-2]b2\n");
    assert_eq!(answer(&["--axis", "-1", "a[1-2]b[1-2]"]), "a1b[1-2],a2b[1-2]\n");
    assert_eq!(answer(&["-c", "--pick", "2", "n[1-9]"]), "2\n");
    assert_eq!(answer(&["--each-of", "n[1-3]", "n[2-4]", "-x", "n2"]), "n[1,3]\nn[3-4]\n");
    assert_eq!(answer(&["-R", "1-5/2", "007", "-x", "3"]), "1,5,007\n");
}

#[test]
fn groups_are_listed() {
    assert_eq!(answer(&["-l"]), "@a\n@all\n@b\n@gpu1\n@gpu2\n");
    assert_eq!(answer(&["-ll", "-s", "other"]), "@other:x n[1-2]\n");
    assert_eq!(answer(&["-l", "-G", "-s", "other"]), "@x\n");
    assert_eq!(answer(&["-lll", "n[1-3]"]), "@a n[1-3] 3/6\n@all n[1-3] 3/36\n@b n[1,3] 2/8\n");
    assert_eq!(answer(&["-L", "n1"]), "@a\n@all\n@b\n@other:x\n");
    assert_eq!(answer(&["--list-sources"]), "lab (default)\nother\n");
    assert_eq!(answer(&["--list-sources", "-s", "other"]), "other (default)\nlab\n");
    assert_eq!(answer(&["@other:*"]), "n[1-2]\n");
    assert_eq!(answer(&["-s", "other", "@x"]), "n[1-2]\n");
}

/// A table beside a source that cannot list.
struct Mute(GroupTable);

impl Groups for Mute {
    fn resolve(&self, source: Option<&str>, group: &str) -> Result<String, String> {
        self.0.resolve(source, group)
    }

    fn list(&self, source: Option<&str>) -> Result<Vec<String>, String> {
        self.0.list(source)
    }

    fn sources(&self) -> Vec<String> {
        self.0.sources().into_iter().chain(["mute".to_owned()]).collect()
    }
}

#[test]
fn source_that_cannot_list_does_not_hide_the_others() {
    let line = Line::try_parse_from(["hosts", "-L"]).unwrap();
    let (mut input, mut out, mut warnings) = (&b""[..], Vec::new(), Vec::new());
    let mut streams = InputStreams {
        input: &mut input,
        out: &mut out,
        warnings: Some(&mut warnings),
        json: None,
    };
    let exit = run_on(&line.hosts, &Mute(table()), &mut streams).unwrap();
    assert_eq!(exit, Exit::Unmatched);
    assert_eq!(String::from_utf8(out).unwrap(), "@a\n@all\n@b\n@gpu1\n@gpu2\n@other:x\n");
    assert_eq!(
        String::from_utf8(warnings).unwrap(),
        "sheaf: warning: unknown group source 'mute'\n"
    );
}

#[test]
fn sets_are_written_with_groups() {
    assert_eq!(answer(&["-r", "-a"]), "@all\n");
    assert_eq!(answer(&["-r", "n[1-6]", "m[01-08]"]), "@b,@gpu2,m04,n2\n");
    assert_eq!(answer(&["-r", "-O", "<%s>", "m[01-09]"]), "<@gpu[1-2],m09>\n");
    assert_eq!(answer(&["-r", "-s", "other", "n[1-3]"]), "@other:x,n3\n");
    assert_eq!(answer(&["-r", "-G", "-s", "other", "n[1-3]"]), "@x,n3\n");
}

#[test]
fn json_is_one_object_per_line() {
    let json = |args: &[&str]| try_run(args, "", true).unwrap().out;
    assert_eq!(
        json(&["n[1-3]"]),
        "{\"count\":3,\"hosts\":\"n[1-3]\",\"type\":\"hosts\",\"v\":1}\n"
    );
    let listed = json(&["-e", "n[1-2]"]);
    assert!(
        listed.starts_with("{\"count\":2,\"host_list\":[\"n1\",\"n2\"],\"hosts\":\"n[1-2]\","),
        "{listed}"
    );
    assert_eq!(
        json(&["-l", "-s", "other"]),
        "{\"count\":2,\"group\":\"@other:x\",\"hosts\":\"n[1-2]\",\"type\":\"group\",\"v\":1}\n"
    );
}

#[test]
fn bad_input_is_one_line() {
    for args in [
        &["n[1"][..],
        &["@nope"],
        &["-s", "nope", "@a"],
        &["-O", "%q", "n1"],
        &["-I", "x", "n1"],
        &["-R", "a"],
        &["n[1-99999999999]"],
    ] {
        let error = error(args);
        assert!(!error.is_empty() && !error.contains('\n'), "{error}");
    }
    assert!(error(&["-c", "-e", "n1"]).contains("cannot be used with"));
    assert!(error(&["-R", "-r", "1"]).contains("cannot be used with"));
    assert!(error(&["--split", "2", "--contiguous", "n1"]).contains("cannot be used with"));
}
