//! `sheaf clean`: the removal of what Sheaf left, on this machine or on hosts.
use super::caution::{ask_on_terminal, is_on_terminal};
use anyhow::Result;
use clap::Args;
use sheaf_cli::addresses::stop;
use sheaf_cli::exit::Exit;
use sheaf_cli::leftovers::hosts::{CleanRequest, HostLeftover, remove_on_hosts};
use sheaf_cli::leftovers::{self, BUFFERS, Leftover, LeftoverPlaces, LeftoverState, Removal};
use sheaf_cli::options::{GlobalArgs, option_for_hosts};
use sheaf_cli::output::{Records, printable, stdout, tell};
use sheaf_cli::session::{self, Ended, Opening};
use sheaf_records::{Cleaned, text};
use sheaf_tools::Target;
use sheaf_tools::report::human;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Remove what Sheaf left on this machine, or on hosts
///
/// Removes the programs that ssh launch and archives keep in ~/.cache/sheaf
/// (or in /run/user/UID or /var/tmp), sockets and logs of sessions that have
/// ended, and the directories of recordings and tours that were killed. Running
/// sessions, killed ones until `sheaf status` has told of them, programs in use,
/// files younger than 10 minutes, and recordings with operations that no trace
/// has stay. Catalogs of archives
/// (~/.cache/sheaf/archives) are never removed.
///
/// With -w, -C or --session it removes the same on those hosts, and not here.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
On a terminal it asks first; -y answers.

Examples:
  sheaf clean --dry-run
  sheaf clean -y
  sheaf clean -w 'n[1-64]' --dry-run")]
pub struct CleanArgs {
    /// Print what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Answer yes to the question
    #[arg(short, long)]
    pub yes: bool,

    /// Remove recordings that have ended even if no trace has their operations
    #[arg(long)]
    pub recordings: bool,

    /// Where recordings were made (trace record --buffers)
    #[arg(long, value_name = "DIR", default_value = BUFFERS)]
    pub buffers: PathBuf,
}

const NOT_REMOVED: &str = "sheaf: nothing was removed\n";

/// Removes.
pub fn run(args: &CleanArgs, global: &GlobalArgs) -> Result<Exit> {
    if option_for_hosts(global).is_some() {
        return run_on_hosts(args, global);
    }
    let places = LeftoverPlaces::of_this_process(&args.buffers);
    let removal = args.removal();
    if !args.dry_run && !args.yes && is_on_terminal() {
        let found = leftovers::remove(&places, Removal { dry_run: true, ..removal });
        if !found.iter().any(is_removed) {
            let found = FoundLeftover::here(found);
            return print(&found, (args.dry_run, Exit::Success), global);
        }
        if !ask(&FoundLeftover::here(found))? {
            return Ok(Exit::Unmatched);
        }
    }
    let found = FoundLeftover::here(leftovers::remove(&places, removal));
    print(&found, (args.dry_run, Exit::Success), global)
}

impl CleanArgs {
    fn removal(&self) -> Removal {
        Removal { dry_run: self.dry_run, recordings: self.recordings, own_program: false }
    }
}

/// Removes on the hosts of a session.
fn run_on_hosts(args: &CleanArgs, global: &GlobalArgs) -> Result<Exit> {
    let opening = if args.dry_run { Opening::new(global)? } else { Opening::to_change(global)? };
    let everyone = opening.config().everyone()?.clone();
    if !args.dry_run && !args.yes && is_on_terminal() {
        let hosts = opening.config().hosts()?.fold(&everyone);
        let question = format!("Remove what Sheaf left on {}? [y/N] ", printable(&hosts));
        if !ask_on_terminal(question.as_bytes(), NOT_REMOVED, false)? {
            return Ok(Exit::Unmatched);
        }
    }
    // The servers of a session that was started for this command end with it.
    let removal = Removal { own_program: !opening.is_joined(), ..args.removal() };
    let request = CleanRequest { removal, buffers: args.buffers.clone() };
    opening.run(async |session, config, output| {
        let removed = remove_on_hosts(session.client(), &everyone, &request).await;
        let (found, outcome) = removed.map_err(stop)?;
        let targets = [Target { members: everyone.clone(), path: String::new() }];
        let ended = Ended::new(&targets, &outcome);
        let hosts = config.hosts()?;
        let found: Vec<FoundLeftover> = found
            .into_iter()
            .map(|HostLeftover { leaves, leftover }| FoundLeftover {
                hosts: Some((hosts.fold(&leaves), leaves.len())),
                leftover,
            })
            .collect();
        let answered = session::report(session, config, &ended).exit();
        let exit = print(&found, (args.dry_run, answered), global)?;
        session::finish(session, config, output, &ended)?;
        Ok(exit)
    })
}

/// A leftover, and where it was found.
struct FoundLeftover {
    /// The folded hosts and their number; none for this machine.
    hosts: Option<(String, u64)>,
    leftover: Leftover,
}

