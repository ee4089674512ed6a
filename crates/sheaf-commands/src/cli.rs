//! The command line of `sheaf`: the list of commands, and how help shows it.
use crate::cmd;
use clap::builder::StyledStr;
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use sheaf_cli::cli::{CommandLine, HELP_COLUMNS_MAX, STYLES, decorate, end, try_parse};
use sheaf_cli::exit::{CODES, Exit};
use sheaf_cli::options::GlobalArgs;
use std::ffi::OsString;
use std::io::Write as _;

/// One program for the files of ten thousand machines.
///
/// Sheaf runs one operation on the same file of many hosts and combines the
/// answers on the way back, so that a thousand hosts read as one.
///
/// An ADDR is HOSTSET:PATH, as in "n[1-64]:/etc/hosts". @all:PATH means every
/// host of the cluster. :PATH and PATH alone mean the same, but commands that
/// change files refuse them without -w. A host set is written as for
/// ClusterShell's nodeset (n[1-9/2], @group, and the operators , ! & ^).
/// PATH is absolute.
/// Where no option and no configuration says what the hosts are, PATH alone is
/// one of this machine and may start at the working directory; @all:PATH and
/// :PATH are refused. Globs in PATH are expanded on the hosts.
///
/// Hosts are those of a cluster in sheaf.toml, or without any file those of -w,
/// over ssh. Where -w, -x or -l mean something else to a command or to the tool
/// of its name (grep, ls, cp, …), write --hosts, --exclude-hosts and --user, or
/// the letter before the command.
#[derive(Debug, Parser)]
#[command(name = "sheaf", version, styles = STYLES, max_term_width = HELP_COLUMNS_MAX)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
#[command(verbatim_doc_comment, after_help = after_help())]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: cmd::Command,
}

fn after_help() -> String {
    let mut text = "\
Examples:
  sheaf --embedded 64 grep udp /etc/services
  sheaf -w 'n[1-16]' -x n3 -l admin --sudo grep -c . /var/log/auth.log
  sheaf -C lab ls -l 'n[1-16]:/var/log'
  sheaf hosts --fold n1 n2 n3

Exit status:\n"
        .to_owned();
    for (exit, meaning) in CODES {
        text += &format!("  {:<4} {meaning}\n", *exit as u8);
    }
    text + "Failures go before matches: a grep that matched on some hosts while others\nfailed ends with 4, also with -q, -l and -c."
}

impl CommandLine for Cli {
    fn command() -> clap::Command {
        let command = <Self as CommandFactory>::command();
        let template = template(&command);
        decorate(command.help_template(template))
    }

    fn global(&mut self) -> &mut GlobalArgs {
        &mut self.global
    }
}

/// The whole command line, for parsing, completions and man pages.
pub fn command() -> clap::Command {
    <Cli as CommandLine>::command()
}

/// The layout of the top-level help: the commands under the headings of [`cmd::HEADINGS`].
fn template(command: &clap::Command) -> StyledStr {
    let (header, literal) = (STYLES.get_header(), STYLES.get_literal());
    let mut out = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in cmd::HEADINGS {
        out += &format!("\n{header}{heading}:{header:#}\n");
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            out += &format!(
                "  {literal}{name:12}{literal:#} {}\n",
                about.cloned().unwrap_or_default()
            );
        }
    }
    out += &format!("\n{header}Options of every command:{header:#}\n{{options}}{{after-help}}");
    out.into()
}

/// Parses this process's arguments, which come back beside the result; usage errors, `--help` and `--version` end it here.
pub fn parse() -> (Cli, Vec<OsString>) {
    let called: Vec<OsString> = std::env::args_os().collect();
    let words = match cmd::mount::fstab::words(&called) {
        None => called,
        Some(Ok(words)) => words,
        Some(Err(why)) => {
            sheaf_cli::output::tell(format_args!("mount.sheaf: {why}"));
            std::process::exit(Exit::Usage as i32);
        }
    };
    match &words[1.min(words.len())..] {
        [] => {
            sheaf_cli::output::tell(short_help());
            std::process::exit(Exit::Usage as i32);
        }
        [word] if word == "-h" => {
            // What is wrong with standard output is told where the program ends.
            let printed = writeln!(sheaf_cli::output::stdout(), "{}", short_help());
            let outcome = printed.map(|()| Exit::Success).map_err(Into::into);
            std::process::exit(sheaf_cli::output::conclude(outcome, false) as i32);
        }
        _ => {
            let cli = try_parse::<Cli>(words.clone()).unwrap_or_else(|error| end::<Cli>(&error));
            (cli, words)
        }
    }
}

