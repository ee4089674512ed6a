//! Commands that do one thing with each path: what is around their own part.
use super::caution::{Caution, Question};
use anyhow::Result;
use sheaf_cli::addresses::{Addresses, resolve};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Changes, Failure, Heads, Layout, Line, Printer};
use sheaf_cli::session::{self, Ended, Opening};
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_group::Outcome;
use sheaf_session::Config;
use sheaf_session::address::Purpose;
use sheaf_tools::ArgumentOrder;
use sheaf_tools::edit::{self, Cut, Edit};
use sheaf_tools::entry::{EntryKind, Merged, MergedEntry};
use sheaf_tools::report::{self, ReportChoice};
use std::ffi::OsString;
use std::io;

/// Asks every host of `files` and prints what `print` makes of the answers: what was said, in the
/// order of the arguments.
pub fn report(
    global: &GlobalArgs,
    (files, heads): (&Addresses, Heads),
    what: &ReportChoice,
    print: &mut dyn FnMut(&mut Printer<'_>, Vec<MergedEntry<'_>>) -> io::Result<()>,
) -> Result<Exit> {
    let opening = Opening::new(global)?;
    let targets = files.resolve(opening.config())?;
    opening.run(async |session, config, output| {
        let mut printer = Printer::with_heads(output, config.hosts()?, heads);
        printer.label_paths(&targets);
        let order = ArgumentOrder::new(&targets);
        let mut sink = |merged: &Merged| {
            print(&mut printer, said(merged, &order))?;
            printer.flush()
        };
        let outcome = report::report(session.client(), &targets, what, &mut sink).await;
        let outcome = outcome.map_err(sheaf_cli::addresses::stop)?;
        session::finish(session, config, output, &Ended::new(&targets, &outcome))
    })
}

/// A command that changes files.
pub struct PathTask<'a> {
    pub command: &'static str,
    pub addrs: &'a [OsString],
    pub caution: Caution,
    /// What is asked about on a terminal, if it is to be.
    pub asks: Option<&'a str>,
    /// What is done to a file, and what a file is called, as one and as many.
    pub words: (&'static str, (&'static str, &'static str)),
    /// What there is to say of an error.
    pub explained: &'a [(Errno, &'a str)],
}

/// What there is to say where a recursive change of all that a host serves is refused.
pub const KEPT_ROOT: &str = "all that a host serves is changed with --no-preserve-root only";

/// What files are called where all beneath directories is changed, too.
pub const ALL: (&str, &str) = ("file or directory", "files and directories");

/// Changes files on their hosts; `-v` says what was done.
pub fn edit(
    global: &GlobalArgs,
    task: &PathTask<'_>,
    change: impl FnOnce(&Config) -> Result<Edit>,
) -> Result<Exit> {
    let opening = Opening::to_change(global)?;
    let targets = resolve(task.addrs, opening.config(), Purpose::Change(task.command))?;
    let change = change(opening.config())?;
    let question = Question {
        what: task.asks.unwrap_or(task.command),
        by_itself: task.asks.is_some(),
        stdin_is_taken: false,
    };
    if !task.caution.ask(&question, &targets, opening.config())? {
        return super::caution::refused(global);
    }
    let options = task.caution.options(global.verbose > 0);
    opening.run(async |session, config, output| {
        let mut printer = Printer::new(output, config.hosts()?);
        let order = ArgumentOrder::new(&targets);
        let mut sink = |merged: &Merged| print_done(&mut printer, merged, &order);
        let edited = edit::edit(session.client(), &targets, &change, options, &mut sink).await;
        let mut edited = edited.map_err(sheaf_cli::addresses::stop)?;
        let (done, nouns) = task.words;
        let (files, leaves) = (edited.files(), edited.hosts());
        let (in_part, unfinished) = ((0, RangeSet::new()), edited.unfinished.clone());
        let is_dry = options.dry_run;
        let changes =
            Changes { done, way: "on", nouns, files, leaves, in_part, unfinished, is_dry };
        let extra = explained(&mut edited.outcome, task.explained);
        let ended = Ended::new(&targets, &edited.outcome);
        session::finish(
            session,
            config,
            output,
            &Ended { extra: &extra, changes: Some(changes), ..ended },
        )
    })
}

