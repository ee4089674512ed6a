//! What is said of a command line that is wrong.
use crate::cmd;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands that other tools have: what does it here, or that nothing does.
pub const ELSEWHERE: [(&str, &str); 9] = [
    ("diff", "sheaf read -a classes and sheaf sha show who has what"),
    ("exec", "sheaf works on files and runs no programs on hosts"),
    ("md5sum", "sheaf sha prints sha256, sha512 and blake3"),
    ("mv", "files on hosts cannot be renamed yet"),
    ("run", "sheaf works on files and runs no programs on hosts"),
    ("sha256sum", "sheaf sha prints and checks the same digests"),
    ("sync", "see sheaf cp --help for copies to and from hosts"),
    ("tail", "sheaf cat, sheaf grep and sheaf read --offset read files"),
    ("head", "sheaf read --count reads the beginning of files"),
];

/// An error of clap on one line, with where to read on.
pub fn told(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            if let Some(option) = text(ContextKind::InvalidArg).filter(|word| word.starts_with('-')) {
                return unknown_option(option, text(ContextKind::SuggestedArg), &command_of(error));
            }
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let above = command_of(error);
            let there = ELSEWHERE.iter().find(|(name, _)| above.is_empty() && *name == word);
            if let Some((_, there)) = there {
                return format!("there is no command {word}: {there}");
            }
            let help = [&["sheaf help".to_owned()], &above[..]].concat().join(" ");
            return format!("{}; see {help}", one_line(&error.render().to_string()));
        }
        _ => {}
    }
    one_line(&error.render().to_string())
}

/// `grep has no option -P; see sheaf grep --help`. Of a command that destroys no option is guessed.
fn unknown_option(option: &str, near: Option<&str>, command: &[String]) -> String {
    let destroys = command.first().is_some_and(|name| cmd::DESTROYERS.contains(&name.as_str()));
    let near = near.filter(|_| !destroys).map(|near| format!(" did you mean {near}?")).unwrap_or_default();
    match command {
        [] => format!("sheaf has no option {option};{near} see sheaf --help"),
        names => {
            let names = names.join(" ");
            format!("{names} has no option {option};{near} see sheaf {names} --help")
        }
    }
}

/// The command that an error is about, by the names that its usage begins with.
fn command_of(error: &clap::Error) -> Vec<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return Vec::new() };
    let (usage, mut names) = (usage.to_string(), Vec::new());
    let mut command = super::command();
    for word in usage.split_whitespace().skip_while(|word| *word != "sheaf").skip(1) {
        let Some(found) = command.find_subcommand(word).cloned() else { break };
        names.push(word.to_owned());
        command = found;
    }
    names
}

/// What a message of clap says of the error and how to mend it, without the repeated usage.
fn one_line(message: &str) -> String {
    let mut paragraphs =
        message.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let error = paragraphs.next().unwrap_or_default();
    let mut line = error.strip_prefix("error: ").unwrap_or(&error).to_owned();
    for tip in paragraphs.filter(|text| text.starts_with("tip: ")) {
        line = format!("{line}; {}", tip.replace("tip: ", ""));
    }
    line
}
