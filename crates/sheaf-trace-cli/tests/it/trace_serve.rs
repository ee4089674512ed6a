//! `sheaf trace serve`: one trace of what programs of many hosts do.
use crate::trace::TraceHome as _;
use crate::trace_unseen::copy_of_sheaf;
use rustix::process::{Pid, Signal, kill_process};
use sheaf_testing::built;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::wait_until;
use sheaf_trace::{StoreReader, TraceInfo, TraceNames};
use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Counts, bytes and losses by host and operation of files that are called so at their end.
#[derive(Debug, Default)]
struct Seen {
    sums: BTreeMap<(String, String), (u64, i64)>,
    lost: BTreeMap<String, u64>,
    is_ordered: bool,
}

impl Seen {
    fn of(home: &Home, end: &str) -> Self {
        let mut seen = Self { is_ordered: true, ..Self::default() };
        let mut last = i64::MIN;
        let reader = StoreReader::open(&home.path().join("the.trace")).unwrap();
        let damaged = reader
            .read(&mut TraceNames::default(), |row, names| {
                let text = |name| String::from_utf8(names.text(name).to_vec()).unwrap();
                let (host, op) = (text(row.host), text(row.op));
                seen.is_ordered &= last <= row.time_ns;
                last = row.time_ns;
                if op == "lost" {
                    *seen.lost.entry(host).or_default() += row.bytes as u64;
                } else if names.text(row.path).ends_with(end.as_bytes()) {
                    let sum = seen.sums.entry((host, op)).or_default();
                    *sum = (sum.0 + 1, sum.1 + row.bytes);
                }
                Ok(())
            })
            .unwrap();
        assert!(damaged.is_empty(), "{damaged:?}");
        seen
    }

    fn sum(&self, host: &str, op: &str) -> (u64, i64) {
        self.sums.get(&(host.to_owned(), op.to_owned())).copied().unwrap_or_default()
    }
}

/// A directory for what each of so many hosts records.
fn with_hosts(count: usize) -> Home {
    let home = Home::new();
    for host in 1..=count {
        std::fs::create_dir_all(home.path().join(format!("buffers/n{host}"))).unwrap();
    }
    home
}

fn buffers(home: &Home) -> String {
    home.path().join("buffers/%h").to_str().unwrap().to_owned()
}

fn serve(home: &Home, hosts: &str, more: &[&str]) -> Vec<String> {
    let buffers = buffers(home);
    let args = ["--processes", hosts, "trace", "serve", "-o", "the.trace", "--buffers", &buffers];
    args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
}