/// Prints what was done to files, in the order of the arguments.
pub fn print_done(
    printer: &mut Printer<'_>,
    merged: &Merged,
    order: &ArgumentOrder,
) -> io::Result<()> {
    for entry in said(merged, order).iter().filter(|entry| entry.entry.kind == EntryKind::Line) {
        printer.flat(&done_line(printer, entry.path, entry.leaves, entry.entry.text))?;
    }
    printer.flush()
}

/// What was done to a file; to a person it is no part of the file, and stands apart from its name.
pub fn done_line<'a>(
    printer: &Printer<'_>,
    path: &'a [u8],
    leaves: &'a RangeSet,
    text: &[u8],
) -> Line<'a> {
    let blank: &[u8] = if printer.layout() == Layout::Json { b"" } else { b" " };
    Line { path, leaves, text: [blank, text].concat() }
}

/// Takes out of what went wrong the files that did not get all of their bytes and are not as they
/// were, to be told with how many they got. `detail` says that of a number.
pub fn told_cuts(
    outcome: &mut Outcome,
    cuts: &[Cut],
    detail: impl Fn(u64) -> String,
) -> Vec<Failure> {
    let (mut told, mut unfinished) = (Vec::new(), Vec::new());
    for Cut { path, leaves, bytes } in cuts {
        let mut failure = |leaves, errno| {
            told.push(Failure::new(leaves, path, errno, Some(detail(*bytes))));
        };
        let mut rest = leaves.clone();
        for error in outcome.errors.iter_mut().filter(|error| error.path == *path) {
            let all = error.members.leaves();
            let leaves = all.intersection(&rest);
            if !leaves.is_empty() {
                rest = rest.difference(&leaves);
                error.members = MemberSet::of_leaves(0, all.difference(&leaves));
                failure(leaves, error.errno);
            }
        }
        // Those of a host that was ended have no error of their own, but its.
        for (errno, silent) in &outcome.silent {
            let leaves = silent.intersection(&rest);
            if !leaves.is_empty() {
                unfinished.push(leaves.clone());
                failure(leaves, *errno);
            }
        }
    }
    outcome.errors.retain(|error| !error.members.leaves().is_empty());
    for leaves in unfinished {
        outcome.silent.iter_mut().for_each(|(_, silent)| *silent = silent.difference(&leaves));
    }
    outcome.silent.retain(|(_, leaves)| !leaves.is_empty());
    told
}

/// How many files those are, and where.
pub fn in_part(cuts: &[Cut]) -> (u64, RangeSet) {
    let mut leaves = RangeSet::new();
    cuts.iter().for_each(|cut| leaves.union_with(&cut.leaves));
    (cuts.iter().map(|cut| cut.leaves.len()).sum(), leaves)
}

/// Takes errors out that there is more to say of, to be told with it.
pub fn explained(outcome: &mut Outcome, explained: &[(Errno, &str)]) -> Vec<Failure> {
    let mut told = Vec::new();
    for (errno, text) in explained {
        let errors = outcome.errors.extract_if(.., |error| error.errno == *errno);
        told.extend(errors.map(|error| Failure::of(&error, Some((*text).to_owned()))));
    }
    told
}

/// What was said, without the errors, in the order of the arguments.
pub fn said<'a>(merged: &'a Merged, order: &ArgumentOrder) -> Vec<MergedEntry<'a>> {
    let mut entries = merged.sorted();
    entries.retain(|entry| entry.entry.kind != EntryKind::Error);
    order.sort(&mut entries);
    entries
}
