//! Whoever is asked answers: the order of hosts in a topology file is not that of the
//! configuration.
use crate::attach::joins_by_token;
use crate::machines::{LOGIN, Machines, address};
use crate::slurm::Slurm;
use sheaf_core::hostset::HostSet;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{nothing_is_left, turn, wait_until};
use std::collections::BTreeSet;

const HOSTS: u32 = 6;

/// A cluster whose tree names its hosts in an order of its own. On each host everything says its
/// name.
struct Cluster {
    home: Home,
    /// What comes before each command's own arguments.
    global: Vec<String>,
    random: fastrand::Rng,
}

fn name(host: u32) -> String {
    format!("n{host}")
}

/// A tree of all hosts in a random order, flat or with a level between.
fn tree(random: &mut fastrand::Rng) -> String {
    let mut order: Vec<u32> = (1..=HOSTS).collect();
    while order.is_sorted() {
        random.shuffle(&mut order);
    }
    let leaves = |hosts: &[u32]| hosts.iter().map(|host| format!("n{host}:0 ")).collect::<String>();
    if random.bool() {
        return format!("root:0 => {};\n", leaves(&order));
    }
    let (first, second) = order.split_at(random.usize(1..order.len()));
    format!("b:1 => {};\nroot:0 => a:1 b:1 ;\na:1 => {};\n", leaves(second), leaves(first))
}