fn run(home: &Home, args: &[String]) -> Run {
    home.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn info(home: &Home) -> TraceInfo {
    TraceInfo::read(&home.path().join("the.trace")).unwrap().expect("a trace says what it is of")
}

/// A trace begins, of what is done from now on.
fn begin(home: &Home, hosts: &str, more: &[&str]) {
    let begun = run(home, &serve(home, hosts, &[more, &["--for", "0"]].concat()));
    assert_eq!(begun.code, Some(0), "{begun:?}");
}

/// How many bytes each program of a [`writer`] writes: fewer than a ring has room for.
const BY_ONE: u64 = 400;

/// Programs of a host that write so many bytes, one after the other, each for itself.
fn writer(home: &Home, host: &str, out: &str, count: u64) -> Child {
    let buffers = buffers(home).replace("%h", host);
    let script = format!(
        "for n in $(seq {}); do \
           dd if=/dev/zero of={out} bs=1 status=none count={BY_ONE} oflag=append conv=notrunc; \
         done",
        count / BY_ONE
    );
    let args = ["trace", "record", "--quiet", "--served", "--buffers", &buffers, "--", "sh", "-c"];
    let mut command = home.command(&[&args[..], &[&script]].concat());
    command.stdin(Stdio::null()).spawn().unwrap()
}

fn wait_for_bytes(home: &Home, out: &str, bytes: u64) {
    let until = Instant::now() + LIMIT;
    while std::fs::metadata(home.path().join(out)).map_or(0, |about| about.len()) < bytes {
        assert!(Instant::now() < until, "{out}: {bytes} bytes");
        std::thread::yield_now();
    }
}

#[test]
fn programs_of_sixteen_hosts_make_one_ordered_trace() {
    const HOSTS: usize = 16;
    let home = with_hosts(HOSTS);
    let sheaf = built("sheaf");
    let script = format!(
        "for host in $(seq {HOSTS}); do for program in 1 2 3 4; do \
           {sheaf} trace record --served --buffers buffers/n$host -- \
             dd if=/dev/zero of=out.$host.$program bs=1000 count=300 status=none & \
         done; done; wait; exit 3"
    );
    let run = run(&home, &serve(&home, "16", &["--", "sh", "-c", &script]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run:?}");
    assert!(run.stderr.contains("operations are in the.trace"), "{run:?}");
    let (zero, all) = (Seen::of(&home, "/zero"), Seen::of(&home, ""));
    assert!(all.is_ordered, "one order of time");
    assert!(all.lost.is_empty(), "{all:?}");
    for host in 1..=HOSTS {
        let name = format!("n{host}");
        assert_eq!(zero.sum(&name, "read"), (1200, 1_200_000), "{name}");
        for program in 1..=4 {
            let out = Seen::of(&home, &format!("/out.{host}.{program}"));
            assert_eq!(out.sum(&name, "write"), (300, 300_000), "{name} {program}");
            assert_eq!(out.sums.keys().filter(|(host, _)| *host != name).count(), 0);
        }
    }
    let info = info(&home);
    assert_eq!((info.served.len(), info.exit_code), (HOSTS, Some(3)));
    assert_eq!(info.operations, all.sums.values().map(|sum| sum.0).sum::<u64>());
    // It is one machine: its clock is right within what is said.
    for host in &info.served {
        assert!(host.clock_offset_ns.abs() <= host.clock_error_ns, "{host:?}");
    }
    let report = home.run(&["trace", "report", "the.trace"]);
    assert_eq!(report.code, Some(0), "{report:?}");
    assert!(report.stdout.contains("64 processes on 16 hosts"), "{report:?}");
}

/// Each user's programs are in a trace of their own, and only root takes those of another.
#[test]
fn programs_of_another_user_are_traced_only_by_root() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root takes what another user has recorded");
    }
    let home = with_hosts(1);
    let sheaf = copy_of_sheaf(&home);
    for (path, mode) in [("", 0o777), ("buffers", 0o755), ("buffers/n1", 0o1777)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(home.path().join(path), mode).unwrap();
    }
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=.";
    let record = |count: u32| {
        format!(
            "{} trace record --quiet --served --buffers buffers/n1 -- \
             dd if=/dev/zero of=/dev/null bs=1 count={count} status=none",
            sheaf.display()
        )
    };
    let script = format!("{nobody} {} && {}", record(500), record(300));
    for (user, count) in [(&["--of-user", "65534"][..], 500), (&[], 300)] {
        let run = run(&home, &serve(&home, "1", &[user, &["--", "sh", "-c", &script]].concat()));
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
        assert_eq!(Seen::of(&home, "/zero").sum("n1", "read"), (count, count as i64), "{run:?}");
        std::fs::remove_dir_all(home.path().join("the.trace")).unwrap();
    }
    let args = serve(&home, "1", &["--of-user", "0", "--", "true"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let as_nobody = format!(
        "mkdir -m 1777 theirs; exec {nobody} XDG_RUNTIME_DIR=$PWD/theirs TMPDIR=$PWD/theirs \
         ./sheaf \"$@\""
    );
    let refused = home.shell(&args, &as_nobody);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let why = "n1: nothing can be taken there: Operation not permitted (EPERM)";
    assert!(refused.stderr.contains(why), "{refused:?}");
    assert!(refused.stderr.ends_with(": COMMAND was not run\n"), "{refused:?}");
    assert!(!home.path().join("the.trace").exists(), "nothing is left of it");
}

/// Whoever stores is killed, with all servers: programs go on, and whoever serves again has what
/// they did meanwhile.
#[test]
fn killed_trace_server_is_succeeded_without_loss() {
    const EACH: u64 = 60_000;
    let home = with_hosts(2);
    begin(&home, "2", &[]);
    let mut programs: Vec<Child> =
        ["n1", "n2"].map(|host| writer(&home, host, &format!("out.{host}"), EACH)).into();
    let mut last = 0;
    let known = || -> u64 {
        let told = home.run(&["trace", "report", "the.trace"]);
        assert!(told.stderr.contains("goes on"), "{told:?}");
        told.stdout.split(' ').next().unwrap().replace(',', "").parse().unwrap()
    };
    for round in 1..=3 {
        let args = serve(&home, "2", &["--period", "20"]);
        let mut server = home.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let mut server = server.stderr(Stdio::null()).spawn().unwrap();
        wait_for_bytes(&home, "out.n1", EACH * round / 4);
        if round == 1 {
            wait_until("it serves", || info(&home).ended_ns == 0);
            wait_until("it stores", || known() > 0);
        }
        server.kill().unwrap();
        server.wait().unwrap();
        let known = known();
        assert!(known >= last, "what was stored is there: {known}, before {last}");
        last = known;
    }
    assert!(last > 0);
    programs.iter_mut().for_each(|program| assert!(program.wait().unwrap().success()));
    let last = run(&home, &serve(&home, "2", &["--for", "0"]));
    assert_eq!(last.code, Some(0), "{last:?}");
    let (zero, all) = (Seen::of(&home, "/zero"), Seen::of(&home, ""));
    for host in ["n1", "n2"] {
        let out = Seen::of(&home, &format!("/out.{host}"));
        assert_eq!(zero.sum(host, "read"), (EACH, EACH as i64));
        assert_eq!(out.sum(host, "write"), (EACH, EACH as i64));
    }
    assert!(all.lost.is_empty(), "{all:?}");
    let info = info(&home);
    assert_eq!(info.operations, all.sums.values().map(|sum| sum.0).sum::<u64>());
    assert!(all.is_ordered);
}

/// What is removed is counted, also when whoever removes it is killed at any moment.
#[test]
fn old_parts_are_removed_and_counted_whoever_is_killed() {
    const EACH: u64 = 60_000;
    let home = with_hosts(1);
    let out = home.path().canonicalize().unwrap().join("out");
    let parts = ["--period", "20", "--part-rows", "500", "--keep", "40K", "--op", "write"];
    let more = [&parts[..], &["--path", out.to_str().unwrap()]].concat();
    begin(&home, "1", &more);
    let mut program = writer(&home, "n1", "out", EACH);
    for round in 1..=4 {
        let args = serve(&home, "1", &more);
        let mut server = home.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let mut server = server.stderr(Stdio::null()).spawn().unwrap();
        wait_for_bytes(&home, "out", EACH * round / 5);
        server.kill().unwrap();
        server.wait().unwrap();
        let told = home.run(&["--json", "trace", "report", "the.trace"]);
        assert_eq!(told.code, Some(4), "{told:?}");
    }
    assert!(program.wait().unwrap().success());
    let rest = run(&home, &serve(&home, "1", &[&more[..], &["--for", "0"]].concat()));
    assert_eq!(rest.code, Some(0), "{rest:?}");
    // What comes last is little, and stays.
    let sheaf = built("sheaf");
    let script = format!(
        "{sheaf} trace record --served --buffers buffers/n1 -- dd if=/dev/zero of=out bs=1 \
           count={BY_ONE} oflag=append conv=notrunc status=none"
    );
    let last = run(&home, &serve(&home, "1", &[&more[..], &["--", "sh", "-c", &script]].concat()));
    assert_eq!(last.code, Some(0), "{last:?}");
    assert!(last.stderr.contains("were stored before and removed since"), "{last:?}");
    let (all, info) = (Seen::of(&home, ""), info(&home));
    let stored = all.sum("n1", "write").0;
    assert_eq!((all.sums.len(), all.lost.len(), info.lost), (1, 0, 0), "{all:?}");
    assert_eq!((info.operations, stored + info.removed.operations), (stored, EACH + BY_ONE));
    assert!(stored >= BY_ONE && info.removed.parts > 0, "{info:?}");
    let files = std::fs::read_dir(home.path().join("the.trace")).unwrap().flatten();
    let parts = files.filter(|file| file.path().extension().is_some_and(|it| it == "parquet"));
    let bytes: u64 = parts.map(|part| part.metadata().unwrap().len()).sum();
    assert!(bytes <= 40 << 10, "{bytes}");
    let report = home.run(&["trace", "report", "the.trace"]);
    // Lines are broken between words.
    let words: Vec<&str> = report.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains(&info.removed.sentence()), "{report:?}");
    let report = home.run(&["--json", "trace", "report", "the.trace"]);
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["report"]["removed"]["operations"], info.removed.operations);
}

