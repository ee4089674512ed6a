//! What is printed around an answer: colours, and the report of who did not contribute.
mod changes;
pub mod json;
mod paths;
mod printer;
mod report;
mod stderr;
mod stdout;

pub use changes::Changes;
pub use json::Records;
pub use paths::{fold_paths, printable};
pub use printer::{Heads, Layout, Line, Printer};
pub use report::{Failure, HostNames, Nobody, Report, Silence, Silent};
pub use stderr::{stderr, tell, tell_for_now, wipe};
pub use stdout::{
    Stdout, is_over, print_help, printing_time, stdout, stdout_error, stdout_in_blocks,
};

use crate::exit::{self, Exit};
use crate::options::{Color, GlobalArgs};
use anstyle::{AnsiColor, Style};
use rustix::fs::FileType;
use sheaf_records::Note;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

/// The styles of one stream; all of them plain when it is not coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Palette {
    pub hosts: Style,
    pub path: Style,
    pub number: Style,
    pub matched: Style,
    pub error: Style,
}

impl Palette {
    /// The colours of a terminal, those that grep's users know.
    pub const COLOURED: Self = Self {
        hosts: AnsiColor::Cyan.on_default(),
        path: AnsiColor::Magenta.on_default(),
        number: AnsiColor::Green.on_default(),
        matched: AnsiColor::Red.on_default().bold(),
        error: AnsiColor::Red.on_default(),
    };

    /// The styles for a stream under `--color`, `NO_COLOR` and `TERM`.
    fn choose(color: Color, is_terminal: bool, allowed: bool) -> Self {
        match color {
            Color::Always => Self::COLOURED,
            Color::Auto if is_terminal && allowed => Self::COLOURED,
            Color::Auto | Color::Never => Self::default(),
        }
    }
}

/// How a command prints, decided once from the options and the streams.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub json: bool,
    /// How JSON is written.
    pub records: Records,
    pub quiet: bool,
    pub stdout: Palette,
    pub stderr: Palette,
    /// Whether standard output is a terminal: headings and columns in place of greppable lines.
    pub stdout_is_terminal: bool,
    /// Whether standard error is a terminal, the only place for progress.
    pub stderr_is_terminal: bool,
}

/// Whether what is written there can be read: `/dev/null` stands for a stream that was closed, too.
fn is_read(stream: impl AsFd) -> bool {
    const NULL: (u32, u32) = (1, 3);
    let Ok(about) = rustix::fs::fstat(stream) else { return false };
    let device = (rustix::fs::major(about.st_rdev), rustix::fs::minor(about.st_rdev));
    !FileType::from_raw_mode(about.st_mode).is_char_device() || device != NULL
}

impl Output {
    /// Looks at the options, the environment and the standard streams.
    pub fn new(global: &GlobalArgs) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let allowed = !set("NO_COLOR") && !dumb;
        let (stdout_is_terminal, stderr_is_terminal) =
            (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self {
            json: global.json,
            records: Records::new(global),
            quiet: global.quiet,
            stdout: Palette::choose(global.color, stdout_is_terminal, allowed),
            stderr: Palette::choose(global.color, stderr_is_terminal, allowed),
            stdout_is_terminal,
            stderr_is_terminal,
        }
    }

    /// Says what the user may not expect, if there is something: as a line on standard error, or as
    /// a record.
    pub fn note(&self, note: Option<&str>) -> io::Result<()> {
        match note {
            Some(note) if self.json => {
                self.records.write(&mut stdout(), &Note { note: note.to_owned() })
            }
            Some(note) if !self.quiet => {
                tell(format_args!("sheaf: {note}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes a note, and returns whether somebody can read it.
    pub fn note_arrives(&self, note: &str) -> bool {
        if self.json {
            let mut out = stdout();
            let note = Note { note: note.to_owned() };
            let written = self.records.write(&mut out, &note).and_then(|()| out.flush());
            return is_read(io::stdout()) && written.is_ok() && !is_over();
        }
        is_read(io::stderr()) && writeln!(stderr(), "sheaf: {note}").is_ok()
    }

    /// Says on a terminal, as a line on standard error, what is no news to a script.
    pub fn announce(&self, text: Option<&str>) {
        let is_for_person = self.stderr_is_terminal && !self.quiet && !self.json;
        text.filter(|_| is_for_person)
            .into_iter()
            .for_each(|text| tell(format_args!("sheaf: {text}")));
    }

    /// Ends a command: the report as JSON on standard output, or as lines on standard error.
    pub fn finish(&self, report: &Report, hosts: &dyn HostNames) -> io::Result<Exit> {
        if self.json {
            let mut stdout = stdout();
            self.records.write(&mut stdout, &report.record(hosts))?;
            stdout.flush()?;
        }
        if if self.json { is_over() } else { !self.quiet } {
            // What cannot be said on stderr still shows in the exit code.
            let _ = report.write_text(hosts, &self.stderr, &mut stderr().lock());
        }
        Ok(report.exit())
    }
}

/// How the program ends, once what went wrong is told: as a line on standard error, or as a record.
/// An answer that could not be printed is not whole, whatever it was.
pub fn conclude(outcome: anyhow::Result<Exit>, as_json: bool) -> Exit {
    let mut out = stdout();
    let exit = outcome.unwrap_or_else(|error| {
        let (text, exit) = (printable(&exit::one_line(&error)), exit::of_error(&error));
        let _ = out.flush();
        // Where records do not arrive, a line may.
        let mut told = || writeln!(out, "{}", json::error(&text, exit)?);
        let is_told = as_json && !is_over() && told().is_ok();
        if !is_told || is_over() {
            tell(format_args!("sheaf: {text}"));
        }
        exit
    });
    let _ = out.flush();
    match (stdout_error(), exit) {
        (None, _) => exit,
        (Some(text), _) => {
            tell(format_args!("sheaf: {text}"));
            if matches!(exit, Exit::Success | Exit::Unmatched) { Exit::Partial } else { exit }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_and_permission() {
        let coloured = |color, terminal, allowed| {
            Palette::choose(color, terminal, allowed) == Palette::COLOURED
        };
        assert!(coloured(Color::Auto, true, true));
        assert!(!coloured(Color::Auto, true, false));
        assert!(!coloured(Color::Auto, false, true));
        assert!(coloured(Color::Always, false, false));
        assert!(!coloured(Color::Never, true, true));
    }
}
