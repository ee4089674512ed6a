//! The command line of a companion as JSON, from which `sheaf` makes completions and manual pages.
use super::{COMPANIONS, Companion};
use anyhow::{Context, Result};
use clap::builder::{PossibleValue, PossibleValuesParser, StyledStr, ValueRange};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// The word with which a companion prints its description.
pub const DESCRIBE_WORD: &str = "--describe";

#[derive(Serialize, Deserialize)]
struct CommandText {
    name: String,
    about: Option<String>,
    long_about: Option<String>,
    after_help: Option<String>,
    aliases: Vec<String>,
    visible_aliases: Vec<String>,
    is_hidden: bool,
    disables_help: bool,
    wants_command: bool,
    usage: Option<String>,
    args: Vec<ArgText>,
    commands: Vec<CommandText>,
}

#[derive(Serialize, Deserialize)]
struct ArgText {
    id: String,
    short: Option<char>,
    long: Option<String>,
    aliases: Vec<String>,
    visible_aliases: Vec<String>,
    short_aliases: Vec<char>,
    visible_short_aliases: Vec<char>,
    help: Option<String>,
    long_help: Option<String>,
    heading: Option<String>,
    value_names: Vec<String>,
    values_min: usize,
    values_max: usize,
    delimiter: Option<char>,
    choices: Vec<(String, Option<String>, bool)>,
    defaults: Vec<String>,
    env: Option<String>,
    hint: Option<String>,
    action: ActionText,
    is_required: bool,
    is_global: bool,
    is_last: bool,
    is_trailing: bool,
    is_hidden: bool,
    hides: [bool; 4],
    wants_equals: bool,
    conflicts: Vec<String>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum ActionText {
    Set,
    Append,
    SetTrue,
    SetFalse,
    Count,
    Help,
}

fn text(styled: Option<&StyledStr>) -> Option<String> {
    styled.map(ToString::to_string)
}

fn owned<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

impl From<&Command> for CommandText {
    fn from(command: &Command) -> Self {
        let aliases = command
            .get_all_aliases()
            .filter(|alias| !command.get_visible_aliases().any(|visible| visible == *alias));
        Self {
            name: command.get_name().to_owned(),
            about: text(command.get_about()),
            long_about: text(command.get_long_about()),
            after_help: text(command.get_after_help()),
            aliases: owned(aliases),
            visible_aliases: owned(command.get_visible_aliases()),
            is_hidden: command.is_hide_set(),
            disables_help: command.is_disable_help_flag_set(),
            wants_command: command.is_subcommand_required_set(),
            usage: text(command.get_overridden_usage()),
            args: command
                .get_arguments()
                .map(|arg| {
                    let others = command.get_arg_conflicts_with(arg);
                    let conflicts = others.iter().map(|other| other.get_id().to_string()).collect();
                    ArgText { conflicts, ..ArgText::from(arg) }
                })
                .collect(),
            commands: command.get_subcommands().map(Self::from).collect(),
        }
    }
}

impl From<&Arg> for ArgText {
    fn from(arg: &Arg) -> Self {
        let action = match arg.get_action() {
            ArgAction::Append => ActionText::Append,
            ArgAction::SetTrue => ActionText::SetTrue,
            ArgAction::SetFalse => ActionText::SetFalse,
            ArgAction::Count => ActionText::Count,
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong => ActionText::Help,
            _ => ActionText::Set,
        };
        let takes_values = arg.get_action().takes_values();
        let usual = ValueRange::SINGLE;
        let counts = arg.get_num_args().unwrap_or(usual);
        let choices = arg.get_possible_values().into_iter().map(|value| {
            (value.get_name().to_owned(), text(value.get_help()), value.is_hide_set())
        });
        let visible = arg.get_visible_aliases().unwrap_or_default();
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let visible_short = arg.get_visible_short_aliases().unwrap_or_default();
        let short = arg.get_all_short_aliases().unwrap_or_default();
        let names = arg.get_value_names().unwrap_or_default();
        Self {
            id: arg.get_id().to_string(),
            short: arg.get_short(),
            long: arg.get_long().map(str::to_owned),
            aliases: owned(aliases.into_iter().filter(|alias| !visible.contains(alias))),
            visible_aliases: owned(visible),
            short_aliases: short.into_iter().filter(|c| !visible_short.contains(c)).collect(),
            visible_short_aliases: visible_short,
            help: text(arg.get_help()),
            long_help: text(arg.get_long_help()),
            heading: arg.get_help_heading().map(str::to_owned),
            value_names: names.iter().map(ToString::to_string).collect(),
            values_min: counts.min_values(),
            values_max: counts.max_values(),
            delimiter: arg.get_value_delimiter(),
            choices: if takes_values { choices.collect() } else { Vec::new() },
            defaults: arg
                .get_default_values()
                .iter()
                .map(|value| value.to_string_lossy().into_owned())
                .collect(),
            env: arg.get_env().map(|name| name.to_string_lossy().into_owned()),
            hint: takes_values.then(|| format!("{:?}", arg.get_value_hint())),
            action,
            is_required: arg.is_required_set(),
            is_global: arg.is_global_set(),
            is_last: arg.is_last_set(),
            is_trailing: arg.is_trailing_var_arg_set(),
            is_hidden: arg.is_hide_set(),
            hides: [
                arg.is_hide_default_value_set(),
                arg.is_hide_possible_values_set(),
                arg.is_hide_env_set(),
                arg.is_hide_env_values_set(),
            ],
            wants_equals: arg.is_require_equals_set(),
            // Known to the command.
            conflicts: Vec::new(),
        }
    }
}

/// Clap keeps names for the life of the program; one description is read in it.
fn kept(text: &str) -> &'static str {
    String::from(text).leak()
}