/// The disk of whoever stores is full: what runs goes on to its end, and what hosts had not given
/// is there for whoever serves again where there is room.
#[test]
fn full_disk_stops_the_trace_and_not_the_command() {
    let home = with_hosts(2);
    let sheaf = built("sheaf");
    let command = format!(
        "for host in 1 2; do for round in $(seq 10); do \
           {sheaf} trace record --quiet --served --buffers buffers/n$host -- \
             dd if=/dev/zero of=out.$host bs=1 status=none count=4000 oflag=append conv=notrunc; \
         done & done; wait; echo at the end; exit 6"
    );
    let serve = format!("{sheaf} --processes 2 trace serve --period 20 --buffers buffers/%h -o");
    let script = format!(
        "{serve} small/t -- sh -c '{command}'; echo $?; cp -r small/t the.trace; \
         {serve} the.trace --for 0; echo $?"
    );
    let Some(run) = home.on_small_disk("100k", &script) else { return };
    assert_eq!(run.stdout, "at the end\n6\n0\n", "{run:?}");
    assert!(run.stderr.contains("No space left"), "{run:?}");
    assert!(run.stderr.contains("nothing more is stored; COMMAND goes on"), "{run:?}");
    let all = Seen::of(&home, "");
    let lost: u64 = all.lost.values().sum();
    assert_eq!((lost, all.is_ordered), (0, true));
    for host in ["n1", "n2"] {
        let out = Seen::of(&home, &format!("/out.{}", &host[1..]));
        assert_eq!(out.sum(host, "write"), (40_000, 40_000), "{host}");
    }
}

