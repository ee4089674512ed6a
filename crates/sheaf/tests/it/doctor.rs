//! `sheaf doctor`: each kind of finding, on hosts that a program in place of ssh plays.
use serde_json::Value;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::wait_until;
use sheaf_testing::skipped;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// In place of `ssh … -- HOST COMMAND`: a home and a PATH for each host, and what its script does.
const SSH: &str = r#"#!/bin/sh
while test "$1" != --; do shift; done
host=$2 command=$3 mark=${3#*echo }
mark=${mark%% *}
HOME=$PWD/homes/$host PATH=$PWD/bin/$host:/usr/sbin:/usr/bin:/sbin:/bin SHELL=/bin/sh
export HOME PATH SHELL
unset XDG_RUNTIME_DIR XDG_CACHE_HOME
mkdir -p "$HOME"
test -e "hosts/$host" && . "./hosts/$host"
exec sh -c "$command"
"#;

/// Hosts `h1` to `h9` of the cluster `lab`.
struct Lab {
    home: Home,
}

impl Lab {
    fn new() -> Self {
        Self::with("")
    }

    /// With these lines more in `sheaf.toml`.
    fn with(lines: &str) -> Self {
        let home = Home::new();
        let ssh = executable(&home, "stub-ssh", SSH);
        let config = format!(
            "[cluster.lab]\nhosts = \"h[1-9]\"\nssh = \"{}\"\n{lines}\n[tuning]\nssh_retries = 0\n\
             ssh_login_timeout_ms = 3000\n",
            ssh.display()
        );
        home.write("sheaf.toml", &config);
        Self { home }
    }

    /// What a host does before its login shell begins.
    fn host(self, name: &str, script: &str) -> Self {
        self.home.write(&format!("hosts/{name}"), script);
        self
    }

    /// A program that a host has in place of the system's.
    fn program(self, host: &str, name: &str, script: &str) -> Self {
        executable(&self.home, &format!("bin/{host}/{name}"), &format!("#!/bin/sh\n{script}\n"));
        self
    }

    fn doctor(&self, hosts: &str, more: &[&str]) -> Run {
        self.home.run(&[&["doctor", "-w", hosts], more].concat())
    }

    /// The records of a run.
    fn records(&self, hosts: &str, more: &[&str]) -> Vec<Value> {
        let run = self.doctor(hosts, &[&["--json"], more].concat());
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn executable(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.write(name, text);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// That a run has printed a line of this place and beginning, and its remedy.
#[track_caller]
fn has_finding(run: &Run, line: &str, remedy: &str) {
    let mut lines = run.stdout.lines().skip_while(|text| !text.starts_with(line));
    assert!(lines.next().is_some(), "{line}: {run:?}");
    assert!(lines.next().is_some_and(|text| text.trim().contains(remedy)), "{remedy}: {run:?}");
}

#[test]
fn healthy_hosts_are_folded_into_one_line_each() {
    let run = Lab::new().doctor("h[1-3]", &["--all"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stdout.contains("\nh[1-3]: ok: shell: the login shell /bin/sh runs /bin/sh\n"),
        "{run:?}"
    );
    assert!(
        run.stdout.contains("h[1-3]: ok: clock: its clock agrees with this machine's ("),
        "{run:?}"
    );
    assert!(run.stdout.lines().last().unwrap().starts_with("3 hosts examined: 0 problems, "));
    let brief = Lab::new().doctor("h[1-3]", &[]);
    assert!(!brief.stdout.contains(": ok: "), "{brief:?}");
}

#[test]
fn examination_leaves_nothing_on_a_host() {
    let lab = Lab::new();
    assert_eq!(lab.doctor("h1", &[]).code, Some(0));
    let left: Vec<_> = std::fs::read_dir(lab.home.path().join("homes/h1")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn failed_login_is_named_with_its_reason_and_remedy() {
    let denied =
        |host: &str| format!("echo 'me@{host}: Permission denied (publickey).' >&2; exit 255");
    let lab = Lab::new()
        .host("h2", &denied("h2"))
        .host("h3", &denied("h3"))
        .host("h4", "echo 'ssh: connect to host h4 port 22: Connection refused' >&2; exit 255")
        .host("h5", "exec sleep 8");
    let run = lab.doctor("h[1-5]", &[]);
    assert_eq!(run.code, Some(4), "{run:?}");
    has_finding(
        &run,
        "h[2-3]: problem: login: me@HOST: Permission denied (publickey). (EACCES)",
        "ssh-copy-id HOST",
    );
    has_finding(
        &run,
        "h4: problem: login: ssh: connect to host h4 port 22: Connection refused (EHOSTDOWN)",
        "start sshd",
    );
    has_finding(
        &run,
        "h5: problem: login: no login within 3 s (ssh_login_timeout_ms)",
        "ssh h5 true",
    );
    assert!(run.stdout.contains("\n1 host examined, 4 not: 3 problems, "), "{run:?}");
    let none = lab.doctor("h[2-4]", &[]);
    assert_eq!(none.code, Some(3), "no host has answered: {none:?}");
}

#[test]
fn login_shell_that_runs_nothing_is_a_failure_of_the_shell() {
    let lab = Lab::new().host("h1", "exit 0").host("h2", "exec bash -r -c \"$command\"");
    let run = lab.doctor("h[1-3]", &[]);
    assert_eq!(run.code, Some(4), "{run:?}");
    has_finding(
        &run,
        "h1: problem: shell: the login shell ended with exit code 0",
        "return in shells",
    );
    has_finding(&run, "h2: problem: shell: ", "chsh");
    assert!(run.stdout.contains("restricted"), "{run:?}");
}

#[test]
fn noise_of_start_up_files_is_a_note() {
    let lab = Lab::new()
        .host(
            "h1",
            "echo Welcome; echo 'sheaf-00000000000000000000000000000000 begin'; printf 'no end'",
        )
        .host("h2", "echo setlocale >&2");
    let run = lab.doctor("h[1-2]", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    has_finding(
        &run,
        "h1: note: shell: its login shell prints before it runs a command: Welcome; sheaf-0",
        ".bashrc",
    );
    has_finding(&run, "h2: note: shell: its login shell prints errors: setlocale", ".bashrc");
}

#[test]
fn other_processor_and_old_kernel_are_problems() {
    let uname = "case $1 in -s) echo Linux;; -m) echo sparc64;; -r) echo 4.4.0-1;; esac";
    let lab = Lab::new().program("h1", "uname", uname).program("h2", "uname", "echo FreeBSD");
    let run = lab.doctor("h[1-2]", &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    has_finding(
        &run,
        "h1: problem: system: its processor is sparc64, and this program is for ",
        "program = ",
    );
    has_finding(
        &run,
        "h1: problem: system: its kernel is 4.4.0-1, and servers need 5.6",
        "newer kernel",
    );
    has_finding(&run, "h2: problem: system: its system is FreeBSD", "-x h2");
}

#[test]
fn old_libc_is_a_problem_of_a_program_that_needs_another() {
    let lab = Lab::new().program("h1", "getconf", "echo glibc 2.5");
    let run = lab.doctor("h1", &[]);
    has_finding(
        &run,
        "h1: problem: system: its C library is glibc 2.5, and this program needs",
        "static",
    );
}

#[test]
fn sudo_that_asks_or_does_not_exist_is_a_problem() {
    let lab = Lab::new()
        .program("h1", "sudo", "echo 'sudo: a password is required' >&2; exit 1")
        .program("h2", "sudo", "echo 'sudo: sorry, you must have a tty to run sudo' >&2; exit 1")
        .program("h3", "sudo", "test \"$1\" = -n && exit 0");
    let run = lab.doctor("h[1-3]", &["--sudo", "--all"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    has_finding(
        &run,
        "h1: problem: sudo: sudo -n does not run programs: sudo: a password",
        "NOPASSWD",
    );
    has_finding(
        &run,
        "h2: problem: sudo: sudo -n does not run programs: sudo: sorry",
        "requiretty",
    );
    assert!(run.stdout.contains("h3: ok: sudo: sudo -n runs programs\n"), "{run:?}");
    let unasked = lab.doctor("h[1-3]", &["--all"]);
    assert!(!unasked.stdout.contains("sudo"), "{unasked:?}");
}

#[test]
fn sudo_for_the_program_alone_is_enough() {
    let home = Home::new();
    let there = executable(&home, "sheaf-there", "#!/bin/sh\necho sheaf 0.0.1\n");
    let there = there.display();
    let sudo =
        format!("test \"$3\" = {there} && exit 0; echo 'sudo: a password is required' >&2; exit 1");
    let lab = Lab::with(&format!("program = \"{there}\"")).program("h1", "sudo", &sudo);
    let run = lab.doctor("h1", &["--sudo", "--all"]);
    assert!(run.stdout.contains("h1: ok: sudo: sudo -n runs programs\n"), "{run:?}");
    // It is another version.
    let line = format!("h1: problem: versions: {there} is sheaf 0.0.1, and this is sheaf ");
    has_finding(&run, &line, "install the same version");
}

#[test]
fn clock_difference_is_exact_in_records() {
    let date = "echo $(($(/bin/date +%s) + 3600)).000000000";
    let lab = Lab::new().program("h1", "date", date).program("h2", "date", date);
    let run = lab.doctor("h[1-2]", &[]);
    has_finding(&run, "h[1-2]: note: clock: its clock differs from this machine's", "chrony");
    let records = lab.records("h1", &[]);
    let clock = records.iter().find(|record| record["area"] == "clock").unwrap();
    let ahead = clock["value"].as_f64().unwrap();
    assert!(
        (3590.0..3610.0).contains(&ahead) && clock["uncertainty"].as_f64().unwrap() > 0.0,
        "{clock}"
    );
}

#[test]
fn damaged_program_in_the_cache_is_a_note() {
    let lab = Lab::new();
    let path = lab.home.write(&format!("homes/h1/.cache/sheaf/bin/{:064x}/sheaf", 7), "");
    let run = lab.doctor("h1", &[]);
    let line = format!("h1: note: cache: {} is damaged: its 0 bytes are not", path.display());
    has_finding(&run, &line, "sheaf clean -w h1");
}

#[test]
fn cache_that_other_users_can_write_to_is_a_problem() {
    let lab = Lab::new();
    lab.home.write("homes/h1/.cache/sheaf/x", "");
    let cache = lab.home.path().join("homes/h1/.cache/sheaf");
    std::fs::set_permissions(&cache, PermissionsExt::from_mode(0o777)).unwrap();
    let run = lab.doctor("h1", &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    has_finding(&run, "h1: problem: cache: other users can write to ", "chmod go-w ");
}

/// Runs the login shell with file systems of its own: `mount` makes them.
fn with_mounts(mount: &str) -> String {
    format!(
        "mkdir -p \"$HOME/.cache\"\nexec unshare -m sh -c '{mount} && exec sh -c \"$0\"' \"$command\""
    )
}

fn can_mount() -> bool {
    let mounts = std::process::Command::new("unshare").args(["-m", "true"]).status();
    let can = mounts.is_ok_and(|status| status.success());
    if !can {
        skipped("mount namespaces cannot be made here (that needs root)");
    }
    can
}

#[test]
fn file_systems_without_programs_or_room_are_named() {
    if !can_mount() {
        return;
    }
    let noexec = "mount -t tmpfs -o noexec none";
    let full = "mount -t tmpfs -o size=4k none \"$HOME/.cache\"";
    let lab = Lab::new()
        .host("h1", &with_mounts(&format!("{noexec} \"$HOME/.cache\"")))
        .host(
            "h2",
            &with_mounts(&format!(
                "{noexec} \"$HOME/.cache\" && {noexec} /var/tmp && mount -t tmpfs none /run"
            )),
        )
        .host("h3", &with_mounts(full))
        .host("h4", &with_mounts("mount -t tmpfs -o ro none \"$HOME/.cache\""));
    let run = lab.doctor("h[1-4]", &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    has_finding(&run, "h1: note: exec: ", "remote_dir");
    has_finding(&run, "h2: problem: exec: the program can be kept nowhere: ", "remote_dir");
    assert!(
        run.stdout.contains(
            "no program can run there (noexec); the program is kept in /var/tmp/sheaf-0\n"
        ),
        "{run:?}"
    );
    has_finding(&run, "h3: note: cache: ", "remove files there");
    assert!(
        run.stdout.contains("No space left on device; the program is kept in /var/tmp/sheaf-"),
        "{run:?}"
    );
    has_finding(&run, "h4: note: cache: ", "let the user write");
    assert!(run.stdout.contains("Read-only file system; the program"), "{run:?}");
}

/// A `/dev` without `shm`.
const NO_SHM: &str = "mkdir -p \"$HOME/dev\" && mount --rbind /dev \"$HOME/dev\" && \
    mount -t tmpfs none /dev && for f in null zero urandom; do touch /dev/$f && \
    mount --bind \"$HOME/dev/$f\" /dev/$f || exit; done";

#[test]
fn directory_of_shared_memory_that_is_missing_is_a_note() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new().host("h1", &with_mounts(NO_SHM));
    let lab = lab.program("h1", "sha256sum", "exit 1");
    let run = lab.doctor("h1", &[]);
    has_finding(&run, "h1: note: space: /dev/shm does not exist", "--buffers");
}

#[test]
fn host_that_hangs_is_named_with_where_it_hangs() {
    let lab = Lab::new().program("h1", "df", "exec sleep 8");
    let run = lab.doctor("h[1-2]", &[]);
    assert_eq!(run.code, Some(4), "{run:?}");
    has_finding(
        &run,
        "h1: problem: examination: its examination did not end within 6 s: the directory ",
        "ssh h1 df",
    );
    assert!(run.stdout.contains("1 host examined, 1 not"), "{run:?}");
    let begun = std::time::Instant::now();
    let short = lab.doctor("h[1-2]", &["--timeout", "2"]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(6), "{short:?}");
    has_finding(
        &short,
        "h1: problem: examination: not examined in the time of --timeout (ETIMEDOUT)",
        "sheaf doctor -w h1",
    );
}

#[test]
fn hostile_output_fails_its_host_alone() {
    let begun = |rest: &str| format!("echo \"$mark begin\"; read -r _; {rest}");
    let lab = Lab::new()
        .host("h1", "exec yes noise")
        .host("h2", &begun("while :; do printf '%s\\tat\\tx\\n' $mark; done"))
        .host("h3", &begun("printf '%s\\tnonsense\\n' $mark; echo \"$mark end\"; exit 0"))
        .host("h4", &begun("printf '%s\\tat\\t\\033[2J\\000\\n' $mark; exit 0"))
        .host("h5", &begun("printf '%s\\tspace\\t/tmp\\t99999999999999999999 1\\n' $mark; echo \"$mark end\"; exit 0"))
        .host("h6", &begun("head -c 200000 /dev/zero; exit 0"))
        .host("h9", &begun("printf '%s\\tspace\\t/x;reboot\\tnone\\n' $mark; echo \"$mark end\"; exit 0"))
        .host("h8", &begun("i=0; while test $i -lt 300; do i=$((i + 1)); printf '%s\\tat\\tx\\n' $mark; done"));
    let run = lab.doctor("h[1-9]", &[]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(!run.stdout.contains(['\u{1b}', '\0']), "{run:?}");
    has_finding(
        &run,
        "h1: problem: shell: more than 64 KiB came before its answer",
        "ssh -o BatchMode",
    );
    has_finding(
        &run,
        "h2: problem: examination: it printed more than an examination may",
        "ssh h2",
    );
    has_finding(&run, "h4: problem: examination: its examination ended too soon: [2J", "ssh -v h4");
    has_finding(&run, "h5: note: space: the free space of /tmp is not known", "df");
    // No remedy has words of a host that a shell would run.
    has_finding(&run, "h9: note: space: /x;reboot does not exist", "mkdir -m 1777 DIR");
    has_finding(
        &run,
        "h[3,8]: problem: examination: it answers what the examination does not ask (EPROTO)",
        "ssh HOST",
    );
    assert!(run.stdout.contains("\n3 hosts examined, 6 not: "), "{run:?}");
}

#[test]
fn interrupted_examination_names_the_hosts_it_lacks() {
    let lab = Lab::new().host("h2", "touch here; exec sleep 8");
    let mut command = lab.home.command(&["doctor", "-w", "h[1-2]"]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    wait_until("the second host has begun", || lab.home.path().join("here").exists());
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!(run.code, Some(130), "{run:?}");
    assert!(
        run.stdout
            .contains(": problem: examination: interrupted before it was examined (ECANCELED)"),
        "{run:?}"
    );
}

#[test]
fn root_without_a_free_port_is_a_problem() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let lab = Lab::with(&format!("listen = \"127.0.0.1\"\nports = \"{port}\""));
    let run = lab.doctor("h1", &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let line =
        format!("this machine: problem: ports: a root cannot listen at 127.0.0.1, ports {port}: ");
    has_finding(&run, &line, "settings listen and ports");
}

#[test]
fn host_that_does_not_reach_the_root_over_tcp_is_named() {
    let from = |address: &str| format!("export SSH_CONNECTION='{address} 1 127.0.0.1 22'");
    let lab = |link: &str| {
        let program = env!("CARGO_BIN_EXE_sheaf");
        Lab::with(&format!("program = \"{program}\"\nlink = \"{link}\""))
            .host("h1", &from("127.0.0.1"))
            .host("h2", &from("240.0.0.1"))
    };
    let run = lab("tls").doctor("h[1-2]", &["--all"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("h1: ok: ports: it reaches this machine over TCP\n"), "{run:?}");
    let line =
        "h2: problem: ports: it does not reach this machine over TCP: cannot connect to 240.0.0.1:";
    has_finding(&run, line, "link = \"auto\"");
    let run = lab("auto").doctor("h[1-2]", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    has_finding(&run, "h2: note: ports: ", "listen and ports");
    assert!(run.stdout.contains("; its link goes through ssh\n"), "{run:?}");
}

#[test]
fn program_of_the_setting_that_is_missing_is_a_problem() {
    let lab = Lab::with("program = \"/nowhere/sheaf\"");
    let run = lab.doctor("h1", &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    has_finding(
        &run,
        "h1: problem: exec: /nowhere/sheaf does not exist or cannot run",
        "setting program",
    );
}

#[test]
fn doctor_without_hosts_examines_this_machine() {
    let lab = Lab::new();
    let run = lab.home.run(&["doctor", "--all"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("this machine: ok: configuration: "), "{run:?}");
    assert!(
        run.stdout.contains("this machine: ok: cache: the program will be kept in "),
        "{run:?}"
    );
    assert!(
        run.stdout.lines().last().unwrap().starts_with("this machine: 0 problems, "),
        "{run:?}"
    );
    let session = lab.home.command(&["doctor"]).env("SHEAF_SESSION", "gone").output().unwrap();
    let run = Run::of(session);
    has_finding(
        &run,
        "this machine: problem: session: no session gone runs, which SHEAF_SESSION names",
        "sheaf up --session gone",
    );
}

#[test]
fn wrong_configuration_is_a_finding_and_no_refusal() {
    let home = Home::with_config("[cluster.lab]\nhosts = \"h[1-9]\"\ncolour = 1\n");
    let run = home.run(&["doctor"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    has_finding(&run, "this machine: problem: configuration: ", "sheaf config check");
    assert!(run.stdout.contains("colour"), "{run:?}");
    let home = Home::with_config("[cluster.lab]\nhosts = \"h[1-9]\"\nlaunch = \"slurm\"\n");
    let run = home.run(&["doctor", "-C", "lab"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("cluster lab has launch = slurm: add --launch ssh"), "{run:?}");
}

/// The start does not use the cache there, and says so only where it has no other place.
#[test]
fn cache_below_a_directory_of_others_is_named() {
    let open = "mkdir -p \"$HOME/.cache/sheaf\"; chmod 777 \"$HOME/.cache\"";
    let run = Lab::new().host("h1", open).doctor("h[1-2]", &[]);
    let (_, line) = run.stdout.split_once("h1: note: cache: ").unwrap_or_else(|| panic!("{run:?}"));
    let line = line.lines().next().unwrap();
    assert!(line.contains("/.cache, or can write to it; the program is kept in "), "{run:?}");
    assert!(line.contains("/.cache/sheaf: another user owns "), "{run:?}");
    has_finding(&run, "h1: note: cache: ", "let only root and the user write to ");
}