/// What there is, on one page of a terminal.
fn short_help() -> String {
    let mut out = "\
One program for the files of ten thousand machines.

Usage: sheaf [OPTIONS] <COMMAND>

"
    .to_owned();
    for (heading, names) in cmd::HEADINGS {
        out += &format!("{:30}{}\n", format!("{heading}:"), names.join(" "));
    }
    out + "
Files are HOSTSET:PATH, as in 'n[1-64]:/etc/hosts', or PATH on every host.
  -w, --hosts HOSTSET      Work on these hosts, over ssh if no cluster has them
  -x, --exclude-hosts SET  Leave these hosts out
  -C, --cluster NAME       Work on this cluster of sheaf.toml
      --session NAME       Work on this running session (sheaf up)
      --embedded N         Work on N servers inside this process, n1 to nN
      --timeout SECONDS    Be done after this long
  -v, --verbose            Say what happens; -vv and -vvv say more

Examples:
  sheaf --embedded 64 grep udp /etc/services
  sheaf -w 'n[1-16]' cat /etc/os-release

All options: sheaf --help; of a command: sheaf help COMMAND; a tour: sheaf demo"
}

/// The arguments of `sheaf serve …` when that is the command, parsed without the others.
pub fn serve_alone(args: impl Iterator<Item = OsString>) -> Option<cmd::serve::ServeArgs> {
    let mut args = args.skip(1).peekable();
    args.next_if(|first| first == "serve")?;
    let serve = cmd::serve::ServeArgs::augment_args(clap::Command::new("sheaf serve"));
    let serve = serve.no_binary_name(true).styles(STYLES).max_term_width(HELP_COLUMNS_MAX);
    let matches = serve.try_get_matches_from(args).unwrap_or_else(|error| end::<Cli>(&error));
    Some(
        cmd::serve::ServeArgs::from_arg_matches(&matches)
            .unwrap_or_else(|error| end::<Cli>(&error)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_cli::cli::{DESTROYERS, wrong};

    #[test]
    fn command_line_is_consistent() {
        command().debug_assert();
    }

    /// Twenty-four lines of eighty columns, of commands and options that there are.
    #[test]
    fn short_help_is_one_page() {
        let (short, command) = (short_help(), command());
        assert!(short.lines().count() <= 24, "{short}");
        assert!(short.lines().all(|line| line.len() <= HELP_COLUMNS_MAX), "{short}");
        for name in command.get_subcommands().map(clap::Command::get_name) {
            assert!(short.split_whitespace().any(|word| word == name), "{name}");
        }
        let is_known = |long: &str| {
            long == "help" || command.get_arguments().any(|arg| arg.get_long() == Some(long))
        };
        for word in short.split_whitespace().filter_map(|word| word.strip_prefix("--")) {
            assert!(is_known(word.trim_end_matches(';')), "{word}");
        }
    }

    #[test]
    fn every_command_has_its_heading() {
        let mut listed: Vec<&str> =
            cmd::HEADINGS.iter().flat_map(|(_, names)| *names).copied().collect();
        listed.sort_unstable();
        let command = command();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn global_options_come_before_or_after_the_command() {
        for words in
            [["sheaf", "--embedded", "4", "ls", "/"], ["sheaf", "ls", "--embedded", "4", "/"]]
        {
            let matches = command().try_get_matches_from(words).unwrap();
            assert_eq!(Cli::from_arg_matches(&matches).unwrap().global.embedded, Some(4));
        }
    }

    #[test]
    fn hosts_that_are_given_before_and_behind_the_command_add_up() {
        let global =
            |words: &str| try_parse::<Cli>(words.split(' ').map(Into::into)).unwrap().global;
        let both =
            global("sheaf -w a,b -x c --hosts d -l admin stat /x --exclude-hosts e -w f -w g");
        assert_eq!(both.on_hosts, ["a,b", "d", "f", "g"]);
        assert_eq!(both.exclude_hosts, ["c", "e"]);
        let nested = global("sheaf -x a tree -x b show -x c --sudo --launch processes --user root");
        assert_eq!(nested.exclude_hosts, ["a", "b", "c"]);
        assert_eq!(
            (nested.sudo, nested.launch),
            (true, Some(sheaf_session::config::Launch::Processes))
        );
        for words in ["sheaf cp -x n1 :/a b", "sheaf ls -w 80 /x"] {
            assert!(try_parse::<Cli>(words.split(' ').map(Into::into)).is_err(), "{words}");
        }
        assert!(global("sheaf chmod -x :/a :/b").exclude_hosts.is_empty(), "it is a mode");
        // What grep and others have of their own is theirs.
        let grep = global("sheaf -w n1 -x n2 -l me grep -w -x -l word /x");
        assert_eq!(
            (grep.on_hosts, grep.exclude_hosts, grep.user),
            (vec!["n1".to_owned()], vec!["n2".to_owned()], Some("me".to_owned()))
        );
        let grep = global("sheaf grep --hosts n1 --exclude-hosts n2 --user me word /x");
        assert_eq!(
            (grep.on_hosts, grep.exclude_hosts, grep.user),
            (vec!["n1".to_owned()], vec!["n2".to_owned()], Some("me".to_owned()))
        );
    }

    #[test]
    fn h_of_chown_is_no_dereference() {
        for words in
            ["sheaf chown -h root :/f", "sheaf chown -Rh root :/f", "sheaf -v chown -h root :/f"]
        {
            let cli = try_parse::<Cli>(words.split(' ').map(Into::into)).unwrap();
            let cmd::Command::Chown(args) = cli.command else { panic!("{words}") };
            assert!(args.no_dereference, "{words}");
        }
        let help = try_parse::<Cli>(["sheaf", "chown", "--help"].map(Into::into)).unwrap_err();
        assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn arguments_have_names_of_their_own() {
        let command = command();
        let globals: Vec<_> =
            command.get_arguments().map(|arg| (arg.get_id(), arg.get_long())).collect();
        for sub in command.get_subcommands() {
            for arg in sub.get_arguments() {
                let same = globals.iter().find(|(id, _)| *id == arg.get_id());
                let shadowed = same.is_some_and(|(_, long)| *long != arg.get_long());
                assert!(!shadowed, "{}: {}", sub.get_name(), arg.get_id());
            }
        }
    }

    /// What clap says of these words.
    fn said(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let error = try_parse::<Cli>(words.clone()).unwrap_err();
        wrong::told::<Cli>(&error, &words)
    }

    #[test]
    fn guess_never_destroys() {
        for word in ["rn", "r", "rmm", "truncat", "writ", "chmo", "chownn", "dwn", "dow", "cpp"] {
            let said = said(&["sheaf", word, "/x"]);
            assert!(said.starts_with(&format!("unrecognized subcommand '{word}'")), "{said}");
            for name in DESTROYERS {
                assert!(!said.contains(&format!("'{name}'")), "{said}");
            }
        }
        assert!(said(&["sheaf", "stta", "/x"]).contains("'stat'"));
    }

    #[test]
    fn option_given_again_counts_as_given_last() {
        let words = [
            "sheaf",
            "--timeout",
            "1",
            "rm",
            "-f",
            "-f",
            "-rf",
            "--timeout",
            "2",
            "/x",
            "--quiet",
            "--quiet",
        ];
        let cli = try_parse::<Cli>(words.map(Into::into)).unwrap();
        assert_eq!(cli.global.timeout, Some(std::time::Duration::from_secs(2)));
        for words in [
            &["ls", "-l", "-l", "/x"][..],
            &["cp", "-r", "-r", "--bwlimit", "1", "--bwlimit", "2", "a", "@all:/b"],
            &["truncate", "-s", "1", "-s", "2", "@all:/x"],
            &["hosts", "-f", "-f", "a"],
            &["grep", "-i", "-i", "-A", "1", "-A", "2", "-e", "x", "-e", "y", "/x"],
        ] {
            let words = [&["sheaf"], words].concat();
            assert!(try_parse::<Cli>(words.iter().map(Into::into)).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn unknown_option_is_said_to_be_unknown() {
        for (words, line) in [
            (
                &["sheaf", "grep", "-P", "x", "/x"][..],
                "grep has no option -P; patterns are those of grep -E; see sheaf grep --help",
            ),
            (
                &["sheaf", "grep", "-25", "x", "/x"],
                "grep has no option -2; did you mean -C 25? see sheaf grep --help",
            ),
            (&["sheaf", "-P", "grep", "x", "/x"], "sheaf has no option -P; see sheaf --help"),
            (
                &["sheaf", "tree", "show", "-P"],
                "tree show has no option -P; see sheaf tree show --help",
            ),
            (
                &["sheaf", "grep", "--recursiv", "x", "/x"],
                "grep has no option --recursiv; did you mean --recursive? see sheaf grep --help",
            ),
            (
                &["sheaf", "--embed", "4", "ls", "/x"],
                "sheaf has no option --embed; did you mean --embedded? see sheaf --help",
            ),
            (
                &["sheaf", "ls", "-w", "4", "/x"],
                "ls has no option -w; write --hosts, or -w before ls; see sheaf ls --help",
            ),
            (
                &["sheaf", "rm", "--no-preserve", "/x"],
                "rm has no option --no-preserve; see sheaf rm --help",
            ),
        ] {
            assert_eq!(said(words), line);
        }
    }

    #[test]
    fn commands_of_other_tools_lead_to_what_there_is() {
        for (word, line) in [
            ("rmdir", "there is no command rmdir: sheaf rm -d removes empty directories"),
            (
                "diff",
                "there is no command diff: sheaf read -a classes and sheaf sha show who has what",
            ),
            ("run", "there is no command run: sheaf works on files and runs no programs on hosts"),
            (
                "mv",
                "there is no command mv: mv renames files of hosts in a mounted view; see sheaf mount --help",
            ),
            ("md5sum", "there is no command md5sum: sheaf sha prints sha256, sha512 and blake3"),
        ] {
            assert_eq!(said(&["sheaf", word, "/x"]), line);
        }
        assert!(said(&["sheaf", "config", "diff"]).ends_with("'diff'; see sheaf help config"));
        let command = command();
        for (word, _) in wrong::ELSEWHERE {
            assert!(command.find_subcommand(word).is_none(), "{word} is there");
        }
    }

    #[test]
    fn errors_of_the_command_line_are_one_line() {
        for (words, line) in [
            (
                &["sheaf", "cat"][..],
                "the following required arguments were not provided: <ADDR>...; see sheaf cat --help",
            ),
            (
                &["sheaf", "ls", "-h"],
                "the following required arguments were not provided: <ADDR>...; see sheaf ls --help",
            ),
            (
                &["sheaf", "cp"],
                "the following required arguments were not provided: <PLACE>...; see sheaf cp --help",
            ),
            (
                &["sheaf", "--embedded", "cat"],
                "invalid value 'cat' for '--embedded <N>': it has to be a number; see sheaf cat --help",
            ),
            (
                &["sheaf", "-w", "h1", "h2", "h3", "cat", "/x"],
                "there is no command h2; hosts are joined by commas: -w h1,h2,h3",
            ),
            (
                &["sheaf", "--exclude-hosts", "h1", "h2", "cat", "/x"],
                "there is no command h2; hosts are joined by commas: --exclude-hosts h1,h2",
            ),
            (
                &["sheaf", "-w", "h1", "h2"],
                "there is no command h2: sheaf works on files and runs no programs on hosts; see sheaf help",
            ),
            (
                &["sheaf", "-w", "h[1-6]", "systemctl", "status", "sshd"],
                "there is no command systemctl: sheaf works on files and runs no programs on hosts",
            ),
            (
                &["sheaf", "-w", "h1", "dmesg"],
                "there is no command dmesg: sheaf works on files and runs no programs on hosts; see sheaf help",
            ),
            (
                &["sheaf", "grep", "--perl-regexp", "a", "/x"],
                "grep has no option --perl-regexp; patterns are those of grep -E; see sheaf grep --help",
            ),
            (&["sheaf", "read", "--sum", "/x"], "read has no option --sum; see sheaf read --help"),
            (
                &["sheaf", "gerp", "/x"],
                "unrecognized subcommand 'gerp'; a similar subcommand exists: 'grep'; see sheaf help",
            ),
            (
                &["sheaf", "grepp", "/x"],
                "unrecognized subcommand 'grepp'; a similar subcommand exists: 'grep'; see sheaf help",
            ),
            (
                &["sheaf", "cat", "--timeout", "0", "/x"],
                "invalid value '0' for '--timeout <SECONDS>': must be more than 0 and at most 86400 seconds; see \
                 sheaf cat --help",
            ),
        ] {
            assert_eq!(said(words), line);
        }
    }
}
