//! How much there is in directories of this machine.
use crate::du::{ShownUsage, UsageOf, UsagePrinter};
use anyhow::Result;
use sheaf_archive::{LocalUsage, LocalUsageStep, LocalUsageSum};
use std::path::Path;

/// Sums up a tree and tells of it.
pub fn add(
    sum: &mut LocalUsageSum,
    start: &Path,
    printer: &mut UsagePrinter<'_>,
) -> Result<ShownUsage> {
    let is_apparent = printer.args.apparent_size || printer.args.unit.is_apparent;
    let shown = |usage: LocalUsage| {
        let bytes = if is_apparent { usage.bytes } else { usage.blocks * 512 };
        ShownUsage { files: usage.files, directories: usage.directories, bytes }
    };
    let usage = sum.add(start, &mut |step| match step {
        LocalUsageStep::Sum { depth, .. } if depth > printer.depth_max => anyhow::Ok(()),
        LocalUsageStep::Sum { path, usage, .. } => printer.print(UsageOf::Here, path, shown(usage)),
        LocalUsageStep::Failed { path, errno } => {
            printer.failed(&format!("{}: {errno}", String::from_utf8_lossy(path)));
            Ok(())
        }
    })?;
    Ok(shown(usage))
}
