//! Sessions under a real Slurm, whose daemons run on hosts of this machine.
use crate::attach::joins_by_token;
use crate::machines::{LOGIN, Machines};
use rustix::process::Signal;
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{Running, turn, wait_until};
use std::path::Path;
use std::time::{Duration, Instant};

/// One `slurmctld` and a `munged` on `login`, a `slurmd` on each other host.
pub struct Slurm {
    pub machines: Machines,
}

impl Slurm {
    pub fn new(count: usize) -> Option<Self> {
        for program in ["slurmctld", "slurmd", "munged"] {
            if !Path::new("/usr/sbin").join(program).exists() {
                sheaf_testing::skipped(&format!(
                    "Slurm needs {program} (Debian packages slurm-wlm and munge)"
                ));
                return None;
            }
        }
        let slurm = Self { machines: Machines::new(count)? };
        slurm.configure(count);
        slurm.start_daemons(count);
        Some(slurm)
    }

    fn configure(&self, count: usize) {
        use std::os::unix::fs::PermissionsExt;
        let dir = self.machines.dir();
        std::fs::create_dir_all(dir.join("slurm/state")).unwrap();
        std::fs::write(dir.join("munge.key"), [7_u8; 1024]).unwrap();
        std::fs::set_permissions(dir.join("munge.key"), std::fs::Permissions::from_mode(0o600))
            .unwrap();
        let dir = dir.display();
        let config = format!(
            "ClusterName=test\nSlurmctldHost=login\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={dir}/munge.socket\nCredType=cred/munge\n\
             StateSaveLocation={dir}/slurm/state\nSlurmdSpoolDir={dir}/slurm/%n\n\
             SlurmctldPidFile=/run/slurmctld.pid\nSlurmdPidFile=/run/slurmd.pid\n\
             SlurmctldLogFile={dir}/slurm/slurmctld.log\nSlurmdLogFile={dir}/slurm/%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n\
             SelectType=select/linear\nSchedulerType=sched/builtin\nReturnToService=2\n\
             AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n\
             SwitchType=switch/none\nSlurmctldTimeout=60\nSlurmdTimeout=60\nInactiveLimit=0\n\
             NodeName=h[1-{count}] CPUs=1 RealMemory=1 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE MaxTime=INFINITE State=UP\n"
        );
        std::fs::write(self.machines.dir().join("slurm.conf"), config).unwrap();
    }

    fn start_daemons(&self, count: usize) {
        let file = |name: &str| self.machines.dir().join(name).to_str().unwrap().to_owned();
        let (key, socket, log) = (file("munge.key"), file("munge.socket"), file("munged.log"));
        let options = ["--force", "--num-threads", "2"].map(str::to_owned);
        let files = [
            format!("--key-file={key}"),
            format!("--socket={socket}"),
            format!("--log-file={log}"),
            "--pid-file=/run/munged.pid".to_owned(),
            "--seed-file=/run/munged.seed".to_owned(),
        ];
        let args: Vec<&str> = options.iter().chain(&files).map(String::as_str).collect();
        self.start(LOGIN, "/usr/sbin/munged", &args);
        wait_until("munged listens", || Path::new(&socket).exists());
        let config = file("slurm.conf");
        self.start(LOGIN, "/usr/sbin/slurmctld", &["-f", &config]);
        for host in 1..=count {
            self.start(host, "/usr/sbin/slurmd", &["-f", &config, "-N", &format!("h{host}")]);
        }
        let all_idle = || {
            let run = self.command("sinfo", &["--noheader", "--format=%t %D"]).output().unwrap();
            String::from_utf8_lossy(&run.stdout) == format!("idle {count}\n")
        };
        wait_until("every slurmd has registered", all_idle);
    }

    fn start(&self, host: usize, program: &str, args: &[&str]) {
        let output = self.machines.command(host, program, args).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
    }

    /// A command of Slurm on `login`.
    pub fn command(&self, program: &str, args: &[&str]) -> std::process::Command {
        let mut command = self.machines.command(LOGIN, program, args);
        command.env("SLURM_CONF", self.machines.dir().join("slurm.conf"));
        command
    }
}

#[test]
fn one_srun_starts_a_server_on_every_node_of_a_job() {
    let _turn = turn();
    let Some(slurm) = Slurm::new(16) else { return };
    let machines = &slurm.machines;
    machines.write(LOGIN, "sheaf.toml", "[cluster.job]\nhosts = \"@slurm\"\nlaunch = \"slurm\"\n");
    for host in 1..=16 {
        machines.write(host, "data", "equal\n");
    }
    let sheaf = machines.dir().join("sheaf");
    let command = ["--nodes=16", "--quiet", sheaf.to_str().unwrap(), "grep", "equal", "/root/data"];
    let run = Run::of(slurm.command("salloc", &command).output().unwrap());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(run.stdout, "h[1-16]:/root/data:equal\n");
    wait_until("no server is left", || {
        machines.hosts().all(|host| machines.processes(host).is_empty())
    });
}

