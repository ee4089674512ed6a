//! The commands: one file each, all of them listed and dispatched here.
pub mod cat;
mod caution;
pub mod chmod;
pub mod chown;
pub mod clean;
pub mod completions;
pub mod config;
pub mod cp;
pub mod demo;
pub mod doctor;
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
pub mod tree;
pub mod truncate;
pub mod up;
pub mod write;

use anyhow::Result;
use clap::{Args, Subcommand};
use sheaf_cli::companion::{self, Companion};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::session;
use std::ffi::OsString;

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
    /// Record the I/O of programs, and tell what they did
    #[command(disable_help_flag = true)]
    Trace(CompanionArgs),
    /// Store trees of files, list what is stored and get it back
    #[command(disable_help_flag = true)]
    Archive(CompanionArgs),
    Mount(mount::MountArgs),
    Umount(mount::UmountArgs),
    Serve(serve::ServeArgs),
    Doctor(doctor::DoctorArgs),
    Clean(clean::CleanArgs),
    Demo(demo::DemoArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    Help(help::HelpArgs),
}

impl Command {
    /// The program beside `sheaf` that does this, if it is not done here.
    #[must_use]
    pub fn companion(&self) -> Option<&'static Companion> {
        match self {
            Self::Trace(_) => Some(&companion::TRACE),
            Self::Archive(_) => Some(&companion::ARCHIVE),
            _ => None,
        }
    }
}

/// The command line of a companion, which reads it itself.
#[derive(Args, Debug)]
pub struct CompanionArgs {
    /// Its words
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0.., hide = true)]
    words: Vec<OsString>,
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
    ("Sheaf itself", &["doctor", "clean", "demo", "completions", "man", "help"]),
];

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
        Command::Trace(_) | Command::Archive(_) => {
            unreachable!("companions run in place of this process")
        }
        Command::Mount(args) => mount::mount(args, global),
        Command::Umount(args) => mount::umount(args, global),
        Command::Serve(args) => serve::run(args),
        Command::Doctor(args) => doctor::run(args, global),
        Command::Clean(args) => clean::run(args, global),
        Command::Demo(args) => demo::run(args, global),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args, global),
        Command::Help(args) => help::run(args),
    }
}