/// A trace begins when it is begun, whatever programs have recorded before, and keeps what it is
/// told to, whatever hosts have taken for others.
#[test]
fn operations_before_a_trace_began_are_not_in_it() {
    let home = with_hosts(1);
    let sheaf = built("sheaf");
    let program = |out: &str, count: u32| {
        format!(
            "{sheaf} trace record --quiet --served --buffers buffers/n1 -- \
             dd if=/dev/zero of={out} bs=1 count={count} status=none"
        )
    };
    let before = |count: u32| {
        let run = home.shell(&[], &program("before", count));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    };
    before(500);
    // Whoever looks has hosts take everything, and keep nothing.
    let top = ["--processes", "1", "trace", "top", "-n", "1", "--interval", "1", "--buffers"];
    let top = home.run(&[&top[..], &[&buffers(&home)]].concat());
    assert_eq!(top.code, Some(0), "{top:?}");
    before(400);
    let (name, more) = (program("out", 300), ["--op", "write", "--", "sh", "-c"]);
    let first = run(&home, &serve(&home, "1", &[&more[..], &[&name]].concat()));
    assert_eq!(first.code, Some(0), "{first:?}");
    let (all, first_info) = (Seen::of(&home, ""), info(&home));
    assert_eq!(all.sums.len(), 1, "{all:?}");
    assert_eq!(all.sum("n1", "write"), (300, 300));
    let before = first_info.served[0].before;
    assert_eq!(before, 400, "{first_info:?}");
    let told = format!("{before} operations were done before the trace began, and are not in it");
    assert!(first.stderr.contains(&told), "{first:?}");
    assert!(first.stderr.contains("300 operations are in the.trace"), "{first:?}");
    // It has begun already, where it goes on.
    assert_eq!(home.shell(&[], &program("out", 200)).code, Some(0));
    let again = run(&home, &serve(&home, "1", &["--op", "write", "--for", "0"]));
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(Seen::of(&home, "").sum("n1", "write"), (500, 500));
    assert!(again.stderr.contains("500 operations are in the.trace"), "{again:?}");
}

