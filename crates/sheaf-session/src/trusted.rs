//! Directories in which the user has allowed a `sheaf.toml` to count.
//!
//! A `sheaf.toml` makes commands run as the user. One in the working directory may have come with a
//! cloned repository or an unpacked archive, which then would decide what `sheaf` runs. So that file
//! counts only in or below a directory of this list, which `sheaf config trust` writes. A file that
//! the user names, or that is in a directory of configuration, counts without it.
use crate::environment::Environment;
use crate::error::SessionError;
use crate::trust;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The longest list that is read.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The list of trusted directories of one user.
#[derive(Debug)]
pub struct Trusted {
    /// Where it is kept; `None` without a home directory.
    path: Option<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Trusted {
    /// Reads the list of the user whose environment this is. A list that does not exist is empty.
    ///
    /// # Errors
    /// When the list cannot be read, or another user could have written it.
    pub fn read(environment: &Environment) -> Result<Self, SessionError> {
        let path = place(environment);
        let mut directories = BTreeSet::new();
        if let Some(path) = &path {
            match read(path) {
                Ok(text) => directories.extend(parse(&text)),
                Err(why) if why.is_absence() => {}
                Err(why) => return Err(SessionError::Configuration(why.text(path))),
            }
        }
        Ok(Self { path, directories })
    }

    /// Whether a directory, given by its real path, is trusted or below a trusted one.
    #[must_use]
    pub fn covers(&self, directory: &Path) -> bool {
        directory.ancestors().any(|above| self.directories.contains(above))
    }

    /// The directories of the list.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(PathBuf::as_path)
    }

    /// Adds a directory by its real path, which is returned, and writes the list.
    ///
    /// # Errors
    /// When it is no directory, or every other one is below it, or another user could exchange it
    /// or what is in it, or the list cannot be written.
    pub fn add(&mut self, directory: &Path) -> Result<PathBuf, SessionError> {
        let real =
            directory.canonicalize().map_err(|error| SessionError::file(directory, error))?;
        let shown = real.display();
        if !real.is_dir() {
            return Err(SessionError::Choice(format!("{shown}: it is not a directory")));
        }
        if real.parent().is_none() {
            let text = "/: every directory is below it; trust the directory of the sheaf.toml";
            return Err(SessionError::Choice(text.to_owned()));
        }
        if real.as_os_str().as_bytes().contains(&b'\n') {
            let text = "a directory with a newline in its name cannot be trusted";
            return Err(SessionError::Choice(text.to_owned()));
        }
        trust::check_way(&real).map_err(|why| SessionError::Configuration(why.text(&real)))?;
        self.directories.insert(real.clone());
        self.write()?;
        Ok(real)
    }

    /// Removes a directory, which need not exist any more, and writes the list. Returns whether it
    /// was in the list.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn remove(&mut self, directory: &Path) -> Result<bool, SessionError> {
        let real = directory.canonicalize().or_else(|_| std::path::absolute(directory));
        let real = real.map_err(|error| SessionError::file(directory, error))?;
        let was_there = self.directories.remove(&real);
        if was_there {
            self.write()?;
        }
        Ok(was_there)
    }

    /// Writes the list under another name, and renames it.
    fn write(&self) -> Result<(), SessionError> {
        let Some(path) = &self.path else {
            let text = "no place for the list of trusted directories: set HOME";
            return Err(SessionError::NoPlace(text.to_owned()));
        };
        let failed = |error| SessionError::file(path, error);
        if let Some(directory) = path.parent() {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(directory).map_err(failed)?;
        }
        // It would not be read there, and may lead into a directory of another user's choice.
        if let Some(who) = trust::exchangeable(path).map_err(failed)? {
            let text = format!("{who} could exchange {}: it is not written", path.display());
            return Err(SessionError::Configuration(text));
        }
        let mut text =
            b"# sheaf config trust: in and below these directories sheaf.toml counts\n".to_vec();
        for directory in &self.directories {
            text.extend_from_slice(directory.as_os_str().as_bytes());
            text.push(b'\n');
        }
        let new = path.with_extension(format!("new-{}", std::process::id()));
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&new, path));
        written.map_err(|error| {
            // What was not renamed is of no use; it may not be there at all.
            let _ = std::fs::remove_file(&new);
            failed(error)
        })
    }
}

