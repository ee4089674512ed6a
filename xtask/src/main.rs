//! Automation of this repository, run as `cargo xtask`.
mod tests;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask test TIER [--slow N] [--again] [WORD...]
       cargo xtask schema

TIER is one of
  quick   units, the simulator with 300 seeds, clusters within a process (two minutes)
  lab     tests with sshd, Slurm, namespaces, FUSE, browsers, PostgreSQL, S3
  full    everything

Builds the tests of the workspace, and runs those of the tier. Each WORD selects tests whose
names contain it. --slow N lists the N tests that took the longest.
--again runs tests that failed again, alone: up to three may pass then, and are
named as unsteady.

schema writes docs/json-schema.json, which is generated from the types in crates/sheaf-records.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test", rest @ ..] => tests::Run::parse(rest).and_then(|run| run.all()),
        ["schema"] => write_schema(),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Runs the test that compares the schema, with the variable that makes it write the file.
fn write_schema() -> Result<bool, String> {
    let mut cargo = std::process::Command::new(std::env::var("CARGO").unwrap_or("cargo".into()));
    cargo.args(["test", "--quiet", "--package", "sheaf-records", "--lib", "schema_file"]);
    let status = cargo.env("SHEAF_WRITE_SCHEMA", "1").status();
    status.map(|status| status.success()).map_err(|error| format!("cargo: {error}"))
}