/// Whoever ends it ends the command first, and has all that it has done.
#[test]
fn command_that_is_interrupted_is_in_the_trace_to_its_end() {
    let home = with_hosts(1);
    let sheaf = built("sheaf");
    let script = format!(
        "trap '{sheaf} trace record --quiet --served --buffers buffers/n1 -- \
           dd if=/dev/zero of=at-end bs=1 count=700 status=none; exit 5' TERM; \
         touch begun; while :; do sleep 0.05; done"
    );
    let args = serve(&home, "1", &["--", "sh", "-c", &script]);
    let mut server = home.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let server = server.stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it runs", || home.path().join("begun").exists());
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::TERM).unwrap();
    let ended = Run::of(server.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(Seen::of(&home, "/at-end").sum("n1", "write"), (700, 700));
    let none = run(&home, &serve(&home, "1", &["--for", "0", "--", "./not-there"]));
    assert_eq!(none.code, Some(127), "{none:?}");
    assert!(none.stderr.starts_with("sheaf: ./not-there: "), "{none:?}");
}

/// Ctrl-C, which reaches this process alone, is what COMMAND is ended for.
#[test]
fn command_that_records_nothing_is_told_and_interrupted() {
    let home = with_hosts(1);
    let args = serve(&home, "1", &["--", "sh", "-c", "touch begun; exec sleep 600"]);
    let mut server = home.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let server = server.stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it runs", || home.path().join("begun").exists());
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::INT).unwrap();
    let ended = Run::of(server.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let told = "sheaf: COMMAND has recorded nothing on these hosts: what is taken is what sheaf trace \
                record --served runs (with the same --buffers), as in -- sheaf trace record --served \
                ./solver\n";
    assert!(ended.stderr.ends_with(told), "{ended:?}");
}

#[test]
fn operations_in_one_trace_are_not_in_the_next() {
    let home = with_hosts(2);
    let sheaf = built("sheaf");
    let program = format!(
        "{sheaf} trace record --served --buffers buffers/n2 -- \
         dd if=/dev/zero of=out bs=1 count=500 status=none"
    );
    let first = run(&home, &serve(&home, "2", &["--", "sh", "-c", &program]));
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(Seen::of(&home, "/out").sum("n2", "write"), (500, 500));
    std::fs::rename(home.path().join("the.trace"), home.path().join("first")).unwrap();
    let second = run(&home, &serve(&home, "2", &["--for", "1"]));
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.stderr.contains("sheaf: 0 operations are in "), "{second:?}");
}

#[test]
fn filter_that_keeps_nothing_or_another_is_refused() {
    let home = with_hosts(1);
    let wrong = run(&home, &serve(&home, "1", &["--op", "wirte", "--for", "0"]));
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("--op: there is no operation \"wirte\", but "), "{wrong:?}");
    let first = run(&home, &serve(&home, "1", &["--op", "write", "--for", "0"]));
    assert_eq!(first.code, Some(0), "{first:?}");
    let other = run(&home, &serve(&home, "1", &["--op", "read", "--for", "0"]));
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.stderr.contains("the.trace has another filter (--op write)"), "{other:?}");
}