impl Cluster {
    fn new(seed: u64, launch: &str) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let home = Home::new();
        let export = home.path().join("%h");
        let mut expression: Vec<String> = (1..=HOSTS).map(name).collect();
        random.shuffle(&mut expression);
        home.write(
            "sheaf.toml",
            &format!(
                "[cluster.lab]\nhosts = {:?}\nlaunch = {launch:?}\ntree = \"file:tree.top\"\nexport = {:?}\n",
                expression.join(","),
                export.to_str().unwrap()
            ),
        );
        home.write("tree.top", &tree(&mut random));
        for host in 1..=HOSTS {
            home.write(&format!("n{host}/who"), &format!("n{host}\n"));
            home.write(&format!("n{host}/sized"), &"x".repeat(100 + host as usize));
            home.write(&format!("n{host}/number"), &format!("{}\n", 1u32 << host));
            home.write(&format!("n{host}/dir/of-n{host}"), "");
        }
        Self { home, global: Vec::new(), random }
    }

    fn run(&self, args: &[&str]) -> Run {
        let global: Vec<&str> = self.global.iter().map(String::as_str).collect();
        let run = self.home.run(&[&global, args].concat());
        let says_where =
            |line: &str| [" on n", " to n", " from n"].iter().any(|way| line.contains(way));
        let failed = !run.stderr.lines().all(says_where);
        assert_eq!((run.code, failed), (Some(0), false), "{args:?}: {run:?}, tree {}", self.tree());
        run
    }

    /// Changes files, and says on these hosts.
    fn does(&self, asked: &BTreeSet<u32>, args: &[&str]) {
        let run = self.run(args);
        let told =
            run.stderr.split_once(" on ").and_then(|(_, rest)| rest.split_once(": ")).unwrap().0;
        let told: BTreeSet<String> =
            HostSet::parse(told).unwrap().iter().map(|host| host.to_string()).collect();
        let names: BTreeSet<String> = asked.iter().map(|&host| name(host)).collect();
        assert_eq!(told, names, "{args:?}: {run:?}, tree {}", self.tree());
    }

    fn tree(&self) -> String {
        std::fs::read_to_string(self.home.path().join("tree.top")).unwrap()
    }

    /// Some hosts, not all.
    fn some(&mut self) -> BTreeSet<u32> {
        let count = self.random.usize(1..HOSTS as usize);
        self.random.choose_multiple(1..=HOSTS, count).into_iter().collect()
    }

    fn exists(&self, host: u32, path: &str) -> bool {
        self.home.path().join(name(host)).join(path).exists()
    }

    /// Lines of a command's output, in order of their text.
    #[track_caller]
    fn says(&self, args: &[&str], mut expected: Vec<String>) {
        let run = self.run(args);
        let mut lines: Vec<&str> = run.stdout.lines().collect();
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected, "{args:?}: tree {}", self.tree());
    }

    fn check(&mut self) {
        for _ in 0..2 {
            self.read();
        }
        self.change();
        self.copy();
    }

    /// What is read comes from the hosts that were asked.
    fn read(&mut self) {
        let asked = self.some();
        let hosts = asked.iter().map(|&host| name(host)).collect::<Vec<_>>().join(",");
        let at = |path: &str| format!("{hosts}:{path}");
        let each =
            |line: fn(u32) -> String| asked.iter().map(|&host| line(host)).collect::<Vec<_>>();
        self.says(&["grep", ".", &at("/who")], each(|host| format!("n{host}:/who:n{host}")));
        self.says(&["ls", &at("/dir")], each(|host| format!("n{host}:/dir/of-n{host}")));
        self.says(
            &["stat", "-c", "%s", &at("/sized")],
            each(|host| format!("n{host}:/sized:{}", 100 + host)),
        );
        self.says(
            &["du", "-b", &at("/sized")],
            each(|host| format!("{}\tn{host}:/sized", 100 + host)),
        );
        self.says(
            &["read", "-a", "lines", &at("/who")],
            each(|host| format!("n{host}:/who:n{host}")),
        );
        let sum: u32 = asked.iter().map(|host| 1 << host).sum();
        self.says(&["read", "-a", "sum", &at("/number")], vec![sum.to_string()]);
        let sha = self.run(&["--json", "sha", &at("/who")]).stdout;
        let told: BTreeSet<(String, String)> = sha
            .lines()
            .filter_map(|line| {
                let entry: serde_json::Value = serde_json::from_str(line).unwrap();
                Some((entry["hosts"].as_str()?.to_owned(), entry["text"].as_str()?.to_owned()))
            })
            .collect();
        let alone = |host: u32| {
            let one = self.run(&["sha", &format!("n{host}:/who")]).stdout;
            (name(host), one.split_whitespace().next().unwrap().to_owned())
        };
        if !told.is_empty() {
            assert_eq!(told, asked.iter().map(|&host| alone(host)).collect());
        }
        let one = *asked.first().unwrap();
        let cat = self.run(&["cat", &format!("n{one}:/who")]);
        assert!(cat.stdout.ends_with(&format!("n{one}\n")), "{cat:?}");
        let paths = self.run(&["read", "-a", "concatenate", &format!("n{one}:/who")]);
        assert_eq!(paths.stdout, format!("n{one}\n"));
    }

    /// What is changed is changed on the hosts that were asked, and nowhere else.
    fn change(&mut self) {
        let asked = self.some();
        let hosts = asked.iter().map(|&host| name(host)).collect::<Vec<_>>().join(",");
        let at = |path: &str| format!("{hosts}:{path}");
        let only_asked = |what: &str, is: &dyn Fn(u32) -> bool| {
            let changed: BTreeSet<u32> = (1..=HOSTS).filter(|&host| is(host)).collect();
            assert_eq!(changed, asked, "{what}: tree {}", self.tree());
        };
        let metadata = |host: u32, path: &str| {
            std::fs::symlink_metadata(self.home.path().join(name(host)).join(path)).unwrap()
        };
        use std::os::unix::fs::MetadataExt;
        self.does(&asked, &["write", "--create", "--data", "x", &at("/written")]);
        only_asked("write", &|host| self.exists(host, "written"));
        self.does(&asked, &["mkdir", &at("/made")]);
        only_asked("mkdir", &|host| self.exists(host, "made"));
        self.does(&asked, &["ln", "-s", "who", &at("/link")]);
        only_asked("ln", &|host| self.exists(host, "link"));
        self.does(&asked, &["chmod", "0611", &at("/who")]);
        only_asked("chmod", &|host| metadata(host, "who").mode() & 0o7777 == 0o611);
        self.does(&asked, &["truncate", "-s", "3", &at("/sized")]);
        only_asked("truncate", &|host| metadata(host, "sized").len() == 3);
        let before: Vec<_> =
            (1..=HOSTS).map(|host| metadata(host, "number").ctime_nsec()).collect();
        let own = metadata(1, "number").uid().to_string();
        self.does(&asked, &["chown", &own, &at("/number")]);
        only_asked("chown", &|host| {
            metadata(host, "number").ctime_nsec() != before[host as usize - 1]
        });
        self.does(&asked, &["rm", "-r", &at("/dir")]);
        only_asked("rm", &|host| !self.exists(host, "dir"));
    }

    /// Copies go to the hosts that were named, and come from them.
    fn copy(&mut self) {
        let asked = self.some();
        let hosts = asked.iter().map(|&host| name(host)).collect::<Vec<_>>().join(",");
        self.home.write("source", "to all");
        self.run(&["cp", "source", &format!("{hosts}:/copied")]);
        let copied: BTreeSet<u32> =
            (1..=HOSTS).filter(|&host| self.exists(host, "copied")).collect();
        assert_eq!(copied, asked, "tree {}", self.tree());
        self.run(&["cp", &format!("{hosts}:/who"), "got/"]);
        for host in 1..=HOSTS {
            let got =
                std::fs::read_to_string(self.home.path().join(format!("got/n{host}/who"))).ok();
            let expected = asked.contains(&host).then(|| format!("n{host}\n"));
            assert_eq!(got, expected, "tree {}", self.tree());
        }
    }
}

