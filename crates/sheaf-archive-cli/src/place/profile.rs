//! Profiles of the programs of AWS: `~/.aws/credentials` and `~/.aws/config`.
use anyhow::{Context, Result};
use sheaf_cli::exit::Stop;
use sheaf_session::trust::{self, NotTrusted};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The profile of whoever names none.
const DEFAULT: &str = "default";
/// What is read at most of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is said of one user in these files.
#[derive(Debug)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// The environment names it.
    pub is_named: bool,
    /// The values of its names; those of a section within have its name and a dot before theirs.
    values: HashMap<String, String>,
}

impl Profile {
    /// The one that the environment means.
    pub fn of_environment() -> Result<Self> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let named = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let text = |name: &str, usual: &str| {
            let named = std::env::var_os(name).map(PathBuf::from);
            let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".aws").join(usual));
            match (&named, home()) {
                (Some(named), _) => read(named, trust::open_named_of_others),
                (None, Some(usual)) => read(&usual, trust::open_of_others),
                (None, None) => Ok(String::new()),
            }
        };
        let config = text("AWS_CONFIG_FILE", "config")?;
        let credentials = text("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        Self::of(named, &config, &credentials)
    }

    fn of(named: Option<String>, config: &str, credentials: &str) -> Result<Self> {
        let (is_named, name) = (named.is_some(), named.unwrap_or_else(|| DEFAULT.to_owned()));
        let mut values = HashMap::new();
        let of_config = |section: &str| match section.split_once(char::is_whitespace) {
            Some(("profile", section)) => section.trim() == name,
            _ => section == DEFAULT && name == DEFAULT,
        };
        let in_config = take(config, of_config, &mut values);
        // What both say, the credentials say.
        let in_credentials = take(credentials, |section| section == name, &mut values);
        if is_named && !in_config && !in_credentials {
            let text = format!("AWS_PROFILE: no profile {name} is in ~/.aws/config or credentials");
            return Err(Stop::usage(text).into());
        }
        Ok(Self { name, is_named, values })
    }

    /// What one of its names is.
    pub fn value(&self, name: &str) -> Option<String> {
        self.values.get(name).filter(|value| !value.is_empty()).cloned()
    }

    /// How it gets its credentials, if that is one of the ways that are not known here.
    pub fn unknown_kind(&self) -> Option<&'static str> {
        let has = |name| self.value(name).is_some();
        if has("sso_session") || has("sso_start_url") {
            Some("single sign-on (sso)")
        } else if has("source_profile") || has("credential_source") {
            Some("taking a role (source_profile)")
        } else {
            None
        }
    }
}

/// Reads a file of profiles. A file that another user could have written is refused: it names commands to run, files to
/// send to a server, and the server.
fn read(file: &Path, open: impl Fn(&Path) -> Result<File, NotTrusted>) -> Result<String> {
    // A link to it is a usual way to have no profile.
    if file.canonicalize().is_ok_and(|real| real == Path::new("/dev/null")) {
        return Ok(String::new());
    }
    let opened = match open(file) {
        Err(why) if why.is_absence() => return Ok(String::new()),
        Err(why) => return Err(Stop::usage(why.text(file)).into()),
        Ok(opened) => opened,
    };
    let mut text = String::new();
    let read = opened.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map(|_| text).with_context(|| file.display().to_string())
}

/// Takes what sections say that are meant; whether there is one.
fn take(text: &str, is_meant: impl Fn(&str) -> bool, values: &mut HashMap<String, String>) -> bool {
    let (mut is_taken, mut is_there, mut within) = (false, false, String::new());
    for line in text.lines() {
        let is_indented = line.starts_with(char::is_whitespace);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            let section = section.split(']').next().unwrap_or_default();
            is_taken = is_meant(section.trim().replace('"', "").as_str());
            is_there |= is_taken;
            within.clear();
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_taken) else { continue };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        // A blank and a mark begin a comment.
        let end = value.find(" #").or_else(|| value.find(" ;")).unwrap_or(value.len());
        let value = value[..end].trim_end();
        if !is_indented {
            within.clear();
        }
        if !within.is_empty() {
            values.insert(format!("{within}.{name}"), value.to_owned());
        } else if value.is_empty() {
            within = name;
        } else {
            values.insert(name, value.to_owned());
        }
    }
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
# of everybody
[default]
region = eu-central-1
[profile backup]
Region=us-west-2   # a comment
s3 =
  addressing_style = virtual
  max_concurrent_requests = 20
credential_process = /opt/keys --for \"two words\" x=y
[profile \"with blank\"]
sso_session = ours
[backup]
region = of-nobody
";
    const CREDENTIALS: &str = "\
[default]
aws_access_key_id = one
aws_secret_access_key = a#b=c
[backup]
aws_access_key_id=two
[]
[broken
aws_access_key_id = no
";

    #[test]
    fn profile_has_what_both_files_say() {
        let of = |name: Option<&str>| {
            Profile::of(name.map(ToOwned::to_owned), CONFIG, CREDENTIALS).unwrap()
        };
        let value = |profile: &Profile, name: &str| profile.value(name).unwrap_or_default();
        let default = of(None);
        assert!(!default.is_named);
        assert_eq!(value(&default, "region"), "eu-central-1");
        assert_eq!(value(&default, "aws_access_key_id"), "one");
        assert_eq!(value(&default, "aws_secret_access_key"), "a#b=c");
        let backup = of(Some("backup"));
        assert_eq!(value(&backup, "region"), "us-west-2");
        assert_eq!(value(&backup, "s3.addressing_style"), "virtual");
        assert_eq!(value(&backup, "credential_process"), "/opt/keys --for \"two words\" x=y");
        assert_eq!(value(&backup, "aws_access_key_id"), "two");
        assert_eq!(of(Some("with blank")).unknown_kind(), Some("single sign-on (sso)"));
        let none = Profile::of(Some("none".to_owned()), CONFIG, CREDENTIALS).unwrap_err();
        assert!(none.to_string().contains("no profile none"), "{none}");
        assert_eq!(Profile::of(None, "", "").unwrap().value("region"), None);
    }
}
