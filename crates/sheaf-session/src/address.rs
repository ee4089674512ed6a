//! Addresses: `HOSTSET:PATH` as scp writes it, and which leaves they mean.
//!
//! The first colon parts hosts from path, unless the text starts with `/` or `.`, or has a slash
//! before that colon: then all of it is a path. `@source:group:PATH` is read as a group with its
//! source; a path that begins like a group is written `@group:./a:b`.
//!
//! Paths on hosts are absolute. Only on this machine alone, where no configuration speaks of other
//! hosts or exports, a relative one starts at the working directory.
use crate::config::{Config, own_name, some_of, unbracketed};
use crate::error::{SessionError, one_line};
use crate::sessions::Sessions;
use sheaf_group::Target;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Hosts and a path on each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A host set; empty is every host of the cluster, and so is `None`, when no hosts were said.
    /// An empty one is refused where files are changed.
    pub hosts: Option<String>,
    /// A path or glob on the hosts, as it was written.
    pub path: PathBuf,
}

/// What cp copies from and to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// A path of this machine.
    Here(PathBuf),
    /// Files of hosts.
    Hosts(Address),
}

/// What an address is resolved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To read what the path or glob stands for.
    Read,
    /// To change it: hosts have to be said. The name is the command's.
    Change(&'static str),
    /// To write what has this very name; nothing in it is a wildcard.
    Name(&'static str),
}

impl Address {
    /// Parses `HOSTSET:PATH`, `:PATH` or `PATH`.
    ///
    /// # Errors
    /// When the text is empty or `-`, the host set is not UTF-8, or the path contains a NUL byte.
    pub fn parse(text: &OsStr) -> Result<Self, SessionError> {
        let (hosts, path) = match split(text.as_bytes()) {
            Some((hosts, path)) => (Some(hosts), path),
            None => (None, text.as_bytes()),
        };
        if hosts.is_none() && path == b"-" {
            let told = "-: standard input is not read here; a file of that name is written with \
                        its directory";
            return Err(SessionError::Address(told.to_owned()));
        }
        if hosts.is_none() && path.is_empty() {
            return Err(SessionError::Address("an empty address names no file".to_owned()));
        }
        let hosts = match hosts.map(std::str::from_utf8) {
            None => None,
            Some(Ok(hosts)) => Some(unbracketed(hosts)),
            Some(Err(_)) => {
                return Err(SessionError::Address(format!(
                    "{}: the host set is not UTF-8",
                    text.to_string_lossy()
                )));
            }
        };
        // "n1:" is what the host serves, as "host:" is a whole home for scp.
        let path = if path.is_empty() { b"." } else { path };
        if path.contains(&0) {
            return Err(SessionError::Address(format!(
                "{}: a path cannot hold a NUL byte",
                text.to_string_lossy()
            )));
        }
        Ok(Self { hosts, path: OsString::from_vec(path.to_vec()).into() })
    }

    /// Parses an argument of cp, where only a colon makes it a place on hosts.
    ///
    /// # Errors
    /// As [`Address::parse`].
    pub fn parse_place(text: &OsStr) -> Result<Side, SessionError> {
        match split(text.as_bytes()) {
            Some(_) => Self::parse(text).map(Side::Hosts),
            None if text.is_empty() => {
                Err(SessionError::Address("an empty path names no file".to_owned()))
            }
            None => Ok(Side::Here(text.into())),
        }
    }

    /// The leaves this address means in the cluster of `config`, and the absolute path.
    ///
    /// # Errors
    /// When the hosts are not of the cluster, or cannot be named for this purpose; as
    /// [`Address::path_on_hosts`].
    pub fn resolve(&self, config: &Config, purpose: Purpose) -> Result<Target, SessionError> {
        self.check_word(config)?;
        self.check_no_session_was_killed(config)?;
        self.check_hosts(config, purpose)?;
        let path = self.path_on_hosts(config, purpose)?;
        let members = match self.hosts.as_deref() {
            None | Some("") => config.everyone()?.clone(),
            Some(hosts) => config.leaves(hosts)?,
        };
        Ok(Target { members, path: path_text(path)? })
    }

    /// Hosts without a path look like a path without hosts.
    fn check_word(&self, config: &Config) -> Result<(), SessionError> {
        if self.hosts.is_some() || config.is_this_machine() {
            return Ok(());
        }
        let Some(word) = self.path.to_str().and_then(first_word) else { return Ok(()) };
        // What is no host set is a path, of which is said below what is wrong with it.
        match config.leaves(word).map(|leaves| leaves.len()) {
            Err(_) => Ok(()),
            Ok(1) => Err(SessionError::Address(format!("{word} is a host: put :PATH behind it"))),
            Ok(_) => Err(SessionError::Address(format!("{word} are hosts: put :PATH behind them"))),
        }
    }

    /// Nobody changes files of a thousand hosts by leaving something out.
    fn check_hosts(&self, config: &Config, purpose: Purpose) -> Result<(), SessionError> {
        if config.has_no_hosts() {
            self.check_hosts_are_known(config, purpose)?;
        }
        let (Purpose::Change(command) | Purpose::Name(command)) = purpose else { return Ok(()) };
        // An unset variable leaves a bare colon: "$HOSTS:/path".
        let is_bare = self.hosts.as_deref() == Some("");
        if config.is_this_machine() {
            return Ok(());
        }
        if !is_bare && (self.hosts.is_some() || config.says_hosts()) {
            return Ok(());
        }
        // All that hosts have is nothing to suggest.
        if names_nothing(&self.path) {
            return Err(SessionError::Address(format!(
                "{}: {command} changes files, so say on which hosts, and which files: HOSTSET:PATH",
                self.path.display()
            )));
        }
        let (path, all) = (rooted(&self.path), config.everyone_folded()?);
        if is_bare {
            return Err(SessionError::Address(format!(
                ":{}: {command} changes files, and an unset variable leaves a bare colon: write \
                 @all:{path} for all of {all}, or HOSTSET:{path}",
                self.path.display()
            )));
        }
        Err(SessionError::Address(format!(
            "{}: {command} changes files, so say on which hosts: write @all:{path} for all of \
             {all}, or HOSTSET:{path}",
            self.path.display()
        )))
    }

    /// Who says hosts where nothing says what they are may have forgotten the name of a session, or
    /// does not see it: then it would be this machine's files that are read or changed, also by its own
    /// name, for a session has an export.
    fn check_hosts_are_known(&self, config: &Config, purpose: Purpose) -> Result<(), SessionError> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let running = Sessions::running_anywhere(config.environment()).map_err(|error| {
            SessionError::Address(format!("which sessions run: {}", one_line(&error)))
        })?;
        // Of hosts that there are none of, it is said below how to have them.
        if running.is_empty() && !hosts.is_empty() && config.leaves(hosts).is_err() {
            return Ok(());
        }
        let changes = match purpose {
            Purpose::Read => String::new(),
            Purpose::Change(command) | Purpose::Name(command) => {
                format!("{command} changes files, and ")
            }
        };
        let path = self.path.display();
        let known = match &running[..] {
            [] => "nothing says which hosts there are: name them with -w HOSTS, a session with \
                   --session NAME"
                .to_owned(),
            _ => format!(
                "sessions are running ({}): say which with --session NAME",
                some_of(running.iter())
            ),
        };
        Err(SessionError::Address(format!(
            "{hosts}:{path}: {changes}{known}, or write {path} alone for this machine"
        )))
    }

    /// Who says hosts may mean those of a session that was killed: this machine alone would answer
    /// for all of them.
    fn check_no_session_was_killed(&self, config: &Config) -> Result<(), SessionError> {
        let Some(hosts) = self.hosts.as_ref().filter(|hosts| **hosts != own_name()) else {
            return Ok(());
        };
        if !config.has_no_hosts() {
            return Ok(());
        }
        let Some(ended) = Sessions::killed_anywhere(config.environment()) else { return Ok(()) };
        let path = self.path.display();
        Err(SessionError::Absent(format!(
            "{hosts}:{path}: {ended}: start it again, or have sheaf status forget it; {path} alone \
             is this machine's"
        )))
    }

    /// The path, from the top.
    ///
    /// # Errors
    /// When the path is relative and the cluster is not this machine.
    pub fn path_on_hosts(
        &self,
        config: &Config,
        purpose: Purpose,
    ) -> Result<PathBuf, SessionError> {
        if self.path.is_absolute() {
            return Ok(self.path.clone());
        }
        if config.is_this_machine() {
            let here = beneath_here(config, &self.path, purpose)?;
            check_tilde(&self.path, &here)?;
            return Ok(here);
        }
        let (hosts, colon) = self.hosts.as_deref().map_or(("", ""), |hosts| (hosts, ":"));
        if purpose != Purpose::Read && names_nothing(&self.path) {
            return Err(SessionError::Address(match self.path.to_str() {
                Some(".") if self.hosts.is_some() => format!("no path behind {hosts}{colon}"),
                _ => format!(
                    "{hosts}{colon}{}: a path on hosts begins with a slash",
                    self.path.display()
                ),
            }));
        }
        if self.path.as_os_str() == "." && self.hosts.is_some() {
            return Err(SessionError::Address(format!(
                "no path behind {hosts}: write it from the top, {hosts}:/…"
            )));
        }
        let (path, right) = (self.path.display(), rooted(&self.path));
        if self.path.starts_with(".") || self.path.starts_with("..") {
            return Err(SessionError::Address(format!(
                "{hosts}{colon}{path}: there is no working directory on hosts: write the path \
                 from the top, {hosts}{colon}/…"
            )));
        }
        if self.path.as_os_str().as_bytes().starts_with(b"~") {
            return Err(SessionError::Address(format!(
                "{hosts}{colon}{path}: there is no ~ on hosts: write the path from the top, \
                 {hosts}{colon}/…"
            )));
        }
        Err(SessionError::Address(format!(
            "{hosts}{colon}{path}: a path on hosts begins with a slash: write \
             {hosts}{colon}{right}"
        )))
    }
}

