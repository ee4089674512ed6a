//! The one binary of Sheaf: client, inner node and server.
//!
//! `main` decides how the program runs and how it ends; each command is one file of `cmd/`.
mod cli;
mod cmd;

use anyhow::Context;
use sheaf_cli::{log, output, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(run)
}

fn run() -> ExitCode {
    #[cfg(feature = "wasm")]
    sheaf_tree::filter::use_engine(&sheaf_wasm::ENGINE);
    // A server is started thousands of times and needs nothing of the rest: neither the other
    // commands' options nor any file of configuration.
    let mut as_json = false;
    let outcome = match cli::serve_alone(std::env::args_os()) {
        Some(args) => sheaf_tree::launch::close_inherited()
            .context("descriptors that were inherited")
            .and_then(|()| {
                log::begin_serving();
                cmd::serve::run(&args)
            }),
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
