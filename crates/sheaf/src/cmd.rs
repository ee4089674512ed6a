//! The commands: one file each, all of them listed and dispatched here.
pub mod archive;
pub mod cat;
mod caution;
pub mod chmod;
pub mod chown;
pub mod completions;
pub mod config;
pub mod cp;
pub mod demo;
pub mod down;
pub mod du;
pub mod grep;
pub mod help;
pub mod hosts;
pub mod ln;
pub mod ls;
pub mod man;
pub mod mkdir;
pub mod mount;
mod per_path;
pub mod read;
pub mod rm;
pub mod serve;
pub mod sha;
pub mod stat;
pub mod status;
pub mod token;
pub mod trace;
pub mod tree;
pub mod truncate;
pub mod up;
pub mod write;

use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::Failure;
use crate::session;
use anyhow::Result;
use clap::{Args, Subcommand};
use sheaf_core::Errno;
use sheaf_group::{GroupError, Outcome};
use sheaf_session::Config;
use sheaf_session::address::{Address, Purpose};
use sheaf_tools::grep::GrepError;
use sheaf_tools::{Target, ToolError};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;

/// Every command of `sheaf`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Grep(grep::GrepArgs),
    Cat(cat::CatArgs),
    Ls(ls::LsArgs),
    Stat(stat::StatArgs),
    Du(du::DuArgs),
    Sha(sha::ShaArgs),
    Read(read::ReadArgs),
    Cp(cp::CpArgs),
    Write(write::WriteArgs),
    Chmod(chmod::ChmodArgs),
    Chown(chown::ChownArgs),
    Truncate(truncate::TruncateArgs),
    Rm(rm::RmArgs),
    Mkdir(mkdir::MkdirArgs),
    Ln(ln::LnArgs),
    Hosts(hosts::HostsArgs),
    Config(config::ConfigArgs),
    Up(up::UpArgs),
    Down(down::DownArgs),
    Status(status::StatusArgs),
    Token(token::TokenArgs),
    Tree(tree::TreeArgs),
    Trace(trace::TraceArgs),
    Archive(archive::ArchiveArgs),
    Mount(mount::MountArgs),
    Umount(mount::UmountArgs),
    Serve(serve::ServeArgs),
    Demo(demo::DemoArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    Help(help::HelpArgs),
}

impl Command {
    /// Whether a program of the user's is run, which has what this one was started with.
    #[must_use]
    pub fn runs_a_program(&self) -> bool {
        matches!(self, Self::Trace(args) if args.runs_a_program())
    }
}

/// The commands as the help groups them.
pub const HEADINGS: &[(&str, &[&str])] = &[
    ("Read files of many hosts", &["grep", "cat", "ls", "stat", "du", "sha", "read"]),
    (
        "Change files of many hosts",
        &["cp", "write", "chmod", "chown", "truncate", "rm", "mkdir", "ln"],
    ),
    (
        "Hosts, sessions and the tree",
        &["hosts", "config", "up", "down", "status", "token", "tree", "serve"],
    ),
    ("Views, traces, archives", &["mount", "umount", "trace", "archive"]),
    ("Sheaf itself", &["demo", "completions", "man", "help"]),
];

/// Commands that nobody is led to who mistyped another.
pub const DESTROYERS: &[&str] = &["cp", "write", "chmod", "chown", "truncate", "rm", "ln", "down"];

/// Runs the command of the command line, which has begun with this.
pub fn run(command: &Command, global: &GlobalArgs) -> Result<Exit> {
    // What is mounted stays; its requests have the time that is said.
    if !matches!(command, Command::Mount(_)) {
        session::deadline::watch(global.timeout);
    }
    match command {
        Command::Grep(args) => grep::run(args, global),
        Command::Cat(args) => cat::run(args, global),
        Command::Ls(args) => ls::run(args, global),
        Command::Stat(args) => stat::run(args, global),
        Command::Du(args) => du::run(args, global),
        Command::Sha(args) => sha::run(args, global),
        Command::Read(args) => read::run(args, global),
        Command::Cp(args) => cp::run(args, global),
        Command::Write(args) => write::run(args, global),
        Command::Chmod(args) => chmod::run(args, global),
        Command::Chown(args) => chown::run(args, global),
        Command::Truncate(args) => truncate::run(args, global),
        Command::Rm(args) => rm::run(args, global),
        Command::Mkdir(args) => mkdir::run(args, global),
        Command::Ln(args) => ln::run(args, global),
        Command::Hosts(args) => hosts::run(args, global),
        Command::Config(args) => config::run(args, global),
        Command::Up(args) => up::run(args, global),
        Command::Down(args) => down::run(args, global),
        Command::Status(args) => status::run(args, global),
        Command::Token(args) => token::run(args, global),
        Command::Tree(args) => tree::run(args, global),
        Command::Trace(args) => trace::run(args, global),
        Command::Archive(args) => archive::run(args, global),
        Command::Mount(args) => mount::mount(args, global),
        Command::Umount(args) => mount::umount(args, global),
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => demo::run(args, global),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args, global),
        Command::Help(args) => help::run(args),
    }
}

