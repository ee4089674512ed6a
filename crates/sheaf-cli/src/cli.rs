//! The command line: how global options and those of a command share letters, and what is said of
//! one that is wrong.
pub mod wrong;

use crate::exit::{Exit, Stop};
use crate::options::GlobalArgs;
use clap::builder::styling::{AnsiColor, Styles};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use std::ffi::OsString;

/// Help is laid out for this many columns, or fewer on a narrower terminal.
pub const HELP_COLUMNS_MAX: usize = 80;

pub const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Commands that are never suggested in place of a mistyped one, because they destroy something.
pub const DESTROYERS: &[&str] = &["cp", "write", "chmod", "chown", "truncate", "rm", "ln", "down"];

/// A command line that a program reads.
pub trait CommandLine: FromArgMatches {
    /// The command as it is derived, before [`decorate`].
    fn command() -> Command;

    /// The global options.
    fn global(&mut self) -> &mut GlobalArgs;

    /// Better words for an error below this command (its names, each with a blank behind it).
    fn advice(error: &clap::Error, command: &str, words: &[OsString]) -> Option<String> {
        let _ = (error, command, words);
        None
    }
}

/// The whole command line, for parsing, completions and man pages.
///
/// An option that is given again counts as it was given last.
///
/// A command's own short options win: where a command uses a letter of a global option (`grep -w`,
/// `ls -h`), the global one keeps only its long name there, and its letter before the command's
/// name.
#[must_use]
pub fn decorate(command: Command) -> Command {
    let mut command = command.args_override_self(true);
    let globals: Vec<Arg> =
        command.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let lists: Vec<Arg> = command
        .get_arguments()
        .filter(|arg| LISTS.contains(&arg.get_id().as_str()))
        .cloned()
        .collect();
    for sub in command.get_subcommands_mut() {
        yield_shorts(sub, &globals, &lists);
    }
    command
}

/// Parses words, of which the first is the program's name.
///
/// # Errors
/// What clap says of them, without guesses that destroy something.
pub fn try_parse<C: CommandLine>(
    words: impl IntoIterator<Item = OsString>,
) -> Result<C, clap::Error> {
    let parsed = C::command().try_get_matches_from(words).and_then(|matches| {
        let mut cli = C::from_arg_matches(&matches)?;
        gather(cli.global(), &matches);
        Ok(cli)
    });
    parsed.map_err(without_danger)
}

/// Options of every command whose values add up, before its name and behind it. (Of a global option
/// clap keeps those behind only: a host that was left out before the name would not be.)
const LISTS: [&str; 2] = ["on_hosts", "exclude_hosts"];

/// Letters that mean something else to whoever knows the tool of that name: a command takes none of
/// them for a global option.
const FOREIGN_SHORTS: [(&str, &str); 3] = [("chmod", "wx"), ("cp", "lx"), ("ls", "wx")];

/// Everything that was given for the options of [`LISTS`], wherever it stands.
fn gather(global: &mut GlobalArgs, matches: &ArgMatches) {
    let mut below = matches.subcommand();
    while let Some((_, matches)) = below {
        let mut given = LISTS.map(|id| matches.try_get_many::<String>(id).ok().flatten());
        global.on_hosts.extend(given[0].take().into_iter().flatten().cloned());
        global.exclude_hosts.extend(given[1].take().into_iter().flatten().cloned());
        below = matches.subcommand();
    }
}

/// Gives `command`, and the commands below it, the long-only form of what its own options hide.
fn yield_shorts(command: &mut Command, globals: &[Arg], lists: &[Arg]) {
    let mut own: Vec<char> = command.get_arguments().filter_map(Arg::get_short).collect();
    let known = FOREIGN_SHORTS.iter().filter(|(name, _)| *name == command.get_name());
    own.extend(known.flat_map(|(_, letters)| letters.chars()));
    let mut changed = std::mem::take(command);
    for global in globals {
        let hidden = global.get_short().is_some_and(|short| own.contains(&short));
        let redefined = changed.get_arguments().any(|arg| arg.get_id() == global.get_id());
        if hidden && !redefined {
            changed = changed.arg(global.clone().short(None));
        }
    }
    for list in lists {
        let hidden = list.get_short().is_some_and(|short| own.contains(&short));
        changed = changed.arg(if hidden { list.clone().short(None) } else { list.clone() });
    }
    if own.contains(&'h') {
        let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print help");
        changed = changed.disable_help_flag(true).arg(help);
    }
    *command = changed;
    for sub in command.get_subcommands_mut() {
        yield_shorts(sub, globals, lists);
    }
}

/// An error of clap whose guess at what was meant is near, and nothing that destroys.
fn without_danger(mut error: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => String::new(),
    };
    if let Some(ContextValue::Strings(mut names)) = error.remove(kind) {
        names.retain(|name| !DESTROYERS.contains(&name.as_str()) && wrong::is_near(&word, name));
        if !names.is_empty() {
            error.insert(kind, ContextValue::Strings(names));
        }
    }
    error
}

/// The commands below the one that these words are for, without the options of every command.
fn commands_below(all: &Command, words: &[OsString]) -> Option<String> {
    let names = wrong::command_in(all, words);
    let command = names.split_whitespace().try_fold(all, |above, name| above.find_subcommand(name));
    let command = command.filter(|command| !names.is_empty() && command.has_subcommands())?;
    let below = || command.get_subcommands().filter(|below| !below.is_hide_set());
    let width = below().map(|below| below.get_name().len()).max()?;
    let lines: String = below()
        .map(|below| {
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            format!("  {:width$}  {about}\n", below.get_name())
        })
        .collect();
    Some(format!(
        "Usage: sheaf {names}[OPTIONS] <COMMAND>\n\nCommands:\n{lines}\nAll options: sheaf \
         {names}--help"
    ))
}

/// Ends the program with what clap has to say: help as it is, an error on one line.
pub fn end<C: CommandLine>(error: &clap::Error) -> ! {
    use clap::error::ErrorKind;
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let words: Vec<OsString> = std::env::args_os().collect();
        match commands_below(&C::command(), &words) {
            Some(text) => crate::output::tell(text),
            None => error.exit(),
        }
        std::process::exit(Exit::Usage as i32);
    }
    let outcome = match error.use_stderr() {
        true => {
            let words = std::env::args_os().collect::<Vec<_>>();
            Err(Stop::usage(wrong::told::<C>(error, &words)).into())
        }
        false => {
            crate::output::print_help(error);
            Ok(Exit::Success)
        }
    };
    // What could not be parsed may have asked for JSON all the same.
    let as_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    std::process::exit(crate::output::conclude(outcome, as_json) as i32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_keeps_its_own_short_options() {
        let context = Arg::new("context").short('C').value_name("N");
        let human = Arg::new("human").short('h').action(ArgAction::SetTrue);
        let mut sub = Command::new("sub").arg(context).arg(human);
        let cluster = Arg::new("cluster").short('C').long("cluster").global(true);
        yield_shorts(&mut sub, std::slice::from_ref(&cluster), &[]);
        let root = Command::new("root").arg(cluster).subcommand(sub);
        let words = ["root", "sub", "-C", "3", "-h", "--cluster", "lab"];
        let matches = root.try_get_matches_from(words).unwrap();
        assert_eq!(matches.get_one::<String>("cluster").unwrap(), "lab");
        let sub = matches.subcommand_matches("sub").unwrap();
        assert_eq!(
            (sub.get_one::<String>("context").unwrap().as_str(), sub.get_flag("human")),
            ("3", true)
        );
    }
}
