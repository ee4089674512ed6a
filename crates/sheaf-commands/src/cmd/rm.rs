//! `sheaf rm`: files and directories removed.
use super::caution::Caution;
use super::per_path::{self, PathTask};
use anyhow::Result;
use clap::Args;
use sheaf_cli::addresses::Changed;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_core::Errno;
use sheaf_tools::edit::Edit;

/// What helps where a directory is named.
const DIRECTORY: (Errno, &str) = (Errno::ISDIR, "-r removes directories");

/// So many addresses are removed without a question of -I, as by GNU rm.
const ADDRESSES_UNASKED: usize = 3;

/// Remove files
#[derive(Args, Debug)]
#[command(after_help = "\
On a terminal, more than one host is asked about first; -y answers.

Examples:
  sheaf rm '@all:/var/tmp/job-*.log'
  sheaf rm -rf 'n[1-64]:/scratch/old'")]
pub struct RmArgs {
    #[command(flatten)]
    pub files: Changed,

    /// Remove directories and what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,

    /// Take files that do not exist as removed
    #[arg(short, long)]
    pub force: bool,

    /// Ask once before more than three addresses are removed, or directories with -r
    #[arg(short = 'I')]
    pub interactive_once: bool,

    /// Remove empty directories, too
    #[arg(short = 'd', long)]
    pub dir: bool,

    /// Remove mount points, too, and all that a host serves (/, /*, /*/*)
    #[arg(long, overrides_with = "preserve_root")]
    pub no_preserve_root: bool,

    /// Do not (this is the default)
    #[arg(long, hide = true)]
    pub preserve_root: bool,

    #[command(flatten)]
    pub caution: Caution,
}

/// Removes.
pub fn run(args: &RmArgs, global: &GlobalArgs) -> Result<Exit> {
    let edit = Edit::Remove {
        recursive: args.recursive,
        force: args.force,
        empty_dirs: args.dir,
        preserve_root: !args.no_preserve_root,
    };
    let kept = "all that a host serves, and mount points, are removed with --no-preserve-root only";
    let mut caution = args.caution;
    let is_much = args.recursive || args.files.addrs.len() > ADDRESSES_UNASKED;
    caution.interactive |= args.interactive_once && is_much && !caution.yes;
    let task = PathTask {
        command: "rm",
        addrs: &args.files.addrs,
        caution,
        asks: Some(if args.recursive { "rm -r" } else { "rm" }),
        words: (
            "removed",
            if args.recursive || args.dir { per_path::ALL } else { ("file", "files") },
        ),
        explained: if args.no_preserve_root {
            &[DIRECTORY]
        } else {
            &[DIRECTORY, (Errno::BUSY, kept)]
        },
    };
    per_path::edit(global, &task, |_| Ok(edit))
}
