//! `sheaf sha`: digests of files, equal digests printed once.
use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::{Args, ValueEnum};

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
    args.files.resolve(&crate::config::Config::load(global)?)?;
    super::needs_a_tree("sha")
}
