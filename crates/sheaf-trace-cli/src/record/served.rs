//! Programs that are recorded for a trace of many hosts.
use super::{RecordArgs, may_preload, places, set_preload};
use anyhow::{Context, Result};
use sheaf_cli::exit::{Exit, Stop, io_text};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_trace::BlindSpot;
use sheaf_trace::served::{is_collected, shared_segments};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Becomes the program: whoever collects is the server of this host.
pub fn run(
    args: &RecordArgs,
    program: &Path,
    preload: &places::Library,
    blind: Option<BlindSpot>,
    global: &GlobalArgs,
) -> Result<Exit> {
    let segments = shared_segments(&args.buffers);
    make(&segments)?;
    let shown = printable(&segments.display().to_string());
    if !is_collected(&segments).with_context(|| shown.clone())? && !global.quiet {
        output::tell(format_args!(
            "sheaf: nobody takes what is recorded in {shown}; what rings have no room for is lost \
             until sheaf trace serve asks this host"
        ));
    }
    let mut command = Command::new(program);
    command.arg0(&args.command[0]).args(&args.command[1..]);
    if let Some(blind) = &blind {
        let text = format!("{}: {blind}: what it does itself is not recorded", program.display());
        output::tell(format_args!("sheaf: {}", printable(&text)));
    }
    if may_preload(blind.as_ref()) {
        set_preload(&mut command, args, preload, &segments)?;
    }
    let error = command.exec();
    output::tell(format_args!("sheaf: cannot run {}", printable(&io_text(program, &error))));
    std::process::exit(places::NOT_RUN);
}

/// The directory, of this user alone.
fn make(segments: &Path) -> Result<()> {
    let refuse = |error: std::io::Error| {
        Stop::usage(format!("no buffers can be made (--buffers): {}", io_text(segments, &error)))
    };
    match std::fs::DirBuilder::new().mode(0o700).create(segments) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refuse(error).into()),
        _ => {}
    }
    let about = std::fs::symlink_metadata(segments).map_err(refuse)?;
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
        let text = format!("{} is not this user's directory (--buffers)", segments.display());
        return Err(Stop::usage(printable(&text)).into());
    }
    const OTHERS_WRITE: u32 = 0o022;
    if about.mode() & OTHERS_WRITE != 0 {
        let text =
            format!("{}: others than its owner may write there (--buffers)", segments.display());
        return Err(Stop::usage(printable(&text)).into());
    }
    Ok(())
}
