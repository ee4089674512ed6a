//! `sheaf ls`: directories listed, equal listings printed once.
use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::{Args, ValueEnum};

/// List directories and files, equal listings once
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf ls -l /etc/ssh
  sheaf ls -1tr 'n[1-64]:/var/spool/*'")]
pub struct LsArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Long format: mode, links, owner, group, size, time
    #[arg(short)]
    pub long: bool,

    /// Show entries whose name starts with a dot, too
    #[arg(short, long)]
    pub all: bool,

    /// List directories below, too
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// List directories themselves, not what is in them
    #[arg(short, long)]
    pub directory: bool,

    /// Sizes as 4.0K, 234M, 2.1G
    #[arg(short = 'h', long)]
    pub human_readable: bool,

    /// Sort by time, newest first
    #[arg(short = 't', overrides_with = "by_size")]
    pub by_time: bool,

    /// Sort by size, largest first
    #[arg(short = 'S', overrides_with = "by_time")]
    pub by_size: bool,

    /// Sort the other way round
    #[arg(short, long)]
    pub reverse: bool,

    /// One entry on each line
    #[arg(short = '1')]
    pub one_per_line: bool,

    /// How -l shows times: full-iso, long-iso, iso, locale
    #[arg(long, value_name = "STYLE", default_value = "long-iso", hide_possible_values = true)]
    pub time_style: TimeStyle,
}

/// How times are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeStyle {
    /// `2026-01-31 18:04:05.000000000 +0000`.
    FullIso,
    /// `2026-01-31 18:04`.
    LongIso,
    /// `01-31 18:04`, or the date alone when long ago.
    Iso,
    /// `Jan 31 18:04`, or with the year when long ago.
    Locale,
}

/// Lists the files.
pub fn run(args: &LsArgs, global: &GlobalArgs) -> Result<Exit> {
    args.files.resolve(&crate::config::Config::load(global)?)?;
    super::needs_a_tree("ls")
}