impl FoundLeftover {
    fn here(found: Vec<Leftover>) -> Vec<Self> {
        found.into_iter().map(|leftover| Self { hosts: None, leftover }).collect()
    }

    fn count(&self) -> u64 {
        self.hosts.as_ref().map_or(1, |(_, count)| *count)
    }

    fn all_bytes(&self) -> u64 {
        self.leftover.bytes.saturating_mul(self.count())
    }

    fn is_removed(&self) -> bool {
        is_removed(&self.leftover)
    }

    /// `n[1-4]:`, or nothing for this machine.
    fn label(&self) -> String {
        self.hosts.as_ref().map(|(hosts, _)| format!("{}:", printable(hosts))).unwrap_or_default()
    }

    /// `n[1-4]:/root/.cache/sheaf/bin/aa/sheaf`.
    fn name(&self) -> String {
        format!("{}{}", self.label(), shown(&self.leftover))
    }
}

fn is_removed(leftover: &Leftover) -> bool {
    leftover.state == LeftoverState::Removed
}

fn ask(found: &[FoundLeftover]) -> Result<bool> {
    let mut text = Vec::new();
    for found in found.iter().filter(|found| found.is_removed()) {
        writeln!(text, "  {:>5} {}", human::size(found.leftover.bytes), found.name())?;
    }
    write!(text, "Remove {}? [y/N] ", sum(found))?;
    ask_on_terminal(&text, NOT_REMOVED, false)
}

/// `3 files and directories, 24M`.
fn sum(found: &[FoundLeftover]) -> String {
    let removed = found.iter().filter(|found| found.is_removed());
    let (count, bytes) = removed.fold((0u64, 0u64), |(count, bytes), found| {
        (count + found.count(), bytes.saturating_add(found.all_bytes()))
    });
    let noun = if count == 1 { "file or directory" } else { "files and directories" };
    format!("{count} {noun}, {}", human::size(bytes))
}

fn shown(leftover: &Leftover) -> String {
    printable(&leftover.path.display().to_string())
}

/// Prints what was found, and returns how the command ends; `answered` says whether hosts failed.
fn print(
    found: &[FoundLeftover],
    (dry_run, answered): (bool, Exit),
    global: &GlobalArgs,
) -> Result<Exit> {
    let has_failed =
        found.iter().any(|found| matches!(found.leftover.state, LeftoverState::Failed(_)));
    let exit = if has_failed && answered == Exit::Success { Exit::Partial } else { answered };
    if global.json {
        print_records(found, (dry_run, exit), global)?;
        return Ok(exit);
    }
    let (mut out, verb) = (stdout(), if dry_run { "would remove" } else { "removed" });
    for found in found {
        let name = found.name();
        match &found.leftover.state {
            LeftoverState::Removed if global.quiet => {}
            LeftoverState::Removed => {
                writeln!(out, "{verb} {:>5} {name}", human::size(found.leftover.bytes))?;
            }
            LeftoverState::Kept(_) if global.quiet => {}
            LeftoverState::Kept(why) => tell(format_args!("kept {name}: {}", printable(why))),
            LeftoverState::Failed(why) => {
                tell(format_args!("sheaf: {}{}", found.label(), printable(why)));
            }
        }
    }
    out.flush()?;
    if !global.quiet && found.iter().any(FoundLeftover::is_removed) {
        tell(format_args!("{verb} {}", sum(found)));
    } else if !global.quiet && exit == Exit::Success {
        tell("nothing to remove");
    }
    Ok(exit)
}

fn print_records(
    found: &[FoundLeftover],
    (dry_run, exit): (bool, Exit),
    global: &GlobalArgs,
) -> Result<()> {
    let (mut out, records) = (stdout(), Records::new(global));
    let mut all = Cleaned { removed: 0, bytes: 0, kept: 0, failed: 0, dry_run, exit };
    for found in found {
        let (leftover, times) = (&found.leftover, found.count());
        let (path, path_base64) = text(leftover.path.as_os_str().as_bytes());
        let (state, bytes, why) = match &leftover.state {
            LeftoverState::Removed => {
                all.removed += times;
                all.bytes = all.bytes.saturating_add(found.all_bytes());
                (sheaf_records::LeftoverState::Removed, Some(leftover.bytes), None)
            }
            LeftoverState::Kept(why) => {
                all.kept += times;
                (sheaf_records::LeftoverState::Kept, None, Some(why.clone()))
            }
            LeftoverState::Failed(why) => {
                all.failed += times;
                (sheaf_records::LeftoverState::Failed, None, Some(why.clone()))
            }
        };
        let kind = leftover.kind;
        let (hosts, count) = found.hosts.clone().unzip();
        let record =
            sheaf_records::Leftover { kind, hosts, count, path, path_base64, state, bytes, why };
        records.write(&mut out, &record)?;
    }
    records.write(&mut out, &all)?;
    Ok(out.flush()?)
}