/// The processes that a process has started.
fn children_of(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// A host's server is killed: what it had taken, and what its programs did afterwards, is there
/// for the next one.
#[test]
fn server_that_is_killed_loses_nothing() {
    const EACH: u64 = 60_000;
    let home = with_hosts(2);
    begin(&home, "2", &[]);
    let mut program = writer(&home, "n2", "out", EACH);
    let args = serve(&home, "2", &["--period", "20"]);
    let mut server = home.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let server = server.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_bytes(&home, "out", EACH / 3);
    let of_n2 = |pid: &&u32| {
        let path = home.path().join("buffers/n2");
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        open.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|to| to.starts_with(&path))
    };
    let until = Instant::now() + LIMIT;
    let pid = loop {
        let servers = children_of(server.id());
        if let Some(pid) = servers.iter().find(of_n2) {
            break *pid;
        }
        assert!(Instant::now() < until, "{servers:?}");
    };
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    assert!(program.wait().unwrap().success());
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::INT).unwrap();
    let run_before = Run::of(server.wait_with_output().unwrap());
    assert_eq!(run_before.code, Some(4), "{run_before:?}");
    assert!(run_before.stderr.contains("n2: nothing can be taken there"), "{run_before:?}");
    assert!(info(&home).missing.iter().any(|text| text.starts_with("n2: ")), "{run_before:?}");
    let again = run(&home, &serve(&home, "2", &["--for", "0"]));
    assert_eq!(again.code, Some(0), "{again:?}");
    let (zero, all) = (Seen::of(&home, "/zero"), Seen::of(&home, ""));
    assert_eq!(zero.sum("n2", "read"), (EACH, EACH as i64));
    assert_eq!(Seen::of(&home, "/out").sum("n2", "write"), (EACH, EACH as i64));
    assert!(all.lost.is_empty(), "{all:?}");
}

/// What nobody stores is kept up to a limit, and counted beyond.
#[test]
fn operations_above_the_spool_limit_are_counted_as_lost() {
    const EACH: u64 = 60_000;
    let home = with_hosts(1);
    let sheaf = built("sheaf");
    let script = format!(
        "{sheaf} trace record --served --buffers buffers/n1 -- \
           dd if=/dev/zero of=out bs=1 count={EACH} status=none"
    );
    let more = ["--period", "3600000", "--spool-mib", "1", "--", "sh", "-c", &script];
    let run = run(&home, &serve(&home, "1", &more));
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("operations came faster than they could be kept"), "{run:?}");
    let (zero, all) = (Seen::of(&home, "/zero"), Seen::of(&home, ""));
    let have = zero.sum("n1", "read").0 + Seen::of(&home, "/out").sum("n1", "write").0;
    let lost = all.lost["n1"];
    assert!(lost > 0 && have > 10_000, "{have} and {lost} lost");
    assert!(have + lost >= 2 * EACH && have + lost <= 2 * EACH + 64, "{have} and {lost} lost");
    let info = info(&home);
    assert_eq!((info.lost, info.served[0].lost), (lost, lost));
}

#[test]
fn filters_are_heeded_where_it_is_recorded() {
    let home = with_hosts(1);
    let sheaf = built("sheaf");
    let script = format!(
        "mkdir deep; for out in one deep/two three; do {sheaf} trace record --served \
           --buffers buffers/n1 -- dd if=/dev/zero of=$out bs=10 count=7 status=none; done"
    );
    let pattern = home.path().canonicalize().unwrap().join("*");
    let more = ["--path", pattern.to_str().unwrap(), "--op", "write", "--", "sh", "-c", &script];
    let run = run(&home, &serve(&home, "1", &more));
    assert_eq!(run.code, Some(0), "{run:?}");
    let all = Seen::of(&home, "");
    assert_eq!(all.sums.len(), 1, "{all:?}");
    assert_eq!(all.sum("n1", "write"), (14, 140));
    assert!(info(&home).filter.is_some_and(|filter| filter.ends_with("/* --op write")));
    let bad = home.run(&["trace", "serve", "-o", "other", "--path", "[", "--embedded", "1"]);
    assert_eq!(bad.code, Some(2), "{bad:?}");
    assert!(!home.path().join("other").exists());
}

#[test]
fn buffers_collected_by_one_host_are_refused_to_others() {
    let home = with_hosts(1);
    let args = ["--embedded", "3", "trace", "serve", "-o", "the.trace", "--for", "0"];
    let buffers = home.path().join("buffers/n1");
    let run = home.run(&[&args[..], &["--buffers", buffers.to_str().unwrap()]].concat());
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("nothing can be taken there: somebody else takes it"), "{run:?}");
    assert_eq!(info(&home).served.len(), 1, "{run:?}");
    // What is there already is not written over.
    home.write("no/trace", "text");
    let taken = home.run(&["--embedded", "1", "trace", "serve", "-o", "no", "--for", "0"]);
    assert_eq!(taken.code, Some(2), "{taken:?}");
    assert!(taken.stderr.contains("is not empty"), "{taken:?}");
}

