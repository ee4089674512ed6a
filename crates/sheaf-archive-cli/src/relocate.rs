//! `sheaf archive cp` and `mv`: other names for what is archived, in the same archive; and copies of
//! files of this machine.
use super::place::{self, ArchivedName, NamedPlace};
use super::{counted, hosts, local};
use anyhow::{Context, Result};
use clap::Args;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, RelocateKeep, RelocateReport, Relocation,
    copy_tree, move_tree, relocate_files,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::ArchiveRelocated;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

/// Copy what is archived, or files of this machine or of hosts
///
/// Contents that are archived are not stored again, whatever their size. Modes,
/// owners and times are those of what is copied. Files of this machine are
/// copied by many at once, with the rules of cp: a new file is the copier's own,
/// unless -p or -a is given. No symbolic link below a name is followed, and one
/// in the way of a file is replaced. With HOSTSET:PATH on both sides each host
/// copies its own files; on one side, it is sheaf cp.
#[derive(Args, Debug)]
#[command(
    override_usage = "sheaf archive cp [OPTIONS] <STORE::PATH>... <STORE::PATH>\n       \
                      sheaf archive cp [OPTIONS] <PATH|HOSTSET:PATH>... <PATH|HOSTSET:PATH>",
    after_help = "\
Examples:
  sheaf archive cp /backup::/home/ada/notes /backup::/home/bob
  sheaf archive cp -r /backup::/home/ada /backup::/home/ada.2026
  sheaf archive cp -a /srv/results /scratch"
)]
pub struct ArchiveCpArgs {
    #[command(flatten)]
    pub names: RelocateArgs,

    /// Copy directories with all that is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,

    /// Copy directories, and keep all of files of this machine: as -p, with extended attributes
    /// and names that are of one file
    #[arg(short, long)]
    pub archive: bool,

    /// Keep modes, access control lists, owners and times of files of this machine
    #[arg(short, long)]
    pub preserve: bool,

    /// Copy symbolic links that are named as links, also without -r
    #[arg(short = 'P', long)]
    pub no_dereference: bool,

    /// As -P, and names that are of one file are so in the copy
    #[arg(short = 'd')]
    pub links: bool,

    /// Replace a file of this machine that cannot be written into
    #[arg(short, long)]
    pub force: bool,

    /// Take each name for a path of this machine, even with `:` or `::` in it
    #[arg(long)]
    pub local: bool,
}

/// Give what is archived another name
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive mv /backup::/home/ada/draft /backup::/home/ada/letter
  sheaf archive mv '/backup::/home/*.old' /backup::/old")]
pub struct ArchiveMvArgs {
    #[command(flatten)]
    pub names: RelocateArgs,

    /// Replace what is there, as without it
    #[arg(short, long, overrides_with = "no_clobber")]
    pub force: bool,
}

/// What goes where.
#[derive(Args, Debug)]
pub struct RelocateArgs {
    /// Files and directories; the last is the directory they go to, or a new name
    #[arg(value_name = "STORE::PATH", required = true, num_args = 1..)]
    pub names: Vec<OsString>,

    /// Leave what is there as it is
    #[arg(short, long)]
    pub no_clobber: bool,

    /// Leave what is there and is not older
    #[arg(short, long)]
    pub update: bool,

    /// The last is the new name, also where it is a directory
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,

    /// Where all that is named goes: a directory
    #[arg(short, long, value_name = "DIR", conflicts_with = "no_target_directory")]
    pub target_directory: Option<OsString>,

    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

impl RelocateArgs {
    /// What goes somewhere, with the target behind it.
    pub fn all(&self) -> Result<Vec<OsString>> {
        if let [name] = &self.names[..]
            && self.target_directory.is_none()
        {
            let name = printable(&name.to_string_lossy());
            let text = format!("{name}: where to? The target comes last, or is named by -t");
            return Err(Stop::usage(text).into());
        }
        Ok(self.names.iter().chain(&self.target_directory).cloned().collect())
    }

