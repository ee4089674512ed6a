//! `sheaf hosts` against the real `nodeset`.
use sheaf_testing::home::Home;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const NODESET: &str = "/usr/bin/nodeset";

/// Sources of every kind: those that cannot list, cannot answer, or tell the groups of one host.
const GROUPS_CONF: &str = "\
[Main]
default: lab
autodir: $CFGDIR/groups.d

[zz]
map: case $GROUP in a) echo n[1-3];; b) echo n[2-5];; esac
reverse: case $NODE in n1) echo a;; n2|n3) echo a b;; n4|n5) echo b;; esac

[empty]
map: case $GROUP in a) echo n[1-3];; b) echo n[2-5];; esac
list:
reverse: case $NODE in n1) echo a;; n2|n3) echo a b;; n4|n5) echo b;; esac

[silent]
map: case $GROUP in a) echo n[1-3];; b) echo n[2-5];; esac
list: true
reverse: case $NODE in n1) echo a;; n2|n3) echo a b;; n4|n5) echo b;; esac

[reversefails]
map: case $GROUP in a) echo n[1-3];; esac
list: echo a
reverse: exit 7

[mapfails]
map: case $GROUP in a) echo n[1-3];; *) exit 4;; esac
list: echo a b

[fails]
map: exit 3
all: exit 4
list: exit 5

[maponly]
map: case $GROUP in a) echo n[1-3];; esac

[ranges]
map: case $GROUP in r1) echo n1;; r2) echo n2;; esac
list: echo 'r[1-2]'

[malformed]
map: echo 'n[1-'
list: echo a
all: echo 'n[1-'
";
const GROUPS: &str = "\
lab:
  all: 'n[1-9],m[01-12],r[1-3]n[1-5]'
  a: 'n[1-6]'
  b: '@a!n2,m[01-03]'
  gpu1: 'm[01-04]'
  gpu2: 'm[05-08]'
  'rack[1-2]': 'n1'
  'two words': 'n2'
circle:
  one: '@two'
  two: '@one'
other:
  x: 'n[1-2]'
";

