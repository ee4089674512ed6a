//! `sheaf config`: the configuration checked and shown.
use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Output, Records, printable};
use sheaf_cli::session;
use sheaf_core::hostset::HostSet;
use sheaf_records::{Check, Setting, Settings};
use sheaf_session::config::{Cluster, ConfigFile, Launch, Origin, SETTINGS, Sourced};
use sheaf_session::groups::{GroupSources, is_not_run};
use sheaf_session::trusted::Trusted;
use sheaf_session::{ClientSettings, Config, Environment};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Check or show the configuration
#[derive(Args, Debug)]
#[command(after_help = "\
The file is the one of --config, $SHEAF_CONFIG, ./sheaf.toml,
$XDG_CONFIG_HOME/sheaf/sheaf.toml or /etc/sheaf/sheaf.toml: the first there is.
Without any, the cluster is this machine alone. It can make commands run, so
nobody but you and root may own it or write to it or (except for one that is
named) to its directory. ./sheaf.toml, which may have come with a cloned
repository, counts only in or below a directory that you have trusted:

  sheaf config check         # runs nothing
  sheaf config trust         # this directory; --remove and --list

  default = \"lab\"            # the cluster when --cluster names none

  [cluster.lab]
  hosts  = \"n[1-512]\"        # or @file:hosts.txt, @command:…, @group
  launch = \"ssh\"             # embedded, processes, ssh, slurm, attach
  tree   = \"auto\"            # auto, flat, 1x24x24, k-ary:32, file:tree.top
  export = \"/srv/%h\"         # what each server serves
  # What is seldom said, with what holds without it:
  link   = \"auto\"            # tls to other hosts, else through ssh; also ssh,
                             # tls; with processes unix, tcp or tls
  listen = \"0.0.0.0:0\"       # where hosts come to; port 0 is any that is free
  ssh    = \"ssh\"             # the client and options; srun for slurm
  # inner_hosts = \"n[1-8]\": hosts of nodes between root and leaves
  # ports = \"7440-7460\": at which alone root and nodes listen
  # program = \"/usr/bin/sheaf\": where hosts have it, which are then not sent it
  # remote_dir = \"/scratch\": where hosts keep it, in place of ~/.cache
  # clients = \"hosts\" or a host set: where its commands may be typed; without
  #   it only where it was started. clients_may = \"write\", clients_root = true
  # audit = \"log\" or \"journald\": a line for each client and each change
  # users = \"alice, 1007\" or \"any\": who else may use a session of root's

  [groups]
  web = \"n[1-16]\"            # @web

  [tuning]
  heartbeat_ms = 500         # sheaf config show lists all of them")]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Read the file and say everything that is wrong with it
    Check,
    /// Show what is in force, and where each value came from
    Show,
    /// Let the sheaf.toml in and below a directory count
    Trust(TrustArgs),
}

/// Which directory.
#[derive(Args, Debug)]
pub struct TrustArgs {
    /// The directory [default: the working directory]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub directory: Option<PathBuf>,

    /// Remove it from the trusted directories
    #[arg(long)]
    pub remove: bool,

    /// List the trusted directories
    #[arg(long, conflicts_with_all = ["remove", "directory"])]
    pub list: bool,
}

/// Does what the sub-command says.
pub fn run(args: &ConfigArgs, global: &GlobalArgs) -> Result<Exit> {
    match args.command {
        ConfigCommand::Check => check(global),
        ConfigCommand::Show => show(global),
        ConfigCommand::Trust(ref args) => trust(args, global),
    }
}

/// Adds a directory to the trusted ones, removes it, or lists them.
fn trust(args: &TrustArgs, global: &GlobalArgs) -> Result<Exit> {
    let mut trusted = Trusted::read(&Environment::of_this_process())?;
    let shown = |path: &Path| printable(&path.to_string_lossy());
    if args.list {
        let mut stdout = sheaf_cli::output::stdout();
        for directory in trusted.directories() {
            writeln!(stdout, "{}", shown(directory))?;
        }
        return Ok(Exit::Success);
    }
    let directory = args.directory.as_deref().unwrap_or(Path::new("."));
    if args.remove {
        return match trusted.remove(directory)? {
            true => Ok(Exit::Success),
            false => {
                let text = format!("{}: it is not a trusted directory", shown(directory));
                Err(Stop::usage(text).into())
            }
        };
    }
    let real = trusted.add(directory)?;
    Output::new(global).note(Some(&format!(
        "sheaf.toml is used in {} and in all directories below it",
        shown(&real)
    )))?;
    Ok(Exit::Success)
}

