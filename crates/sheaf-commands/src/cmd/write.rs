//! `sheaf write`: the same bytes into the same file of many hosts.
use super::caution::{Caution, Question};
use super::per_path::{done_line, explained, in_part, print_done, told_cuts};
use anyhow::Result;
use clap::Args;
use sheaf_cli::addresses::{Changed, resolve};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Changes, Printer};
use sheaf_cli::session::{self, Ended, Opening};
use sheaf_cli::{mode, size, stdio};
use sheaf_core::{Errno, RangeSet};
use sheaf_session::address::Purpose;
use sheaf_tools::ArgumentOrder;
use sheaf_tools::edit::{self, WriteOptions, WriteWay, Written};
use sheaf_tools::entry::Merged;
use std::ffi::OsString;
use std::io::{Cursor, Read};
use std::os::unix::ffi::OsStrExt;

/// Write standard input, or --data, into files
#[derive(Args, Debug)]
#[command(after_help = "\
The file gets these bytes and no others, as with > in a shell, but in one
moment: they are written beside it, verified, and renamed. Mode and owner stay,
unless a user writes over a file of another user or group: that is the user's
own then, and --in-place writes into it instead. Devices, pipes and files of
/proc and /sys are written directly. The file must exist unless --create is
given. With --append, --offset and --in-place, a host where the file is
standard input itself refuses.

Examples:
  echo 1 | sheaf write @all:/proc/sys/net/ipv4/ip_forward
  echo 'n9 is retired' | sheaf write --create --append '@web:/etc/motd'")]
pub struct WriteArgs {
    #[command(flatten)]
    pub files: Changed,

    /// Write this in place of standard input
    #[arg(long, value_name = "TEXT")]
    pub data: Option<OsString>,

    /// Write at the end of each file
    #[arg(short, long, conflicts_with_all = ["offset", "in_place"])]
    pub append: bool,

    /// Write over what each file has from this many bytes on
    #[arg(long, value_name = "BYTES", value_parser = size::bytes, conflicts_with = "in_place")]
    pub offset: Option<u64>,

    /// Empty the file itself and write into it, so that its other names
    /// and those who have it open see the change
    #[arg(long)]
    pub in_place: bool,

    /// Create files that do not exist
    #[arg(long)]
    pub create: bool,

    /// Create, and write nothing if the file exists anywhere
    #[arg(long)]
    pub excl: bool,

    /// Mode of the files created, in octal, as far as the session's umask leaves
    /// it
    #[arg(long, value_name = "MODE", value_parser = mode::octal, default_value = "0644")]
    pub mode: u32,

    #[command(flatten)]
    pub caution: Caution,
}

impl WriteArgs {
    /// What may help against an error.
    fn advice(&self) -> Vec<(Errno, &'static str)> {
        const MISSING: (Errno, &str) = (Errno::NOENT, "--create makes it");
        const OPEN: (Errno, &str) = (
            Errno::MFILE,
            "all files of a write are open at once: raise ulimit -n of its server, or write fewer \
             at a time",
        );
        const NONE: (Errno, &str) = (Errno::CANCELED, "--excl writes all files or none");
        const BESIDE: (Errno, &str) = (Errno::ACCES, "--in-place needs no right to its directory");
        const MOUNTED: (Errno, &str) = (
            Errno::BUSY,
            "it is a mount point, which cannot be replaced: --in-place writes into it",
        );
        const INPUT: (Errno, &str) =
            (Errno::SAMEFILE, "this machine is the host, and the file is standard input");
        match self.options() {
            WriteOptions { exclusive: true, .. } => vec![OPEN, NONE],
            WriteOptions { create: false, way: WriteWay::Replace, .. } => {
                vec![MISSING, BESIDE, MOUNTED, OPEN]
            }
            WriteOptions { create: false, .. } => vec![MISSING, OPEN, INPUT],
            // Where --create makes it, that needs a right to the directory, whichever way it is written.
            WriteOptions { way: WriteWay::Replace, .. } => vec![MOUNTED, OPEN],
            WriteOptions { .. } => vec![OPEN, INPUT],
        }
    }

    /// What is said of a file that got so many bytes.
    fn cut(&self, bytes: u64, written: &Written) -> String {
        let gone = if self.in_place { "; the old content is gone" } else { "" };
        // Of a source that was not read to its end it is not known how long it is.
        let of = if written.is_cut { String::new() } else { format!(" of {}", written.bytes) };
        format!("{bytes}{of} bytes were written{gone}")
    }

    fn options(&self) -> WriteOptions {
        let way = match self.offset {
            Some(offset) => WriteWay::At(offset),
            None if self.append => WriteWay::Append,
            None if self.in_place => WriteWay::InPlace,
            None => WriteWay::Replace,
        };
        // Only standard input can be a file of a host.
        let source = if self.data.is_none() { stdio::input_identity() } else { None };
        WriteOptions { way, create: self.create, exclusive: self.excl, mode: self.mode, source }
    }
}

/// Writes.
pub fn run(args: &WriteArgs, global: &GlobalArgs) -> Result<Exit> {
    let opening = Opening::to_change(global)?;
    let targets = resolve(&args.files.addrs, opening.config(), Purpose::Change("write"))?;
    let question =
        Question { what: "write", by_itself: false, stdin_is_taken: args.data.is_none() };
    if !args.caution.ask(&question, &targets, opening.config())? {
        return super::caution::refused(global);
    }
    let edit = args.caution.options(global.verbose > 0);
    opening.run(async |session, config, output| {
        let source: Box<dyn Read + Send> = match &args.data {
            Some(data) => Box::new(Cursor::new(data.as_bytes().to_vec())),
            None => Box::new(stdio::input()?),
        };
        let mut printer = Printer::new(output, config.hosts()?);
        let order = ArgumentOrder::new(&targets);
        let mut sink = |merged: &Merged| print_done(&mut printer, merged, &order);
        let options = args.options();
        let written =
            edit::write(session.client(), &targets, &options, edit, source, &mut sink).await;
        let mut written = written.map_err(sheaf_cli::addresses::stop)?;
        let mut leaves = RangeSet::new();
        written.changed.iter().for_each(|(_, hosts)| leaves.union_with(hosts));
        let files = written.changed.iter().map(|(files, hosts)| files.saturating_mul(hosts.len()));
        let files = files.fold(0, u64::saturating_add);
        if args.excl && edit.verbose && !edit.dry_run && !leaves.is_empty() {
            let text = format!("created with {} bytes", written.bytes).into_bytes();
            for target in &targets {
                let leaves = target.members.intersection(&leaves);
                printer.flat(&done_line(&printer, target.path.as_bytes(), &leaves, &text))?;
            }
            printer.flush()?;
        }
        let nouns = ("file", "files");
        let mut outcome = std::mem::take(&mut written.outcome);
        let mut extra = told_cuts(&mut outcome, &written.cut, |bytes| args.cut(bytes, &written));
        let (in_part, unfinished, is_dry) =
            (in_part(&written.cut), written.unfinished.clone(), edit.dry_run);
        let changes = Changes {
            done: "written",
            way: "on",
            nouns,
            files,
            leaves,
            in_part,
            unfinished,
            is_dry,
        };
        extra.extend(explained(&mut outcome, &args.advice()));
        let ended = Ended::new(&targets, &outcome);
        session::finish(
            session,
            config,
            output,
            &Ended { extra: &extra, changes: Some(changes), ..ended },
        )
    })
}