/// Arguments that both programs take, one command line per line.
const COMMANDS: &str = r"
-f n1 n2 n3 n7
-f n[8-12] n[08-10] n9
-f rack[1-4]n[1-16] -x rack2n[1-16/3]
-f x2y1 x10y1 x2y2 x10y3 x[1-3]y[1-3]
-f n1[1-10] n[1-3]0 a1b2c[3-4]5
-e n[1-10/3] m
-e -S \n n[1-3]
-e -O <%s> -S , n[1-3]
-c n[1-10] @a
-c -O %05d n[1-3]
-f -O %s-ib0 n[1-3] n7
-f n[1-9] -x n2 -i n[1-5] n9 -X n[9-10]
-f -a
-f -a -x @a
-f -X n[1-2] -x n1 -a -i @a
-f @b&n[3-9]^n1!n5
-f @*!n[1-4]
-f @other:* @other:x
-f n* r[1-2]* ?1?
-f @@lab
-f -s other @x n5
-f -I 2-5,8 -a
-f -I -2 n[1-20]
-f -I -5--3 n[1-20]
-e --split 3 n[1-10]
-f --split 4 -a
-c --split 3 n[1-10]
-f --contiguous -a -x n5
-f --autostep 3 n[1-9/2] n20
-f --autostep auto n[1-9/2]
-f --autostep auto n[1-9/2] n20
-f --autostep 60% n[1-9/2] n20
-f --axis 1 -a
-f --axis 2 -a
-f --axis -1 -a
-f --axis 1-2 -a
-f --pick 99 -a
-f -R 1-5/2 007 9-12
-e -R 1-5 -x 3
-c -R --split 2 1-9
-f -R -I 1-2 5-9
-f -R --autostep 3 1 3 5 7 9
-l
-ll
-lll
-L
-LL
-l -s other
-l -G -s other
-l n1
-ll n[1-3]
-lll n[1-3] m01
-L n1
-lll -a
--list-sources
--list-sources -s other
-r -a
-r n[1-6] m[01-08]
-r m[01-09]
-r -O <%s> m[01-09]
-r -s other n[1-3]
-r -G -s other n[1-3]
-r --split 2 n[1-6]
-f n[1
-f n1,,n2
-f n[5-1]
-f @nosource:x
-f -s nosource n1
-f -O %s%s n1
-f -O % n1
-f -O x n1
-f -O %d n1,n2
-f -I x n1
-f -I 1- n1
-f --axis x n1
-f --split 0 n[1-3]
-f --split -1 n[1-3]
-f n[3--1]
-f n[]
-f ,
-f !n1
-f n1!
-f n[1/2]
-f n[01-3]
-f n[1-3][4-5]
-f @x:y
-f @circle:one
-l -s circle
-q -f n1
-d -f n1
-q --list-sources
-q -f -x n1
--list-sources --groupsconf groups/other.conf
-f --groupsconf groups/other.conf @x @one:x
-f -a --groupsconf=groups/other.conf
-f --groupsconf groups/none.conf @a
-l -s zz
-l -s zz n1
-ll -s zz n[1-3]
-lll -s zz n[1-5]
-r -s zz n[1-3]
-r -s zz n[1-5]
-f -a -s zz
-l -s empty
-l -s empty n1
-ll -s empty n[1-3]
-r -s empty n[1-5]
-f -a -s empty
-l -s silent n1
-ll -s silent n[1-3]
-r -s silent n[1-5]
-l -s reversefails
-l -s reversefails n1
-r -s reversefails n[1-3]
-l -s mapfails
-ll -s mapfails
-l -s mapfails n1
-r -s mapfails n[1-3]
-f -a -s mapfails
-f @mapfails:b
-f @fails:a
-f @fails:*
-f n1 @fails:a
-f -a -s fails
-l -s fails
-f @@fails
-l -s maponly
-l -s maponly n1
-r -s maponly n[1-3]
-f -a -s maponly
-f @@maponly
-l -s ranges
-ll -s ranges
-l -s ranges n1
-r -s ranges n1
-f -a -s ranges
-f @malformed:a
-f -a -s malformed
-l -s malformed
-l -s malformed n1
-f @@
";

/// Single arguments with blanks in them.
const BLANKS: &[&str] = &[
    "n1 n2",
    "n1, n2",
    "n1 ,n2",
    " n1",
    "n1 ",
    "n1 !n2",
    "n[1-3]! n2",
    "n[1 -3]",
    "n[1, 3]",
    "n[1-3] n7",
    "n1 n[2-3]",
    "n 1",
    "@two words",
    "@a ,n9",
];

fn home() -> Home {
    let home = Home::new();
    home.write("groups/groups.conf", GROUPS_CONF);
    home.write("groups/groups.d/cluster.yaml", GROUPS);
    let other = "[Main]\ndefault: one\n[one]\nmap: echo n[1-3]\nall: echo n[1-4]\nlist: echo x\n";
    home.write("groups/other.conf", other);
    // What the source that comes with ClusterShell reads.
    home.write("groups/groups.d/local.cfg", "");
    home
}

fn output(mut command: Command, home: &Path, input: &str) -> (Option<i32>, String, String) {
    command.env_clear().env("CLUSTERSHELL_CFGDIR", home.join("groups")).env("HOME", home);
    command.current_dir(home).env("PATH", "/usr/bin:/bin").env("PYTHONIOENCODING", "utf-8");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that reads nothing may be gone already.
    let _ = Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn compare(args: &[&str], input: &str, home: &Home) {
    let mut nodeset = Command::new(NODESET);
    nodeset.args(args);
    let theirs = output(nodeset, home.path(), input);
    let mut sheaf = Command::new(env!("CARGO_BIN_EXE_sheaf"));
    sheaf.arg("hosts").args(args);
    let ours = output(sheaf, home.path(), input);
    assert_eq!(ours.0, theirs.0, "{args:?}\nnodeset: {}\nsheaf: {}", theirs.2, ours.2);
    // Of all sources, those behind one that fails are listed here all the same.
    if theirs.0 == Some(0) || !args[0].starts_with("-L") {
        assert_eq!(ours.1, theirs.1, "{args:?}\nsheaf: {}", ours.2);
    }
    if theirs.0 != Some(0) && !args[0].starts_with("-L") {
        assert_eq!(ours.2.trim_end().lines().count(), 1, "{args:?}: {}", ours.2);
    }
}

fn nodeset_is_installed(tests: usize) -> bool {
    let installed = Path::new(NODESET).exists();
    if !installed {
        // The harness would keep what `eprintln!` prints.
        let why = format!("{NODESET} is not installed (Debian package clustershell)");
        let _ = writeln!(std::io::stderr(), "SKIPPED {tests} test: {why}");
    }
    installed
}

#[test]
fn answers_as_nodeset_does() {
    if !nodeset_is_installed(1) {
        return;
    }
    let home = home();
    for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
        compare(&line.split(' ').collect::<Vec<_>>(), "", &home);
    }
}

#[test]
fn reads_input_as_nodeset_does() {
    if !nodeset_is_installed(1) {
        return;
    }
    let home = home();
    let input = "n1 n2  m03\n# n9\nn[4-6]!n5 # n7\n\n@other:x\n";
    for args in [
        &["-f"][..],
        &["-c"],
        &["-f", "-x", "n1"],
        &["-f", "n[1-9]", "-x", "-"],
        &["-e", "-", "n20"],
    ] {
        compare(args, input, &home);
    }
    compare(&["-f", "n1\nn2\nm[1-2]"], "", &home);
}

/// An argument that `nodeset` takes as one name with a blank in it is not two hosts here either.
#[test]
fn blanks_mean_what_they_mean_to_nodeset() {
    if !nodeset_is_installed(1) {
        return;
    }
    let home = home();
    for expr in BLANKS {
        for command in ["-f", "-c", "-e"] {
            compare(&[command, expr], "", &home);
        }
    }
}

/// Where it is wrong to do as `nodeset` does: what a source could not tell is not left out in
/// silence, names that a shell would read as commands are not asked for, and one host has one name.
#[test]
fn differs_from_nodeset_where_that_would_be_wrong() {
    let home = home();
    let hosts = |args: &[&str]| {
        let mut sheaf = Command::new(env!("CARGO_BIN_EXE_sheaf"));
        sheaf.arg("hosts").args(args);
        output(sheaf, home.path(), "")
    };
    for args in [&["-l", "-s", "fails", "n1"][..], &["-r", "-s", "fails", "n1"], &["@zz:$(id)"]] {
        let (code, stdout, stderr) = hosts(args);
        assert_eq!(
            (code, stdout.as_str(), stderr.lines().count()),
            (Some(1), "", 1),
            "{args:?} {stderr}"
        );
    }
    // What nodeset takes for an empty group.
    let (code, stdout, stderr) = hosts(&["@a b"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("no group @a b"), "{stderr}");
    assert_eq!(hosts(&["n[-3-1]", "-x", "n-2"]).1, "n[0-1],n-[1,3]\n");
    let (code, _, stderr) = hosts(&["@circle:one"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("in a circle: @circle:one → @circle:two → @circle:one"), "{stderr}");
}

/// Whoever mistypes a group is told, as where an address or `-w` names it.
#[test]
fn group_that_there_is_not_is_no_empty_one() {
    let home = Home::with_config("[groups]\nweb = \"n[1-2]\"\n");
    assert_eq!(home.run(&["hosts", "@web"]).stdout, "n[1-2]\n");
    for (name, near) in [("@wbe", "@web"), ("@sheaf:wbe", "@sheaf:web")] {
        let run = home.run(&["hosts", "-c", "n7", name]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{run:?}");
        let told = format!("no group {name}; did you mean {near}?");
        assert!(run.stderr.contains(&told), "{run:?}");
    }
    // What is none for ClusterShell's own source is none, if it can list those it has.
    for (list, code) in [("echo there", 1), ("false", 0)] {
        let conf = format!(
            "[Main]\ndefault: lab\n[lab]\nmap: test $GROUP = there && echo n5 || true\nlist: {list}\n"
        );
        let conf = home.write("groups.conf", &conf);
        let hosts = |group| home.run(&["hosts", "--groupsconf", conf.to_str().unwrap(), group]);
        assert_eq!(hosts("@there").stdout, "n5\n");
        assert_eq!(hosts("@nope").code, Some(code), "{:?}", hosts("@nope"));
    }
}

#[test]
fn folds_by_default_and_answers_each() {
    let home = Home::new();
    let run = home.run(&["hosts", "n1", "n2", "n4"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "n[1-2,4]\n"));
    let run = home.run(&["hosts", "-c", "--each-of", "n[1-3]", "m1"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "3\n1\n"));
    let run = home.run(&["--json", "hosts", "-e", "n[1-2]"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (
            Some(0),
            "{\"count\":2,\"host_list\":[\"n1\",\"n2\"],\"hosts\":\"n[1-2]\",\"type\":\"hosts\",\"v\":1}\n"
        )
    );
}

#[test]
fn malformed_set_ends_with_1_as_with_nodeset() {
    let run = Home::new().run(&["hosts", "n[1-3,x]"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("byte 6") && run.stderr.contains("'x'"), "{}", run.stderr);
}
