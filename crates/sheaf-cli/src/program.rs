//! How the programs of Sheaf begin and end.
use crate::cli::{self, CommandLine};
use crate::companion::{Companion, describe, host};
use crate::exit::Exit;
use crate::options::GlobalArgs;
use crate::{log, output, session};
use anyhow::Result;
use sheaf_tree::service::Services;
use std::ffi::CString;
use std::process::ExitCode;

/// The stack that these programs are sure to get by with.
const STACK_BYTES: usize = 8 << 20;

/// Runs `run` with a stack that is large enough, whatever `ulimit -s` says.
pub fn main(run: fn() -> ExitCode) -> ExitCode {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    let is_small = limit.is_some_and(|bytes| bytes < STACK_BYTES as u64 / 4);
    if is_small && let Ok(thread) = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run) {
        // A panic has been reported.
        return thread.join().unwrap_or(ExitCode::from(101));
    }
    run()
}

/// Closes what no process started from here may inherit. Sessions and servers outlive a command, and
/// must not keep its caller's descriptors.
pub fn hand_nothing_on() {
    if let Err(error) = sheaf_tree::launch::hand_nothing_on() {
        tracing::warn!(%error, "descriptors of the caller may stay open in processes started here");
    }
}

/// A program beside `sheaf`, with the command line `C`.
pub struct CompanionProgram<C> {
    /// Which one it is.
    pub companion: &'static Companion,
    /// Adds the services of its nodes.
    pub register: fn(Services) -> Services,
    /// What it does on hosts.
    pub part: Option<host::OpenPart>,
    /// Whether it runs a program of the user's, which keeps what this process was started with.
    pub runs_a_program: fn(&C) -> bool,
    /// Does what the command line says.
    pub run: fn(&C, &GlobalArgs) -> Result<Exit>,
}

impl<C: CommandLine> CompanionProgram<C> {
    /// Runs it to its end.
    pub fn main(&self) -> ExitCode {
        crate::companion::begin(self.companion, self.register);
        let mut args = std::env::args_os().skip(1);
        match (args.next(), args.next()) {
            (Some(word), None) if word == host::SERVE_WORD => self.serve_part(),
            (Some(word), None) if word == describe::DESCRIBE_WORD => {
                let text = describe::description(&C::command(), self.companion.command);
                let printed = std::io::Write::write_all(&mut output::stdout(), text.as_bytes());
                output::conclude(printed.map(|()| Exit::Success).map_err(Into::into), false).into()
            }
            _ => self.run_command(),
        }
    }

    fn serve_part(&self) -> ExitCode {
        let Some(open) = self.part else { return Exit::Usage.into() };
        log::begin_serving();
        // It was run by its descriptor, whose number would be its name.
        let name = CString::new(self.companion.program).unwrap_or_default();
        if let Err(error) = rustix::thread::set_name(&name) {
            tracing::debug!(%error, "this process has no name");
        }
        let served = host::serve(open);
        output::conclude(served.map(|()| Exit::Success).map_err(Into::into), false).into()
    }

    fn run_command(&self) -> ExitCode {
        let words: Vec<_> = std::env::args_os().collect();
        let mut cli = cli::try_parse::<C>(words).unwrap_or_else(|error| cli::end::<C>(&error));
        let global = cli.global().clone();
        if !(self.runs_a_program)(&cli) {
            hand_nothing_on();
        }
        let outcome = log::begin(&global, None).and_then(|()| {
            session::deadline::watch(global.timeout);
            (self.run)(&cli, &global)
        });
        output::conclude(outcome, global.json).into()
    }
}