fn kept_all(words: &[String]) -> Vec<&'static str> {
    words.iter().map(|word| kept(word)).collect()
}

impl CommandText {
    fn command(&self) -> Command {
        let mut command = Command::new(kept(&self.name))
            .aliases(kept_all(&self.aliases))
            .visible_aliases(kept_all(&self.visible_aliases))
            .hide(self.is_hidden)
            .disable_help_flag(self.disables_help)
            .subcommand_required(self.wants_command)
            .args(self.args.iter().map(ArgText::arg))
            .subcommands(self.commands.iter().map(Self::command));
        if let Some(usage) = &self.usage {
            command = command.override_usage(kept(usage));
        }
        if let Some(about) = &self.about {
            command = command.about(kept(about));
        }
        if let Some(about) = &self.long_about {
            command = command.long_about(kept(about));
        }
        if let Some(help) = &self.after_help {
            command = command.after_help(kept(help));
        }
        command
    }
}

impl ArgText {
    fn arg(&self) -> Arg {
        let action = match self.action {
            ActionText::Set => ArgAction::Set,
            ActionText::Append => ArgAction::Append,
            ActionText::SetTrue => ArgAction::SetTrue,
            ActionText::SetFalse => ArgAction::SetFalse,
            ActionText::Count => ArgAction::Count,
            ActionText::Help => ArgAction::Help,
        };
        let takes_values = action.takes_values();
        let mut arg = Arg::new(kept(&self.id))
            .action(action)
            .short(self.short)
            .long(self.long.as_deref().map(kept))
            .aliases(kept_all(&self.aliases))
            .visible_aliases(kept_all(&self.visible_aliases))
            .short_aliases(self.short_aliases.clone())
            .visible_short_aliases(self.visible_short_aliases.clone())
            .help(self.help.as_deref().map(kept))
            .long_help(self.long_help.as_deref().map(kept))
            .required(self.is_required)
            .global(self.is_global)
            .last(self.is_last)
            .trailing_var_arg(self.is_trailing)
            .hide(self.is_hidden)
            .hide_default_value(self.hides[0])
            .hide_possible_values(self.hides[1])
            .hide_env(self.hides[2])
            .hide_env_values(self.hides[3])
            .require_equals(self.wants_equals)
            .conflicts_with_all(kept_all(&self.conflicts));
        if let Some(heading) = &self.heading {
            arg = arg.help_heading(Some(kept(heading)));
        }
        if let Some(name) = &self.env {
            arg = arg.env(kept(name));
        }
        if !takes_values {
            return arg;
        }
        arg = arg.num_args(self.values_min..=self.values_max).value_delimiter(self.delimiter);
        if !self.value_names.is_empty() {
            arg = arg.value_names(kept_all(&self.value_names));
        }
        if !self.defaults.is_empty() {
            arg = arg.default_values(kept_all(&self.defaults));
        }
        if let Some(hint) = self.hint.as_ref().and_then(|hint| hint.parse::<ValueHint>().ok()) {
            arg = arg.value_hint(hint);
        }
        if !self.choices.is_empty() {
            let values = self.choices.iter().map(|(name, help, is_hidden)| {
                PossibleValue::new(kept(name)).help(help.as_deref().map(kept)).hide(*is_hidden)
            });
            arg = arg.value_parser(PossibleValuesParser::new(values));
        }
        arg
    }
}

/// The description of a companion's command, which is `command` below the root.
///
/// # Panics
/// When there is no such command.
#[must_use]
pub fn description(root: &Command, command: &str) -> String {
    let found = root.find_subcommand(command).expect("a companion has its command");
    serde_json::to_string(&CommandText::from(found)).unwrap_or_default()
}

/// `root` with the commands of the companions that are installed, without those of the others, and the
/// programs that are not installed.
///
/// # Errors
/// When one cannot be run, or what it prints is no description.
pub fn with_companions(mut root: Command) -> Result<(Command, Vec<&'static Companion>)> {
    let mut lacking = Vec::new();
    for companion in COMPANIONS {
        if companion.installed()?.is_none() {
            lacking.push(companion);
            root = in_place(root, companion, |command| command.hide(true));
            continue;
        }
        let printed = companion.output(&[DESCRIBE_WORD])?;
        let read: CommandText = serde_json::from_slice(&printed)
            .with_context(|| format!("{} does not describe itself", companion.program))?;
        root = in_place(root, companion, |_| read.command());
    }
    Ok((root, lacking))
}

/// `root` with the command of a companion changed, in its place among the others.
fn in_place(root: Command, companion: &Companion, change: impl Fn(Command) -> Command) -> Command {
    root.mut_subcommands(|command| match command.get_name() == companion.command {
        true => change(command),
        false => command,
    })
}

/// Whether a command is the same to its reader when it was described and read again: for tests of
/// companions.
///
/// # Panics
/// When it is not.
pub fn check_description(root: &Command, command: &str) {
    let text = description(root, command);
    let read: CommandText = serde_json::from_str(&text).expect("a description can be read");
    let (mut was, mut is) =
        (root.find_subcommand(command).expect("it is there").clone(), read.command());
    check_same(&mut was, &mut is);
}

fn check_same(was: &mut Command, is: &mut Command) {
    // The order in which clap shows options is its own.
    let lines = |command: &mut Command| {
        let help = command.render_long_help().to_string();
        let mut lines: Vec<String> = help.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines(was), lines(is));
    let names: Vec<String> = was.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names.iter().filter(|name| *name != "help") {
        let find = |command: &mut Command| {
            command.find_subcommand(name).cloned().expect("it has the same commands")
        };
        check_same(&mut find(was), &mut find(is));
    }
}
