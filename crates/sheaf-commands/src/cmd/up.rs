//! `sheaf up`: a session that stays.
use anyhow::{Context, Result};
use clap::Args;
use sheaf_cli::doctor::command_for;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Output, Records, printable};
use sheaf_cli::session::background::{self, ReadySession, Staying};
use sheaf_cli::session::{self, TokenFile};
use sheaf_records::Started;
use sheaf_session::NOT_STARTED;
use sheaf_session::config::{Config, Launch};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Start a session that later commands use
#[derive(Args, Debug)]
#[command(after_help = "\
The session listens on a unix socket that only its user can open. It is named
after its cluster, or by --session. Beside the socket, in
$XDG_RUNTIME_DIR/sheaf, it keeps its log, NAME.log: 4 MiB, and one older.

Examples:
  sheaf up lab
  sheaf up pods --tokens FILE --wait 60 --timeout 300
  sheaf up --processes 64 --session try")]
pub struct UpArgs {
    /// The cluster, as with --cluster
    #[arg(value_name = "CLUSTER", conflicts_with_all = ["cluster", "embedded", "processes"])]
    pub name: Option<String>,

    /// Write a token for each host to this file; sheaf token makes more
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,

    /// Write one token that can be used N times, not one for each host
    #[arg(long, value_name = "N", requires = "tokens")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub token_uses: Option<u32>,

    /// Wait until N hosts have come, or all, as long as --timeout says
    #[arg(long, value_name = "N|all", value_parser = wait)]
    pub wait: Option<UpWait>,

    /// Stay in the foreground until interrupted
    #[arg(long)]
    pub foreground: bool,

    /// Be the process of a session that another `sheaf up` starts and waits for
    #[arg(long, hide = true)]
    pub announce: bool,
}

/// How many hosts are waited for.
#[derive(Debug, Clone, Copy)]
pub enum UpWait {
    All,
    For(u64),
}

fn wait(text: &str) -> Result<UpWait, String> {
    match text {
        "all" => Ok(UpWait::All),
        _ => text
            .parse()
            .ok()
            .filter(|count| *count > 0)
            .map(UpWait::For)
            .ok_or_else(|| "it is a number of hosts, or all".to_owned()),
    }
}

/// Starts the session.
pub fn run(args: &UpArgs, global: &GlobalArgs) -> Result<Exit> {
    if let (Some(name), Some(cluster)) = (&args.name, &global.cluster)
        && name != cluster
    {
        return Err(Stop::usage(format!(
            "up {name} and --cluster {cluster} are two clusters: say one of them"
        ))
        .into());
    }
    let mut global = global.clone();
    global.cluster = args.name.clone().or(global.cluster);
    let begun = Instant::now();
    let mut config = session::config_to_begin(&global)?;
    if !args.announce {
        Output::new(&global).announce(config.announcement.as_deref());
        Output::new(&global).note(config.note.as_deref())?;
        session::elsewhere::check_start(&config)?;
    }
    // What cannot be planned is refused here, not by a process in the background.
    let topology = config.topology()?;
    check_tokens(args, &config)?;
    let all = u64::from(topology.leaves_len());
    let wait = waits_for(args, &config, all)?;
    if args.announce || args.foreground {
        let token_file =
            args.tokens.as_ref().map(std::path::absolute).transpose().context("--tokens")?;
        let tokens = token_file.map(|path| TokenFile { path, uses: args.token_uses });
        let log = args.announce.then(|| session::log_of(&config)).transpose()?;
        if args.announce {
            sheaf_cli::log::begin(&global, log.clone())?;
            background::leave_directory(&mut config)?;
        }
        let listening = |config: &Config, ready: &ReadySession| match args.announce {
            true => background::announce(ready),
            false => told(config, ready, (wait, all), std::process::id(), &global).map(drop),
        };
        let staying = Staying { tokens: tokens.as_ref(), wait, foreground: !args.announce, log };
        background::run(config, &staying, listening)?;
        return Ok(Exit::Success);
    }
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.push("--announce".into());
    if let Some(timeout) = global.timeout {
        // What is left of it; the last that is said counts.
        let left = timeout.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        arguments.extend(["--timeout".into(), left.as_secs_f64().to_string().into()]);
    }
    let (pid, ready) = background::up(&config, &arguments)?;
    let exit = told(&config, &ready, (wait, all), pid, &global)?;
    if config.launch() == Launch::Attach && args.tokens.is_none() && !global.quiet && !global.json {
        let name = config.session_name();
        sheaf_cli::output::tell(format_args!(
            "hosts join by themselves, with a token: sheaf token {name}"
        ));
    }
    Ok(exit)
}

