//! The surroundings of a caller. Nothing in this crate looks at them by itself: what is to count is
//! handed over, so that a program (or a test) can be in several at once.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Names the session that commands use which name none.
pub const SESSION_VARIABLE: &str = "SHEAF_SESSION";

/// The user who has become root by `sudo`, who is not root.
const SUDO_VARIABLE: &str = "SUDO_UID";

/// The variables that mean something here.
const VARIABLES: [&str; 10] = [
    "CLUSTERSHELL_CFGDIR",
    "HOME",
    "PATH",
    "SHEAF_CONFIG",
    SESSION_VARIABLE,
    "SLURM_JOB_NODELIST",
    SUDO_VARIABLE,
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];

/// Variables and a working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    /// Where relative paths begin, or why that is not known.
    pub(crate) working_directory: Result<PathBuf, String>,
    /// Whether commands may run that list hosts and groups.
    pub(crate) runs_commands: bool,
}

impl Default for Environment {
    /// One without any variable, and without a working directory.
    fn default() -> Self {
        let working_directory = Err("none was given".to_owned());
        Self { variables: BTreeMap::new(), working_directory, runs_commands: true }
    }
}

impl Environment {
    /// That of this process, as it is now.
    #[must_use]
    pub fn of_this_process() -> Self {
        let known = |name: &str| Some((name.to_owned(), std::env::var_os(name)?));
        Self {
            variables: VARIABLES.into_iter().filter_map(known).collect(),
            working_directory: std::env::current_dir().map_err(|error| error.to_string()),
            runs_commands: true,
        }
    }

    /// The same with a variable set.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// The same in another working directory.
    #[must_use]
    pub fn in_directory(self, directory: impl Into<PathBuf>) -> Self {
        Self { working_directory: Ok(directory.into()), ..self }
    }

    /// The same for a caller that runs no command, whatever a file says
    /// ([`crate::groups::is_not_run`]).
    #[must_use]
    pub fn without_commands(self) -> Self {
        Self { runs_commands: false, ..self }
    }

    /// The value of a variable. An empty one counts as none.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }

    /// The session that commands use which name none, if one is chosen.
    #[must_use]
    pub fn session(&self) -> Option<String> {
        self.variable(SESSION_VARIABLE).map(|name| name.to_string_lossy().into_owned())
    }

    /// Whether the variable for that is there and names none, as one that was set from another that is not set.
    #[must_use]
    pub fn has_empty_session(&self) -> bool {
        self.variables.get(SESSION_VARIABLE).is_some_and(|name| name.is_empty())
    }

    /// The user as whom this one logged in before it became root by `sudo`.
    pub(crate) fn login_user(&self) -> Option<u32> {
        let uid = self.variable(SUDO_VARIABLE)?.to_str()?.parse().ok()?;
        (uid != 0).then_some(uid)
    }

    /// The path in a variable.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from)
    }
}
