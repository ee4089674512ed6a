//! `sheaf trace snapshot`: a flight recorder stores what it has in memory.
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::printable;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Have a flight recorder store what it has in memory
///
/// `sheaf trace record --flight` keeps the last operations of each thread. This makes a trace of
/// them, prints where it is, and leaves the program alone. (SIGUSR1, sent to the recorder, does the
/// same.)
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace snapshot server.flight")]
pub struct SnapshotArgs {
    /// The recorder's directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Asks, and waits until it is there.
pub fn run(args: &SnapshotArgs, _: &GlobalArgs) -> Result<Exit> {
    let named = &args.directory;
    if !named.exists() {
        let name = printable(&named.display().to_string());
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        let text = match is_number {
            true => format!(
                "{name} is no directory: say that of the recorder, as NAME.flight; a recorder whose number \
                 is {name} makes a snapshot on kill -USR1 {name}"
            ),
            false => format!("{name} is not there: say the recorder's directory, as NAME.flight"),
        };
        return Err(Stop::usage(text).into());
    }
    let path = sheaf_trace::ask_snapshot(&args.directory)?;
    let mut line = path.into_os_string().into_vec();
    line.push(b'\n');
    std::io::stdout().write_all(&line)?;
    Ok(Exit::Success)
}
