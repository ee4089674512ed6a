//! Modes and owners told as by `chmod -v` and `chown -v`.
use super::RightsArgs;
use anyhow::Result;
use sheaf_archive::{FileRights, ModesTold, RightsStep};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_tools::report::human;
use std::io::{BufWriter, Write};

/// Whose modes and owners are told.
pub fn tells(args: &RightsArgs, global: &GlobalArgs) -> ModesTold {
    match global.verbose {
        _ if global.json => ModesTold::Nothing,
        0 if args.changes => ModesTold::Changes,
        0 => ModesTold::Nothing,
        _ => ModesTold::All,
    }
}

/// What is told of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToldRights {
    Mode,
    /// The owner and the group, each as it was given.
    Owner {
        owner: Option<String>,
        group: Option<String>,
    },
}

/// Prints what became of files.
pub struct RightsPrinter {
    out: BufWriter<output::Stdout>,
    is_terminal: bool,
    dry_run: bool,
    what: ToldRights,
}

impl RightsPrinter {
    pub fn new(what: ToldRights, dry_run: bool, global: &GlobalArgs) -> Self {
        let is_terminal = Output::new(global).stdout_is_terminal;
        Self { out: output::stdout_in_blocks(), is_terminal, dry_run, what }
    }

    /// Tells of an archived file, with its store before the path.
    pub fn archived(&mut self, store: &[u8], step: &RightsStep) -> Result<()> {
        let path = [store, &step.path.as_bytes()[..]].concat();
        match &self.what {
            ToldRights::Mode if step.is_link => self.link(&path),
            ToldRights::Mode => self.mode(&path, step.old.mode, step.new.mode),
            ToldRights::Owner { owner, group } => {
                let (what, was) = old_owner((owner.is_some(), group.is_some()), step.old);
                let new = spec(owner.as_deref(), group.as_deref());
                let owner_of = |of: FileRights| (of.uid, of.gid);
                let is_same = owner_of(step.old) == owner_of(step.new);
                let text = match (is_same, self.dry_run) {
                    (true, _) => [format!("{what} of "), format!(" retained as {was}")],
                    (false, false) => {
                        [format!("changed {what} of "), format!(" from {was} to {new}")]
                    }
                    (false, true) => {
                        [format!("{what} of "), format!(" would change from {was} to {new}")]
                    }
                };
                self.line(&text[0], &path, &text[1])
            }
        }
    }

    /// Tells of a mode.
    pub fn mode(&mut self, path: &[u8], old: u32, new: u32) -> Result<()> {
        let shown = |mode: u32| format!("{mode:04o} ({})", human::permissions(mode));
        let (was, is) = (shown(old), shown(new));
        self.line(
            "mode of ",
            path,
            &match (old == new, self.dry_run) {
                (true, _) => format!(" retained as {was}"),
                (false, false) => format!(" changed from {was} to {is}"),
                (false, true) => format!(" would change from {was} to {is}"),
            },
        )
    }

    /// Tells of a link, which has no mode.
    pub fn link(&mut self, path: &[u8]) -> Result<()> {
        self.line("neither symbolic link ", path, " nor referent has been changed")
    }

    fn line(&mut self, before: &str, path: &[u8], behind: &str) -> Result<()> {
        write!(self.out, "{before}'")?;
        if self.is_terminal {
            write!(self.out, "{}", printable(&String::from_utf8_lossy(path)))?;
        } else {
            self.out.write_all(path)?;
        }
        Ok(writeln!(self.out, "'{behind}")?)
    }

    pub fn flush(&mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }
}

/// What of an owner is told, and what that was.
fn old_owner((has_owner, has_group): (bool, bool), old: FileRights) -> (&'static str, String) {
    let owner = || sheaf_file::user_name(old.uid).unwrap_or_else(|| old.uid.to_string());
    let group = || sheaf_file::group_name(old.gid).unwrap_or_else(|| old.gid.to_string());
    let (owner, group) = (has_owner.then(owner), has_group.then(group));
    let what = if has_owner { "ownership" } else { "group" };
    (what, spec(owner.as_deref(), group.as_deref()))
}

fn spec(owner: Option<&str>, group: Option<&str>) -> String {
    match (owner, group) {
        (Some(owner), Some(group)) => format!("{owner}:{group}"),
        (one, other) => one.or(other).unwrap_or_default().to_owned(),
    }
}