    fn keep(&self) -> RelocateKeep {
        match self {
            Self { no_clobber: true, .. } => RelocateKeep::Present,
            Self { update: true, .. } => RelocateKeep::Newer,
            _ => RelocateKeep::Nothing,
        }
    }
}

/// Copies.
pub fn cp(args: &ArchiveCpArgs, global: &GlobalArgs) -> Result<Exit> {
    let names = args.names.all()?;
    let places = NamedPlace::parse_all(&names, args.local)?;
    let on_hosts = names.iter().filter(|name| is_on_hosts(args, name)).count();
    let is_archived = |place: &NamedPlace| matches!(place, NamedPlace::Archived(_));
    if on_hosts == places.len() {
        return hosts::ask::copy(args, global);
    }
    if on_hosts > 0 && !places.iter().any(is_archived) {
        return hosts::tools::cp(args, global);
    }
    let locals: Vec<_> = places.iter().filter_map(NamedPlace::local).collect();
    if locals.len() == places.len() {
        return local::copy::run(&locals, args, global);
    }
    if !locals.is_empty() {
        let text =
            "files of this machine or of hosts go into an archive by store, and out of it by get";
        return Err(Stop::usage(text).into());
    }
    RelocateTask {
        args: &args.names,
        how: Relocation::Copy,
        recursive: args.recursive || args.archive,
        says: says(&args.names, global),
    }
    .run(global)
}

/// Moves.
pub fn mv(args: &ArchiveMvArgs, global: &GlobalArgs) -> Result<Exit> {
    RelocateTask {
        args: &args.names,
        how: Relocation::Move,
        recursive: true,
        says: says(&args.names, global),
    }
    .run(global)
}

fn is_on_hosts(args: &ArchiveCpArgs, name: &OsStr) -> bool {
    !args.local && hosts::is_on_hosts(name)
}

impl ArchiveCpArgs {
    /// Whether some of the files are on hosts.
    pub fn is_on_hosts(&self) -> bool {
        let mut names = self.names.names.iter().chain(&self.names.target_directory);
        names.any(|name| is_on_hosts(self, name))
    }
}

struct RelocateTask<'a> {
    args: &'a RelocateArgs,
    how: Relocation,
    recursive: bool,
    /// Each name is told.
    says: bool,
}

fn says(args: &RelocateArgs, global: &GlobalArgs) -> bool {
    args.dry_run || global.verbose > 0
}

/// Files of one directory that go to one directory, by their names there and here.
struct Together {
    from: ArchivePath,
    to: ArchivePath,
    names: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Default)]
struct RelocateDone {
    report: RelocateReport,
    failed: u64,
}

impl RelocateDone {
    fn failed(&mut self, count: u64, error: &ArchiveError) {
        self.failed += count;
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    }

    fn add(&mut self, done: Result<RelocateReport, ArchiveError>, count: u64) {
        match done {
            Ok(report) => self.report += report,
            Err(error) => self.failed(count, &error),
        }
    }
}

