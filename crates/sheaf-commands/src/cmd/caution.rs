//! What comes before a change: the question, and the dry run.
use anyhow::{Context, Result, anyhow};
use clap::Args;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Nobody, Records, Report, printable};
use sheaf_core::RangeSet;
use sheaf_session::Config;
use sheaf_tools::Target;
use sheaf_tools::edit::EditOptions;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, IsTerminal, Write, stderr, stdin, stdout};

/// The most addresses that a question lists.
const LISTED_MAX: usize = 20;

/// The terminal of this process, whatever its streams are.
const TERMINAL: &str = "/dev/tty";

/// How careful a command is.
#[derive(Args, Clone, Copy, Debug)]
pub struct Caution {
    /// Ask before anything is changed
    #[arg(short, long, overrides_with = "yes")]
    pub interactive: bool,

    /// Answer yes to every question
    #[arg(short, long, overrides_with = "interactive")]
    pub yes: bool,

    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// A question before a change.
pub struct Question<'a> {
    /// The command, with what makes it dangerous.
    pub what: &'a str,
    /// It is asked on a terminal without -i, too, when more than one host is meant.
    pub by_itself: bool,
    /// Standard input is what is written, so that the answer comes from the terminal.
    pub stdin_is_taken: bool,
}

impl Caution {
    /// What is said, and whether it is done.
    pub fn options(self, verbose: bool) -> EditOptions {
        EditOptions { verbose, dry_run: self.dry_run }
    }

    /// Asks, where it has to be asked. Returns whether to go on.
    pub fn ask(self, question: &Question<'_>, targets: &[Target], config: &Config) -> Result<bool> {
        let mut all = RangeSet::new();
        targets.iter().for_each(|target| all.union_with(&target.members));
        let by_itself = question.by_itself && !self.yes && all.len() > 1 && is_on_terminal();
        if self.dry_run || !(self.interactive || by_itself) {
            return Ok(true);
        }
        let hosts = config.hosts()?;
        // Written at once, so that what a terminal echoes does not come between its words.
        let mut out = Vec::new();
        writeln!(out, "sheaf: {}:", question.what)?;
        for target in targets.iter().take(LISTED_MAX) {
            writeln!(out, "  {}:{}", hosts.fold(&target.members), printable(&target.path))?;
        }
        if targets.len() > LISTED_MAX {
            writeln!(out, "  … and {} more, on {}", targets.len() - LISTED_MAX, hosts.fold(&all))?;
        }
        let noun = if all.len() == 1 { "host" } else { "hosts" };
        write!(out, "Go on, on {} {noun}? [y/N] ", all.len())?;
        ask_on_terminal(&out, "sheaf: nothing was changed\n", question.stdin_is_taken)
    }
}

/// Whether a question is seen, and can be answered.
pub fn is_on_terminal() -> bool {
    stdin().is_terminal() && (stdout().is_terminal() || stderr().is_terminal())
}

/// Asks. If the answer is not yes, `refused` is printed.
pub fn ask_on_terminal(question: &[u8], refused: &str, stdin_is_taken: bool) -> Result<bool> {
    let mut asker = asker()?;
    say(&mut asker, question)?;
    let answer = answer(stdin_is_taken)?;
    // Where nobody has ended the line of the question, it ends here.
    if !answer.ends_with('\n') {
        say(&mut asker, b"\n")?;
    }
    let goes_on = is_yes(&answer);
    if !goes_on {
        say(&mut asker, refused.as_bytes())?;
    }
    Ok(goes_on)
}

/// How a change ends that the answer has refused.
pub fn refused(global: &GlobalArgs) -> Result<Exit> {
    let report = Report { unmatched: true, ..Report::default() };
    if global.json {
        Records::new(global).write(&mut sheaf_cli::output::stdout(), &report.record(&Nobody))?;
    }
    Ok(report.exit())
}

/// Where the question goes: to who answers, also where standard error is kept in a file.
fn asker() -> Result<Box<dyn Write>> {
    if stdin().is_terminal() && !stderr().is_terminal() {
        let terminal = OpenOptions::new().write(true).open(TERMINAL).context(TERMINAL)?;
        return Ok(Box::new(terminal));
    }
    Ok(Box::new(stderr()))
}

/// A question that nobody sees is not asked, whatever the reason: this is no end of a reader.
fn say(asker: &mut dyn Write, text: &[u8]) -> Result<()> {
    asker.write_all(text).map_err(|error| anyhow!("cannot ask, so nothing was changed: {error}"))
}

/// The line that answers.
fn answer(stdin_is_taken: bool) -> Result<String> {
    let mut line = String::new();
    if stdin_is_taken {
        let terminal =
            File::open(TERMINAL).context("-i needs a terminal, where standard input is written")?;
        BufReader::new(terminal).read_line(&mut line)?;
    } else {
        stdin().lock().read_line(&mut line)?;
    }
    Ok(line)
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_yes_is_yes() {
        assert!(["y\n", "Y\r\n", " yes \n", "YES"].into_iter().all(is_yes));
        assert!(!["", "\n", "n\n", "yy\n", "ye\n", "y e s\n", "j\n"].into_iter().any(is_yes));
    }
}
