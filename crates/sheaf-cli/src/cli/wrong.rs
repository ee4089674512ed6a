//! What is said of a command line that is wrong.
use super::{CommandLine, DESTROYERS, LISTS};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use std::ffi::OsString;

/// What is said of programs.
const NO_PROGRAMS: &str = "sheaf works on files and runs no programs on hosts";

/// Commands that other tools have: what does it here, or that nothing does.
pub const ELSEWHERE: [(&str, &str); 45] = [
    (
        "append",
        "sheaf write --append writes at the end of files (--create makes those that are not there)",
    ),
    ("awk", "sheaf read -a sum --column N combines columns, and sheaf cat prints files for awk"),
    ("copy", "sheaf cp copies to hosts and from hosts"),
    ("df", "sheaf stat -f shows the free space of file systems"),
    ("diff", "sheaf read -a classes and sheaf sha show who has what"),
    ("echo", "sheaf write --data TEXT writes a text into files"),
    ("edit", "sheaf cp copies a file here and back, sheaf write replaces it"),
    ("exec", NO_PROGRAMS),
    ("export", "sheaf trace export writes a trace in another form"),
    (
        "find",
        "sheaf archive find :/DIR -name PATTERN searches directories of hosts, sheaf ls -R lists \
         them, and globs are expanded on hosts",
    ),
    ("get", "sheaf cp HOSTSET:PATH DEST copies from hosts to here"),
    ("groups", "sheaf hosts --list lists the groups of hosts"),
    (
        "head",
        "sheaf grep -m N '' prints the first lines, sheaf read -a classes --count N the first \
         bytes",
    ),
    ("less", "sheaf cat prints files, also into less"),
    ("list", "sheaf ls lists directories"),
    ("md5sum", "sheaf sha prints sha256, sha512 and blake3"),
    ("mv", "mv renames files of hosts in a mounted view; see sheaf mount --help"),
    ("nodeset", "sheaf hosts computes with host sets, as nodeset does"),
    ("ps", "sheaf works on files; sheaf grep . '/proc/[0-9]*/comm' searches those of processes"),
    ("put", "sheaf cp SRC HOSTSET:DEST copies from here to hosts"),
    ("record", "sheaf trace record -- COMMAND records the I/O of a program"),
    ("recover", "sheaf trace recover makes a whole trace of one whose recorder was killed"),
    ("replay", "sheaf trace replay does the operations of a trace again"),
    ("report", "sheaf trace report tells what a trace shows"),
    ("rmdir", "sheaf rm -d removes empty directories"),
    ("rsync", "sheaf cp -a copies directories to hosts and from hosts"),
    ("run", NO_PROGRAMS),
    ("scp", "sheaf cp copies to hosts and from hosts"),
    ("sed", "sheaf grep prints lines, and sheaf write replaces files"),
    ("service", NO_PROGRAMS),
    ("sha256sum", "sheaf sha prints and checks the same digests"),
    ("snapshot", "sheaf trace snapshot has a flight recorder store what it has in memory"),
    ("sort", "sheaf cat and sheaf grep print lines, for sort to read"),
    (
        "ssh",
        "sheaf works on files and runs no programs on hosts; -w HOSTSET reaches hosts over ssh",
    ),
    ("start", "sheaf up starts a session"),
    ("stop", "sheaf down ends a session"),
    ("sync", "see sheaf cp --help for copies to and from hosts"),
    ("systemctl", NO_PROGRAMS),
    (
        "tail",
        "sheaf cat, sheaf grep and sheaf read --offset read files; tail follows them in a mounted \
         view: see sheaf mount --help",
    ),
    ("touch", "sheaf truncate -s +0 makes files that are not there, and leaves others as they are"),
    ("uptime", "sheaf read -a lines /proc/uptime has the seconds; sheaf runs no programs on hosts"),
    ("version", "sheaf --version prints it"),
    ("vi", "sheaf cp copies a file here and back, sheaf write replaces it"),
    ("wc", "sheaf grep -c '' counts lines, and sheaf stat -c %s tells bytes"),
    ("zgrep", "sheaf grep -z searches compressed files"),
];

