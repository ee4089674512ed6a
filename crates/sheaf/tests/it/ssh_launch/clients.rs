//! The ssh client as people have configured it, gateways that are busy, and hosts that are dead.
use super::{all_answer, machines, nothing_runs};
use crate::machines::{LOGIN, Machines};
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{turn, wait_until};
use std::fmt::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Puts lines before the ssh configuration of `login`: the first value counts.
fn configure_ssh(machines: &Machines, lines: &str) {
    let file = machines.home(LOGIN, ".ssh/config");
    let kept = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, format!("{lines}\n{kept}")).unwrap();
}

#[test]
fn own_connections_of_a_user_outlive_a_session() {
    let _turn = turn();
    let Some(machines) = machines(1, "flat", "link = \"ssh\"\n") else { return };
    configure_ssh(&machines, "Host h1\n  ControlMaster auto\n  ControlPath ~/.ssh/cm-%C");
    assert_eq!(machines.run(&["up"]).code, Some(0));
    let mut own = machines.command(LOGIN, "ssh", &["h1", "echo began; read line; echo $line"]);
    let mut own = own.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(own.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "began\n");
    assert_eq!(machines.run(&["down"]).code, Some(0));
    std::io::Write::write_all(&mut own.stdin.take().unwrap(), b"complete\n").unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!((line.as_str(), own.wait().unwrap().code()), ("complete\n", Some(0)));
}

#[test]
fn remote_command_of_the_users_configuration_is_not_run() {
    let _turn = turn();
    let Some(machines) = machines(2, "flat", "") else { return };
    configure_ssh(&machines, "Host h*\n  RemoteCommand touch /root/ran\n  RequestTTY force");
    let run = machines.run(&["grep", "equal", "/root/data"]);
    all_answer(&run, "h[1-2]");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(!machines.home(1, "ran").exists());
}

/// A jump host's client is not in batch mode. It would ask the terminal, and wait.
#[test]
fn jump_host_that_asks_fails_at_once_with_its_reason() {
    let _turn = turn();
    let Some(machines) = machines(2, "flat", "ssh = \"ssh -J h1\"\n") else { return };
    configure_ssh(
        &machines,
        "Host h1\n  StrictHostKeyChecking ask\n  UserKnownHostsFile /dev/null",
    );
    let program = machines.dir().join("sheaf");
    let grep = format!("{} -C lab -w h2 grep equal /root/data", program.display());
    // `script` gives it a terminal.
    let begun = Instant::now();
    let mut command = machines.command(LOGIN, "script", &["-qec", &grep, "/dev/null"]);
    let run = Run::of(command.output().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?} {run:?}", begun.elapsed());
    assert!(run.stdout.contains("h2: it does not serve (EACCES)"), "{run:?}");
    assert!(run.stdout.contains("Host key verification failed"), "{run:?}");
}

#[test]
fn live_hosts_behind_a_busy_gateway_all_answer() {
    let _turn = turn();
    const COUNT: usize = 24;
    let Some(machines) = machines(COUNT + 1, "flat", "") else { return };
    // The gateway refuses each login beyond the fourth at a time.
    machines.stop_sshd(COUNT + 1);
    machines.start_sshd(COUNT + 1, "MaxStartups 4:100:4");
    let gateway = format!("h{}", COUNT + 1);
    configure_ssh(&machines, &format!("Host h* !{gateway}\n  ProxyJump {gateway}"));
    for _ in 0..2 {
        let hosts = format!("h[1-{COUNT}]");
        let run = machines.run(&["-C", "lab", "-w", &hosts, "grep", "equal", "/root/data"]);
        all_answer(&run, &hosts);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        wait_until("the command's servers have ended", || nothing_runs(&machines));
    }
}

/// Names whose addresses drop packets, and which come before those of live hosts.
#[test]
fn dead_hosts_that_come_first_do_not_delay_live_ones() {
    let _turn = turn();
    const DEAD: usize = 100;
    let Some(machines) = machines(4, "flat", "") else { return };
    let mut names = std::fs::read_to_string(machines.dir().join("etc-hosts")).unwrap();
    (1..=DEAD).for_each(|host| writeln!(names, "10.77.9.{host} d{host}").unwrap());
    std::fs::write(machines.dir().join("etc-hosts"), names).unwrap();
    // A neighbour that is known and does not exist, so that packets go nowhere.
    let script = "for n in $(seq 100); do ip neigh replace 10.77.9.$n lladdr \
                  02:00:00:00:ff:01 dev eth0 nud permanent; done";
    assert!(machines.command(LOGIN, "sh", &["-c", script]).status().unwrap().success());
    let hosts = format!("d[1-{DEAD}],h[1-4]");
    let begun = Instant::now();
    let args = ["--launch", "ssh", "--tree", "flat", "-w", &hosts, "--timeout", "9"];
    let run = machines.run(&[&args[..], &["grep", "equal", "/root/data"]].concat());
    println!("took {:?}", begun.elapsed());
    all_answer(&run, "h[1-4]");
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(!run.stderr.contains("not tried"), "{run:?}");

    // With one login at a time, some are not tried in this time, and are not called silent.
    let tuning = "[tuning]\nssh_starts_max = 1\n";
    machines.write(LOGIN, "one.toml", tuning);
    let run =
        machines.run(&[&["--config", "one.toml"], &args[..], &["cat", "/root/data"]].concat());
    let not_tried = "not tried (EAGAIN): not started: it waits for logins to other hosts \
                     (ssh_starts_max)";
    assert!(run.stderr.contains(not_tried), "{run:?}");
}