/// The option that says which hosts to work on, if there is one.
fn option_for_hosts(global: &GlobalArgs) -> Option<&'static str> {
    let options = [
        ("-w", !global.on_hosts.is_empty()),
        ("-x", !global.exclude_hosts.is_empty()),
        ("-C", global.cluster.is_some()),
        ("--embedded", global.embedded.is_some()),
        ("--processes", global.processes.is_some()),
        ("--session", global.session.is_some()),
        ("--launch", global.launch.is_some()),
        ("--tree", global.tree.is_some()),
        ("--inner-hosts", global.inner_hosts.is_some()),
        ("--link", global.link.is_some()),
        ("--export", global.export.is_some()),
        ("-l", global.user.is_some()),
        ("--sudo", global.sudo),
    ];
    options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

/// The files a command reads.
#[derive(Args, Debug)]
pub struct Addresses {
    /// Files: HOSTSET:PATH, or PATH alone for every host
    #[arg(value_name = "ADDR", required = true)]
    pub addrs: Vec<OsString>,
}

impl Addresses {
    /// These addresses as leaves and paths of the cluster.
    pub fn resolve(&self, config: &Config) -> Result<Vec<Target>> {
        resolve(&self.addrs, config, Purpose::Read)
    }
}

/// The files a command changes.
#[derive(Args, Debug)]
pub struct Changed {
    /// Files: HOSTSET:PATH, or :PATH for every host
    #[arg(value_name = "ADDR", required = true)]
    pub addrs: Vec<OsString>,
}

/// Addresses as leaves and paths of the cluster.
fn resolve(addrs: &[OsString], config: &Config, purpose: Purpose) -> Result<Vec<Target>> {
    addrs.iter().map(|addr| Ok(Address::parse(addr)?.resolve(config, purpose)?)).collect()
}

/// A path on each host, without hosts: a name that nothing in is a wildcard.
fn on_hosts(path: &OsStr, config: &Config) -> Result<OsString> {
    let address = Address { hosts: None, path: path.into() };
    Ok(address.path_on_hosts(config, Purpose::Name(""))?.into_os_string())
}

/// Takes failures that need more words than those of their errno out of `outcome`.
fn reasons(outcome: &mut Outcome, reason: impl Fn(Errno) -> Option<String>) -> Vec<Failure> {
    let mut told = Vec::new();
    outcome.errors.retain(|error| {
        let Some(detail) = reason(error.errno) else { return true };
        told.push(Failure::of(error, Some(detail)));
        false
    });
    told
}

/// How a tool's failure as a whole ends the program.
fn stop(error: ToolError) -> anyhow::Error {
    match error {
        ToolError::Usage(text) => Stop::usage(text).into(),
        ToolError::Grep(error) => pattern_error(&error),
        ToolError::Group(differ @ GroupError::Differ { .. }) => {
            Stop::Unmatched(format!("{differ}; sheaf read -a classes or sheaf sha shows them"))
                .into()
        }
        ToolError::Sink(error) => error.into(),
        other => other.into(),
    }
}

fn pattern_error(error: &GrepError) -> anyhow::Error {
    // The message tells the position; on a terminal it is shown, too.
    let text = match error.caret().filter(|_| std::io::stderr().is_terminal()) {
        Some(caret) => format!("{error}\n{caret}"),
        None => error.to_string(),
    };
    Stop::usage(text).into()
}