/// Options that a command has not, though what they are for is said elsewhere.
const SAID_ELSEWHERE: [(&str, &str, &str); 2] = [
    (
        "serve",
        "--export",
        "what hosts serve is said where the session is started: sheaf up --export PATH, or export \
         = \"PATH\" in sheaf.toml;",
    ),
    ("serve", "--session", "--join HOST:PORT says which session it is;"),
];

/// Options whose values are hosts.
const HOST_OPTIONS: [&str; 4] = ["-w", "--hosts", "-x", "--exclude-hosts"];

/// An error of clap on one line, with where to read on. `words` are those of the command line.
pub fn told<C: CommandLine>(error: &clap::Error, words: &[OsString]) -> String {
    let all = C::command();
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let command = command_in(&all, words);
    if let Some(told) = C::advice(error, &command, words) {
        return format!("{told}; see sheaf {command}--help");
    }
    match error.kind() {
        ErrorKind::UnknownArgument => {
            if let Some(option) = text(ContextKind::InvalidArg).filter(|word| word.starts_with('-'))
            {
                let command = command_of(&all, error);
                if let Some(hint) = greps_own(option, words).filter(|_| command == ["grep"]) {
                    return format!("grep has no option {option}; {hint} see sheaf grep --help");
                }
                let is_it = |said: &&(&str, &str, &str)| command == [said.0] && option == said.1;
                if let Some((name, _, hint)) = SAID_ELSEWHERE.iter().find(is_it) {
                    return format!(
                        "{name} has no option {option}; {hint} see sheaf {name} --help"
                    );
                }
                if let Some(long) = global_of(&all, option).filter(|_| !command.is_empty()) {
                    let name = command.join(" ");
                    return format!(
                        "{name} has no option {option}; write {long}, or {option} before {name}; see \
                         sheaf {name} --help"
                    );
                }
                let whole = abbreviated(&all, &command, option);
                let near = text(ContextKind::SuggestedArg).filter(|near| is_near(option, near));
                return unknown_option(option, whole.as_deref().or(near), &command);
            }
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let above = command_of(&all, error);
            let there = ELSEWHERE.iter().find(|(name, _)| above.is_empty() && *name == word);
            if let Some((_, there)) = there {
                return format!("there is no command {word}: {there}");
            }
            if let Some(hosts) = parted_hosts(&all, words, word).filter(|_| above.is_empty()) {
                return format!("there is no command {word}; hosts are joined by commas: {hosts}");
            }
            let has_hosts = words.iter().any(|word| HOST_OPTIONS.iter().any(|name| word == name));
            let has_guess = error.get(ContextKind::SuggestedSubcommand).is_some();
            if above.is_empty() && has_hosts && !has_guess {
                return format!("there is no command {word}: {NO_PROGRAMS}; see sheaf help");
            }
            let help = [&["sheaf help".to_owned()], &above[..]].concat().join(" ");
            return format!("{}; see {help}", one_line(&error.render().to_string()));
        }
        ErrorKind::MissingRequiredArgument => {
            let command = command_of(&all, error);
            let mut line = one_line(&error.render().to_string());
            if command == ["cp"] && !line.contains("<DEST>") {
                // Of two words that are needed, the only one that is there is the first.
                line = line.replace("<SRC>...", "<DEST>");
            }
            return format!(
                "{line}; see sheaf {}--help",
                command.join(" ") + if command.is_empty() { "" } else { " " }
            );
        }
        _ => {}
    }
    let line = one_line(&error.render().to_string());
    let line = line.replace("invalid digit found in string", "it has to be a number");
    let mark = if line.ends_with('?') { "" } else { ";" };
    format!("{line}{mark} see sheaf {command}--help")
}

/// What does here what an option of GNU grep does that there is not.
fn greps_own(option: &str, words: &[OsString]) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match option.trim_start_matches('-') {
        "P" | "G" | "perl-regexp" | "basic-regexp" => {
            Some("patterns are those of grep -E;".to_owned())
        }
        // Only the first digit is told.
        digit if is_number(digit) => {
            let numbers = words.iter().filter_map(|word| word.to_str()?.strip_prefix('-'));
            let number =
                numbers.filter(|text| is_number(text)).find(|text| text.starts_with(digit));
            Some(format!("did you mean -C {}?", number.unwrap_or(digit)))
        }
        _ => None,
    }
}