#[test]
fn inner_nodes_run_on_nodes_of_the_job_and_srun_errors_are_told() {
    let _turn = turn();
    let Some(slurm) = Slurm::new(4) else { return };
    let machines = &slurm.machines;
    let config = |more: &str| {
        let text = format!(
            "[cluster.job]\nhosts = \"h[1-4]\"\nlaunch = \"slurm\"\ntree = \"1x2x2\"\n{more}"
        );
        machines.write(LOGIN, "sheaf.toml", &text);
    };
    let sheaf = machines.dir().join("sheaf");
    let run =
        |args: &[&str]| Run::of(slurm.command(sheaf.to_str().unwrap(), args).output().unwrap());
    (1..=4).for_each(|host| machines.write(host, "data", "equal\n"));
    config("");
    let up = run(&["up"]);
    assert_eq!((up.code, machines.processes(LOGIN).len()), (Some(0), 1), "{up:?}");
    assert_eq!(run(&["grep", "equal", "/root/data"]).stdout, "h[1-4]:/root/data:equal\n");
    assert_eq!([1, 2, 3, 4].map(|host| machines.processes(host).len()), [2, 1, 2, 1]);
    assert_eq!(run(&["down"]).code, Some(0));
    wait_until("no server is left", || {
        machines.hosts().all(|host| machines.processes(host).is_empty())
    });

    config("srun = \"srun --partition=nowhere\"\n");
    let failed = run(&["grep", "equal", "/root/data"]);
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert!(
        failed.stderr.starts_with("h[1-4]: host is down (EHOSTDOWN): not started: srun: error: "),
        "{failed:?}"
    );
    assert!(failed.stderr.contains("nvalid partition"), "{failed:?}");

    config("srun = \"srun-that-is-not-there\"\n");
    let failed = run(&["grep", "equal", "/root/data"]);
    assert!(
        failed.stderr.contains(": srun-that-is-not-there cannot be run: No such file"),
        "{failed:?}"
    );

    // One host lacks a library, say: its task ends with an error of its own.
    let wrapper = machines.dir().join("wrapper");
    let script = format!(
        "#!/bin/sh\n[ $(hostname) != h3 ] || {{ echo 'no libfoo' >&2; exit 7; }}\nexec {} \"$@\"\n",
        sheaf.display()
    );
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let srun = machines.dir().join("srun");
    let script = format!(
        "#!/bin/sh\nfor a; do shift; [ \"$a\" = {0} ] && a={1}; set -- \"$@\" \"$a\"; done\nexec srun \"$@\"\n",
        sheaf.display(),
        wrapper.display()
    );
    std::fs::write(&srun, script).unwrap();
    std::fs::set_permissions(&srun, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    config(&format!("srun = \"{}\"\n", srun.display()).replace("1x2x2", "flat"));
    let failed = run(&["--tree", "flat", "grep", "equal", "/root/data"]);
    assert_eq!(failed.stdout, "h[1-2,4]:/root/data:equal\n", "{failed:?}");
    let told =
        "h3: host is down (EHOSTDOWN): not started: no libfoo; srun: Exited with exit code 7\n";
    assert!(failed.stderr.starts_with(told), "{failed:?}");
}

#[test]
fn inner_hosts_of_a_job_are_started_and_hosts_join_by_token() {
    let _turn = turn();
    let Some(slurm) = Slurm::new(4) else { return };
    let machines = &slurm.machines;
    let config = "[cluster.job]\nhosts = \"h[1-2]\"\nlaunch = \"slurm\"\ntree = \"1x2x1\"\n";
    machines.write(LOGIN, "sheaf.toml", config);
    (1..=2).for_each(|host| machines.write(host, "data", "equal\n"));
    let sheaf = machines.dir().join("sheaf");
    let run =
        |args: &[&str]| Run::of(slurm.command(sheaf.to_str().unwrap(), args).output().unwrap());
    let up = run(&["--inner-hosts", "h[3-4]", "up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    assert_eq!(run(&["grep", "equal", "/root/data"]).stdout, "h[1-2]:/root/data:equal\n");
    let hosts: Vec<(String, u64)> = machines.nodes().into_values().collect();
    let planned =
        [("h3", 0), ("h4", 0), ("h1", 1), ("h2", 2)].map(|(host, up)| (host.to_owned(), up));
    assert_eq!(hosts, planned);
    assert_eq!([1, 2, 3, 4].map(|host| machines.processes(host).len()), [1; 4]);

    // A server is lost, which nobody starts again; its host comes by itself.
    machines.processes(2)[0].signal(Signal::KILL);
    wait_until("h2 is lost", || {
        run(&["grep", "equal", "/root/data"]).stdout == "h1:/root/data:equal\n"
    });
    let _server = joins_by_token(machines, 2);
    let told = "h[1-2]:/root/data:equal\n";
    wait_until("h2 answers again", || run(&["grep", "equal", "/root/data"]).stdout == told);
    assert_eq!(machines.nodes().into_values().collect::<Vec<_>>(), planned);
    assert_eq!(run(&["down"]).code, Some(0));
    wait_until("no server is left", || {
        machines.hosts().all(|host| machines.processes(host).is_empty())
    });
}

#[test]
fn job_that_waits_says_why_and_goes_with_its_command() {
    let _turn = turn();
    let Some(slurm) = Slurm::new(3) else { return };
    let machines = &slurm.machines;
    machines.write(LOGIN, "sheaf.toml", "[cluster.job]\nhosts = \"h[1-3]\"\nlaunch = \"slurm\"\n");
    let sheaf = machines.dir().join("sheaf");
    let grep = |more: &[&str]| {
        slurm.command(sheaf.to_str().unwrap(), &[more, &["grep", "equal", "/root/data"]].concat())
    };
    let queue = || {
        let run = slurm.command("squeue", &["--noheader", "--format=%j %T"]).output().unwrap();
        String::from_utf8(run.stdout).unwrap()
    };
    let drain = ["update", "NodeName=h2", "State=DRAIN", "Reason=test"];
    assert!(slurm.command("scontrol", &drain).status().unwrap().success());

    let begun = Instant::now();
    let run = Run::of(grep(&["--timeout", "3"]).output().unwrap());
    assert_eq!((run.code, queue().as_str()), (Some(3), ""), "{run:?}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let told = "h[1-3]: it does not serve (EAGAIN): not started: srun: Required node not available";
    assert!(run.stderr.starts_with(told), "{run:?}");

    // Whoever is asked to end takes the job along; whoever is killed lets it end by itself.
    for (signal, code) in [(Signal::TERM, Some(130)), (Signal::KILL, None)] {
        let waiting = Running::start(&mut grep(&[]));
        wait_until("the job waits", || queue() == "sheaf PENDING\n");
        machines.processes(LOGIN)[0].signal(signal);
        assert_eq!(waiting.wait().code, code);
        wait_until("the job has gone", || queue().is_empty());
    }
}

#[test]
fn session_whose_job_is_over_names_the_reason_and_ends() {
    let _turn = turn();
    let Some(slurm) = Slurm::new(2) else { return };
    let machines = &slurm.machines;
    let config = |more: &str| {
        let text = format!("[cluster.job]\nhosts = \"h[1-2]\"\nlaunch = \"slurm\"\n{more}");
        machines.write(LOGIN, "sheaf.toml", &text);
    };
    config("");
    let sheaf = machines.dir().join("sheaf");
    let run =
        |args: &[&str]| Run::of(slurm.command(sheaf.to_str().unwrap(), args).output().unwrap());
    let up = run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    for host in 1..=2 {
        let long = std::fs::File::create(machines.home(host, "long")).unwrap();
        long.set_len(1 << 40).unwrap();
    }
    let sum = Running::start(&mut slurm.command(sheaf.to_str().unwrap(), &["sha", "/root/long"]));
    let works = |host: usize| {
        machines
            .processes(host)
            .iter()
            .any(|process| process.kilobytes("io", "rchar") > Some(1 << 23))
    };
    wait_until("both work", || works(1) && works(2));
    assert!(slurm.command("scancel", &["--name=sheaf"]).status().unwrap().success());
    let told = sum.wait();
    let cause = "h[1-2]: host is down (EHOSTDOWN): Slurm job 1 was cancelled (scancel)\n";
    assert!(told.stderr.starts_with(cause), "{told:?}");
    wait_until("the session has ended", || machines.processes(LOGIN).is_empty());
    let asked = run(&["--session", "job", "cat", "/root/data"]);
    let told = "sheaf: no session job is running any more (Slurm job 1 was cancelled (scancel)); start it with: \
                sheaf up --session job\n";
    assert_eq!((asked.code, asked.stderr.as_str()), (Some(3), told));

    config("srun = \"srun --partition=nowhere\"\n");
    let up = run(&["up"]);
    assert_eq!(up.code, Some(3), "{up:?}");
    let told = "sheaf: session job did not start: srun: error: ";
    assert!(up.stderr.starts_with(told) && up.stderr.contains("nvalid partition"), "{up:?}");
    assert_eq!(run(&["status"]).stderr, "no session is running; start one with: sheaf up\n");
}