/// A path as it travels to hosts.
///
/// # Errors
/// When it is not UTF-8.
pub fn path_text(path: PathBuf) -> Result<String, SessionError> {
    path.into_os_string().into_string().map_err(|path| {
        SessionError::Address(format!(
            "{}: a path on hosts has to be UTF-8",
            path.to_string_lossy()
        ))
    })
}

/// Whether a path is the top, or nothing but dots.
fn names_nothing(path: &Path) -> bool {
    !path.components().any(|part| matches!(part, Component::Normal(_)))
}

/// The part of a relative path before its first slash outside brackets, where a host set would be.
fn first_word(path: &str) -> Option<&str> {
    let mut depth = 0u32;
    let end = path.bytes().position(|byte| {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        byte == b'/' && depth == 0
    });
    let word = &path[..end.unwrap_or(path.len())];
    (!word.is_empty() && !word.starts_with('.')).then_some(word)
}

/// A relative path as what it may have been meant to be: the same from the top.
pub fn rooted(path: &Path) -> String {
    let mut text = path.to_str().map_or_else(|| path.display().to_string(), ToOwned::to_owned);
    while let Some(rest) = text.strip_prefix("./").or_else(|| text.strip_prefix("../")) {
        text = rest.trim_start_matches('/').to_owned();
    }
    if matches!(text.as_str(), "." | "..") {
        text.clear();
    }
    format!("/{}", text.trim_start_matches('/'))
}

