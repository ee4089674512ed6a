//! The one binary of Sheaf: client, inner node and server.
//!
//! `main` decides how the program runs and how it ends; each command is one file of `cmd/`.
mod cli;
mod cmd;
mod exit;
mod log;
mod mode;
mod output;
mod probe;
mod session;
mod size;
mod stdio;

use anyhow::Context;
use std::process::ExitCode;

/// The stack that this program is sure to get by with.
const STACK_BYTES: usize = 8 << 20;

fn main() -> ExitCode {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    // Whoever has made it smaller (`ulimit -s`) would see it overflow.
    let is_small = limit.is_some_and(|bytes| bytes < STACK_BYTES as u64 / 4);
    if is_small && let Ok(thread) = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run) {
        // A panic has been told.
        return thread.join().unwrap_or(ExitCode::from(101));
    }
    run()
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
            let cli = cli::parse();
            // Sessions and servers outlive this command, and must not keep what is its caller's; a
            // program that is traced is its caller's own.
            if !cli.command.runs_a_program()
                && let Err(error) = sheaf_tree::launch::hand_nothing_on()
            {
                tracing::warn!(%error, "descriptors of the caller may stay open in processes started here");
            }
            // A session's own process is read by the one that starts it, as text.
            let is_session = matches!(&cli.command, cmd::Command::Up(up) if up.announce);
            as_json = cli.global.json && !is_session;
            // It keeps a log of its own besides, once its name is known.
            let logs = if is_session { Ok(()) } else { log::begin(&cli.global, None) };
            logs.and_then(|()| cmd::run(&cli.command, &cli.global))
        }
    };
    output::conclude(outcome, as_json).into()
}