/// Where the list is kept. A relative `XDG_CONFIG_HOME` does not count: it would lead into the
/// working directory.
fn place(environment: &Environment) -> Option<PathBuf> {
    let home = environment.path("HOME").map(|home| home.join(".config"));
    let absolute = |path: &PathBuf| path.is_absolute();
    let home = environment.path("XDG_CONFIG_HOME").filter(absolute).or(home.filter(absolute))?;
    Some(home.join("sheaf/trusted"))
}

fn read(path: &Path) -> Result<Vec<u8>, trust::NotTrusted> {
    let mut text = Vec::new();
    trust::open(path)?.take(LIST_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The absolute paths of a list, one a line.
fn parse(text: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| Path::new(OsStr::from_bytes(line)));
    lines.filter(|path| path.is_absolute()).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_below_a_trusted_one_are_trusted() {
        let home = tempfile::tempdir().unwrap();
        let (lab, other) = (home.path().join("lab"), home.path().join("laboratory"));
        std::fs::create_dir_all(lab.join("deep/er")).unwrap();
        std::fs::create_dir(&other).unwrap();
        let here = Environment::default().with("HOME", home.path());
        let mut trusted = Trusted::read(&here).unwrap();
        assert!(!trusted.covers(&lab));
        let real = trusted.add(&lab).unwrap();
        let trusted = Trusted::read(&here).unwrap();
        assert!(trusted.covers(&real) && trusted.covers(&real.join("deep/er")));
        assert!(!trusted.covers(&other.canonicalize().unwrap()), "a name that begins alike");
        assert!(!trusted.covers(real.parent().unwrap()));
        let mut trusted = trusted;
        assert!(trusted.remove(&lab).unwrap() && !trusted.remove(&lab).unwrap());
        assert!(!Trusted::read(&here).unwrap().covers(&real));
    }

    #[test]
    fn trusted_list_is_not_found_in_the_working_directory() {
        let here = Environment::default().with("XDG_CONFIG_HOME", "xdg").with("HOME", "/h");
        assert_eq!(place(&here).unwrap(), Path::new("/h/.config/sheaf/trusted"));
        assert_eq!(place(&Environment::default().with("HOME", "h")), None);
        let lines = b"# comment\n/a b\nrelative\n\n/c\n";
        let parsed: Vec<PathBuf> = parse(lines).collect();
        assert_eq!(parsed, [Path::new("/a b"), Path::new("/c")]);
    }

    /// Nor is it written where another user's link leads.
    #[test]
    fn trusted_list_of_another_user_is_not_written() {
        if !rustix::process::geteuid().is_root() {
            return sheaf_testing::skipped("only root can make links of other users");
        }
        let home = tempfile::tempdir().unwrap();
        let (lab, secret) = (home.path().join("lab"), home.path().join("secret"));
        let link = home.path().join("config/sheaf");
        for directory in [&lab, &secret, &home.path().join("config")] {
            std::fs::create_dir(directory).unwrap();
        }
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4711), None).unwrap();
        let config = home.path().join("config");
        let here = Environment::default().with("XDG_CONFIG_HOME", &config);
        let error = Trusted::read(&here).unwrap().add(&lab).unwrap_err().to_string();
        assert!(error.contains("it belongs to user 4711"), "{error}");
        assert_eq!(secret.read_dir().unwrap().count(), 0);
    }

    #[test]
    fn whole_file_system_cannot_be_trusted() {
        let home = tempfile::tempdir().unwrap();
        let here = Environment::default().with("HOME", home.path());
        let mut trusted = Trusted::read(&here).unwrap();
        assert!(trusted.add(Path::new("/")).is_err());
        assert!(trusted.add(Path::new("/etc/hostname")).is_err(), "no directory");
        assert!(!home.path().join(".config").exists());
    }
}
