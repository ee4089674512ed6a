//! The commands of `sheaf`.
//!
//! [`main`] decides how the program runs and how it ends; each command is one file of `cmd/`.
//!
//! Commands run once, so they are built for size, or in the profile `release` not optimised at all.
//! Optimising them there takes a fifth of the build, and only lines of JSON print slower without it
//! (`docs/benchmarks.md`). `sheaf` is a crate of only `main`, because the linker optimises a whole
//! program at the level of its last crate.
#![forbid(unsafe_code)]
mod cli;
mod cmd;

use anyhow::{Context, Result};
use sheaf_cli::exit::Exit;
use sheaf_cli::{log, output, program};
use std::process::ExitCode;

/// What the program `sheaf` does, from its arguments to its exit code.
#[must_use]
pub fn main() -> ExitCode {
    program::main(run)
}

fn run() -> ExitCode {
    // A server is started thousands of times and needs nothing of the rest: neither the other
    // commands' options nor any file of configuration.
    let mut as_json = false;
    let outcome = match cli::serve_alone(std::env::args_os()) {
        Some(args) => serve(&args),
        None => {
            let (cli, words) = cli::parse();
            // A session's own process is read by the one that starts it, as text.
            let is_session = matches!(&cli.command, cmd::Command::Up(up) if up.announce);
            as_json = cli.global.json && !is_session;
            match cli.command.companion() {
                Some(companion) => {
                    companion.run(words.into_iter().skip(1)).map(|never| match never {})
                }
                None => {
                    program::hand_nothing_on();
                    // It keeps a log of its own besides, once its name is known.
                    let logs = if is_session { Ok(()) } else { log::begin(&cli.global, None) };
                    logs.and_then(|()| cmd::run(&cli.command, &cli.global))
                }
            }
        }
    };
    output::conclude(outcome, as_json).into()
}

fn serve(args: &cmd::serve::ServeArgs) -> Result<Exit> {
    sheaf_tree::launch::close_inherited().context("descriptors that were inherited")?;
    log::begin_serving();
    cmd::serve::run(args)
}
