//! How the processes of a cluster are started.
use std::fmt;
use std::str::FromStr;

/// How the processes of a cluster are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Inside this process.
    Embedded,
    /// As processes of this machine.
    Processes,
    /// On other hosts, over ssh.
    Ssh,
    /// On the nodes of a job of Slurm.
    Slurm,
    /// By somebody else: hosts come by themselves.
    Attach,
}

impl Launch {
    /// Every way there is, by its name in `sheaf.toml`.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("embedded", Self::Embedded),
        ("processes", Self::Processes),
        ("ssh", Self::Ssh),
        ("slurm", Self::Slurm),
        ("attach", Self::Attach),
    ];
}

impl FromStr for Launch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        one_of(text, &Self::NAMES)
    }
}

/// What has this name, or which names there are.
pub(super) fn one_of<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("there are {}", names.join(", "))
    })
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Self::NAMES.iter().find(|(_, launch)| launch == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}