/// What is wrong with a configuration.
pub struct ConfigProblems {
    pub file: ConfigFile,
    pub problems: Vec<String>,
    /// Commands that list hosts, which were not run.
    pub not_run: usize,
}

/// Finds every problem. Nothing is run, so a file that is not trusted can be checked, too.
pub fn problems(global: &GlobalArgs) -> Result<ConfigProblems> {
    let environment = Environment::of_this_process().without_commands();
    let file = ConfigFile::find_to_check(global.config.as_deref(), &environment)?;
    let mut problems: Vec<String> = file.problems.iter().map(ToString::to_string).collect();
    let groups = GroupSources::new(file.groups.clone(), &environment);
    for (name, section) in &file.clusters {
        let cluster = section.cluster(Sourced::default(name.clone()));
        problems.extend(cluster.problems(&groups, &environment));
    }
    problems.extend(problems_of_groups(&file, &groups));
    let all = problems.len();
    problems.retain(|problem| !is_not_run(problem));
    let not_run = all - problems.len();
    problems.extend(file.distrust.clone());
    Ok(ConfigProblems { file, problems, not_run })
}

/// Names every problem; ends with 2 when there is one, as any other command would.
fn check(global: &GlobalArgs) -> Result<Exit> {
    let ConfigProblems { file, problems, not_run } = problems(global)?;
    let not_run = match not_run {
        0 => String::new(),
        count => format!("; commands that were not run: {count}"),
    };
    let mut stdout = sheaf_cli::output::stdout();
    let exit = if problems.is_empty() { Exit::Success } else { Exit::Usage };
    if global.json {
        let path = file.path.as_ref().map(|path| path.display().to_string());
        Records::new(global).write(&mut stdout, &Check { file: path, problems, exit })?;
    } else if problems.is_empty() {
        let clusters = file.clusters.len();
        writeln!(
            stdout,
            "{}: no problems; clusters: {clusters}, groups: {}{not_run}",
            file.name(),
            file.groups.len()
        )?;
    } else {
        for problem in problems {
            sheaf_cli::output::tell(format_args!("sheaf: {problem}"));
        }
    }
    Ok(exit)
}

/// What is wrong with the groups of the file. A circle of groups is told once, not for each of
/// them.
fn problems_of_groups(file: &ConfigFile, groups: &GroupSources) -> Vec<String> {
    let (mut problems, mut circles) = (Vec::new(), BTreeSet::new());
    for (name, nodes) in &file.groups {
        let Err(error) = HostSet::parse_with(&sheaf_session::groups::union(&nodes.value), groups)
        else {
            continue;
        };
        let circle: Vec<String> =
            error.circle().into_iter().flatten().map(ToOwned::to_owned).collect();
        if !circle.iter().any(|group| circles.contains(group)) {
            problems.push(format!("{}: group {name}: {error}", nodes.origin));
        }
        circles.extend(circle);
    }
    problems
}

fn show(global: &GlobalArgs) -> Result<Exit> {
    let environment = Environment::of_this_process();
    let file = ConfigFile::find(global.config.as_deref(), &environment)?;
    let says_hosts =
        !global.on_hosts.is_empty() || global.embedded.is_some() || global.processes.is_some();
    let is_unchosen = file.is_unchosen() && global.cluster.is_none() && !says_hosts;
    let values = if is_unchosen {
        values_of_all(global, &file)?
    } else {
        values(&Config::of_file(&global.choices(), &environment, file)?)
    };
    let mut stdout = sheaf_cli::output::stdout();
    if global.json {
        let setting = |(name, value, from)| (name, Setting { value, from });
        let settings = values.into_iter().map(setting).collect();
        Records::new(global).write(&mut stdout, &Settings { settings })?;
        return Ok(Exit::Success);
    }
    let name_width = values.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let value_width = values.iter().map(|(_, value, _)| value.to_string().len()).max().unwrap_or(0);
    for (name, value, origin) in values {
        let value = value.to_string();
        // --timeout is for the command, what holds without it for each host.
        let is_silence = name == "timeout_s" && origin != "--timeout";
        let origin =
            if is_silence { format!("{origin}: how long a host may be silent") } else { origin };
        writeln!(stdout, "{name:name_width$} = {value:value_width$}  # {origin}")?;
    }
    Ok(Exit::Success)
}

/// A setting's name, value and origin.
type Shown = (String, Value, String);

/// Every value in force.
fn values(config: &Config) -> Vec<Shown> {
    [vec![text("cluster", &config.cluster.name)], of_cluster(&config.cluster), others(config)]
        .concat()
}