#[test]
fn selected_hosts_answer_in_any_tree_order() {
    for seed in 0..6 {
        Cluster::new(seed, "embedded").check();
    }
    Cluster::new(6, "processes").check();
}

#[test]
fn selected_hosts_answer_in_a_joined_session() {
    for seed in [7, 8] {
        let mut cluster = Cluster::new(seed, "processes");
        let up = cluster.home.run(&["up"]);
        assert_eq!(up.code, Some(0), "{up:?}");
        cluster.check();
        // Not even the cluster's own configuration is needed to know who is who.
        std::fs::remove_file(cluster.home.path().join("sheaf.toml")).unwrap();
        cluster.global = ["--session", "lab"].map(ToOwned::to_owned).to_vec();
        cluster.check_again();
        let status = cluster.run(&["status", "--json"]).stdout;
        for line in status.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["type"] == "host" {
                let (host, pid) = (line["host"].as_str().unwrap(), line["pid"].as_u64().unwrap());
                // A server has its export as its last open directory.
                let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
                let export = cluster.home.path().join(host);
                let serves = fds
                    .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
                    .any(|to| to == export);
                assert!(serves, "{host} is not the server of process {pid}");
            }
        }
        assert_eq!(cluster.home.run(&["down", "lab"]).code, Some(0));
        nothing_is_left(&cluster.home);
    }
}

impl Cluster {
    /// [`Cluster::check`], where it was checked before.
    fn check_again(&mut self) {
        for host in 1..=HOSTS {
            let dir = self.home.path().join(name(host));
            for path in ["written", "link", "copied"] {
                let _ = std::fs::remove_file(dir.join(path));
            }
            let _ = std::fs::remove_dir(dir.join("made"));
            std::fs::create_dir_all(dir.join("dir")).unwrap();
            std::fs::write(dir.join(format!("dir/of-n{host}")), "").unwrap();
            std::fs::write(dir.join("sized"), "x".repeat(100 + host as usize)).unwrap();
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(dir.join("who"), std::fs::Permissions::from_mode(0o644))
                .unwrap();
        }
        let _ = std::fs::remove_dir_all(self.home.path().join("got"));
        self.check();
    }
}

#[test]
fn tree_of_other_hosts_is_refused_with_the_difference() {
    let home = Home::with_config(
        "[cluster.lab]\nhosts = \"n[1-4]\"\nlaunch = \"embedded\"\ntree = \"file:tree.top\"\n",
    );
    let refused = |tree: &str| {
        home.write("tree.top", tree);
        let told = "sheaf: tree.top: its leaves are not the hosts of cluster lab: ";
        for args in
            [&["cat", "n1:/x"][..], &["up"], &["tree", "plan"], &["cp", "sheaf.toml", "n1:/x"]]
        {
            let run = home.run(args);
            assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}: {run:?}");
            assert!(run.stderr.starts_with(told), "{args:?}: {run:?}");
            assert_eq!(run.stderr.lines().count(), 1);
        }
        home.run(&["cat", "n1:/x"]).stderr.trim_start_matches(told).trim_end().to_owned()
    };
    assert_eq!(refused("r:0 => n1:0 n2:0 n3:0 ;"), "n4 only in the cluster");
    let other = refused("r:0 => n1:0 n2:0 n5:0 n6:0 n7:0 n1:1 ;");
    let told = "n[5-7] only in the file; n[3-4] only in the cluster; n1 more than once in the file";
    assert_eq!(other, told);
    // As many as there are hosts.
    assert_eq!(
        refused("r:0 => n4:0 n3:0 n2:0 x:0 ;"),
        "x only in the file; n1 only in the cluster"
    );
}

