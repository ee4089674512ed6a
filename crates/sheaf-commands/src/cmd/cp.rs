//! `sheaf cp`: files and directories to hosts, and back.
mod progress;
mod run;
mod way;

pub use run::run;

use clap::Args;
use sheaf_cli::{mode, size};
use sheaf_tools::cp::{CopyMode, CopyOptions};
use std::ffi::OsString;

/// Copy files to hosts, or from hosts to here
///
/// A place on hosts is written HOSTSET:PATH, or @all:PATH for every host;
/// anything else is a path of this machine, and - is standard input. SRC may be
/// :PATH for every host, DEST may not. From hosts, each host's files come into
/// a directory of its own: DEST/HOST/…; only with -T DEST is the file.
/// To hosts, %h in SRC is each host's name, so that what came from them goes
/// back; a host whose SRC is not here fails, and the others get theirs. Links
/// that lead out of the directory named by %h are not followed without -L, as
/// the host may have laid them. (%%h is a name with %h in it.)
/// Patterns are expanded on hosts in SRC and not in DEST.
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    override_usage = "sheaf cp [OPTIONS] <SRC>... <DEST>",
    after_help = "\
What copies keep, besides contents and holes:
  (nothing)  the mode, less the host's umask, of files that are new; a file
             that is replaced hands on its mode, owner and lists; a directory
             that exists keeps its mode and owner (also with --chmod, --chown)
  -r         symbolic links as links, named pipes and devices as such (devices
             of hosts with -p alone, else EPERM); a file with two names becomes
             two files; sockets fail (EOPNOTSUPP)
  -p         mode, owner, group and times (from hosts not that of the last
             access); what a user may not give away stays the user's own,
             without set-id bits. Without -A, the group of a file with an
             access list gets what the list gives the file's group
  -a         all of that, files with several names as one file, and the
             attributes and lists that the other file system takes (with -X
             or -A it fails where it does not take them)
             In a directory, a link, pipe or device with the name of a file is
             replaced; without -a the file is written into it
A user's copy over a file of somebody else makes it the user's own;
--no-atomic writes into it instead. Nothing is copied if two sources would
get one name. A host on which --no-atomic would write into the source itself,
or whose directory would be copied into itself, refuses. A file that changes while it is read is read twice at most.

Examples:
  sheaf cp -a site.conf @all:/etc/app/
  sheaf cp --chmod 0644 motd 'n[1-64]:/etc/motd'
  sheaf cp 'n[1-64]:/var/log/boot.log' logs/
  sheaf cp -p logs/%h/boot.log 'n[1-64]:/var/log/'
  tar c tree | sheaf cp - @all:/tmp/tree.tar"
)]
pub struct CpArgs {
    /// What to copy, and where to
    // One list, so that options may stand between them.
    #[arg(value_name = "PLACE", required = true)]
    pub places: Vec<OsString>,

    /// Copy all that can be kept: -r -p -A -X, links and hard links as such
    #[arg(short, long)]
    pub archive: bool,

    /// Copy directories and what is in them, symbolic links as links
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,

    /// Keep mode, owner, group and times
    #[arg(short, long)]
    pub preserve: bool,

    /// Copy what symbolic links point to
    #[arg(short = 'L', long)]
    pub dereference: bool,

    /// Copy symbolic links that are named as links, also without -r
    #[arg(short = 'P', long, conflicts_with = "dereference")]
    pub no_dereference: bool,

    /// DEST is the new name, even if it is a directory; from hosts, of
    /// one path of one host
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,

    /// Keep extended attributes
    #[arg(short = 'X', long)]
    pub xattrs: bool,

    /// Keep access control lists
    #[arg(short = 'A', long)]
    pub acls: bool,

    /// Write long runs of zeros as holes
    #[arg(short = 'S', long)]
    pub sparse: bool,

    /// Give the copies this mode, octal or symbolic; a part with D is for
    /// directories, one with F for files (D755,F644). After a part without a
    /// letter, users who may read a directory may also enter it
    #[arg(long, value_name = "MODE", value_parser = mode::copies)]
    pub chmod: Option<CopyMode>,

    /// Give the copies this owner and group
    #[arg(long, value_name = "OWNER[:GROUP]", value_parser = sheaf_cli::arguments::owner)]
    pub chown: Option<String>,

    /// Write beside, verify, then rename (this is the default)
    #[arg(long, overrides_with = "no_atomic")]
    pub atomic: bool,

    /// Write over the old file in place
    #[arg(long, overrides_with = "atomic")]
    pub no_atomic: bool,

    /// Do not wait until the copies are on disk
    #[arg(long = "async")]
    pub no_sync: bool,

    /// Send at most this many bytes each second (K, M, G understood)
    #[arg(long, value_name = "RATE", value_parser = size::bytes)]
    pub bwlimit: Option<u64>,

    /// Say what would be copied, and copy nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Show progress, also when standard error is no terminal
    #[arg(long)]
    pub progress: bool,
}

impl CpArgs {
    /// How to copy.
    fn options(&self) -> CopyOptions {
        CopyOptions {
            recursive: self.recursive || self.archive,
            preserve: self.preserve || self.archive,
            dereference: self.dereference,
            no_dereference: self.no_dereference || (self.archive && !self.dereference),
            xattrs: self.xattrs || self.archive,
            acls: self.acls || self.archive,
            // -a keeps what can be kept; who names -X or -A wants to hear of it.
            lenient: self.archive && !self.xattrs && !self.acls,
            hard_links: self.archive,
            sparse: self.sparse,
            chmod: self.chmod.clone(),
            chown: self.chown.clone(),
            in_place: self.no_atomic,
            sync: !self.no_sync,
            exact_name: self.no_target_directory,
            dry_run: self.dry_run,
            rate_max: self.bwlimit,
        }
    }
}