/// The command that these words are for, with a blank behind it.
pub(super) fn command_in(command: &Command, words: &[OsString]) -> String {
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
    let found = words.find_map(|word| command.find_subcommand(word));
    let below = found.and_then(|found| found.find_subcommand(words.next()?));
    [found, below].into_iter().flatten().map(|command| format!("{} ", command.get_name())).collect()
}

/// `-w h1,h2` for `-w h1 h2 cat`, where `word` is the first that was taken for a command.
fn parted_hosts(commands: &Command, words: &[OsString], word: &str) -> Option<String> {
    let is_command = |word: &str| commands.find_subcommand(word).is_some();
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let at =
        words.windows(3).position(|three| HOST_OPTIONS.contains(&three[0]) && three[2] == word)?;
    let end = at + words[at..].iter().position(|word| is_command(word))?;
    let hosts = &words[at + 1..end];
    // Names of hosts have a digit or a dot, or are a set of them; `-w h1 systemctl status` has none.
    let is_host = |word: &&str| word.contains(|c: char| c.is_ascii_digit() || "@[.".contains(c));
    let plain = hosts.iter().all(|word| !word.starts_with('-')) && hosts[1..].iter().all(is_host);
    plain.then(|| format!("{} {}", words[at], hosts.join(",")))
}

/// The long name of a global option, of which a command has not the letter.
fn global_of(command: &Command, option: &str) -> Option<String> {
    let letter = option.strip_prefix('-').and_then(|rest| rest.chars().next())?;
    let is_global = |arg: &&Arg| arg.is_global_set() || LISTS.contains(&arg.get_id().as_str());
    let mut globals = command.get_arguments().filter(is_global);
    let found = globals.find(|arg| arg.get_short() == Some(letter))?;
    Some(format!("--{}", found.get_long()?))
}

/// The only option of a command, or of every command, that begins as `option` does.
fn abbreviated(all: &Command, command: &[String], option: &str) -> Option<String> {
    const LETTERS_MIN: usize = 3;
    let start = option.strip_prefix("--").filter(|start| start.len() >= LETTERS_MIN)?;
    let own = command.iter().try_fold(all, |above, name| above.find_subcommand(name))?;
    let shown = own.get_arguments().chain(all.get_arguments()).filter(|arg| !arg.is_hide_set());
    let mut names: Vec<&str> = shown.filter_map(Arg::get_long).collect();
    names.retain(|name| name.starts_with(start));
    names.sort_unstable();
    names.dedup();
    match names[..] {
        [name] => Some(format!("--{name}")),
        _ => None,
    }
}

/// Whether a guess is near enough to what was written to be of use.
pub fn is_near(word: &str, guess: &str) -> bool {
    let name = |word: &str| word.trim_start_matches('-').to_owned();
    sheaf_session::config::nearest(&name(word), [name(guess).as_str()]).is_some()
}

/// `grep has no option -P; see sheaf grep --help`. Of a command that destroys no option is guessed.
fn unknown_option(option: &str, near: Option<&str>, command: &[String]) -> String {
    let destroys = command.first().is_some_and(|name| DESTROYERS.contains(&name.as_str()));
    let near =
        near.filter(|_| !destroys).map(|near| format!(" did you mean {near}?")).unwrap_or_default();
    match command {
        [] => format!("sheaf has no option {option};{near} see sheaf --help"),
        names => {
            let names = names.join(" ");
            format!("{names} has no option {option};{near} see sheaf {names} --help")
        }
    }
}

/// The command that an error is about, by the names that its usage begins with.
fn command_of(mut command: &Command, error: &clap::Error) -> Vec<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return Vec::new();
    };
    let (usage, mut names) = (usage.to_string(), Vec::new());
    for word in usage.split_whitespace().skip_while(|word| *word != "sheaf").skip(1) {
        let Some(found) = command.find_subcommand(word) else { break };
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