/// What would be in force with each of the clusters of a file that does not say which is meant.
fn values_of_all(global: &GlobalArgs, file: &ConfigFile) -> Result<Vec<Shown>> {
    file.check()?;
    let (names, mut shown, mut rest) = (file.clusters.keys(), Vec::new(), Vec::new());
    let note = format!(
        "{} has {} clusters and no default: commands need --cluster NAME",
        file.name(),
        names.len()
    );
    Output::new(global).note(Some(&note))?;
    for name in names {
        let config =
            session::config(&GlobalArgs { cluster: Some(name.clone()), ..global.clone() })?;
        let of_it = of_cluster(&config.cluster).into_iter();
        shown.extend(
            of_it.map(|(key, value, origin)| (format!("cluster.{name}.{key}"), value, origin)),
        );
        rest = others(&config);
    }
    shown.extend(rest);
    Ok(shown)
}

/// The settings of a cluster, what holds where they are not said included.
fn of_cluster(cluster: &Cluster) -> Vec<Shown> {
    let Cluster { name: _, hosts, launch, tree, export, inner_hosts, .. } = cluster;
    let Cluster { link, listen, ports, ssh, srun, users, user, sudo, .. } = cluster;
    let Cluster { program, remote_dir, .. } = cluster;
    let mut values = vec![
        text("hosts", hosts),
        text("launch", launch),
        text("tree", tree),
        text("export", export),
    ];
    let default_link = match launch.value {
        Launch::Embedded => "",
        Launch::Processes => "unix",
        Launch::Ssh => "auto",
        Launch::Slurm | Launch::Attach => "tls",
    };
    values.push(text_or("inner_hosts", inner_hosts.as_ref(), ""));
    values.push(text_or("link", link.as_ref(), default_link));
    values.push(text_or("listen", listen.as_ref(), "0.0.0.0:0"));
    values.push(text_or("ssh", ssh.as_ref(), "ssh"));
    values.push(text_or("srun", srun.as_ref(), "srun"));
    values.push(text_or("ports", ports.as_ref(), ""));
    values.extend(program.iter().map(|path| text("program", path)));
    values.extend(remote_dir.iter().map(|path| text("remote_dir", path)));
    values.extend(of_clients(&cluster.client_settings));
    // What has no default is shown where it is set.
    values.extend(users.iter().map(|users| {
        ("users".to_owned(), json!(users.value.to_string()), users.origin.to_string())
    }));
    values.extend(user.iter().map(|value| text("user", value)));
    values.extend(
        sudo.iter().map(|value| ("sudo".to_owned(), json!(value.value), value.origin.to_string())),
    );
    values
}

/// The settings of clients on hosts.
fn of_clients(settings: &ClientSettings) -> [Shown; 4] {
    let ClientSettings { clients, clients_may, clients_root, audit } = settings;
    let origin = |said: Option<&Origin>| said.map_or("default".to_owned(), Origin::to_string);
    let rights = settings.rights();
    let may = clients_may.as_ref().map(|may| may.value).unwrap_or_default();
    [
        text_or("clients", clients.as_ref(), "head"),
        (
            "clients_may".to_owned(),
            json!(may.name()),
            origin(clients_may.as_ref().map(|may| &may.origin)),
        ),
        (
            "clients_root".to_owned(),
            json!(rights.may_be_root),
            origin(clients_root.as_ref().map(|root| &root.origin)),
        ),
        (
            "audit".to_owned(),
            json!(settings.audit().name()),
            origin(audit.as_ref().map(|audit| &audit.origin)),
        ),
    ]
}

/// What does not depend on the cluster.
fn others(config: &Config) -> Vec<Shown> {
    let mut values = Vec::new();
    if !config.exclude_hosts.is_empty() {
        let excluded = config.exclude_hosts.join(",");
        values.push(("exclude_hosts".to_owned(), json!(excluded), "--exclude-hosts".to_owned()));
    }
    let timeout = &config.timeout;
    values.push((
        "timeout_s".to_owned(),
        json!(timeout.value.as_secs_f64()),
        timeout.origin.to_string(),
    ));
    for (name, nodes) in config.groups.own() {
        values.push(text(&format!("groups.{name}"), nodes));
    }
    for setting in SETTINGS {
        if let Some(value) = config.tuning.get(setting.name) {
            values.push((
                format!("tuning.{}", setting.name),
                json!(value.value),
                value.origin.to_string(),
            ));
        }
    }
    values
}

fn text_or<T: Display>(name: &str, value: Option<&Sourced<T>>, default: &str) -> Shown {
    value.map_or_else(|| text(name, &Sourced::default(default)), |value| text(name, value))
}

fn text<T: Display>(name: &str, value: &Sourced<T>) -> Shown {
    (name.to_owned(), Value::String(value.value.to_string()), value.origin.to_string())
}
