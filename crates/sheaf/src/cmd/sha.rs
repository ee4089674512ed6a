//! `sheaf sha`: digests of files, equal digests printed once.
use super::{Addresses, per_path};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::output::{Heads, Layout};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::Map;
use sheaf_tools::report::Report;

/// Print the digest of files, equal digests once
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf sha /usr/bin/ssh
  sheaf sha -a blake3 'n[1-512]:/srv/image.raw'")]
pub struct ShaArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Which digest
    #[arg(short, long, value_name = "NAME", default_value = "sha256")]
    pub algorithm: Algorithm,

    #[command(flatten)]
    pub heads: Heads,
}

/// A digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    Sha256,
    Sha512,
    Blake3,
}

/// Prints the digests.
pub fn run(args: &ShaArgs, global: &GlobalArgs) -> Result<Exit> {
    let (algorithm, name) = match args.algorithm {
        Algorithm::Sha256 => (sheaf_file::Algorithm::Sha256, "sha256"),
        Algorithm::Sha512 => (sheaf_file::Algorithm::Sha512, "sha512"),
        Algorithm::Blake3 => (sheaf_file::Algorithm::Blake3, "blake3"),
    };
    per_path::report(
        global,
        (&args.files, args.heads),
        &Report::Digest(algorithm),
        &mut |printer, entries| {
            for entry in entries {
                if printer.layout() == Layout::Json {
                    let digest = String::from_utf8_lossy(entry.entry.text);
                    let object = Map::from_iter([
                        ("algorithm".to_owned(), name.into()),
                        ("digest".to_owned(), digest.into()),
                    ]);
                    printer.json(entry.leaves, entry.path, object)?;
                    continue;
                }
                printer.behind(entry.entry.text, b"  ", entry.leaves, entry.path)?;
            }
            Ok(())
        },
    )
}