impl RelocateTask<'_> {
    fn run(&self, global: &GlobalArgs) -> Result<Exit> {
        let names = self.args.all()?;
        let (to, sources) = names.split_last().context("there are two names")?;
        let to = ArchivedName::parse_literal(to)?;
        for source in sources {
            ArchivedName::refuse_contents(source, "copied or moved")?;
        }
        let sources: Result<Vec<_>> =
            sources.iter().map(|name| ArchivedName::parse(name)).collect();
        let sources = sources?;
        if sources.iter().any(|source| source.store != to.store) {
            let text = "both names are of one archive: get and store take files to another one";
            return Err(Stop::usage(text).into());
        }
        let archive = place::open(&to.store, false)?;
        let is_directory = archive.catalog().directory(&to.path)?.is_some();
        let mut paths = Vec::new();
        for source in &sources {
            paths.extend(source.paths(&archive)?);
        }
        let goes_into = is_directory && !self.args.no_target_directory;
        let must_go_into = self.args.target_directory.is_some();
        if !goes_into && (paths.len() > 1 || must_go_into) {
            let why = if must_go_into { "" } else { ", and several go there" };
            let text = format!("{}: is no directory{why}", to.path);
            return Err(Stop::usage(printable(&text).to_string()).into());
        }
        let done = self.all(&archive, paths, &to.path, goes_into)?;
        self.tell(&done, global)?;
        Ok(if done.failed > 0 { Exit::Partial } else { Exit::Success })
    }

    fn all(
        &self,
        archive: &Archive,
        paths: Vec<ArchivePath>,
        to: &ArchivePath,
        goes_into: bool,
    ) -> Result<RelocateDone> {
        let mut done = RelocateDone::default();
        let mut together: Option<Together> = None;
        // What was told to become each name: a second one would take its place.
        let mut targets = HashSet::new();
        for path in paths {
            let Some(is) = archive.look_up(&path)? else {
                done.failed(1, &ArchiveError::NotArchived { path });
                continue;
            };
            let Some((from, name)) = path.split() else {
                let (path, to) = (path.clone(), to.clone());
                done.failed(1, &ArchiveError::IntoItself { path, to });
                continue;
            };
            let target = if goes_into { to.join(name) } else { to.clone() };
            let why = if target == path {
                Some(format!("{path}: is the same file"))
            } else if !targets.insert(target.clone()) {
                Some(format!("{path}: {target} was made just now of another source"))
            } else {
                None
            };
            if let Some(why) = why {
                done.failed += 1;
                output::tell(format_args!("sheaf: {}", printable(&why)));
                continue;
            }
            if self.says {
                output::tell(format_args!("sheaf: {}", printable(&format!("{path} -> {target}"))));
            }
            if matches!(is, ArchivedFile::Directory(_)) {
                self.files(archive, together.take(), &mut done);
                self.tree(archive, &path, &target, &mut done);
                continue;
            }
            let Some((to, new)) = target.split() else { continue };
            let is_same = |with: &Together| with.from == from && with.to == to;
            if !together.as_ref().is_some_and(is_same) {
                self.files(archive, together.take(), &mut done);
            }
            let with =
                together.get_or_insert(Together { from: from.clone(), to, names: Vec::new() });
            with.names.push((name.to_vec(), new.to_vec()));
        }
        self.files(archive, together, &mut done);
        Ok(done)
    }

    fn tree(
        &self,
        archive: &Archive,
        from: &ArchivePath,
        to: &ArchivePath,
        done: &mut RelocateDone,
    ) {
        if !self.recursive {
            done.failed += 1;
            let text = format!("{from}: is a directory: -r copies it");
            output::tell(format_args!("sheaf: {}", printable(&text)));
            return;
        }
        if self.args.dry_run {
            done.report.trees += 1;
            return;
        }
        done.add(
            match self.how {
                Relocation::Copy => copy_tree(archive, from, to, self.args.keep()),
                Relocation::Move => move_tree(archive, from, to),
            },
            1,
        );
    }

    fn files(&self, archive: &Archive, together: Option<Together>, done: &mut RelocateDone) {
        let Some(Together { from, to, names }) = together else { return };
        let count = names.len() as u64;
        if self.args.dry_run {
            done.report.files += count;
            return;
        }
        let keep = self.args.keep();
        done.add(relocate_files(archive, (&from, &to), &names, self.how, keep), count);
    }

    fn tell(&self, done: &RelocateDone, global: &GlobalArgs) -> Result<()> {
        let report = done.report;
        if global.json {
            let record = ArchiveRelocated {
                files: report.files,
                trees: report.trees,
                skipped: report.skipped,
                failed: done.failed,
                dry_run: self.args.dry_run,
            };
            return Ok(Output::new(global).records.write(&mut output::stdout(), &record)?);
        }
        if global.quiet {
            return Ok(());
        }
        let verb = match (self.how, self.args.dry_run) {
            (Relocation::Copy, false) => "copied",
            (Relocation::Move, false) => "moved",
            (Relocation::Copy, true) => "would copy",
            (Relocation::Move, true) => "would move",
        };
        let files = counted(report.files, "file", "files");
        let trees = counted(report.trees, "tree", "trees");
        let skipped = if report.skipped > 0 {
            format!(", {} kept as they were", report.skipped)
        } else {
            String::new()
        };
        output::tell(format_args!("sheaf: {verb} {files} and {trees}{skipped}"));
        Ok(())
    }
}
