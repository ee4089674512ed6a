//! `sheaf sha`: digests of files, equal digests printed once.
mod check;

use super::per_path;
use anyhow::Result;
use clap::{Args, ValueEnum};
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Heads, Layout};
use sheaf_records::{Algorithm, Entry};
use sheaf_tools::report::ReportChoice;
use std::borrow::Cow;

/// Print the digest of files, equal digests once
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf sha /usr/bin/ssh
  sheaf sha -a blake3 'n[1-512]:/srv/image.raw'
  sheaf sha -c 'n[1-512]:/srv/SHA256SUMS'")]
pub struct ShaArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Which digest
    #[arg(short, long, value_name = "NAME", default_value = "sha256")]
    pub algorithm: AlgorithmArg,

    /// Check the files that lists of digests name, as sha256sum -c. The lists are files of the
    /// hosts; what is relative in a list begins at the list's own directory
    #[arg(short, long)]
    pub check: bool,

    /// With -c: pass over files that are missing
    #[arg(long, requires = "check")]
    pub ignore_missing: bool,

    /// With -c: print no files; the exit code says whether all are as listed
    #[arg(long, requires = "check")]
    pub status: bool,

    /// With -c: exit 1 also where lines of a list are improperly formatted
    #[arg(long, requires = "check")]
    pub strict: bool,

    /// With -c: warn of each line that is improperly formatted
    #[arg(short = 'w', long, requires = "check")]
    pub warn: bool,

    /// Print lines as BSD does: SHA256 (FILE) = DIGEST
    #[arg(long, conflicts_with = "check")]
    pub tag: bool,

    #[command(flatten)]
    pub heads: Heads,
}

/// A digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlgorithmArg {
    Sha256,
    Sha512,
    Blake3,
}

/// The name of a digest in lines of BSD's form.
fn name_of_tag(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Sha256 => "SHA256",
        Algorithm::Sha512 => "SHA512",
        Algorithm::Blake3 => "BLAKE3",
    }
}

/// A name as lines of digests have it, and what stands in front of the line: where one of `special` is in
/// the name, newlines, returns and backslashes are written out, which a backslash in front says.
/// Otherwise whoever names a file could make lines of other files.
fn written_out<'a>(name: &'a [u8], special: &[u8]) -> (&'static str, Cow<'a, [u8]>) {
    if !name.iter().any(|byte| special.contains(byte)) {
        return ("", Cow::Borrowed(name));
    }
    let mut written = Vec::with_capacity(name.len() + 1);
    for &byte in name {
        match byte {
            b'\n' => written.extend(b"\\n"),
            b'\r' => written.extend(b"\\r"),
            b'\\' => written.extend(b"\\\\"),
            byte => written.push(byte),
        }
    }
    ("\\", Cow::Owned(written))
}

/// Prints the digests, or checks them.
pub fn run(args: &ShaArgs, global: &GlobalArgs) -> Result<Exit> {
    let (algorithm, name) = match args.algorithm {
        AlgorithmArg::Sha256 => (sheaf_file::Algorithm::Sha256, Algorithm::Sha256),
        AlgorithmArg::Sha512 => (sheaf_file::Algorithm::Sha512, Algorithm::Sha512),
        AlgorithmArg::Blake3 => (sheaf_file::Algorithm::Blake3, Algorithm::Blake3),
    };
    if args.check {
        return check::run(args, (algorithm, name), global);
    }
    per_path::report(
        global,
        (&args.files, args.heads),
        &ReportChoice::Digest(algorithm),
        &mut |printer, entries| {
            for entry in entries {
                if printer.layout() == Layout::Json {
                    let digest = Some(String::from_utf8_lossy(entry.entry.text).into_owned());
                    let record = Entry { algorithm: Some(name), digest, ..Entry::default() };
                    printer.json(entry.leaves, entry.path, record)?;
                    continue;
                }
                let (mark, path) = written_out(entry.path, b"\\\n\r");
                if args.tag {
                    let tail = [b") = ", entry.entry.text].concat();
                    let head = format!("{mark}{} (", name_of_tag(name));
                    printer.between(head.as_bytes(), entry.leaves, &path, &tail)?;
                    continue;
                }
                let digest = [mark.as_bytes(), entry.entry.text].concat();
                printer.behind(&digest, b"  ", entry.leaves, &path)?;
            }
            Ok(())
        },
    )
}