/// Four hosts in an order that is not theirs, below a node of one of them.
const TREE: &str = "login:0 => h3:0 h1:1 ; h1:1 => h4:0 h2:0 h1:0 ;\n";

/// Machines with a cluster of h1 to h4 and [`TREE`]; each has its name in a file.
fn prepare(machines: &Machines, launch: &str) {
    let config = format!(
        "[cluster.lab]\nhosts = \"h[1-4]\"\ntree = \"file:tree.top\"\nlaunch = \"{launch}\"\n\
         listen = \"{}\"\n",
        address(LOGIN)
    );
    machines.write(LOGIN, "sheaf.toml", &config);
    machines.write(LOGIN, "tree.top", TREE);
    for host in 1..=4 {
        machines.write(host, "who", &format!("h{host}\n"));
    }
}

/// Asks each host of `machines` for its name, changes some of them, and copies from some.
fn each_answers_for_itself(machines: &Machines, run: &dyn Fn(&[&str]) -> Run) {
    let well = |args: &[&str]| {
        let run = run(args);
        // What was changed is told on standard error.
        assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
        assert!(!run.stderr.contains("panicked"), "{run:?}");
        run.stdout
    };
    for host in 1..=4 {
        let told = well(&["grep", ".", &format!("h{host}:/root/who")]);
        assert_eq!(told, format!("h{host}:/root/who:h{host}\n"));
    }
    well(&["write", "--create", "--data", "x", "h[2-3]:/root/written"]);
    let written: Vec<usize> =
        (1..=4).filter(|&host| machines.home(host, "written").exists()).collect();
    assert_eq!(written, [2, 3]);
    well(&["rm", "h[2-3]:/root/written"]);
    assert!((1..=4).all(|host| !machines.home(host, "written").exists()));
    well(&["cp", "h[1,4]:/root/who", "got/"]);
    for host in 1..=4 {
        let got = std::fs::read_to_string(machines.home(LOGIN, &format!("got/h{host}/who"))).ok();
        assert_eq!(got, [1, 4].contains(&host).then(|| format!("h{host}\n")));
    }
}

#[test]
fn selected_hosts_answer_over_ssh() {
    let _turn = turn();
    let Some(machines) = Machines::new(4) else { return };
    prepare(&machines, "ssh");
    each_answers_for_itself(&machines, &|args| machines.run(args));
    std::fs::remove_dir_all(machines.home(LOGIN, "got")).unwrap();
    assert_eq!(machines.run(&["up"]).code, Some(0));
    each_answers_for_itself(&machines, &|args| machines.run(args));
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn selected_hosts_answer_after_joining_by_token() {
    let _turn = turn();
    let Some(machines) = Machines::new(4) else { return };
    prepare(&machines, "attach");
    machines.run(&["up"]);
    let servers: Vec<_> = (1..=4).map(|host| joins_by_token(&machines, host)).collect();
    let all = "h[1-4]:/root/who\n";
    wait_until("all hosts answer", || {
        machines.run(&["--timeout", "5", "ls", "/root/who"]).stdout == all
    });
    each_answers_for_itself(&machines, &|args| machines.run(args));
    assert_eq!(machines.run(&["down"]).code, Some(0));
    for server in servers {
        assert_eq!(server.wait().code, Some(0));
    }
}

#[test]
fn selected_hosts_answer_under_slurm() {
    let _turn = turn();
    let Some(slurm) = Slurm::new(4) else { return };
    let machines = &slurm.machines;
    prepare(machines, "slurm");
    let sheaf = machines.dir().join("sheaf");
    let salloc = ["--nodes=4", "--quiet", sheaf.to_str().unwrap()];
    each_answers_for_itself(machines, &|args| {
        Run::of(slurm.command("salloc", &[&salloc, args].concat()).output().unwrap())
    });
}