/// Refuses `~/f` where neither it nor its directory exists: the shell left a `~` in quotes as it is.
fn check_tilde(path: &Path, here: &Path) -> Result<(), SessionError> {
    let Some(rest) = path.to_str().and_then(|path| path.strip_prefix("~/")) else { return Ok(()) };
    let first = here.ancestors().nth(path.components().count() - 1).unwrap_or(here);
    if std::fs::symlink_metadata(first).is_ok() {
        return Ok(());
    }
    Err(SessionError::Address(format!(
        "~/{rest}: the shell does not expand a ~ in quotes: write ~/{rest} without them, or \
         \"$HOME/{rest}\" (a directory of that name is ./~)"
    )))
}

/// A relative path of this machine, from the working directory.
fn beneath_here(config: &Config, path: &Path, purpose: Purpose) -> Result<PathBuf, SessionError> {
    let here = config.environment().working_directory.clone();
    let here =
        here.map_err(|error| SessionError::Address(format!("the working directory: {error}")))?;
    let here = here.into_os_string().into_vec();
    let here = if matches!(purpose, Purpose::Name(_)) { here } else { escaped(&here) };
    let mut relative = path.as_os_str().as_bytes();
    while let Some(rest) = relative.strip_prefix(b"./") {
        relative = &rest[rest.iter().take_while(|byte| **byte == b'/').count()..];
    }
    let here = Path::new(OsStr::from_bytes(&here));
    Ok(match relative {
        b"" | b"." if purpose == Purpose::Read => here.to_owned(),
        // `rm .` has to stay what it is: a name that cannot be removed.
        b"" => here.join("."),
        _ => here.join(OsStr::from_bytes(relative)),
    })
}

/// Bytes in which a pattern finds nothing but themselves.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for byte in path {
        if b"*?[]{}\\".contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

