//! Commands that do one thing with each path: what is around their own part.
use super::{Addresses, resolve};
use crate::address::Purpose;
use crate::cli::GlobalArgs;
use crate::config::Config;
use crate::exit::Exit;
use crate::output::{Heads, Line, Printer};
use crate::session::{self, Ended, Opening};
use anyhow::Result;
use sheaf_tools::ArgumentOrder;
use sheaf_tools::edit::{self, Edit};
use sheaf_tools::entry::{EntryKind, Merged, MergedEntry};
use sheaf_tools::report::{self, Report};
use std::ffi::OsString;
use std::io;

/// Asks every host of `files` and prints what `print` makes of the answers: what was said, in the order
/// of the arguments.
pub fn report(
    global: &GlobalArgs,
    (files, heads): (&Addresses, Heads),
    what: &Report,
    print: &mut dyn FnMut(&mut Printer<'_>, Vec<MergedEntry<'_>>) -> io::Result<()>,
) -> Result<Exit> {
    let opening = Opening::new(global)?;
    let targets = files.resolve(&opening.config)?;
    opening.run(async |connected, config, output| {
        let mut printer = Printer::with_heads(output, config.hosts()?, heads);
        printer.label_paths(&targets);
        let order = ArgumentOrder::new(&targets);
        let mut sink = |merged: &Merged| {
            print(&mut printer, said(merged, &order))?;
            printer.flush()
        };
        let outcome = report::report(&connected.session, &targets, what, &mut sink).await;
        let outcome = outcome.map_err(super::stop)?;
        session::finish(connected, config, output, &Ended::new(&targets, &outcome))
    })
}

/// Changes files on their hosts; `-v` says what was done.
pub fn edit(
    global: &GlobalArgs,
    command: &'static str,
    addrs: &[OsString],
    change: impl FnOnce(&Config) -> Result<Edit>,
) -> Result<Exit> {
    let opening = Opening::new(global)?;
    let targets = resolve(addrs, &opening.config, Purpose::Change(command))?;
    let change = change(&opening.config)?;
    opening.run(async |connected, config, output| {
        let mut printer = Printer::new(output, config.hosts()?);
        let order = ArgumentOrder::new(&targets);
        let mut sink = |merged: &Merged| {
            for entry in said(merged, &order) {
                printer.flat(&Line {
                    path: entry.path,
                    leaves: entry.leaves,
                    text: entry.entry.text.to_vec(),
                })?;
            }
            printer.flush()
        };
        let verbose = global.verbose > 0;
        let outcome = edit::edit(&connected.session, &targets, &change, verbose, &mut sink).await;
        let outcome = outcome.map_err(super::stop)?;
        session::finish(connected, config, output, &Ended::new(&targets, &outcome))
    })
}

/// What was said, without the errors, in the order of the arguments.
fn said<'a>(merged: &'a Merged, order: &ArgumentOrder) -> Vec<MergedEntry<'a>> {
    let mut entries = merged.sorted();
    entries.retain(|entry| entry.entry.kind != EntryKind::Error);
    order.sort(&mut entries);
    entries
}