/// Whoever looks takes nothing from whoever stores.
#[test]
fn top_in_a_pipe_ends_where_no_program_records() {
    let home = Home::new();
    let shm = home.path().join("shm");
    std::fs::create_dir(&shm).unwrap();
    let top = ["--processes", "1", "trace", "top", "--interval", "1", "--buffers"];
    let top = home.run(&[&top[..], &[shm.to_str().unwrap()]].concat());
    assert_eq!(top.code, Some(1), "{top:?}");
    assert!(top.stderr.starts_with("sheaf: no program records there: "), "{top:?}");
    assert_eq!(std::fs::read_dir(&shm).unwrap().count(), 0, "it leaves nothing");
}

#[test]
fn trace_top_shows_operations_while_they_are_stored() {
    const EACH: u64 = 60_000;
    let home = with_hosts(2);
    let up = home.run(&["up", "--session", "prod", "--processes", "2"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let buffers = buffers(&home);
    let top = |by: &str| {
        let args = ["--session", "prod", "--json", "trace", "top", "--interval", "1", "-n", "1"];
        let run = home.run(&[&args[..], &["--by", by, "--buffers", &buffers]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        serde_json::from_str::<serde_json::Value>(&run.stdout).unwrap()
    };
    assert_eq!(top("host")["total"]["operations"], 0);
    let args = ["--session", "prod", "trace", "serve", "-o", "the.trace", "--period", "20"];
    let mut command = home.command(&[&args[..], &["--buffers", &buffers]].concat());
    let server = command.stderr(Stdio::piped()).spawn().unwrap();
    let marker = |host: &str| home.path().join(format!("buffers/{host}")).read_dir().unwrap();
    let until = Instant::now() + LIMIT;
    while ["n1", "n2"]
        .iter()
        .any(|host| marker(host).flatten().all(|entry| !entry.path().join("collected").exists()))
    {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    let mut programs = ["n1", "n2"].map(|host| writer(&home, host, &format!("out.{host}"), EACH));
    let shown = std::iter::repeat_with(|| top("file")).take(5).find(|shown| {
        let named = |sum: &serde_json::Value| {
            sum["name"].as_str().unwrap().ends_with("/out.n2")
                && sum["bytes_written"].as_u64() > Some(0)
        };
        shown["sums"].as_array().unwrap().iter().any(named)
    });
    let shown = shown.expect("what is written is shown");
    assert!(
        shown["total"]["operations"].as_u64() > Some(0)
            && shown["missing"] == serde_json::json!([])
    );
    programs.iter_mut().for_each(|program| assert!(program.wait().unwrap().success()));
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), Signal::INT).unwrap();
    let served = Run::of(server.wait_with_output().unwrap());
    assert_eq!(served.code, Some(0), "{served:?}");
    for host in ["n1", "n2"] {
        let out = Seen::of(&home, &format!("/out.{host}"));
        assert_eq!(out.sum(host, "write"), (EACH, EACH as i64));
    }
    // Whoever goes on with the same trace, at once and in the same session, is no other.
    let mut killed = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("it asks", || {
        TraceInfo::read(&home.path().join("the.trace")).unwrap().unwrap().ended_ns == 0
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let again = home.run(&[&args[..], &["--buffers", &buffers, "--for", "0"]].concat());
    assert_eq!(again.code, Some(0), "{again:?}");
    let args = ["--session", "prod", "trace", "serve", "-o", "other", "--for", "0"];
    let other = home.run(&[&args[..], &["--buffers", &buffers]].concat());
    assert_eq!(other.code, Some(3), "{other:?}");
    assert!(other.stderr.contains("n[1-2]: nothing can be taken there"), "{other:?}");
    assert!(!home.path().join("other").exists());
    assert_eq!(home.run(&["down", "prod"]).code, Some(0));
}