/// Parts hosts from path; `None` when there are no hosts.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if text.starts_with(b"/") || text.starts_with(b".") {
        return None;
    }
    let colon = separator(text)?;
    let hosts = &text[..colon];
    // The last word of the host set, when it is a group that may have named its source only.
    let word = hosts.rsplit(|byte| b",!&^ ".contains(byte)).next().unwrap_or(hosts);
    let names_a_source = word.starts_with(b"@") && word != b"@all" && word != b"@*";
    let second = if names_a_source { separator(&text[colon + 1..]) } else { None };
    let end = second.map_or(colon, |second| colon + 1 + second);
    Some((&text[..end], &text[end + 1..]))
}

/// The first colon outside brackets, when no slash outside brackets comes before it.
fn separator(text: &[u8]) -> Option<usize> {
    let mut depth = 0u32;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b'/' if depth == 0 => return None,
            b':' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    // A bracket that is never closed: the host set's parser says so better than a missing file.
    (depth > 0).then(|| text.iter().position(|byte| *byte == b':')).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> (Option<String>, String) {
        let address = Address::parse(OsStr::new(text)).unwrap();
        (address.hosts, address.path.to_str().unwrap().to_owned())
    }

    #[test]
    fn first_colon_parts_hosts_from_path() {
        let with = |hosts: &str, path: &str| (Some(hosts.to_owned()), path.to_owned());
        let without = |path: &str| (None, path.to_owned());
        assert_eq!(parsed("n[1-4]:/etc/hosts"), with("n[1-4]", "/etc/hosts"));
        assert_eq!(parsed("n[1-9/2]:etc"), with("n[1-9/2]", "etc"));
        assert_eq!(parsed("@web,n7:/a:b"), with("@web,n7", "/a:b"));
        assert_eq!(parsed("[::1]:/etc/hosts"), with("::1", "/etc/hosts"));
        assert_eq!(parsed("n1,[fe80::1%eth0]:/a"), with("n1,fe80::1%eth0", "/a"));
        assert_eq!(parsed("n1:"), with("n1", "."));
        assert_eq!(parsed(":/etc"), with("", "/etc"));
        assert_eq!(parsed("/a:b"), without("/a:b"));
        assert_eq!(parsed("./a:b"), without("./a:b"));
        assert_eq!(parsed(":./a:b"), with("", "./a:b"));
        assert_eq!(parsed("etc/a:b"), without("etc/a:b"));
        assert_eq!(parsed("etc"), without("etc"));
        assert_eq!(parsed("@all:a:b"), with("@all", "a:b"));
        assert_eq!(parsed("@rack:r1:/etc"), with("@rack:r1", "/etc"));
        assert_eq!(parsed("n1,@rack:r1:etc"), with("n1,@rack:r1", "etc"));
        assert_eq!(parsed("@web:./a:b"), with("@web", "./a:b"));
        assert_eq!(parsed("n[1-:/etc"), with("n[1-", "/etc"));
    }

    #[test]
    fn only_a_colon_makes_a_place_remote() {
        let place = |text| Address::parse_place(OsStr::new(text)).unwrap();
        assert_eq!(place("etc"), Side::Here("etc".into()));
        assert_eq!(place("-"), Side::Here("-".into()));
        assert_eq!(
            place(":etc"),
            Side::Hosts(Address { hosts: Some(String::new()), path: "etc".into() })
        );
    }

    #[test]
    fn relative_path_is_suggested_from_the_top() {
        for (path, right) in [
            ("etc", "/etc"),
            ("./etc/", "/etc/"),
            ("..//../etc", "/etc"),
            (".", "/"),
            ("..", "/"),
            (".ssh", "/.ssh"),
        ] {
            assert_eq!(rooted(Path::new(path)), right);
        }
    }

    proptest! {
        /// Whatever the working directory is called, it stands for itself alone.
        #[test]
        fn escaped_path_is_no_pattern(path in "/[a*?\\[\\]{},!\\\\b]{1,16}") {
            let text = String::from_utf8(escaped(path.as_bytes())).unwrap();
            let pattern = sheaf_file::Pattern::new(&text).unwrap();
            prop_assert_eq!(pattern.literal(), Some(PathBuf::from(path)));
        }

        #[test]
        fn garbage_never_panics(
            text in "[\\[\\]@a-c0-9:/,.!-]{0,24}",
            bytes in prop::collection::vec(any::<u8>(), 0..24),
        ) {
            let _ = Address::parse(OsStr::new(&text));
            let _ = Address::parse(OsStr::from_bytes(&bytes));
        }
    }
}
