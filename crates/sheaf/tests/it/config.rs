//! `sheaf config`, and where the configuration is found.
use sheaf_testing::home::{Home, Run};

const LAB: &str = "\
default = \"lab\"
[cluster.lab]
hosts  = \"n[001-004]\"
launch = \"processes\"
link   = \"tls\"
export = \"/srv/%h\"
[cluster.farm]
hosts = \"@file:farm.txt\"
launch = \"embedded\"
[groups]
web = \"n[001-002]\"
[tuning]
heartbeat_ms = 250
";

#[test]
fn show_names_the_origin_of_every_value() {
    let home = Home::with_config(LAB);
    let run = home.run(&["config", "show", "--tree", "flat", "--timeout", "2"]);
    insta::assert_snapshot!(run.stdout, @r#"
    cluster                       = "lab"         # sheaf.toml:1
    hosts                         = "n[001-004]"  # sheaf.toml:3
    launch                        = "processes"   # sheaf.toml:4
    tree                          = "flat"        # --tree
    export                        = "/srv/%h"     # sheaf.toml:6
    inner_hosts                   = ""            # default
    link                          = "tls"         # sheaf.toml:5
    listen                        = "0.0.0.0:0"   # default
    ssh                           = "ssh"         # default
    srun                          = "srun"        # default
    ports                         = ""            # default
    clients                       = "head"        # default
    clients_may                   = "read"        # default
    clients_root                  = false         # default
    audit                         = "off"         # default
    timeout_s                     = 2.0           # --timeout
    groups.web                    = "n[001-002]"  # sheaf.toml:11
    tuning.timeout_ms             = 30000         # default
    tuning.start_timeout_ms       = 30000         # default
    tuning.heartbeat_ms           = 250           # sheaf.toml:13
    tuning.heartbeats_lost_max    = 12            # default
    tuning.window_bytes           = 1048576       # default
    tuning.concatenate_bytes_max  = 67108864      # default
    tuning.ssh_connect_timeout_ms = 10000         # default
    tuning.ssh_login_timeout_ms   = 20000         # default
    tuning.ssh_retries            = 1             # default
    tuning.ssh_starts_max         = 32            # default
    tuning.relaunch_ms            = 5000          # default
    "#);
    assert_eq!(run.code, Some(0));
}

/// Where it is least clear what is in force, all of it is shown.
#[test]
fn show_shows_every_cluster_where_none_is_chosen() {
    let home = Home::with_config(&LAB.replace("default = \"lab\"\n", ""));
    let run = home.run(&["config", "show"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let told = "sheaf: sheaf.toml has 2 clusters and no default: commands need --cluster NAME\n";
    assert_eq!(run.stderr, told);
    insta::assert_snapshot!(run.stdout.lines().take(23).collect::<Vec<_>>().join("\n"), @r#"
    cluster.farm.hosts            = "@file:farm.txt"  # sheaf.toml:7
    cluster.farm.launch           = "embedded"        # sheaf.toml:8
    cluster.farm.tree             = "auto"            # default
    cluster.farm.export           = "/"               # default
    cluster.farm.inner_hosts      = ""                # default
    cluster.farm.link             = ""                # default
    cluster.farm.listen           = "0.0.0.0:0"       # default
    cluster.farm.ssh              = "ssh"             # default
    cluster.farm.srun             = "srun"            # default
    cluster.farm.ports            = ""                # default
    cluster.farm.clients          = "head"            # default
    cluster.farm.clients_may      = "read"            # default
    cluster.farm.clients_root     = false             # default
    cluster.farm.audit            = "off"             # default
    cluster.lab.hosts             = "n[001-004]"      # sheaf.toml:2
    cluster.lab.launch            = "processes"       # sheaf.toml:3
    cluster.lab.tree              = "auto"            # default
    cluster.lab.export            = "/srv/%h"         # sheaf.toml:5
    cluster.lab.inner_hosts       = ""                # default
    cluster.lab.link              = "tls"             # sheaf.toml:4
    cluster.lab.listen            = "0.0.0.0:0"       # default
    cluster.lab.ssh               = "ssh"             # default
    cluster.lab.srun              = "srun"            # default
    "#);
    let run = home.run(&["config", "show", "--cluster", "farm"]);
    assert!(run.stdout.starts_with("cluster ") && run.stderr.is_empty(), "{run:?}");
    // What is not a limit of the command is said not to be one.
    assert!(run.stdout.contains("# default: how long a host may be silent\n"), "{run:?}");
}

#[test]
fn show_speaks_json() {
    let home = Home::with_config(LAB);
    let run = home.run(&["config", "show", "--json", "--embedded", "3"]);
    let object: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        object["settings"]["hosts"],
        serde_json::json!({ "value": "n[1-3]", "from": "--embedded" })
    );
    assert_eq!(
        object["settings"]["tuning.heartbeat_ms"],
        serde_json::json!({ "value": 250, "from": "sheaf.toml:13" })
    );
}

#[test]
fn check_reads_host_files_and_groups_too() {
    let home = Home::with_config(LAB);
    let run = home.run(&["config", "check"]);
    assert_eq!(run.code, Some(2));
    insta::assert_snapshot!(run.stderr, @"sheaf: sheaf.toml:8: hosts of cluster farm: farm.txt: No such file or directory (ENOENT)");
    home.write("farm.txt", "f[1-3]  # new\nf9\n");
    let run = home.run(&["config", "check"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    insta::assert_snapshot!(run.stdout, @"sheaf.toml: no problems; clusters: 2, groups: 1");
}

#[test]
fn link_that_leads_to_no_other_host_is_refused() {
    let home = Home::with_config("[cluster.lab]\nhosts = \"n[1-2]\"\nlink = \"unix\"\n");
    let run = home.run(&["up"]);
    let told = "sheaf: link = unix does not lead to other hosts: launch = ssh needs tls\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(2), told));
    let home = Home::with_config("[cluster.lab]\nhosts = \"n[1-2]\"\nlink = \"tsl\"\n");
    let told = "sheaf: sheaf.toml:3: link = \"tsl\" is not known; did you mean \"tls\"?\n";
    assert_eq!(home.run(&["config", "check"]).stderr, told);
}

#[test]
fn check_names_every_problem_and_others_the_first() {
    let home =
        Home::with_config("[cluster.lab]\nhost = \"n1\"\n[groups]\nbad = \"n[\"\n[tunning]\n");
    let run = home.run(&["config", "check"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    insta::assert_snapshot!(run.stderr, @r#"
    sheaf: sheaf.toml:2: unknown key "host" in [cluster.lab]; did you mean "hosts"?
    sheaf: sheaf.toml:5: unknown key "tunning"; did you mean "tuning"?
    sheaf: sheaf.toml:4: group bad: host set, byte 1: '[' without ']'
    "#);
    let run = home.run(&["cat", "/x"]);
    assert_eq!(run.code, Some(2));
    insta::assert_snapshot!(run.stderr, @r#"sheaf: sheaf.toml:2: unknown key "host" in [cluster.lab]; did you mean "hosts"? (and 1 more: sheaf config check)"#);
}

/// As after `sudo -u` that keeps root's HOME: what can be done about it is said.
#[test]
fn home_that_cannot_be_read_is_told_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let home = Home::new();
    let closed = home.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o0)).unwrap();
    // Where the program was built may be closed to others, too.
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = open.path().join("sheaf");
    std::fs::copy(env!("CARGO_BIN_EXE_sheaf"), &program).unwrap();
    for (variable, file) in
        [("HOME", ".config/sheaf/sheaf.toml"), ("XDG_CONFIG_HOME", "sheaf/sheaf.toml")]
    {
        let mut command = std::process::Command::new(&program);
        for (name, value) in home.command(&[]).get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.args(["cat", "/x"]).env(variable, &closed).current_dir("/");
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let run = Run::of(command.output().unwrap());
        let told = format!(
            "sheaf: {}/{file}: Permission denied (EACCES); set {variable}, or name a file with --config\n",
            closed.display()
        );
        assert_eq!((run.code, run.stderr), (Some(2), told));
    }
}

/// In an address `@all` is every host of the cluster: a group of that name would be another set
/// elsewhere.
#[test]
fn no_group_is_called_all() {
    let lab = "[cluster.lab]\nhosts = \"n[1-4]\"\nlaunch = \"embedded\"\n";
    let home = Home::with_config(&format!("{lab}[groups]\nall = \"n[1-3]\"\n"));
    let told = "sheaf: sheaf.toml:5: a group cannot be called all: @all stands for every host of the cluster\n";
    for args in [&["config", "check"][..], &["hosts", "-f", "@all"], &["rm", "@all:/x"], &["up"]] {
        let run = home.run(args);
        assert_eq!(
            (run.code, run.stdout.as_str(), run.stderr.as_str()),
            (Some(2), "", told),
            "{args:?}"
        );
    }
    home.write("sheaf.toml", &format!("{lab}[groups]\nall4 = \"n[1-4]\"\n"));
    assert_eq!(home.run(&["config", "check"]).code, Some(0));
}

/// Whoever looks at `@all` before a command sees the hosts that it is for.
#[test]
fn all_hosts_are_those_of_the_cluster_also_in_sets() {
    let lab = "[cluster.lab]\nhosts = \"n[1-4]\"\nlaunch = \"embedded\"\n";
    let other = "[cluster.other]\nhosts = \"@web,m1\"\nlaunch = \"embedded\"\n";
    let groups = "[groups]\nweb = \"w[1-2]\"\n";
    let home = Home::with_config(&format!("default = \"lab\"\n{lab}{other}{groups}"));
    for (args, told) in [
        (&["hosts", "@all"][..], "n[1-4]"),
        (&["hosts", "-a"], "n[1-4]"),
        (&["hosts", "-c", "@all!n1"], "3"),
        (&["-C", "other", "hosts", "@all"], "m1,w[1-2]"),
        (&["hosts", "@web"], "w[1-2]"),
    ] {
        let run = home.run(args);
        assert_eq!((run.code, run.stdout.trim_end()), (Some(0), told), "{args:?} {run:?}");
    }
    let run = home.run(&["-C", "none", "hosts", "@all"]);
    assert_ne!(run.code, Some(0));
    // Of two clusters none is meant, and one that is all hosts of a source is that source's.
    for config in [format!("{lab}{other}{groups}"), lab.replace("n[1-4]", "@all")] {
        let home = Home::with_config(&config);
        let run = home.run(&["hosts", "@web,@all"]);
        assert!(!run.stdout.contains("n["), "{run:?}");
        assert_eq!(home.run(&["hosts", "x[1-2]"]).stdout, "x[1-2]\n");
    }
}

#[test]
fn file_is_searched_in_order() {
    let home = Home::new();
    let hosts = |name: &str| format!("[cluster.c]\nhosts = \"{name}\"\nlaunch = \"embedded\"\n");
    let mut seen = Vec::new();
    let mut look = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = home.command(&[&["config", "show"], args].concat());
        command.envs(variables.iter().copied());
        let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
        seen.push(shown.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" "));
    };
    home.write(".config/sheaf/sheaf.toml", &hosts("home"));
    look(&[], &[]);
    home.write("xdg/sheaf/sheaf.toml", &hosts("xdg"));
    look(&[], &[("XDG_CONFIG_HOME", "xdg")]);
    home.write("sheaf.toml", &hosts("here"));
    look(&[], &[("XDG_CONFIG_HOME", "xdg")]);
    home.write("env.toml", &hosts("env"));
    look(&[], &[("SHEAF_CONFIG", "env.toml")]);
    home.write("opt.toml", &hosts("opt"));
    look(&["--config", "opt.toml"], &[("SHEAF_CONFIG", "env.toml")]);
    let starts: Vec<&str> = seen.iter().map(|line| line.split(" # ").next().unwrap()).collect();
    assert_eq!(
        starts,
        ["home", "xdg", "here", "env", "opt"].map(|name| format!("hosts = {name:?}"))
    );
}

#[test]
fn serve_reads_no_configuration() {
    use std::process::Stdio;
    let home = Home::with_config("this is no configuration");
    let output = home.command(&["serve"]).stdin(Stdio::null()).output().unwrap();
    assert!(!String::from_utf8(output.stderr).unwrap().contains("sheaf.toml"));
}

#[test]
fn groups_of_clustershell_work_in_addresses() {
    let home = Home::with_config("[cluster.lab]\nhosts = \"n[1-9]\"\nlaunch = \"embedded\"\n");
    let run = |address: &str| {
        let mut command = home.command(&["cat", address]);
        let groups = "[Main]\ndefault: t\nautodir: $CFGDIR/groups.d\n[t]\nmap: echo n1 m$GROUP\nlist: echo 7\n";
        home.write("clustershell/groups.conf", groups);
        home.write("clustershell/groups.d/racks.yaml", "racks:\n  r1: 'x[1-2]'\n");
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    insta::assert_snapshot!(run("@7:/x"), @"sheaf: m7 is no host of cluster lab (n[1-9]); did you mean n7?");
    insta::assert_snapshot!(run("@racks:r1:/x"), @"sheaf: x[1-2] are no hosts of cluster lab (n[1-9]); did you mean n1?");
}

/// Some editors put a mark in front of what is UTF-8.
#[test]
fn mark_in_front_of_a_file_is_no_part_of_it() {
    let home = Home::with_config(
        "\u{feff}[cluster.a]\nhosts = \"@file:hosts.txt\"\nlaunch = \"embedded\"\n",
    );
    home.write("hosts.txt", "\u{feff}n1\nn2\n");
    home.write("tree.top", "\u{feff}root:0 => n1:0 n2:0 ;\n");
    home.write("groups.conf", "\u{feff}[Main]\ndefault: a\n[a]\nmap: echo n7\n");
    for tree in ["flat", "file:tree.top"] {
        let run = home.run(&["--tree", tree, "cat", "n1:/etc/passwd"]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    }
    assert_eq!(home.run(&["hosts", "--groupsconf", "groups.conf", "@x"]).stdout, "n7\n");
}

#[test]
fn circle_of_groups_is_one_line() {
    let groups = "[groups]\na = \"@b\"\nb = \"n1,@c\"\nc = \"@a\"\nd = \"@d\"\ne = \"n1\"\n";
    let home = Home::with_config(groups);
    let check = home.run(&["config", "check"]);
    insta::assert_snapshot!(check.stderr, @r"
    sheaf: sheaf.toml:2: group a: host set, byte 0: groups name each other in a circle: @b → @c → @a → @b
    sheaf: sheaf.toml:5: group d: host set, byte 0: groups name each other in a circle: @d → @d
    ");
    assert_eq!(check.code, Some(2));
    let run = home.run(&["-w", "@a", "cat", "/x"]);
    let told = "groups name each other in a circle: @a → @b → @c → @a\n";
    assert!(run.code == Some(2) && run.stderr.ends_with(told), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
}

#[test]
fn check_finds_bad_trees_and_programs_that_are_not_there() {
    let config = "default = \"one\"\n[cluster.one]\nhosts = \"n[1-4]\"\ntree = \"1xx\"\nssh = \"no-such-client -q\"\n\
                  [cluster.two]\nhosts = \"n[1-4]\"\nlaunch = \"embedded\"\ntree = \"file:two.top\"\n\
                  srun = \"/nonexistent/srun\"\n[cluster.three]\nhosts = \"n1\"\nssh = \"env ssh\"\n";
    let home = Home::with_config(config);
    home.write("two.top", "root:0 => n1:1 n2:2 ;\n");
    let run = home.run(&["config", "check"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    insta::assert_snapshot!(run.stderr, @r#"
    sheaf: sheaf.toml:4: tree: "1xx" is no tree: "" is no number from 1 to 4294967295
    sheaf: sheaf.toml:5: ssh = "no-such-client -q": no-such-client cannot be run: No such file or directory (ENOENT)
    sheaf: sheaf.toml:9: two.top: its leaves are not the hosts of cluster two: n[3-4] only in the cluster
    sheaf: sheaf.toml:10: srun = "/nonexistent/srun": /nonexistent/srun cannot be run: No such file or directory (ENOENT)
    "#);
    // At the command, too.
    let run = home.run(&["cat", ":/x"]);
    assert_eq!(run.code, Some(2));
    insta::assert_snapshot!(run.stderr, @r#"sheaf: sheaf.toml:4: tree: "1xx" is no tree: "" is no number from 1 to 4294967295"#);
    let missing = "sheaf: sheaf.toml:5: ssh = \"no-such-client -q\": no-such-client cannot be run: No such file or \
                   directory (ENOENT)\n";
    let run = home.run(&["--tree", "flat", "cat", ":/x"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(3), missing));
    let run = home.run(&["--tree", "1xx", "cat", ":/x"]);
    assert!(run.code == Some(2) && run.stderr.starts_with("sheaf: tree: "), "{run:?}");
}
