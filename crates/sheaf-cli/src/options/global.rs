//! The options every command takes.
use super::Named;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum, ValueHint};
use sheaf_session::Choices;
use sheaf_session::config::{Launch, LinkChoice, user_name};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The most servers `--embedded` starts in one process.
const EMBEDDED_MAX: u32 = 65_536;
/// The most server processes `--processes` starts on this machine.
const PROCESSES_MAX: u32 = 4_096;
/// The longest `--timeout`: a day.
const TIMEOUT_MAX_S: f64 = 86_400.0;
/// Options that every command takes, before or after its name.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// The cluster of sheaf.toml to work on
    #[arg(short = 'C', long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,

    /// Read this file in place of the sheaf.toml that would be found
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Work on N servers inside this process, called n1 to nN
    #[arg(long, global = true, value_name = "N", conflicts_with_all = ["cluster", "processes"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(EMBEDDED_MAX)))]
    pub embedded: Option<u32>,

    /// Work on N server processes of this machine, called n1 to nN
    #[arg(long, global = true, value_name = "N", conflicts_with = "cluster")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(PROCESSES_MAX)))]
    pub processes: Option<u32>,

    /// Work on these hosts: those of the cluster if it has them all, else over ssh; no file has to
    /// know them. With -C they are the hosts of that cluster
    #[arg(short = 'w', long = "hosts", value_name = "HOSTSET", allow_hyphen_values = true)]
    pub on_hosts: Vec<String>,

    /// Leave these hosts out
    #[arg(short = 'x', long, value_name = "HOSTSET")]
    pub exclude_hosts: Vec<String>,

    /// How servers are started: ssh (for -w), embedded, processes, slurm, attach
    #[arg(long, global = true, value_name = "HOW", hide_possible_values = true)]
    #[arg(value_parser = Named(<Launch as FromStr>::from_str, Launch::NAMES.map(|(name, _)| name)))]
    pub launch: Option<Launch>,

    /// Log in to hosts as this user
    #[arg(short = 'l', long, global = true, value_name = "USER")]
    #[arg(value_parser = user_name)]
    pub user: Option<String>,

    /// Start servers through sudo -n
    #[arg(long, global = true)]
    pub sudo: bool,

    /// The directory each server serves; %h stands for the host's name
    #[arg(long, global = true, value_name = "DIR")]
    pub export: Option<String>,

    /// The shape of the tree: auto, flat, 1x8x8, k-ary:32, k-nomial:2, file:F
    #[arg(long, global = true, value_name = "SPEC")]
    pub tree: Option<String>,

    /// Run the nodes between root and leaves on these hosts, not on the leaves'
    #[arg(long, global = true, value_name = "HOSTSET")]
    pub inner_hosts: Option<String>,

    /// What joins nodes of the tree: auto, ssh, tls, unix, tcp (not encrypted)
    #[arg(long, global = true, value_name = "KIND", hide_possible_values = true, value_parser = link())]
    pub link: Option<LinkChoice>,

    /// Use the running session of this name [default: $SHEAF_SESSION]
    #[arg(long, global = true, value_name = "NAME")]
    pub session: Option<String>,

    /// Be done after this long; hosts that have not answered by then are silent
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,

    /// Print JSON, one object per line (docs/json.md)
    #[arg(long, global = true)]
    pub json: bool,

    /// With --json, list the hosts of every set, too
    #[arg(long, global = true)]
    pub host_list: bool,

    /// Say nothing on standard error about members that failed
    #[arg(long, global = true)]
    pub quiet: bool,

    /// When to use colours: auto, always, never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    pub color: Color,

    /// Say on standard error what happens; twice or three times for more
    #[arg(short = 'v', long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// Write down what happens, with times, at the end of this file
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(value_parser = PathBufValueParser::new().try_map(log_file))]
    pub log: Option<PathBuf>,
}

/// When output is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

impl GlobalArgs {
    /// What these options choose, whatever a file says.
    pub fn choices(&self) -> Choices {
        let Self {
            cluster,
            config,
            embedded,
            processes,
            on_hosts,
            exclude_hosts,
            launch,
            user,
            sudo,
            export,
            tree,
            inner_hosts,
            link,
            session,
            timeout,
            ..
        } = self.clone();
        Choices {
            cluster,
            config,
            embedded,
            processes,
            on_hosts,
            exclude_hosts,
            launch,
            user,
            sudo,
            export,
            tree,
            inner_hosts,
            link,
            session,
            begins: false,
            timeout,
        }
    }

