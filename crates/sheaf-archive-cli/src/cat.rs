//! `sheaf archive cat`: the content of archived files.
use super::place::{self, ArchivedName};
use super::version::AtArgs;
use anyhow::Result;
use clap::Args;
use sheaf_archive::{ContentError, write_content};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, is_over, printable};
use std::ffi::OsString;
use std::io::Write;

/// Print the content of archived files
///
/// One behind the other, as cat does. What is not as it was stored is named, and of
/// small files not printed; of one in an object of its own what came before is.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  sheaf archive cat /backup::/etc/fstab
  sheaf archive cat '/backup::/var/log/syslog.*' | zgrep -c error")]
pub struct ArchiveCatArgs {
    /// Archived files
    #[arg(value_name = "STORE::PATH", required = true)]
    pub names: Vec<OsString>,

    #[command(flatten)]
    pub version: AtArgs,
}

/// Prints the files.
pub fn run(args: &ArchiveCatArgs, global: &GlobalArgs) -> Result<Exit> {
    if global.json {
        return Err(Stop::usage("contents are no JSON: cat prints them as they are").into());
    }
    let names: Result<Vec<_>> = args.names.iter().map(|name| ArchivedName::parse(name)).collect();
    let mut out = output::stdout_in_blocks();
    let mut has_failed = false;
    for name in names? {
        let archive = place::open_to_read(&name.store)?;
        for path in name.paths(&archive)? {
            match write_content(&archive, &path, &mut out) {
                Ok(_) => {}
                Err(ContentError::Out(error)) => return Err(error.into()),
                Err(error) => {
                    out.flush()?;
                    output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
                    has_failed = true;
                }
            }
            if is_over() {
                break;
            }
        }
    }
    out.flush()?;
    Ok(if has_failed { Exit::Partial } else { Exit::Success })
}
