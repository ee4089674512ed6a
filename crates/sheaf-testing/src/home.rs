//! Runs `sheaf` in a directory of its own, with an environment that holds nothing of ours.
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A temporary directory that is the working directory, the home and the configuration of a run.
pub struct Home(tempfile::TempDir);

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A home whose `sheaf.toml` says this.
    pub fn with_config(text: &str) -> Self {
        let home = Self::new();
        home.write("sheaf.toml", text);
        home
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        // Whatever the umask is: what a group can write to is not believed.
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(crate::built("sheaf"), args)
    }

    /// The same of another program.
    pub fn command_of(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.path()).env_clear();
        // Sessions that this machine is in must not show.
        command.env("XDG_RUNTIME_DIR", self.runtime_dir()).env("TMPDIR", self.runtime_dir());
        command.env("HOME", self.path()).env("PATH", "/usr/bin:/bin");
        // Groups of an installed ClusterShell must not show: this directory goes before its own.
        self.write(
            "clustershell/groups.conf",
            "[Main]\ndefault:\n[local]\nmap: true\nlist: true\n",
        );
        command.env("CLUSTERSHELL_CFGDIR", self.path().join("clustershell"));
        // Its own sheaf.toml counts.
        let real = self.path().canonicalize().unwrap();
        self.write(".config/sheaf/trusted", &format!("{}\n", real.display()));
        command
    }

    /// Where sessions of this home have their sockets.
    pub fn runtime_dir(&self) -> PathBuf {
        let dir = self.path().join("run");
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    pub fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// Runs the binary in a shell, which redirects it as `redirection` says.
    pub fn redirected(&self, args: &[&str], redirection: &str) -> Run {
        self.shell(args, &format!("exec \"$0\" \"$@\" {redirection}"))
    }

    /// Runs a shell script in which `"$0" "$@"` is the binary with its arguments.
    pub fn shell(&self, args: &[&str], script: &str) -> Run {
        let direct = self.command(args);
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
            .arg(direct.get_program())
            .args(direct.get_args())
            .current_dir(self.path())
            .env_clear();
        shell.envs(direct.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Run::of(shell.output().unwrap())
    }
}

/// How a run ended and what it printed.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Standard error without what `-v` says of what happens meanwhile.
    pub fn errors(&self) -> String {
        self.stderr.split_inclusive('\n').filter(|line| !line.starts_with("sheaf: [")).collect()
    }
}

/// Whether this process may open so many descriptors; from here on it may open as many as any of
/// its tests needs, which run side by side.
pub fn may_open(wanted: u64) -> bool {
    const MOST: u64 = 1 << 14;
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(MOST).min(MOST);
    if limit.current.is_some_and(|current| current < most) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }).unwrap();
    }
    limit.current.unwrap_or(u64::MAX).max(most) >= wanted
}