    /// These options as words of a command line.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut put = |option: &str, value: Option<OsString>| {
            if let Some(value) = value {
                words.extend([option.into(), value]);
            }
        };
        let text = |value: &Option<String>| value.clone().map(OsString::from);
        put("--cluster", text(&self.cluster));
        put("--config", self.config.clone().map(Into::into));
        put("--embedded", self.embedded.map(|count| count.to_string().into()));
        put("--processes", self.processes.map(|count| count.to_string().into()));
        self.on_hosts.iter().for_each(|hosts| put("--hosts", Some(hosts.into())));
        self.exclude_hosts.iter().for_each(|hosts| put("--exclude-hosts", Some(hosts.into())));
        put("--launch", self.launch.map(|launch| launch.to_string().into()));
        put("--user", text(&self.user));
        put("--export", text(&self.export));
        put("--tree", text(&self.tree));
        put("--inner-hosts", text(&self.inner_hosts));
        put("--link", self.link.map(|link| link.to_string().into()));
        put("--session", text(&self.session));
        put("--timeout", self.timeout.map(|time| time.as_secs_f64().to_string().into()));
        put("--log", self.log.clone().map(Into::into));
        let color = self.color.to_possible_value();
        put("--color", color.map(|value| value.get_name().into()));
        let flags = [
            ("--sudo", self.sudo),
            ("--json", self.json),
            ("--host-list", self.host_list),
            ("--quiet", self.quiet),
        ];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.into()));
        words.extend((0..self.verbose).map(|_| "--verbose".into()));
        words
    }
}

/// The option that says which hosts to work on, if there is one.
pub fn option_for_hosts(global: &GlobalArgs) -> Option<&'static str> {
    let options = [
        ("-w", !global.on_hosts.is_empty()),
        ("-x", !global.exclude_hosts.is_empty()),
        ("-C", global.cluster.is_some()),
        ("--embedded", global.embedded.is_some()),
        ("--processes", global.processes.is_some()),
        ("--session", global.session.is_some()),
        ("--launch", global.launch.is_some()),
        ("--tree", global.tree.is_some()),
        ("--inner-hosts", global.inner_hosts.is_some()),
        ("--link", global.link.is_some()),
        ("--export", global.export.is_some()),
        ("-l", global.user.is_some()),
        ("--sudo", global.sudo),
    ];
    options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

/// Parses one of the values that have names, of which clap says itself when it is none.
fn link() -> impl TypedValueParser<Value = LinkChoice> {
    PossibleValuesParser::new(LinkChoice::NAMES.map(|(name, _)| name))
        .try_map(|name| name.parse::<LinkChoice>())
}

/// The file of `--log`, which is none where somebody means how much to say.
fn log_file(file: PathBuf) -> Result<PathBuf, String> {
    let meant = match file.to_str().map(str::to_ascii_lowercase).as_deref() {
        Some("error" | "warn" | "warning" | "info") => "-v",
        Some("debug") => "-vv",
        Some("trace") => "-vvv",
        _ => return Ok(file),
    };
    let name = file.display();
    Err(format!("it is a file; did you mean {meant}? a file of that name is ./{name}"))
}

/// Parses a duration given in seconds, such as `2` or `0.5`.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s <= TIMEOUT_MAX_S => Ok(Duration::from_secs_f64(s)),
        Ok(_) => Err(format!("must be more than 0 and at most {TIMEOUT_MAX_S} seconds")),
        Err(_) => Err("not a number of seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_no_file_to_log_to() {
        for (level, meant) in [("info", "-v"), ("DEBUG", "-vv"), ("trace", "-vvv")] {
            let told =
                format!("it is a file; did you mean {meant}? a file of that name is ./{level}");
            assert_eq!(log_file(level.into()), Err(told));
        }
        for file in ["./debug", "debug.log", "/tmp/trace"] {
            assert_eq!(log_file(file.into()), Ok(file.into()));
        }
    }

    /// `GlobalArgs` has a field that `words` leaves out, if this fails.
    #[test]
    fn words_of_options_parse_to_the_same_options() {
        use clap::FromArgMatches as _;
        let said = "-C lab --config f -w a -w b -x c --launch ssh -l me --sudo --export /x --tree flat \
                    --inner-hosts d --link tls --session s --timeout 0.25 --json --host-list --quiet \
                    --color never -vv --log l";
        let parse = |words: Vec<OsString>| {
            let command =
                GlobalArgs::augment_args(clap::Command::new("sheaf").no_binary_name(true));
            GlobalArgs::from_arg_matches(&command.get_matches_from(words)).unwrap()
        };
        for said in [said, "--embedded 4", "--processes 3", ""] {
            let given = parse(said.split_whitespace().map(Into::into).collect());
            assert_eq!(format!("{:?}", parse(given.words())), format!("{given:?}"));
        }
    }

    #[test]
    fn seconds_have_bounds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "inf", "86401", "x", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