/// Refuses `--tokens` where no host joins, and where the file cannot be written.
fn check_tokens(args: &UpArgs, config: &Config) -> Result<()> {
    if args.tokens.is_some() && matches!(config.launch(), Launch::Embedded | Launch::Processes) {
        let text =
            format!("launch = {} is not for --tokens FILE: nobody can join it", config.launch());
        return Err(Stop::usage(text).into());
    }
    if let Some(path) = &args.tokens {
        if path.as_os_str() == "-" {
            let text = "--tokens is a file; sheaf token writes tokens to standard output";
            return Err(Stop::usage(text).into());
        }
        sheaf_cli::secret::check_place(path)?;
    }
    Ok(())
}

/// The number of hosts that `--wait` waits for, of `all`.
fn waits_for(args: &UpArgs, config: &Config, all: u64) -> Result<Option<u64>> {
    Ok(match args.wait {
        None => None,
        Some(UpWait::All) => Some(all),
        Some(UpWait::For(count)) if count > all => {
            let name = &config.cluster.name.value;
            return Err(
                Stop::usage(format!("--wait {count}: cluster {name} has {all} hosts")).into()
            );
        }
        Some(UpWait::For(count)) => Some(count),
    })
}

/// Says that a session runs, with how many of its hosts, and why not with the others; `wait`: how
/// many were waited for.
fn told(
    config: &Config,
    ready: &ReadySession,
    (wait, all): (Option<u64>, u64),
    pid: u32,
    global: &GlobalArgs,
) -> Result<Exit> {
    let (name, hosts) = (config.session_name(), ready.hosts);
    Output::new(global).note(ready.note.as_deref())?;
    // Of hosts that come by themselves none is missing yet.
    let wanted = wait.unwrap_or(if config.launch() == Launch::Attach { 0 } else { all });
    let exit = match hosts {
        _ if hosts >= wanted => Exit::Success,
        // The session is there all the same, and hosts may come late.
        0 => Exit::Unreachable,
        _ => Exit::Partial,
    };
    if global.json {
        let record = Started {
            session: name.to_owned(),
            running: hosts,
            of: all,
            pid: u64::from(pid),
            missing: ready.missing.clone(),
            silent: ready.silent.clone(),
            exit,
        };
        let mut stdout = sheaf_cli::output::stdout();
        Records::new(global).write(&mut stdout, &record)?;
        stdout.flush()?;
    } else if !global.quiet {
        sheaf_cli::output::tell(format_args!(
            "session {name}: {hosts} of {all} hosts, process {pid}"
        ));
        ready.reasons.lines().for_each(sheaf_cli::output::tell);
        // Of hosts that are still being started nothing is wrong so far.
        let has_failed = ready.reasons.contains(NOT_STARTED);
        if let Some(command) = command_for(config, &ready.missing).filter(|_| has_failed) {
            let file = global.config.as_ref().map(|file| format!(" --config {}", file.display()));
            let file = printable(&file.unwrap_or_default());
            sheaf_cli::output::tell(format_args!("to find out why: {command}{file}"));
        }
        if !is_joined_unasked(name) {
            sheaf_cli::output::tell(format_args!("use it with: --session {name}"));
        }
    }
    Ok(exit)
}

/// Whether commands without any option join the session of this name.
fn is_joined_unasked(name: &str) -> bool {
    // Where they have no configuration of their own, such as one of several clusters, they join
    // none.
    session::config(&GlobalArgs::default()).is_ok_and(|plain| plain.session_name() == name)
}
