//! What is said of a `sheaf trace` command line that is wrong.
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Forms of `export --to`.
const FORMS: [&str; 4] = ["perfetto", "csv", "darshan", "chrome"];
/// What others call `export --to`.
const FORM_OPTIONS: [&str; 4] = ["--format", "--form", "-f", "--type"];
/// What others call an end after some time, which a program that is recorded has not.
const END_OPTIONS: [&str; 3] = ["--for", "--duration", "--time"];

/// What is wrong, and what to type; `None` where nothing more is to be said than of any command.
/// `name` is that of the command below `trace`, or empty.
pub fn told(error: &clap::Error, name: &str, words: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    match error.kind() {
        ErrorKind::UnknownArgument => unknown(text(ContextKind::InvalidArg)?, name, &words),
        ErrorKind::MissingRequiredArgument => {
            let Some(ContextValue::Strings(all)) = error.get(ContextKind::InvalidArg) else {
                return None;
            };
            let is_missing = |begin: &str| all.iter().any(|arg| arg.starts_with(begin));
            missing(name, is_missing, &words)
        }
        ErrorKind::InvalidSubcommand => {
            let help = text(ContextKind::InvalidSubcommand).filter(|word| *word == "help");
            let of = words.iter().skip_while(|word| **word != "help").nth(1);
            let of = of.map(|of| format!(" {of}")).unwrap_or_default();
            help.map(|_| format!("trace has no command help: sheaf help trace{of}"))
        }
        _ => None,
    }
}

/// Of a word or an option that the command has not.
fn unknown(word: &str, name: &str, words: &[&str]) -> Option<String> {
    if word.starts_with('-') {
        return match name {
            "export" if FORM_OPTIONS.contains(&word) => Some(format!(
                "trace export has no option {word}; --to FORM says the form: --to perfetto, --to csv or \
                 --to darshan"
            )),
            "record" if END_OPTIONS.contains(&word) => Some(format!(
                "trace record has no option {word}; it ends with COMMAND, which timeout ends: sheaf \
                 trace record -- timeout 60 COMMAND"
            )),
            _ => None,
        };
    }
    let form = FORMS.iter().find(|form| words.contains(form) && !words.contains(&"--to"));
    match (name, form) {
        ("export", Some(form)) => {
            let trace = if word == *form { "TRACE" } else { word };
            Some(format!("--to says the form: sheaf trace export --to {form} {trace}"))
        }
        ("export", None) => Some(format!(
            "{word} is one word too many: trace export takes one TRACE and writes to standard output, or \
             with -o {word} to a file"
        )),
        ("report" | "recover", _) => {
            Some(format!("{word} is one word too many: trace {name} takes one TRACE"))
        }
        ("snapshot", _) => Some(format!(
            "{word} is one word too many: trace snapshot takes one DIR, that of the recorder"
        )),
        ("replay", _) => {
            Some(format!("{word} is one word too many: trace replay takes one TRACE and one DIR"))
        }
        ("serve", _) => Some(format!(
            "{word} stands where no word can: what is to run meanwhile comes behind --"
        )),
        _ => None,
    }
}

/// Of a word that has to be there.
fn missing(name: &str, is_missing: impl Fn(&str) -> bool, words: &[&str]) -> Option<String> {
    match name {
        "record" if is_missing("--flight") => Some(
            "--slow-ms is for a flight recorder: sheaf trace record --flight --slow-ms MS -- COMMAND"
                .to_owned(),
        ),
        "report" => {
            let page = words.iter().skip_while(|word| **word != "--html").nth(1).copied();
            let page = page.or_else(|| words.iter().find_map(|word| word.strip_prefix("--html=")));
            Some(match page {
                Some(page) => format!(
                    "the TRACE is missing: {page} was taken for the page, whose name --html says: sheaf \
                     trace report --html page.html {page}"
                ),
                None => "the TRACE is missing: sheaf trace report NAME.trace".to_owned(),
            })
        }
        "record" if is_missing("<COMMAND>") => Some(
            "the COMMAND is missing that is to be recorded: sheaf trace record -- COMMAND"
                .to_owned(),
        ),
        "export" if is_missing("--to") => {
            let form = FORMS.iter().find(|form| words.contains(form)).unwrap_or(&"csv");
            Some(format!(
                "the form is missing: sheaf trace export --to {form} TRACE (or --to {})",
                if *form == "csv" { "perfetto, --to darshan" } else { "csv" }
            ))
        }
        _ => None,
    }
}
